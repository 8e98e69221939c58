/*
 * tools/search/walk.h - a parallel walk of a tree that leaves out what git ignores.
 *
 * Symbolic links are not followed, `.git` is left out, and so is what the caller does not show.
 * Each directory is read whole, and its files are handed out in the order of the directory, so that
 * a workspace far away can read ahead.  Memory is bounded by the directories being read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/files.h"

struct walk_entry {
	int directory; /* open; `name` is in it */
	const char *name;
	const char *path;   /* below the root */
	unsigned char type; /* DT_REG, DT_DIR, DT_LNK, ... */
};

struct walk_request {
	const struct files_root *root;
	const char *path; /* the directory to walk, below the root */
	bool directories; /* visit directories too (before what is in them) */
	unsigned threads; /* 0: by the number of processors */

	/* One entry, from any of the threads at once (`worker` counts them from 0).  A negative
	 * result ends the walk and is returned from it. */
	int (*visit)(void *user, unsigned worker, const struct walk_entry *entry);
	void *user;
	/* Optional, from any of the threads: false leaves the entry out, with what is in it. */
	bool (*shows)(void *user, const char *path);
	bool (*stopped)(void *user); /* optional: true ends the walk */
	void (*joined)(void *user);  /* optional: called first in each further thread */
};

struct walk_result {
	uint64_t unreadable; /* directories that could not be read */
	char first_unreadable[256];
	int first_error; /* -errno for that one */
};

enum { WALK_THREADS_MAX = 16 };

/* 0, what visit returned, or -errno when the first directory cannot be read. */
int walk(const struct walk_request *request, struct walk_result *ret_result);
