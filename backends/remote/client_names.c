#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client_internal.h"
#include "ops/support/path.h"

#define LISTING_MAX_BYTES (UINT64_C(4) << 30)

int remote_put_object(struct query *q, const struct object_ref *object)
{
	struct remote_file *file = object->file ? remote_file_of(object->file) : NULL;
	int r = file ? remote_file_ready(q->ctx, file) : 0;

	if (r < 0)
		return r;
	wire_put_object(&q->out, file ? "" : object->path, &object->id, file ? file->handle : 0);
	return 0;
}

/* Starts a request about an object, behind the writes that are queued for it. */
static int begin_about(struct query *q, struct op_context *ctx, struct workspace *w,
	enum frame_type type, const struct object_ref *object)
{
	uint64_t order = 0;
	int r = remote_order(ctx, remote_of(w), object, &order);

	query_begin(q, ctx, remote_of(w), type, order);
	return r < 0 ? r : remote_put_object(q, object);
}

static int64_t run(struct query *q, int r)
{
	return r < 0 ? r : query_run(q);
}

/* The answer to most requests that look at or change an object. */
static int64_t run_for_attributes(struct query *q, int r, struct attributes *ret_attributes)
{
	struct attributes attributes;
	int64_t result = run(q, r);

	if (result < 0)
		return result;
	wire_get_attributes(&q->in, &attributes);
	result = query_finish(q, result);
	if (result >= 0)
		*ret_attributes = attributes;
	return result;
}

int remote_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	struct query q;
	int64_t result;

	do {
		int r = begin_about(&q, ctx, w, REQUEST_GETATTR, object);

		result = run_for_attributes(&q, r, ret_attributes);
	} while (query_end(&q, &result));
	return (int)result;
}

/* ---- Listings ----------------------------------------------------------------- */

struct listing {
	struct remote *remote;
	dir_entry_sink sink;
	void *user;
	const char *directory; /* scan: watched ones among the entries are noted */
	uint64_t taken;
	uint64_t bytes; /* about what the entries take here */
};

static int note_entry(struct listing *listing, const struct dir_entry *entry)
{
	cleanup_free char *path = NULL;

	if (!listing->directory || !entry->watched)
		return 0;
	path = path_join(listing->directory, entry->path);
	if (!path)
		return -ENOMEM;
	remote_note_watched(listing->remote, path, true);
	return 0;
}

/* A far end that never comes to an end must not fill our memory. */
static bool is_endless(struct listing *listing, const struct dir_entry *entry)
{
	listing->bytes += sizeof(*entry) + strlen(entry->path) + entry->content_size;
	return listing->bytes > LISTING_MAX_BYTES;
}

static int take_entries(void *user, struct wire_reader *part)
{
	struct listing *listing = user;
	cleanup_buffer struct buffer path = {0};
	struct dir_entry entry;
	int r = 0;

	while (r >= 0 && wire_reader_left(part) > 0) {
		wire_get_dir_entry(part, &path, &entry);
		if (part->failed || (!listing->directory && !path_is_name(entry.path)) ||
			is_endless(listing, &entry))
			return -EIO;
		r = note_entry(listing, &entry);
		if (r >= 0)
			r = listing->sink(listing->user, &entry);
		listing->taken++;
	}
	return r;
}

/* Once the sink has seen entries the call cannot be made anew. */
static int64_t no_second_time(const struct listing *listing, int64_t result)
{
	return result == RESULT_AGAIN && listing->taken ? -EIO : result;
}

int remote_readdir(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	bool watch, dir_entry_sink sink, void *user, bool *ret_watched)
{
	struct listing listing = {.remote = remote_of(w), .sink = sink, .user = user};
	bool watched = false;
	struct query q;
	int64_t result;
	int r = remote_settle(ctx, remote_of(w));

	if (r < 0)
		return r;
	do {
		r = begin_about(&q, ctx, w, REQUEST_READDIR, directory);
		wire_put_number(&q.out, watch);
		result = r < 0 ? r : query_run_stream(&q, take_entries, &listing);
		if (result >= 0) {
			watched = wire_get_number_max(&q.in, 1);
			result = query_finish(&q, result);
		}
		result = no_second_time(&listing, result);
	} while (query_end(&q, &result));
	if (result < 0)
		return (int)result;
	if (watch && !directory->file)
		remote_note_watched(remote_of(w), directory->path, watched);
	*ret_watched = watched;
	return 0;
}

