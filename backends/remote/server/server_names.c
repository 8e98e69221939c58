#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/server/server_internal.h"
#include "ops/support/literals.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

int server_object_read(struct job *job, struct server_object *object)
{
	uint64_t id;

	*object = (struct server_object){.server = job->server};
	object->ref.path = wire_get_path(&job->in);
	wire_get_object_id(&job->in, &object->ref.id);
	id = wire_get_number(&job->in);
	if (job->in.failed)
		return -EPROTO;
	if (!id)
		return 0;
	object->handle = server_handle_get(job->server, id);
	if (!object->handle)
		return -EBADF;
	object->ref.file = object->handle->file;
	return 0;
}

void server_object_done(struct server_object *object)
{
	if (object->handle)
		server_handle_put(object->server, object->handle);
	object->handle = NULL;
}

static void note_changed(const struct server_object *object)
{
	server_note_changed(
		object->server, object->handle ? &object->handle->object : &object->ref.id);
}

int64_t handle_getattr(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	struct attributes attributes;
	int r = server_object_read(job, &object);

	wire_get_object_id(&job->in, &object.ref.parent);
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0)
		r = workspace_getattr(&job->ctx, job->server->workspace, &object.ref, &attributes);
	if (r == 0)
		wire_put_attributes(out, &attributes);
	return r;
}

/* ---- Listings ------------------------------------------------------------------ */

enum { ENTRY_BYTES = 256 }; /* beside its path and content, about */

struct listing {
	struct job *job;
	struct wire_writer chunk;
	size_t chunk_bytes;
	struct buffer previous; /* path of the last entry in the chunk ... */
	uint64_t previous_at;   /* ... and its position */
	size_t path_bytes;      /* of all paths in it */
	bool packs;             /* attributes are told by how they differ from ... */
	struct attributes before;
};

static void listing_done(struct listing *listing)
{
	wire_writer_done(&listing->chunk);
	buffer_done(&listing->previous);
}

#define cleanup_listing cleanup_with(listing_done)

/* With room for a whole chunk, or growing it would cost more than filling it. */
static void start_chunk(struct listing *listing)
{
	/* Over a slow link a large frame keeps the others waiting. */
	size_t most = lane_window_bytes(listing->job->server->lane) / 8;

	if (!listing->chunk_bytes)
		listing->chunk_bytes = LISTING_FIRST_BYTES;
	else if (listing->chunk_bytes < LISTING_CHUNK_BYTES && listing->chunk_bytes < most)
		listing->chunk_bytes *= 2;
	else if (listing->chunk_bytes > most && listing->chunk_bytes > LISTING_FIRST_BYTES)
		listing->chunk_bytes /= 2;
	lane_writer_init(&listing->chunk);
	if (listing->chunk_bytes == LISTING_CHUNK_BYTES)
		lane_writer_enlarge(listing->job->server->lane, &listing->chunk);
	listing->previous.size = 0;
	listing->previous_at = 0;
	listing->before = (struct attributes){0};
	listing->path_bytes = 0;
}

static int flush_listing(struct listing *listing)
{
	int r = 0;

	if (listing->chunk.error)
		return listing->chunk.error;
	if (listing->chunk.buffer.size > FRAME_HEADER_BYTES)
		r = server_send_data(listing->job, &listing->chunk);
	wire_writer_done(&listing->chunk);
	start_chunk(listing);
	return r;
}

static int put_entry(void *user, const struct dir_entry *entry)
{
	struct listing *listing = user;
	const char *previous = listing->previous.size ? (char *)listing->previous.data : "";
	size_t path_size = strlen(entry->path) + 1;
	struct dir_entry small = *entry;
	int r = 0;

	if (entry->content_size > INLINE_MAX_BYTES)
		small.content = NULL;
	if (listing->chunk.buffer.size + path_size + ENTRY_BYTES +
				(small.content ? small.content_size : 0) + small.lines_size >
			listing->chunk_bytes ||
		listing->path_bytes + path_size > LISTING_PATHS_MAX_BYTES) {
		r = flush_listing(listing);
		previous = "";
	}
	if (r < 0)
		return r;
	wire_put_dir_entry(&listing->chunk, previous, listing->previous_at,
		listing->packs ? &listing->before : NULL, &small);
	listing->before = small.attributes;
	listing->previous_at = small.at;
	listing->previous.size = 0;
	listing->path_bytes += path_size;
	return buffer_append(&listing->previous, entry->path, path_size);
}

