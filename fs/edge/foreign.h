/*
 * fs/edge/foreign.h - tells changes by others from our own, for the mount log.
 *
 * The change feed also reports our own changes, and does not say whose they are: one that comes
 * within FOREIGN_OWN_MS of a change of the same path or object through this mount counts as ours.
 * Threads: any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ops/workspace_values.h"

enum {
	FOREIGN_OWN_MS = 5000,
	FOREIGN_AGAIN_MS = 1000, /* a path is reported once in that time ... */
	FOREIGN_MAX = 256,       /* ... and so many paths */
	FOREIGN_SLOTS = 65536,
	FOREIGN_WAYS = 4,
};

/* Keys, with the time of the last one: the hash in the upper half, milliseconds in the lower. */
struct foreign_times {
	atomic_uint_fast64_t slots[FOREIGN_SLOTS];
};

/* Initialise with zeros. */
struct foreign {
	struct foreign_times own, reported;
	atomic_uint_fast64_t period; /* its number in the upper half, reports in the lower */
};

enum foreign_verdict {
	FOREIGN_NOT,  /* ours, or reported a moment ago */
	FOREIGN_PATH, /* to be reported */
	FOREIGN_MANY, /* once in a while: there are more changes than are reported */
};

/* This mount is changing this, or just has: `path` and `id` may be NULL. */
void foreign_own(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms);

/* This mount changed this lately. */
bool foreign_is_own(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms);

/* Milliseconds since this mount changed this; UINT32_MAX: not lately. */
uint32_t foreign_own_age(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms);

/* The feed reported a change of this. */
enum foreign_verdict foreign_judge(
	struct foreign *foreign, const char *path, const struct object_id *id, uint64_t now_ms);