int remote_scan(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	const struct scan_request *request, dir_entry_sink sink, void *user)
{
	struct listing listing = {
		.remote = remote_of(w), .sink = sink, .user = user, .directory = directory->path};
	struct query q;
	int64_t result;
	int r = remote_settle(ctx, remote_of(w));

	if (r < 0)
		return r;
	do {
		r = begin_about(&q, ctx, w, REQUEST_SCAN, directory);
		wire_put_number(&q.out, request->flags);
		wire_put_number(&q.out, request->depth_max);
		wire_put_number(&q.out, request->entries_max);
		wire_put_number(&q.out, request->content_max_bytes);
		wire_put_number(&q.out, request->content_total_bytes);
		result = r < 0 ? r : query_run_stream(&q, take_entries, &listing);
		result = no_second_time(&listing, query_finish(&q, result));
	} while (query_end(&q, &result));
	return (int)result;
}

int remote_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target)
{
	struct query q;
	int64_t result;

	do {
		int r = begin_about(&q, ctx, w, REQUEST_READLINK, link);

		result = run(&q, r);
		if (result >= 0) {
			const char *target = wire_get_link_target(&q.in);

			result = query_finish(&q, result);
			if (result >= 0) {
				*ret_target = strdup(target);
				result = *ret_target ? 0 : -ENOMEM;
			}
		}
	} while (query_end(&q, &result));
	return (int)result;
}

/* ---- Making, removing, moving ------------------------------------------------------ */

int remote_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	struct query q;
	int64_t result;

	do {
		query_begin(&q, ctx, remote_of(w), REQUEST_MKDIR, 0);
		wire_put_string(&q.out, path);
		wire_put_number(&q.out, mode);
		result = run_for_attributes(&q, 0, ret_attributes);
	} while (query_end(&q, &result));
	return (int)result;
}

int remote_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	struct query q;
	int64_t result;

	do {
		query_begin(&q, ctx, remote_of(w), REQUEST_MKNOD, 0);
		wire_put_string(&q.out, path);
		wire_put_number(&q.out, mode);
		wire_put_number(&q.out, rdev);
		result = run_for_attributes(&q, 0, ret_attributes);
	} while (query_end(&q, &result));
	return (int)result;
}

int remote_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes)
{
	struct query q;
	int64_t result;

	do {
		query_begin(&q, ctx, remote_of(w), REQUEST_SYMLINK, 0);
		wire_put_string(&q.out, target);
		wire_put_string(&q.out, path);
		result = run_for_attributes(&q, 0, ret_attributes);
	} while (query_end(&q, &result));
	return (int)result;
}

int remote_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	struct query q;
	int64_t result;

	do {
		int r = begin_about(&q, ctx, w, REQUEST_LINK, object);

		wire_put_string(&q.out, path);
		result = run_for_attributes(&q, r, ret_attributes);
	} while (query_end(&q, &result));
	return (int)result;
}

static int remove_name(struct op_context *ctx, struct workspace *w, enum frame_type type,
	const char *path, const struct object_id *expected)
{
	struct query q;
	int64_t result;

	do {
		query_begin(&q, ctx, remote_of(w), type, 0);
		wire_put_string(&q.out, path);
		wire_put_object_id(&q.out, expected);
		result = query_run(&q);
	} while (query_end(&q, &result));
	return (int)result;
}

int remote_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, w, REQUEST_UNLINK, path, expected);
}

int remote_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	return remove_name(ctx, w, REQUEST_RMDIR, path, expected);
}

