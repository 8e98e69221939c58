/*
 * moved_names MOUNT WORKSPACE [MS]: names that are replaced, swapped and made anew at the workspace
 * all the time, while processes on the mount use them, each in its own way, for so long (2,000).
 *
 * Every name but "gone" leads to something of one kind at any moment, so that nothing may fail as
 * it would not fail on a disk: above all not with ESTALE.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

static char directory[256]; /* on the mount */

static int error_of(int result)
{
	return result < 0 ? errno : 0;
}

/* ---- At the workspace ---------------------------------------------------------------- */

static void make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, "content\n", 8) != 8 || close(fd) < 0)
		perror(path);
}

static void swap(const char *one, const char *other)
{
	if (renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) < 0)
		perror("renameat2");
}

static void prepare(void)
{
	static const char *const directories[] = {"one", "other", "a", "b", "a/in", "b/in"};

	for (size_t i = 0; i < array_size(directories); i++)
		mkdir(directories[i], 0755);
	make_file("one/file");
	make_file("other/file");
	make_file("file");
	make_file("gone");
	if (symlink("file", "link") < 0)
		perror("symlink");
}

static void change_all(void)
{
	make_file("file.new");
	rename("file.new", "file");
	unlink("gone");
	make_file("gone");
	if (symlink("file", "link.new") == 0)
		rename("link.new", "link");
	swap("one", "other");
	swap("a/in", "b/in");
}

static void __attribute__((noreturn)) keep_changing(void)
{
	for (unsigned i = 0;; i++) {
		change_all();
		usleep(i % 8 ? 1000 : 30000);
	}
}

/* ---- On the mount ---------------------------------------------------------------------- */

static int open_and_read(const char *path, int flags)
{
	cleanup_fd int fd = open(path, flags | O_CLOEXEC, 0644);
	char data[64];

	if (fd < 0 || (flags & O_ACCMODE) == O_WRONLY)
		return error_of(fd);
	return error_of((int)read(fd, data, sizeof(data)));
}

static int read_file(void)
{
	return open_and_read("file", O_RDONLY);
}

static int append_to_file(void)
{
	return open_and_read("file", O_WRONLY | O_APPEND);
}

static int create_gone(void)
{
	return open_and_read("gone", O_RDWR | O_CREAT);
}

static int read_gone(void)
{
	return open_and_read("gone", O_RDONLY);
}

static int change_mode_of_gone(void)
{
	return error_of(chmod("gone", 0640));
}

static int remove_gone(void)
{
	return error_of(unlink("gone"));
}

static int own_link(void)
{
	return error_of(lchown("link", getuid(), getgid()));
}

static int read_in_directory(void)
{
	return open_and_read("one/file", O_RDONLY);
}

static int change_mode_of_directory(void)
{
	return error_of(chmod("one", 0755));
}

static int enter_directory(void)
{
	int r = error_of(chdir("one"));

	return chdir(directory) == 0 ? r : errno;
}

static int list(const char *path)
{
	cleanup_dir DIR *stream = opendir(path);

	if (!stream)
		return errno;
	errno = 0;
	while (readdir(stream)) {}
	return errno;
}

static int list_directory(void)
{
	return list("one");
}

static int list_moved(void)
{
	return list("a/in");
}

/* What is in the way is from before the directories changed places. */
static int make_and_remove(const char *path)
{
	int r = error_of(mkdir(path, 0755));

	rmdir(path);
	return r == EEXIST ? 0 : r;
}

static int make_directory(void)
{
	return make_and_remove("one/made");
}

static int make_in_moved(void)
{
	return make_and_remove("a/in/made");
}

static int create_in_directory(void)
{
	int r = open_and_read("one/created", O_RDWR | O_CREAT);

	unlink("one/created");
	return r;
}

static const struct task {
	const char *name;
	int (*work)(void);
	bool may_be_missing;
} tasks[] = {
	{"read a file", read_file},
	{"append to a file", append_to_file},
	{"open or create what comes and goes", create_gone},
	{"read what comes and goes", read_gone, true},
	{"chmod what comes and goes", change_mode_of_gone, true},
	{"unlink what comes and goes", remove_gone, true},
	{"chown a link", own_link},
	{"read in a directory", read_in_directory},
	{"chmod a directory", change_mode_of_directory},
	{"chdir to a directory", enter_directory},
	{"list a directory", list_directory},
	{"list a directory that moves", list_moved},
	{"mkdir in a directory", make_directory},
	{"mkdir in a directory that moves", make_in_moved},
	{"create in a directory", create_in_directory},
};

/* The number of failures, 255 at most. */
static int repeat(const struct task *task, int64_t until_ms)
{
	unsigned count = 0, failures = 0;
	int error = 0;

	do {
		int r = task->work();

		count++;
		if (r && !(r == ENOENT && task->may_be_missing)) {
			failures++;
			error = r;
		}
	} while (clock_now_ms() < until_ms);
	if (failures)
		fprintf(stderr, "%s: %u of %u failed, the last: %s\n", task->name, failures, count,
			strerror(error));
	return failures < 255 ? (int)failures : 255;
}

static pid_t start_changing(const char *workspace)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (chdir(workspace) < 0)
		_exit(1);
	keep_changing();
}

static bool shows(const char *path)
{
	struct stat st;

	for (int i = 0; i < 5000; i++) {
		if (lstat(path, &st) == 0)
			return true;
		usleep(1000);
	}
	fprintf(stderr, "\"%s\", which was made at the workspace, does not show\n", path);
	return false;
}

/* What was made before the directory is watched may show later than what was made then. */
static bool is_shown(void)
{
	static const char *const made[] = {
		"one/file", "other/file", "a/in", "b/in", "file", "gone", "link"};

	for (size_t i = 0; i < array_size(made); i++)
		if (!shows(made[i]))
			return false;
	return true;
}

static bool work_on_mount(int64_t until_ms)
{
	bool failed = false;
	int status;

	for (size_t i = 0; i < array_size(tasks); i++)
		if (fork() == 0)
			_exit(repeat(&tasks[i], until_ms));
	for (size_t i = 0; i < array_size(tasks); i++)
		failed |= wait(&status) < 0 || status != 0;
	return !failed;
}

int main(int argc, char **argv)
{
	long duration_ms = argc > 3 ? strtol(argv[3], NULL, 10) : 2000;
	bool well;
	pid_t pid;

	if (argc < 3 || chdir(argv[2]) < 0)
		return 2;
	prepare();
	if (chdir(argv[1]) < 0 || !getcwd(directory, sizeof(directory)) || !is_shown())
		return 2;
	pid = start_changing(argv[2]);
	if (pid < 0)
		return 2;
	well = work_on_mount(clock_now_ms() + duration_ms);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return well ? 0 : 1;
}
