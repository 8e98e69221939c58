/*
 * fs/commands/forward_stream.h - passes bytes between a connection here and its other half at the
 * workspace.
 */
#pragma once

struct forward_stream {
	const char *control_path; /* of the mount's daemon */
	char *request;            /* JSON; the daemon opens the other half for it */
	int fd;                   /* the connection here; -1: close the other half at once */
};

/* Passes bytes until both directions have ended.  Takes over the descriptor and `request`.  Returns
 * the error message, which the caller frees; NULL: no error. */
char *forward_stream_run(struct forward_stream *stream);
