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
