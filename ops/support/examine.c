#include "ops/support/examine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"

/* What people and agents look for. */
static const char *const programs[] = {"sh", "bash", "git", "rg", "python3", "node"};

/* What follows the prefix in the first line of the file that has it. */
static void print_line_of(const char *name, const char *path, const char *prefix)
{
	cleanup_file FILE *file = fopen(path, "re");
	size_t length = strlen(prefix);
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, prefix, length) == 0) {
			printf("%s %s", name, line + length + strspn(line + length, " \t"));
			return;
		}
}

static void print_variable(const char *name, const char *variable)
{
	const char *value = getenv(variable);

	if (value && !strchr(value, '\n'))
		printf("%s %s\n", name, value);
}

static void print_path(const char *name, const char *path)
{
	if (path && !strchr(path, '\n'))
		printf("%s %s\n", name, path);
}

static void print_system(void)
{
	struct rlimit files;
	struct utsname system;

	if (uname(&system) == 0)
		printf("system %s %s %s\n", system.sysname, system.release, system.machine);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		printf("open_files %llu\n", (unsigned long long)files.rlim_max);
	print_line_of("max_user_watches", "/proc/sys/fs/inotify/max_user_watches", "");
	print_line_of("max_user_instances", "/proc/sys/fs/inotify/max_user_instances", "");
}

static void print_who(void)
{
	printf("uid %ld\n", (long)geteuid());
	print_variable("home", "HOME");
	print_variable("path", "PATH");
	print_line_of("uid_map", "/proc/self/uid_map", "");
	print_line_of("seccomp", "/proc/self/status", "Seccomp:");
}

static void print_helper(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	struct statfs fs;

	if (length > 0) {
		path[length] = '\0';
		print_path("helper", path);
	}
	if (statfs("/proc/self/exe", &fs) == 0)
		printf("helper_type %llx\n", (unsigned long long)fs.f_type & 0xffffffffULL);
}

static void print_directory(void)
{
	cleanup_free char *path = getcwd(NULL, 0);
	struct statfs fs;

	print_path("directory", path);
	printf("writable %d\n", access(".", W_OK | X_OK) == 0 ? 0 : errno);
	if (statfs(".", &fs) < 0)
		return;
	printf("directory_type %llx\n", (unsigned long long)fs.f_type & 0xffffffffULL);
	printf("free %llu\n", (unsigned long long)fs.f_bavail * (unsigned long long)fs.f_bsize);
}

/* In a process of its own, which keeps what it made. */
static int try_user_namespace(void)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
	if (pid < 0)
		return errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static void print_calls(void)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
	cleanup_fd int opened = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));
	cleanup_fd int watched = -1;

	printf("openat2 %d\n", opened < 0 ? errno : 0);
	watched = inotify_init1(IN_CLOEXEC);
	printf("inotify %d\n", watched < 0 ? errno : 0);
	printf("user_namespace %d\n", try_user_namespace());
}

int examine(void)
{
	print_system();
	print_who();
	print_helper();
	print_directory();
	fflush(stdout); /* not once more in the process that is forked */
	print_calls();
	for (size_t i = 0; i < array_size(programs); i++) {
		cleanup_free char *found = path_find_program(programs[i]);

		if (found)
			printf("program %s\n", programs[i]);
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
