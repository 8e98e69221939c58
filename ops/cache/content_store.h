/*
 * ops/cache/content_store.h - file content on local disk, kept across mounts.
 *
 * Each content is a file below `directory`, named by the xxh3-128 hash of the content (with a seed
 * that each directory has for itself).  A read verifies the hash; a file that does not match is
 * removed and counts as missing.  One index per workspace maps a version of an object (identity,
 * size, mtime, ctime) to the hash of its content.  Files are created by rename, so several
 * processes may share a directory.  The total size is kept below a bound; the least recently used
 * files are removed first.  Threads: any.
 */
#pragma once

#include "ops/workspace_values.h"

struct content_store;

/* Opens the store, or creates it.  `directory` NULL: ${XDG_CACHE_HOME:-~/.cache}/isthmus/content.
 * `identity` names the workspace.  -errno of mkdir and open; -ENOENT: `directory` is NULL and
 * neither variable is set; -EPERM: another user owns the directory.  A directory of the caller's
 * that others can access gets mode 0700. */
int content_store_open(const char *directory, const char *identity, uint64_t max_bytes,
	struct content_store **ret_store);
void content_store_close(struct content_store *store); /* NULL is fine */

/* True if the index has the content of this version.  Never waits for the disk. */
bool content_store_has(struct content_store *store, const struct attributes *version);

/* Reads the content of this version: version->size_bytes bytes, which the caller frees.  -ENOENT:
 * not in the store. */
int content_store_get(
	struct content_store *store, const struct attributes *version, void **ret_data);

/* Stores version->size_bytes bytes as the content of this version.  Callers may ignore a failure:
 * the content is then fetched again. */
int content_store_put(
	struct content_store *store, const struct attributes *version, const void *data);
