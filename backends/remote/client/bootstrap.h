/*
 * backends/remote/client/bootstrap.h - from a shell on a stream to a running helper.
 */
#pragma once

#include "backends/remote/client/client.h"
#include "ops/support/buffer.h"

/* The line that a login shell of any kind is asked to run; it makes a POSIX shell evaluate
 * the next line of its input. */
extern const char bootstrap_command[];

/* The same for a POSIX shell that is given its script as a word. */
extern const char bootstrap_script[];

/* Finds the helper for `machine` (as of `uname -m`; NULL: this one) beside our own
 * program, in ../libexec, or in the build tree; in `directory` when that is not NULL.  The
 * caller frees `*ret_path`.  -ENOENT, -ENOMEM. */
int bootstrap_find_helper(const char *directory, const char *machine, char **ret_path);

/* The machines that there can be helpers for, this one first; NULL behind the last. */
const char *bootstrap_machine(size_t index);

/* The name of the file there: ".../isthmus-helper-HASH".  Allocated, or NULL. */
char *bootstrap_target(const char *directory, const char *helper_path);

/* For people: that there is no helper where `directory` means.  Allocated, or NULL. */
char *bootstrap_no_helper(const char *directory);

/* Has the far end's shell find or receive the helper and turn into it.  On failure `*ret_reason`
 * says why (allocated, or NULL); what the stream said meanwhile is in `noise`. */
int bootstrap_run(struct stream *stream, const struct remote_settings *settings,
	struct buffer *noise, char **ret_reason);

/* Has the settings' transport begin at a shell, or at the words, at an end that has `stream`.
 * -ENOMEM. */
int remote_start_at_shell(struct remote_settings *settings);
int remote_start_at(struct remote_settings *settings, char *const *words);

/* copy_helper.c: for a place without a shell.  Copies the helper there by the `copy` of its end,
 * and has the transport begin at it.  At most 12 s.  On failure `*ret_reason` says what was tried.
 */
int remote_copy_helper(struct remote_settings *settings, char **ret_reason);
