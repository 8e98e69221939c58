/*
 * held_directory MOUNT WORKSPACE: a directory is moved away, replaced or removed at the workspace
 * while a process works in it, or has it open.
 *
 * What is in its place now must never be changed by that process, whoever comes by the path must
 * not notice anything, and where the directory was moved to, it is what he has.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

enum way { MOVED, REPLACED, REMADE };

static const char *const ways[] = {"moved", "replaced", "removed and made anew"};

static struct round {
	enum way way;
	bool works_in_it; /* else it is open */
	bool knows_names; /* looked at before */
	bool is_told;     /* the change shows already */
} now;

static const char *mount_point, *workspace;
static unsigned failures;

static void __attribute__((format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s, %s%s%s: ", ways[now.way], now.works_in_it ? "worked in" : "open",
		now.knows_names ? ", known" : "", now.is_told ? ", told" : "");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	failures++;
}

static int error_of(int result)
{
	return result < 0 ? errno : 0;
}

/* ---- At the workspace ---------------------------------------------------------------- */

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(2);
}

/* A path there, good until the third call from now. */
static const char *at(const char *name)
{
	static char paths[3][512];
	static unsigned turn;
	char *path = paths[turn++ % 3];

	snprintf(path, sizeof(paths[0]), "%s/%s", workspace, name);
	return path;
}

static void clear(const char *name)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -rf '%s'", at(name));
	must(system(command) == 0 ? 0 : -1, command);
}

static void put(const char *directory, const char *name, const char *text)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s", workspace, directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	must(fd, path);
	must((int)write(fd, text, strlen(text)), path);
	close(fd);
}

static void plant(const char *directory, const char *text)
{
	static const char *const names[] = {"file", "doomed", "from", "linked"};
	char path[512];

	must(mkdir(at(directory), 0755), directory);
	for (size_t i = 0; i < array_size(names); i++)
		put(directory, names[i], text);
	snprintf(path, sizeof(path), "%s/%s/sub", workspace, directory);
	must(mkdir(path, 0755), path);
	snprintf(path, sizeof(path), "%s/%s/empty", workspace, directory);
	must(mkdir(path, 0755), path);
}

static void change(void)
{
	plant("new", "new"); /* with another inode number than the one that is removed */
	if (now.way == REPLACED) {
		must(renameat2(AT_FDCWD, at("new"), AT_FDCWD, at("held"), RENAME_EXCHANGE),
			"renameat2");
		must(rename(at("new"), at("held.old")), "held.old");
	} else if (now.way == REMADE) {
		clear("held");
		must(rename(at("new"), at("held")), "held");
	} else {
		must(rename(at("held"), at("held.old")), "held.old");
	}
}

