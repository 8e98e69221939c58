/*
 * tools/base/output_notice.h - the notice that says which part of a long output an answer shows,
 * and which file has all of it.
 *
 * Threads: as tools/base/tool.h.
 */
#pragma once

#include "tools/base/tail.h"

struct tool_call;

/* Returns the notice, which the caller frees; NULL: all output is shown, or there is no memory.  If
 * commands run on another machine, copies the file to it and sets tail->path to the path there;
 * read and grep accept both paths. */
char *output_notice(struct tool_call *call, struct tail *tail);
