/*
 * ops/workspace_scan.h - scan for workspaces that have none of their own.
 */
#pragma once

#include "ops/workspace_values.h"

struct workspace;

/* As the operation scan of ops/workspace.h, made of readdir, readlink, open and read.
 * Memory: the paths of the directories still to visit and of those above them, the entries of one
 * directory and the content of one file. */
int workspace_scan_by_walking(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, const struct scan_request *request, dir_entry_sink sink,
	void *user);
