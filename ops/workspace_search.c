#include "ops/workspace_search.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/excerpt.h"
#include "ops/support/path.h"
#include "ops/support/worker_pool.h"
#include "ops/workspace.h"

enum {
	CHUNK_BYTES = 128 << 10,
	LINE_MAX_BYTES = 32 << 20, /* who matches line by line has to say that it is too long */
	THREADS_MAX = 8,
	WAIT_STEP_MS = 50,
};

struct text_search {
	struct op_context *ctx;
	struct op_context others_ctx; /* of the other threads: each has a copy */
	struct workspace *workspace;
	struct text_search_options options;
	size_t overlap; /* bytes at the end of a chunk in which a text may begin */
	atomic_bool stopped;
	struct buffer memory;
	struct worker_pool pool;
	struct search_helper {
		struct text_search *search;
		struct buffer memory;
	} helpers[THREADS_MAX]; /* a task each */
	size_t helper_count;
	struct searched_file **files; /* they change only while no task runs */
	size_t count;
	atomic_size_t next;
};

/* ---- One file ------------------------------------------------------------------------------- */

struct content {
	struct op_context *ctx;
	struct open_file *file;
	uint64_t size_bytes; /* when it was opened */
	off_t offset;
	struct buffer *memory; /* what is kept of the last chunk, then the next one */
	size_t line_bytes;     /* since the last line end */
};

/* The lines of a file that was read whole, if that is worth it: else it has none. */
static void take_lines(
	struct text_search *search, const uint8_t *content, size_t size, struct buffer *lines)
{
	const struct text_search_options *options = &search->options;

	if (options->wants_lines &&
		excerpt_make(options->texts, options->context, content, size, size / 2, lines) < 0)
		buffer_done(lines);
}

/* 1: a text is in it, or that is not known; 0: not so far; -ENODATA: nowhere. */
static int search_chunk(struct text_search *search, struct content *content, struct buffer *lines)
{
	struct buffer *memory = content->memory;
	struct literal_scan scan = {0};
	const uint8_t *at, *zero, *end, *newline;
	ssize_t got;
	bool is_whole;

	if (buffer_reserve(memory, CHUNK_BYTES) < 0)
		return 1;
	at = memory->data + memory->size;
	got = workspace_read(content->ctx, content->file, memory->data + memory->size, CHUNK_BYTES,
		content->offset);
	if (got < 0)
		return 1;
	zero = memchr(at, 0, (size_t)got);
	end = zero ? zero : at + got;
	/* UTF-16, in which who matches finds text, too. */
	if (content->offset == 0 && got >= 2 && (at[0] ^ at[1]) == 1 && (at[0] & at[1]) == 0xfe)
		return 1;
	/* Less than was asked for may also mean an error, or a file that is being cut. */
	is_whole = got < CHUNK_BYTES && (uint64_t)(content->offset + got) == content->size_bytes;
	if (literals_find(search->options.texts, &scan, memory->data, end)) {
		if (is_whole && !zero && content->offset == 0)
			take_lines(search, at, (size_t)got, lines);
		return 1;
	}
	if (zero || is_whole)
		return -ENODATA;
	if (got < CHUNK_BYTES)
		return 1;
	newline = memrchr(at, '\n', (size_t)got);
	content->line_bytes = newline ? (size_t)(end - newline) : content->line_bytes + (size_t)got;
	if (content->line_bytes > LINE_MAX_BYTES)
		return 1;
	content->offset += got;
	memory->size += (size_t)got;
	if (memory->size > search->overlap) {
		memmove(memory->data, end - search->overlap, search->overlap);
		memory->size = search->overlap;
	}
	return 0;
}

static bool lacks_texts(struct text_search *search, struct op_context *ctx, struct buffer *memory,
	struct searched_file *file)
{
	cleanup_free char *path = path_join(file->directory, file->name);
	const struct object_ref object = {.path = path, .id = file->id};
	struct content content = {.ctx = ctx, .memory = memory};
	struct attributes attributes;
	int r;

	if (!path || workspace_open_file(ctx, search->workspace, &object,
			     O_RDONLY | O_NOATIME | O_NONBLOCK | O_NOCTTY, &content.file,
			     &attributes) < 0)
		return false;
	memory->size = 0;
	content.size_bytes = attributes.size_bytes;
	do
		r = op_interrupted(ctx) ? 1 : search_chunk(search, &content, &file->lines);
	while (r == 0);
	workspace_close(ctx, content.file);
	return r == -ENODATA;
}

/* ---- Several at once ------------------------------------------------------------------------- */

static void search_files(struct text_search *search, struct op_context *ctx, struct buffer *memory)
{
	size_t at;

	while (!search->stopped && (at = atomic_fetch_add(&search->next, 1)) < search->count) {
		struct searched_file *file = search->files[at];

		file->lacks = lacks_texts(search, ctx, memory, file);
		if (ctx == search->ctx && op_interrupted(ctx))
			search->stopped = true;
	}
}

static bool is_stopped(struct op_context *ctx)
{
	const struct text_search *search = ctx->interrupted_data;

	return search->stopped;
}

static void run_helper(void *user)
{
	struct search_helper *helper = user;
	struct op_context ctx = helper->search->others_ctx;

	search_files(helper->search, &ctx, &helper->memory);
}

void text_search_start(struct text_search *search, struct searched_file **files, size_t count)
{
	search->files = files;
	search->next = 0;
	search->count = count;
	for (size_t i = 0; i < search->helper_count && i < count; i++)
		worker_pool_submit(&search->pool, run_helper, &search->helpers[i]);
}

int text_search_finish(struct text_search *search)
{
	search_files(search, search->ctx, &search->memory);
	while (!worker_pool_wait_idle(&search->pool, WAIT_STEP_MS))
		if (op_interrupted(search->ctx))
			search->stopped = true;
	return search->stopped ? -EINTR : 0;
}

int text_search_new(struct op_context *ctx, struct workspace *w,
	const struct text_search_options *options, struct text_search **ret_search)
{
	const struct literals *texts = options->texts;
	struct text_search *search = calloc(1, sizeof(*search));
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (!search)
		return -ENOMEM;
	search->ctx = ctx;
	search->others_ctx = *ctx;
	search->others_ctx.facts = NULL;
	search->others_ctx.interrupted = is_stopped;
	search->others_ctx.interrupted_data = search;
	search->workspace = w;
	search->options = *options;
	for (size_t i = 0; i < literals_count(texts); i++)
		if (literals_text(texts, i).size > search->overlap + 1)
			search->overlap = literals_text(texts, i).size - 1;
	while (search->helper_count < THREADS_MAX && (long)search->helper_count + 1 < online)
		search->helpers[search->helper_count++].search = search;
	worker_pool_init(&search->pool,
		&(struct worker_limits){
			.name = "search", .threads_max = THREADS_MAX, .idle_max = THREADS_MAX});
	*ret_search = search;
	return 0;
}

void text_search_free(struct text_search *search)
{
	if (!search)
		return;
	search->stopped = true;
	worker_pool_done(&search->pool);
	for (size_t i = 0; i < search->helper_count; i++)
		buffer_done(&search->helpers[i].memory);
	buffer_done(&search->memory);
	free(search);
}
