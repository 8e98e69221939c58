/*
 * tools/base/output_notice.h - says which part of a long output an answer shows, and where all of
 * it is.
 *
 * Threads: as tools/base/tool.h.
 */
#pragma once

#include "tools/base/tail.h"

struct tool_call;

/* The notice, which the caller frees; NULL: everything is shown, or there is no memory.  The file
 * is also put where commands run, if that is another machine, and its path there takes the place of
 * tail->path: read and grep know both. */
char *output_notice(struct tool_call *call, struct tail *tail);
