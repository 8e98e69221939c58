/*
 * backends/remote/server/listen.h - a helper that waits for its clients: in a virtual machine,
 * where nobody can start it for each connection.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct listen_options {
	const char *address;   /* "vsock:PORT", or "unix:PATH": a character device (a port of
				* virtio-serial), else a socket to be made, of mode 0600 */
	const uint32_t *peers; /* CIDs of vsock that may connect besides the host and this ... */
	size_t peer_count;     /* ... machine itself */
};

/* Serves each connection in a process of its own, whose stdin and stdout it becomes, by `serve`.
 * Returns only when it cannot begin: what it prints then says why. */
int helper_listen(const struct listen_options *options, int (*serve)(void));
