/*
 * fs/mount/mount_loop.h - would a workspace contain its own mount?
 *
 * Then the daemon, or its helper, waits for itself.  The far end of ssh:// may well be this
 * machine, so paths say nothing.
 */
#pragma once

#include <stdbool.h>

struct workspace;

/* True when the directory `mount_point` (absolute, resolved, nothing mounted on it yet) lies below
 * the root of the workspace; then `*ret_path` is its path there (the caller frees it).  Makes and
 * deletes a file in the directory if ids alone do not decide. */
bool mount_loop_find(struct workspace *w, const char *mount_point, char **ret_path);
