/*
 * ops/support/socket_stream.h - connections of this machine, as "commands" without a program: what
 * goes to stdin is sent, what is received is stdout, and each direction ends by itself.
 *
 *   {"connect", ENDPOINT}               a connection to it
 *   {"listen", ENDPOINT}                listens; stdout has the lines "listening LISTENER
 * ENDPOINT", then "connection NUMBER" for each connection
 *   {"accept", LISTENER, NUMBER}        that connection; once
 *
 * At most 128 connections of a listener wait to be accepted; further ones stay in the kernel.
 * The exit code is 0 when all that the other end sent has come, 1 when the connection broke before.
 * Threads: as of ops/support/process.h.
 */
#pragma once

#include "ops/support/process.h"

struct socket_stream;

/* -ECONNREFUSED, -ETIMEDOUT, -EADDRINUSE, -ENOENT (no such socket), -ESRCH (no such listener or
 * connection), -EINVAL, -EINTR, -errno. */
int socket_stream_open(const char *const *argv, struct command_interrupt interrupt,
	struct socket_stream **ret_stream);

/* As those of a command.  A connection also has EXEC_STDOUT_END. */
int socket_stream_next(struct socket_stream *stream, struct command_interrupt interrupt,
	void *buffer, size_t size, struct exec_event *ret_event);
ssize_t socket_stream_write(struct socket_stream *stream, struct command_interrupt interrupt,
	const void *data, size_t size);
int socket_stream_close_input(struct socket_stream *stream);

/* A connection that has not ended is reset.  NULL is fine. */
void socket_stream_free(struct socket_stream *stream);
