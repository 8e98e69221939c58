/*
 * tools/web/address.h - addresses that a page on the Internet has no business to name.
 *
 * This machine, private and link-local networks, multicast, documentation and benchmark ranges
 * (RFC 6890 and its successors), also inside of IPv6 addresses that carry an IPv4 one.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* False for anything but IPv4 and IPv6. */
bool address_is_public(const struct sockaddr *address);
