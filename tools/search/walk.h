/*
 * tools/search/walk.h - a parallel walk of a tree without the files that git ignores.
 *
 * The walk does not follow symbolic links, and leaves out `.git` and the entries that the caller
 * hides.  It reads each directory whole and visits its files in the order of the directory, so that
 * a remote workspace can read ahead.  Memory is bounded by the directories that are being read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/files.h"

struct walk_entry {
	int directory; /* descriptor of the directory that has `name` */
	const char *name;
	const char *path;   /* below the root */
	unsigned char type; /* DT_REG, DT_DIR, DT_LNK, ... */
};

struct walk_request {
	const struct files_root *root;
	const char *path; /* the directory to walk, below the root */
	bool directories; /* also visit directories, before their entries */
	unsigned threads; /* 0: depends on the number of processors */

	/* Called for each entry, by several threads in parallel (`worker`: their number, from 0).
	 * A negative result ends the walk, which returns it. */
	int (*visit)(void *user, unsigned worker, const struct walk_entry *entry);
	void *user;
	/* Optional, called by any thread: false leaves out the entry and everything below. */
	bool (*shows)(void *user, const char *path);
	bool (*stopped)(void *user); /* optional: true ends the walk */
	void (*joined)(void *user);  /* optional: called once by each thread but the first */
};

struct walk_result {
	uint64_t unreadable; /* directories that could not be read */
	char first_unreadable[256];
	int first_error; /* -errno of first_unreadable */
};

enum { WALK_THREADS_MAX = 16 };

/* 0; a negative result of `visit`; or -errno: the directory `path` itself cannot be read. */
int walk(const struct walk_request *request, struct walk_result *ret_result);
