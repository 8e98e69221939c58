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

/* The machines for which there can be helpers, this one first; NULL past the last. */
const char *bootstrap_machine(size_t index);

/* The helper's file name at the far end: ".../isthmus-helper-HASH".  Allocated, or NULL. */
char *bootstrap_target(const char *directory, const char *helper_path);

/* A sentence for people: there is no helper in `directory`.  Allocated, or NULL. */
char *bootstrap_no_helper(const char *directory);

/* Makes the far end's shell find or receive the helper and execute it, until `*deadline_ms`
 * (clock_now_ms()), which is later after an upload.  On failure `*ret_reason` says why (allocated,
 * or NULL); other output of the stream is in `noise`. */
int bootstrap_run(struct stream *stream, const struct remote_settings *settings,
	int64_t *deadline_ms, struct buffer *noise, char **ret_reason);

/* Makes the settings' transport start a shell, or these words, at an end that has `stream`.
 * -ENOMEM. */
int remote_start_at_shell(struct remote_settings *settings);
int remote_start_at(struct remote_settings *settings, char *const *words);

/* copy_helper.c: for a far end without a shell, or whose shell found no directory.  Copies the
 * helper there by its end's `copy`, and makes the transport start it.  At most 12 s.  On failure
 * `*ret_reason` says what was tried. */
int remote_copy_helper(struct remote_settings *settings, bool has_shell, char **ret_reason);
