#include "tools/text/patch.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static const char begin_marker[] = "*** Begin Patch", end_marker[] = "*** End Patch";
static const char eof_marker[] = "*** End of File", move_marker[] = "*** Move to: ";

struct parser {
	const char *next;
	struct patch_line line; /* the present line; its sign is not used */
	size_t number;          /* of that line, from 1 */
	bool strip_cr;
	struct patch *patch;
	struct buffer *problem;
};

static bool next_line(struct parser *p)
{
	size_t length = strcspn(p->next, "\n");

	if (!*p->next)
		return false;
	p->line = (struct patch_line){.text = p->next, .size = length};
	p->next += length + (p->next[length] == '\n');
	p->number++;
	if (p->strip_cr && length && p->line.text[length - 1] == '\r')
		p->line.size--;
	return true;
}

static bool is_blank(const struct patch_line *line)
{
	for (size_t i = 0; i < line->size; i++)
		if (!isspace((unsigned char)line->text[i]))
			return false;
	return true;
}

static bool begins(const struct patch_line *line, const char *start)
{
	return line->size >= strlen(start) && strncmp(line->text, start, strlen(start)) == 0;
}

/* Whether the line has only this marker, with optional blanks around them. */
static bool is_marker(const struct patch_line *line, const char *marker)
{
	struct patch_line rest = *line;

	while (rest.size && isspace((unsigned char)*rest.text)) {
		rest.text++;
		rest.size--;
	}
	if (!begins(&rest, marker))
		return false;
	rest.text += strlen(marker);
	rest.size -= strlen(marker);
	return is_blank(&rest);
}

static int fail(struct parser *p, const char *message)
{
	buffer_printf(p->problem, "line %zu of the patch: %s", p->number, message);
	return -EINVAL;
}

static char *take_path(const struct patch_line *line, size_t skip)
{
	size_t start = skip, end = line->size;

	while (start < end && isspace((unsigned char)line->text[start]))
		start++;
	while (end > start && isspace((unsigned char)line->text[end - 1]))
		end--;
	return strndup(line->text + start, end - start);
}

