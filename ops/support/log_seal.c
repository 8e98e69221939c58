#include "ops/support/log_seal.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/hex.h"

/* What a forged log can make a reader compute: some seconds. */
enum { LINKS_MAX = 1 << 24 };

#define KEY_NEW_NAME    LOG_KEY_NAME ".new"
#define KEY_FILE_FORMAT "isthmus-sealing-key 1 %u %8[0-9a-f] %64[0-9a-f]"

void log_seal_erase(void *keys, size_t size)
{
	explicit_bzero(keys, size);
}

void log_digest(const uint8_t previous[32], const void *data, size_t size, uint8_t ret_digest[32])
{
	struct sha256_ctx context;

	sha256_init(&context);
	sha256_update(&context, 32, previous);
	sha256_update(&context, size, data);
	sha256_digest(&context, 32, ret_digest);
	log_seal_erase(&context, sizeof(context)); /* `previous` may be a key */
}

/* ---- Links -------------------------------------------------------------------- */

/* `to` may be `key`, which is gone then. */
static void derive(const uint8_t key[LOG_KEY_BYTES], const char *label, uint8_t to[LOG_KEY_BYTES])
{
	uint8_t derived[LOG_KEY_BYTES];

	log_digest(key, label, strlen(label), derived);
	memcpy(to, derived, sizeof(derived));
	log_seal_erase(derived, sizeof(derived));
}

static void name_key(const uint8_t key[LOG_KEY_BYTES], char id[LOG_KEY_ID_BYTES])
{
	uint8_t name[LOG_KEY_BYTES];

	derive(key, "id", name);
	hex_write(name, (LOG_KEY_ID_BYTES - 1) / 2, id);
}

/* Moves on to generation `number`. */
static int to_generation(struct log_generation *generation, uint32_t number)
{
	if (number < generation->number || number > LINKS_MAX)
		return -EINVAL;
	for (; generation->number < number; generation->number++)
		derive(generation->key, "generation", generation->key);
	return 0;
}

/* ---- The key file ---------------------------------------------------------------- */

static int read_key(int fd, struct log_generation *ret_generation)
{
	char text[256], hex[LOG_KEY_TEXT_BYTES];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
	int r = -EBADMSG;

	if (got < 0)
		return -errno;
	text[got] = '\0';
	if (sscanf(text, KEY_FILE_FORMAT, &ret_generation->number, ret_generation->id, hex) == 3 &&
		ret_generation->number < LINKS_MAX)
		r = hex_read(hex, ret_generation->key, LOG_KEY_BYTES) ? 0 : -EBADMSG;
	log_seal_erase(text, sizeof(text));
	log_seal_erase(hex, sizeof(hex));
	return r;
}

