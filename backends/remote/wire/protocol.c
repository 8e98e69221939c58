#include "backends/remote/wire/protocol.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/clock.h"

enum { NOISE_KEPT_BYTES = 512, PREFIX_BYTES = MAGIC_BYTES + NONCE_BYTES + 4 };

/* The first byte is neither text nor the start of a UTF-8 sequence. */
static const uint8_t hello_magic[MAGIC_BYTES] = {0xff, 'i', 's', 't', 'h', 'm', 'C', 0x01};
static const uint8_t welcome_magic[MAGIC_BYTES] = {0xff, 'i', 's', 't', 'h', 'm', 'S', 0x01};

static void put_u32(uint8_t *out, uint32_t number)
{
	for (int i = 0; i < 4; i++)
		out[i] = (uint8_t)(number >> (8 * i));
}

static uint32_t get_u32(const uint8_t *in)
{
	return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 |
	       (uint32_t)in[3] << 24;
}

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES])
{
	put_u32(out, header->size);
	out[4] = header->type;
	out[5] = header->flags;
	out[6] = out[7] = 0;
	put_u32(out + 8, header->id);
	put_u32(out + 12, header->ack);
}

int frame_header_decode(const uint8_t in[FRAME_HEADER_BYTES], struct frame_header *ret_header)
{
	struct frame_header header = {.size = get_u32(in),
		.type = in[4],
		.flags = in[5],
		.id = get_u32(in + 8),
		.ack = get_u32(in + 12)};

	if (header.size > FRAME_PAYLOAD_MAX_BYTES || in[5] > FRAME_FLAGS || in[6] || in[7])
		return -EPROTO;
	if ((header.flags & FRAME_HAS_MORE) && header.type < FRAME_FIRST_COUNTED)
		return -EPROTO;
	*ret_header = header;
	return 0;
}

_Static_assert(REQUEST_WATCH == 65, "the numbers of requests stay: new ones come last");

unsigned request_flags(unsigned type)
{
	static const unsigned flags_of[REQUEST_END] = {
#define REQUEST(NAME, name, flags) [REQUEST_##NAME] = (flags),
#include "backends/remote/wire/requests.def"
#undef REQUEST
	};

	return type < REQUEST_END ? flags_of[type] : 0;
}

static void encode_opening(struct wire_writer *w, const uint8_t *magic, const uint8_t *nonce,
	const struct wire_writer *body)
{
	uint8_t length[4];

	put_u32(length, (uint32_t)body->buffer.size);
	wire_put_raw(w, magic, MAGIC_BYTES);
	wire_put_raw(w, nonce, NONCE_BYTES);
	wire_put_raw(w, length, sizeof(length));
	wire_put_raw(w, body->buffer.data, body->buffer.size);
	if (body->error)
		w->error = body->error;
}

void hello_encode(struct wire_writer *w, const struct hello *hello)
{
	cleanup_wire_writer struct wire_writer body = {0};

	wire_put_number(&body, hello->version);
	wire_put_raw(&body, hello->session, TOKEN_BYTES);
	wire_put_raw(&body, hello->token, TOKEN_BYTES);
	wire_put_number(&body, hello->received);
	wire_put_number(&body, hello->linger_seconds);
	wire_put_string(&body, hello->root);
	wire_put_number(&body, hello->ends);
	wire_put_number(&body, hello->channel);
	wire_put_number(&body, hello->compression);
	encode_opening(w, hello_magic, hello->nonce, &body);
}

void welcome_encode(struct wire_writer *w, const struct welcome *welcome)
{
	cleanup_wire_writer struct wire_writer body = {0};

	wire_put_number(&body, welcome->version);
	wire_put_error(&body, welcome->error);
	wire_put_string(&body, welcome->reason);
	wire_put_number(&body, welcome->resumed);
	wire_put_raw(&body, welcome->session, TOKEN_BYTES);
	wire_put_raw(&body, welcome->token, TOKEN_BYTES);
	wire_put_number(&body, welcome->received);
	wire_put_number(&body, welcome->capabilities);
	wire_put_number(&body, welcome->owner_uid);
	wire_put_number(&body, welcome->owner_gid);
	wire_put_number(&body, welcome->channels);
	wire_put_string(&body, welcome->identity ? welcome->identity : "");
	wire_put_number(&body, welcome->takes_compressed);
	encode_opening(w, welcome_magic, welcome->nonce, &body);
}

static void get_token(struct wire_reader *r, uint8_t *out, size_t size)
{
	const uint8_t *bytes = wire_get_raw(r, size);

	if (bytes)
		memcpy(out, bytes, size);
}

static void get_hello(struct wire_reader *r, struct hello *hello)
{
	get_token(r, hello->session, TOKEN_BYTES);
	get_token(r, hello->token, TOKEN_BYTES);
	hello->received = wire_get_number(r);
	hello->linger_seconds = wire_get_number(r);
	hello->root = wire_get_string(r);
	hello->ends = wire_get_number_max(r, 1);
	hello->channel = wire_get_number_max(r, CHANNELS_MAX - 1);
	hello->compression = (enum compression)wire_get_number_max(r, COMPRESSIONS - 1);
}