int64_t handle_readdir(struct job *job, struct wire_writer *out)
{
	cleanup_listing struct listing listing = {.job = job};
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	uint64_t since = 0;
	bool watch;

	watch = wire_get_number_max(&job->in, 1);
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	if (watch)
		server_begin_feed(job->server);
	start_chunk(&listing);
	r = workspace_readdir(
		&job->ctx, job->server->workspace, &object.ref, watch, put_entry, &listing, &since);
	if (r >= 0)
		r = flush_listing(&listing);
	wire_put_number(out, since);
	return r;
}

/* What a search looks for: the request points into it. */
struct search {
	struct literals *texts;
	uint64_t *known;
};

static void search_done(struct search *search)
{
	literals_free(search->texts);
	free(search->known);
}

static int read_known(struct wire_reader *in, struct scan_request *request, struct search *search)
{
	size_t count = wire_get_number_max(in, KNOWN_MAX);
	uint64_t number = 0;

	if (in->failed || count > wire_reader_left(in))
		return -EPROTO;
	search->known = calloc(count + 1, sizeof(*search->known));
	if (!search->known)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		number += wire_get_number(in);
		search->known[i] = number;
	}
	request->known = search->known;
	request->known_count = count;
	return 0;
}

static int read_search(struct wire_reader *in, struct scan_request *request, struct search *search)
{
	struct literal_text texts[LITERALS_MAX];
	bool ignore_case = wire_get_number_max(in, 1);
	size_t count = wire_get_number_max(in, LITERALS_MAX), lines;
	int r;

	for (size_t i = 0; i < count; i++)
		texts[i].bytes = wire_get_bytes(in, &texts[i].size);
	request->names = wire_get_string(in);
	lines = wire_get_number_max(in, 1 + SCAN_CONTEXT_MAX);
	if (in->failed)
		return -EPROTO;
	request->wants_lines = lines > 0;
	request->context = lines > 0 ? (uint32_t)lines - 1 : 0;
	if (!*request->names)
		request->names = NULL;
	r = literals_new(texts, count, ignore_case, &search->texts);
	request->texts = search->texts;
	if (r < 0)
		return r == -EINVAL ? -EPROTO : r;
	return read_known(in, request, search);
}

static int read_scan(
	struct job *job, struct scan_request *request, struct search *search, bool *ret_packs)
{
	unsigned flags = (unsigned)wire_get_number_max(&job->in,
		SCAN_WATCH | SCAN_CONTENT | SCAN_NOT_HIDDEN | SCAN_GUESS | SCAN_NOT_IGNORED |
			SCAN_HAS_TEXTS | SCAN_READ_FIRST | SCAN_PACKED);
	int r = 0;

	request->flags = flags & ~(unsigned)(SCAN_HAS_TEXTS | SCAN_PACKED);
	*ret_packs = flags & SCAN_PACKED;
	request->depth_max = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	request->entries_max = wire_get_number(&job->in);
	request->content_max_bytes = wire_get_number(&job->in);
	request->content_total_bytes = wire_get_number(&job->in);
	if (flags & SCAN_HAS_TEXTS)
		r = read_search(&job->in, request, search);
	return r < 0 ? r : wire_reader_finish(&job->in);
}

