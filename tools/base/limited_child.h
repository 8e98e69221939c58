/*
 * tools/base/limited_child.h - runs a program of this machine on untrusted content.
 *
 * The program gets the content as its standard input, a minimal environment, and limits of memory,
 * processor time and wall time; it cannot write files.  Its output is the result.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"

struct limited_child {
	const char *const *argv; /* NULL-terminated; argv[0] is a path, or a name in $PATH */
	const void *content;
	size_t size; /* bytes */
	size_t memory_bytes;
	unsigned cpu_s;
	uint32_t timeout_ms;
	size_t output_max_bytes; /* further output is dropped */
	bool output_only;        /* drop standard error; false: it is part of the output */
	int cancel_fd;           /* becomes readable when the caller cancels; -1: never */
};

/* Runs the program to its end and appends its output.  Returns its exit code; -ECANCELED;
 * -ETIMEDOUT; -ENOENT: the program does not exist, or a signal ended it; another -errno.  No
 * process that it started is left running. */
int limited_child_run(const struct limited_child *child, struct buffer *output);
