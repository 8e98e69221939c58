/*
 * test_link - what survives a broken link: a real sshd behind a simulated one.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/open.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/exec.h"
#include "ops/workspace.h"
#include "tests/check.h"

static char dir[64];
static const char *more_of_linksim = "", *cache_option = "cache=on";
static struct op_context ctx;

static void pause_ms(long ms)
{
	const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&pause, NULL);
}

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int shell(const char *format, ...)
{
	char command[2048];
	va_list arguments;
	int status;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void set_link(const char *state)
{
	CHECK_RC(0,
		shell("echo %s >%s/state.new && mv %s/state.new %s/state", state, dir, dir, dir));
	pause_ms(30);
}

/* NULL: it cannot be reached. */
static struct workspace *try_to_mount(const char *timeout, const char *linger)
{
	char command[512], uri[128], timeout_option[32], linger_option[32];
	const char *const pairs[] = {command, timeout_option, linger_option, cache_option, NULL};
	const struct workspace_options options = {.pairs = pairs};
	cleanup_free char *reason = NULL;
	struct workspace *w = NULL;

	snprintf(command, sizeof(command),
		"ssh_command=ssh -F %s/ssh_config -o 'ProxyCommand=" LINKSIM
		" --rtt-ms 2 --state %s/state %s %%h %%p'",
		dir, dir, more_of_linksim);
	snprintf(uri, sizeof(uri), "ssh://box%s/ws", dir);
	snprintf(timeout_option, sizeof(timeout_option), "timeout=%s", timeout);
	snprintf(linger_option, sizeof(linger_option), "linger=%s", linger);
	if (workspace_open(uri, &options, &w, &reason) < 0)
		fprintf(stderr, "%s\n", reason ? reason : "");
	return w;
}

static struct workspace *mount_far(const char *timeout, const char *linger)
{
	struct workspace *w = try_to_mount(timeout, linger);

	CHECK(w != NULL);
	return w;
}

static struct open_file *make_file(struct workspace *w, const char *path, int flags)
{
	struct open_file *file = NULL;
	struct attributes attributes;

	CHECK_RC(0, workspace_create(&ctx, w, path, flags, 0644, &file, &attributes));
	return file;
}

static enum link_state link_of(struct workspace *w)
{
	struct workspace_status status;

	workspace_status(w, &status);
	return status.link;
}

static uint64_t reconnects_of(struct workspace *w)
{
	struct workspace_status status;

	workspace_status(w, &status);
	return status.reconnects;
}

static int look(struct workspace *w, const char *path)
{
	const struct object_ref object = OBJECT_AT(path);
	struct attributes attributes;

	return workspace_getattr(&ctx, w, &object, &attributes);
}

static void test_a_stall_is_only_a_delay(void)
{
	struct workspace *w = mount_far("20", "10");
	struct open_file *file = w ? make_file(w, "stalled", O_WRONLY | O_APPEND) : NULL;
	int64_t start;

	if (!file)
		return;
	set_link("stall");
	start = clock_now_ms();
	CHECK_RC(0, shell("(sleep 1.5; echo up >%s/state) &", dir));
	CHECK_RC(5, workspace_write(&ctx, file, "once\n", 5, 0));
	CHECK_RC(0, workspace_flush(&ctx, file));
	CHECK(clock_now_ms() - start >= 1000);
	CHECK_RC(0, look(w, "stalled"));
	CHECK_RC(0, workspace_close(&ctx, file));
	CHECK_RC(0, shell("test \"$(cat %s/ws/stalled)\" = once", dir));
	workspace_free(w);
}

struct appender {
	struct workspace *w;
	int number;
	int failures;
};

/* Appends and exclusive creates: what would show if anything ran twice. */
static void *append(void *user)
{
	struct appender *appender = user;
	struct op_context own;

	op_context_init(&own);
	for (int i = 0; i < 100; i++) {
		const struct object_ref object = OBJECT_AT("log");
		struct open_file *log, *made;
		struct attributes attributes;
		char name[64], line[64];

		snprintf(name, sizeof(name), "made.%d.%d", appender->number, i);
		snprintf(line, sizeof(line), "%d %d\n", appender->number, i);
		if (workspace_create(&own, appender->w, name, O_WRONLY, 0644, &made, &attributes) <
				0 ||
			workspace_close(&own, made) < 0 ||
			workspace_open_file(&own, appender->w, &object, O_WRONLY | O_APPEND, &log,
				&attributes) < 0 ||
			workspace_write(&own, log, line, strlen(line), 0) < 0 ||
			workspace_close(&own, log) < 0)
			appender->failures++;
	}
	return NULL;
}

