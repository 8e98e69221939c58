#include "tools/custom/messages.h"

#include <pthread.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/path.h"
#include "ops/support/utf8.h"

enum { MESSAGES_MAX = 100, TEXT_MAX_BYTES = 8192 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cJSON *waiting; /* {CONVERSATION: [message]}; guarded by lock, as are the next two */
static void (*redirected)(void *user, cJSON *message);
static void *redirected_user;

static void add_text(struct buffer *text, const cJSON *content)
{
	const cJSON *block;

	if (cJSON_IsString(content))
		buffer_append_string(text, content->valuestring);
	cJSON_ArrayForEach(block, content) {
		const char *part = json_text(block, "text");

		if (part)
			buffer_printf(text, "%s%s", text->size ? "\n" : "", part);
	}
}

/* Adds the name of the tool, so that a message cannot pretend to be from the user or isthmus. */
static cJSON *make_message(const char *path, const cJSON *message)
{
	const char *name = path_name(path), *type = json_text(message, "custom_type");
	struct buffer content cleanup_buffer = {0}, text cleanup_buffer = {0};
	cJSON *made = cJSON_CreateObject();

	add_text(&content, cJSON_GetObjectItemCaseSensitive(message, "content"));
	if (content.size > TEXT_MAX_BYTES)
		content.size = TEXT_MAX_BYTES;
	buffer_printf(&text, "[message from %.*s] ", (int)strcspn(name, "."), name);
	utf8_append_clean(&text, content.data, content.size);
	buffer_append(&text, "", 1);
	cJSON_AddStringToObject(made, "text", text.data ? (const char *)text.data : "");
	cJSON_AddStringToObject(made, "custom_type", type ? type : "");
	cJSON_AddBoolToObject(made, "display",
		!cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(message, "display")));
	return made;
}

const char *custom_message_keep(const char *conversation, const char *path, const cJSON *message)
{
	const char *key = conversation ? conversation : "";
	cJSON *made = make_message(path, message), *list;

	pthread_mutex_lock(&lock);
	if (redirected) {
		redirected(redirected_user, made);
		pthread_mutex_unlock(&lock);
		return "sent";
	}
	if (!waiting)
		waiting = cJSON_CreateObject();
	list = cJSON_GetObjectItemCaseSensitive(waiting, key);
	if (!list)
		list = cJSON_AddArrayToObject(waiting, key);
	cJSON_AddItemToArray(list, made);
	if (cJSON_GetArraySize(list) > MESSAGES_MAX) {
		cJSON_DeleteItemFromArray(list, 0);
		log_warning("tools say more than the agent asks for, leaving the oldest message "
			    "out");
	}
	pthread_mutex_unlock(&lock);
	return "queued";
}

cJSON *custom_messages_take(const char *conversation)
{
	cJSON *list;

	pthread_mutex_lock(&lock);
	list = cJSON_DetachItemFromObjectCaseSensitive(waiting, conversation ? conversation : "");
	pthread_mutex_unlock(&lock);
	return list;
}

void custom_messages_redirect(void (*take)(void *user, cJSON *message), void *user)
{
	pthread_mutex_lock(&lock);
	redirected = take;
	redirected_user = user;
	pthread_mutex_unlock(&lock);
}
