/*
 * tools/base/limited_child.h - a program of this machine that reads what is not trusted.
 *
 * It gets the content as its standard input, a short environment, and limits of memory, processor
 * time and wall time; it can write no file.  What it prints is the answer.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"

struct limited_child {
	const char *const *argv; /* NULL-terminated; argv[0] is looked up in the PATH or a path */
	const void *content;
	size_t size; /* bytes */
	size_t memory_bytes;
	unsigned cpu_s;
	uint32_t timeout_ms;
	size_t output_max_bytes; /* past it output is dropped */
	bool output_only;        /* standard error is not part of the output */
	int cancel_fd;           /* readable once the answer is not wanted any more; -1: never */
};

/* Runs it to its end and appends what it printed.  Its exit code; -ECANCELED; -ETIMEDOUT;
 * -ENOENT: it is not there, or a signal ended it; or another
 * -errno.  Nothing of it is left running. */
int limited_child_run(const struct limited_child *child, struct buffer *output);