static int add_line(struct patch_file *file, char sign, const char *text, size_t size)
{
	struct patch_line *grown = file->lines;

	/* The capacity doubles when the count is a power of two. */
	if ((file->count & (file->count - 1)) == 0)
		grown = reallocarray(
			file->lines, file->count ? 2 * file->count : 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	file->lines = grown;
	grown[file->count++] = (struct patch_line){sign, text, size};
	return 0;
}

/* Some models write "@@ -1,2 +3,4 @@ text", as in a diff: only the text counts. */
static int add_seek(struct patch_file *file, const struct patch_line *line)
{
	const char *text = line->text + 2, *end = line->text + line->size, *second;

	while (text < end && *text == ' ')
		text++;
	if (end - text > 2 && *text == '-' && isdigit((unsigned char)text[1])) {
		second = memmem(text, (size_t)(end - text), "@@", 2);
		text = second ? second + 2 : end;
		text += text < end && *text == ' ';
	}
	return add_line(file, '@', text, (size_t)(end - text));
}

static int take_update_line(struct parser *p, struct patch_file *file)
{
	const struct patch_line *line = &p->line;

	if (line->size == 0)
		return add_line(file, ' ', line->text, 0);
	if (strchr(" +-", line->text[0]))
		return add_line(file, line->text[0], line->text + 1, line->size - 1);
	if (begins(line, "@@"))
		return add_seek(file, line);
	if (is_marker(line, eof_marker))
		return add_line(file, '$', line->text, 0);
	if (line->text[0] == '\\') /* diff's "No newline at end of file" */
		return 0;
	return fail(p, "in an updated file each line begins with a blank (context), - (old), + "
		       "(new) or @@");
}

static int take_add_line(struct parser *p, struct patch_file *file)
{
	if (p->line.size == 0 || p->line.text[0] != '+')
		return fail(p, "each line of an added file begins with +");
	return add_line(file, '+', p->line.text + 1, p->line.size - 1);
}

static int take_body_line(struct parser *p, struct patch_file *file)
{
	if (!file)
		return is_blank(&p->line) ? 0
					  : fail(p, "there is no *** Add File:, *** Update File: "
						    "or *** Delete File: before it");
	if (file->kind == PATCH_UPDATE)
		return take_update_line(p, file);
	if (file->kind == PATCH_ADD)
		return take_add_line(p, file);
	return is_blank(&p->line) ? 0 : fail(p, "a deleted file has no lines");
}

/* Drops empty lines at the end, which only separate the file from the next one. */
static int end_file(struct parser *p, struct patch_file *file)
{
	if (!file || file->kind != PATCH_UPDATE)
		return 0;
	while (file->count && file->lines[file->count - 1].sign == ' ' &&
		file->lines[file->count - 1].size == 0 &&
		file->lines[file->count - 1].text[-1] == '\n')
		file->count--;
	if (file->count || file->move_to)
		return 0;
	buffer_printf(
		p->problem, "the patch says nothing about what changes in \"%s\"", file->path);
	return -EINVAL;
}

static int begin_file(struct parser *p, enum patch_kind kind, size_t skip)
{
	struct patch *patch = p->patch;
	struct patch_file *grown;

	if (patch->count >= PATCH_FILES_MAX)
		return fail(p, "too many files for one patch; at most 200 are taken");
	grown = reallocarray(patch->files, patch->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	patch->files = grown;
	grown[patch->count] = (struct patch_file){.kind = kind, .path = take_path(&p->line, skip)};
	if (!grown[patch->count].path)
		return -ENOMEM;
	if (!*grown[patch->count++].path)
		return fail(p, "it names no file");
	return 0;
}

static int take_move(struct parser *p, struct patch_file *file)
{
	if (!file || file->kind != PATCH_UPDATE || file->count || file->move_to)
		return fail(p, "*** Move to: belongs right below *** Update File:");
	file->move_to = take_path(&p->line, strlen(move_marker));
	if (!file->move_to)
		return -ENOMEM;
	return *file->move_to ? 0 : fail(p, "it names no file");
}

/* 1: the line is a header; 0: it is not. */
static int take_header(struct parser *p, struct patch_file *file)
{
	static const char *const headers[] = {
		[PATCH_ADD] = "*** Add File: ",
		[PATCH_DELETE] = "*** Delete File: ",
		[PATCH_UPDATE] = "*** Update File: ",
	};
	int r;

	if (begins(&p->line, move_marker)) {
		r = take_move(p, file);
		return r < 0 ? r : 1;
	}
	for (size_t i = 0; i < array_size(headers); i++) {
		if (!begins(&p->line, headers[i]))
			continue;
		r = end_file(p, file);
		if (r == 0)
			r = begin_file(p, (enum patch_kind)i, strlen(headers[i]));
		return r < 0 ? r : 1;
	}
	return 0;
}

/* Some models wrap the patch in a here-document: a line with << before it, a word after it. */
static int find_begin(struct parser *p, bool *ret_wrapped)
{
	*ret_wrapped = false;
	while (next_line(p)) {
		if (is_marker(&p->line, begin_marker)) {
			p->strip_cr = p->line.text[p->line.size - 1] == '\r';
			return 0;
		}
		if (is_blank(&p->line))
			continue;
		if (*ret_wrapped || !memmem(p->line.text, p->line.size, "<<", 2))
			break;
		*ret_wrapped = true;
	}
	buffer_append_string(p->problem, "the patch has to begin with *** Begin Patch");
	return -EINVAL;
}

static int check_rest(struct parser *p, bool wrapped)
{
	while (next_line(p)) {
		if (is_blank(&p->line))
			continue;
		if (!wrapped)
			return fail(p, "there is text after *** End Patch");
		wrapped = false;
	}
	return 0;
}

static int parse(struct parser *p)
{
	bool wrapped;
	int r = find_begin(p, &wrapped);

	while (r == 0 && next_line(p)) {
		struct patch *patch = p->patch;
		struct patch_file *file = patch->count ? &patch->files[patch->count - 1] : NULL;

		if (p->line.size && p->line.text[0] == '*' && is_marker(&p->line, end_marker)) {
			r = end_file(p, file);
			if (r == 0 && !file)
				r = fail(p, "the patch names no file");
			return r < 0 ? r : check_rest(p, wrapped);
		}
		r = take_header(p, file);
		if (r == 0)
			r = take_body_line(p, file);
		r = r > 0 ? 0 : r;
	}
	if (r == 0) {
		buffer_append_string(p->problem, "the patch has to end with *** End Patch");
		r = -EINVAL;
	}
	return r;
}

int patch_parse(const char *text, struct patch *ret_patch, struct buffer *problem)
{
	struct patch patch = {0};
	struct parser parser = {.next = text, .patch = &patch, .problem = problem};
	int r = parse(&parser);

	if (r < 0)
		patch_done(&patch);
	else
		*ret_patch = patch;
	return r;
}

void patch_done(struct patch *patch)
{
	for (size_t i = 0; i < patch->count; i++) {
		free(patch->files[i].path);
		free(patch->files[i].move_to);
		free(patch->files[i].lines);
	}
	free(patch->files);
	*patch = (struct patch){0};
}

int patch_content(const struct patch_file *file, struct buffer *out)
{
	for (size_t i = 0; i < file->count; i++)
		if (buffer_append(out, file->lines[i].text, file->lines[i].size) < 0 ||
			buffer_append(out, "\n", 1) < 0)
			return -ENOMEM;
	return 0;
}
