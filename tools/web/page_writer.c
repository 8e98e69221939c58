#include "tools/web/page_writer.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "tools/web/page_escape.h"

static const char BLANKS[] = " \t\n\r\f";

static void put(struct page_writer *w, const char *text, size_t size)
{
	int r = w->error ? 0 : buffer_append(w->out, text, size);

	if (r < 0)
		w->error = r;
}

static void put_string(struct page_writer *w, const char *text)
{
	put(w, text, strlen(text));
}

void writer_init(struct page_writer *w, struct buffer *out, bool plain)
{
	memset(w, 0, sizeof(*w));
	w->out = out;
	w->plain = plain;
	w->needs_prefix = true;
	w->line_is_empty = true;
	w->closed_at = (size_t)-1;
}

void writer_done(struct page_writer *w)
{
	for (size_t i = 0; i < w->mark_count; i++)
		free(w->marks[i].close);
	buffer_done(&w->code);
}

/* ---- Lines ------------------------------------------------------------------------- */

static void put_prefixes(struct page_writer *w)
{
	for (size_t i = 0; i < w->prefix_count; i++) {
		struct page_prefix *prefix = &w->prefixes[i];

		put_string(w, prefix->used ? prefix->rest : prefix->first);
		prefix->used = true;
	}
	w->needs_prefix = false;
	w->line_is_empty = true;
}

/* Writes a line without text; leaves out trailing blanks. */
static void put_blank_line(struct page_writer *w)
{
	size_t count = w->prefix_count, last = 0;

	for (size_t i = 0; i < count && w->prefixes[i].used; i++)
		if (w->prefixes[i].rest[strspn(w->prefixes[i].rest, " ")])
			last = i + 1;
	for (size_t i = 0; i < last; i++) {
		const char *rest = w->prefixes[i].rest;
		size_t length = strlen(rest);

		while (i + 1 == last && length && rest[length - 1] == ' ')
			length--;
		put(w, rest, length);
	}
	put_string(w, "\n");
}

static void start_lines(struct page_writer *w)
{
	if (w->out->size && !w->needs_prefix)
		put_string(w, "\n");
	for (unsigned i = 1; i < w->pending_lines && w->out->size; i++)
		put_blank_line(w);
	w->needs_prefix = true;
}

/* Writes everything before text except marks: line ends, prefixes, a blank. */
static void begin_line(struct page_writer *w)
{
	if (w->in_cell) {
		if (w->out->size > w->cell_start && (w->pending_lines || w->pending_break))
			put_string(w, "<br>");
		else if (w->out->size > w->cell_start && w->pending_space)
			put_string(w, " ");
	} else if (w->pending_lines) {
		start_lines(w);
	} else if (w->pending_break && !w->line_is_empty) {
		put_string(w, w->plain ? "\n" : "  \n");
		w->needs_prefix = true;
	} else if (w->pending_space && !w->line_is_empty) {
		put_string(w, " ");
	}
	w->pending_lines = 0;
	w->pending_break = w->pending_space = false;
	if (w->needs_prefix && !w->in_cell)
		put_prefixes(w);
}

void writer_space(struct page_writer *w)
{
	if (w->in_code)
		buffer_append_string(&w->code, " ");
	else
		w->pending_space = true;
}

void writer_line_break(struct page_writer *w)
{
	writer_flush_code(w);
	if (w->in_heading)
		w->pending_space = true;
	else if (w->pending_break)
		writer_break(w, 2);
	else
		w->pending_break = true;
}

void writer_break(struct page_writer *w, unsigned lines)
{
	writer_flush_code(w);
	if (w->in_heading) {
		w->pending_space = true;
		return;
	}
	writer_suspend(w);
	/* The first block of a list item begins on the line of the marker. */
	if (w->prefix_count && !w->prefixes[w->prefix_count - 1].used)
		return;
	if (lines > w->pending_lines)
		w->pending_lines = lines;
}

void writer_push(struct page_writer *w, const char *marker, const char *rest)
{
	struct page_prefix *prefix = &w->prefixes[w->prefix_count++];

	prefix->rest = rest;
	prefix->first = rest;
	prefix->used = false;
	if (!marker)
		return;
	snprintf(prefix->marker, sizeof(prefix->marker), "%s", marker);
	prefix->first = prefix->marker;
}

void writer_pop(struct page_writer *w)
{
	w->prefix_count--;
}

/* ---- Marks --------------------------------------------------------------------------- */

static void open_marks(struct page_writer *w)
{
	for (size_t i = 0; i < w->mark_count; i++) {
		struct page_mark *mark = &w->marks[i];
		size_t length = strlen(mark->open);

		if (mark->written)
			continue;
		mark->written = mark->ever = true;
		/* "**a****b**" does not mean "**ab**": join adjacent marks. */
		if (*mark->open != '[' && w->closed_at == w->out->size && w->out->size >= length &&
			memcmp(w->out->data + w->out->size - length, mark->open, length) == 0 &&
			!w->error) {
			w->out->size -= length;
			continue;
		}
		if (*mark->open == '[' && w->out->size && w->out->data[w->out->size - 1] == '!')
			w->error = w->error ? w->error : page_escape_last(w->out);
		put_string(w, mark->open);
		w->line_is_empty = false;
	}
}

static void close_mark(struct page_writer *w, struct page_mark *mark)
{
	if (!mark->written)
		return;
	put_string(w, mark->close);
	mark->written = false;
	w->closed_at = w->out->size;
}

void writer_suspend(struct page_writer *w)
{
	for (size_t i = w->mark_count; i-- > 0;)
		close_mark(w, &w->marks[i]);
}

