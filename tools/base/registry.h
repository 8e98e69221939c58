/*
 * tools/base/registry.h - the tools that there are: the built-in ones and those that were found.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"

enum { REGISTRY_BUILT_IN_MAX = 64 };

/* The built-in tools; NULL ends the list.  tools/tools.c */
extern const struct tool *const registry_built_in[];

/* The built-in tools and, once they were looked for, those that were found (tools/custom/custom.h),
 * which live as long as the program.  A name that is not built in makes the search happen. */
const struct tool *registry_find(const char *name);
const struct tool *registry_at(size_t index); /* NULL past the last one */

/* Of the built-in ones only.  NULL: there is none of that name. */
const struct tool *registry_find_built_in(const char *name);

/* Sets a function that is called once, when more than the built-in tools are asked for; it adds
 * what it finds by registry_set_found(). */
void registry_set_loader(void (*load)(void *user), void *user);

enum { REGISTRY_FOUND_MAX = 500 };

/* The tools beside the built-in ones, instead of those so far.  The pointers are copied. */
void registry_set_found(const struct tool *const *found, size_t count);

/* The tool's input schema, parsed once; it lives as long as the program. */
const cJSON *registry_input_schema(const struct tool *tool);
