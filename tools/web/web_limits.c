#include "tools/web/web_limits.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/cleanup.h"

enum { AT_ONCE = 4, PER_MINUTE = 10, HOSTS_MAX = 256, MINUTE_MS = 60000, LOOK_MS = 50 };

struct host {
	char *name;
	int64_t times_ms[PER_MINUTE]; /* of the last requests; a ring */
	unsigned next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host hosts[HOSTS_MAX]; /* guarded by lock */
static unsigned running;             /* guarded by lock */

/* The entry of that host, else the least recently used one. */
static struct host *find_host(const char *name)
{
	struct host *oldest = &hosts[0];

	for (size_t i = 0; i < HOSTS_MAX; i++) {
		struct host *host = &hosts[i];
		unsigned last = (host->next + PER_MINUTE - 1) % PER_MINUTE;

		if (host->name && strcmp(host->name, name) == 0)
			return host;
		if (!host->name ||
			host->times_ms[last] <
				oldest->times_ms[(oldest->next + PER_MINUTE - 1) % PER_MINUTE])
			oldest = host;
		if (!host->name)
			break;
	}
	free(oldest->name);
	*oldest = (struct host){.name = strdup(name)};
	return oldest->name ? oldest : NULL;
}

/* Counts a request.  0; -EAGAIN: too many, wait for `*ret_wait_s`; -ENOMEM.  Called with the lock
 * held. */
static int count_request(const char *name, unsigned *ret_wait_s)
{
	struct host *host = find_host(name);
	int64_t now_ms = clock_now_ms(), earliest_ms;

	if (!host)
		return -ENOMEM;
	earliest_ms = host->times_ms[host->next];
	if (earliest_ms && now_ms - earliest_ms < MINUTE_MS) {
		*ret_wait_s = (unsigned)((MINUTE_MS - (now_ms - earliest_ms)) / 1000 + 1);
		return -EAGAIN;
	}
	host->times_ms[host->next] = now_ms;
	host->next = (host->next + 1) % PER_MINUTE;
	return 0;
}

int web_limit_enter(struct tool_call *call, const char *host, const char *what)
{
	const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
	unsigned wait_s = 0;
	int r = 0;

	pthread_mutex_lock(&lock);
	while (running >= AT_ONCE && r == 0) {
		pthread_mutex_unlock(&lock);
		nanosleep(&look, NULL);
		r = tool_cancelled(call) ? -ECANCELED : 0;
		pthread_mutex_lock(&lock);
	}
	if (r == 0)
		r = count_request(host, &wait_s);
	if (r == 0)
		running++;
	pthread_mutex_unlock(&lock);
	if (r == -EAGAIN)
		return tool_fail(call, TOOL_RATE_LIMITED, NULL,
			"%s was asked %d times within a minute, which is the limit; it can be "
			"asked "
			"again in %u s.",
			host, PER_MINUTE, wait_s);
	return r < 0 ? tool_fail_errno(call, r, what, NULL) : 0;
}

void web_limit_leave(void)
{
	pthread_mutex_lock(&lock);
	running--;
	pthread_mutex_unlock(&lock);
}