int remote_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected)
{
	struct query q;
	int64_t result;

	do {
		query_begin(&q, ctx, remote_of(w), REQUEST_RENAME, 0);
		wire_put_string(&q.out, from);
		wire_put_string(&q.out, to);
		wire_put_number(&q.out, flags);
		wire_put_object_id(&q.out, expected);
		result = query_run(&q);
	} while (query_end(&q, &result));
	return (int)result;
}

/* ---- Attributes ------------------------------------------------------------------------ */

int remote_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	struct attributes attributes = *want;
	struct query q;
	int64_t result;

	attributes.size_bytes = mask & SET_SIZE ? want->size_bytes : 0;
	attributes.atime = mask & SET_ATIME ? want->atime : (struct timespec){0};
	attributes.mtime = mask & SET_MTIME ? want->mtime : (struct timespec){0};
	attributes.ctime = (struct timespec){0};
	do {
		int r = begin_about(&q, ctx, w, REQUEST_SETATTR, object);

		wire_put_number(&q.out, mask);
		wire_put_attributes(&q.out, &attributes);
		result = run_for_attributes(&q, r, ret_attributes);
	} while (query_end(&q, &result));
	if (result >= 0 && (mask & SET_SIZE))
		remote_object_changed(remote_of(w), &ret_attributes->id);
	return (int)result;
}

/* Takes the bytes of an xattr answer. */
static int64_t take_value(struct query *q, int64_t result, void *value, size_t size)
{
	const uint8_t *bytes;

	if (result < 0 || size == 0)
		return result;
	if ((uint64_t)result > size)
		return -EIO;
	bytes = wire_get_raw(&q->in, (size_t)result);
	if (!bytes)
		return -EIO;
	memcpy(value, bytes, (size_t)result);
	return result;
}

ssize_t remote_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	struct query q;
	int64_t result;

	/* The kernel asks for it before it changes a file's content or owner. */
	if (strcmp(name, "security.capability") == 0 &&
		remote_has_no_xattrs(remote_of(w), object, false)) {
		ctx->served.from_cache = true;
		return -ENODATA;
	}
	do {
		int r = begin_about(&q, ctx, w, REQUEST_GETXATTR, object);

		wire_put_string(&q.out, name);
		wire_put_number(&q.out, size);
		result = take_value(&q, run(&q, r), value, size);
	} while (query_end(&q, &result));
	return (ssize_t)result;
}

ssize_t remote_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size)
{
	struct query q;
	int64_t result;

	do {
		int r = begin_about(&q, ctx, w, REQUEST_LISTXATTR, object);

		wire_put_number(&q.out, size);
		result = take_value(&q, run(&q, r), names, size);
	} while (query_end(&q, &result));
	return (ssize_t)result;
}

int remote_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags)
{
	struct query q;
	int64_t result;

	remote_has_no_xattrs(remote_of(w), object, true);
	do {
		int r = begin_about(&q, ctx, w, REQUEST_SETXATTR, object);

		wire_put_string(&q.out, name);
		wire_put_number(&q.out, flags);
		wire_put_bytes(&q.out, value, size);
		result = run(&q, r);
	} while (query_end(&q, &result));
	return (int)result;
}

int remote_removexattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name)
{
	struct query q;
	int64_t result;

	do {
		int r = begin_about(&q, ctx, w, REQUEST_REMOVEXATTR, object);

		wire_put_string(&q.out, name);
		result = run(&q, r);
	} while (query_end(&q, &result));
	return (int)result;
}

int remote_statfs(struct op_context *ctx, struct workspace *w, struct fs_stats *ret_stats)
{
	struct fs_stats stats = {0};
	struct query q;
	int64_t result;

	do {
		query_begin(&q, ctx, remote_of(w), REQUEST_STATFS, 0);
		result = query_run(&q);
		if (result >= 0) {
			wire_get_fs_stats(&q.in, &stats);
			result = query_finish(&q, result);
		}
	} while (query_end(&q, &result));
	if (result >= 0)
		*ret_stats = stats;
	return (int)result;
}
