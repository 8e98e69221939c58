/*
 * backends/remote/client/transport.h - a byte stream to a far end: a child process of ours, or a
 * socket.
 *
 * Threads: one at a time per stream, except stream_stderr().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transport {
	char **argv;      /* NULL-terminated; NULL: `address` */
	char *address;    /* of a socket (transport_socket.h), which leads to a helper; or NULL */
	int connect_ms;   /* how long to try for one that is not served yet */
	bool gives_shell; /* the stream starts at a POSIX shell that runs its first line: the
			   * helper is found or uploaded there.  Else it is the helper's own. */
	bool ends_with_thread; /* the child is told to end when the thread that opened the stream
				* does, however it does */
	bool may_prompt;       /* the child may ask for a passphrase on our terminal */
	size_t share_index;    /* not 0: argv[share_index] is "-T" of ssh (transport_share) */
	size_t quiet_index;    /* not 0: argv[quiet_index] is "-T" of ssh (transport_ask_nothing) */
	int patience_ms;       /* not 0: instead of the usual (transport_patience_ms) */
	char *name;            /* for messages: "box" */
};

struct stream {
	int in_fd, out_fd;   /* -1 once somebody else owns them */
	struct child *child; /* NULL: a socket ... */
	int socket_fd;       /* ... which this is one more descriptor of; else -1 */
};

#define STREAM_NONE ((struct stream){.in_fd = -1, .out_fd = -1, .socket_fd = -1})

/* Whether the next ssh may go through a connection that the user's configuration shares
 * (ControlMaster).  That one may be the one that is dead. */
int transport_share(struct transport *transport, bool may_share);

/* From now on the child asks nothing.  Without a terminal, ssh would send empty passwords, for
 * which some hosts lock an address out.  -ENOMEM. */
int transport_ask_nothing(struct transport *transport);

/* How long the far end may take to answer; somebody who is asked takes their time. */
int transport_patience_ms(const struct transport *transport);

/* Until a deadline (clock_now_ms()); 0 when it has passed. */
int transport_left_ms(int64_t deadline_ms);

/* -ENOMEM. */
int transport_copy(const struct transport *transport, struct transport *ret_copy);
void transport_done(struct transport *transport); /* frees what it owns; zeroed is fine */

/* Starts the child, or connects.  -errno. */
int stream_open(const struct transport *transport, struct stream *ret_stream);

/* Closes what is still ours, ends the child and waits for it. */
void stream_close(struct stream *stream);

/* Ends the child at once: whoever reads from the stream sees its end.  From any thread. */
void stream_interrupt(struct stream *stream);

/* Of a child: what it said on stderr so far, the last 4 KiB, without "\r" and the newlines at the
 * end; waits up to `wait_ms` for its end.  The caller frees; NULL when there is no memory. */
char *stream_stderr(struct stream *stream, int wait_ms);

/* How the child ended, whose stderr is at its end: "the command ended with exit code 1".  The
 * caller frees; NULL: it runs, there is none, or no memory. */
char *stream_end(const struct stream *stream);

/* Writes everything; `stall_ms` without progress is -ETIMEDOUT.  -EPIPE, -errno. */
int stream_write(int fd, const void *data, size_t size, int stall_ms);
