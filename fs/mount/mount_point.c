#include "fs/mount/mount_point.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/mount/runtime.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/log.h"
#include "ops/support/mountinfo.h"
#include "ops/support/path.h"

extern char **environ;

/* ---- What is mounted --------------------------------------------------------------------- */

struct mounted {
	const char *path;
	char *type;
	unsigned connection;
};

static bool note_mounted(void *user, const struct mountinfo_line *line)
{
	struct mounted *mounted = user;

	if (strcmp(line->mount_point, mounted->path) == 0) {
		free(mounted->type);
		mounted->type = strdup(line->type);
		mounted->connection = line->minor;
	}
	return true;
}

/* What is mounted at exactly `path` (the last one wins); the caller frees its type, which is NULL
 * for nothing. */
static struct mounted find_mounted(const char *path)
{
	struct mounted mounted = {.path = path};

	mountinfo_walk(note_mounted, &mounted);
	return mounted;
}

unsigned mount_point_connection(const char *path)
{
	struct mounted mounted = find_mounted(path);

	free(mounted.type);
	return mounted.connection;
}

struct around {
	const char *path;
	bool below;
	char *found;
};

static bool note_around(void *user, const struct mountinfo_line *line)
{
	struct around *around = user;
	bool fits = around->below ? path_is_within(line->mount_point, around->path)
				  : path_is_within(around->path, line->mount_point) &&
					    strcmp(line->type, "fuse.isthmus") == 0;

	if (fits && strcmp(line->mount_point, around->path) != 0) {
		free(around->found);
		around->found = strdup(line->mount_point);
	}
	return true;
}

char *mount_point_around(const char *path, bool below)
{
	struct around around = {.path = path, .below = below};

	mountinfo_walk(note_around, &around);
	return around.found;
}

/* ---- The state --------------------------------------------------------------------------- */

int mount_point_resolve(const char *path, char **ret_path)
{
	cleanup_free char *copy = strdup(path), *parent = NULL;
	char *end = copy ? copy + strlen(copy) : NULL;
	const char *name;

	if (!copy)
		return -ENOMEM;
	if (!*path)
		return -ENOENT;
	while (end > copy + 1 && end[-1] == '/')
		*--end = '\0';
	name = path_name(copy);
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		*ret_path = realpath(copy, NULL);
		return *ret_path ? 0 : -errno;
	}
	if (name == copy)
		parent = realpath(".", NULL);
	else if (name == copy + 1)
		parent = strdup("/");
	else {
		copy[name - copy - 1] = '\0';
		parent = realpath(copy, NULL);
	}
	if (!parent)
		return -errno;
	*ret_path = string_printf("%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name);
	return *ret_path ? 0 : -ENOMEM;
}

static enum mount_point_state look_inside(const char *path)
{
	cleanup_dir DIR *directory = opendir(path);
	const struct dirent *entry;

