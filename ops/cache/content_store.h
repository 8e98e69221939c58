/*
 * ops/cache/content_store.h - file content on local disk, from mount to mount.
 *
 * Content lies in files named by its xxh3-128 hash (with a seed of the directory's own), below
 * `directory`, and is verified when it is read: what does not match is removed and not there.  An
 * index per workspace says which version of which object (identity, size, mtime, ctime) had which
 * content. Files appear by rename, so several processes may share a directory.  The sum of their
 * sizes is kept below a bound; what was not used for longest goes first. Threads: any.
 */
#pragma once

#include "ops/workspace_values.h"

struct content_store;

/* Opens or makes the store.  `directory` NULL: ${XDG_CACHE_HOME:-~/.cache}/isthmus/content.
 * `identity` names the workspace.  -errno of mkdir and open; -ENOENT: no home either; -EPERM:
 * it is another user's (one's own becomes private). */
int content_store_open(const char *directory, const char *identity, uint64_t max_bytes,
	struct content_store **ret_store);
void content_store_close(struct content_store *store); /* NULL is fine */

/* True when the index knows the content of this version.  Never waits for the disk. */
bool content_store_has(struct content_store *store, const struct attributes *version);

/* Reads it: size_bytes bytes that the caller frees.  -ENOENT. */
int content_store_get(
	struct content_store *store, const struct attributes *version, void **ret_data);

/* Stores size_bytes bytes.  A failure costs nothing but the content's place here. */
int content_store_put(
	struct content_store *store, const struct attributes *version, const void *data);
