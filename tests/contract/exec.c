#include "tests/contract/contract.h"

#include <signal.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/exec.h"

struct outcome {
	char out[8192], err[4096];
	size_t out_size, err_size;
	uint64_t out_bytes; /* also those that `out` has no room for */
	struct exec_event end;
	int64_t took_ms;
};

static void keep(char *to, size_t capacity, size_t *used, const char *data, size_t size)
{
	size_t room = capacity - 1 - *used;

	if (size > room)
		size = room;
	memcpy(to + *used, data, size);
	*used += size;
	to[*used] = '\0';
}

static int collect(struct fixture *f, struct process *process, struct outcome *outcome)
{
	char buffer[4096];
	int r;

	do {
		r = workspace_process_next(&f->ctx, process, buffer, sizeof(buffer), &outcome->end);
		if (r < 0)
			return r;
		if (outcome->end.type == EXEC_STDOUT) {
			keep(outcome->out, sizeof(outcome->out), &outcome->out_size, buffer,
				outcome->end.size);
			outcome->out_bytes += outcome->end.size;
		} else if (outcome->end.type == EXEC_STDERR) {
			keep(outcome->err, sizeof(outcome->err), &outcome->err_size, buffer,
				outcome->end.size);
		}
	} while (outcome->end.type != EXEC_EXIT);
	return 0;
}

static struct process *start(struct fixture *f, const struct exec_request *request)
{
	struct process *process = NULL;

	CHECK_RC(0, workspace_exec(&f->ctx, f->w, request, &process));
	return process;
}

static struct outcome run_request(struct fixture *f, const struct exec_request *request)
{
	struct outcome outcome = {.end = {.exit_code = -2}};
	int64_t started = clock_now_ms();
	struct process *process = start(f, request);

	if (process) {
		CHECK_RC(0, collect(f, process, &outcome));
		workspace_process_free(process);
	}
	outcome.took_ms = clock_now_ms() - started;
	return outcome;
}

static struct outcome run(struct fixture *f, const char *command)
{
	return run_request(f,
		&(struct exec_request){.command = command, .cwd = "", .flags = EXEC_STDIN_CLOSED});
}

#define NEEDS_EXEC(f)                                                 \
	do {                                                          \
		if (!((f)->status.capabilities & WORKSPACE_CAN_EXEC)) \
			return;                                       \
	} while (0)

PROMISE(exec_keeps_the_streams_apart)
{
	struct outcome o;

	NEEDS_EXEC(f);
	o = run(f, "echo out; echo err >&2; exit 3");
	CHECK_STRING("out\n", o.out);
	CHECK_STRING("err\n", o.err);
	CHECK_RC(3, o.end.exit_code);
	CHECK_RC(0, o.end.signal);
	CHECK(!o.end.timed_out);
}

PROMISE(exec_keeps_the_order_of_one_stream)
{
	struct exec_request request = {
		.command = "for i in 1 2 3; do echo o$i; echo e$i >&2; done",
		.cwd = "",
		.flags = EXEC_STDIN_CLOSED | EXEC_MERGED,
	};
	struct outcome o;

	NEEDS_EXEC(f);
	for (int i = 0; i < 20; i++) {
		o = run_request(f, &request);
		CHECK_STRING("o1\ne1\no2\ne2\no3\ne3\n", o.out);
		CHECK_STRING("", o.err);
	}
}

PROMISE(exec_reports_the_signal)
{
	struct outcome o;

	NEEDS_EXEC(f);
	o = run(f, "kill -KILL $$");
	CHECK_RC(-1, o.end.exit_code);
	CHECK_RC(SIGKILL, o.end.signal);
}

PROMISE(exec_takes_an_argv_as_it_is)
{
	const char *const argv[] = {"printf", "%s|", "a b", "$HOME", "", "*", NULL};
	struct exec_request request = {.argv = argv, .cwd = "", .flags = EXEC_STDIN_CLOSED};
	struct outcome o;

	NEEDS_EXEC(f);
	o = run_request(f, &request);
	CHECK_STRING("a b|$HOME||*|", o.out);
}

