/*
 * tools/base/tail.h - keeps the end of a long output in memory and all of it in a file.
 *
 * The file is made once the output is beyond the limits of an answer.
 * Threads: none; the caller guards it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"

struct tail {
	const char *name;   /* for the file */
	struct buffer kept; /* the last bytes, twice the limit of an answer or more */
	uint64_t bytes;     /* in all */
	uint64_t lines;     /* line ends in all */
	int fd;             /* -1: no file so far */
	char *path;         /* of the file */
	bool file_cut;      /* the file could not take everything */
	uint64_t file_bytes;
};

#define TAIL_INIT(name_)                  \
	{                                 \
		.name = (name_), .fd = -1 \
	}

/* 0 or -ENOMEM; a file that cannot be written sets `file_cut` only. */
int tail_add(struct tail *tail, const void *data, size_t size);

/* Where the part to show begins in `kept` (whole lines, unless one alone is too long). */
size_t tail_start(const struct tail *tail);

void tail_done(struct tail *tail); /* the file stays */
