/*
 * tools/custom/lines.h - a process that speaks isthmus-tool/1: one JSON object a line.
 *
 * What it writes is sorted by the id of the call that it is about, into that call's queue.
 * Threads: any; a channel belongs to one thread.
 */
#pragma once

#include "tools/custom/internal.h"

/* One call's side of the conversation. */
struct custom_channel {
	struct custom_channel *next;
	char id[64];
	cJSON *queue; /* array; guarded by lines->lock, as what follows */

	/* Optional: called with the first result or error, by the thread that reads, so that those
	 * of several calls come in their order. */
	void (*at_result)(void *user, const cJSON *message, bool is_error);
	void *user;
	const char
		*writer; /* the process that knows of them already; NULL: it ends with the call */
	bool has_result;
};

/* Starts the process.  `call` may be NULL.  0 or -errno. */
int custom_lines_start(const struct tool_session *session, const struct custom_source *source,
	const struct tool_call *call, struct custom_lines **ret_lines);

/* Ends it with its whole tree, unless another thread does; what is sent from then on is lost. */
void custom_lines_end(struct custom_lines *lines, int grace_ms);

/* The same, and frees.  NULL is fine. */
void custom_lines_stop(struct custom_lines *lines, int grace_ms);

/* Has it end: no more is sent. */
void custom_lines_close(struct custom_lines *lines);

bool custom_lines_ended(struct custom_lines *lines);

/* Sends one message, which is deleted; without `call` it has a second.  0 or -errno. */
int custom_lines_send(struct custom_lines *lines, struct tool_call *call, cJSON *message);

void custom_channel_open(
	struct custom_lines *lines, struct custom_channel *channel, const char *id);
void custom_channel_close(struct custom_lines *lines, struct custom_channel *channel);

/* The next message about it, `ms` at most; the caller deletes it.  NULL: none so far, or the
 * process ended and all was given. */
cJSON *custom_channel_next(struct custom_lines *lines, struct custom_channel *channel, int ms);

/* Once it has ended: "exit code 3", with what it wrote to stderr at last. */
void custom_lines_say_end(struct custom_lines *lines, struct buffer *words);
