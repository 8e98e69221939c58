/*
 * ops/writeback/writeback.h - the decorator behind -o writes=back.
 *
 * Operations that change names, attributes or whole files are written to a journal on this machine
 * and answered at once.  Threads apply them to the inner workspace later; operations on the same
 * object or name keep their order.  Callers see their own changes immediately.  All other
 * operations (hard links, extended attributes, locks, renames of directories, writes into a part of
 * a file) first wait for the pending operations on the same objects, and then go to the inner
 * workspace directly.
 *
 * An operation that the workspace refuses later, or whose object somebody else has changed
 * meanwhile, is saved in a directory of lost operations.  The workspace is not overwritten.
 */
#pragma once

#include <stdbool.h>

#include "ops/workspace.h"

struct writeback_options {
	const char *state;    /* directory for the journal; made when missing */
	const char *lost;     /* directory for what could not be stored; made when needed */
	const char *identity; /* the workspace's normal URI, which the journal carries */
	bool drains;          /* apply what the journal has, and defer nothing new */
};

/* Wraps `inner` and owns it on success.  Resumes the journal of an earlier mount.  On failure
 * `*ret_reason` may be a sentence for people that the caller frees.
 * -EBUSY: another mount has the journal; -EBADMSG: it is not one that this version can read;
 * -ENOMEM; errors of open(2) and mkdir(2) in the state directory. */
int writeback_new(struct workspace *inner, const struct writeback_options *options,
	struct workspace **ret_workspace, char **ret_reason);

/* The directory of the workspace's journal, or of what it lost, below the user's state directory
 * (XDG_STATE_HOME); the caller frees it.  `identity`: the normal URI.  NULL: no memory, or no such
 * directory. */
char *writeback_state_directory(const char *identity);
char *writeback_lost_directory(const char *identity);

/* Counts the operations in a journal that no mount has open.  `*ret_identity` (may be NULL) is the
 * URI of its workspace; the caller frees it.  -EBUSY: a mount has it open; -ENOENT: there is no
 * journal; -EBADMSG: it has something, and is of another version (the URI is given); -errno. */
int writeback_waiting(const char *state, uint64_t *ret_operations, char **ret_identity);

/* Calls `tell` for each journal of this user that has pending operations; 0: it is of another
 * version, so that they cannot be counted. */
void writeback_each_waiting(
	void (*tell)(void *user, const char *identity, uint64_t operations), void *user);

/* An operation that was lost, as it is saved in `directory`. */
struct writeback_lost {
	const char *place; /* below the directory of what was lost: the file `content` is in it */
	const char *verb, *reason;
	const char *path, *path2; /* in visible characters; "" where there is none */
	bool has_content;
};

/* Calls `tell` (may be NULL) for each, in the order in which they were lost.  Returns their count;
 * -errno. */
int writeback_lost_each(const char *directory,
	void (*tell)(void *user, const struct writeback_lost *lost), void *user);

/* Removes them.  -errno. */
int writeback_lost_clear(const char *directory);
