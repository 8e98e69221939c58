#include "tools/search/found.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/utf8.h"
#include "ops/support/visible.h"
#include "tools/text/text.h"

enum { LINE_MAX_BYTES = 500, BEFORE_MATCH_BYTES = 100 /* if the beginning is left out */ };

/* A line of the result; its text is in the memory of struct found. */
struct line {
	uint64_t number;
	size_t offset;
	size_t size;
	bool is_match;
	bool cut_before, cut; /* something before or after the text is left out */
};

struct found *found_new(const char *path, const struct timespec *mtime)
{
	struct found *found = calloc(1, sizeof(*found));

	if (!found)
		return NULL;
	found->path = strdup(path);
	if (!found->path) {
		free(found);
		return NULL;
	}
	if (mtime)
		found->mtime = *mtime;
	return found;
}

void found_free(struct found *found)
{
	if (!found)
		return;
	free(found->path);
	free(found->lines);
	buffer_done(&found->memory);
	free(found);
}

/* Where the shown part of a line begins: at its start, if the match is well within that part. */
static size_t first_shown(const struct search_line *line)
{
	size_t first = line->match;

	if (line->size <= LINE_MAX_BYTES || first <= LINE_MAX_BYTES - BEFORE_MATCH_BYTES)
		return 0;
	first -= BEFORE_MATCH_BYTES;
	if (first > line->size - LINE_MAX_BYTES)
		first = line->size - LINE_MAX_BYTES;
	/* Begin with a whole character. */
	while (first < line->match && (line->text[first] & 0xc0) == 0x80)
		first++;
	return first;
}

int found_add(struct found *found, const struct search_line *line, uint64_t limit)
{
	size_t first = first_shown(line);
	struct line *kept;

	found->matches += line->is_match;
	if (found->matches > limit)
		return 0;
	if (found->count == found->capacity) {
		size_t capacity = found->capacity ? found->capacity * 2 : 8;

		kept = reallocarray(found->lines, capacity, sizeof(*kept));
		if (!kept)
			return -ENOMEM;
		found->lines = kept;
		found->capacity = capacity;
	}
	kept = &found->lines[found->count++];
	*kept = (struct line){.number = line->number,
		.offset = found->memory.size,
		.size = text_cut(line->text + first, line->size - first, LINE_MAX_BYTES),
		.is_match = line->is_match,
		.cut_before = first > 0,
		.cut = line->size - first > LINE_MAX_BYTES};
	return buffer_append(&found->memory, line->text + first, kept->size);
}

bool found_is_newer(const struct found *a, const struct found *b)
{
	if (a->mtime.tv_sec != b->mtime.tv_sec)
		return a->mtime.tv_sec > b->mtime.tv_sec;
	if (a->mtime.tv_nsec != b->mtime.tv_nsec)
		return a->mtime.tv_nsec > b->mtime.tv_nsec;
	return strcmp(a->path, b->path) < 0;
}

/* Appends the text of a line, with marks where it was cut. */
static int print_text(const struct found *found, const struct line *line, struct buffer *out)
{
	int r = buffer_append_string(out, line->cut_before ? "[cut] ..." : "");

	if (r == 0)
		r = utf8_append_clean(out, found->memory.data + line->offset, line->size);
	return r < 0 ? r : buffer_append_string(out, line->cut ? "... [cut]" : "");
}

int found_print(const struct found *found, uint64_t limit, bool separates, struct buffer *out)
{
	uint64_t shown = 0;
	const struct line *last = NULL;

	for (size_t i = 0; i < found->count; i++) {
		const struct line *line = &found->lines[i];
		char mark = line->is_match ? ':' : '-';

		shown += line->is_match;
		if (shown > limit)
			break;
		if (separates && last && line->number > last->number + 1 &&
			buffer_append_string(out, "--\n") < 0)
			return -ENOMEM;
		last = line;
		if (visible_append(out, found->path, strlen(found->path), 0) < 0 ||
			buffer_printf(out, "%c%llu%c ", mark, (unsigned long long)line->number,
				mark) < 0 ||
			print_text(found, line, out) < 0 || buffer_append_string(out, "\n") < 0)
			return -ENOMEM;
	}
	return 0;
}

int found_add_json(const struct found *found, uint64_t limit, cJSON *files)
{
	cJSON *file = cJSON_CreateObject(), *lines;
	struct buffer text cleanup_buffer = {0};
	uint64_t shown = 0;

	cJSON_AddItemToArray(files, file);
	utf8_append_clean(&text, found->path, strlen(found->path));
	buffer_append(&text, "", 1);
	cJSON_AddStringToObject(file, "path", (const char *)text.data);
	lines = cJSON_AddArrayToObject(file, "lines");
	for (size_t i = 0; i < found->count; i++) {
		const struct line *line = &found->lines[i];
		cJSON *item;

		shown += line->is_match;
		if (shown > limit)
			break;
		text.size = 0;
		if (print_text(found, line, &text) < 0 || buffer_append(&text, "", 1) < 0)
			return -ENOMEM;
		item = cJSON_CreateObject();
		cJSON_AddItemToArray(lines, item);
		cJSON_AddNumberToObject(item, "line", (double)line->number);
		cJSON_AddStringToObject(item, "text", (const char *)text.data);
		if (!line->is_match)
			cJSON_AddTrueToObject(item, "context");
	}
	return 0;
}
