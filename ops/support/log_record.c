#include "ops/support/log_record.h"

#include <string.h>

static uint32_t bounded_length(const char *string, size_t max, bool *cut)
{
	size_t length;

	if (!string)
		return 0;
	length = strnlen(string, max);
	if (length == max)
		*cut = true;
	return (uint32_t)length + (length < max ? 1 : 0);
}

static uint8_t *copy_string(uint8_t *to, const char *string, uint32_t length)
{
	if (length == 0)
		return to;
	memcpy(to, string, length - 1);
	to[length - 1] = '\0';
	return to + length;
}

static uint32_t changed_length(struct log_record *record)
{
	uint32_t total = 0;

	for (const char *const *name = record->changed; name && *name; name++) {
		size_t length = strlen(*name) + 1;

		if (total + length > LOG_CHANGED_MAX_BYTES) {
			record->changed_truncated = true;
			break;
		}
		total += (uint32_t)length;
	}
	return total;
}

void log_record_measure(struct queued_record *queued, const char *const strings[LOG_STRINGS])
{
	static const size_t max_bytes[LOG_STRINGS] = {
		[LOG_PATH] = LOG_PATH_MAX_BYTES,
		[LOG_PATH2] = LOG_PATH_MAX_BYTES,
		[LOG_CALL] = LOG_CALL_MAX_BYTES + 1,
		[LOG_TOOL] = LOG_TOOL_MAX_BYTES + 1,
		[LOG_AGENT] = LOG_NAME_MAX_BYTES + 1,
		[LOG_USER] = LOG_NAME_MAX_BYTES + 1,
		[LOG_CONVERSATION] = LOG_NAME_MAX_BYTES + 1,
		[LOG_RESULT] = LOG_NAME_MAX_BYTES + 1,
		[LOG_DETAIL] = LOG_DETAIL_MAX_BYTES,
	};
	size_t size = sizeof(*queued);

	for (unsigned i = 0; i < LOG_STRINGS; i++) {
		queued->lengths[i] = bounded_length(strings[i], max_bytes[i], &queued->cut);
		size += queued->lengths[i];
	}
	queued->changed_length = changed_length(&queued->record);
	size += queued->changed_length;
	queued->size = (uint32_t)((size + 7) & ~(size_t)7);
}

void log_record_copy(
	uint8_t *to, const struct queued_record *queued, const char *const strings[LOG_STRINGS])
{
	uint32_t left = queued->changed_length;

	memcpy(to, queued, sizeof(*queued));
	to += sizeof(*queued);
	for (unsigned i = 0; i < LOG_STRINGS; i++)
		to = copy_string(to, strings[i], queued->lengths[i]);
	for (const char *const *name = queued->record.changed; left > 0; name++) {
		uint32_t length = (uint32_t)strlen(*name) + 1;

		to = copy_string(to, *name, length);
		left -= length;
	}
}