PROMISE(exec_says_why_it_cannot_start)
{
	const char *const missing[] = {"no-such-program-here", NULL};
	const char *const relative[] = {"./no-such", NULL};
	const char *const plain[] = {"./plain", NULL};
	struct process *process = NULL;

	NEEDS_EXEC(f);
	CHECK_RC(0, put(f, "plain", "text"));
	CHECK_RC(-ENOENT, workspace_exec(&f->ctx, f->w,
				  &(struct exec_request){.argv = missing, .cwd = ""}, &process));
	CHECK_RC(-ENOENT, workspace_exec(&f->ctx, f->w,
				  &(struct exec_request){.argv = relative, .cwd = ""}, &process));
	CHECK_RC(-EACCES, workspace_exec(&f->ctx, f->w,
				  &(struct exec_request){.argv = plain, .cwd = ""}, &process));
	CHECK_RC(-ENOENT,
		workspace_exec(&f->ctx, f->w,
			&(struct exec_request){.command = "true", .cwd = "missing"}, &process));
	CHECK_RC(-ENOTDIR,
		workspace_exec(&f->ctx, f->w,
			&(struct exec_request){.command = "true", .cwd = "plain"}, &process));
	CHECK_RC(0, workspace_setattr(&f->ctx, f->w, &OBJECT_AT("plain"), SET_MODE,
			    &(struct attributes){.mode = 0755}, &f->a));
	CHECK_RC(-ENOEXEC, workspace_exec(&f->ctx, f->w,
				   &(struct exec_request){.argv = plain, .cwd = ""}, &process));
}

PROMISE(exec_runs_in_the_directory)
{
	struct outcome o;

	NEEDS_EXEC(f);
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "d/here", ""));
	o = run_request(
		f, &(struct exec_request){.command = "ls", .cwd = "d", .flags = EXEC_STDIN_CLOSED});
	CHECK_STRING("here\n", o.out);
}

PROMISE(exec_sees_what_was_written_and_shows_what_it_wrote)
{
	NEEDS_EXEC(f);
	CHECK_RC(0, put(f, "in", "text"));
	CHECK_RC(0, run(f, "cat in in > out").end.exit_code);
	CHECK_STRING("texttext", get(f, "out"));
}

PROMISE(exec_leaks_no_environment)
{
	const char *const environment[] = {"MINE=1 2", "LANG=xx", NULL};
	struct outcome o;

	NEEDS_EXEC(f);
	setenv("CONTRACT_SECRET", "leak", 1);
	o = run_request(f, &(struct exec_request){.command = "env",
				   .cwd = "",
				   .environment = environment,
				   .flags = EXEC_STDIN_CLOSED});
	unsetenv("CONTRACT_SECRET");
	CHECK(!strstr(o.out, "CONTRACT_SECRET"));
	CHECK(strstr(o.out, "MINE=1 2\n"));
	CHECK(strstr(o.out, "LANG=xx\n"));
	CHECK(strstr(o.out, "PATH=/"));
	CHECK(strstr(o.out, "HOME=/"));
	CHECK(strstr(o.out, "USER="));
	CHECK(strstr(o.out, "SHELL=/"));
}

PROMISE(exec_leaks_no_descriptor)
{
	struct outcome o;
	int leak = open("/dev/null", O_RDONLY);

	NEEDS_EXEC(f);
	o = run(f, "ls /proc/self/fd | wc -l");
	close(leak);
	CHECK_STRING("4\n", o.out); /* three, and that of ls itself */
}

