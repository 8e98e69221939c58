/*
 * ops/cache/cached_fetch.h - how the tree fills itself: between cached_intake.c, cached_prefetch.c,
 * cached_load.c and cached_ahead.c.  All functions want the lock held.
 */
#pragma once

#include "ops/cache/cached_internal.h"

enum {
	WAIT_STEP_MS = 20,
	PREFETCH_ENTRIES_MAX = 32768,
	WALK_MS = 2000, /* who opens files so soon after walking through directories searches */
	DEPTH_MAX = 64, /* of directories looked at, up or down, to size up a prefetch */
};

/* ---- cached_load.c ----------------------------------------------------------------------- */

uint64_t cached_round_trips_ms(const struct cached *c, unsigned count);

/* Waits until something is learnt of what has the path's last name, or a directory is complete, or
 * the feed tells something; WAIT_STEP_MS at most.  -EINTR when the caller gave up. */
int cached_wait_to_learn(struct cached *c, struct op_context *ctx, const char *path);

/* ---- cached_prefetch.c ------------------------------------------------------------------- */

/* False: it was not started. */
bool cached_start_prefetch(struct cached *c, const char *path, const struct scan_request *request,
	uint64_t expected_bytes);
bool cached_start_prefetch_of(struct cached *c, const struct object_id *top,
	const struct scan_request *request, uint64_t expected_bytes);

/* One under way that will bring the names in the directory at the path, or with `content` that of
 * the file there; or NULL. */
const struct prefetch *cached_find_prefetch(const struct cached *c, const char *path, bool content);

bool cached_is_watched(const struct cached *c, const struct object_id *id);
bool cached_is_listed(struct cached *c, const struct object_id *id); /* somebody has read it */
bool cached_is_complete(struct cached *c, const struct object_id *id);

/* What was fetched is valid until the feed says otherwise, or for a while. */
bool cached_is_due(const struct cached *c, const struct object_id *id, uint64_t last_ms);

/* From an object to the directory that it is in, as far as is known.  False: none. */
bool cached_climb(const struct cached *c, struct object_id *id);

/* A directory is about to be loaded, or walked through: are others around it worth fetching? */
void cached_consider_names(struct cached *c, const struct object_id *id, bool listing);

/* Git reads its index before it looks at every file: the names come meanwhile. */
void cached_consider_index(struct cached *c, const char *path, const struct object_id *directory);