static void check_nothing_is_lost_or_doubled(const char *fault)
{
	struct workspace *w;
	struct appender appenders[4];
	pthread_t threads[4];

	CHECK_RC(0, shell("rm -f %s/ws/log %s/ws/made.*", dir, dir));
	w = mount_far("30", "30");
	if (!w)
		return;
	CHECK_RC(0, workspace_close(&ctx, make_file(w, "log", O_WRONLY)));
	for (int i = 0; i < 4; i++) {
		appenders[i] = (struct appender){.w = w, .number = i};
		pthread_create(&threads[i], NULL, append, &appenders[i]);
	}
	for (int i = 0; i < 4; i++) {
		pause_ms(60);
		set_link(fault);
		set_link("up");
		pause_ms(500);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		CHECK_RC(0, appenders[i].failures);
	}
	CHECK(reconnects_of(w) >= 1);
	workspace_free(w);
	CHECK_RC(0, shell("test \"$(wc -l <%s/ws/log)\" = 400", dir));
	CHECK_RC(0, shell("test \"$(sort -u %s/ws/log | wc -l)\" = 400", dir));
	CHECK_RC(0, shell("test \"$(ls %s/ws | grep -c made)\" = 400", dir));
}

static void test_nothing_is_lost_or_doubled_across_resets(void)
{
	check_nothing_is_lost_or_doubled("reset");
}

/* It has been done by then. */
static void test_what_only_the_answer_to_was_lost_is_not_done_twice(void)
{
	check_nothing_is_lost_or_doubled("deaf");
}

static void cut(struct workspace *w)
{
	uint64_t before = reconnects_of(w);

	set_link("reset");
	for (int i = 0; i < 1000 && link_of(w) == LINK_ONLINE; i++)
		pause_ms(10);
	set_link("up");
	for (int i = 0; i < 100 && reconnects_of(w) == before; i++)
		pause_ms(100);
	CHECK(reconnects_of(w) > before);
}

static void test_files_locks_and_commands_survive_a_cut(void)
{
	static const char *const argv[] = {"sh", "-c", "read a; echo got $a; exit 7", NULL};
	const struct exec_request request = {.argv = argv, .cwd = ""};
	const struct file_lock exclusive = {.kind = LOCK_KIND_FLOCK, .type = LOCK_EXCLUSIVE};
	struct workspace *w = mount_far("30", "30");
	struct open_file *file = w ? make_file(w, "gone", O_RDWR) : NULL;
	struct process *process = NULL;
	struct exec_event event = {0};
	char data[64] = "";

	if (!file)
		return;
	CHECK_RC(0, workspace_unlink(&ctx, w, "gone", NULL));
	CHECK_RC(5, workspace_write(&ctx, file, "hello", 5, 0));
	CHECK_RC(0, workspace_lock(&ctx, file, &exclusive, false));
	CHECK_RC(0, workspace_exec(&ctx, w, &request, &process));
	cut(w);
	CHECK_RC(5, workspace_read(&ctx, file, data, sizeof(data), 0));
	CHECK_STRING("hello", data);
	CHECK_RC(6, workspace_process_write(&ctx, process, "input\n", 6));
	CHECK_RC(0, workspace_process_next(&ctx, process, data, sizeof(data), &event));
	CHECK_RC(10, event.size);
	CHECK(memcmp(data, "got input\n", 10) == 0);
	CHECK_RC(0, workspace_process_next(&ctx, process, data, sizeof(data), &event));
	CHECK_RC(EXEC_EXIT, event.type);
	CHECK_RC(7, event.exit_code);
	workspace_process_free(process);
	CHECK_RC(0, workspace_close(&ctx, file));
	workspace_free(w);
}

enum { BULK_BYTES = 24 << 20, PIECE_BYTES = 256 << 10, PIECES_PER_CUT = 32 };

static void fill(uint8_t *piece, size_t number)
{
	uint32_t state = (uint32_t)number + 1;

	for (size_t i = 0; i < PIECE_BYTES; i++) {
		state = state * 1664525u + 1013904223u;
		piece[i] = (uint8_t)(state >> 24);
	}
}

