/*
 * ops/workspace_ops.h - how a workspace is implemented: the table of the operations that
 * ops/workspace.h describes, and the structs that an implementation's own begin with.
 *
 * A slot gets a workspace, or a handle or process that the implementation made itself, and is
 * called by the function of the same name only, which has checked the arguments.
 */
#pragma once

#include "ops/workspace.h"

/* Every operation, for what must leave none out. */
/* clang-format off */
#define WORKSPACE_OPERATIONS(X, prefix) \
	X(prefix, free) X(prefix, status) \
	X(prefix, getattr) X(prefix, readdir) X(prefix, scan) X(prefix, readlink) \
	X(prefix, mkdir) X(prefix, mknod) X(prefix, symlink) X(prefix, link) \
	X(prefix, unlink) X(prefix, rmdir) X(prefix, rename) X(prefix, setattr) \
	X(prefix, getxattr) X(prefix, listxattr) X(prefix, setxattr) X(prefix, removexattr) \
	X(prefix, statfs) X(prefix, check) \
	X(prefix, open_file) X(prefix, create) X(prefix, await_name) X(prefix, create_unnamed) \
	X(prefix, read) X(prefix, write) X(prefix, flush) X(prefix, fsync) X(prefix, close) \
	X(prefix, fallocate) X(prefix, descriptor) X(prefix, seek) X(prefix, copy_range) \
	X(prefix, lock) X(prefix, lock_test) X(prefix, lock_release_owner) \
	X(prefix, exec) X(prefix, process_next) X(prefix, process_write) \
	X(prefix, process_close_stdin) X(prefix, process_signal) X(prefix, process_resize) \
	X(prefix, process_free) \
	X(prefix, watch) X(prefix, watch_directory) X(prefix, unwatch)
/* clang-format on */

#define WORKSPACE_SLOT(unused, name) __typeof__(workspace_##name) *name;

struct workspace_ops {
	const char *name; /* "local"; static, unique */
	WORKSPACE_OPERATIONS(WORKSPACE_SLOT, unused)
};

/* Declares an implementation's functions: local_getattr() and so on. */
#define WORKSPACE_DECLARE(prefix, name)      __typeof__(workspace_##name) prefix##_##name;
#define WORKSPACE_DECLARE_OPERATIONS(prefix) WORKSPACE_OPERATIONS(WORKSPACE_DECLARE, prefix)

/* First members of every implementation's own structs; set by it. */
struct workspace {
	const struct workspace_ops *ops;
};

struct process {
	struct workspace *workspace;
};
