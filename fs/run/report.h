/*
 * fs/run/report.h - takes a report that stands between two marks out of a stream of output.
 * Threads: none; the caller guards it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/buffer.h"

enum { REPORT_MAX_BYTES = 1 << 16 };

struct report_filter {
	const char *begin, *end; /* the marks; the caller's */

	struct buffer held;   /* may be the first bytes of a mark */
	struct buffer report; /* what stood between them */
	bool inside, is_complete;
};

/* Appends to `out` what of the data is no report.  0, -ENOMEM, -EMSGSIZE: a report that has no
 * end. */
int report_filter_take(
	struct report_filter *filter, const void *data, size_t size, struct buffer *out);

/* The stream has ended: appends what was held back. */
int report_filter_end(struct report_filter *filter, struct buffer *out);

void report_filter_done(struct report_filter *filter);