static void test_bulk_data_survives_cuts(void)
{
	static uint8_t want[PIECE_BYTES], got[PIECE_BYTES];
	struct workspace *w = mount_far("30", "30");
	struct open_file *file = w ? make_file(w, "bulk", O_RDWR) : NULL;

	if (!file)
		return;
	for (size_t i = 0; i < BULK_BYTES / PIECE_BYTES; i++) {
		fill(want, i);
		CHECK_RC(PIECE_BYTES,
			workspace_write(&ctx, file, want, PIECE_BYTES, (off_t)(i * PIECE_BYTES)));
		if (i % PIECES_PER_CUT == PIECES_PER_CUT - 1)
			cut(w);
	}
	CHECK_RC(0, workspace_fsync(&ctx, w, file, "", false));
	for (size_t i = 0; i < BULK_BYTES / PIECE_BYTES; i++) {
		fill(want, i);
		CHECK_RC(PIECE_BYTES,
			workspace_read(&ctx, file, got, PIECE_BYTES, (off_t)(i * PIECE_BYTES)));
		CHECK(memcmp(want, got, PIECE_BYTES) == 0);
		if (i % PIECES_PER_CUT == PIECES_PER_CUT - 1)
			cut(w);
	}
	CHECK_RC(0, workspace_close(&ctx, file));
	workspace_free(w);
}

enum { DYING_BYTES = 4 << 20 };

/* Each connection dies somewhere in its first MiB, also while it is being made. */
static void test_dying_connections_are_only_a_delay(void)
{
	static uint8_t want[PIECE_BYTES], got[PIECE_BYTES];
	struct workspace *w = NULL;
	struct open_file *file;

	more_of_linksim = "--die 100";
	for (int i = 0; i < 5 && !w; i++)
		w = try_to_mount("60", "30");
	file = w ? make_file(w, "dying", O_RDWR) : NULL;
	CHECK(file != NULL);
	for (size_t i = 0; file && i < DYING_BYTES / PIECE_BYTES; i++) {
		off_t offset = (off_t)(i * PIECE_BYTES);

		fill(want, i);
		CHECK_RC(PIECE_BYTES, workspace_write(&ctx, file, want, PIECE_BYTES, offset));
		CHECK_RC(0, workspace_flush(&ctx, file));
		CHECK_RC(PIECE_BYTES, workspace_read(&ctx, file, got, PIECE_BYTES, offset));
		CHECK(memcmp(want, got, PIECE_BYTES) == 0);
	}
	if (file) {
		CHECK(reconnects_of(w) >= 3);
		CHECK_RC(0, workspace_close(&ctx, file));
	}
	workspace_free(w);
	more_of_linksim = "";
}

/* Waits until the workspace is reached by a new connection. */
static void killed(struct workspace *w, const char *what)
{
	uint64_t before = reconnects_of(w);

	CHECK_RC(0, shell("pkill -KILL %s", what));
	for (int i = 0; i < 100 && reconnects_of(w) == before; i++)
		pause_ms(100);
	CHECK(reconnects_of(w) > before);
}

static void test_a_killed_ssh_is_only_a_delay(void)
{
	const struct file_lock exclusive = {.kind = LOCK_KIND_FLOCK, .type = LOCK_EXCLUSIVE};
	struct workspace *w = mount_far("30", "30");
	struct open_file *file = w ? make_file(w, "killed", O_WRONLY | O_APPEND) : NULL;
	char ssh[64], sshd[128];

	if (!file)
		return;
	snprintf(ssh, sizeof(ssh), "-x ssh -P %d", (int)getpid());
	snprintf(sshd, sizeof(sshd), "-P $(cat %s/sshd.pid)", dir);
	CHECK_RC(0, workspace_lock(&ctx, file, &exclusive, false));
	CHECK_RC(2, workspace_write(&ctx, file, "1\n", 2, 0));
	killed(w, ssh);
	CHECK_RC(2, workspace_write(&ctx, file, "2\n", 2, 0));
	killed(w, sshd);
	CHECK_RC(2, workspace_write(&ctx, file, "3\n", 2, 0));
	CHECK_RC(0, workspace_flush(&ctx, file));
	CHECK_RC(1, shell("flock -n %s/ws/killed true", dir));
	CHECK_RC(0, workspace_close(&ctx, file));
	CHECK_RC(0, shell("test \"$(echo $(cat %s/ws/killed))\" = '1 2 3'", dir));
	workspace_free(w);
}

