/*
 * ops/support/log_seal.h - sealing the mount log with a key that moves on (fs/LOG.md).
 *
 * Each seal has an HMAC by a key of its own, which is derived from the one before and then
 * erased: access to the daemon's memory or files does not allow anybody to forge earlier seals.
 * Keys form chains, each link SHA-256(key before || label):
 *
 *     generation g   one for each daemon; the file holds that of the *next* daemon only
 *     segment n      of a daemon: generation -> ring -> n links
 *     epoch e        of a segment: one for each seal
 *
 * The key of generation 0 is the verification key: all others follow from it.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

#define LOG_KEY_NAME "sealing-key"

enum {
	LOG_KEY_BYTES = 32,
	LOG_KEY_TEXT_BYTES = 2 * LOG_KEY_BYTES + 1,
	LOG_KEY_ID_BYTES = 8 + 1, /* which key it is, as text */
};

/* SHA-256(previous || data). */
void log_digest(const uint8_t previous[32], const void *data, size_t size, uint8_t ret_digest[32]);

/* ---- Making keys ------------------------------------------------------------- */

/* Makes the key file of a log directory; the verification key, which is kept nowhere else, is
 * `ret_key` in hexadecimal.  -EEXIST: it has one; -errno. */
int log_keys_setup(int directory_fd, char ret_key[LOG_KEY_TEXT_BYTES]);

/* ---- Sealing ------------------------------------------------------------------ */

/* A generation: what a daemon has of the key file. */
struct log_generation {
	uint32_t number;
	char id[LOG_KEY_ID_BYTES];
	uint8_t key[LOG_KEY_BYTES];
};

/* Takes the generation out of the key file, which moves on to the next one first, on the disk.
 * -ENOENT: there is no key file; -EBADMSG: it is damaged; -errno. */
int log_generation_take(int directory_fd, struct log_generation *ret_generation);

/* The key of the next seal; all zeros: the log is not sealed with keys. */
struct log_seal {
	bool is_keyed;
	uint32_t generation, segment, epoch;
	char id[LOG_KEY_ID_BYTES];
	uint8_t next_segment[LOG_KEY_BYTES];
	uint8_t key[LOG_KEY_BYTES];
};

/* `ring` names one of the logs of the directory. */
void log_seal_init(
	struct log_seal *seal, const struct log_generation *generation, const char *ring);

/* Moves on to the first seal of a later segment.  -EINVAL. */
int log_seal_to_segment(struct log_seal *seal, uint32_t segment);

/* Appends what comes after the digest to the line of a seal, `line[start...]`. */
int log_seal_finish(const struct log_seal *seal, struct buffer *line, size_t start);

/* Moves on to the next seal of the segment. */
void log_seal_next(struct log_seal *seal);

/* ---- Checking ----------------------------------------------------------------- */

struct log_seal_check {
	bool has_key;                     /* the verification key was given */
	bool saw_keyed;                   /* a seal with an HMAC */
	bool saw_plain;                   /* a seal without */
	uint64_t proved;                  /* seals */
	struct log_generation generation; /* as far as it has come */
	const char *ring;
	struct log_seal seal; /* the last one that was checked, moved on */
};

enum log_seal_verdict {
	LOG_SEAL_GOOD,    /* or there is no key to check it with */
	LOG_SEAL_ALTERED, /* `*ret_problem` says what is wrong */
	LOG_SEAL_MISSING, /* good, but something before it is not there: so do they */
};

/* `key` may be NULL: only where seals have an HMAC at all is checked. */
void log_seal_check_init(struct log_seal_check *check, const uint8_t *key, const char *ring);

/* Looks at the line of a seal, whose text up to the digest's end is `digest_end` bytes long, in
 * the segment of that number; `is_first_kept`: nothing older is there to be looked at. */
enum log_seal_verdict log_seal_check_line(struct log_seal_check *check, uint32_t segment,
	bool is_first_kept, const char *line, size_t length, size_t digest_end,
	const char **ret_problem);

/* After the last line: does the key file continue it? */
enum log_seal_verdict log_seal_check_file(
	struct log_seal_check *check, int directory_fd, const char **ret_problem);

/* Erases keys. */
void log_seal_erase(void *keys, size_t size);
