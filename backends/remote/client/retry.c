#include "backends/remote/client/retry.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "ops/support/cleanup.h"

int64_t retry_at_ms(const struct retry *retry)
{
	int64_t pause_ms = retry->pause_ms;

	if (retry->has_waiting && pause_ms > RETRY_WAITED_MS)
		pause_ms = RETRY_WAITED_MS;
	if (retry->is_wanted && pause_ms > RETRY_EARLY_MS)
		pause_ms = RETRY_EARLY_MS;
	return retry->began_ms + pause_ms;
}

int retry_network_open(void)
{
	const struct sockaddr_nl address = {.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE |
			     RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE};
	cleanup_fd int fd =
		socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* ENOBUFS: there were so many that some are lost. */
bool retry_network_has_changed(int fd)
{
	bool has_changed = false;
	char message[4096];

	while (fd >= 0 && (recv(fd, message, sizeof(message), 0) > 0 || errno == ENOBUFS))
		has_changed = true;
	return has_changed;
}
