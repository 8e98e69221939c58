#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "ops/support/files.h"
#include "ops/support/utf8.h"
#include "tools/base/output_file.h"
#include "tools/image/image.h"
#include "tools/image/pdf.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/text/notebook.h"
#include "tools/text/text.h"

enum {
	COUNT_MAX_BYTES = 256 << 20, /* larger files are not read to the end to count lines */
	PIECE_BYTES = 128 << 10,
	SNIFF_BYTES = 8192,
	NOTEBOOK_MAX_BYTES = 64 << 20,
	RAW_MAX_BYTES = TOOL_OUTPUT_MAX_BYTES / 4 * 3,
};

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"minLength\":1,"
	"\"description\":\"From the root, or absolute inside "
	"it\"},\"offset\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"First line, from "
	"1; for base64: byte, from "
	"1\"},\"limit\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"Most lines; for "
	"base64: "
	"bytes\"},\"encoding\":{\"type\":\"string\",\"enum\":[\"text\",\"base64\",\"raw\"],"
	"\"default\":"
	"\"text\",\"description\":\"base64: the bytes of any "
	"file; raw: a notebook as "
	"JSON\"},\"page\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"Of a PDF, as text "
	"and image\"}},\"required\":[\"path\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{"
	"\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"},"
	"\"first_line\":{\"type\":\"integer\"},\"last_line\":{\"type\":\"integer\"},"
	"\"total_lines\":{\"type\":\"integer\"},\"truncated\":{\"type\":\"boolean\"},"
	"\"next_offset\":{\"type\":\"integer\"},\"notice\":{\"type\":\"string\"},"
	"\"size_bytes\":{\"type\":\"integer\"},"
	"\"hash\":{\"type\":\"string\",\"description\":\"of the whole file; give it to edit as "
	"expected_hash\"},"
	"\"width\":{\"type\":\"integer\"},\"height\":{\"type\":\"integer\"},"
	"\"shown_width\":{\"type\":\"integer\"},\"shown_height\":{\"type\":\"integer\"},"
	"\"pages\":{\"type\":\"integer\"},"
	"\"mime_type\":{\"type\":\"string\"},\"encoding\":{\"type\":\"string\"}},\"required\":["
	"\"path\",\"size_bytes\"]}";

/* One pass over the file, which keeps the wanted lines and counts and hashes all of them. */
struct reading {
	struct tool_call *call;
	uint64_t first; /* first wanted line */
	uint64_t limit; /* lines */
	uint64_t line;  /* number of the present line, from 1 */
	uint64_t shown; /* whole lines kept */
	bool full;      /* the limit is reached: nothing more is kept */
	bool too_long;  /* the first wanted line alone exceeds the limit */
	bool at_start;  /* the next byte begins a line */
	bool made;      /* the text is derived from the file (PDF), not its content */
	struct buffer partial;
	uint64_t long_bytes; /* length of the first wanted line, if too_long */
	uint64_t bytes;
	XXH3_state_t *hash;
};

static int keep_piece(struct reading *r, const uint8_t *piece, size_t size, bool ends)
{
	struct buffer *text = &r->call->text;

	if (r->too_long && r->line == r->first)
		r->long_bytes += size;
	if (r->full || r->line < r->first)
		return 0;
	if (r->shown >= r->limit || text->size + r->partial.size + size > TOOL_OUTPUT_MAX_BYTES) {
		if (r->shown == 0 && r->limit) {
			r->too_long = true;
			r->long_bytes = r->partial.size + size;
		}
		r->full = true;
		return 0;
	}
	if (buffer_append(&r->partial, piece, size) < 0)
		return tool_fail_errno(r->call, -ENOMEM, "keep the output", NULL);
	if (!ends)
		return 0;
	if (utf8_append_clean(text, r->partial.data, r->partial.size) < 0)
		return tool_fail_errno(r->call, -ENOMEM, "keep the output", NULL);
	r->partial.size = 0;
	r->shown++;
	return 0;
}

static int take_bytes(struct reading *r, const uint8_t *bytes, size_t size)
{
	const uint8_t *end = bytes + size;

	XXH3_128bits_update(r->hash, bytes, size);
	r->bytes += size;
	while (bytes < end) {
		const uint8_t *newline = memchr(bytes, '\n', (size_t)(end - bytes));
		const uint8_t *stop = newline ? newline + 1 : end;

		if (keep_piece(r, bytes, (size_t)(stop - bytes), newline != NULL) < 0)
			return -1;
		r->at_start = newline != NULL;
		r->line += newline != NULL;
		bytes = stop;
	}
	return 0;
}

