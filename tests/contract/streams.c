#include "tests/contract/contract.h"

#include <stdio.h>

#include "ops/support/clock.h"
#include "ops/support/exec.h"

/* Connections of the workspace's machine: exec with EXEC_STREAM. */

#define NEEDS_STREAMS(f)                                                \
	do {                                                            \
		if (!((f)->status.capabilities & WORKSPACE_CAN_STREAM)) \
			return;                                         \
	} while (0)

static int open_stream(struct fixture *f, const char *word, const char *first, const char *second,
	struct process **ret_process)
{
	const char *const argv[] = {word, first, second, NULL};

	return workspace_exec(&f->ctx, f->w,
		&(struct exec_request){.argv = argv, .cwd = "", .flags = EXEC_STREAM}, ret_process);
}

/* The next output, as a string. */
static struct exec_event take(struct fixture *f, struct process *process, char *text, size_t size)
{
	struct exec_event event = {.type = EXEC_EXIT, .exit_code = -2};

	CHECK_RC(0, workspace_process_next(&f->ctx, process, text, size - 1, &event));
	text[event.type == EXEC_STDOUT ? event.size : 0] = '\0';
	return event;
}

/* Both ends of one connection of the workspace's machine. */
struct both_ends {
	struct process *listener, *near, *far;
	char name[32], port[64];
};

static bool open_both(struct fixture *f, struct both_ends *ends)
{
	char line[256] = "", number[32] = "";

	if (!CHECK_RC(0, open_stream(f, "listen", "0", NULL, &ends->listener)))
		return false;
	take(f, ends->listener, line, sizeof(line));
	if (!CHECK_RC(2, sscanf(line, "listening %31s %63s", ends->name, ends->port)) ||
		!CHECK_RC(0, open_stream(f, "connect", ends->port, NULL, &ends->near)))
		return false;
	take(f, ends->listener, line, sizeof(line));
	return CHECK_RC(1, sscanf(line, "connection %31s", number)) &&
	       CHECK_RC(0, open_stream(f, "accept", ends->name, number, &ends->far));
}

static void close_both(struct both_ends *ends)
{
	workspace_process_free(ends->near);
	workspace_process_free(ends->far);
	workspace_process_free(ends->listener);
	*ends = (struct both_ends){0};
}

PROMISE(a_stream_carries_both_ways_and_each_ends_by_itself)
{
	struct both_ends ends = {0};
	char text[64];

	NEEDS_STREAMS(f);
	if (open_both(f, &ends)) {
		CHECK_RC(5, workspace_process_write(&f->ctx, ends.near, "there", 5));
		CHECK_RC(0, workspace_process_close_stdin(&f->ctx, ends.near));
		CHECK_RC(EXEC_STDOUT, take(f, ends.far, text, sizeof(text)).type);
		CHECK_STRING("there", text);
		CHECK_RC(EXEC_STDOUT_END, take(f, ends.far, text, sizeof(text)).type);
		CHECK_RC(4, workspace_process_write(&f->ctx, ends.far, "back", 4));
		CHECK_RC(EXEC_STDOUT, take(f, ends.near, text, sizeof(text)).type);
		CHECK_STRING("back", text);
		CHECK_RC(0, workspace_process_close_stdin(&f->ctx, ends.far));
		CHECK_RC(0, take(f, ends.far, text, sizeof(text)).exit_code);
		CHECK_RC(EXEC_STDOUT_END, take(f, ends.near, text, sizeof(text)).type);
		CHECK_RC(0, take(f, ends.near, text, sizeof(text)).exit_code);
	}
	close_both(&ends);
}

PROMISE(a_stream_that_is_given_up_breaks)
{
	struct both_ends ends = {0};
	struct exec_event event;
	char text[64];

	NEEDS_STREAMS(f);
	if (open_both(f, &ends)) {
		workspace_process_free(ends.near);
		ends.near = NULL;
		event = take(f, ends.far, text, sizeof(text));
		CHECK_RC(EXEC_EXIT, event.type);
		CHECK_RC(1, event.exit_code);
	}
	close_both(&ends);
}

/* A far end hears that the listener is given up, and nobody waits for that. */
static int connect_until_refused(struct fixture *f, const char *port)
{
	int64_t deadline = clock_now_ms() + 10000;
	struct process *process;
	int r;

	/* While the listener closes, a connection may be made and reset. */
	while ((r = open_stream(f, "connect", port, NULL, &process)) == 0 || r == -ECONNRESET) {
		if (r == 0)
			workspace_process_free(process);
		if (clock_now_ms() > deadline)
			break;
	}
	return r;
}

PROMISE(a_stream_says_why_it_cannot_be_made)
{
	struct both_ends ends = {0};
	struct process *process = NULL;
	char port[64];

	NEEDS_STREAMS(f);
	CHECK_RC(-EINVAL, open_stream(f, "connect", NULL, NULL, &process));
	CHECK_RC(-EINVAL, open_stream(f, "connect", "box:80", NULL, &process));
	CHECK_RC(-ESRCH, open_stream(f, "accept", "1", "1", &process));
	CHECK_RC(-ENOENT, open_stream(f, "connect", "/no/such.sock", NULL, &process));
	if (open_both(f, &ends)) {
		CHECK_RC(-EADDRINUSE, open_stream(f, "listen", ends.port, NULL, &process));
		CHECK_RC(-ESRCH, open_stream(f, "accept", ends.name, "1", &process));
		snprintf(port, sizeof(port), "%s", ends.port);
		close_both(&ends);
		CHECK_RC(-ECONNREFUSED, connect_until_refused(f, port));
	}
	close_both(&ends);
}

TEST_GROUP(streams_promises, TEST(a_stream_carries_both_ways_and_each_ends_by_itself),
	TEST(a_stream_that_is_given_up_breaks), TEST(a_stream_says_why_it_cannot_be_made));
