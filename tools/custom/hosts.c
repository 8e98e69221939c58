#include "tools/custom/hosts.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "tools/custom/bus.h"
#include "tools/custom/journal.h"

enum { POLL_MS = 50, DRAIN_MS = 1000, SHUTDOWN_MS = 2000 };

struct custom_host {
	struct custom_host *next;
	const struct custom_source *source;
	struct custom_lines *lines;
	char writer[17];
	unsigned users;     /* calls that use it; guarded by hosts.lock, as are all fields below */
	unsigned busy;      /* calls that it runs */
	bool listed;        /* in hosts.list, where new calls find it */
	bool telling;       /* a thread is sending it a session message */
	bool knows;         /* it has got a session message */
	char *conversation; /* the session of that message; NULL: the one without a name */
	size_t bytes;       /* length of the journal at that message */
	const char *change; /* event in the journal that it does not know yet; static */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct custom_host *list;
	struct tool_session *session; /* of the last call */
	const struct custom_source *sources;
	size_t source_count;
} hosts = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct custom_lines *custom_host_lines(const struct custom_host *host)
{
	return host->lines;
}

/* ---- With the lock held -----------------------------------------------------------------------
 */

static void unlist(struct custom_host *host)
{
	struct custom_host **at = &hosts.list;

	if (!host->listed)
		return;
	while (*at != host)
		at = &(*at)->next;
	*at = host->next;
	host->listed = false;
}

/* Compares path and stamp, not pointers: each search makes new sources. */
static bool is_same(const struct custom_source *a, const struct custom_source *b)
{
	return strcmp(a->entry.path, b->entry.path) == 0 && strcmp(a->stamp, b->stamp) == 0;
}

static struct custom_host *find(const struct custom_source *source)
{
	struct custom_host *host = hosts.list;

	while (host && !is_same(host->source, source))
		host = host->next;
	return host;
}

