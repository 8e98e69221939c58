#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/local/local.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/exec.h"
#include "ops/support/path.h"
#include "ops/workspace.h"
#include "tests/check.h"
#include "tests/waits.h"

/* More than the kernel keeps for one reader. */
enum { EVENTS = 20000, ENTRIES_SEEN = 48 };

static char directory[] = "/tmp/test-watch-XXXXXX";
static pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint rescans, entries, calls;

/* What was told since the last forget(); under seen_lock. */
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static struct seen {
	enum change_kind kind;
	char path[32];
	struct object_id directory;
	uint64_t at;
	bool exists;
} seen[64];
static unsigned seen_count;
static uint64_t last_at;
static bool at_went_back;

static void note(const struct change *change)
{
	pthread_mutex_lock(&seen_lock);
	at_went_back = at_went_back || change->at < last_at;
	last_at = change->at;
	if (seen_count < (change->kind == CHANGE_ENTRY ? ENTRIES_SEEN : array_size(seen))) {
		struct seen *s = &seen[seen_count++];

		*s = (struct seen){.kind = change->kind,
			.directory = change->directory,
			.at = change->at,
			.exists = change->exists};
		snprintf(s->path, sizeof(s->path), "%.31s", change->path);
	}
	pthread_mutex_unlock(&seen_lock);
}

