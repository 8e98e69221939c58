/*
 * tests/fuzz/shell_lines.h - lines of bash out of bytes that choose: by a grammar of plain and of
 * odd bits, or by changing lines of the table tests/tools/shell_lines.txt.
 * Threads: one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

enum { SHELL_LINE_MAX_BYTES = 1500 };

/* Reads the table once.  0 or -errno. */
int shell_lines_load(const char *path);

/* Appends a line to `out`, at most SHELL_LINE_MAX_BYTES, without NUL. */
void shell_line_make(const uint8_t *data, size_t size, struct buffer *out);

/* Appends a line of one program that only reads, or of one that is like it but does more. */
void shell_script_make(const uint8_t *data, size_t size, struct buffer *out);
