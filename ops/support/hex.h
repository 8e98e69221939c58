/*
 * ops/support/hex.h - bytes as lower-case hexadecimal digits.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Writes 2 * size digits and a NUL. */
void hex_write(const void *bytes, size_t size, char *text);

/* Reads the bytes of a text.  False, with nothing of use in `bytes`: it is not 2 * size digits. */
bool hex_read(const char *text, void *bytes, size_t size);
