/*
 * tools/custom/messages.h - what tools have for the agent beside their results.
 *
 * They wait, the oldest first, for the next result of any tool in their conversation, unless
 * somebody takes each as it comes.  Threads: any.
 */
#pragma once

#include <cjson/cJSON.h>

/* `message` of isthmus-tool/1, from the tool at `path`.  "queued", or "sent": somebody took it.
 * Static. */
const char *custom_message_keep(const char *conversation, const char *path, const cJSON *message);

/* The messages so far, once: [{text, display, custom_type}]; NULL: none.  The caller deletes it. */
cJSON *custom_messages_take(const char *conversation);

/* Has each go to `take` instead, which deletes it. */
void custom_messages_redirect(void (*take)(void *user, cJSON *message), void *user);
