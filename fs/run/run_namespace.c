#include "fs/run/run_namespace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/files.h"
#include "ops/support/path.h"

/* ---- The namespace ------------------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

/* In the user namespace everybody is as before, and we may mount. */
static int map_user(uid_t uid, gid_t gid)
{
	char map[64];
	int r = write_file("/proc/self/setgroups", "deny");

	if (r < 0 && r != -ENOENT)
		return r;
	snprintf(map, sizeof(map), "%u %u 1\n", uid, uid);
	r = write_file("/proc/self/uid_map", map);
	if (r < 0)
		return r;
	snprintf(map, sizeof(map), "%u %u 1\n", gid, gid);
	return write_file("/proc/self/gid_map", map);
}

int run_namespace_enter(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r = 0;

	if (unshare(CLONE_NEWNS) < 0) {
		if (errno != EPERM)
			return -errno;
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			return -errno;
		r = map_user(uid, gid);
	}
	if (r < 0)
		return r;
	/* What is unmounted outside goes here too, or it would be kept in use. */
	return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ? -errno : 0;
}

/* ---- A place for the workspace --------------------------------------------------------- */

static int bind_over(const char *from, const char *over)
{
	return mount(from, over, NULL, MS_BIND | MS_REC, NULL) < 0 ? -errno : 0;
}

static int mirror_link(int directory, const char *name, const char *to)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(directory, name, target, sizeof(target) - 1);

	if (length < 0)
		return -errno;
	target[length] = '\0';
	return symlink(target, to) < 0 ? -errno : 0;
}

/* Shows an entry of a directory in its copy. */
static int mirror_entry(int directory, const char *from, const char *name, const char *staging)
{
	cleanup_free char *source = path_join(from, name), *to = path_join(staging, name);
	cleanup_fd int file = -1;
	struct stat status;

	if (!source || !to)
		return -ENOMEM;
	if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISLNK(status.st_mode))
		return mirror_link(directory, name, to);
	if (S_ISDIR(status.st_mode)) {
		if (mkdir(to, 0700) < 0)
			return -errno;
	} else {
		file = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (file < 0)
			return -errno;
	}
	return bind_over(source, to);
}

static int mirror(const char *from, const char *staging)
{
	cleanup_dir DIR *directory = opendir(from);
	const struct dirent *entry;
	int r = 0;

	if (!directory)
		return -errno;
	if (mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0)
		return -errno;
	while (r == 0 && (entry = readdir(directory)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = mirror_entry(dirfd(directory), from, entry->d_name, staging);
	return r;
}

static int make_below(const char *staging, const char *rest)
{
	cleanup_free char *path = path_join(staging, rest);
	int fd = path ? make_directories(path) : -ENOMEM;

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int move_over(const char *staging, const char *over)
{
	if (strcmp(over, "/") != 0)
		return mount(staging, over, NULL, MS_MOVE, NULL) < 0 ? -errno : 0;
	if (chdir(staging) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
		chdir("/") < 0)
		return -errno;
	return 0;
}

/* The nearest directory above that is there; `*ret_rest` is what is missing below it. */
static char *existing_above(const char *path, const char **ret_rest)
{
	cleanup_free char *above = strdup(path);

	while (above && *above && access(above, F_OK) < 0)
		*strrchr(above, '/') = '\0';
	if (!above)
		return NULL;
	*ret_rest = path + strlen(above) + 1;
	return *above ? steal_ptr(&above) : strdup("/");
}

/* Nobody of this user can make anything in the directory, so nothing is lost in the copy. */
static int make_by_copy(const char *path, const char *staging)
{
	const char *rest;
	cleanup_free char *above = existing_above(path, &rest);
	int r = above ? mirror(above, staging) : -ENOMEM;

	if (r == 0)
		r = make_below(staging, rest);
	return r < 0 ? r : move_over(staging, above);
}

int run_namespace_show(const char *from, const char *at, const char *staging)
{
	struct stat status;
	int r = 0;

	/* Opened before the copy of a directory hides where it is. */
	cleanup_fd int source = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char link[64];

	if (source < 0)
		return -errno;
	if (stat(at, &status) < 0)
		r = make_by_copy(at, staging);
	else if (!S_ISDIR(status.st_mode))
		r = -ENOTDIR;
	if (r < 0)
		return r;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", source);
	return bind_over(link, at);
}

/* ---- A file in the place of another ------------------------------------------------------ */

int run_namespace_replace(const char *from, const char *over, const char *former)
{
	cleanup_free char *target = realpath(over, NULL);
	cleanup_fd int file = open(former, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	int r;

	if (!target || file < 0)
		return -errno;
	r = bind_over(target, former);
	return r < 0 ? r : bind_over(from, target);
}