static int read_lines(struct reading *r, int fd, const char *path, bool *ret_complete)
{
	cleanup_free uint8_t *piece = malloc(PIECE_BYTES);
	ssize_t got;

	if (!piece)
		return tool_fail_errno(r->call, -ENOMEM, "read", path);
	r->at_start = true;
	while ((got = read(fd, piece, PIECE_BYTES)) != 0) {
		if (tool_cancelled(r->call))
			return tool_fail_errno(r->call, -ECANCELED, "read", path);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return tool_fail_errno(r->call, -errno, "read", path);
		if (take_bytes(r, piece, (size_t)got) < 0)
			return -1;
		if (r->full && r->bytes > COUNT_MAX_BYTES)
			return 0;
	}
	/* A last line without line end counts as a line. */
	if (!r->at_start) {
		if (r->partial.size && keep_piece(r, (const uint8_t *)"", 0, true) < 0)
			return -1;
		r->line++;
	}
	*ret_complete = true;
	return 0;
}

static void add_notice(struct tool_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void add_notice(struct tool_call *call, const char *format, ...)
{
	cleanup_free char *notice = NULL;
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = vasprintf(&notice, format, arguments);
	va_end(arguments);
	if (r < 0) {
		notice = NULL;
		return;
	}
	cJSON_AddStringToObject(call->data, "notice", notice);
	tool_text(call, "%s%s%s",
		call->text.size && call->text.data[call->text.size - 1] != '\n' ? "\n" : "",
		call->text.size ? "\n" : "", notice);
}

static void describe(struct reading *r, const char *path, bool complete)
{
	struct tool_call *call = r->call;
	uint64_t total = r->line - 1, last = r->first + r->shown - 1;
	char size[32], hash[33];
	XXH128_canonical_t canonical;

	if (buffer_append(&call->text, "", 1) == 0) {
		call->text.size--;
		cJSON_AddStringToObject(call->data, "content", (const char *)call->text.data);
	}
	cJSON_AddNumberToObject(call->data, "first_line", (double)r->first);
	cJSON_AddNumberToObject(call->data, "last_line", (double)last);
	if (complete) {
		cJSON_AddNumberToObject(call->data, "total_lines", (double)total);
	}
	if (complete && !r->made) {
		XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(r->hash));
		for (size_t i = 0; i < sizeof(canonical.digest); i++)
			snprintf(hash + 2 * i, 3, "%02x", canonical.digest[i]);
		cJSON_AddStringToObject(call->data, "hash", hash);
		tool_remark(call, "[hash %s, for expected_hash of edit]", hash);
	}
	cJSON_AddBoolToObject(call->data, "truncated", r->full);
	if (r->too_long) {
		add_notice(call,
			"[Line %llu is %s%s long, more than the limit of 50 KB. To see a part of "
			"it "
			"use bash: sed -n '%llup' '%s' | head -c 50000]",
			(unsigned long long)r->first, complete ? "" : "at least ",
			text_size(r->long_bytes, size), (unsigned long long)r->first, path);
	} else if (r->full && complete) {
		cJSON_AddNumberToObject(call->data, "next_offset", (double)(last + 1));
		add_notice(call, "[Showing lines %llu-%llu of %llu. Use offset=%llu to continue.]",
			(unsigned long long)r->first, (unsigned long long)last,
			(unsigned long long)total, (unsigned long long)last + 1);
	} else if (r->full) {
		cJSON_AddNumberToObject(call->data, "next_offset", (double)(last + 1));
		add_notice(call,
			"[Showing lines %llu-%llu of a large file. Use offset=%llu to continue.]",
			(unsigned long long)r->first, (unsigned long long)last,
			(unsigned long long)last + 1);
	} else if (r->bytes == 0) {
		add_notice(call, "[The file is empty.]");
	}
}

