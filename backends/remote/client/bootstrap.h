/*
 * backends/remote/client/bootstrap.h - from a shell on a stream to a running helper.
 */
#pragma once

#include "backends/remote/client/transport.h"
#include "ops/support/buffer.h"

/* The line that a login shell of any kind is asked to run; it makes a POSIX shell evaluate
 * the next line of its input. */
extern const char bootstrap_command[];

/* Finds the helper for `machine` (as of `uname -m`; NULL: this one) beside our own
 * program, in ../libexec, or in the build tree; in `directory` when that is not NULL.  The
 * caller frees `*ret_path`.  -ENOENT, -ENOMEM. */
int bootstrap_find_helper(const char *directory, const char *machine, char **ret_path);

/* For people: that there is no helper where `directory` means.  Allocated, or NULL. */
char *bootstrap_no_helper(const char *directory);

/* Has the far end's shell find or receive the helper and turn into it.  `helper_directory`
 * as above.  On failure `*ret_reason` says why (allocated, or NULL); what the stream
 * said meanwhile is in `noise`. */
int bootstrap_run(struct stream *stream, const char *helper_directory, int timeout_ms,
	struct buffer *noise, char **ret_reason);