PROMISE(exec_passes_stdin_on)
{
	struct exec_request request = {.command = "cat; echo end", .cwd = ""};
	struct outcome o = {.out_size = 0};
	struct process *process = NULL;

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	CHECK_RC(5, workspace_process_write(&f->ctx, process, "abc\n\n", 5));
	CHECK_RC(0, workspace_process_close_stdin(&f->ctx, process));
	CHECK_RC(0, workspace_process_close_stdin(&f->ctx, process));
	CHECK_RC(-EPIPE, workspace_process_write(&f->ctx, process, "x", 1));
	CHECK_RC(0, collect(f, process, &o));
	CHECK_STRING("abc\n\nend\n", o.out);
	workspace_process_free(process);
}

PROMISE(a_write_to_a_command_that_does_not_read_is_epipe)
{
	struct exec_request request = {.command = "exec <&-; echo ready; sleep 5", .cwd = ""};
	struct process *process = NULL;
	struct exec_event event;
	char byte[64];
	ssize_t put_bytes = 0;

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	CHECK_RC(0, workspace_process_next(&f->ctx, process, byte, sizeof(byte), &event));
	for (int i = 0; i < 100 && put_bytes >= 0; i++) {
		put_bytes = workspace_process_write(&f->ctx, process, "x", 1);
		usleep(10000);
	}
	CHECK_RC(-EPIPE, put_bytes);
	workspace_process_free(process);
}

PROMISE(exec_without_stdin_reads_end_of_file)
{
	NEEDS_EXEC(f);
	CHECK_STRING("0\n", run(f, "wc -c").out);
}

PROMISE(output_of_any_size_comes_through_a_slow_reader)
{
	struct exec_request request = {.command = "head -c 5000000 /dev/zero; printf end >&2",
		.cwd = "",
		.flags = EXEC_STDIN_CLOSED};
	struct outcome o = {.out_size = 0};
	struct process *process = NULL;

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	usleep(200000);
	CHECK_RC(0, collect(f, process, &o));
	CHECK_RC(5000000, o.out_bytes);
	CHECK_STRING("end", o.err);
	workspace_process_free(process);
}

PROMISE(output_arrives_while_the_command_runs)
{
	struct exec_request request = {.command = "echo early; sleep 20", .cwd = ""};
	struct process *process = NULL;
	struct exec_event event;
	int64_t started = clock_now_ms();
	char text[64];

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	CHECK_RC(0, workspace_process_next(&f->ctx, process, text, sizeof(text), &event));
	CHECK_RC(EXEC_STDOUT, event.type);
	CHECK(clock_now_ms() - started < 5000);
	workspace_process_free(process);
	CHECK(clock_now_ms() - started < 8000);
}

PROMISE(a_small_buffer_loses_nothing)
{
	struct exec_request request = {
		.command = "printf abcdef", .cwd = "", .flags = EXEC_STDIN_CLOSED};
	struct process *process = NULL;
	struct exec_event event = {.type = EXEC_STDOUT};
	char text[8] = "", one[1];

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	while (event.type != EXEC_EXIT && strlen(text) < 7) {
		if (!CHECK_RC(0, workspace_process_next(&f->ctx, process, one, 1, &event)))
			break;
		if (event.type == EXEC_STDOUT)
			strncat(text, one, 1);
	}
	CHECK_STRING("abcdef", text);
	workspace_process_free(process);
}

/* A number of seconds that no other program sleeps: it marks the processes of a test. */
static void make_mark(char *mark, size_t size)
{
	static unsigned count;

	snprintf(mark, size, "%u.%u", 600 + (unsigned)getpid() % 1000, ++count);
}

static bool is_running(struct fixture *f, const char *mark)
{
	char command[128];

	/* The brackets keep the search from finding itself. */
	snprintf(command, sizeof(command),
		"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep [%c]%s'",
		mark[0], mark + 1);
	return run(f, command).end.exit_code == 0;
}

static bool is_gone_soon(struct fixture *f, const char *mark)
{
	for (int i = 0; i < 40; i++) {
		if (!is_running(f, mark))
			return true;
		usleep(50000);
	}
	return false;
}