/* All that whoever changes anything there changes. */
static void describe(const char *directory, char *description, size_t size)
{
	struct dirent **names;
	int count = scandir(at(directory), &names, NULL, alphasort);
	size_t used = 0;

	must(count, directory);
	for (int i = 0; i < count; i++) {
		char path[512];
		struct stat st = {0};

		snprintf(path, sizeof(path), "%s/%s/%s", workspace, directory, names[i]->d_name);
		if (strcmp(names[i]->d_name, "..") != 0)
			must(lstat(path, &st), path);
		used += (size_t)snprintf(description + used, size - used,
			"%s %ju %o %ju %jd %jd.%ld\n", names[i]->d_name, (uintmax_t)st.st_ino,
			st.st_mode, (uintmax_t)st.st_nlink, (intmax_t)st.st_size,
			(intmax_t)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
		free(names[i]);
	}
	free(names);
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* ---- On the mount ---------------------------------------------------------------------- */

static char text[64];

static const char *get(int directory, const char *name)
{
	cleanup_fd int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	text[got < 0 ? 0 : got] = '\0';
	return got < 0 ? strerrorname_np(errno) : text;
}

static bool comes_true(bool (*is_true)(int directory), int directory)
{
	for (int i = 0; i < 5000; i++) {
		if (is_true(directory))
			return true;
		usleep(1000);
	}
	return false;
}

static const char *held_path(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/held/%s", mount_point, name);
	return path;
}

static bool shows_old(int directory)
{
	(void)directory;
	return strcmp(get(AT_FDCWD, held_path("file")), "old") == 0 && exists(held_path("empty"));
}

static bool shows_change(int directory)
{
	const char *want = now.way == MOVED ? "ENOENT" : "new";

	(void)directory;
	return strcmp(get(AT_FDCWD, held_path("file")), want) == 0;
}

/* Counts them, too. */
static unsigned list(int directory, const char *path)
{
	int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	unsigned count = 0;

	while (stream && readdir(stream))
		count++;
	return count;
}

/* As a directory that was removed. */
static bool is_empty(int directory)
{
	return list(directory, ".") <= 2 && strcmp(get(directory, "file"), "ENOENT") == 0 &&
	       faccessat(directory, "sub", F_OK, 0) < 0 && errno == ENOENT;
}

static bool is_old(int directory)
{
	return strcmp(get(directory, "file"), "old") == 0 && list(directory, ".") == 8;
}

static int make_file(int directory)
{
	cleanup_fd int fd = openat(directory, "made", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	return fd;
}

static int make_file_below(int directory)
{
	cleanup_fd int fd = openat(directory, "sub/made", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	return fd;
}

static int rewrite(int directory)
{
	cleanup_fd int fd = openat(directory, "linked", O_WRONLY | O_TRUNC | O_CLOEXEC);

	return fd < 0 ? fd : (int)write(fd, "rewritten", 9);
}

static int make_directory(int directory)
{
	return mkdirat(directory, "directory", 0755);
}

static int make_link(int directory)
{
	return symlinkat("target", directory, "symlink");
}

static int make_fifo(int directory)
{
	return mknodat(directory, "fifo", S_IFIFO | 0600, 0);
}

static int link_file(int directory)
{
	return linkat(directory, "linked", directory, "link", 0);
}

static int rename_file(int directory)
{
	return renameat(directory, "from", directory, "to");
}

static int remove_file(int directory)
{
	return unlinkat(directory, "doomed", 0);
}

static int remove_directory(int directory)
{
	return unlinkat(directory, "empty", AT_REMOVEDIR);
}

static int change_mode(int directory)
{
	return fchmodat(directory, "file", 0600, 0);
}

static int change_own_mode(int directory)
{
	return fchmodat(directory, ".", 0700, 0);
}

static const struct task {
	const char *name;
	int (*work)(int directory);
	const char *made, *gone; /* or NULL */
} tasks[] = {
	{"create", make_file, "made"},
	{"create below", make_file_below, "sub/made"},
	{"rewrite", rewrite},
	{"mkdir", make_directory, "directory"},
	{"symlink", make_link, "symlink"},
	{"mknod", make_fifo, "fifo"},
	{"link", link_file, "link"},
	{"rename", rename_file, "to", "from"},
	{"unlink", remove_file, NULL, "doomed"},
	{"rmdir", remove_directory, NULL, "empty"},
	{"chmod", change_mode},
	{"chmod of itself", change_own_mode},
};

static void check_old(const struct task *task)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/held.old/%s", workspace, task->made ? task->made : "");
	if (!exists(path))
		fail("%s made nothing", task->name);
	snprintf(path, sizeof(path), "%s/held.old/%s", workspace, task->gone ? task->gone : "none");
	if (exists(path))
		fail("%s removed nothing", task->name);
}

/* Where the directory was moved to is known once the feed has told. */
static void check_result(const struct task *task, int error)
{
	bool leads_there = now.is_told && now.way != REMADE;

	if (error == 0 && now.way != REMADE)
		check_old(task);
	else if (error == 0 && (task->made || task->gone))
		fail("%s succeeded", task->name);
	else if (error == 0) /* the removed file itself, by a handle that was left */
		return;
	else if (leads_there || (error != ENOENT && error != ESTALE))
		fail("%s: %s", task->name, strerror(error));
}

static void work_in_old(int directory)
{
	static char before[2][4096], after[2][4096];
	bool is_there = now.way != MOVED;

	for (size_t i = 0; i < array_size(tasks); i++) {
		for (int k = 0; is_there && k < 2; k++)
			describe(k ? "held/sub" : "held", before[k], sizeof(before[k]));
		check_result(&tasks[i], error_of(tasks[i].work(directory)));
		for (int k = 0; is_there && k < 2; k++) {
			describe(k ? "held/sub" : "held", after[k], sizeof(after[k]));
			if (strcmp(before[k], after[k]) != 0)
				fail("%s changed what is in its place:\n%s---\n%s", tasks[i].name,
					before[k], after[k]);
		}
	}
	if (!is_there && exists(at("held")))
		fail("it was made anew");
}

static int make_by_path(const char *name)
{
	cleanup_fd int fd = open(held_path(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	return fd;
}

static void work_by_path(void)
{
	char to[512];

	if (now.way == MOVED)
		return;
	if (mkdir(held_path("by path"), 0755) < 0 || rmdir(held_path("by path")) < 0)
		fail("mkdir by path: %s", strerror(errno));
	if (make_by_path("file by path") < 0)
		fail("create by path: %s", strerror(errno));
	snprintf(to, sizeof(to), "%s", held_path("renamed by path"));
	if (rename(held_path("file by path"), to) < 0 || unlink(to) < 0)
		fail("rename by path: %s", strerror(errno));
	if (chmod(held_path("sub"), 0750) < 0)
		fail("chmod by path: %s", strerror(errno));
	if (!exists(at("held/sub")) || !list(AT_FDCWD, held_path("sub")))
		fail("nothing there");
}

static void play(void)
{
	cleanup_fd int fd = -1;
	int directory;

	clear("held");
	clear("held.old");
	clear("new");
	plant("held", "old");
	if (!comes_true(shows_old, 0)) {
		fail("does not show");
		return;
	}
	list(AT_FDCWD, mount_point); /* from then on it is watched */
	fd = open(held_path(""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(fd, "held");
	if (now.knows_names && !is_old(fd))
		fail("is not what it was");
	change();
	if (now.is_told && !comes_true(shows_change, 0))
		fail("the change does not show");
	directory = fd;
	if (now.works_in_it) {
		must(fchdir(fd), "held");
		directory = AT_FDCWD;
	}
	if (now.is_told && now.way != REMADE && !comes_true(is_old, directory))
		fail("does not hold what it did: %u names, \"%s\"", list(directory, "."),
			get(directory, "file"));
	work_in_old(directory);
	if (now.way == REPLACED) /* there has been one all the time */
		work_by_path();
	if (!comes_true(shows_change, 0))
		fail("the change does not show afterwards");
	work_by_path();
	if (now.way == REMADE && !comes_true(is_empty, directory))
		fail("it is not empty: %u names, \"%s\"", list(directory, "."),
			get(directory, "file"));
	must(chdir("/"), "/");
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	mount_point = argv[1];
	workspace = argv[2];
	for (int i = 0; i < 12; i++) {
		now = (struct round){.way = (enum way)(i % 3),
			.works_in_it = i / 3 & 1,
			.is_told = i / 6 & 1,
			.knows_names = (i / 3 ^ i / 6) & 1};
		play();
	}
	return failures ? 1 : 0;
}
