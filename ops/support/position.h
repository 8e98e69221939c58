/*
 * ops/support/position.h - the counter that orders looks at a workspace (ops/workspace.h,
 * Positions).
 *
 * One for the process.  It begins at 1 and never goes back, nor gives a number twice.
 * Threads: any.
 */
#pragma once

#include <stdint.h>

uint64_t position_draw(void);
