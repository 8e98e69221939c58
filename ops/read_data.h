/*
 * ops/read_data.h - reads a file that no caller has asked to read, and leaves no trace.
 */
#pragma once

#include "ops/workspace.h"

/* Reads the first `size` bytes of a file that has so many, but not its holes, which are zeros: a
 * range that was preallocated counts as data once it was read, and SEEK_DATA tells everybody so.
 * Seeks twice for each part with data, so it is for workspaces on this machine.  Returns the count;
 * less than `size`: the file is shorter now; -errno.  `data` has room for `size` bytes. */
ssize_t read_data(struct op_context *ctx, struct open_file *file, void *data, size_t size);
