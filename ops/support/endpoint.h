/*
 * ops/support/endpoint.h - where a stream of bytes can lead: a TCP port or a unix socket.
 *
 * As text: "3000" (of the loopback, 127.0.0.1 and ::1), "10.0.0.5:3000", "[fe80::1]:3000",
 * "localhost:3000" (as "3000"), "/run/app.sock".  Names of hosts are not looked up.
 * Threads: any.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "ops/support/process.h"

struct endpoint {
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* of a unix socket; "": TCP */
	char address[INET6_ADDRSTRLEN]; /* numeric; "": the loopback, by both protocols */
	uint16_t port;
};

enum { ENDPOINT_TEXT_BYTES = 128, ENDPOINT_LISTENERS_MAX = 2 };

/* 0, -EINVAL, -ENAMETOOLONG. */
int endpoint_parse(const char *text, struct endpoint *ret_endpoint);

/* "[LISTEN:]TARGET"; a target alone that is a port is listened at by the same number, on the
 * loopback. -EINVAL, -ENAMETOOLONG, -EDESTADDRREQ: a path alone. */
int endpoint_parse_pair(const char *text, struct endpoint *ret_listen, struct endpoint *ret_target);

void endpoint_text(const struct endpoint *endpoint, char ret_text[ENDPOINT_TEXT_BYTES]);

/* A connection, non-blocking, after at most 10 s; on the loopback by the first protocol on which
 * something listens.  -ECONNREFUSED, -ENOENT, -ETIMEDOUT, -EINTR, -errno. */
int endpoint_connect(const struct endpoint *endpoint, struct command_interrupt interrupt);

/* Listens, non-blocking: on the loopback by both protocols where there are both.  Port 0 becomes
 * one that is free.  A unix socket is 0600, and replaces one that is not served.  Returns the
 * number of descriptors, -EADDRINUSE, -errno. */
int endpoint_listen(struct endpoint *endpoint, int ret_fds[ENDPOINT_LISTENERS_MAX]);

/* Closes the first `count`, and removes the unix socket. */
void endpoint_unlisten(const struct endpoint *endpoint, const int *fds, int count);

/* For a new connection: small pieces leave at once. */
void endpoint_no_delay(int fd);

/* The other end learns that the stream broke off: closes with a reset where there is one. */
void endpoint_reset(int fd);
