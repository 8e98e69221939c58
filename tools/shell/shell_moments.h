/*
 * tools/shell/shell_moments.h - whether paths of a line may lead elsewhere when they are used.
 *
 * The paths of a line are resolved before it runs.  If one of its commands can make links, or
 * replace names, no other one may use paths after it, or at the same time.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What a command does to names, and when. */
struct shell_moment {
	unsigned command; /* the same for a command and those that it runs */
	unsigned time;    /* rises from pipeline to pipeline */
	bool background;  /* until any later time */
	bool repeats;     /* again and again, until any later time */
	bool changes_names;
	bool uses_paths;
};

struct shell_moments {
	struct shell_moment *list; /* to be freed */
	size_t count;
};

/* 0 or -ENOMEM. */
int shell_moments_add(struct shell_moments *moments, const struct shell_moment *moment);

/* Whether a command may use paths that another one has changed. */
bool shell_moments_conflict(const struct shell_moments *moments);
