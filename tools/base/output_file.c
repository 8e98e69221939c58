#include "tools/base/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "tools/base/tool.h"

enum { KEEP_COUNT = 100, KEEP_SECONDS = 86400, NAMES_MAX = 4096 };

static const off_t keep_bytes = 2LL << 30;

static char *directory_path(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int r;

	if (cache && *cache == '/')
		r = asprintf(&path, "%s/isthmus/outputs", cache);
	else if (home && *home == '/')
		r = asprintf(&path, "%s/.cache/isthmus/outputs", home);
	else
		r = asprintf(&path, "/tmp/isthmus-%u/outputs", (unsigned)geteuid());
	return r < 0 ? NULL : path;
}

/* Opens the directory, if this user owns it and others have no access: it may be below /tmp. */
static int open_private(const char *path)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct stat status;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (status.st_uid != geteuid() || (status.st_mode & 0022))
		return -EPERM;
	return steal_fd(&fd);
}

/* Opens the directory; creates the missing ones with access for this user only. */
static int open_directory(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		*slash = '\0';
		r = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
		*slash = '/';
		/* An ancestor that cannot be created (read-only, no permission) may exist. */
		if (r < 0 && r != -EROFS && r != -EACCES)
			return r;
	}
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	return open_private(path);
}

struct kept {
	struct timespec time;
	off_t size;
	char name[256];
};

static int newest_first(const void *a, const void *b)
{
	const struct kept *left = a, *right = b;

	if (left->time.tv_sec != right->time.tv_sec)
		return left->time.tv_sec < right->time.tv_sec ? 1 : -1;
	return left->time.tv_nsec < right->time.tv_nsec   ? 1
	       : left->time.tv_nsec > right->time.tv_nsec ? -1
							  : 0;
}

static void remove_old(int directory)
{
	cleanup_free struct kept *files = calloc(NAMES_MAX, sizeof(*files));
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	time_t now = time(NULL);
	struct dirent *entry;
	struct stat status;
	size_t count = 0;
	off_t bytes = 0;

	while (files && stream && count < NAMES_MAX && (entry = readdir(stream))) {
		if (!path_is_name(entry->d_name) ||
			fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		files[count].time = status.st_mtim;
		files[count].size = status.st_size;
		strcpy(files[count++].name, entry->d_name);
	}
	if (!files)
		return;
	qsort(files, count, sizeof(*files), newest_first);
	for (size_t i = 0; i < count; i++) {
		bytes += files[i].size;
		if (i >= KEEP_COUNT || bytes > keep_bytes ||
			now - files[i].time.tv_sec > KEEP_SECONDS)
			unlinkat(directory, files[i].name, 0);
	}
}

int output_file_make(const char *name, char **ret_path)
{
	cleanup_free char *directory = directory_path(), *path = NULL, *file = NULL;
	cleanup_fd int directory_fd = -1;
	int fd;

	if (!directory || asprintf(&file, "%s.txt", name) < 0)
		return -ENOMEM;
	for (char *at = file; *at; at++)
		if (*at == '/')
			*at = '_';
	directory_fd = open_directory(directory);
	if (directory_fd < 0)
		return directory_fd;
	remove_old(directory_fd);
	path = path_join(directory, file);
	if (!path)
		return -ENOMEM;
	fd = openat(directory_fd, file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	*ret_path = steal_ptr(&path);
	return fd;
}

/* The name of the file; NULL: the path is neither in this directory nor in a directory for outputs
 * on another machine. */
static const char *name_of(const char *path, const char *directory)
{
	static const char end[] = "/isthmus/outputs";
	size_t length = path_parent_length(path), size = sizeof(end) - 1;
	bool ours = strlen(directory) == length && strncmp(path, directory, length) == 0;

	if (!ours &&
		(*path != '/' || length < size || strncmp(path + length - size, end, size) != 0))
		return NULL;
	return path_is_name(path + length + 1) ? path + length + 1 : NULL;
}

int output_file_open(const char *path)
{
	cleanup_free char *directory = directory_path();
	const char *name = directory ? name_of(path, directory) : NULL;
	cleanup_fd int directory_fd = -1;
	int fd;

	if (!name)
		return -ENOENT;
	directory_fd = open_private(directory);
	if (directory_fd < 0)
		return directory_fd;
	fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int output_file_or_path_open(
	struct tool_call *call, const char *what, char **ret_path, struct stat *ret_status)
{
	const char *given = tool_string(call, "path");
	cleanup_fd int fd = given ? output_file_open(given) : -ENOENT;

	if (fd >= 0)
		*ret_path = strdup(given);
	else if (tool_path(call, "path", ret_path) < 0)
		return -1;
	else
		fd = files_open(
			&call->session->root, *ret_path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0 || !*ret_path || fstat(fd, ret_status) < 0)
		return tool_fail_errno(call, fd < 0 ? fd : -errno, what, *ret_path);
	return steal_fd(&fd);
}
