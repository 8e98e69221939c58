#include "fs/mount/runtime.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "fs/log/proc.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/files.h"
#include "ops/support/json.h"

enum { STATE_MAX_BYTES = 1 << 16, BESIDE_TRIES = 100, ANSWER_WAIT_S = 3 };

void runtime_mount_done(struct runtime_mount *mount)
{
	free(mount->id);
	free(mount->uri);
	free(mount->mount_point);
	free(mount->control_path);
	free(mount->session_path);
	free(mount->log_directory);
	memset(mount, 0, sizeof(*mount));
}

/* ---- Where ------------------------------------------------------------------- */

static bool is_private(const struct stat *attributes)
{
	return S_ISDIR(attributes->st_mode) && attributes->st_uid == geteuid() &&
	       !(attributes->st_mode & 077);
}

static int check_private(const char *path)
{
	struct stat attributes;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(path, &attributes) < 0)
		return -errno;
	if (!S_ISDIR(attributes.st_mode))
		return -ENOTDIR;
	return is_private(&attributes) ? 0 : -EPERM;
}

/* `ret_is_shared`: it is in /tmp, where others may make names. */
static char *usual_path(bool *ret_is_shared)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	char user_directory[48];

	if (!base || *base != '/') {
		snprintf(user_directory, sizeof(user_directory), "/run/user/%u", geteuid());
		base = access(user_directory, W_OK) == 0 ? user_directory : NULL;
	}
	*ret_is_shared = !base;
	return base ? string_printf("%s/isthmus", base)
		    : string_printf("/tmp/isthmus-%u", geteuid());
}

char *runtime_directory_path(void)
{
	bool is_shared;

	return usual_path(&is_shared);
}

/* A directory of this user in /tmp whose name is `usual` and a random suffix, other than `except`
 * (NULL: none).  -ENOENT, -errno. */
static int find_beside(const char *usual, const char *except, char **ret_path)
{
	const char *name = strrchr(usual, '/') + 1;
	cleanup_dir DIR *directory = opendir("/tmp");
	const struct dirent *entry;

	if (!directory)
		return -errno;
	while ((entry = readdir(directory))) {
		cleanup_free char *path = string_printf("/tmp/%s", entry->d_name);
		struct stat attributes;

		if (!path)
			return -ENOMEM;
		if (strncmp(entry->d_name, name, strlen(name)) != 0 ||
			entry->d_name[strlen(name)] != '.' ||
			fstatat(dirfd(directory), entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW) <
				0)
			continue;
		if (!is_private(&attributes) || (except && strcmp(path, except) == 0))
			continue;
		*ret_path = steal_ptr(&path);
		return 0;
	}
	return -ENOENT;
}

/* When another user has taken the usual name: a name that cannot be guessed, which all processes of
 * this user find.  Two that make one at the same time agree on one. */
static int directory_beside(const char *usual, char **ret_path)
{
	int r = find_beside(usual, NULL, ret_path);

	for (int i = 0; i < BESIDE_TRIES && r == -ENOENT; i++) {
		cleanup_free char *made = string_printf("%s.XXXXXX", usual), *other = NULL;

		if (!made)
			return -ENOMEM;
		if (!mkdtemp(made))
			return -errno;
		if (find_beside(usual, made, &other) == -ENOENT) {
			*ret_path = steal_ptr(&made);
			return 0;
		}
		rmdir(made);
		r = find_beside(usual, NULL, ret_path);
	}
	return r;
}

int runtime_directory(char **ret_path)
{
	bool is_shared;
	cleanup_free char *path = usual_path(&is_shared);
	struct stat attributes;
	int r;

	if (!path)
		return -ENOMEM;
	r = check_private(path);
	if (r < 0 && is_shared && lstat(path, &attributes) == 0 && attributes.st_uid != geteuid())
		return directory_beside(path, ret_path);
	if (r < 0)
		return r;
	*ret_path = steal_ptr(&path);
	return 0;
}

char *runtime_id(const char *mount_point)
{
	return string_printf(
		"%016llx", (unsigned long long)XXH3_64bits(mount_point, strlen(mount_point)));
}

