/*
 * fs/commands/log_verify.h - `isthmus log --verify`: what the files of a log prove, in words.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The log of a mount, and how far its daemon has come; or that of tools. */
struct log_source {
	char *directory;
	const char *ring;  /* LOG_TOOLS_RING; NULL: a mount's */
	bool lives;        /* its daemon was asked */
	uint64_t last_seq; /* ... what it has written */
	uint64_t lost;     /* that it could not write */
};

/* Exit codes beside 0, which is: all records are there, as they were written. */
enum { LOG_EXIT_ALTERED = 1, LOG_EXIT_INCOMPLETE = 3 };

struct log_verify_texts {
	const char *key;    /* the verification key, or "-": from stdin; NULL: none */
	const char *anchor; /* path of what the anchor got; NULL: none */
};

/* Verifies, prints, returns the exit code. */
int log_verify_source(const struct log_source *source, const struct log_verify_texts *words);

/* Makes the sealing key of a log directory (which need not be there yet), shows the verification
 * key, returns the exit code. */
int log_setup_keys(const char *directory);