int hello_decode(
	const uint8_t nonce[NONCE_BYTES], const uint8_t *body, size_t size, struct hello *ret_hello)
{
	struct wire_reader r = wire_reader_over(body, size);
	struct hello hello = {.root = ""};

	memcpy(hello.nonce, nonce, NONCE_BYTES);
	hello.version = wire_get_number(&r);
	if (hello.version == PROTOCOL_VERSION)
		get_hello(&r, &hello);
	if (r.failed)
		return -EPROTO;
	*ret_hello = hello;
	return 0;
}

static void get_welcome(struct wire_reader *r, struct welcome *welcome)
{
	welcome->resumed = wire_get_number_max(r, 1);
	get_token(r, welcome->session, TOKEN_BYTES);
	get_token(r, welcome->token, TOKEN_BYTES);
	welcome->received = wire_get_number(r);
	welcome->capabilities = wire_get_number(r);
	welcome->owner_uid = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	welcome->owner_gid = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	welcome->channels = wire_get_number(r);
	welcome->identity = wire_get_string(r);
	welcome->takes_compressed = wire_get_number_max(r, 1);
}

int welcome_decode(const uint8_t nonce[NONCE_BYTES], const uint8_t *body, size_t size,
	struct welcome *ret_welcome)
{
	struct wire_reader r = wire_reader_over(body, size);
	struct welcome welcome = {.identity = ""};

	memcpy(welcome.nonce, nonce, NONCE_BYTES);
	welcome.version = wire_get_number(&r);
	welcome.error = (int)wire_get_error(&r);
	welcome.reason = wire_get_string(&r);
	if (welcome.version == PROTOCOL_VERSION)
		get_welcome(&r, &welcome);
	if (r.failed)
		return -EPROTO;
	*ret_welcome = welcome;
	return 0;
}

/* ---- Receiving ------------------------------------------------------------- */

/* Fills `data` from `*done` to `size` bytes. */
static int read_up_to(int fd, uint8_t *data, size_t *done, size_t size, int64_t deadline_ms)
{
	while (*done < size) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		int64_t left = deadline_ms - clock_now_ms();
		ssize_t n;

		if (left <= 0)
			return -ETIMEDOUT;
		n = poll(&ready, 1, left > 60000 ? 60000 : (int)left);
		if (n == 0 || (n < 0 && errno == EINTR))
			continue;
		if (n > 0)
			n = read(fd, data + *done, size - *done);
		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0)
			*done += (size_t)n;
	}
	return 0;
}

static bool is_prefix(const uint8_t *window, const uint8_t *magic, const uint8_t *nonce)
{
	return memcmp(window, magic, MAGIC_BYTES) == 0 &&
	       (!nonce || memcmp(window + MAGIC_BYTES, nonce, NONCE_BYTES) == 0) &&
	       get_u32(window + MAGIC_BYTES + NONCE_BYTES) <= HELLO_MAX_BYTES;
}

struct noise {
	struct buffer *kept;
	size_t skipped;
};

static int skip(struct noise *noise, const uint8_t *data, size_t size)
{
	noise->skipped += size;
	if (noise->skipped > NOISE_MAX_BYTES)
		return -EPROTO;
	return noise->kept->size < NOISE_KEPT_BYTES ? buffer_append(noise->kept, data, size) : 0;
}

/* A window of the size of the prefix slides over the stream, so that nothing beyond the
 * hello is taken. */
static int find_prefix(int fd, const uint8_t *magic, const uint8_t *nonce, int64_t deadline_ms,
	uint8_t window[PREFIX_BYTES], struct noise *noise)
{
	size_t have = 0;

	for (;;) {
		int r = read_up_to(fd, window, &have, PREFIX_BYTES, deadline_ms);
		const uint8_t *start;

		if (r < 0) {
			skip(noise, window, have);
			return r;
		}
		if (is_prefix(window, magic, nonce))
			return 0;
		start = memchr(window + 1, magic[0], PREFIX_BYTES - 1);
		have = start ? PREFIX_BYTES - (size_t)(start - window) : 0;
		r = skip(noise, window, PREFIX_BYTES - have);
		if (r < 0)
			return r;
		memmove(window, window + PREFIX_BYTES - have, have);
	}
}

int hello_receive(int fd, bool from_helper, const uint8_t *nonce, int timeout_ms,
	uint8_t ret_nonce[NONCE_BYTES], struct buffer *ret_body, struct buffer *noise)
{
	int64_t deadline_ms = clock_now_ms() + timeout_ms;
	uint8_t window[PREFIX_BYTES];
	uint32_t size;
	int r;

	r = find_prefix(fd, from_helper ? welcome_magic : hello_magic, nonce, deadline_ms, window,
		&(struct noise){.kept = noise});
	if (r < 0)
		return r;
	size = get_u32(window + MAGIC_BYTES + NONCE_BYTES);
	memcpy(ret_nonce, window + MAGIC_BYTES, NONCE_BYTES);
	ret_body->size = 0;
	r = buffer_reserve(ret_body, size + 1);
	return r < 0 ? r : read_up_to(fd, ret_body->data, &ret_body->size, size, deadline_ms);
}
