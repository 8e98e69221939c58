/* The standard error of tools. */
#include <string.h>

#include "ops/support/log.h"
#include "ops/support/utf8.h"
#include "tools/custom/internal.h"

enum { KEPT_BYTES = 2048, LINE_MAX_BYTES = 1024 };

static void add_to_line(struct custom_errors *errors, const char *data, size_t size)
{
	size_t room = LINE_MAX_BYTES - errors->line.size;

	(void)!buffer_append(&errors->line, data, size < room ? size : room);
}

static void log_lines(struct custom_errors *errors, const char *data, size_t size)
{
	const char *end;

	while ((end = memchr(data, '\n', size))) {
		add_to_line(errors, data, (size_t)(end - data));
		if (errors->line.size)
			log_info("\"%s\": %.*s", errors->path, (int)errors->line.size,
				(const char *)errors->line.data);
		errors->line.size = 0;
		size -= (size_t)(end + 1 - data);
		data = end + 1;
	}
	add_to_line(errors, data, size);
}

void custom_errors_take(struct custom_errors *errors, const void *data, size_t size)
{
	log_lines(errors, data, size);
	(void)!buffer_append(&errors->tail, data, size);
	if (errors->tail.size > 2 * KEPT_BYTES)
		buffer_consume(&errors->tail, errors->tail.size - KEPT_BYTES);
}

void custom_errors_say(
	const struct custom_errors *errors, const char *before, struct buffer *message)
{
	const struct buffer *tail = &errors->tail;
	size_t skip = tail->size > KEPT_BYTES ? tail->size - KEPT_BYTES : 0;

	if (!tail->size)
		return;
	buffer_append_string(message, before);
	utf8_append_clean(message, tail->data + skip, tail->size - skip);
	while (message->size && strchr(" \n\r", message->data[message->size - 1]))
		message->size--;
}

void custom_errors_done(struct custom_errors *errors)
{
	buffer_done(&errors->tail);
	buffer_done(&errors->line);
}
