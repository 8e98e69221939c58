/*
 * tools/custom/lines.h - a process that speaks isthmus-tool/1: one JSON object per line.
 *
 * Each message of the process is put into the queue of the call that its id names.
 * Threads: any; a channel belongs to one thread.
 */
#pragma once

#include "tools/custom/internal.h"

/* One call's side of the conversation. */
struct custom_channel {
	struct custom_channel *next;
	char id[64];
	cJSON *queue; /* array; guarded by lines->lock, as are all fields below */

	/* Optional: called with the first result or error by the thread that reads, so that the
	 * results of several calls are handled in order. */
	void (*at_result)(void *user, const cJSON *message, bool is_error);
	void *user;
	const char *writer; /* the process, for custom_journal_add(); NULL: it ends with the call */
	bool has_result;
};

/* Starts the process.  `call` may be NULL.  0 or -errno. */
int custom_lines_start(const struct tool_session *session, const struct custom_source *source,
	const struct tool_call *call, struct custom_lines **ret_lines);

/* Ends the process with all its descendants, unless another thread is doing so.  Later messages to
 * it are lost. */
void custom_lines_end(struct custom_lines *lines, int grace_ms);

/* The same, and frees it.  NULL is fine. */
void custom_lines_stop(struct custom_lines *lines, int grace_ms);

/* Closes the process's input, so that it ends; no more can be sent. */
void custom_lines_close(struct custom_lines *lines);

bool custom_lines_ended(struct custom_lines *lines);

/* Sends a message and deletes it.  `call` NULL: the timeout is 1 s.  0 or -errno. */
int custom_lines_send(struct custom_lines *lines, struct tool_call *call, cJSON *message);

void custom_channel_open(
	struct custom_lines *lines, struct custom_channel *channel, const char *id);
void custom_channel_close(struct custom_lines *lines, struct custom_channel *channel);

/* The next message of the channel; waits at most `ms`.  The caller deletes it.  NULL: none in that
 * time, or the process has ended and there are no more. */
cJSON *custom_channel_next(struct custom_lines *lines, struct custom_channel *channel, int ms);

/* After the process has ended: appends "exit code 3" or the like, and the end of its stderr. */
void custom_lines_say_end(struct custom_lines *lines, struct buffer *message);
