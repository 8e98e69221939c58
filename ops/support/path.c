#include "ops/support/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

static bool is_dots(const char *name, size_t length)
{
	return (length == 1 && name[0] == '.') || (length == 2 && name[0] == '.' && name[1] == '.');
}

bool path_is_name(const char *name)
{
	size_t length = strlen(name);

	return length > 0 && length <= PATH_NAME_MAX_BYTES && !memchr(name, '/', length) &&
	       !is_dots(name, length);
}

bool path_is_normal(const char *path)
{
	if (!*path)
		return true;
	for (;;) {
		size_t length = strcspn(path, "/");

		if (length == 0 || length > PATH_NAME_MAX_BYTES || is_dots(path, length))
			return false;
		path += length;
		if (!*path)
			return true;
		path++;
	}
}

int path_normalise(const char *path, char **ret_path)
{
	cleanup_free char *normal = malloc(strlen(path) + 1);
	size_t used = 0;

	if (!normal)
		return -ENOMEM;
	while (*path) {
		size_t length = strcspn(path, "/");

		if (length == 2 && is_dots(path, length)) {
			if (used == 0)
				return -EINVAL;
			normal[used] = '\0';
			used = path_parent_length(normal);
		} else if (length > 0 && !is_dots(path, length)) {
			if (length > PATH_NAME_MAX_BYTES)
				return -ENAMETOOLONG;
			if (used)
				normal[used++] = '/';
			memcpy(normal + used, path, length);
			used += length;
		}
		path += length;
		path += *path == '/';
	}
	normal[used] = '\0';
	*ret_path = steal_ptr(&normal);
	return 0;
}

char *path_join(const char *directory, const char *name)
{
	size_t directory_length = strlen(directory), name_length = strlen(name);
	char *joined = malloc(directory_length + name_length + 2);
	char *end = joined;

	if (!joined)
		return NULL;
	memcpy(end, directory, directory_length);
	end += directory_length;
	if (directory_length && name_length)
		*end++ = '/';
	memcpy(end, name, name_length + 1);
	return joined;
}

const char *path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

size_t path_parent_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

bool path_is_within(const char *path, const char *ancestor)
{
	size_t length = strlen(ancestor);

	return length == 0 || (strncmp(path, ancestor, length) == 0 &&
				      (path[length] == '/' || path[length] == '\0'));
}

char *path_find_program(const char *name)
{
	const char *path = getenv("PATH");
	cleanup_free char *copy = strdup(path ? path : "/usr/bin:/bin");
	char *rest = copy, *directory;

	while (copy && (directory = strsep(&rest, ":"))) {
		cleanup_free char *found =
			string_printf("%s/%s", *directory ? directory : ".", name);

		if (found && access(found, X_OK) == 0)
			return steal_ptr(&found);
	}
	return NULL;
}
