/*
 * tools/custom/messages.h - messages of custom tools to the agent, beside their results.
 *
 * They are kept, the oldest first, for the next result of any tool in their conversation, unless
 * custom_messages_redirect() sends each on at once.
 * Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>

/* Keeps or sends on the `message` of isthmus-tool/1 from the tool at `path`.  Returns "queued" or
 * "sent", a static string. */
const char *custom_message_keep(const char *conversation, const char *path, const cJSON *message);

/* Removes and returns the messages so far: [{text, display, custom_type}]; the caller deletes it.
 * NULL: none. */
cJSON *custom_messages_take(const char *conversation);

/* Passes each further message to `take`, which deletes it. */
void custom_messages_redirect(void (*take)(void *user, cJSON *message), void *user);
