/*
 * ops/writeback/writeback.h - the decorator that lets the workspace follow (-o writes=back).
 *
 * What changes names, attributes and whole files is entered into a journal on this machine and
 * answered; threads bring it to the inner workspace, in the order in which it was asked for where
 * two operations touch one object or one name.  Callers see their own changes at once.  Everything
 * else (hard links, extended attributes, locks, renames of directories, writes into a part of a
 * file) waits until what it touches has been acknowledged, and is passed on.
 *
 * What the workspace refuses late, and what somebody else has changed meanwhile, is kept in a
 * directory of lost operations: the workspace keeps what it has.
 */
#pragma once

#include <stdbool.h>

#include "ops/workspace.h"

struct writeback_options {
	const char *state;    /* directory for the journal; made when missing */
	const char *lost;     /* directory for what could not be stored; made when needed */
	const char *identity; /* the workspace's URI, which the journal carries */
	bool drains;          /* what waits is sent, and nothing new is entered */
};

/* Wraps `inner` and owns it on success.  A journal that waits is taken up.  On failure
 * `*ret_reason` may be a sentence for people that the caller frees.
 * -EBUSY: another mount has the journal; -EBADMSG: it is not one that this version can read;
 * -ENOMEM; errors of open(2) and mkdir(2) in the state directory. */
int writeback_new(struct workspace *inner, const struct writeback_options *options,
	struct workspace **ret_workspace, char **ret_reason);

/* The directory of the workspace's journal, or of what it lost, below the user's state directory
 * (XDG_STATE_HOME); the caller frees it.  NULL: no memory, or no such directory. */
char *writeback_state_directory(const char *identity);
char *writeback_lost_directory(const char *identity);

/* How many operations wait in a journal that no mount has open; `*ret_identity` (may be NULL) is
 * whose it is, which the caller frees.  -EBUSY: one has; -ENOENT: none is there; -EBADMSG, -errno.
 */
int writeback_waiting(const char *state, uint64_t *ret_operations, char **ret_identity);

/* Every journal of this user in which operations wait. */
void writeback_each_waiting(
	void (*tell)(void *user, const char *identity, uint64_t operations), void *user);

/* What was lost and is kept, in `directory`. */
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