static int start(const struct custom_source *source, struct tool_session *session,
	const struct tool_call *call, struct custom_host **ret_host)
{
	struct custom_host *host = calloc(1, sizeof(*host));
	uint64_t random = 0;
	int r = host ? custom_lines_start(session, source, call, &host->lines) : -ENOMEM;

	if (r < 0) {
		free(host);
		return r;
	}
	(void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
	snprintf(host->writer, sizeof(host->writer), "%016llx", (unsigned long long)random);
	host->source = source;
	host->listed = true;
	host->next = hosts.list;
	hosts.list = host;
	*ret_host = host;
	return 0;
}

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_shutdown(const char *reason)
{
	return reason && strcmp(reason, "shutdown") == 0;
}

/* The event of its session that the process does not know yet; NULL: none. */
static const char *news_of(struct custom_host *host)
{
	const char *change = custom_journal_changed(
		host->conversation, host->source, host->writer, &host->bytes);

	if (change && !is_shutdown(host->change))
		host->change = change;
	return host->change;
}

/* The reason for a session message before a call in `conversation`; NULL: none is needed. */
static const char *news_for(struct custom_host *host, const char *conversation)
{
	if (!host->knows)
		return "start";
	return same(host->conversation, conversation) ? news_of(host) : "switch";
}

/* ---- Telling --------------------------------------------------------------------------------- */

static cJSON *session_message(
	const struct custom_host *host, const char *reason, const char *conversation)
{
	cleanup_free char *previous = host->knows ? custom_journal_path(host->conversation) : NULL;
	cJSON *message = cJSON_CreateObject();

	cJSON_AddStringToObject(message, "type", "session");
	cJSON_AddStringToObject(message, "reason", reason);
	if (conversation)
		cJSON_AddStringToObject(message, "id", conversation);
	if (previous)
		cJSON_AddStringToObject(message, "previous", previous);
	return message;
}

/* Sends a session message.  Called with the lock held, which it releases.  `call` may be NULL. */
static void tell(
	struct custom_host *host, struct tool_call *call, const char *to, const char *reason)
{
	cleanup_free char *conversation = to ? strdup(to) : NULL;
	cJSON *message = session_message(host, reason, conversation);
	bool stays = host->knows && same(host->conversation, conversation);
	const char *meanwhile;

	host->telling = true;
	pthread_mutex_unlock(&hosts.lock);
	if (!stays)
		host->bytes = 0;
	meanwhile = custom_journal_changed(conversation, host->source, host->writer, &host->bytes);
	cJSON_AddItemToObject(
		message, "entries", custom_journal_entries(conversation, host->source));
	custom_bus_move(host->lines, conversation);
	/* Ignore a failure: if the process has ended, the call fails itself. */
	custom_lines_send(host->lines, call, message);
	pthread_mutex_lock(&hosts.lock);
	free(host->conversation);
	host->conversation = steal_ptr(&conversation);
	host->knows = true;
	host->change = stays && is_shutdown(meanwhile) ? meanwhile : NULL;
	host->telling = false;
	pthread_cond_broadcast(&hosts.changed);
}

/* ---- Calls ------------------------------------------------------------------------------------
 */

/* Frees the host if no call uses it and none can find it.  Called with the lock held. */
static void release(struct custom_host *host)
{
	if (host->users || host->listed)
		return;
	pthread_mutex_unlock(&hosts.lock);
	custom_lines_stop(host->lines, 0);
	free(host->conversation);
	free(host);
	pthread_mutex_lock(&hosts.lock);
}

static void say_shutdown(struct custom_host *host)
{
	cJSON *message = session_message(host, "shutdown", host->conversation);

	custom_lines_send(host->lines, NULL, message);
	custom_lines_close(host->lines);
}

/* Ends a listed host.  Called with the lock held. */
static void shut_down(struct custom_host *host, int ms)
{
	unlist(host);
	if (!host->users)
		custom_lines_end(host->lines, ms);
	release(host);
}

/* Whether the process or its session has ended.  Called with the lock held. */
static bool is_over(struct custom_host *host)
{
	return custom_lines_ended(host->lines) ||
	       (host->knows && !host->telling && is_shutdown(news_of(host)));
}

/* The listed host of the call's source, or a new one.  Called with the lock held. */
static int find_or_start(struct tool_call *call, struct custom_host **ret_host)
{
	const struct custom_source *source = custom_tool_of(call)->source;
	struct custom_host *host;

	while ((host = find(source)) && is_over(host)) {
		say_shutdown(host);
		shut_down(host, SHUTDOWN_MS);
	}
	if (!host)
		return start(source, call->session, call, ret_host);
	*ret_host = host;
	return 0;
}

/* Tells the process the session of the call.  While it runs calls of another session, waits for
 * their end.  Called with the lock held.  -EAGAIN: the session of the process is over. */
static int bring(struct custom_host *host, struct tool_call *call)
{
	while (!tool_cancelled(call)) {
		const char *reason = host->telling ? NULL : news_for(host, tool_conversation(call));

		if (is_shutdown(reason))
			return -EAGAIN;
		if (reason && !host->busy) {
			tell(host, call, tool_conversation(call), reason);
			reason = NULL;
		}
		if (!reason && !host->telling) {
			host->busy++;
			return 0;
		}
		clock_cond_wait_ms(&hosts.changed, &hosts.lock, POLL_MS);
	}
	return -ECANCELED;
}

static void put(struct custom_host *host, struct custom_channel *channel, bool is_stuck)
{
	custom_channel_close(host->lines, channel);
	if (is_stuck)
		custom_lines_end(host->lines, 0);
	pthread_mutex_lock(&hosts.lock);
	host->users--;
	if (is_stuck)
		unlist(host);
	release(host);
	pthread_cond_broadcast(&hosts.changed);
	pthread_mutex_unlock(&hosts.lock);
}

static int take(
	struct tool_call *call, struct custom_channel *channel, struct custom_host **ret_host)
{
	struct custom_host *host = NULL;
	int r;

	pthread_mutex_lock(&hosts.lock);
	r = find_or_start(call, &host);
	if (r == 0) {
		host->users++;
		/* Open the channel first: the process may ask for something at that message. */
		channel->writer = host->writer;
		custom_channel_open(host->lines, channel, call->call_id);
		r = bring(host, call);
	}
	pthread_mutex_unlock(&hosts.lock);
	if (r < 0 && host)
		put(host, channel, false);
	if (r == 0)
		*ret_host = host;
	return r;
}

void custom_hosts_begin(struct tool_session *session)
{
	pthread_mutex_lock(&hosts.lock);
	hosts.session = session;
	pthread_mutex_unlock(&hosts.lock);
}

int custom_host_take(
	struct tool_call *call, struct custom_channel *channel, struct custom_host **ret_host)
{
	int r;

	do
		r = take(call, channel, ret_host);
	while (r == -EAGAIN);
	return r;
}

void custom_host_give_back(struct custom_host *host, struct custom_channel *channel, bool is_stuck)
{
	pthread_mutex_lock(&hosts.lock);
	host->busy--;
	pthread_mutex_unlock(&hosts.lock);
	put(host, channel, is_stuck);
}

/* ---- The others -------------------------------------------------------------------------------
 */

static bool waits_for(const struct custom_source *source, const char *channel)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, source->channels) {
		if (cJSON_IsString(item) && strcmp(item->valuestring, channel) == 0)
			return source->lives;
	}
	return false;
}

