/* When a lost connection is tried again. */
#include "backends/remote/client/retry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/check.h"

static void test_nobody_needs_the_far_end(void)
{
	CHECK_RC(15000, retry_at_ms(&(struct retry){.began_ms = 5000, .pause_ms = 10000}));
}

static void test_a_call_that_waits_waits_two_seconds_at_most(void)
{
	struct retry retry = {.began_ms = 5000, .pause_ms = 10000, .has_waiting = true};

	CHECK_RC(7000, retry_at_ms(&retry));
	retry.pause_ms = 300;
	CHECK_RC(5300, retry_at_ms(&retry));
}

static void test_a_call_that_is_made_ends_the_pause(void)
{
	struct retry retry = {.began_ms = 5000, .pause_ms = 10000, .is_wanted = true};

	CHECK_RC(5200, retry_at_ms(&retry));
	retry.pause_ms = 100;
	CHECK_RC(5100, retry_at_ms(&retry));
}

static int bring_loopback_up(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	r = fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &request);
	if (fd >= 0)
		close(fd);
	return r;
}

static void test_a_change_of_the_network_is_noticed(void)
{
	int fd;

	if (unshare(CLONE_NEWNET) < 0)
		return; /* only root has a network of its own */
	fd = retry_network_open();
	CHECK(fd >= 0);
	CHECK(!retry_network_has_changed(fd));
	CHECK_RC(0, bring_loopback_up());
	CHECK(retry_network_has_changed(fd));
	CHECK(!retry_network_has_changed(fd));
	CHECK(!retry_network_has_changed(-1));
	close(fd);
}

TEST_MAIN("retry", TEST(test_nobody_needs_the_far_end),
	TEST(test_a_call_that_waits_waits_two_seconds_at_most),
	TEST(test_a_call_that_is_made_ends_the_pause),
	TEST(test_a_change_of_the_network_is_noticed))
