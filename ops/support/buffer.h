/*
 * ops/support/buffer.h - a byte buffer that grows.
 *
 * A buffer lives in the caller's memory (`struct buffer b = {0};` is empty and
 * valid) and owns `data`.  Appending never half-succeeds: on -ENOMEM, and on
 * -EMSGSIZE past `limit_bytes`, the buffer is unchanged.
 * Threads: none; the caller guards it.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/cleanup.h"

struct buffer {
	uint8_t *data;
	size_t size;        /* bytes in use */
	size_t capacity;    /* bytes allocated */
	size_t limit_bytes; /* 0: no limit */
};

/* Frees the content; the buffer is empty and valid again. */
void buffer_done(struct buffer *b);

/* Makes room for `extra` more bytes.  0, -ENOMEM, -EMSGSIZE. */
int buffer_reserve(struct buffer *b, size_t extra);

/* Appends bytes.  0, -ENOMEM, -EMSGSIZE. */
int buffer_append(struct buffer *b, const void *data, size_t size);

/* Appends the string without its NUL.  0, -ENOMEM, -EMSGSIZE. */
int buffer_append_string(struct buffer *b, const char *string);

/* Appends text as printf(3) does, without the NUL.  0, -ENOMEM, -EMSGSIZE. */
int buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
int buffer_vprintf(struct buffer *b, const char *format, va_list arguments)
	__attribute__((format(printf, 2, 0)));

/* Drops the first `size` bytes (all of them if there are fewer). */
void buffer_consume(struct buffer *b, size_t size);

/* Returns the content as a NUL-terminated string that the caller frees and
 * empties the buffer; NULL when there is no memory. */
char *buffer_steal_string(struct buffer *b);

/* The text that printf(3) would print, which the caller frees; NULL when there is no memory. */
char *string_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define cleanup_buffer cleanup_with(buffer_done)
