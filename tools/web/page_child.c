/* The limited child of tools/web/page.h.
 *
 * Its output: a line with the charset, a line with the title, which may be empty, then the text. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/files.h"
#include "tools/base/limited_child.h"
#include "tools/base/powers.h"
#include "tools/web/charset.h"
#include "tools/web/page.h"
#include "tools/web/libraries.h"

enum {
	CHILD_MEMORY_BYTES = 512 << 20,
	CHILD_CPU_S = 5,
	CHILD_MS = 20000, /* much more than CHILD_CPU_S, for a busy machine */
	CHILD_OUTPUT_BYTES = 40 << 20,
	INPUT_MAX_BYTES = 16 << 20,
};

void page_result_done(struct page_result *result)
{
	buffer_done(&result->text);
	free(result->title);
	free(result->charset);
}

/* ---- In the parent --------------------------------------------------------------------- */

static char *take_line(struct buffer *text)
{
	const uint8_t *end = text->size ? memchr(text->data, '\n', text->size) : NULL;
	char *line = end ? strndup((const char *)text->data, (size_t)(end - text->data)) : NULL;

	if (line)
		buffer_consume(text, (size_t)(end - text->data) + 1);
	return line;
}

int page_convert_apart(const struct page_request *request, const char *content_type, int cancel_fd,
	struct page_result *ret_result)
{
	char settings[32];
	/* /proc/self/exe is this program even if its file was replaced. */
	const char *const argv[] = {"/proc/self/exe", "page", settings, request->base,
		content_type ? content_type : "", NULL};
	const struct limited_child child = {
		.argv = argv,
		.content = request->text,
		.size = request->size,
		.memory_bytes = CHILD_MEMORY_BYTES,
		.cpu_s = CHILD_CPU_S,
		.timeout_ms = CHILD_MS,
		.output_max_bytes = CHILD_OUTPUT_BYTES,
		.output_only = true,
		.cancel_fd = cancel_fd,
	};
	struct page_result result cleanup_page = {0};
	int r;

	snprintf(settings, sizeof(settings), "%d.%d.%d", request->kind, request->format,
		request->whole);
	r = limited_child_run(&child, &result.text);
	if (r != 0)
		return r < 0 ? r : -ENOENT;
	result.charset = take_line(&result.text);
	result.title = take_line(&result.text);
	if (!result.charset || !result.title)
		return -ENOENT;
	if (!*result.title) {
		free(result.title);
		result.title = NULL;
	}
	*ret_result = result;
	result = (struct page_result){0};
	return 0;
}

/* ---- In the child ------------------------------------------------------------------------ */

static int read_input(struct buffer *content)
{
	ssize_t got;

	content->limit_bytes = INPUT_MAX_BYTES;
	do {
		int r = buffer_reserve(content, 65536);

		if (r < 0)
			return r;
		got = read(0, content->data + content->size, 65536);
		content->size += got > 0 ? (size_t)got : 0;
	} while (got > 0);
	return got < 0 ? -errno : 0;
}

static int answer(const char *charset, const char *title, const struct buffer *text)
{
	struct buffer head cleanup_buffer = {0};
	int r = buffer_printf(&head, "%s\n%s\n", charset, title ? title : "");

	if (r == 0)
		r = write_all(STDOUT_FILENO, head.data, head.size);
	return r < 0 ? r : write_all(STDOUT_FILENO, text->data, text->size);
}

static int convert(struct page_request *request, const char *content_type)
{
	struct buffer content cleanup_buffer = {0}, utf8 cleanup_buffer = {0},
			      out cleanup_buffer = {0};
	cleanup_free char *text = NULL, *title = NULL;
	struct charset charset = {.converter = (iconv_t)-1};
	int r = read_input(&content);

	if (r == 0)
		r = charset_open(content_type,
			request->kind == PAGE_HTML || request->kind == PAGE_FEED, content.data,
			content.size, &charset);
	/* After give_up_powers() no file can be opened, so load the library first. */
	if (r == 0)
		r = web_load_xml(NULL);
	give_up_powers();
	if (r == 0)
		r = charset_convert(&charset, content.data, content.size, &utf8);
	request->size = utf8.size;
	request->text = text = r < 0 ? NULL : buffer_steal_string(&utf8);
	if (r == 0)
		r = text ? page_convert(request, &out, &title) : -ENOMEM;
	if (r == 0)
		r = answer(charset.name, title, &out);
	charset_close(&charset);
	return r;
}

int page_command(int argc, char **argv)
{
	struct page_request request = {0};
	unsigned kind, format, whole;

	if (argc != 4 || sscanf(argv[1], "%u.%u.%u", &kind, &format, &whole) != 3 ||
		kind > PAGE_TEXT || format > PAGE_SOURCE)
		return 2;
	request = (struct page_request){
		.kind = kind, .format = format, .whole = whole != 0, .base = argv[2]};
	return convert(&request, *argv[3] ? argv[3] : NULL) < 0;
}