	if (!directory && errno == ENOENT)
		return MOUNT_POINT_MISSING;
	if (!directory && errno == ENOTDIR)
		return MOUNT_POINT_NOT_DIRECTORY;
	if (!directory)
		return errno == ENOTCONN ? MOUNT_POINT_DEAD : MOUNT_POINT_REFUSED;
	while ((entry = readdir(directory)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			return MOUNT_POINT_NOT_EMPTY;
	return MOUNT_POINT_FREE;
}

static pid_t find_daemon(const char *path, bool (*fits)(const struct runtime_mount *mount))
{
	struct runtime_mount *mounts;
	size_t count;
	pid_t pid = 0;

	if (runtime_list(&mounts, &count) < 0)
		return 0;
	for (size_t i = 0; i < count; i++)
		if (strcmp(mounts[i].mount_point, path) == 0 && fits(&mounts[i]))
			pid = mounts[i].pid;
	runtime_list_free(mounts, count);
	return pid;
}

pid_t mount_point_daemon(const char *path)
{
	return find_daemon(path, runtime_is_alive);
}

static bool is_silent(const struct runtime_mount *mount)
{
	return runtime_is_alive(mount) && !runtime_answers(mount);
}

bool mount_point_is_silent(const char *path)
{
	return find_daemon(path, is_silent);
}

/* What is mounted there now is that daemon's. */
static bool hangs(const struct runtime_mount *mount)
{
	return runtime_is_stuck(mount) &&
	       mount->connection == mount_point_connection(mount->mount_point);
}

/* Nothing answers any more. */
static bool is_dead(const char *path)
{
	struct statvfs unused; /* the one question that no cache answers */

	return find_daemon(path, hangs) ||
	       (!mount_point_daemon(path) && statvfs(path, &unused) < 0 &&
		       (errno == ENOTCONN || errno == ECONNABORTED));
}

enum mount_point_state mount_point_look(const char *path, char **ret_type)
{
	cleanup_free char *type = find_mounted(path).type;
	bool is_mounted = type, is_fuse = type && strncmp(type, "fuse", 4) == 0;

	if (ret_type)
		*ret_type = steal_ptr(&type);
	if (!is_mounted)
		return look_inside(path);
	return is_fuse && is_dead(path) ? MOUNT_POINT_DEAD : MOUNT_POINT_MOUNTED;
}

/* ---- Other flags ------------------------------------------------------------------------- */

static const struct {
	const char *word;
	unsigned long flag;
	bool set;
} flag_words[] = {
	{"nosuid", MS_NOSUID, true},
	{"suid", MS_NOSUID, false},
	{"nodev", MS_NODEV, true},
	{"dev", MS_NODEV, false},
	{"noexec", MS_NOEXEC, true},
	{"exec", MS_NOEXEC, false},
	{"noatime", MS_NOATIME, true},
	{"atime", MS_NOATIME, false},
	{"sync", MS_SYNCHRONOUS, true},
	{"async", MS_SYNCHRONOUS, false},
};

static unsigned long flags_of_mount(const struct statvfs *found)
{
	static const struct {
		unsigned long shown, flag;
	} flags[] = {{ST_NOSUID, MS_NOSUID}, {ST_NODEV, MS_NODEV}, {ST_NOEXEC, MS_NOEXEC},
		{ST_NOATIME, MS_NOATIME}, {ST_NODIRATIME, MS_NODIRATIME},
		{ST_RELATIME, MS_RELATIME}, {ST_SYNCHRONOUS, MS_SYNCHRONOUS}};
	unsigned long result = 0;

	for (size_t i = 0; i < array_size(flags); i++)
		if (found->f_flag & flags[i].shown)
			result |= flags[i].flag;
	return result;
}

static unsigned long change_flags(unsigned long flags, const char *word)
{
	for (size_t i = 0; i < array_size(flag_words); i++)
		if (strcmp(word, flag_words[i].word) == 0)
			flags = flag_words[i].set ? flags | flag_words[i].flag
						  : flags & ~flag_words[i].flag;
	return flags;
}

int mount_point_remount(const char *path, bool read_only, const char *const *words)
{
	cleanup_free char *type = find_mounted(path).type;
	struct statvfs found;
	unsigned long flags;

	if (!type || strcmp(type, "fuse.isthmus") != 0)
		return -EINVAL;
	if (statvfs(path, &found) < 0)
		return -errno;
	flags = flags_of_mount(&found) | (read_only ? MS_RDONLY : 0);
	for (; words && *words; words++)
		flags = change_flags(flags, *words);
	return mount(NULL, path, NULL, MS_REMOUNT | flags, NULL) < 0 ? -errno : 0;
}

/* ---- Unmounting ------------------------------------------------------------------------------ */

/* Runs fusermount3 quietly: its message is not needed, only that it failed. */
static int run_fusermount(const char *path, bool lazy)
{
	char *arguments[] = {(char *)"fusermount3", (char *)"-u", (char *)"-q",
		lazy ? (char *)"-z" : (char *)"--", lazy ? (char *)"--" : (char *)path,
		lazy ? (char *)path : NULL, NULL};
	posix_spawn_file_actions_t actions;
	int error, status;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	error = posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (error)
		return -error;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int mount_point_unmount(const char *path, bool lazy)
{
	cleanup_free char *type = find_mounted(path).type;

	if (!type)
		return -EINVAL;
	if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	return errno == EPERM ? run_fusermount(path, lazy) : -errno;
}

void mount_point_abort(unsigned connection)
{
	cleanup_fd int fd = -1;
	char file[64];

	snprintf(file, sizeof(file), "/sys/fs/fuse/connections/%u/abort", connection);
	fd = open(file, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1", 1) < 0)
		log_info("cannot abort FUSE connection %u: %s", connection, strerror(errno));
}

int mount_point_recover(const char *path)
{
	if (umount2(path, UMOUNT_NOFOLLOW | MNT_FORCE | MNT_DETACH) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	mount_point_abort(mount_point_connection(path));
	return run_fusermount(path, true);
}

void mount_point_detach(const char *path)
{
	cleanup_free char *holders = mount_point_holders(path);

	log_warning("\"%s\" is in use by %s: detaching it anyway", path,
		holders ? holders : "a process that cannot be seen");
	mount_point_unmount(path, true);
}
