/*
 * tests/unit/place.h - what every place has that is played by a test.
 *
 * None of them is more than the test needs: `struct workspace` first, operations of the test's own.
 */
#pragma once

#include "ops/workspace_ops.h"

static inline void unvisited_free(struct workspace *place)
{
	(void)place;
}

static inline void place_status(struct workspace *place, struct workspace_status *ret_status)
{
	(void)place;
	*ret_status = (struct workspace_status){.link = LINK_ONLINE};
}

static inline int place_statfs(
	struct op_context *ctx, struct workspace *place, struct fs_stats *ret_stats)
{
	(void)ctx;
	(void)place;
	*ret_stats = (struct fs_stats){.block_size_bytes = 4096};
	return 0;
}
