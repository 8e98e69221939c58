/*
 * fs/commands/forward_stream.h - one connection here and its other half at the workspace.
 */
#pragma once

struct forward_stream {
	const char *control_path; /* of the mount's daemon */
	char *request;            /* JSON that makes the other half */
	int fd;                   /* here, non-blocking or not; -1: the other half is to break */
};

/* Passes bytes both ways until both directions have ended; takes over the descriptor and
 * `request`.  The message of a failure, which the caller frees; NULL: none. */
char *forward_stream_run(struct forward_stream *stream);