int runtime_mount_init(struct runtime_mount *mount, const char *mount_point)
{
	cleanup_with(runtime_mount_done) struct runtime_mount fresh = {0};
	cleanup_free char *directory = NULL;
	int r;

	r = runtime_directory(&directory);
	if (r < 0)
		return r;
	fresh.id = runtime_id(mount_point);
	if (!fresh.id)
		return -ENOMEM;
	fresh.mount_point = strdup(mount_point);
	fresh.control_path = string_printf("%s/%s.sock", directory, fresh.id);
	fresh.session_path = string_printf("%s/%s.session", directory, fresh.id);
	fresh.log_directory = state_path(fresh.id);
	if (!fresh.mount_point || !fresh.control_path || !fresh.session_path ||
		!fresh.log_directory)
		return -ENOMEM;
	*mount = fresh;
	memset(&fresh, 0, sizeof(fresh));
	return 0;
}

/* ---- The daemon --------------------------------------------------------------- */

/* In clock ticks since the machine began; 0: there is no such process. */
static uint64_t start_time(pid_t pid)
{
	unsigned long long ticks = 0;
	char text[512];
	const char *end;

	proc_read(pid, "stat", text, sizeof(text));
	end = strrchr(text, ')'); /* of the name, which may hold anything */
	if (end)
		sscanf(end,
			") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			"%*d %*d %llu",
			&ticks);
	return ticks;
}

/* SIGKILL is pending in its threads, which only need processor time to end. */
static bool is_killed(const char *status)
{
	const char *pending = strstr(status, "\nShdPnd:\t");

	return pending &&
	       ((strtoull(pending + strlen("\nShdPnd:\t"), NULL, 16) >> (SIGKILL - 1)) & 1);
}

/* Its threads are blocked in the kernel, or it is about to exit. */
static bool is_ending(pid_t pid)
{
	char text[2048];
	const char *threads;
	bool is_zombie;

	proc_read(pid, "status", text, sizeof(text));
	threads = strstr(text, "\nThreads:\t");
	if (!threads || (strstr(text, "\nVmSize:") && !is_killed(text)))
		return false;
	is_zombie = strstr(text, "\nState:\tZ");
	return !is_zombie || atoi(threads + strlen("\nThreads:\t")) > 1;
}

/* The start time is read last: /proc would block for a process within execve(2), which may have the
 * same id now. */
bool runtime_is_stuck(const struct runtime_mount *mount)
{
	return is_ending(mount->pid) && start_time(mount->pid) == mount->pid_started;
}

bool runtime_is_stopped(pid_t pid)
{
	char text[2048];

	proc_read(pid, "status", text, sizeof(text));
	return strstr(text, "\nState:\tT") || strstr(text, "\nState:\tt");
}

bool runtime_answers(const struct runtime_mount *mount)
{
	return !runtime_is_stopped(mount->pid) &&
	       control_answers(mount->control_path, ANSWER_WAIT_S);
}

bool runtime_is_alive(const struct runtime_mount *mount)
{
	/* The socket of a stuck one still takes connections. */
	return !runtime_is_stuck(mount) && control_is_served(mount->control_path);
}

/* ---- ID.json ----------------------------------------------------------------- */

static char *state_text(const struct runtime_mount *mount)
{
	cJSON *state = cJSON_CreateObject();
	char *text = NULL;

	if (cJSON_AddStringToObject(state, "id", mount->id) &&
		cJSON_AddStringToObject(state, "uri", mount->uri) &&
		cJSON_AddStringToObject(state, "mount_point", mount->mount_point) &&
		cJSON_AddStringToObject(state, "control", mount->control_path) &&
		cJSON_AddNumberToObject(state, "pid", mount->pid) &&
		cJSON_AddNumberToObject(state, "pid_started", (double)start_time(mount->pid)) &&
		cJSON_AddNumberToObject(state, "connection", mount->connection) &&
		(!mount->log_directory ||
			cJSON_AddStringToObject(state, "log", mount->log_directory)))
		text = cJSON_PrintUnformatted(state);
	cJSON_Delete(state);
	return text;
}

