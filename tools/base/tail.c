#include "tools/base/tail.h"

#include <errno.h>
#include <string.h>

#include "tools/base/output_file.h"
#include "tools/base/tool.h"

static const uint64_t file_max_bytes = 1ULL << 30;

/* A full disk must not end the command; the answer then says that the file is incomplete. */
static void write_file(struct tail *tail, const uint8_t *data, size_t size)
{
	if (tail->fd < 0 || tail->file_cut)
		return;
	if (tail->file_bytes + size > file_max_bytes) {
		tail->file_cut = true;
		size = (size_t)(file_max_bytes - tail->file_bytes);
	}
	while (size) {
		ssize_t done = write(tail->fd, data, size);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			tail->file_cut = true;
			return;
		}
		data += done;
		size -= (size_t)done;
		tail->file_bytes += (uint64_t)done;
	}
}

static size_t count_lines(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	size_t lines = 0;

	while ((data = memchr(data, '\n', (size_t)(end - data)))) {
		lines++;
		data++;
	}
	return lines;
}

int tail_add(struct tail *tail, const void *data, size_t size)
{
	int r = buffer_append(&tail->kept, data, size);

	if (r < 0)
		return r;
	tail->bytes += size;
	tail->lines += count_lines(data, size);
	if (tail->fd >= 0) {
		write_file(tail, data, size);
	} else if (!tail->file_cut &&
		   (tail->bytes > TOOL_OUTPUT_MAX_BYTES || tail->lines > TOOL_OUTPUT_MAX_LINES)) {
		tail->fd = output_file_make(tail->name, &tail->path);
		tail->file_cut = tail->fd < 0;
		write_file(tail, tail->kept.data, tail->kept.size);
	}
	if (tail->kept.size > 4 * TOOL_OUTPUT_MAX_BYTES)
		buffer_consume(&tail->kept, tail->kept.size - 2 * TOOL_OUTPUT_MAX_BYTES);
	return 0;
}

size_t tail_start(const struct tail *tail)
{
	const uint8_t *text = tail->kept.data;
	size_t size = tail->kept.size, at = size, lines = 0;

	/* The line end at the very end belongs to the last line. */
	for (size_t start = size; start > 0; start--) {
		bool is_start = start == 1 || text[start - 2] == '\n';

		if (size - (start - 1) > TOOL_OUTPUT_MAX_BYTES)
			break;
		if (!is_start)
			continue;
		/* This line may be incomplete, as earlier output was dropped. */
		if (start == 1 && tail->bytes > size)
			break;
		if (++lines > TOOL_OUTPUT_MAX_LINES)
			break;
		at = start - 1;
	}
	if (at == size && size > TOOL_OUTPUT_MAX_BYTES)
		at = size - TOOL_OUTPUT_MAX_BYTES;
	while (at > 0 && at < size && (text[at] & 0xc0) == 0x80)
		at++;
	return at;
}

void tail_done(struct tail *tail)
{
	buffer_done(&tail->kept);
	free(tail->path);
	if (tail->fd >= 0)
		close(tail->fd);
}