void writer_mark(struct page_writer *w, const char *open, const char *close)
{
	struct page_mark *mark = &w->marks[w->mark_count];

	writer_flush_code(w);
	*mark = (struct page_mark){.open = open, .close = strdup(close)};
	if (!mark->close)
		w->error = w->error ? w->error : -ENOMEM;
	else
		w->mark_count++;
}

bool writer_unmark(struct page_writer *w)
{
	struct page_mark *mark;
	bool ever;

	if (!w->mark_count)
		return true;
	writer_flush_code(w);
	mark = &w->marks[w->mark_count - 1];
	close_mark(w, mark);
	ever = mark->ever;
	free(mark->close);
	w->mark_count--;
	return ever;
}

/* ---- Text ------------------------------------------------------------------------------ */

static void put_word(struct page_writer *w, const char *word, size_t size, char next)
{
	struct page_escape escape = {
		.at_line_start = w->line_is_empty && !w->in_cell && !w->in_heading,
		.in_link = w->mark_count && *w->marks[w->mark_count - 1].open == '[',
		.in_cell = w->in_cell,
		.before = w->out->size && !w->line_is_empty ? (char)w->out->data[w->out->size - 1]
							    : ' ',
		.after = next,
	};
	int r;

	if (w->plain) {
		put(w, word, size);
	} else if (!w->error) {
		r = page_escape(w->out, word, size, &escape);
		w->error = r < 0 ? r : 0;
	}
	w->line_is_empty = false;
}

static void put_code_text(struct page_writer *w, const char *text)
{
	int r = buffer_append_string(&w->code, text);

	if (r < 0 && !w->error)
		w->error = r;
}

void writer_text(struct page_writer *w, const char *text)
{
	if (w->in_code) {
		put_code_text(w, text);
		return;
	}
	while (*text && !w->error) {
		size_t blanks = strspn(text, BLANKS), size;

		if (blanks)
			w->pending_space = true;
		text += blanks;
		size = strcspn(text, BLANKS);
		if (!size)
			return;
		begin_line(w);
		open_marks(w);
		put_word(w, text, size, text[size] ? ' ' : '\0');
		text += size;
	}
}

void writer_atom(struct page_writer *w, const char *text)
{
	writer_flush_code(w);
	begin_line(w);
	open_marks(w);
	put_string(w, text);
	w->line_is_empty = false;
}

static void put_line(struct page_writer *w, const char *line, size_t size)
{
	begin_line(w);
	put(w, line, size);
	w->line_is_empty = false;
	w->pending_lines = 1;
}

void writer_verbatim(
	struct page_writer *w, const char *text, const char *opening, const char *closing)
{
	writer_break(w, 2);
	if (opening)
		put_line(w, opening, strlen(opening));
	while (*text && !w->error) {
		size_t size = strcspn(text, "\n");

		put_line(w, text, size);
		text += size + (text[size] == '\n');
	}
	if (closing)
		put_line(w, closing, strlen(closing));
	writer_break(w, 2);
}

/* ---- Code spans --------------------------------------------------------------------------- */

void writer_code(struct page_writer *w, bool begin)
{
	if (begin) {
		w->in_code++;
	} else {
		writer_flush_code(w);
		w->in_code--;
	}
}

/* Collapses blanks, and escapes "|" in a table.  Returns the length of the longest run of
 * backticks. */
static size_t tidy_code(struct page_writer *w, struct buffer *tidy)
{
	size_t longest = 0, run = 0;
	bool blank = false;

	for (size_t i = 0; i < w->code.size; i++) {
		char c = (char)w->code.data[i];

		if (strchr(BLANKS, c)) {
			blank = true;
			continue;
		}
		if (blank && tidy->size)
			buffer_append_string(tidy, " ");
		run = c == '`' && !blank ? run + 1 : c == '`';
		longest = run > longest ? run : longest;
		if (c == '|' && w->in_cell)
			buffer_append_string(tidy, "\\");
		if (buffer_append(tidy, &c, 1) < 0 && !w->error)
			w->error = -ENOMEM;
		blank = false;
	}
	return longest;
}

void writer_flush_code(struct page_writer *w)
{
	struct buffer tidy cleanup_buffer = {0};
	size_t longest;
	bool starts, ends, pads;

	if (!w->code.size)
		return;
	starts = strchr(BLANKS, w->code.data[0]);
	ends = strchr(BLANKS, w->code.data[w->code.size - 1]);
	longest = tidy_code(w, &tidy);
	w->code.size = 0;
	w->pending_space = w->pending_space || starts;
	if (tidy.size) {
		begin_line(w);
		open_marks(w);
		pads = tidy.data[0] == '`' || tidy.data[tidy.size - 1] == '`';
		for (size_t i = 0; i <= longest && !w->plain; i++)
			put_string(w, "`");
		put_string(w, pads && !w->plain ? " " : "");
		put(w, (const char *)tidy.data, tidy.size);
		put_string(w, pads && !w->plain ? " " : "");
		for (size_t i = 0; i <= longest && !w->plain; i++)
			put_string(w, "`");
		w->line_is_empty = false;
		w->pending_space = ends;
	}
}

/* ---- Tables ------------------------------------------------------------------------------- */

void writer_row_begin(struct page_writer *w)
{
	writer_break(w, 1);
	begin_line(w);
	w->line_is_empty = false;
}

void writer_cell_begin(struct page_writer *w)
{
	put_string(w, w->plain ? "" : "| ");
	w->in_cell = true;
	w->cell_start = w->out->size;
}

void writer_cell_end(struct page_writer *w)
{
	writer_flush_code(w);
	writer_suspend(w);
	w->in_cell = false;
	w->pending_lines = 0;
	w->pending_space = w->pending_break = false;
	put_string(w, w->plain ? " | " : " ");
}
