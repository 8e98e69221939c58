/*
 * tests/unit/scripted_cached.h - the cached decorator over a scripted place.
 */
#pragma once

#include "ops/cache/cached.h"
#include "tests/unit/scripted_place.h"

extern struct workspace *w;
extern struct op_context context;
extern struct attributes seen; /* by the last look() */
extern unsigned told;          /* events that the decorator passed on */

/* With the file "d/a", which is known and watched. */
void setup(void);
void teardown(void);

int look(const char *path);