void custom_hosts_wake(const char *channel)
{
	struct custom_host *host;
	int r = 0;

	pthread_mutex_lock(&hosts.lock);
	for (size_t i = 0; hosts.session && i < hosts.source_count; i++) {
		const struct custom_source *source = &hosts.sources[i];

		if (!waits_for(source, channel) || find(source))
			continue;
		r = start(source, hosts.session, NULL, &host);
		if (r < 0)
			log_warning("cannot start \"%s\" for an event: %s, leaving it out",
				source->entry.path, strerror(-r));
	}
	pthread_mutex_unlock(&hosts.lock);
}

/* Finds a host that needs a session message; returns the reason.  Called with the lock held. */
static const char *find_news(const char *former, const char *current, struct custom_host **ret_host)
{
	for (struct custom_host *host = hosts.list; host; host = host->next) {
		const char *reason = host->knows && !host->telling ? news_of(host) : NULL;

		if (host->knows && !reason && !same(former, current) &&
			same(host->conversation, former))
			reason = "switch";
		*ret_host = host;
		if (reason && (!(host->busy || host->telling) || is_shutdown(reason)))
			return reason;
	}
	return NULL;
}

void custom_hosts_catch_up(const char *former, const char *current)
{
	struct custom_host *host;
	const char *reason;

	pthread_mutex_lock(&hosts.lock);
	while ((reason = find_news(former, current, &host))) {
		if (is_shutdown(reason)) {
			say_shutdown(host);
			shut_down(host, SHUTDOWN_MS);
			continue;
		}
		host->users++;
		tell(host, NULL, strcmp(reason, "switch") == 0 ? current : host->conversation,
			reason);
		host->users--;
		release(host);
	}
	pthread_mutex_unlock(&hosts.lock);
}

static bool is_known(const struct custom_host *host)
{
	for (size_t i = 0; i < hosts.source_count; i++)
		if (hosts.sources[i].stamp && is_same(&hosts.sources[i], host->source))
			return true;
	return false;
}

/* A host whose source is not among the present ones.  Called with the lock held. */
static struct custom_host *find_unknown(void)
{
	struct custom_host *host = hosts.list;

	while (host && is_known(host))
		host = host->next;
	return host;
}

void custom_hosts_know(const struct custom_source *sources, size_t count)
{
	struct custom_host *host;

	pthread_mutex_lock(&hosts.lock);
	hosts.sources = sources;
	hosts.source_count = count;
	while ((host = find_unknown())) {
		say_shutdown(host);
		shut_down(host, SHUTDOWN_MS);
	}
	pthread_mutex_unlock(&hosts.lock);
}

void custom_hosts_stop(void)
{
	struct custom_host *host;

	custom_bus_drain(DRAIN_MS);
	pthread_mutex_lock(&hosts.lock);
	hosts.session = NULL;
	for (host = hosts.list; host; host = host->next)
		say_shutdown(host);
	for (int64_t until_ms = clock_now_ms() + SHUTDOWN_MS; (host = hosts.list);) {
		int64_t left_ms = until_ms - clock_now_ms();

		shut_down(host, left_ms > 0 ? (int)left_ms : 0);
	}
	pthread_mutex_unlock(&hosts.lock);
}
