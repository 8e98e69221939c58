/*
 * ops/cached_readahead.h - sequential reads of big files, ahead of the reader.
 *
 * A handle that reads on where it left off gets chunks fetched before they are asked for, by
 * the reader threads of the workspace; the window doubles while that goes well.
 * Threads: any; a handle guards its own.  None of these wants `lock` held.
 */
#pragma once

#include "ops/cached_internal.h"

/* Reads through what has been read ahead, or from the place. */
ssize_t readahead_read(struct op_context *ctx, struct cached_file *file, struct open_file *inner,
	void *data, size_t size, off_t offset);

/* What has been read ahead is no longer true. */
void readahead_forget(struct cached_file *file);

/* Waits for chunks under way, and frees; the handle is being closed. */
void readahead_free(struct cached_file *file);
