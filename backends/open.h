/*
 * backends/open.h - from a URI to a workspace: all that fs/ knows of backends/.
 */
#pragma once

#include "ops/workspace.h"

/* What `isthmus mount -o key=value` passed on: "key=value" or "key" strings,
 * NULL-terminated.  Each backend documents its own keys in isthmus(1). */
struct workspace_options {
	const char *const *pairs;

	/* Every call is to ask the place: nothing is cached here. */
	bool strict;

	/* A file in a private directory, made when missing, where a far workspace keeps what the
	 * next daemon of the same mount needs to end its session there, should this one be
	 * killed.  NULL: nowhere.  Removed at a proper end. */
	const char *session_path;

	/* Optional: told when the link to a far workspace is lost (`reason` NULL), and when it is
	 * back (`reason`: why it could not be at once, or NULL).  From a thread of the link's own;
	 * until workspace_free(). */
	void (*link_changed)(void *user, bool is_back, const char *reason);
	void *link_user;

	/* Gets the pair that the place does not know, as it has no such option; or NULL. */
	const char **ret_unknown;
};

/* Returns the value of `key`, "" for a bare key, NULL when it is not there.
 * The last one wins.  Points into the options. */
const char *workspace_option(const struct workspace_options *options, const char *key);

/* Opens the workspace that `uri` names; a far one is cached (ops/cache/cached.h), with the
 * options cache=on|memory|off (memory: nothing on disk) and cache_size=BYTES[kMGT] (on disk;
 * default 2G), unless `strict` is set.  It waits for a far end no longer than 15 s.
 * On failure `*ret_reason` is a sentence for people (what failed, on what, why, what
 * to do; the words of ssh included) that the caller frees, or NULL.
 * -EINVAL: no such scheme, malformed URI, unknown option; -ENOENT, -ENOTDIR: no such
 * directory; -EACCES: refused; -EHOSTUNREACH, -ETIMEDOUT, -ENOTCONN: out of reach. */
int workspace_open(const char *uri, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason);
