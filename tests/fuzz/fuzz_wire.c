/* Every value of the codec, in an order that the first byte of each step picks. */
#include <stdlib.h>
#include <string.h>

#include "backends/remote/wire/protocol.h"
#include "backends/remote/wire/wire.h"
#include "tests/fuzz/fuzz.h"

static void get_attributes(struct wire_reader *r)
{
	struct attributes attributes;

	wire_get_attributes(r, &attributes);
}

static void get_change(struct wire_reader *r)
{
	struct change change;

	wire_get_change(r, &change);
}

static void get_facts(struct wire_reader *r)
{
	struct facts facts;

	wire_get_facts(r, &facts);
}

static void get_lock(struct wire_reader *r)
{
	struct file_lock lock;

	wire_get_lock(r, &lock);
}

static void get_stats(struct wire_reader *r)
{
	struct fs_stats stats;

	wire_get_fs_stats(r, &stats);
}

static void get_listing(struct wire_reader *r)
{
	cleanup_buffer struct buffer path = {0};
	uint64_t at = 0;
	struct dir_entry entry = {0};

	while (wire_reader_left(r) > 0) {
		wire_get_dir_entry(r, &path, &at, &entry);
		if (!r->failed && strlen(entry.path) + 1 != path.size)
			abort();
	}
}

static void get_flags(struct wire_reader *r)
{
	wire_get_open_flags(r);
}

static void get_text(struct wire_reader *r)
{
	wire_get_string(r);
	wire_get_path(r);
}

static void get_results(struct wire_reader *r)
{
	uint64_t position;

	if (wire_get_error(r) < -4096 || wire_get_result(r, &position) < -4096)
		abort();
}

static void get_openings(struct wire_reader *r)
{
	static const uint8_t nonce[NONCE_BYTES];
	size_t size = wire_reader_left(r);
	const uint8_t *body = wire_get_raw(r, size);
	struct welcome welcome;
	struct hello hello;

	if (!body)
		return;
	hello_decode(nonce, body, size, &hello);
	welcome_decode(nonce, body, size, &welcome);
}

static void get_header(struct wire_reader *r)
{
	const uint8_t *bytes = wire_get_raw(r, FRAME_HEADER_BYTES);
	struct frame_header header;

	if (bytes && frame_header_decode(bytes, &header) == 0 &&
		header.size > FRAME_PAYLOAD_MAX_BYTES)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const getters[])(struct wire_reader * r) = {get_attributes, get_change,
		get_lock, get_stats, get_listing, get_flags, get_text, get_results, get_openings,
		get_header, get_facts};
	struct wire_reader r = wire_reader_over(data, size);

	while (wire_reader_left(&r) > 0) {
		uint64_t choice = wire_get_number(&r);

		getters[choice % (sizeof(getters) / sizeof(getters[0]))](&r);
	}
	return 0;
}
