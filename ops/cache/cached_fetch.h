/*
 * ops/cache/cached_fetch.h - how scans fill the tree: shared by cached_intake.c, cached_prefetch.c,
 * cached_load.c, cached_ahead.c and cached_names_ahead.c.  Callers of all functions hold the lock.
 */
#pragma once

#include "ops/cache/cached_internal.h"

enum {
	WAIT_STEP_MS = 20,
	PREFETCH_ENTRIES_MAX = 32768,
	WALK_MS = 2000, /* opening files within this time of a directory walk counts as a search */
	DEPTH_MAX = 64, /* levels up or down that the estimate of a prefetch looks at */
};

/* ---- cached_load.c ----------------------------------------------------------------------- */

uint64_t cached_round_trips_ms(const struct cached *c, unsigned count);

/* Waits until the cache learns a fact about the path's last name, a directory is complete, or the
 * feed reports a change; at most WAIT_STEP_MS.  -EINTR if the call was interrupted. */
int cached_wait_to_learn(struct cached *c, struct op_context *ctx, const char *path);

/* ---- cached_prefetch.c ------------------------------------------------------------------- */

/* Starts a scan on a thread of its own.  False if it was not started: no memory or thread, or too
 * many are running. */
bool cached_start_prefetch(struct cached *c, const char *path, const struct scan_request *request,
	uint64_t expected_bytes);
bool cached_start_prefetch_of(struct cached *c, const struct object_id *top,
	const struct scan_request *request, uint64_t expected_bytes);

/* A running prefetch that will return the names in the directory at the path or, with `content`,
 * the content of the file at the path; NULL if there is none. */
const struct prefetch *cached_find_prefetch(const struct cached *c, const char *path, bool content);

bool cached_is_watched(const struct cached *c, const struct object_id *id);
bool cached_is_listed(struct cached *c, const struct object_id *id); /* a caller listed it */
bool cached_is_complete(struct cached *c, const struct object_id *id);

/* Whether a directory that was last fetched at `last_ms` may be fetched again: after
 * PREFETCH_REPEAT_MS if it is watched, else after the time-to-live. */
bool cached_is_due(const struct cached *c, const struct object_id *id, uint64_t last_ms);

/* Replaces `*id` by its parent directory.  False if the parent is not known, or at the root. */
bool cached_climb(const struct cached *c, struct object_id *id);

/* A directory is about to be loaded or walked through: prefetches the names around it if the access
 * pattern suggests that callers will need them. */
void cached_consider_names(struct cached *c, const struct object_id *id, bool listing);

/* Scans for the names below a directory, after everything that callers wait for: `all` of them, or
 * without those that git ignores. */
void cached_fetch_names_ahead(
	struct cached *c, const struct object_id *top, bool all, uint64_t entries_max);

/* Git reads its index before it stats every file: prefetches the names while git reads. */
void cached_consider_index(struct cached *c, const char *path, const struct object_id *directory);

/* ---- cached_names_ahead.c -----------------------------------------------------------------------
 */

/* A caller has listed a directory from the cache.  If it walks through a tree of which a scan has
 * brought a part only, scans what comes after that part, before the walk gets there. */
void cached_follow_walk(struct cached *c, const struct object_id *listed);
