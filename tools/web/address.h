/*
 * tools/web/address.h - decides which addresses web tools may connect to.
 *
 * Not public: this machine, private and link-local networks, multicast, documentation and benchmark
 * ranges (RFC 6890 and its successors), and IPv6 addresses that contain such an IPv4 address.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* False also for address families other than IPv4 and IPv6. */
bool address_is_public(const struct sockaddr *address);

/* Whether the host of a URL, as a number or "localhost", is not public.  False for other names:
 * they are not looked up. */
bool address_host_is_private(const char *host);