/* 200 lines, each appended by itself, of which none may fail. */
static int append_slowly(void)
{
	struct workspace *w = mount_far("3", "60");
	struct open_file *file = w ? make_file(w, "slept", O_WRONLY | O_APPEND) : NULL;
	int failures = !file;
	char line[16];

	for (int i = 0; file && i < 200; i++) {
		snprintf(line, sizeof(line), "%d\n", i);
		failures += workspace_write(&ctx, file, line, strlen(line), 0) < 0;
		failures += workspace_flush(&ctx, file) < 0;
		pause_ms(10);
	}
	failures += workspace_close(&ctx, file) < 0;
	workspace_free(w);
	return failures > 0;
}

/* Ours and ssh's, for longer than calls may wait. */
static void test_a_laptop_may_sleep(void)
{
	pid_t client = fork();
	int status;

	if (client == 0)
		_exit(append_slowly());
	for (int i = 0; i < 100 && shell("test -s %s/ws/slept", dir); i++)
		pause_ms(100);
	for (int i = 0; i < 2; i++) {
		CHECK_RC(0, shell("kill -STOP %d; for p in $(pgrep -P %d); do kill -STOP -$p; done",
				    client, client));
		pause_ms(4500);
		CHECK_RC(0, shell("for p in $(pgrep -P %d); do kill -CONT -$p; done; kill -CONT %d",
				    client, client));
		pause_ms(300);
	}
	waitpid(client, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_RC(0, shell("seq 0 199 | cmp -s - %s/ws/slept", dir));
}

static void check_half_open_link(const char *way)
{
	struct workspace *w = mount_far("20", "30");

	if (!w)
		return;
	set_link(way);
	CHECK_RC(0, shell("(sleep 3; echo up >%s/state) &", dir));
	/* It is looked after in the first second, given up 5 s later, and made anew in less than
	 * one, but on a busy machine: the call itself bears 20 s. */
	CHECK_RC(0, look(w, ""));
	for (int i = 0; i < 500 && link_of(w) != LINK_ONLINE; i++)
		pause_ms(20); /* the answer may come first */
	CHECK_RC(LINK_ONLINE, link_of(w));
	CHECK(reconnects_of(w) > 0);
	workspace_free(w);
}

static void test_a_half_open_link_is_given_up_and_made_anew(void)
{
	check_half_open_link("lose");
	check_half_open_link("deaf");
}

static void test_past_the_bound_calls_fail_and_come_back(void)
{
	struct workspace *w = mount_far("2", "30");
	int64_t start;

	if (!w)
		return;
	set_link("stall");
	start = clock_now_ms();
	CHECK_RC(-EIO, look(w, ""));
	/* Silence is noticed after 2 s at most. */
	CHECK(clock_now_ms() - start < 2000 + 1000 + 2000);
	CHECK_RC(LINK_OFFLINE, link_of(w));
	start = clock_now_ms();
	CHECK_RC(-EIO, look(w, ""));
	CHECK(clock_now_ms() - start < 100);
	set_link("up");
	for (int i = 0; i < 150 && look(w, "") != 0; i++)
		pause_ms(100);
	CHECK_RC(0, look(w, ""));
	CHECK_RC(LINK_ONLINE, link_of(w));
	workspace_free(w);
}

static void test_a_dead_link_does_not_hold_up_the_end(void)
{
	struct workspace *w = mount_far("30", "1");
	int64_t start;

	if (!w)
		return;
	set_link("stall");
	CHECK(link_of(w) != LINK_OFFLINE);
	start = clock_now_ms();
	workspace_free(w);
	CHECK(clock_now_ms() - start < 3000);
	set_link("up");
}

static atomic_bool give_up;

static bool gave_up(struct op_context *asked)
{
	(void)asked;
	return give_up;
}

static void *give_up_soon(void *user)
{
	(void)user;
	pause_ms(300);
	give_up = true;
	return NULL;
}

static void test_a_blocked_call_can_be_interrupted(void)
{
	struct workspace *w = mount_far("30", "10");
	struct op_context impatient;
	const struct object_ref root = OBJECT_AT("");
	struct attributes attributes;
	pthread_t thread;
	int64_t start;

	if (!w)
		return;
	op_context_init(&impatient);
	impatient.interrupted = gave_up;
	give_up = false;
	set_link("stall");
	start = clock_now_ms();
	pthread_create(&thread, NULL, give_up_soon, NULL);
	CHECK_RC(-EINTR, workspace_getattr(&impatient, w, &root, &attributes));
	CHECK(clock_now_ms() - start < 1200);
	pthread_join(thread, NULL);
	set_link("up");
	workspace_free(w);
}

/* All helpers of this test run from its own cache directory. */
static void kill_helpers(void)
{
	CHECK_RC(0, shell("for p in /proc/[0-9]*; do case $(readlink $p/exe) in %s/*) kill -9 "
			  "${p#/proc/};; "
			  "esac; done 2>/dev/null; true",
			    dir));
}

static int count_helpers(void)
{
	return shell("n=0; for p in /proc/[0-9]*; do case $(readlink $p/exe) in %s/*) n=$((n+1));; "
		     "esac; done 2>/dev/null; exit $n",
		dir);
}

static void test_a_killed_helper_loses_only_what_it_must(void)
{
	static const char *const argv[] = {"sleep", "1000", NULL};
	const struct exec_request request = {.argv = argv, .cwd = ""};
	struct workspace *w = mount_far("30", "30");
	struct open_file *named = w ? make_file(w, "named", O_RDWR) : NULL;
	struct open_file *nameless = w ? make_file(w, "nameless", O_RDWR) : NULL;
	struct exec_event event = {0};
	struct process *process;
	char data[16] = "";

	if (!named || !nameless)
		return;
	CHECK_RC(4, workspace_write(&ctx, named, "text", 4, 0));
	CHECK_RC(4, workspace_write(&ctx, nameless, "text", 4, 0));
	CHECK_RC(0, workspace_flush(&ctx, nameless));
	CHECK_RC(0, workspace_flush(&ctx, named));
	CHECK_RC(0, workspace_unlink(&ctx, w, "nameless", NULL));
	CHECK_RC(0, workspace_exec(&ctx, w, &request, &process));
	kill_helpers();
	CHECK_RC(0, look(w, "named"));
	CHECK_RC(4, workspace_read(&ctx, named, data, sizeof(data), 0));
	CHECK_STRING("text", data);
	CHECK_RC(-ESTALE, workspace_read(&ctx, nameless, data, sizeof(data), 0));
	CHECK_RC(-ECONNRESET, workspace_process_next(&ctx, process, data, sizeof(data), &event));
	workspace_process_free(process);
	CHECK_RC(0, workspace_close(&ctx, named));
	workspace_close(&ctx, nameless);
	workspace_free(w);
}

struct reader {
	struct workspace *w;
	unsigned seed;
	int failures;
	atomic_bool *over;
};

/* Each of many reads asks the far end. */
static void *read_here_and_there(void *user)
{
	struct reader *reader = user;
	const struct object_ref object = OBJECT_AT("sparse");
	struct attributes attributes;
	struct open_file *file;
	struct op_context own;
	char data[512];

	op_context_init(&own);
	if (workspace_open_file(&own, reader->w, &object, O_RDONLY, &file, &attributes) < 0) {
		reader->failures++;
		return NULL;
	}
	while (!*reader->over) {
		off_t offset = (off_t)(rand_r(&reader->seed) % (1 << 24)) * 4096;

		op_context_init(&own);
		reader->failures +=
			workspace_read(&own, file, data, sizeof(data), offset) != sizeof(data);
	}
	workspace_close(&own, file);
	return NULL;
}

static void test_who_reads_does_not_notice_killed_helpers(void)
{
	struct workspace *w = mount_far("30", "30");
	struct reader readers[16];
	pthread_t threads[16];
	atomic_bool over = false;

	if (!w)
		return;
	CHECK_RC(0, shell("truncate -s 80G %s/ws/sparse", dir));
	for (size_t i = 0; i < array_size(threads); i++) {
		readers[i] = (struct reader){.w = w, .seed = (unsigned)i, .over = &over};
		pthread_create(&threads[i], NULL, read_here_and_there, &readers[i]);
	}
	for (uint64_t i = 0; i < 6; i++) {
		pause_ms(300);
		kill_helpers();
		for (int j = 0; j < 100 && reconnects_of(w) <= i; j++)
			pause_ms(100);
	}
	pause_ms(300);
	over = true;
	for (size_t i = 0; i < array_size(threads); i++) {
		pthread_join(threads[i], NULL);
		CHECK_RC(0, readers[i].failures);
	}
	CHECK(reconnects_of(w) >= 6);
	workspace_free(w);
}

static void test_a_vanished_client_leaves_nothing(void)
{
	char seconds[32]; /* which no other test sleeps for */
	const char *const argv[] = {"sleep", seconds, NULL};
	const struct exec_request request = {.argv = argv, .cwd = ""};
	pid_t client;

	snprintf(seconds, sizeof(seconds), "1234.%d", getpid());
	client = fork();
	if (client == 0) {
		struct workspace *w = mount_far("30", "1");
		struct process *process;

		if (!w || workspace_exec(&ctx, w, &request, &process) < 0)
			_exit(1);
		raise(SIGKILL);
	}
	waitpid(client, NULL, 0);
	for (int i = 0; i < 80 && count_helpers(); i++)
		pause_ms(100);
	CHECK_RC(0, count_helpers());
	CHECK_RC(1, shell("pgrep -f '^sleep %s$' >/dev/null", seconds));
}

/* ---- Over a slow link ---- */

enum { LOOKS_MAX = 200 };

static int ignore_entry(void *user, const struct dir_entry *entry)
{
	*(size_t *)user += entry->content_size;
	return 0;
}

struct fetching {
	struct workspace *w;
	size_t bytes;
	atomic_bool done;
};

static void *fetch_everything(void *user)
{
	const struct object_ref root = OBJECT_AT("");
	const struct scan_request request = {
		.flags = SCAN_CONTENT | SCAN_GUESS, .content_max_bytes = 1 << 20};
	struct fetching *fetching = user;

	CHECK_RC(0,
		workspace_scan(&ctx, fetching->w, &root, &request, ignore_entry, &fetching->bytes));
	fetching->done = true;
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* 1 MB/s: what was handed to ssh before takes seconds. */
static void test_a_question_overtakes_what_is_fetched_on_a_guess(void)
{
	struct fetching fetching = {0};
	int64_t took_ms[LOOKS_MAX];
	size_t looks = 0;
	pthread_t thread;

	CHECK_RC(0, shell("cd %s/ws && for i in $(seq 64); do head -c 24000 /dev/urandom >g$i; "
			  "done",
			    dir));
	more_of_linksim = "--rate-mbit 8";
	cache_option = "cache=off";
	fetching.w = mount_far("30", "10");
	more_of_linksim = "";
	cache_option = "cache=on";
	if (!fetching.w || pthread_create(&thread, NULL, fetch_everything, &fetching) != 0)
		return;
	while (!fetching.done && looks < LOOKS_MAX) {
		int64_t start = clock_now_ms();

		CHECK_RC(0, look(fetching.w, "g1"));
		took_ms[looks++] = clock_now_ms() - start;
		pause_ms(20);
	}
	pthread_join(thread, NULL);
	qsort(took_ms, looks, sizeof(took_ms[0]), by_size);
	CHECK(fetching.bytes >= 64 * 24000);
	CHECK(looks >= 3);
	CHECK(took_ms[looks / 2] < 500);
	CHECK_RC(0, shell("rm %s/ws/g*", dir));
	workspace_free(fetching.w);
}

static void clean_up(void)
{
	shell(SSHD_SCRIPT " stop %s; rm -rf %s", dir, dir);
}

int main(void)
{
	static const struct test_case cases[] = {TEST(test_a_stall_is_only_a_delay),
		TEST(test_nothing_is_lost_or_doubled_across_resets),
		TEST(test_what_only_the_answer_to_was_lost_is_not_done_twice),
		TEST(test_files_locks_and_commands_survive_a_cut),
		TEST(test_bulk_data_survives_cuts), TEST(test_dying_connections_are_only_a_delay),
		TEST(test_a_killed_ssh_is_only_a_delay), TEST(test_a_laptop_may_sleep),
		TEST(test_a_half_open_link_is_given_up_and_made_anew),
		TEST(test_past_the_bound_calls_fail_and_come_back),
		TEST(test_a_dead_link_does_not_hold_up_the_end),
		TEST(test_a_blocked_call_can_be_interrupted),
		TEST(test_a_killed_helper_loses_only_what_it_must),
		TEST(test_who_reads_does_not_notice_killed_helpers),
		TEST(test_a_vanished_client_leaves_nothing),
		TEST(test_a_question_overtakes_what_is_fetched_on_a_guess)};
	int r;

	snprintf(dir, sizeof(dir), "/tmp/isthmus-link-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	op_context_init(&ctx);
	r = shell("mkdir %s/ws && " SSHD_SCRIPT " start %s 'SetEnv XDG_CACHE_HOME=%s/cache'", dir,
		dir, dir);
	if (r == 0)
		r = test_run("link", cases, array_size(cases));
	clean_up();
	return r;
}
