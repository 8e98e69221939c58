/* The content of files that were made or truncated here: extents of the journal. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

enum { BLOCK_BYTES = 4096 };

/* ---- Content in the journal --------------------------- */

/* The first extent that ends after `offset`. */
static size_t find_extent(const struct content *content, uint64_t offset)
{
	size_t low = 0, high = content->extent_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (content->extents[middle].offset + content->extents[middle].size <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int reserve_extents(struct content *content, size_t count)
{
	size_t room = content->extent_room ? content->extent_room : 2;
	struct extent *extents;

	while (room < count)
		room *= 2;
	if (room == content->extent_room)
		return 0;
	extents = realloc(content->extents, room * sizeof(*extents));
	if (!extents)
		return -ENOMEM;
	content->extents = extents;
	content->extent_room = room;
	return 0;
}

/* Makes room for [offset, offset + size); what was there is cut away. */
static void punch(struct content *content, uint64_t offset, uint64_t size)
{
	uint64_t end = offset + size;
	size_t i = find_extent(content, offset), last;

	if (i < content->extent_count && content->extents[i].offset < offset) {
		struct extent *extent = &content->extents[i];
		uint64_t extent_end = extent->offset + extent->size;

		extent->size = offset - extent->offset;
		i++;
		if (extent_end > end) { /* it is on both sides */
			memmove(extent + 2, extent + 1,
				(content->extent_count - i) * sizeof(*extent));
			extent[1] = (struct extent){.offset = end,
				.size = extent_end - end,
				.at = extent->at + (end - extent->offset)};
			content->extent_count++;
			return;
		}
	}
	for (last = i; last < content->extent_count &&
		       content->extents[last].offset + content->extents[last].size <= end;)
		last++;
	memmove(&content->extents[i], &content->extents[last],
		(content->extent_count - last) * sizeof(*content->extents));
	content->extent_count -= last - i;
	if (i < content->extent_count && content->extents[i].offset < end) {
		uint64_t cut = end - content->extents[i].offset;

		content->extents[i].offset += cut;
		content->extents[i].at += cut;
		content->extents[i].size -= cut;
	}
}

int back_content_write(
	struct writeback *b, struct content *content, uint64_t at, size_t size, uint64_t offset)
{
	size_t i;
	int r = reserve_extents(content, content->extent_count + 2);

	if (r < 0 || !size)
		return r;
	punch(content, offset, size);
	i = find_extent(content, offset);
	memmove(&content->extents[i + 1], &content->extents[i],
		(content->extent_count - i) * sizeof(*content->extents));
	content->extents[i] = (struct extent){.offset = offset, .size = size, .at = at};
	content->extent_count++;
	content->bytes += size;
	b->bytes += size;
	return 0;
}

/* The hole between the extent before the one with this index and that one, or the end of the file:
 * whole blocks, as file systems have. */
static bool find_hole_before(const struct content *content, size_t i, uint64_t end_of_file,
	uint64_t *ret_start, uint64_t *ret_end)
{
	const struct extent *before = i ? &content->extents[i - 1] : NULL;
	uint64_t start = before ? before->offset + before->size : 0, end = end_of_file;

	start = (start + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
	if (i < content->extent_count)
		end = content->extents[i].offset / BLOCK_BYTES * BLOCK_BYTES;
	*ret_start = start;
	*ret_end = end;
	return start < end;
}

uint64_t back_content_seek(
	const struct content *content, uint64_t end_of_file, uint64_t offset, bool hole)
{
	uint64_t start, end;

	for (size_t i = find_extent(content, offset); i <= content->extent_count; i++) {
		if (!find_hole_before(content, i, end_of_file, &start, &end) || end <= offset)
			continue;
		if (hole)
			return start > offset ? start : offset;
		if (start > offset)
			break;
		offset = end;
	}
	return hole ? end_of_file : offset;
}

uint64_t back_content_blocks(const struct content *content, uint64_t end_of_file)
{
	uint64_t bytes = end_of_file, start, end;

	for (size_t i = 0; i <= content->extent_count; i++)
		if (find_hole_before(content, i, end_of_file, &start, &end))
			bytes -= end - start;
	return (bytes + 511) / 512;
}

void back_content_written(struct node *node, uint64_t end, const struct timespec *mtime)
{
	if (end > node->shown.size_bytes)
		node->shown.size_bytes = end;
	node->shown.blocks = back_content_blocks(node->data, node->shown.size_bytes);
	node->shown.mtime = node->shown.ctime = *mtime;
	node->content->facts.mask &= ~(unsigned)SET_MTIME;
}

void back_content_cut(struct content *content, uint64_t size)
{
	size_t i = find_extent(content, size);

	if (i < content->extent_count && content->extents[i].offset < size) {
		content->extents[i].size = size - content->extents[i].offset;
		i++;
	}
	content->extent_count = i;
}

struct content *back_content_new(struct writeback *b, const struct content *former)
{
	struct content *content = calloc(1, sizeof(*content));

	if (!content || !former || !former->extent_count) {
		if (content)
			content->refs = 1;
		return content;
	}
	if (reserve_extents(content, former->extent_count) < 0) {
		free(content);
		return NULL;
	}
	content->refs = 1;
	content->extent_count = former->extent_count;
	memcpy(content->extents, former->extents, former->extent_count * sizeof(*former->extents));
	for (size_t i = 0; i < content->extent_count; i++)
		content->bytes += content->extents[i].size;
	b->bytes += content->bytes;
	return content;
}

void back_content_unref(struct writeback *b, struct content *content)
{
	if (!content || --content->refs)
		return;
	b->bytes -= content->bytes;
	free(content->extents);
	free(content);
}

void back_content_drop(struct writeback *b, struct node *node)
{
	back_content_unref(b, node->data);
	node->data = NULL;
}

/* The pieces of the range of a file with `end_of_file` bytes, taken under the lock; those of the
 * journal are read without it. */
static ssize_t take_extents(struct writeback *b, const struct content *content,
	uint64_t end_of_file, uint64_t offset, size_t size, struct extent **ret_extents,
	size_t *ret_count)
{
	uint64_t end = offset + size;
	size_t first = find_extent(content, offset), count = 0;

	if (offset >= end_of_file)
		return 0;
	if (end > end_of_file)
		end = end_of_file;
	while (first + count < content->extent_count &&
		content->extents[first + count].offset < end)
		count++;
	*ret_extents = malloc((count + 1) * sizeof(**ret_extents));
	if (!*ret_extents)
		return -ENOMEM;
	memcpy(*ret_extents, &content->extents[first], count * sizeof(**ret_extents));
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

/* Gets the lock, and releases it. */
static ssize_t read_content(struct writeback *b, const struct content *content,
	uint64_t end_of_file, void *data, size_t size, uint64_t offset)
{
	cleanup_free struct extent *extents = NULL;
	size_t count = 0;
	ssize_t got = take_extents(b, content, end_of_file, offset, size, &extents, &count);
	int r = 0;

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

ssize_t back_content_read(
	struct writeback *b, struct node *node, void *data, size_t size, uint64_t offset)
{
	writeback_lock(b);
	if (!node->data) {
		writeback_unlock(b);
		return -EAGAIN;
	}
	return read_content(b, node->data, node->shown.size_bytes, data, size, offset);
}

ssize_t back_stored_read(struct writeback *b, const struct operation *operation, void *data,
	size_t size, uint64_t offset)
{
	writeback_lock(b);
	return read_content(b, operation->data, operation->stored.size_bytes, data, size, offset);
}
