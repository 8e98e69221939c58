/*
 * tests/fuzz/fuzz_shell.h - runs what the rules allow of a line, and counts what should not have
 * been.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_shell_counts {
	size_t lines;
	size_t ran; /* were allowed */
	size_t found;
};

extern struct fuzz_shell_counts fuzz_shell_counts;

/* Takes the process into the room.  0, or -errno where that is not allowed. */
int fuzz_shell_init(void);

/* Judges the line, which bytes choose, and keeps it for the next run if it is allowed:
 * `with_runners` by rules that allow programs which run others, too.  `directory` is static. */
void fuzz_shell_bytes(const uint8_t *data, size_t size);
void fuzz_shell_line(const char *line, const char *directory, bool with_runners);

/* Runs what is kept.  How many did what they may not; they stand on stderr. */
size_t fuzz_shell_flush(void);
