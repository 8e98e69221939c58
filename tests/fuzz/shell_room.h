/*
 * tests/fuzz/shell_room.h - runs lines of bash where they can do no harm, and says which of them
 * did more than they may.
 *
 * The room is a mount, user, process and network namespace: everything is read-only but a tmpfs
 * on /mnt, where /mnt/w is the root, /mnt/out is outside of it, and /mnt/bin has stubs of ls, cat
 * and the like, and canaries under other names.  A line may not
 * - run a command that is not expected, by bash's own trace of what it runs (set -x) after all
 *   expansions, or run a canary;
 * - change anything below /mnt;
 * - open what is outside the root, or below secret/, or name it to ls or cat.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ops/support/buffer.h"

enum { ROOM_LINES_MAX = 256 };

struct room_line {
	const char *directory; /* below the root, "": the root */
	const char *line;
	const char *given; /* what was judged, if the line is that printed anew; for the report */
	const char *const
		*expected; /* commands that may run, NULL-terminated: "ls", "git status" */
};

extern const char room_root[]; /* "/mnt/w" */

/* Takes the process into the room, for good.  0, or -errno: namespaces are not allowed. */
int room_enter(void);

/* Runs the lines, at most ROOM_LINES_MAX.  Appends what was found to `report`; 0 when nothing
 * was, else the number of lines. */
size_t room_run(const struct room_line *lines, size_t count, struct buffer *report);