static int open_key(int directory, int flags)
{
	int fd = openat(directory, LOG_KEY_NAME, flags | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

static int write_text(int directory, const char *text, size_t length)
{
	cleanup_fd int fd = openat(directory, KEY_NEW_NAME,
		O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	if (write(fd, text, length) != (ssize_t)length)
		return -ENOSPC;
	return fsync(fd) < 0 ? -errno : 0;
}

/* A file of the name KEY_NEW_NAME, on the disk. */
static int write_new_key(int directory, const struct log_generation *generation)
{
	char text[256], hex[LOG_KEY_TEXT_BYTES];
	int length, r;

	hex_write(generation->key, LOG_KEY_BYTES, hex);
	length = snprintf(text, sizeof(text), "isthmus-sealing-key 1 %u %s %s\n",
		generation->number, generation->id, hex);
	unlinkat(directory, KEY_NEW_NAME, 0); /* of a daemon that was killed here */
	r = write_text(directory, text, (size_t)length);
	if (r < 0)
		unlinkat(directory, KEY_NEW_NAME, 0);
	log_seal_erase(text, sizeof(text));
	log_seal_erase(hex, sizeof(hex));
	return r;
}

/* The disk may keep the old key where it was written. */
static void erase_file(int fd)
{
	static const char zeros[256];

	if (pwrite(fd, zeros, sizeof(zeros), 0) == (ssize_t)sizeof(zeros))
		fdatasync(fd);
}

int log_keys_setup(int directory, char ret_key[LOG_KEY_TEXT_BYTES])
{
	struct log_generation generation = {0};
	int r;

	if (getrandom(generation.key, LOG_KEY_BYTES, 0) != LOG_KEY_BYTES)
		return -EIO;
	name_key(generation.key, generation.id);
	r = write_new_key(directory, &generation);
	if (r == 0 && linkat(directory, KEY_NEW_NAME, directory, LOG_KEY_NAME, 0) < 0)
		r = -errno;
	unlinkat(directory, KEY_NEW_NAME, 0);
	if (r == 0 && fsync(directory) < 0)
		r = -errno;
	if (r == 0)
		hex_write(generation.key, LOG_KEY_BYTES, ret_key);
	log_seal_erase(&generation, sizeof(generation));
	return r;
}

int log_generation_take(int directory, struct log_generation *ret_generation)
{
	cleanup_fd int old = open_key(directory, O_RDWR);
	struct log_generation next;
	int r;

	if (old < 0)
		return old;
	r = read_key(old, ret_generation);
	if (r < 0)
		return r;
	next = *ret_generation;
	r = to_generation(&next, next.number + 1);
	if (r == 0)
		r = write_new_key(directory, &next);
	if (r == 0 && renameat(directory, KEY_NEW_NAME, directory, LOG_KEY_NAME) < 0)
		r = -errno;
	if (r == 0 && fsync(directory) < 0)
		r = -errno;
	if (r == 0)
		erase_file(old);
	else
		log_seal_erase(ret_generation, sizeof(*ret_generation));
	log_seal_erase(&next, sizeof(next));
	return r;
}

/* ---- Sealing ------------------------------------------------------------------------ */

void log_seal_init(struct log_seal *seal, const struct log_generation *generation, const char *ring)
{
	*seal = (struct log_seal){.is_keyed = true, .generation = generation->number};
	memcpy(seal->id, generation->id, sizeof(seal->id));
	derive(generation->key, "daemon", seal->next_segment);
	derive(seal->next_segment, ring, seal->next_segment);
	derive(seal->next_segment, "seal", seal->key);
	derive(seal->next_segment, "segment", seal->next_segment);
}

int log_seal_to_segment(struct log_seal *seal, uint32_t segment)
{
	if (!seal->is_keyed)
		return 0;
	if (segment <= seal->segment || segment > LINKS_MAX)
		return -EINVAL;
	for (; seal->segment < segment; seal->segment++) {
		derive(seal->next_segment, "seal", seal->key);
		derive(seal->next_segment, "segment", seal->next_segment);
	}
	seal->epoch = 0;
	return 0;
}

void log_seal_next(struct log_seal *seal)
{
	if (!seal->is_keyed)
		return;
	seal->epoch++;
	derive(seal->key, "epoch", seal->key);
}

int log_seal_finish(const struct log_seal *seal, struct buffer *line, size_t start)
{
	uint8_t hmac[32];
	struct hmac_sha256_ctx context;
	char hex[65];
	int r;

	if (!seal->is_keyed)
		return buffer_append_string(line, "}\n");
	r = buffer_printf(line, ",\"key\":\"%s\",\"generation\":%u,\"epoch\":%u", seal->id,
		seal->generation, seal->epoch);
	if (r < 0)
		return r;
	hmac_sha256_set_key(&context, LOG_KEY_BYTES, seal->key);
	hmac_sha256_update(&context, line->size - start, (const uint8_t *)line->data + start);
	hmac_sha256_digest(&context, sizeof(hmac), hmac);
	log_seal_erase(&context, sizeof(context));
	hex_write(hmac, sizeof(hmac), hex);
	return buffer_printf(line, ",\"hmac\":\"%s\"}\n", hex);
}

/* ---- Checking ------------------------------------------------------------------------- */

void log_seal_check_init(struct log_seal_check *check, const uint8_t *key, const char *ring)
{
	memset(check, 0, sizeof(*check));
	check->ring = ring;
	if (!key)
		return;
	check->has_key = true;
	memcpy(check->generation.key, key, LOG_KEY_BYTES);
	name_key(key, check->generation.id);
}

/* Moves the check on to where the line says that it is. */
static enum log_seal_verdict find_place(struct log_seal_check *check, uint32_t generation,
	uint32_t epoch, uint32_t segment, bool is_first_kept, const char **ret_problem)
{
	enum log_seal_verdict verdict = LOG_SEAL_GOOD;
	bool same_daemon = check->seal.is_keyed && generation == check->seal.generation;
	uint32_t expected = check->seal.is_keyed ? check->seal.generation + 1 : 0;

	if (same_daemon && segment == check->seal.segment) {
		*ret_problem = "does not follow the seal before it: seals were removed";
		return epoch == check->seal.epoch ? LOG_SEAL_GOOD : LOG_SEAL_ALTERED;
	}
	*ret_problem =
		"is not the first seal of its segment or daemon: seals were removed or moved";
	if (epoch != 0 || (check->seal.is_keyed && generation < check->seal.generation))
		return LOG_SEAL_ALTERED;
	if (same_daemon)
		return log_seal_to_segment(&check->seal, segment) < 0 ? LOG_SEAL_ALTERED
								      : LOG_SEAL_GOOD;
	if (generation > expected && !is_first_kept)
		verdict = LOG_SEAL_MISSING;
	if (to_generation(&check->generation, generation) < 0)
		return LOG_SEAL_ALTERED;
	log_seal_init(&check->seal, &check->generation, check->ring);
	if (log_seal_to_segment(&check->seal, segment) < 0)
		return LOG_SEAL_ALTERED;
	if (verdict == LOG_SEAL_MISSING)
		*ret_problem =
			"nothing is left of a daemon before it: it was killed before it wrote, "
			"or all of its lines were removed";
	return verdict;
}

/* A seal without an HMAC, or by a key that we have not. */
static enum log_seal_verdict check_unproved(
	struct log_seal_check *check, bool is_keyed, const char **ret_problem)
{
	if (is_keyed) {
		check->saw_keyed = true;
		*ret_problem = "the log is sealed with another key there";
		return check->has_key ? LOG_SEAL_MISSING : LOG_SEAL_GOOD;
	}
	check->saw_plain = true;
	*ret_problem = "the log is not sealed with the key there, though it was before";
	return check->saw_keyed ? LOG_SEAL_MISSING : LOG_SEAL_GOOD;
}

enum log_seal_verdict log_seal_check_line(struct log_seal_check *check, uint32_t segment,
	bool is_first_kept, const char *line, size_t length, size_t digest_end,
	const char **ret_problem)
{
	cleanup_buffer struct buffer wanted = {0};
	char id[LOG_KEY_ID_BYTES];
	uint32_t generation, epoch;
	enum log_seal_verdict verdict;
	bool is_keyed =
		sscanf(line + digest_end, ",\"key\":\"%8[0-9a-f]\",\"generation\":%u,\"epoch\":%u,",
			id, &generation, &epoch) == 3;

	if (!is_keyed || !check->has_key || strcmp(id, check->generation.id) != 0)
		return check_unproved(check, is_keyed, ret_problem);
	check->saw_keyed = true;
	verdict = find_place(check, generation, epoch, segment,
		is_first_kept && !check->saw_plain && segment > 1, ret_problem);
	if (verdict == LOG_SEAL_ALTERED)
		return verdict;
	if (buffer_append(&wanted, line, digest_end) < 0 ||
		log_seal_finish(&check->seal, &wanted, 0) < 0 || wanted.size != length ||
		!memeql_sec(wanted.data, line, length)) {
		*ret_problem = "is not what the key seals: it and lines before it were made by "
			       "somebody else";
		return LOG_SEAL_ALTERED;
	}
	check->proved++;
	log_seal_next(&check->seal);
	return verdict;
}

enum log_seal_verdict log_seal_check_file(
	struct log_seal_check *check, int directory, const char **ret_problem)
{
	cleanup_fd int fd = open_key(directory, O_RDONLY);
	struct log_generation file, wanted = check->generation;
	uint32_t next = check->proved ? wanted.number + 1 : 0;
	enum log_seal_verdict verdict = LOG_SEAL_GOOD;

	if (fd < 0 || read_key(fd, &file) < 0) {
		*ret_problem = check->proved ? "the file \"" LOG_KEY_NAME "\" is gone or damaged"
					     : "nothing in it is sealed with this key";
		return check->proved ? LOG_SEAL_MISSING : LOG_SEAL_ALTERED;
	}
	if (strcmp(file.id, wanted.id) != 0) {
		*ret_problem = "the file \"" LOG_KEY_NAME "\" is one of another key";
		verdict = check->proved ? LOG_SEAL_MISSING : LOG_SEAL_ALTERED;
	} else if (to_generation(&wanted, file.number) < 0 || file.number < next ||
		   !memeql_sec(wanted.key, file.key, LOG_KEY_BYTES)) {
		*ret_problem = "the file \"" LOG_KEY_NAME "\" does not continue the log: an older "
			       "copy was put back";
		verdict = LOG_SEAL_ALTERED;
	} else if (file.number > next) {
		*ret_problem = "nothing is left of the last daemon: it was killed before it wrote, "
			       "or all of its lines were removed";
		verdict = check->proved ? LOG_SEAL_MISSING : LOG_SEAL_ALTERED;
	} else if (!check->proved) {
		*ret_problem =
			"no daemon has sealed with the key yet: it counts from the next mount "
			"on";
		verdict = LOG_SEAL_MISSING;
	}
	log_seal_erase(&file, sizeof(file));
	log_seal_erase(&wanted, sizeof(wanted));
	return verdict;
}
