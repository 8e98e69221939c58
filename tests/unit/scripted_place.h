/*
 * tests/unit/scripted_place.h - a place that does what the test says, when it says so.
 *
 * A few files and directories, and a feed that reports what the test has it report.  Looks are
 * numbered as ops/workspace.h says: before a look, and between a change and the look at what it
 * left; that one is reported as facts.  Where a name leads elsewhere by then, no facts are told.
 * Each change moves the ctime on and marks the object as changed lately.
 * Threads: any may call its operations, as prefetches do.  The hooks are run by the test's own
 * thread only.
 */
#pragma once

#include "ops/workspace.h"

/* An empty place: nothing but its root.  There is one at a time. */
struct workspace *place_new(void);

/* What others do there; directories on the way must exist.  The inode number of each object that is
 * made is the next one; the root's is 1. */
void place_make(const char *path, uint32_t mode);
void place_remove(const char *path);
void place_put_back(const char *path); /* the object that had this name last */
void place_move(const char *from, const char *to);
void place_link(const char *path, const char *new_path);
void place_set_size(const char *path, uint64_t size_bytes);
void place_set_ctime(const char *path, time_t seconds);

/* All that is read consists of this letter; no time tells of it.  (A write sets that of its file.)
 */
void place_set_letter(char letter);

/* Nothing was changed lately any more. */
void place_time_passes(void);

/* What is there, without a look being counted; inode 0: nothing. */
struct object_id place_id(const char *path);
bool place_is_watched(const char *path);

/* An event about the name, numbered and looked at now; reports it; both. */
struct change place_event(const char *path);
void place_deliver(const struct change *change);
void place_tell(const char *path);

/* All events until now were lost. */
void place_lose(void);

/* Calls that look at attributes, extended ones too, and of open since it was last asked. */
unsigned place_looks(void);
unsigned place_opens(void);

/* What the test does during the next call, once: before the look is numbered (a change has been
 * made by then); between the number and the look; when all is done, before the answer is here. */
extern void (*before_it_looks)(void), (*while_it_looks)(void), (*before_it_arrives)(void);
/* ... and during the next write, which the place has, but which has not returned. */
extern void (*during_a_write)(void);