PROMISE(a_timeout_ends_the_whole_tree)
{
	char mark[32], command[256];
	struct outcome o;

	NEEDS_EXEC(f);
	make_mark(mark, sizeof(mark));
	snprintf(command, sizeof(command),
		"setsid sh -c 'setsid sleep %s & wait' & (sleep %s &) ; sleep %s", mark, mark,
		mark);
	o = run_request(f, &(struct exec_request){.command = command,
				   .cwd = "",
				   .timeout_ms = 400,
				   .flags = EXEC_STDIN_CLOSED});
	CHECK(o.end.timed_out);
	CHECK_RC(SIGTERM, o.end.signal);
	CHECK(o.took_ms >= 400 && o.took_ms < 3000);
	CHECK(!is_running(f, mark));
}

PROMISE(a_timeout_kills_what_ignores_term)
{
	const uint32_t timeout_ms = 500 * (uint32_t)test_patience(); /* for the shell to start */
	struct outcome o;

	NEEDS_EXEC(f);
	o = run_request(
		f, &(struct exec_request){.command = "trap '' TERM; while :; do sleep 0.05; done",
			   .cwd = "",
			   .timeout_ms = timeout_ms,
			   .flags = EXEC_STDIN_CLOSED});
	CHECK(o.end.timed_out);
	CHECK_RC(SIGKILL, o.end.signal);
	CHECK(o.took_ms >= timeout_ms + 2800 && o.took_ms < timeout_ms + 6000);
}

PROMISE(freeing_a_running_command_kills_its_tree)
{
	char mark[32], command[128];
	struct exec_request request = {.command = command, .cwd = ""};
	struct process *process = NULL;
	struct exec_event event;
	char text[16];

	NEEDS_EXEC(f);
	make_mark(mark, sizeof(mark));
	snprintf(command, sizeof(command), "setsid sleep %s & echo; sleep %s", mark, mark);
	process = start(f, &request);
	if (!process)
		return;
	CHECK_RC(0, workspace_process_next(&f->ctx, process, text, sizeof(text), &event));
	CHECK(is_running(f, mark));
	workspace_process_free(process);
	CHECK(is_gone_soon(f, mark));
}

PROMISE(signals_reach_the_whole_tree)
{
	struct exec_request request = {.command = "trap 'echo got; exit 9' INT; "
						  "(trap 'echo sub; exit' INT; while :; do sleep "
						  "0.02; done) & echo up; "
						  "while :; do sleep 0.02; done",
		.cwd = ""};
	struct outcome o = {.out_size = 0};
	struct process *process = NULL;
	struct exec_event event;
	char text[64];

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	CHECK_RC(0, workspace_process_next(&f->ctx, process, text, sizeof(text), &event));
	usleep(100000);
	CHECK_RC(0, workspace_process_signal(&f->ctx, process, SIGINT));
	CHECK_RC(0, collect(f, process, &o));
	CHECK(strstr(o.out, "got\n"));
	CHECK_RC(9, o.end.exit_code);
	CHECK_RC(-ESRCH, workspace_process_signal(&f->ctx, process, SIGTERM));
	workspace_process_free(process);
}

PROMISE(what_a_command_leaves_behind_does_not_hold_its_end_up)
{
	char mark[32], command[64];
	struct outcome o;

	NEEDS_EXEC(f);
	make_mark(mark, sizeof(mark));
	snprintf(command, sizeof(command), "sleep %s & echo started", mark);
	o = run(f, command);
	CHECK_STRING("started\n", o.out);
	CHECK_RC(0, o.end.exit_code);
	CHECK(o.took_ms < 5000);
	CHECK(is_running(f, mark));
	snprintf(command, sizeof(command), "pkill -f 'sleep [%c]%s'", mark[0], mark + 1);
	run(f, command);
}

