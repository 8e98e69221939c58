/*
 * ops/support/file_kinds.h - what many files have in common, kept once for all of them.
 *
 * A tree of a million files has a few dozen combinations of device, mode, owner and number of
 * links; each takes as much space as it would in four files.
 * Threads: none; the owner guards it.  What is in use can be read without that.
 */
#pragma once

#include "ops/support/slab_table.h"

/* Without padding: it is compared as a whole. */
struct file_kind {
	uint64_t device;
	uint32_t mode, nlink, uid, gid, block_size_bytes, unused;
};

struct file_kinds {
	struct slab slab;
	struct slab_table table;
};

/* 0 or -ENOMEM. */
int file_kinds_init(struct file_kinds *kinds);

/* Frees all; zeros are fine. */
void file_kinds_done(struct file_kinds *kinds);

/* A reference to one like this, which the caller gives back.  0: no memory. */
slab_ref file_kind_get(struct file_kinds *kinds, const struct file_kind *like);
void file_kind_put(struct file_kinds *kinds, slab_ref ref); /* 0 is fine */

const struct file_kind *file_kind_at(slab_ref ref); /* 0: one of zeros */