static void see(void *user, const struct change *change)
{
	(void)user;
	calls++;
	pthread_mutex_lock(&hold);
	pthread_mutex_unlock(&hold);
	note(change);
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

static uint64_t watch(struct workspace *w, const char *path)
{
	struct op_context ctx;
	uint64_t since = 0;

	op_context_init(&ctx);
	CHECK_RC(0, workspace_readdir(&ctx, w, &OBJECT_AT(path), true, ignore_entry, NULL, &since));
	return since;
}

static struct object_id id_of(struct workspace *w, const char *path)
{
	struct attributes attributes = {0};
	struct op_context ctx;

	op_context_init(&ctx);
	CHECK_RC(0, workspace_getattr(&ctx, w, &OBJECT_AT(path), &attributes));
	return attributes.id;
}

static void unwatch(struct workspace *w, const char *path)
{
	workspace_unwatch(w, &(struct object_ref){.path = path, .id = id_of(w, path)});
}

static const char *at(const char *name)
{
	static char paths[4][64];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
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
	for (int i = 0; i < 500 * test_patience() && !*counter; i++)
		usleep(10000);
}

static void test_lost_events_are_reported_as_a_rescan(void)
{
	struct workspace *w = open_workspace();

	CHECK(watch(w, "") > 0);
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
 * read_and_gather() in backends/local/watch.c. */
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
	CHECK(watch(w, "") > 0);
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

/* What this process changes it knows: what it writes within 4 ms is
 * reported once, though there is credit for each write. */
static void test_changes_of_our_own_are_reported_together(void)
{
	enum { STREAM_MS = 400, TOGETHER_MS = 4, MORE = 8 };
	struct workspace *w = open_workspace();
	struct attributes attributes;
	struct open_file *file;
	struct op_context ctx;
	uint64_t start_ms;

	op_context_init(&ctx);
	CHECK(watch(w, "") > 0);
	CHECK_RC(0, workspace_create(&ctx, w, "own", O_WRONLY, 0600, &file, &attributes));
	entries = 0;
	start_ms = clock_now_ms();
	while (clock_now_ms() - start_ms < STREAM_MS)
		CHECK_RC(1, workspace_write(&ctx, file, "x", 1, 0));
	await(&entries);
	CHECK_RC(0, workspace_close(&ctx, file));
	workspace_free(w);
	CHECK(entries > 0);
	/* Each time the name, and at first the directory. */
	CHECK(entries <= MORE + (clock_now_ms() - start_ms) / TOGETHER_MS);
	unlink(at("own"));
}

/* ---- Directories are what they are, not where they are -------------------------------------- */

static void forget(void)
{
	pthread_mutex_lock(&seen_lock);
	seen_count = 0;
	pthread_mutex_unlock(&seen_lock);
}

static bool find(enum change_kind kind, const char *path, struct seen *ret_seen)
{
	bool found = false;

	pthread_mutex_lock(&seen_lock);
	for (unsigned i = 0; i < seen_count && !found; i++) {
		found = seen[i].kind == kind && strcmp(seen[i].path, path) == 0;
		if (found)
			*ret_seen = seen[i];
	}
	pthread_mutex_unlock(&seen_lock);
	return found;
}

static bool await_seen(enum change_kind kind, const char *path, struct seen *ret_seen)
{
	for (int i = 0; i < 3000; i++) {
		if (find(kind, path, ret_seen))
			return true;
		usleep(10000);
	}
	return false;
}

static void touch(const char *name)
{
	CHECK_RC(0, mknod(at(name), S_IFREG | 0600, 0));
}

/* Holds up the thread of the watcher: it has read what was before, and nothing of what comes. */
static void hold_watcher(const char *name)
{
	unsigned before = calls;

	pthread_mutex_lock(&hold);
	touch(name);
	for (int i = 0; i < 3000 && calls == before; i++)
		usleep(10000);
	CHECK(calls > before);
}

static void go_on(void)
{
	pthread_mutex_unlock(&hold);
}

/* ---- Commands ----------------------------------------------------------------------------- */

static void run(struct workspace *w, const char *command)
{
	const struct exec_request request = {
		.command = command, .cwd = "", .flags = EXEC_STDIN_CLOSED};
	struct exec_event event = {.type = EXEC_STDOUT};
	struct process *process;
	struct op_context ctx;
	char data[64];

	op_context_init(&ctx);
	CHECK_RC(0, workspace_exec(&ctx, w, &request, &process));
	while (event.type != EXEC_EXIT &&
		workspace_process_next(&ctx, process, data, sizeof(data), &event) == 0) {}
	CHECK_RC(0, event.exit_code);
	workspace_process_free(process);
}

/* But for what else happens on this machine: mounts wake it. */
static void test_a_command_that_changes_nothing_wakes_no_thread(void)
{
	enum { COMMANDS = 40 };
	struct workspace *w = open_workspace();
	unsigned long before;
	struct seen s;

	CHECK(watch(w, "") > 0);
	forget();
	run(w, "touch by-command");
	CHECK(find(CHANGE_ENTRY, "by-command", &s));
	before = waits_of("inotify");
	CHECK(before > 0);
	for (int i = 0; i < COMMANDS; i++)
		run(w, "true");
	CHECK(waits_of("inotify") < before + COMMANDS / 2);
	forget();
	run(w, "rm by-command");
	CHECK(find(CHANGE_ENTRY, "by-command", &s));
	workspace_free(w);
}

/* ---- Watches ------------------------------------------------------------------------------ */

static void test_a_directory_is_watched_since_the_same_position_until_it_is_not(void)
{
	struct workspace *w = open_workspace();
	uint64_t since = watch(w, "a"), last, again;
	struct object_id id = id_of(w, "a");
	struct seen found;

	CHECK(since > 0);
	CHECK(watch(w, "a") == since);
	forget();
	touch("a/f");
	CHECK(await_seen(CHANGE_ENTRY, "a/f", &found));
	CHECK(found.exists && found.at > since && object_id_equal(&found.directory, &id));
	unwatch(w, ""); /* which is not watched */
	CHECK(watch(w, "a") == since);
	last = found.at;
	unwatch(w, "a");
	again = watch(w, "a");
	CHECK(again > last);
	CHECK(await_seen(CHANGE_UNWATCHED, "a", &found));
	CHECK(found.at > last && object_id_equal(&found.directory, &id));
	CHECK(watch(w, "a") == again);
	CHECK(!find(CHANGE_UNWATCHED, "", &found));
	workspace_free(w);
	CHECK(!at_went_back);
	unlink(at("a/f"));
}

static void test_the_end_of_a_watch_is_before_the_next_watch(void)
{
	struct workspace *w = open_workspace();
	struct object_id id;
	struct seen found;
	uint64_t since;

	CHECK_RC(0, mkdir(at("d"), 0755));
	since = watch(w, "d");
	id = id_of(w, "d");
	forget();
	CHECK_RC(0, rmdir(at("d")));
	CHECK(await_seen(CHANGE_UNWATCHED, "d", &found));
	CHECK(found.at > since && object_id_equal(&found.directory, &id));
	CHECK_RC(0, mkdir(at("d"), 0755));
	CHECK(watch(w, "d") > found.at);
	workspace_free(w);
	CHECK_RC(0, rmdir(at("d")));
}

/* "a/x" is made in a directory that is somewhere else by the time that anybody looks; another one,
 * in which there is no x, is at its path. */
static void test_a_name_is_not_looked_for_in_another_directory(void)
{
	struct workspace *w = open_workspace();
	struct object_id id = id_of(w, "a");
	struct seen found;

	CHECK(watch(w, "a") > 0);
	forget();
	hold_watcher("a/y");
	touch("a/x");
	CHECK_RC(0, rename(at("a"), at("moved")));
	CHECK_RC(0, mkdir(at("a"), 0755));
	go_on();
	CHECK(await_seen(CHANGE_UNWATCHED, "a", &found));
	CHECK(object_id_equal(&found.directory, &id));
	CHECK(!find(CHANGE_ENTRY, "a/x", &found));
	workspace_free(w);
	CHECK(!at_went_back);
	CHECK_RC(0, rmdir(at("a")));
	CHECK_RC(0, rename(at("moved"), at("a")));
	unlink(at("a/x"));
	unlink(at("a/y"));
}

static void test_a_watch_goes_with_its_directory_though_names_changed_before(void)
{
	struct workspace *w = open_workspace();
	struct object_id id = id_of(w, "a");
	uint64_t since = watch(w, "a");
	struct seen found;

	CHECK(watch(w, "") > 0);
	forget();
	hold_watcher("a/y");
	touch("a/x");
	CHECK_RC(0, rename(at("a"), at("moved")));
	go_on();
	CHECK(await_seen(CHANGE_ENTRY, "moved/x", &found));
	CHECK(found.exists && object_id_equal(&found.directory, &id));
	CHECK(!find(CHANGE_ENTRY, "a/x", &found) && !find(CHANGE_UNWATCHED, "a", &found));
	CHECK(watch(w, "moved") == since);
	workspace_free(w);
	CHECK(!at_went_back);
	CHECK_RC(0, rename(at("moved"), at("a")));
	unlink(at("a/x"));
	unlink(at("a/y"));
}

static void test_a_watch_goes_with_its_directory_through_several_moves(void)
{
	struct workspace *w = open_workspace();
	struct object_id id;
	struct seen found;
	uint64_t since;

	CHECK_RC(0, mkdir(at("a/sub"), 0755));
	CHECK(watch(w, "") > 0 && watch(w, "a") > 0 && watch(w, "b") > 0);
	since = watch(w, "a/sub");
	id = id_of(w, "a/sub");
	forget();
	hold_watcher("a/y");
	touch("a/sub/x");
	CHECK_RC(0, rename(at("a/sub"), at("b/deep")));
	CHECK_RC(0, rename(at("b"), at("c")));
	touch("c/z");
	go_on();
	CHECK(await_seen(CHANGE_ENTRY, "c/deep/x", &found));
	CHECK(found.exists && object_id_equal(&found.directory, &id));
	CHECK(await_seen(CHANGE_ENTRY, "c/z", &found));
	CHECK(watch(w, "c/deep") == since);
	CHECK_RC(0, rename(at("c"), at("b")));
	CHECK(watch(w, "b/deep") == since);
	touch("b/deep/more");
	CHECK(await_seen(CHANGE_ENTRY, "b/deep/more", &found));
	workspace_free(w);
	CHECK(!at_went_back);
	unlink(at("b/deep/more"));
	unlink(at("b/deep/x"));
	unlink(at("b/z"));
	unlink(at("a/y"));
	CHECK_RC(0, rmdir(at("b/deep")));
}

static void test_a_watch_goes_with_a_directory_above_that_is_not_watched(void)
{
	struct workspace *w = open_workspace();
	struct seen found;
	uint64_t since;

	CHECK_RC(0, mkdir(at("a/sub"), 0755));
	since = watch(w, "a/sub");
	CHECK(since > 0 && watch(w, "") > 0);
	forget();
	CHECK_RC(0, rename(at("a"), at("moved")));
	touch("moved/sub/x");
	CHECK(await_seen(CHANGE_ENTRY, "moved/sub/x", &found));
	CHECK(!find(CHANGE_UNWATCHED, "a/sub", &found));
	CHECK(watch(w, "moved/sub") == since);
	workspace_free(w);
	CHECK(!at_went_back);
	unlink(at("moved/sub/x"));
	CHECK_RC(0, rmdir(at("moved/sub")));
	CHECK_RC(0, rename(at("moved"), at("a")));
}

/* Nobody has read yet that the first one was moved. */
static void test_two_directories_at_a_path_are_watched_for_themselves(void)
{
	struct workspace *w = open_workspace();
	struct object_id first = id_of(w, "a"), second;
	struct seen found;

	CHECK(watch(w, "a") > 0);
	forget();
	hold_watcher("a/y");
	CHECK_RC(0, rename(at("a"), at("moved")));
	CHECK_RC(0, mkdir(at("a"), 0755));
	second = id_of(w, "a");
	CHECK(watch(w, "a") > 0);
	go_on();
	CHECK(await_seen(CHANGE_UNWATCHED, "a", &found));
	CHECK(object_id_equal(&found.directory, &first));
	touch("a/z");
	CHECK(await_seen(CHANGE_ENTRY, "a/z", &found));
	CHECK(found.exists && object_id_equal(&found.directory, &second));
	workspace_free(w);
	CHECK(!at_went_back);
	unlink(at("a/z"));
	CHECK_RC(0, rmdir(at("a")));
	CHECK_RC(0, rename(at("moved"), at("a")));
	unlink(at("a/y"));
}

/* Others move one away and the other to its place; then the first is of no interest any more. */
static void test_the_watch_of_the_directory_that_was_meant_ends(void)
{
	struct workspace *w = open_workspace();
	struct object_ref meant = {.path = "a", .id = id_of(w, "a")};
	struct object_id other = id_of(w, "b");
	uint64_t since = watch(w, "a"), since_other = watch(w, "b");
	struct seen found;

	CHECK(watch(w, "") > 0);
	forget();
	CHECK_RC(0, rename(at("a"), at("moved")));
	CHECK_RC(0, rename(at("b"), at("a")));
	touch("a/x");
	CHECK(await_seen(CHANGE_ENTRY, "a/x", &found));
	workspace_unwatch(w, &meant);
	CHECK(await_seen(CHANGE_UNWATCHED, "moved", &found));
	CHECK(found.at > since && object_id_equal(&found.directory, &meant.id));
	touch("a/y");
	CHECK(await_seen(CHANGE_ENTRY, "a/y", &found));
	CHECK(object_id_equal(&found.directory, &other));
	CHECK(watch(w, "a") == since_other);
	CHECK(watch(w, "moved") > found.at);
	workspace_free(w);
	CHECK(!at_went_back);
	unlink(at("a/x"));
	unlink(at("a/y"));
	CHECK_RC(0, rename(at("a"), at("b")));
	CHECK_RC(0, rename(at("moved"), at("a")));
}

/* The event that says so is among those that are lost. */
static void test_the_end_of_a_watch_is_reported_though_events_are_lost(void)
{
	struct workspace *w = open_workspace();
	struct object_id id = id_of(w, "a");
	uint64_t since = watch(w, "a");
	struct seen found;

	CHECK(watch(w, "") > 0);
	forget();
	hold_watcher("a/y");
	make_and_remove_files(EVENTS);
	unwatch(w, "a");
	forget();
	go_on();
	CHECK(await_seen(CHANGE_UNWATCHED, "a", &found));
	CHECK(found.at > since && object_id_equal(&found.directory, &id));
	CHECK(watch(w, "a") > found.at);
	workspace_free(w);
	CHECK(!at_went_back);
	unlink(at("a/y"));
}

/* ---- Directories that others move about ---------------------------------------------------- */

enum { MOVED = 8 };

static struct moved {
	struct object_id id;
	bool ended, told; /* under seen_lock */
} moved[MOVED];

static void see_moved(void *user, const struct change *change)
{
	(void)user;
	pthread_mutex_lock(&seen_lock);
	for (size_t i = 0; i < MOVED; i++) {
		if (!object_id_equal(&change->directory, &moved[i].id))
			continue;
		moved[i].ended |= change->kind == CHANGE_UNWATCHED;
		moved[i].told |= change->kind == CHANGE_ENTRY && change->exists &&
				 strcmp(path_name(change->path), "last") == 0;
	}
	pthread_mutex_unlock(&seen_lock);
}

static bool is_told_or_ended(const struct moved *of)
{
	bool result;

	pthread_mutex_lock(&seen_lock);
	result = of->told || of->ended;
	pthread_mutex_unlock(&seen_lock);
	return result;
}

/* "d0" to "d7", each into the root, one of the others or "b". */
static void move_at_random(char paths[MOVED][128], unsigned targets, unsigned *seed)
{
	unsigned from = (unsigned)rand_r(seed) % MOVED, to = (unsigned)rand_r(seed) % targets;
	char former[128], target[128];
	size_t length;

	snprintf(former, sizeof(former), "%s", paths[from]);
	snprintf(target, sizeof(target), "%s/d%u",
		to == MOVED       ? directory
		: to == MOVED + 1 ? at("b")
				  : paths[to],
		from);
	if (rename(former, target) < 0)
		return; /* into itself */
	length = strlen(former);
	for (size_t i = 0; i < MOVED; i++) {
		char rest[128];

		if (strncmp(paths[i], former, length) != 0 ||
			(paths[i][length] && paths[i][length] != '/'))
			continue;
		snprintf(rest, sizeof(rest), "%s", paths[i] + length);
		snprintf(paths[i], sizeof(paths[i]), "%.90s%.36s", target, rest);
	}
}

/* A watch goes with its directory, or its end is told. */
static void move_many(unsigned targets, int moves)
{
	char paths[MOVED][128], last[128];
	struct workspace *w = NULL;
	unsigned seed = (unsigned)clock_now_ns();
	char name[8];

	CHECK_RC(0,
		local_workspace_new(open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC), NULL, &w));
	CHECK_RC(0, workspace_watch(w, see_moved, NULL));
	CHECK(watch(w, "") > 0);
	for (size_t i = 0; i < MOVED; i++) {
		snprintf(name, sizeof(name), "d%zu", i);
		snprintf(paths[i], sizeof(paths[i]), "%s", at(name));
		CHECK_RC(0, mkdir(paths[i], 0755));
		pthread_mutex_lock(&seen_lock);
		moved[i] = (struct moved){.id = id_of(w, name)};
		pthread_mutex_unlock(&seen_lock);
		CHECK(watch(w, name) > 0);
	}
	for (int i = 0; i < moves; i++)
		move_at_random(paths, targets, &seed);
	for (size_t i = 0; i < MOVED; i++) {
		snprintf(last, sizeof(last), "%.100s/last", paths[i]);
		CHECK_RC(0, mknod(last, S_IFREG | 0600, 0));
	}
	for (size_t i = 0; i < MOVED; i++) {
		for (int wait = 0; wait < 3000 && !is_told_or_ended(&moved[i]); wait++)
			usleep(10000);
		CHECK(is_told_or_ended(&moved[i]));
	}
	workspace_free(w);
	for (size_t i = 0; i < MOVED; i++) {
		snprintf(last, sizeof(last), "%.100s/last", paths[i]);
		CHECK_RC(0, unlink(last));
	}
	for (bool some = true; some;) {
		some = false;
		for (size_t i = 0; i < MOVED; i++)
			some |= rmdir(paths[i]) == 0;
	}
}

static void test_no_watch_is_lost_in_silence(void)
{
	move_many(MOVED + 1, 1000);
	for (int i = 0; i < 10; i++)
		move_many(MOVED + 2, i); /* nobody watches "b" */
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
	unwatch(w, "");
	unwatch(w, "b");
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
	TEST(test_changes_of_our_own_are_reported_together),
	TEST(test_a_command_that_changes_nothing_wakes_no_thread),
	TEST(test_a_directory_is_watched_since_the_same_position_until_it_is_not),
	TEST(test_the_end_of_a_watch_is_before_the_next_watch),
	TEST(test_a_name_is_not_looked_for_in_another_directory),
	TEST(test_a_watch_goes_with_its_directory_though_names_changed_before),
	TEST(test_a_watch_goes_with_its_directory_through_several_moves),
	TEST(test_a_watch_goes_with_a_directory_above_that_is_not_watched),
	TEST(test_two_directories_at_a_path_are_watched_for_themselves),
	TEST(test_the_watch_of_the_directory_that_was_meant_ends),
	TEST(test_the_end_of_a_watch_is_reported_though_events_are_lost),
	TEST(test_no_watch_is_lost_in_silence),
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
