/* Names that a model may have meant: those of tools/base/files.h that are near, or look the same.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>

#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "tools/base/files.h"
#include "tools/text/looks.h"

enum { NEAR_MAX = 3, NAMES_MAX = 20000 };

struct near {
	char name[256];
	unsigned distance;
};

/* The edit distance without regard to case, at most `limit`. */
static unsigned name_distance(const char *a, const char *b, unsigned limit)
{
	unsigned row[257];
	size_t length = strlen(b);

	if (length > 255)
		return limit;
	for (unsigned j = 0; j <= length; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		unsigned diagonal = row[0], best = row[0] + 1;

		row[0]++;
		for (size_t j = 0; j < length; j++) {
			unsigned cost = diagonal + (strncasecmp(a + i, b + j, 1) != 0);

			diagonal = row[j + 1];
			if (row[j + 1] + 1 < cost)
				cost = row[j + 1] + 1;
			if (row[j] + 1 < cost)
				cost = row[j] + 1;
			row[j + 1] = cost;
			if (cost < best)
				best = cost;
		}
		if (best >= limit)
			return limit;
	}
	return row[length];
}

static void keep_nearest(struct near near[NEAR_MAX], const char *name, unsigned distance)
{
	size_t i = NEAR_MAX;

	while (i > 0 && near[i - 1].distance > distance)
		i--;
	if (i == NEAR_MAX || strlen(name) >= sizeof(near[0].name))
		return;
	memmove(&near[i + 1], &near[i], (NEAR_MAX - 1 - i) * sizeof(near[0]));
	strcpy(near[i].name, name);
	near[i].distance = distance;
}

static const char *near_remark(int directory, const char *name)
{
	struct stat status;

	if (fstatat(directory, name, &status, 0) < 0 && errno == ENOENT)
		return " (a symbolic link that leads nowhere)";
	return utf8_is_clean(name, strlen(name))
		       ? ""
		       : " (its bytes are not UTF-8: bash reaches it with a pattern)";
}

char *files_near_names(const struct files_root *root, const char *path,
	bool (*may_name)(void *user, const char *path), void *user)
{
	struct near near[NEAR_MAX];
	struct buffer list cleanup_buffer = {0};
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	cleanup_dir DIR *directory = NULL;
	const char *wanted = path_name(path);
	unsigned limit = (unsigned)strlen(wanted) / 3 + 2;
	struct dirent *entry;
	int fd;

	for (size_t i = 0; i < NEAR_MAX; i++)
		near[i].distance = limit;
	fd = parent ? files_open(root, parent, O_RDONLY | O_DIRECTORY, 0) : -ENOMEM;
	if (fd < 0)
		return NULL;
	directory = fdopendir(fd);
	if (!directory) {
		close(fd);
		return NULL;
	}
	for (int i = 0; i < NAMES_MAX && (entry = readdir(directory)); i++) {
		unsigned distance;

		if (!path_is_name(entry->d_name))
			continue;
		distance = looks_same(wanted, entry->d_name)
				   ? 0
				   : name_distance(wanted, entry->d_name, limit);
		/* A prefix counts as similar: "test" for "test_long_name.c". */
		if (distance >= limit && strlen(wanted) >= 3 &&
			strncasecmp(wanted, entry->d_name, strlen(wanted)) == 0)
			distance = limit - 1;
		if (distance < limit) {
			cleanup_free char *whole = path_join(parent, entry->d_name);

			if (whole && may_name(user, whole))
				keep_nearest(near, entry->d_name, distance);
		}
	}
	for (size_t i = 0; i < NEAR_MAX && near[i].distance < limit; i++) {
		buffer_printf(&list, "%s%s%s", i ? ", " : "", parent, *parent ? "/" : "");
		/* The difference must be seen. */
		if (near[i].distance == 0)
			looks_escape(near[i].name, &list);
		else
			buffer_append_string(&list, near[i].name);
		buffer_append_string(&list, near_remark(dirfd(directory), near[i].name));
	}
	return list.size ? buffer_steal_string(&list) : NULL;
}

/* ---- Names that look the same
 * -------------------------------------------------------------------- */

/* The one name in the directory that looks like `wanted`; the caller frees it.  NULL: none, or
 * several. */
static char *find_look_alike(const struct files_root *root, const char *directory,
	const char *wanted, bool (*may_name)(void *user, const char *path), void *user)
{
	int fd = files_open(root, directory, O_RDONLY | O_DIRECTORY, 0);
	cleanup_dir DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	cleanup_free char *found = NULL;
	struct dirent *entry;

	if (!stream && fd >= 0)
		close(fd);
	for (int i = 0; stream && i < NAMES_MAX && (entry = readdir(stream)); i++) {
		cleanup_free char *path = NULL;

		if (!path_is_name(entry->d_name) || !looks_same(wanted, entry->d_name))
			continue;
		path = path_join(directory, entry->d_name);
		if (!path || !may_name(user, path))
			continue;
		if (found)
			return NULL;
		found = steal_ptr(&path);
	}
	return steal_ptr(&found);
}

char *files_look_alike(const struct files_root *root, const char *path,
	bool (*may_name)(void *user, const char *path), void *user)
{
	cleanup_free char *found = strdup("");

	while (found && *path) {
		size_t length = strcspn(path, "/");
		cleanup_free char *name = strndup(path, length);
		cleanup_free char *same = name ? path_join(found, name) : NULL;
		struct stat status;
		char *next;

		if (!same)
			return NULL;
		next = files_lstat(root, same, &status) == 0
			       ? steal_ptr(&same)
			       : find_look_alike(root, found, name, may_name, user);
		free(found);
		found = next;
		path += length + (path[length] == '/');
	}
	return steal_ptr(&found);
}