PROMISE(leftovers_are_killed_when_asked)
{
	char mark[32], command[128];

	NEEDS_EXEC(f);
	make_mark(mark, sizeof(mark));
	snprintf(command, sizeof(command), "setsid sleep %s & (sleep %s &)", mark, mark);
	run_request(f, &(struct exec_request){.command = command,
			       .cwd = "",
			       .flags = EXEC_STDIN_CLOSED | EXEC_KILL_LEFTOVERS});
	CHECK(!is_running(f, mark));
}

PROMISE(a_terminal_is_one)
{
	struct outcome o;

	NEEDS_EXEC(f);
	o = run_request(f, &(struct exec_request){.command = "test -t 0 && test -t 2 && stty size",
				   .cwd = "",
				   .flags = EXEC_PTY,
				   .rows = 33,
				   .columns = 99});
	CHECK_STRING("33 99\r\n", o.out);
	CHECK_RC(0, o.end.exit_code);
}

PROMISE(a_terminal_takes_input_and_resizes)
{
	struct exec_request request = {.command = "read line; echo \"<$line>\"; stty size; cat",
		.cwd = "",
		.flags = EXEC_PTY};
	struct outcome o = {.out_size = 0};
	struct process *process = NULL;

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	CHECK_RC(0, workspace_process_resize(&f->ctx, process, 11, 22));
	CHECK_RC(3, workspace_process_write(&f->ctx, process, "hi\n", 3));
	usleep(200000);
	CHECK_RC(0, workspace_process_close_stdin(&f->ctx, process));
	CHECK_RC(0, collect(f, process, &o));
	CHECK(strstr(o.out, "<hi>\r\n11 22\r\n"));
	workspace_process_free(process);
}

static bool always(struct op_context *ctx)
{
	(void)ctx;
	return true;
}

PROMISE(an_interrupted_wait_leaves_the_command_running)
{
	struct exec_request request = {
		.command = "sleep 0.5; echo done", .cwd = "", .flags = EXEC_STDIN_CLOSED};
	struct outcome o = {.out_size = 0};
	struct process *process = NULL;
	struct exec_event event;
	char text[16];

	NEEDS_EXEC(f);
	process = start(f, &request);
	if (!process)
		return;
	f->ctx.interrupted = always;
	CHECK_RC(-EINTR, workspace_process_next(&f->ctx, process, text, sizeof(text), &event));
	f->ctx.interrupted = NULL;
	CHECK_RC(0, collect(f, process, &o));
	CHECK_STRING("done\n", o.out);
	workspace_process_free(process);
}

TEST_GROUP(exec_promises, TEST(exec_keeps_the_streams_apart), TEST(exec_reports_the_signal),
	TEST(exec_takes_an_argv_as_it_is), TEST(exec_says_why_it_cannot_start),
	TEST(exec_runs_in_the_directory), TEST(exec_sees_what_was_written_and_shows_what_it_wrote),
	TEST(exec_keeps_the_order_of_one_stream), TEST(exec_leaks_no_environment),
	TEST(exec_leaks_no_descriptor), TEST(exec_passes_stdin_on),
	TEST(a_write_to_a_command_that_does_not_read_is_epipe),
	TEST(exec_without_stdin_reads_end_of_file),
	TEST(output_of_any_size_comes_through_a_slow_reader),
	TEST(output_arrives_while_the_command_runs), TEST(a_small_buffer_loses_nothing),
	TEST(a_timeout_ends_the_whole_tree), TEST(a_timeout_kills_what_ignores_term),
	TEST(freeing_a_running_command_kills_its_tree), TEST(signals_reach_the_whole_tree),
	TEST(what_a_command_leaves_behind_does_not_hold_its_end_up),
	TEST(leftovers_are_killed_when_asked), TEST(a_terminal_is_one),
	TEST(a_terminal_takes_input_and_resizes),
	TEST(an_interrupted_wait_leaves_the_command_running));
