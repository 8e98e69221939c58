/*
 * backends/remote/client/transport_socket.h - a byte stream that is a socket of this machine: how
 * virtual machines are reached.
 */
#pragma once

/* Connects to "unix:/PATH", "vsock:CID:PORT", or "hybrid:/PATH:PORT" (the socket of Firecracker and
 * Cloud Hypervisor, which is told "CONNECT PORT").  A guest that does not listen yet is tried again
 * for `patience_ms`.  The descriptor; -ENOENT, -ECONNREFUSED, -ENOTCONN (it does not listen),
 * -ENODEV (no vsock here), -EPROTO (it is no such socket), -errno. */
int transport_socket_connect(const char *address, int patience_ms);
