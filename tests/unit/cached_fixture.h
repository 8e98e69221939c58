/*
 * tests/unit/cached_fixture.h - cached over faulty, which counts the calls, over a directory.
 */
#pragma once

#include "ops/cache/cached.h"

extern char directory[64];  /* holds the workspace, "tree" */
extern bool through_helper; /* the next setup() reaches it so */
extern struct workspace *counter, *w;
extern struct op_context context;
extern struct attributes ignored;

/* Runs a command in the workspace, behind the decorator's back. */
void behind(const char *command);

/* A workspace that the command makes, and the decorator over it. */
void setup(const char *command);
void teardown(void);

/* Once more, when the former one has been freed; `faults` as for faulty_new(). */
void mount_it(const struct cached_options *options);
void mount_with(const struct cached_options *options, const char *faults);

/* Of the workspace below, since they were last forgotten. */
uint64_t calls(void);
void forget_calls(void);

int look(const char *path, struct attributes *ret_attributes);
int count(const char *path); /* entries, or -errno */
struct open_file *open_it(const char *path, int flags);
const char *text_of(const char *path); /* of a file, in static memory */
