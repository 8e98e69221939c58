#include "tools/custom/bus.h"

#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/worker_pool.h"
#include "tools/custom/hosts.h"
#include "tools/custom/messages.h"

enum { EVENTS_MAX = 1000, CHANNELS_MAX = 1000 };

struct member {
	struct member *next;
	struct custom_lines *lines;
	const char *path;   /* of the tool's file */
	char *conversation; /* guarded by lock, as is `channels` */
	cJSON *channels;    /* {CHANNEL: true} */
};

static struct {
	pthread_mutex_t lock;
	pthread_mutex_t delivering; /* taken before lock: held while an event is delivered */
	struct member *members;     /* guarded by lock */
	struct worker_pool pool;    /* one thread: pool() */
} bus = {.lock = PTHREAD_MUTEX_INITIALIZER, .delivering = PTHREAD_MUTEX_INITIALIZER};

int custom_bus_join(
	struct custom_lines *lines, const struct custom_source *source, const char *conversation)
{
	struct member *member = calloc(1, sizeof(*member));
	const cJSON *channel;

	if (!member)
		return -ENOMEM;
	*member = (struct member){.lines = lines,
		.path = source->entry.path,
		.conversation = conversation ? strdup(conversation) : NULL,
		.channels = cJSON_CreateObject()};
	/* The process will subscribe itself, but must not miss the event that it is started for. */
	cJSON_ArrayForEach(channel, source->channels) {
		if (cJSON_IsString(channel))
			cJSON_AddTrueToObject(member->channels, channel->valuestring);
	}
	pthread_mutex_lock(&bus.lock);
	member->next = bus.members;
	bus.members = member;
	pthread_mutex_unlock(&bus.lock);
	return 0;
}

/* Called with the lock held. */
static struct member *find(const struct custom_lines *lines)
{
	struct member *member = bus.members;

	while (member && member->lines != lines)
		member = member->next;
	return member;
}

void custom_bus_move(struct custom_lines *lines, const char *conversation)
{
	struct member *member;

	pthread_mutex_lock(&bus.lock);
	member = find(lines);
	free(member->conversation);
	member->conversation = conversation ? strdup(conversation) : NULL;
	pthread_mutex_unlock(&bus.lock);
}

void custom_bus_leave(struct custom_lines *lines)
{
	struct member **at, *member;

	pthread_mutex_lock(&bus.delivering);
	pthread_mutex_lock(&bus.lock);
	for (at = &bus.members; (*at)->lines != lines; at = &(*at)->next)
		;
	member = *at;
	*at = member->next;
	pthread_mutex_unlock(&bus.lock);
	pthread_mutex_unlock(&bus.delivering);
	cJSON_Delete(member->channels);
	free(member->conversation);
	free(member);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void send_event(const struct member *member, const cJSON *event)
{
	cJSON *message = cJSON_CreateObject();
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(event, "data");

	cJSON_AddStringToObject(message, "type", "event");
	cJSON_AddStringToObject(message, "channel", json_text(event, "channel"));
	if (data)
		cJSON_AddItemToObject(message, "data", cJSON_Duplicate(data, true));
	if (custom_lines_send(member->lines, NULL, message) < 0)
		log_info("\"%s\" takes no events, leaving one out", member->path);
}

/* Writes the pointer as text, which is only compared. */
static void name_lines(const struct custom_lines *lines, char name[32])
{
	snprintf(name, 32, "%p", (const void *)lines);
}

/* Delivers the event {from, channel, data} to its subscribers.  A task of the pool. */
static void deliver(void *user)
{
	cJSON *event = user;
	const char *channel = json_text(event, "channel"), *from = json_text(event, "from");
	struct member *member;

	custom_hosts_wake(channel);
	pthread_mutex_lock(&bus.delivering);
	pthread_mutex_lock(&bus.lock);
	member = bus.members;
	pthread_mutex_unlock(&bus.lock);
	/* `delivering` keeps members from leaving, and new ones are added at the head. */
	for (; member; member = member->next) {
		char name[32];
		bool wants;

		name_lines(member->lines, name);
		pthread_mutex_lock(&bus.lock);
		wants = cJSON_GetObjectItemCaseSensitive(member->channels, channel) &&
			strcmp(name, from) != 0;
		pthread_mutex_unlock(&bus.lock);
		if (wants)
			send_event(member, event);
	}
	pthread_mutex_unlock(&bus.delivering);
	cJSON_Delete(event);
}

static void begin_pool(void)
{
	worker_pool_init(&bus.pool, &(struct worker_limits){.name = "events",
					    .threads_max = 1,
					    .idle_max = 1,
					    .queue_max = EVENTS_MAX});
}

static struct worker_pool *pool(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, begin_pool);
	return &bus.pool;
}

static void take_event(const struct custom_lines *lines, const cJSON *message, const char *channel)
{
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(message, "data");
	cJSON *event = cJSON_CreateObject();
	char name[32];

	name_lines(lines, name);
	cJSON_AddStringToObject(event, "from", name);
	cJSON_AddStringToObject(event, "channel", channel);
	if (data)
		cJSON_AddItemToObject(event, "data", cJSON_Duplicate(data, true));
	if (worker_pool_submit(pool(), deliver, event))
		return;
	log_warning("there are more events than tools take, leaving one of \"%s\" out", channel);
	cJSON_Delete(event);
}

static void subscribe(struct custom_lines *lines, const char *channel, bool wants)
{
	struct member *member;

	pthread_mutex_lock(&bus.lock);
	member = find(lines);
	cJSON_DeleteItemFromObjectCaseSensitive(member->channels, channel);
	if (wants && cJSON_GetArraySize(member->channels) < CHANNELS_MAX)
		cJSON_AddTrueToObject(member->channels, channel);
	pthread_mutex_unlock(&bus.lock);
}

static void take_text(struct custom_lines *lines, const cJSON *message)
{
	const char *ask = json_text(message, "ask"), *delivered;
	const struct member *member;
	cJSON *reply;

	pthread_mutex_lock(&bus.lock);
	member = find(lines);
	delivered = custom_message_keep(member->conversation, member->path, message);
	pthread_mutex_unlock(&bus.lock);
	if (!ask)
		return;
	reply = cJSON_CreateObject();
	cJSON_AddStringToObject(reply, "type", "message_result");
	cJSON_AddStringToObject(reply, "ask", ask);
	cJSON_AddStringToObject(reply, "delivered", delivered);
	custom_lines_send(lines, NULL, reply);
}

bool custom_bus_take(struct custom_lines *lines, const cJSON *message)
{
	const char *type = json_text(message, "type"), *channel = json_text(message, "channel");

	if (!type)
		return false;
	if (strcmp(type, "message") == 0)
		take_text(lines, message);
	else if (strcmp(type, "emit") == 0 && channel)
		take_event(lines, message, channel);
	else if (strcmp(type, "subscribe") == 0 && channel)
		subscribe(lines, channel, true);
	else if (strcmp(type, "unsubscribe") == 0 && channel)
		subscribe(lines, channel, false);
	else
		return false;
	return true;
}

void custom_bus_drain(int ms)
{
	worker_pool_wait_idle(pool(), ms);
}

void custom_bus_end(void)
{
	worker_pool_done(pool());
}
