/*
 * tools/base/registry.h - all tools: the built-in ones and the custom tools that were found.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"

enum { REGISTRY_BUILT_IN_MAX = 64 };

/* The built-in tools; NULL ends the list.  tools/tools.c */
extern const struct tool *const registry_built_in[];

/* The built-in tools and the custom tools (tools/custom/custom.h), which live as long as the
 * program.  Custom tools are searched for on first use: when registry_find() gets a name that is
 * not built in, or registry_at() an index beyond the built-in ones. */
const struct tool *registry_find(const char *name);
const struct tool *registry_at(size_t index); /* NULL past the last one */

/* Looks at the built-in tools only.  NULL: none has that name. */
const struct tool *registry_find_built_in(const char *name);

/* Sets the function that searches for custom tools; it is called once, on first use, and calls
 * registry_set_found(). */
void registry_set_loader(void (*load)(void *user), void *user);

enum { REGISTRY_FOUND_MAX = 500 };

/* Replaces the list of custom tools.  Copies the pointers, not the tools. */
void registry_set_found(const struct tool *const *found, size_t count);

/* The parsed input schema of the tool; it lives as long as the program. */
const cJSON *registry_input_schema(const struct tool *tool);
