#include "fs/run/report.h"

#include <errno.h>
#include <string.h>

/* Moves the first bytes of what is held to where they belong. */
static int pass_on(struct report_filter *filter, size_t size, struct buffer *out)
{
	struct buffer *to = filter->inside ? &filter->report : out;
	int r = buffer_append(to, filter->held.data, size);

	if (r == 0)
		buffer_consume(&filter->held, size);
	return filter->inside && filter->report.size > REPORT_MAX_BYTES ? -EMSGSIZE : r;
}

/* How many of the last bytes may be the beginning of the mark. */
static size_t unfinished(const struct buffer *held, const char *mark)
{
	size_t length = strlen(mark) - 1;

	for (length = length < held->size ? length : held->size; length > 0; length--)
		if (memcmp(held->data + held->size - length, mark, length) == 0)
			break;
	return length;
}

int report_filter_take(
	struct report_filter *filter, const void *data, size_t size, struct buffer *out)
{
	int r = buffer_append(&filter->held, data, size);

	while (r == 0 && filter->held.size > 0) {
		const char *mark = filter->inside ? filter->end : filter->begin;
		const uint8_t *found =
			memmem(filter->held.data, filter->held.size, mark, strlen(mark));

		if (!found || filter->is_complete)
			return pass_on(filter,
				filter->is_complete
					? filter->held.size
					: filter->held.size - unfinished(&filter->held, mark),
				out);
		r = pass_on(filter, (size_t)(found - filter->held.data), out);
		if (r < 0)
			break;
		buffer_consume(&filter->held, strlen(mark));
		filter->is_complete = filter->inside;
		filter->inside = !filter->inside;
	}
	return r;
}

int report_filter_end(struct report_filter *filter, struct buffer *out)
{
	return filter->inside ? 0 : pass_on(filter, filter->held.size, out);
}

void report_filter_done(struct report_filter *filter)
{
	buffer_done(&filter->held);
	buffer_done(&filter->report);
}
