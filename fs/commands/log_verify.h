/*
 * fs/commands/log_verify.h - `isthmus log --verify`: verifies the files of a log and reports the
 * result.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The log of a mount with the state of its daemon, or the log of tools. */
struct log_source {
	char *directory;
	const char *ring;  /* LOG_TOOLS_RING; NULL: the log of a mount */
	bool lives;        /* the daemon runs and has answered: the next two fields are set */
	uint64_t last_seq; /* number of the last record that it has written */
	uint64_t lost;     /* number of records that it could not write */
};

/* Exit statuses besides 0, which means that all records are present and unaltered. */
enum { LOG_EXIT_ALTERED = 1, LOG_EXIT_INCOMPLETE = 3 };

struct log_verify_texts {
	const char *key;    /* the verification key; "-": read it from stdin; NULL: none */
	const char *anchor; /* path of a file with the lines that the anchor received; NULL: none */
};

/* Verifies the log and prints the result; returns the exit status. */
int log_verify_source(const struct log_source *source, const struct log_verify_texts *texts);

/* Creates the sealing key of a log directory, which need not exist yet, and prints the verification
 * key; returns the exit status. */
int log_setup_keys(const char *directory);