int64_t handle_scan(struct job *job, struct wire_writer *out)
{
	cleanup_with(search_done) struct search search = {0};
	cleanup_listing struct listing listing = {.job = job};
	cleanup_server_object struct server_object object;
	struct scan_request request = {0};
	int r = server_object_read(job, &object);

	(void)out;
	if (r == 0)
		r = read_scan(job, &request, &search, &listing.packs);
	if (r < 0)
		return r;
	if (request.content_max_bytes > INLINE_MAX_BYTES)
		request.content_max_bytes = INLINE_MAX_BYTES;
	job->is_guess = request.flags & SCAN_GUESS;
	if (request.flags & SCAN_WATCH)
		server_begin_feed(job->server);
	start_chunk(&listing);
	r = workspace_scan(
		&job->ctx, job->server->workspace, &object.ref, &request, put_entry, &listing);
	return r < 0 ? r : flush_listing(&listing);
}

int64_t handle_readlink(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	cleanup_free char *target = NULL;
	int r = server_object_read(job, &object);

	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0)
		r = workspace_readlink(&job->ctx, job->server->workspace, &object.ref, &target);
	if (r == 0)
		wire_put_string(out, target);
	return r;
}

/* ---- Making, removing, moving ----------------------------------------------------- */

static int64_t put_made(struct wire_writer *out, int r, const struct attributes *attributes)
{
	if (r == 0)
		wire_put_attributes(out, attributes);
	return r;
}

int64_t handle_mkdir(struct job *job, struct wire_writer *out)
{
	const char *path = wire_get_name(&job->in, &job->ctx.parent);
	uint32_t mode = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	uint32_t file_mode = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	uint64_t file = wire_get_number(&job->in);
	struct attributes attributes, prepared;
	bool is_prepared;
	int r = wire_reader_finish(&job->in);

	if (r == 0)
		r = workspace_mkdir(&job->ctx, job->server->workspace, path, mode, &attributes);
	if (r < 0)
		return r;
	is_prepared = file &&
		      server_prepare_in(job, path, &attributes.id, file_mode, file, &prepared) == 0;
	wire_put_attributes(out, &attributes);
	wire_put_number(out, is_prepared);
	if (is_prepared)
		wire_put_attributes(out, &prepared);
	return 0;
}

int64_t handle_mknod(struct job *job, struct wire_writer *out)
{
	const char *path = wire_get_name(&job->in, &job->ctx.parent);
	uint32_t mode = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	uint64_t rdev = wire_get_number(&job->in);
	struct attributes attributes;
	int r = wire_reader_finish(&job->in);

	if (r == 0)
		r = workspace_mknod(
			&job->ctx, job->server->workspace, path, mode, rdev, &attributes);
	return put_made(out, r, &attributes);
}

int64_t handle_symlink(struct job *job, struct wire_writer *out)
{
	const char *target = wire_get_string(&job->in);
	const char *path = wire_get_name(&job->in, &job->ctx.parent);
	struct attributes attributes;
	int r = wire_reader_finish(&job->in);

	if (r == 0)
		r = workspace_symlink(&job->ctx, job->server->workspace, target, path, &attributes);
	return put_made(out, r, &attributes);
}

int64_t handle_link(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	const char *path = wire_get_name(&job->in, &job->ctx.new_parent);
	struct attributes attributes;

	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0)
		note_changed(&object);
	if (r == 0)
		r = workspace_link(
			&job->ctx, job->server->workspace, &object.ref, path, &attributes);
	return put_made(out, r, &attributes);
}

static int64_t remove_name(
	struct job *job, int (*remove)(struct op_context *ctx, struct workspace *w,
				 const char *path, const struct object_id *expected))
{
	const char *path = wire_get_name(&job->in, &job->ctx.parent);
	struct object_id expected;
	int r;

	wire_get_object_id(&job->in, &expected);
	r = wire_reader_finish(&job->in);
	return r < 0 ? r : remove(&job->ctx, job->server->workspace, path, &expected);
}

int64_t handle_unlink(struct job *job, struct wire_writer *out)
{
	(void)out;
	return remove_name(job, workspace_unlink);
}

