/*
 * backends/open.h - from a URI to a workspace: all that fs/ knows of backends/.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct workspace;

/* An option of `-o` that a kind of workspace has. */
struct workspace_scheme_option {
	const char *name;
	const char *value; /* its form, for people: "SECONDS"; NULL: it takes none */
};

/* A row of the table of schemes (backends/backend.h), as far as users see it.  All static. */
struct workspace_scheme {
	const char *name;    /* "ssh": what stands before the colon */
	const char *form;    /* "ssh://[user@]host[:port][/dir]" */
	const char *summary; /* where that is, in a few words */
	/* Lists that end with a NULL name; NULL: none. */
	const struct workspace_scheme_option *options;        /* of this scheme */
	const struct workspace_scheme_option *shared_options; /* of several */
};

/* The rows in order; NULL behind the last. */
const struct workspace_scheme *workspace_scheme(size_t index);

/* The URI that the user's word names, which the caller frees; NULL: no memory.  Also taken are what
 * scp(1) and sshfs(1) take, [USER@]HOST:[DIR] for ssh://HOST/DIR (a relative DIR is below the home
 * directory), and an absolute path for local:/DIR.  Not taken for a host is the name of a scheme, a
 * single letter (a drive), and what a number follows (a port?).  Anything else is returned as it
 * is. */
char *workspace_uri(const char *word);

/* The URI in the form by which things are kept for its workspace: the directory without empty and
 * "." components, and with symbolic links followed where it is on this machine.  The caller frees
 * it; NULL: no memory. */
char *workspace_normal_uri(const char *uri);

/* Offers completions of `begin`, the beginning of a URI: schemes, or the names (of containers, say)
 * that the scheme's command lists within 3 s. */
void workspace_complete(const char *begin, void (*offer)(void *user, const char *uri), void *user);

/* A row of the table of layers (backends/layers.c): a decorator on top of what a scheme opens, if
 * its options ask for it.  All static. */
struct workspace_layer {
	const char *name;
	const struct workspace_scheme_option *options; /* ends with a NULL name */
	bool far_only;                                 /* for schemes of `shared_options` only */
};

/* The rows from the bottom up; NULL behind the last. */
const struct workspace_layer *workspace_layer(size_t index);

/* What `isthmus mount -o key=value` passed on: "key=value" or "key" strings,
 * NULL-terminated.  Which keys there are is in the table of schemes; isthmus(1) documents them. */
struct workspace_options {
	const char *const *pairs;

	/* No caching: every call asks the workspace. */
	bool strict;

	/* A file in a private directory, made when missing, in which a far workspace keeps what the
	 * next daemon of the same mount needs to end its session, should this daemon be killed.
	 * NULL: none.  Removed at a regular end. */
	const char *session_path;

	/* Optional: called when the link to a far workspace is lost (`reason` NULL), and when it is
	 * back (`reason`: why the first attempt failed, or NULL).  From a thread of the link's own;
	 * until workspace_free(). */
	void (*link_changed)(void *user, bool is_back, const char *reason);
	/* Optional, likewise: another machine or container has the name now; `what` says so, and
	 * what was lost: files that were open are ESTALE, unacknowledged writes are EIO. */
	void (*replaced)(void *user, const char *what);
	void *link_user;

	/* Receives the pair that the scheme does not have as an option; or NULL. */
	const char **ret_unknown;
};

/* Returns the value of `key`, "" for a bare key, NULL when it is not there.
 * The last one wins.  Points into the options. */
const char *workspace_option(const struct workspace_options *options, const char *key);

/* The next value of a key that may be given several times, from `*next` (first 0); NULL: no more.
 */
const char *workspace_option_next(
	const struct workspace_options *options, const char *key, size_t *next);

/* Opens the workspace that `uri` names; a far one is cached (ops/cache/cached.h), with the
 * options cache=on|memory|off (memory: nothing on disk), cache_size=BYTES[kMGT] (on disk;
 * default 2G) and memory=BYTES[kMGT] (of file content; default 64M), unless `strict` is set;
 * hide=PATTERN, protect=PATTERN and agentsignore put a policy (ops/policy.h) on top.  It waits for
 * a far end no longer than 15 s. On failure `*ret_reason` is a sentence for people (what failed, on
 * what, why, what to do; the words of ssh included) that the caller frees, or NULL. -EINVAL: no
 * such scheme, malformed URI, unknown option; -ENOENT, -ENOTDIR: no such directory; -EACCES:
 * refused; -EHOSTUNREACH, -ETIMEDOUT, -ENOTCONN: out of reach. */
int workspace_open(const char *uri, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason);
