/*
 * backends/remote/wire/wire.h - how values look on the wire (PROTOCOL.md, section 3).
 *
 * Pure functions over memory.  Numbers travel as LEB128, text with its length and a
 * NUL; errno values, open flags and the like as codes of the protocol's own, so that
 * both ends may be built for different architectures.
 * Threads: none; the caller guards its writer or reader.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"
#include "ops/workspace_values.h"

/* ---- Writing -------------------------------------------------------------- */

/* Appends to a buffer.  The first error sticks; look at it once, at the end. */
struct wire_writer {
	struct buffer buffer;
	int error; /* 0, -ENOMEM, -EMSGSIZE */
};

void wire_writer_done(struct wire_writer *w);

#define cleanup_wire_writer cleanup_with(wire_writer_done)

void wire_put_raw(struct wire_writer *w, const void *data, size_t size); /* without its size */
void wire_put_number(struct wire_writer *w, uint64_t number);
void wire_put_signed(struct wire_writer *w, int64_t number);
void wire_put_bytes(struct wire_writer *w, const void *data, size_t size);
void wire_put_string(struct wire_writer *w, const char *string);
void wire_put_error(struct wire_writer *w, int64_t result); /* 0, a count or -errno */
void wire_put_object(struct wire_writer *w, const char *path, const struct object_id *id,
	uint64_t handle); /* `handle` 0: none */
void wire_put_object_id(struct wire_writer *w, const struct object_id *id);
/* `directory`: the one that is to hold the name, or inode 0. */
void wire_put_name(struct wire_writer *w, const char *path, const struct object_id *directory);
void wire_put_attributes(struct wire_writer *w, const struct attributes *attributes);
unsigned wire_attribute_bits(const struct attributes *attributes); /* their last number */
void wire_put_open_flags(struct wire_writer *w, int flags);
void wire_put_lock(struct wire_writer *w, const struct file_lock *lock);
void wire_put_fs_stats(struct wire_writer *w, const struct fs_stats *stats);
/* What a change left behind; behind the answer of a request. */
void wire_put_facts(struct wire_writer *w, const struct facts *facts);
void wire_put_change(struct wire_writer *w, const struct change *change);

/* One entry of a listing.  `previous` is the path of the entry before it in the same
 * message ("" for the first): the part they share is not sent again; nor is the position when it
 * is `previous_at` (0 for the first).  `before`: that one's attributes (all 0 for the first), when
 * these are to be told by what differs, else NULL. */
void wire_put_dir_entry(struct wire_writer *w, const char *previous, uint64_t previous_at,
	const struct attributes *before, const struct dir_entry *entry);

/* ---- Reading -------------------------------------------------------------- */

/* Room of fixed size for a result that is known later, and the result in it. */
enum { WIRE_RESULT_BYTES = 16 };
void wire_set_result(uint8_t *out, int64_t result, uint64_t position);

/* Walks over a message.  Past the first malformed value `failed` sticks and every
 * further value reads as 0 or "". */
struct wire_reader {
	const uint8_t *data;
	size_t size;
	size_t offset;
	bool failed;
};

static inline struct wire_reader wire_reader_over(const void *data, size_t size)
{
	return (struct wire_reader){.data = data, .size = size};
}

/* 0 when everything was well-formed and nothing is left over, else -EPROTO. */
int wire_reader_finish(const struct wire_reader *r);

static inline size_t wire_reader_left(const struct wire_reader *r)
{
	return r->failed ? 0 : r->size - r->offset;
}

/* Each takes one value, as the function wire_put_*() of that name put it. */
uint64_t wire_get_number(struct wire_reader *r);
uint64_t wire_get_number_max(struct wire_reader *r, uint64_t max); /* more: malformed */
int64_t wire_get_signed(struct wire_reader *r);
const uint8_t *wire_get_raw(struct wire_reader *r, size_t size); /* NULL when malformed */

/* Point into the message. */
const uint8_t *wire_get_bytes(struct wire_reader *r, size_t *ret_size);
const char *wire_get_string(struct wire_reader *r);
const char *wire_get_path(struct wire_reader *r); /* a normal workspace path */
const char *wire_get_name(struct wire_reader *r, struct object_id *ret_directory);
const char *wire_get_link_target(struct wire_reader *r); /* no longer than PATH_MAX */

int64_t wire_get_error(struct wire_reader *r);                          /* 0, a count or -errno */
int64_t wire_get_result(struct wire_reader *r, uint64_t *ret_position); /* of wire_set_result() */
void wire_get_object_id(struct wire_reader *r, struct object_id *ret_id);
void wire_get_attributes(struct wire_reader *r, struct attributes *ret_attributes);
void wire_get_attribute_bits(struct wire_reader *r, struct attributes *attributes);
int wire_get_open_flags(struct wire_reader *r);
void wire_get_lock(struct wire_reader *r, struct file_lock *ret_lock);
void wire_get_fs_stats(struct wire_reader *r, struct fs_stats *ret_stats);
void wire_get_facts(struct wire_reader *r, struct facts *ret_facts);
void wire_get_change(struct wire_reader *r, struct change *ret_change);

/* `path` holds the path of the entry before ("" for the first) and then this one's, to
 * which `entry->path` points; `*at` and `entry->attributes` likewise (0 for the first). */
void wire_get_dir_entry(
	struct wire_reader *r, struct buffer *path, uint64_t *at, struct dir_entry *entry);

/* ---- Codes ---------------------------------------------------------------- */

/* errno <-> the protocol's code (Linux's generic numbers).  Unknown ones become EIO. */
int wire_code_of_errno(int error);
int wire_errno_of_code(int code);