static int read_text(struct tool_call *call, int fd, const char *path, bool made)
{
	struct reading r = {.call = call, .line = 1, .made = made};
	bool complete = false;
	int result;

	r.first = (uint64_t)tool_integer(call, "offset", 1);
	r.limit = (uint64_t)tool_integer(call, "limit", TOOL_OUTPUT_MAX_LINES);
	if (r.limit > TOOL_OUTPUT_MAX_LINES)
		r.limit = TOOL_OUTPUT_MAX_LINES;
	r.hash = XXH3_createState();
	if (!r.hash)
		return tool_fail_errno(call, -ENOMEM, "read", path);
	XXH3_128bits_reset(r.hash);
	result = read_lines(&r, fd, path, &complete);
	if (result == 0 && complete && r.first > 1 && r.first >= r.line)
		result = tool_fail(call, TOOL_INVALID_ARGUMENT, "Use an offset within the file.",
			"Offset %llu is beyond the end of \"%s\", which has %llu line%s.",
			(unsigned long long)r.first, path, (unsigned long long)r.line - 1,
			r.line == 2 ? "" : "s");
	if (result == 0)
		describe(&r, path, complete);
	XXH3_freeState(r.hash);
	buffer_done(&r.partial);
	return result;
}

static int read_whole(int fd, size_t size, struct buffer *bytes)
{
	int r = buffer_reserve(bytes, size);

	while (r == 0 && bytes->size < size) {
		ssize_t got = pread(
			fd, bytes->data + bytes->size, size - bytes->size, (off_t)bytes->size);

		if (got == 0)
			break;
		if (got < 0)
			r = -errno;
		else
			bytes->size += (size_t)got;
	}
	return r;
}

static int read_binary(struct tool_call *call, int fd, const char *path, const struct stat *status,
	const uint8_t *head, size_t head_size)
{
	cleanup_free char *type = files_mime_type(head, head_size);
	struct buffer bytes cleanup_buffer = {0};
	char size[32];
	int r;

	text_size((uint64_t)status->st_size, size);
	cJSON_AddStringToObject(call->data, "mime_type", type ? type : "application/octet-stream");
	if (text_is_utf16(head, head_size))
		return tool_fail(call, TOOL_BINARY_FILE,
			"Convert it: iconv -f UTF-16 -t UTF-8 in bash shows it as text.",
			"\"%s\" is text in UTF-16, not UTF-8, %s.", path, size);
	if (!image_is_shown(type))
		return tool_fail(call, TOOL_BINARY_FILE, NULL, "\"%s\" is not text but %s, %s.",
			path, type ? type : "unknown data", size);
	if (status->st_size > IMAGE_INPUT_MAX_BYTES)
		return tool_fail(call, TOOL_TOO_LARGE,
			"Make a smaller copy of the image with bash and read that.",
			"The image \"%s\" has %s, more than the limit of %d MB.", path, size,
			IMAGE_INPUT_MAX_BYTES >> 20);
	r = read_whole(fd, (size_t)status->st_size, &bytes);
	return r < 0 ? tool_fail_errno(call, r, "read", path)
		     : image_show(call, path, type, &bytes);
}

/* Shows text that was derived from the file. */
static int read_made(struct tool_call *call, const char *path, const struct buffer *text)
{
	cleanup_fd int made = memfd_create("text", MFD_CLOEXEC);
	int r = made < 0 ? -errno : write_all(made, text->data, text->size);

	if (r == 0 && lseek(made, 0, SEEK_SET) < 0)
		r = -errno;
	return r < 0 ? tool_fail_errno(call, r, "read", path) : read_text(call, made, path, true);
}

static int read_pdf(struct tool_call *call, int fd, const char *path, const struct stat *status)
{
	struct buffer bytes cleanup_buffer = {0}, text cleanup_buffer = {0};
	int64_t page = tool_integer(call, "page", 0);
	char size[32];
	int r;

	cJSON_AddStringToObject(call->data, "mime_type", "application/pdf");
	if (status->st_size > PDF_INPUT_MAX_BYTES)
		return tool_fail(call, TOOL_TOO_LARGE, "Use pdftotext with bash.",
			"The PDF \"%s\" has %s, more than the limit of %d MB.", path,
			text_size((uint64_t)status->st_size, size), PDF_INPUT_MAX_BYTES >> 20);
	r = read_whole(fd, (size_t)status->st_size, &bytes);
	if (r < 0)
		return tool_fail_errno(call, r, "read", path);
	if (pdf_text(call, path, &bytes, page, &text) < 0 || read_made(call, path, &text) < 0)
		return -1;
	return page ? pdf_show_page(call, path, &bytes, page) : 0;
}

/* Shows the cells of a notebook.  1: it is none, or too large. */
static int read_notebook(
	struct tool_call *call, int fd, const char *path, const struct stat *status)
{
	struct buffer bytes cleanup_buffer = {0}, text cleanup_buffer = {0};
	int r = status->st_size > NOTEBOOK_MAX_BYTES
			? -EINVAL
			: read_whole(fd, (size_t)status->st_size, &bytes);

