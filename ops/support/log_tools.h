/*
 * ops/support/log_tools.h - the log of tool calls on directories that are no mount: tools.jsonl in
 * the directory of state_path(NULL), of the form of the mount log (fs/LOG.md).
 *
 * Processes take turns: each appends its record, and seals it, under a lock.
 * Threads: any.
 */
#pragma once

#include "ops/support/log_record.h"

/* Appends a record; its pointers to strings do not count, but `strings`, of which any may be NULL.
 * `*ret_seq` is its number.  -EBUSY: others held the lock for 2 s; -errno. */
int log_tools_append(
	const struct log_record *record, const char *const strings[LOG_STRINGS], uint64_t *ret_seq);
