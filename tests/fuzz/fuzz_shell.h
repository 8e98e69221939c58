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

enum fuzz_shell_rules {
	FUZZ_FOUR,    /* echo, ls, cat and "git status" are allowed, nothing else */
	FUZZ_RUNNERS, /* programs that run others, too */
	FUZZ_NONE,    /* no rules: what only reads is allowed */
};

/* Judges a line, and keeps it for the next run if it is allowed.  `directory` is static. */
void fuzz_shell_line(const char *line, const char *directory, enum fuzz_shell_rules rules);

/* The same for a line, directory and rules that the bytes choose. */
void fuzz_shell_bytes(const uint8_t *data, size_t size);

/* Runs what is kept.  How many did what they may not; they stand on stderr. */
size_t fuzz_shell_flush(void);