/* The directory of the runtime files, or -errno. */
static int open_directory(void)
{
	cleanup_free char *path = NULL;
	int r = runtime_directory(&path), fd;

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int write_file(int directory, const char *name, const char *text)
{
	cleanup_fd int fd = openat(
		directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

int runtime_save(const struct runtime_mount *mount)
{
	cleanup_free char *text = state_text(mount);
	cleanup_fd int fd = open_directory();
	char name[64], fresh[64];
	int r;

	if (!text)
		return -ENOMEM;
	if (fd < 0)
		return fd;
	snprintf(name, sizeof(name), "%s.json", mount->id);
	snprintf(fresh, sizeof(fresh), "%s.json.new", mount->id);
	r = write_file(fd, fresh, text);
	if (r == 0 && renameat(fd, fresh, fd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(fd, fresh, 0);
	return r;
}

static void remove_file(const char *id, const char *suffix)
{
	cleanup_fd int fd = open_directory();
	char name[64];

	snprintf(name, sizeof(name), "%s.%s", id, suffix);
	if (fd >= 0)
		unlinkat(fd, name, 0);
}

void runtime_remove(const char *id)
{
	remove_file(id, "sock");
	remove_file(id, "json");
}

void runtime_remove_own(const char *id, pid_t pid)
{
	cleanup_with(runtime_mount_done) struct runtime_mount saved = {0};

	if (runtime_load(id, &saved) && saved.pid == pid)
		remove_file(id, "json");
}

/* ---- What was saved ---------------------------------------------------------- */

static char *copy_member(const cJSON *state, const char *name)
{
	const char *value = json_text(state, name);

	return value ? strdup(value) : NULL;
}

static bool load(int directory, const char *name, struct runtime_mount *ret_mount)
{
	cleanup_with(runtime_mount_done) struct runtime_mount mount = {0};
	cleanup_fd int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	cleanup_free char *text = malloc(STATE_MAX_BYTES);
	ssize_t size;
	cJSON *state;

	if (fd < 0 || !text)
		return false;
	size = read(fd, text, STATE_MAX_BYTES);
	if (size < 0)
		return false;
	state = cJSON_ParseWithLength(text, (size_t)size);
	mount.id = copy_member(state, "id");
	mount.uri = copy_member(state, "uri");
	mount.mount_point = copy_member(state, "mount_point");
	mount.control_path = copy_member(state, "control");
	mount.log_directory = copy_member(state, "log");
	mount.pid = (pid_t)json_integer(state, "pid");
	mount.pid_started = (uint64_t)json_integer(state, "pid_started");
	mount.connection = (unsigned)json_integer(state, "connection");
	cJSON_Delete(state);
	if (!mount.id || !mount.uri || !mount.mount_point || !mount.control_path)
		return false;
	*ret_mount = mount;
	memset(&mount, 0, sizeof(mount));
	return true;
}

bool runtime_load(const char *id, struct runtime_mount *ret_mount)
{
	cleanup_fd int fd = open_directory();
	char name[64];

	snprintf(name, sizeof(name), "%s.json", id);
	return fd >= 0 && load(fd, name, ret_mount);
}

static int by_mount_point(const void *a, const void *b)
{
	const struct runtime_mount *first = a, *second = b;

	return strcmp(first->mount_point, second->mount_point);
}

int runtime_list(struct runtime_mount **ret_mounts, size_t *ret_count)
{
	cleanup_fd int fd = open_directory();
	cleanup_dir DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	struct runtime_mount *mounts = NULL;
	const struct dirent *entry;
	size_t count = 0;

	if (!directory)
		return fd < 0 ? fd : -errno;
	steal_fd(&fd);
	while ((entry = readdir(directory))) {
		size_t length = strlen(entry->d_name);
		struct runtime_mount *more;

		if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
			continue;
		more = reallocarray(mounts, count + 1, sizeof(*mounts));
		if (!more) {
			runtime_list_free(mounts, count);
			return -ENOMEM;
		}
		mounts = more;
		if (load(dirfd(directory), entry->d_name, &mounts[count]))
			count++;
	}
	if (count)
		qsort(mounts, count, sizeof(*mounts), by_mount_point);
	*ret_mounts = mounts;
	*ret_count = count;
	return 0;
}

void runtime_list_free(struct runtime_mount *mounts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		runtime_mount_done(&mounts[i]);
	free(mounts);
}
