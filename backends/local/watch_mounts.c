#include "backends/local/watch_mounts.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/mountinfo.h"
#include "ops/support/path.h"

enum { POINTS_MAX = 4096 };

struct mount_point {
	uint64_t id; /* a mount's own: one over another has the same path */
	char *path;  /* relative to the root */
};

static void points_free(struct mount_point *points, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(points[i].path);
	free(points);
}

static const char *below(const char *root, const char *path)
{
	size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);

	return path_is_within(path, root) && path[length] == '/' ? path + length + 1 : "";
}

static bool take_line(void *user, const struct mountinfo_line *line)
{
	struct mount_points *mounts = user;
	const char *path = below(mounts->root, line->mount_point);
	struct mount_point *points;

	if (!*path)
		return true;
	if (mounts->count >= POINTS_MAX)
		return false;
	points = realloc(mounts->points, (mounts->count + 1) * sizeof(*points));
	if (!points)
		return false;
	mounts->points = points;
	points[mounts->count] = (struct mount_point){.id = line->id, .path = strdup(path)};
	mounts->count += points[mounts->count].path != NULL;
	return true;
}

static bool has(const struct mount_points *mounts, const struct mount_point *point)
{
	for (size_t i = 0; i < mounts->count; i++)
		if (mounts->points[i].id == point->id &&
			strcmp(mounts->points[i].path, point->path) == 0)
			return true;
	return false;
}

static void tell_missing(const struct mount_points *in, const struct mount_points *of,
	mount_point_sink sink, void *user)
{
	for (size_t i = 0; i < of->count; i++)
		if (!has(in, &of->points[i]))
			sink(user, of->points[i].path);
}

void mount_points_init(struct mount_points *mounts, int root_fd)
{
	char link[32];

	*mounts = (struct mount_points){0};
	snprintf(link, sizeof(link), "/proc/self/fd/%d", root_fd);
	mounts->root = realpath(link, NULL);
	if (mounts->root)
		mountinfo_walk(take_line, mounts);
}

void mount_points_done(struct mount_points *mounts)
{
	points_free(mounts->points, mounts->count);
	free(mounts->root);
}

void mount_points_update(struct mount_points *mounts, mount_point_sink sink, void *user)
{
	struct mount_points now = {.root = mounts->root};

	if (!now.root || mountinfo_walk(take_line, &now) < 0)
		return;
	tell_missing(mounts, &now, sink, user);
	tell_missing(&now, mounts, sink, user);
	points_free(mounts->points, mounts->count);
	*mounts = now;
}
