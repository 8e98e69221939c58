/*
 * backends/local/local.h - a directory of this machine as a workspace.
 *
 * Everything happens below one descriptor of the root directory: no path of ours is ever
 * resolved from "/", and no symbolic link is followed.  New objects belong to the caller
 * (ctx->uid, ctx->gid) when this process has the right to do that; it keeps its other
 * rights meanwhile, as the kernel above has done the permission checks.
 * The program's umask must be 0, as modes are exact.
 */
#pragma once

#include <stdbool.h>

struct workspace;

struct local_options {
	bool no_openat2; /* walk component by component, as on a kernel without openat2 */
};

/* Opens a directory as `root_fd` below: with O_PATH, and only if this process may search it.
 * -errno. */
int local_open_root(const char *path);

/* Makes the workspace of the directory open as `root_fd` (O_PATH will do), and takes
 * ownership of the descriptor on success.  `options` may be NULL.
 * -ENOTDIR, -ENOMEM, -errno of statx(2). */
int local_workspace_new(
	int root_fd, const struct local_options *options, struct workspace **ret_workspace);
