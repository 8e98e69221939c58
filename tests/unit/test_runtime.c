#include "fs/mount/runtime.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/remove_tree.h"

static char directory[64];

static void setup(void)
{
	snprintf(directory, sizeof(directory), "/tmp/isthmus-runtime-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	CHECK_RC(0, setenv("XDG_RUNTIME_DIR", directory, 1));
}

static void teardown(void)
{
	CHECK_RC(0, remove_tree(directory));
}

static void *wait_for_ever(void *user)
{
	for (;;)
		pause();
	return user;
}

/* A daemon that does not end: its first thread alone is gone. */
static pid_t start_stuck(void)
{
	pthread_t thread;
	pid_t pid = fork();

	if (pid == 0) {
		pthread_create(&thread, NULL, wait_for_ever, NULL);
		syscall(SYS_exit, 0);
	}
	return pid;
}

/* One that ended, and that nobody waited for. */
static pid_t start_ended(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	CHECK_RC(pid, waitpid(pid, NULL, 0));
}

static bool is_zombie(pid_t pid)
{
	char path[32], text[256] = "";
	cleanup_file FILE *file = NULL;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	return file && fread(text, 1, sizeof(text) - 1, file) > 0 && strstr(text, "State:\tZ");
}

/* The mount of such a daemon, as other commands find it. */
static bool mount_of(pid_t pid, struct runtime_mount *ret_mount)
{
	struct runtime_mount mount = {0}, *mounts = NULL;
	size_t count = 0;

	CHECK_RC(0, runtime_mount_init(&mount, "/nowhere"));
	mount.uri = strdup("mem:");
	mount.pid = pid;
	mount.connection = 77;
	CHECK_RC(0, runtime_save(&mount));
	runtime_mount_done(&mount);
	for (int i = 0; i < 500 * test_patience() && !is_zombie(pid); i++)
		usleep(10000);
	CHECK(is_zombie(pid));
	CHECK_RC(0, runtime_list(&mounts, &count));
	if (!CHECK_RC(1, count))
		return false;
	*ret_mount = mounts[0];
	free(mounts);
	return true;
}

static void test_a_daemon_with_threads_left_is_stuck(void)
{
	struct runtime_mount mount;
	pid_t pid;

	setup();
	pid = start_stuck();
	if (mount_of(pid, &mount)) {
		CHECK(runtime_is_stuck(&mount));
		CHECK_RC(77, mount.connection);
		runtime_mount_done(&mount);
	}
	end(pid);
	teardown();
}

/* In /tmp anybody may have made the usual name first. */
static void use_another_directory(uid_t user)
{
	cleanup_free char *usual = NULL, *first = NULL, *second = NULL;
	struct runtime_mount *mounts = NULL;
	struct stat attributes;
	size_t count = 1;

	CHECK_RC(0, setresuid(user, user, user));
	CHECK_RC(0, unsetenv("XDG_RUNTIME_DIR"));
	usual = runtime_directory_path();
	CHECK_RC(0, runtime_directory(&first));
	CHECK_RC(0, runtime_directory(&second));
	if (!CHECK(usual && first && second))
		return;
	CHECK(strcmp(usual, first) != 0);
	CHECK_STRING(first, second);
	CHECK_RC(0, lstat(first, &attributes));
	CHECK(S_ISDIR(attributes.st_mode) && attributes.st_uid == user);
	CHECK_RC(0700, attributes.st_mode & 07777);
	CHECK_RC(0, runtime_list(&mounts, &count));
	CHECK_RC(0, count);
	CHECK_RC(0, rmdir(first));
}

static void check_taken_name(int (*take)(const char *path))
{
	const uid_t user = 640000 + (uid_t)getpid();
	char path[48];
	int status = -1;
	pid_t pid;

	if (geteuid() != 0)
		return; /* nobody else is there to take it */
	snprintf(path, sizeof(path), "/tmp/isthmus-%u", user);
	CHECK_RC(0, take(path));
	pid = fork();
	if (pid == 0) {
		use_another_directory(user);
		_exit(CU_get_number_of_failures() != 0);
	}
	CHECK_RC(pid, waitpid(pid, &status, 0));
	CHECK_RC(0, status);
	CHECK_RC(0, remove(path));
}

static int take_by_directory(const char *path)
{
	return mkdir(path, 0777);
}

static int take_by_link(const char *path)
{
	return symlink("/", path);
}

static void test_a_directory_that_somebody_else_made_is_left_alone(void)
{
	check_taken_name(take_by_directory);
	check_taken_name(take_by_link);
}

static void test_a_daemon_that_nobody_waited_for_is_not_stuck(void)
{
	struct runtime_mount mount;
	pid_t pid;

	setup();
	pid = start_ended();
	if (mount_of(pid, &mount)) {
		CHECK(!runtime_is_stuck(&mount));
		runtime_mount_done(&mount);
	}
	end(pid);
	teardown();
}

static void test_another_process_with_its_id_is_no_daemon(void)
{
	struct runtime_mount mount;
	pid_t pid;

	setup();
	pid = start_stuck();
	if (mount_of(pid, &mount)) {
		mount.pid_started--;
		CHECK(!runtime_is_stuck(&mount));
		runtime_mount_done(&mount);
	}
	end(pid);
	teardown();
}

TEST_MAIN("runtime", TEST(test_a_directory_that_somebody_else_made_is_left_alone),
	TEST(test_a_daemon_with_threads_left_is_stuck),
	TEST(test_a_daemon_that_nobody_waited_for_is_not_stuck),
	TEST(test_another_process_with_its_id_is_no_daemon))
