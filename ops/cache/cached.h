/*
 * ops/cache/cached.h - the decorator that makes a far workspace behave like a near one.
 *
 * It keeps names with attributes (whole directories, and so also what does not exist), link
 * targets, the absence of xattrs, and the content of small files: in memory up to a bound, and
 * on disk by content hash (ops/cache/content_store.h).  It fills itself with scans that follow what
 * is asked for: a miss loads the directory; a walk through directories loads the subtree (without
 * what git ignores, unless that is wanted, too; with the files that git, editors and build tools
 * read first); opening several small files loads the content of their directory, then of the
 * subtree.
 *
 * Coherence (ops/cache/COHERENCE.md): what is in directories that the workspace watches is valid
 * until its change feed says otherwise; all else for `ttl_ms`.  So is a file with several links,
 * unless all of them are known in watched directories.  The workspace's own changes go through and
 * update what is known at once, the times of directories included, where the workspace says what
 * they left (struct facts); else that is asked for. What inotify does not tell of (a link made to a
 * file in a directory that nobody watches) is learnt when that directory is looked at. Owner, mode
 * and times that are set on a new file while its creator has it open go out with the creator's next
 * write, flush or fsync, which returns their error; a look at the file by others, or a command,
 * sends them first. Opening a small file whose content is known costs nothing; the workspace sees
 * the open at the first lock or the first read that the cache cannot answer. What was answered
 * without the workspace has ctx->served.from_cache set. Threads: `lock` guards everything; it is
 * never held during a call of the inner workspace.
 */
#pragma once

#include "ops/workspace_values.h"

struct workspace;

struct cached_options {
	uint64_t memory_bytes;      /* for file content; 0: 64 MiB */
	uint64_t disk_bytes;        /* of the content store; 0: no store */
	const char *disk_directory; /* NULL: ${XDG_CACHE_HOME:-~/.cache}/isthmus/content */
	const char *identity; /* identifies the workspace across mounts (its URI); may be NULL */
	uint32_t ttl_ms;      /* 0: what is not watched is never valid */
	uint64_t names_max;   /* known at a time; 0: 1.5 Mi */
};

/* Wraps `inner` and owns it on success.  -ENOMEM, -EAGAIN (no threads). */
int cached_new(struct workspace *inner, const struct cached_options *options,
	struct workspace **ret_workspace);

struct cached_stats {
	uint64_t hits;          /* operations answered from the cache */
	uint64_t misses;        /* operations that asked the workspace */
	uint64_t names;         /* known, present or absent */
	uint64_t content_bytes; /* in memory, what waits for the store included */
	uint64_t disk_hits;
	uint64_t scans; /* by this decorator, on its own account or a caller's */
	uint64_t prefetched_bytes;
	unsigned scanning;      /* scans under way ... */
	uint64_t scanned_names; /* ... and what those have brought so far */
};

/* For tests and status; `w` is a workspace made by cached_new(). */
void cached_statistics(struct workspace *w, struct cached_stats *ret_stats);

/* Waits until no prefetch is under way. */
void cached_quiesce(struct workspace *w);
