/*
 * ops/support/files.h - what takes more than one call on this machine's files.
 * Threads: any.
 */
#pragma once

#include <stddef.h>

/* write(2) until all is written, after an interruption and after a part.  0 or -errno. */
int write_all(int fd, const void *data, size_t size);

/* Makes a directory (0700) when missing, its parents too.  A descriptor of it, or -errno. */
int make_directories(const char *path);

/* The path of what isthmus keeps for this user as `name`:
 * ${XDG_STATE_HOME:-~/.local/state}/isthmus/ NAME, or of that directory (NULL).  The caller frees
 * it; NULL: no memory. */
char *state_path(const char *name);
