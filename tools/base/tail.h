/*
 * tools/base/tail.h - keeps the end of a long output in memory and all of the output in a file.
 *
 * The file is created once the output exceeds the limits of an answer.
 * Threads: one at a time; the caller provides the lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"

struct tail {
	const char *name;    /* for output_file_make() */
	struct buffer kept;  /* the last bytes, at least twice the limit of an answer */
	uint64_t bytes;      /* of all output */
	uint64_t lines;      /* line ends in all output */
	int fd;              /* of the file; -1: not created yet */
	char *path;          /* of the file */
	bool file_cut;       /* the file does not have all output */
	uint64_t file_bytes; /* written to the file */
};

#define TAIL_INIT(name_)                  \
	{                                 \
		.name = (name_), .fd = -1 \
	}

/* Adds output.  0 or -ENOMEM.  If the file cannot be written, sets `file_cut` and returns 0. */
int tail_add(struct tail *tail, const void *data, size_t size);

/* Offset in `kept` of the part that the answer shows: whole lines, unless a single line is too
 * long. */
size_t tail_start(const struct tail *tail);

void tail_done(struct tail *tail); /* keeps the file */
