#include "ops/support/excerpt.h"

#include <errno.h>
#include <string.h>

enum { NUMBER_MAX_DIGITS = 18 };

static const uint8_t *behind_line(const uint8_t *at, const uint8_t *end)
{
	const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));

	return newline ? newline + 1 : end;
}

/* Where the line begins that the byte in front of `at` belongs to, or is in front of. */
static const uint8_t *line_before(const uint8_t *start, const uint8_t *at)
{
	const uint8_t *newline = memrchr(start, '\n', (size_t)(at - start));

	return newline ? newline + 1 : start;
}

struct making {
	const uint8_t *counted; /* line `number` begins here */
	uint64_t number;
	const uint8_t *from, *to; /* the block so far; NULL: none */
	size_t max;
	struct buffer *out;
};

static int put_block(struct making *making)
{
	size_t size = (size_t)(making->to - making->from);

	if (!making->from)
		return 0;
	for (; making->counted < making->from; making->counted++)
		making->number += *making->counted == '\n';
	if (buffer_printf(making->out, "%llu %zu\n", (unsigned long long)making->number, size) < 0)
		return -ENOMEM;
	if (making->out->size + size > making->max)
		return -E2BIG;
	return buffer_append(making->out, making->from, size);
}

/* Goes on with the block, up to `end` at most. */
static void extend(struct making *making, unsigned lines, const uint8_t *end)
{
	while (making->from && lines-- && making->to < end)
		making->to = behind_line(making->to, end);
}

/* No byte is walked over more than a few times, however many lines match: the block in front takes
 * its context only when it is known where the next line begins. */
int excerpt_make(const struct literals *texts, unsigned context, const uint8_t *content,
	size_t size, size_t max, struct buffer *out)
{
	struct making making = {
		.counted = content, .number = 1, .to = content, .max = out->size + max, .out = out};
	const uint8_t *at = content, *end = content + size, *match;
	struct literal_scan scan = {0};
	int r = 0;

	while (r == 0 && (match = literals_find(texts, &scan, at, end))) {
		const uint8_t *from = line_before(at, match);

		extend(&making, context, from);
		for (unsigned i = 0; i < context && from > making.to; i++)
			from = line_before(making.to, from - 1);
		if (!making.from || from > making.to) {
			r = put_block(&making);
			making.from = from;
		}
		at = making.to = behind_line(match, end);
		if ((size_t)(making.to - making.from) > max)
			r = -E2BIG;
	}
	extend(&making, context, end);
	return r < 0 ? r : put_block(&making);
}

/* A number that ends in `stop`, which is passed. */
static bool take_number(const uint8_t **at, const uint8_t *end, char stop, uint64_t *ret_number)
{
	const uint8_t *first = *at;
	uint64_t number = 0;

	while (*at < end && **at >= '0' && **at <= '9' && *at - first < NUMBER_MAX_DIGITS)
		number = number * 10 + (uint64_t)(*(*at)++ - '0');
	if (*at == first || *at == end || **at != (uint8_t)stop)
		return false;
	++*at;
	*ret_number = number;
	return true;
}

bool excerpt_next(const uint8_t **at, const uint8_t *end, struct excerpt_block *ret_block)
{
	uint64_t line, size;

	if (!take_number(at, end, ' ', &line) || !take_number(at, end, '\n', &size) || !line ||
		!size || size > (uint64_t)(end - *at))
		return false;
	*ret_block = (struct excerpt_block){.line = line, .bytes = *at, .size = (size_t)size};
	*at += size;
	return true;
}