	if (r == 0)
		r = notebook_text((const char *)bytes.data, bytes.size, &text);
	if (r == -EINVAL)
		return 1;
	if (r < 0)
		return tool_fail_errno(call, r, "read", path);
	if (read_made(call, path, &text) < 0)
		return -1;
	tool_remark(call,
		"[These are the cells of a notebook. To change it with edit, read its JSON with "
		"encoding raw.]");
	return 0;
}

static int read_range(struct tool_call *call, int fd, const char *path, off_t size)
{
	uint8_t bytes[RAW_MAX_BYTES];
	int64_t first = tool_integer(call, "offset", 1);
	int64_t limit = tool_integer(call, "limit", RAW_MAX_BYTES);
	ssize_t got = pread(fd, bytes, (size_t)(limit < RAW_MAX_BYTES ? limit : RAW_MAX_BYTES),
		(off_t)(first - 1));
	cleanup_free char *content = got < 0 ? NULL : text_base64(bytes, (size_t)got);

	if (!content)
		return tool_fail_errno(call, got < 0 ? -errno : -ENOMEM, "read", path);
	if (got == 0 && size > 0)
		return tool_fail(call, TOOL_INVALID_ARGUMENT, "Use an offset within the file.",
			"Offset %lld is beyond the end of \"%s\", which has %lld bytes.",
			(long long)first, path, (long long)size);
	cJSON_AddStringToObject(call->data, "content", content);
	cJSON_AddStringToObject(call->data, "encoding", "base64");
	cJSON_AddBoolToObject(call->data, "truncated", first - 1 + got < size);
	if (tool_text(call, "%s\n", content) < 0 || first - 1 + got >= size)
		return call->code == TOOL_OK ? 0 : -1;
	cJSON_AddNumberToObject(call->data, "next_offset", (double)(first + got));
	add_notice(call, "[Showing bytes %lld-%lld of %lld. Use offset=%lld to continue.]",
		(long long)first, (long long)(first + got - 1), (long long)size,
		(long long)(first + got));
	return 0;
}

static int execute(struct tool_call *call)
{
	const char *encoding = tool_string(call, "encoding");
	cleanup_free char *path = NULL;
	struct stat status;
	cleanup_fd int fd = output_file_or_path_open(call, "read", &path, &status);
	uint8_t head[SNIFF_BYTES];
	ssize_t got;

	if (fd < 0)
		return -1;
	if (S_ISDIR(status.st_mode))
		return tool_fail(call, TOOL_NOT_A_FILE, "Use ls to see what it holds.",
			"\"%s\" is a directory.", *path ? path : ".");
	if (!S_ISREG(status.st_mode))
		return tool_fail(call, TOOL_NOT_A_FILE, NULL,
			"\"%s\" is a device, pipe or socket, not a regular file.", path);
	cJSON_AddStringToObject(call->data, "path", path);
	cJSON_AddNumberToObject(call->data, "size_bytes", (double)status.st_size);
	if (encoding && strcmp(encoding, "base64") == 0)
		return read_range(call, fd, path, status.st_size);
	got = pread(fd, head, sizeof(head), 0);
	if (got < 0)
		return tool_fail_errno(call, -errno, "read", path);
	if (pdf_is_one(head, (size_t)got))
		return read_pdf(call, fd, path, &status);
	if (tool_integer(call, "page", 0))
		return tool_fail(call, TOOL_INVALID_ARGUMENT, "Leave page out.",
			"\"%s\" is no PDF and has no pages.", path);
	if (memchr(head, 0, (size_t)got) || (got > 3 && head[0] == 0xff && head[1] == 0xd8))
		return read_binary(call, fd, path, &status, head, (size_t)got);
	if (notebook_is_one(path) && !(encoding && strcmp(encoding, "raw") == 0)) {
		int r = read_notebook(call, fd, path, &status);

		if (r <= 0)
			return r;
	}
	return read_text(call, fd, path, false);
}

const struct tool tool_read = {
	.name = "read",
	.label = "Read file",
	.description = "Read a file: text as it is, at most 2000 lines or 50 KB a call (offset and "
		       "limit show more of it), images (jpeg, png, gif, webp) as images, PDFs as "
		       "text, notebooks as cells. The hash "
		       "in the result can be given to edit as expected_hash.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_READ,
	.hints = TOOL_IS_IDEMPOTENT,
	.uses = PERMISSION_READS,
	.execute = execute,
};
