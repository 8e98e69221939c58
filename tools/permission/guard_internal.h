/*
 * tools/permission/guard_internal.h - the parts of tools/permission/guard.h.
 *
 * guard_names.c has the table of names; guard_git.c reads the settings of git; guard.c combines
 * them and follows links.  Paths are absolute unless a comment says otherwise.
 * Threads: any.
 */
#pragma once

#include "ops/support/cleanup.h"
#include "tools/permission/guard.h"

/* The file that is about to be changed. */
struct guard_subject {
	const struct files_root *root;
	const char *path;   /* below the root, links followed; it need not exist */
	char *absolute;     /* the same, as an absolute path */
	struct stat status; /* valid if has_names */
	bool has_names;     /* it is a regular file with several hard links */
};

extern const char guard_by_git[]; /* the reason for a file that git reads or runs */

/* Why the last names of `path` are guarded; `above` (may be "") is the name of the directory above
 * `path`, which counts only together with names of `path`.  `path` is relative. */
const char *guard_name_in(const char *above, const char *path);

/* Whether a guarded name may lie below a directory whose relative path is `path`: ".config". */
bool guard_may_be_below(const char *path);

/* Whether `named` is the subject, a directory above it, or another of its names: a symbolic link,
 * or one in the directory `named`, that leads to it, or a hard link. */
bool guard_is(const struct guard_subject *subject, const char *named);

/* `word` as an absolute path: relative to `directory`, "~/" to `home` (NULL: unknown).  The caller
 * frees it; NULL: no memory, or the path cannot exist. */
char *guard_absolute(const char *directory, const char *home, const char *word);

/* Whether the settings of the repository with the work tree `directory` name the subject as a hook,
 * an include or a program; and those of the account, if its home is `directory`. */
bool guard_by_repository(const struct guard_subject *subject, const char *directory);

/* The same for the settings that git reads everywhere on this machine. */
bool guard_by_account(const struct guard_subject *subject);
