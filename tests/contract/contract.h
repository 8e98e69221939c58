/*
 * tests/contract/contract.h - the promises of ops/workspace.h, run over every backend.
 *
 * A place is a row in places.c: how to get an empty workspace.  The program `contract` takes
 * the name of a place, and of promises (none: all).  A promise is a function with a fixture: an
 * empty workspace, a context, room for attributes; it runs in a process of its own.  Adding a
 * backend is adding a row.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/buffer.h"
#include "ops/support/path.h"
#include "ops/workspace.h"
#include "tests/check.h"

struct contract_place {
	const char *name;

	/* Makes an empty workspace.  `*ret_directory`: the directory of this machine that it
	 * is, NULL when there is none; both belong to the place until close().
	 * -EOPNOTSUPP: not on this machine (all is skipped). */
	int (*open)(struct workspace **ret_workspace, const char **ret_directory);
	void (*close)(struct workspace *w);

	/* Changes are answered before the workspace has them: nobody has looked at what they
	 * leave. */
	bool is_ahead;
};

extern const struct contract_place contract_places[];
extern const size_t contract_place_count;

enum { CHANGES_MAX = 16384 };

/* What the change sink was told. */
struct seen_change {
	enum change_kind kind;
	bool exists;
	struct attributes attributes;
	char path[300];
};

struct fixture {
	struct workspace *w;
	const char *directory; /* may be NULL */
	struct op_context ctx;
	struct workspace_status status;
	bool is_ahead;       /* as struct contract_place */
	struct attributes a; /* room for results that nobody looks at */
};

/* A promise: `PROMISE(name) { body that uses f }`. */
#define PROMISE(name)                               \
	static void name##_body(struct fixture *f); \
	static void name(void)                      \
	{                                           \
		contract_run(name##_body);          \
	}                                           \
	static void name##_body(struct fixture *f)

/* What the promises run on from now on; false: it is not on this machine. */
bool contract_use(const struct contract_place *chosen);

void contract_run(void (*body)(struct fixture *f));

/* ---- Short forms ------------------------------------------------------------- */

/* Creates `path` with the text and closes it. */
int put(struct fixture *f, const char *path, const char *text);

/* The file's text (at most 4 KiB - 1) in static memory; an errno name in <> on failure. */
const char *get(struct fixture *f, const char *path);

/* The names in a directory, sorted and joined by blanks, in static memory. */
const char *names(struct fixture *f, const char *path);

struct open_file *open_or_fail(struct fixture *f, const char *path, int flags);
struct open_file *create_or_fail(struct fixture *f, const char *path, int flags);
int stat_of(struct fixture *f, const char *path, struct attributes *ret_attributes);
struct object_id id_of(struct fixture *f, const char *path);
int make_directory(struct fixture *f, const char *path);
bool is_root(void);

/* Waits up to 5 s until a change of this kind and path has been seen; copies it. */
bool await_change(enum change_kind kind, const char *path, struct seen_change *ret_change);
bool await_gone(const char *path); /* a CHANGE_ENTRY with exists = false */
bool was_changed(const char *path);
void forget_changes(void);

extern const struct test_group names_promises, files_promises, attributes_promises, locks_promises,
	exec_promises, streams_promises, watch_promises;
