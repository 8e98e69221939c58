/* The content of files that were made or truncated here: extents of the journal. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

/* ---- Content in the journal --------------------------- */

/* The first extent that ends after `offset`. */
static size_t find_extent(const struct node *node, uint64_t offset)
{
	size_t low = 0, high = node->extent_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (node->extents[middle].offset + node->extents[middle].size <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int reserve_extents(struct node *node, size_t count)
{
	size_t room = node->extent_room ? node->extent_room : 2;
	struct extent *extents;

	while (room < count)
		room *= 2;
	if (room == node->extent_room)
		return 0;
	extents = realloc(node->extents, room * sizeof(*extents));
	if (!extents)
		return -ENOMEM;
	node->extents = extents;
	node->extent_room = room;
	return 0;
}

/* Makes room for [offset, offset + size); what was there is cut away. */
static void punch(struct node *node, uint64_t offset, uint64_t size)
{
	uint64_t end = offset + size;
	size_t i = find_extent(node, offset), last;

	if (i < node->extent_count && node->extents[i].offset < offset) {
		struct extent *extent = &node->extents[i];
		uint64_t extent_end = extent->offset + extent->size;

		extent->size = offset - extent->offset;
		i++;
		if (extent_end > end) { /* it is on both sides */
			memmove(extent + 2, extent + 1, (node->extent_count - i) * sizeof(*extent));
			extent[1] = (struct extent){.offset = end,
				.size = extent_end - end,
				.at = extent->at + (end - extent->offset)};
			node->extent_count++;
			return;
		}
	}
	for (last = i; last < node->extent_count &&
		       node->extents[last].offset + node->extents[last].size <= end;)
		last++;
	memmove(&node->extents[i], &node->extents[last],
		(node->extent_count - last) * sizeof(*node->extents));
	node->extent_count -= last - i;
	if (i < node->extent_count && node->extents[i].offset < end) {
		uint64_t cut = end - node->extents[i].offset;

		node->extents[i].offset += cut;
		node->extents[i].at += cut;
		node->extents[i].size -= cut;
	}
}

int back_content_write(
	struct writeback *b, struct node *node, uint64_t at, size_t size, uint64_t offset)
{
	size_t i;
	int r = reserve_extents(node, node->extent_count + 2);

	if (r < 0 || !size)
		return r;
	punch(node, offset, size);
	i = find_extent(node, offset);
	memmove(&node->extents[i + 1], &node->extents[i],
		(node->extent_count - i) * sizeof(*node->extents));
	node->extents[i] = (struct extent){.offset = offset, .size = size, .at = at};
	node->extent_count++;
	node->bytes += size;
	b->bytes += size;
	return 0;
}

void back_content_written(struct node *node, uint64_t end, const struct timespec *mtime)
{
	if (end > node->shown.size_bytes)
		node->shown.size_bytes = end;
	node->shown.blocks = (node->shown.size_bytes + 511) / 512;
	node->shown.mtime = node->shown.ctime = *mtime;
	node->content->facts.mask &= ~(unsigned)SET_MTIME;
}

void back_content_cut(struct node *node, uint64_t size)
{
	size_t i = find_extent(node, size);

	if (i < node->extent_count && node->extents[i].offset < size) {
		node->extents[i].size = size - node->extents[i].offset;
		i++;
	}
	node->extent_count = i;
}

void back_content_drop(struct writeback *b, struct node *node)
{
	b->bytes -= node->bytes;
	node->bytes = 0;
	free(node->extents);
	node->extents = NULL;
	node->extent_count = node->extent_room = 0;
	node->is_whole = false;
}

/* The pieces of the range, taken under the lock; those of the journal are read without it.
 * -EAGAIN: the content is not here any more. */
static ssize_t take_extents(struct writeback *b, struct node *node, uint64_t offset, size_t size,
	struct extent **ret_extents, size_t *ret_count)
{
	uint64_t end = offset + size;
	size_t first = find_extent(node, offset), count = 0;

	if (!node->is_whole)
		return -EAGAIN;
	if (offset >= node->shown.size_bytes)
		return 0;
	if (end > node->shown.size_bytes)
		end = node->shown.size_bytes;
	while (first + count < node->extent_count && node->extents[first + count].offset < end)
		count++;
	*ret_extents = malloc((count + 1) * sizeof(**ret_extents));
	if (!*ret_extents)
		return -ENOMEM;
	memcpy(*ret_extents, &node->extents[first], count * sizeof(**ret_extents));
	*ret_count = count;
	b->journal.reading++;
	return (ssize_t)(end - offset);
}

static int read_piece(
	struct writeback *b, const struct extent *extent, char *data, size_t size, uint64_t offset)
{
	uint64_t from = extent->offset > offset ? extent->offset : offset;
	uint64_t end = extent->offset + extent->size;
	size_t want;

	if (end > offset + size)
		end = offset + size;
	for (; from < end; from += want) {
		ssize_t got = pread(b->journal.fd, data + (from - offset), (size_t)(end - from),
			(off_t)(extent->at + (from - extent->offset)));

		if (got < 0 && errno == EINTR)
			got = 0;
		else if (got <= 0)
			return -EIO;
		want = (size_t)got;
	}
	return 0;
}

ssize_t back_content_read(
	struct writeback *b, struct node *node, void *data, size_t size, uint64_t offset)
{
	cleanup_free struct extent *extents = NULL;
	size_t count = 0;
	ssize_t got;
	int r = 0;

	writeback_lock(b);
	got = take_extents(b, node, offset, size, &extents, &count);
	writeback_unlock(b);
	if (got <= 0)
		return got;
	memset(data, 0, (size_t)got);
	for (size_t i = 0; i < count && r == 0; i++)
		r = read_piece(b, &extents[i], data, (size_t)got, offset);
	writeback_lock(b);
	b->journal.reading--;
	back_journal_clear(b);
	writeback_unlock(b);
	return r < 0 ? r : got;
}