int64_t handle_rmdir(struct job *job, struct wire_writer *out)
{
	(void)out;
	return remove_name(job, workspace_rmdir);
}

int64_t handle_rename(struct job *job, struct wire_writer *out)
{
	const char *from = wire_get_name(&job->in, &job->ctx.parent);
	const char *to = wire_get_name(&job->in, &job->ctx.new_parent);
	unsigned flags = (unsigned)wire_get_number_max(
		&job->in, RENAME_KEEP_TARGET | RENAME_SWAP | RENAME_LEAVE_WHITEOUT);
	struct object_id expected;
	int r;

	(void)out;
	wire_get_object_id(&job->in, &expected);
	r = wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	server_note_changed(job->server, &expected);
	return workspace_rename(&job->ctx, job->server->workspace, from, to, flags, &expected);
}

/* ---- Attributes ---------------------------------------------------------------------- */

int64_t handle_setattr(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	unsigned mask = (unsigned)wire_get_number_max(&job->in, (SET_MTIME_NOW << 1) - 1);
	struct attributes want, attributes;

	wire_get_attributes(&job->in, &want);
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0)
		note_changed(&object);
	if (r == 0)
		r = workspace_setattr(
			&job->ctx, job->server->workspace, &object.ref, mask, &want, &attributes);
	return put_made(out, r, &attributes);
}

/* Appends what `get` delivers into room for `size` bytes; 0 asks for the length only. */
static int64_t put_value(struct wire_writer *out, ssize_t got, size_t size)
{
	if (got > 0 && size > 0)
		out->buffer.size += (size_t)got;
	return got;
}

static size_t wanted_bytes(struct job *job, struct wire_writer *out, size_t max)
{
	size_t size = wire_get_number(&job->in);

	size = size < max ? size : max;
	if (out->error == 0)
		out->error = buffer_reserve(&out->buffer, size);
	return size;
}

int64_t handle_getxattr(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	const char *name = wire_get_string(&job->in);
	size_t size = wanted_bytes(job, out, XATTR_MAX_BYTES);

	if (r == 0)
		r = out->error ? out->error : wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	return put_value(out,
		workspace_getxattr(&job->ctx, job->server->workspace, &object.ref, name,
			out->buffer.data + out->buffer.size, size),
		size);
}

int64_t handle_listxattr(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	size_t size = wanted_bytes(job, out, XATTR_MAX_BYTES);

	if (r == 0)
		r = out->error ? out->error : wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	return put_value(out,
		workspace_listxattr(&job->ctx, job->server->workspace, &object.ref,
			(char *)out->buffer.data + out->buffer.size, size),
		size);
}

int64_t handle_setxattr(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	const char *name = wire_get_string(&job->in);
	unsigned flags =
		(unsigned)wire_get_number_max(&job->in, XATTR_MUST_CREATE | XATTR_MUST_REPLACE);
	size_t size;
	const uint8_t *value = wire_get_bytes(&job->in, &size);

	(void)out;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	return r < 0 ? r
		     : workspace_setxattr(&job->ctx, job->server->workspace, &object.ref, name,
			       value, size, flags);
}

int64_t handle_removexattr(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	const char *name = wire_get_string(&job->in);

	(void)out;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	return r < 0 ? r
		     : workspace_removexattr(&job->ctx, job->server->workspace, &object.ref, name);
}

int64_t handle_check(struct job *job, struct wire_writer *out)
{
	int r = wire_reader_finish(&job->in);

	(void)out;
	return r < 0 ? r : workspace_check(&job->ctx, job->server->workspace);
}

int64_t handle_statfs(struct job *job, struct wire_writer *out)
{
	struct fs_stats stats;
	int r = wire_reader_finish(&job->in);

	if (r == 0)
		r = workspace_statfs(&job->ctx, job->server->workspace, &stats);
	if (r == 0)
		wire_put_fs_stats(out, &stats);
	return r;
}
