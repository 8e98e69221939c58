#include "tools/image/pdf.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "tools/base/limited_child.h"
#include "tools/image/image.h"

enum {
	CHILD_MEMORY_BYTES = 1 << 30,
	CHILD_CPU_S = 20,
	CHILD_MS = 60000, /* much more than CHILD_CPU_S, for a busy machine */
	INFO_MAX_BYTES = 64 << 10,
	TEXT_MAX_BYTES = 16 << 20,
	PAGE_MAX_BYTES = 32 << 20,
};

/* Runs a program of poppler with the PDF as its input. */
static int run(struct tool_call *call, const char *const *argv, const struct buffer *bytes,
	size_t limit_bytes, bool output_only, struct buffer *output)
{
	const struct limited_child child = {
		.argv = argv,
		.content = bytes->data,
		.size = bytes->size,
		.memory_bytes = CHILD_MEMORY_BYTES,
		.cpu_s = CHILD_CPU_S,
		.timeout_ms = CHILD_MS,
		.output_max_bytes = limit_bytes,
		.output_only = output_only,
		.cancel_fd = call->cancel_fd,
	};

	return limited_child_run(&child, output);
}

static int fail(struct tool_call *call, const char *path, int r, const char *message)
{
	if (r == -ECANCELED || r == -ENOMEM)
		return tool_fail_errno(call, r, "read", path);
	if (r == 127)
		return tool_fail(call, TOOL_BINARY_FILE,
			"Ask the user to install poppler (apt install poppler-utils), or use bash.",
			"\"%s\" is a PDF, and pdftotext and pdftoppm are not installed here.",
			path);
	if (r < 0)
		return tool_fail(call, TOOL_TOO_LARGE,
			"Give one page, or make a smaller copy with bash.",
			"Reading the PDF \"%s\" takes too much time or memory.", path);
	if (!*message)
		message = "it cannot be parsed";
	return tool_fail(call, TOOL_BINARY_FILE,
		"Look at the bytes with encoding \"base64\", or repair it with bash.",
		"The PDF \"%s\" is broken or encrypted: %.*s.", path, (int)strcspn(message, "\n"),
		message);
}

/* Counts the pages, and checks that the requested one exists. */
static int count_pages(struct tool_call *call, const char *path, const struct buffer *bytes,
	int64_t page, long long *ret_count)
{
	static const char *const argv[] = {"env", "pdfinfo", "-", NULL};
	struct buffer output cleanup_buffer = {0};
	const char *found;
	int r = run(call, argv, bytes, INFO_MAX_BYTES, false, &output);

	if (r == 0)
		r = buffer_append(&output, "", 1);
	if (r == 0) {
		found = strstr((const char *)output.data, "Pages:");
		if (!found || sscanf(found, "Pages: %lld", ret_count) != 1 || *ret_count < 1)
			r = EINVAL;
	} else if (r > 0 && buffer_append(&output, "", 1) < 0) {
		r = -ENOMEM;
	}
	if (r != 0)
		return fail(call, path, r, r > 0 ? (const char *)output.data : "");
	cJSON_AddNumberToObject(call->data, "pages", (double)*ret_count);
	if (page > *ret_count)
		return tool_fail(call, TOOL_INVALID_ARGUMENT, "Give a page that it has.",
			"The PDF \"%s\" has %lld page%s.", path, *ret_count,
			*ret_count == 1 ? "" : "s");
	return 0;
}

/* pdftotext ends each page with a form feed. */
static int add_pages(
	const struct buffer *pages, int64_t first, long long count, struct buffer *text)
{
	const uint8_t *at = pages->data, *end = pages->data + pages->size;
	int r = 0;

	for (int64_t page = first; r == 0 && at < end; page++) {
		const uint8_t *stop = memchr(at, '\f', (size_t)(end - at));
		size_t size = (size_t)((stop ? stop : end) - at), blank = 0;

		while (blank < size && isspace(at[blank]))
			blank++;
		r = buffer_printf(text, "[Page %lld of %lld%s]\n", (long long)page, count,
			blank == size ? ", without text: see it with page" : "");
		if (r == 0 && blank < size)
			r = buffer_append(text, at, size);
		if (r == 0 && blank < size && at[size - 1] != '\n')
			r = buffer_append(text, "\n", 1);
		at += size + (stop != NULL);
	}
	return r;
}

int pdf_text(struct tool_call *call, const char *path, const struct buffer *bytes, int64_t page,
	struct buffer *text)
{
	struct buffer pages cleanup_buffer = {0};
	char number[24];
	/* Without a page: from the first to the last, for which pdftotext takes 0. */
	const char *const argv[] = {"env", "pdftotext", "-layout", "-enc", "UTF-8", "-f", number,
		"-l", page ? number : "0", "-", "-", NULL};
	long long count = 0;
	int r;

	if (count_pages(call, path, bytes, page, &count) < 0)
		return -1;
	snprintf(number, sizeof(number), "%lld", page ? (long long)page : 1);
	r = run(call, argv, bytes, TEXT_MAX_BYTES, true, &pages);
	if (r != 0)
		return fail(call, path, r, "");
	r = add_pages(&pages, page ? page : 1, count, text);
	if (r == 0 && pages.size >= TEXT_MAX_BYTES)
		r = buffer_printf(text, "\n[The rest of the text is left out: give a page.]\n");
	return r < 0 ? tool_fail_errno(call, r, "read", path) : 0;
}

int pdf_show_page(
	struct tool_call *call, const char *path, const struct buffer *bytes, int64_t page)
{
	struct buffer picture cleanup_buffer = {0};
	cleanup_free char *name = string_printf("%s, page %lld", path, (long long)page);
	char number[24], side[24];
	const char *const argv[] = {"env", "pdftoppm", "-png", "-f", number, "-l", number,
		"-scale-to", side, "-", NULL};
	int r;

	snprintf(number, sizeof(number), "%lld", (long long)page);
	snprintf(side, sizeof(side), "%d", IMAGE_SIDE_MAX);
	r = name ? run(call, argv, bytes, PAGE_MAX_BYTES, true, &picture) : -ENOMEM;
	if (r != 0 || picture.size == 0)
		return fail(call, path, r ? r : EINVAL, "");
	return image_show(call, name, "image/png", &picture);
}
