#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/local.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "tests/check.h"

/* More than the kernel keeps for one reader. */
enum { EVENTS = 20000 };

static char directory[] = "/tmp/test-watch-XXXXXX";
static pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint rescans, entries;

static void see(void *user, const struct change *change)
{
	(void)user;
	pthread_mutex_lock(&hold);
	pthread_mutex_unlock(&hold);
	rescans += change->kind == CHANGE_RESCAN && !*change->path;
	entries += change->kind == CHANGE_ENTRY;
}

static struct workspace *open_workspace(void)
{
	struct workspace *w = NULL;

	CHECK_RC(0,
		local_workspace_new(open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC), NULL, &w));
	CHECK_RC(0, workspace_watch(w, see, NULL));
	return w;
}

static int ignore_entry(void *user, const struct dir_entry *entry)
{
	(void)user;
	(void)entry;
	return 0;
}

static bool watch(struct workspace *w, const char *path)
{
	struct op_context ctx;
	bool watched = false;

	op_context_init(&ctx);
	CHECK_RC(0,
		workspace_readdir(&ctx, w, &OBJECT_AT(path), true, ignore_entry, NULL, &watched));
	return watched;
}

static void make_and_remove_files(unsigned count)
{
	char path[64];

	for (unsigned i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/f%u", directory, i);
		mknod(path, S_IFREG | 0600, 0);
		unlink(path);
	}
}

static void await(const atomic_uint *counter)
{
	for (int i = 0; i < 500 && !*counter; i++)
		usleep(10000);
}

static void test_lost_events_are_reported_as_a_rescan(void)
{
	struct workspace *w = open_workspace();

	CHECK(watch(w, ""));
	pthread_mutex_lock(&hold);
	make_and_remove_files(EVENTS);
	pthread_mutex_unlock(&hold);
	await(&rescans);
	CHECK_RC(1, rescans);
	entries = 0;
	make_and_remove_files(1);
	await(&entries);
	CHECK(entries > 0);
	workspace_free(w);
}

/* Each change by itself would be reported thousands of times in that while: see
 * let_events_gather() in backends/watch.c. */
static void test_a_stream_of_changes_is_reported_at_a_bounded_rate(void)
{
	enum { STREAM_MS = 500, CREDIT = 256, EVENT_MS = 2, MORE = 8 };
	struct workspace *w = open_workspace();
	uint64_t start_ms = clock_now_ms();
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/stream", directory);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK(watch(w, ""));
	entries = 0;
	while (clock_now_ms() - start_ms < STREAM_MS)
		CHECK_RC(1, write(fd, "x", 1));
	await(&entries);
	workspace_free(w);
	CHECK(entries > 0);
	CHECK(entries <= CREDIT + MORE + (clock_now_ms() - start_ms) / EVENT_MS);
	close(fd);
	unlink(path);
}

/* In a user namespace of its own, whose bound is ours to set.  77: not possible here. */
static int watch_too_many(void)
{
	struct workspace_status status;
	struct workspace *w;
	int fd;

	if (unshare(CLONE_NEWUSER) < 0)
		return 77;
	fd = open("/proc/sys/user/max_inotify_watches", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1", 1) != 1)
		return 77;
	w = open_workspace();
	if (!watch(w, "") || watch(w, "a") || watch(w, "a") || watch(w, "b"))
		return 1;
	workspace_status(w, &status);
	if (status.watched_directories != 1 || status.unwatched_directories != 2)
		return 2;
	workspace_unwatch(w, "");
	workspace_unwatch(w, "b");
	if (!watch(w, "a"))
		return 3;
	workspace_status(w, &status);
	workspace_free(w);
	return status.watched_directories == 1 && status.unwatched_directories == 0 ? 0 : 4;
}

static void test_directories_beyond_the_bound_are_counted_and_tried_again(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(watch_too_many());
	CHECK_RC(pid, waitpid(pid, &status, 0));
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status) != 77)
		CHECK_RC(0, WEXITSTATUS(status));
}

static const struct test_case cases[] = {
	TEST(test_directories_beyond_the_bound_are_counted_and_tried_again),
	TEST(test_lost_events_are_reported_as_a_rescan),
	TEST(test_a_stream_of_changes_is_reported_at_a_bounded_rate),
};

static void make_subdirectory(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	mkdir(path, 0755);
}

static void remove_subdirectory(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	rmdir(path);
}

int main(void)
{
	int r;

	if (!mkdtemp(directory))
		return 2;
	chmod(directory, 0755);
	make_subdirectory("a");
	make_subdirectory("b");
	r = test_run("watch", cases, array_size(cases));
	remove_subdirectory("a");
	remove_subdirectory("b");
	rmdir(directory);
	return r;
}
