/*
 * tests/unit/scripted_place.h - a place that does what the test says, when it says so.
 *
 * A few names, and a feed that tells what the test has it tell; the clock moves with every call.
 * Threads: any may call its operations, as prefetches do.  What `before_it_is_done` and
 * `before_it_arrives` name is run by the test's own thread only.
 */
#pragma once

#include "ops/workspace.h"

/* An empty place: nothing but its root.  There is one at a time. */
struct workspace *place_new(void);

/* What is there; the number of each object that is made is the next one. */
void place_make(const char *path, uint32_t mode);
void place_remove(const char *path);
void place_put_back(const char *path); /* the same object */
void place_set_size(const char *path, uint64_t size_bytes);
void place_set_ctime(const char *path, time_t seconds);
void place_set_letter(char letter); /* of which what is read consists */

/* What the feed will say that is at the path now; says it; both. */
struct change place_event(const char *path);
void place_deliver(const struct change *change);
void place_tell(const char *path);

/* Calls of getattr and open since it was last asked. */
unsigned place_looks(void);
unsigned place_opens(void);

/* What the test does once the place has done its work, before it is done with the call, or before
 * the answer is here; once. */
extern void (*before_it_is_done)(void), (*before_it_arrives)(void);
