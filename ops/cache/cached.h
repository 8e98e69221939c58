/*
 * ops/cache/cached.h - the decorator that makes a far workspace behave like a near one.
 *
 * It caches names with attributes (whole directories, so it also knows which names are absent),
 * link targets, the absence of xattrs, and the content of small files: in memory up to a bound, and
 * on disk by content hash (ops/cache/content_store.h).  Scans fill it, driven by what callers ask
 * for: a miss loads the directory; a walk through directories loads the subtree (first without the
 * files that git ignores, but with the files that git, editors and build tools read first; the
 * ignored ones when a caller wants them); opening several small files loads the content of their
 * directory, then of the subtree.
 *
 * Coherence (ops/cache/COHERENCE.md): entries of watched directories are valid until the change
 * feed reports a change; everything else is valid for `ttl_ms`.  A file with several links is valid
 * for `ttl_ms` too, unless all its links are known and in watched directories.  Changes made
 * through this mount go to the workspace and update the cache at once, the times of directories
 * included, if the reply says what the change left (struct facts); if not, the cache asks.  A
 * change without an inotify event (a link made in an unwatched directory) is found when that
 * directory is looked at.  Owner, mode and times that are set on a new file while its creator has
 * it open are sent with the creator's next write, flush or fsync, which returns their error; a look
 * at the file by another caller, or a command, sends them first.
 *
 * Opening a file that a caller has read before, or whose content is in memory or in the store,
 * costs no round trip; the workspace sees the open at the first lock or the first read that the
 * cache cannot answer.  An answer that did not need the workspace sets ctx->served.from_cache.
 * Handles of large files that were read stay open at the workspace after the close, for the next
 * open (cached_idle.c).
 *
 * Threads: `lock` (struct cached) guards all state; no call of the inner workspace is made while
 * it is held.
 */
#pragma once

#include "ops/workspace_values.h"

struct workspace;

struct cached_options {
	uint64_t memory_bytes;      /* bound of file content in memory; 0: a sixteenth of the
				     * machine's memory, 64 to 512 MiB */
	uint64_t disk_bytes;        /* of the content store; 0: no store */
	const char *disk_directory; /* NULL: ${XDG_CACHE_HOME:-~/.cache}/isthmus/content */
	const char *identity; /* identifies the workspace across mounts (its URI); may be NULL */
	uint32_t ttl_ms;      /* 0: facts about unwatched directories are never valid */
	uint64_t names_max;   /* most names in the tree at a time; 0: 1.5 Mi */
};

/* Wraps `inner` and owns it on success.  -ENOMEM, -EAGAIN (no threads). */
int cached_new(struct workspace *inner, const struct cached_options *options,
	struct workspace **ret_workspace);

struct cached_stats {
	uint64_t hits;          /* operations answered from the cache */
	uint64_t misses;        /* operations that asked the workspace */
	uint64_t names;         /* known, present or absent */
	uint64_t content_bytes; /* in memory, including content queued for the store */
	uint64_t disk_hits;
	uint64_t scans; /* started by this decorator, as prefetch or for a caller */
	uint64_t prefetched_bytes;
	unsigned scanning;      /* scans that are running ... */
	uint64_t scanned_names; /* ... and the names that they have returned so far */
};

/* For tests and status; `w` is a workspace made by cached_new(). */
void cached_statistics(struct workspace *w, struct cached_stats *ret_stats);

/* Waits until no prefetch is running. */
void cached_quiesce(struct workspace *w);
