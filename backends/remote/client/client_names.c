#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/client/client_internal.h"
#include "ops/support/literals.h"
#include "ops/support/path.h"

/* About what the entries of a scan take here.  (A listing of a directory is bounded by its taker.)
 */
enum { SCAN_MAX_BYTES = 512 << 20 };

/* The answer to most requests that look at or change an object. */
static int64_t take_attributes(void *ret_attributes, struct remote_request *request, int64_t result)
{
	struct attributes attributes;

	wire_get_attributes(&request->call->body, &attributes);
	result = remote_request_finish(request, result);
	if (result >= 0)
		*(struct attributes *)ret_attributes = attributes;
	return result;
}

int remote_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_GETATTR, .object = object};

	wire_put_object_id(&request.arguments, &object->parent);
	return (int)remote_request_run(&request, take_attributes, ret_attributes);
}

/* ---- Listings ----------------------------------------------------------------- */

struct listing {
	struct remote *remote;
	dir_entry_sink sink;
	void *user;
	const char *directory; /* scan: watched ones among the entries are noted */
	uint64_t bytes;
	uint64_t since; /* readdir: the directory is watched since then; 0: it is not */
};

static int note_entry(struct listing *listing, const struct dir_entry *entry)
{
	cleanup_free char *path = NULL;

	if (!listing->directory || !entry->watched_since)
		return 0;
	path = path_join(listing->directory, entry->path);
	if (!path)
		return -ENOMEM;
	remote_note_watched(listing->remote, path, &entry->attributes.id, entry->watched_since);
	return 0;
}

/* A far end that never comes to an end must not fill our memory. */
static bool is_endless(struct listing *listing, const struct dir_entry *entry)
{
	listing->bytes +=
		sizeof(*entry) + strlen(entry->path) + entry->content_size + entry->lines_size;
	return listing->directory && listing->bytes > SCAN_MAX_BYTES;
}

/* False: the far end tells positions that it cannot have, or none for an entry of a scan. */
static bool rebase(const struct listing *listing, struct dir_entry *entry, uint64_t base)
{
	if (!remote_position_is_good(entry->at) || !remote_position_is_good(entry->watched_since) ||
		(listing->directory && !entry->at))
		return false;
	if (entry->at)
		entry->at += base;
	if (entry->watched_since)
		entry->watched_since += base;
	return true;
}

static int take_entries(void *user, struct wire_reader *part, uint64_t base)
{
	struct listing *listing = user;
	cleanup_buffer struct buffer path = {0};
	uint64_t at = 0;
	struct dir_entry entry = {0};
	size_t path_bytes = 0;
	int r = 0;

	while (r >= 0 && wire_reader_left(part) > 0) {
		wire_get_dir_entry(part, &path, &at, &entry);
		path_bytes += path.size;
		if (part->failed || path_bytes > LISTING_PATHS_MAX_BYTES ||
			!rebase(listing, &entry, base) ||
			(!listing->directory && !path_is_name(entry.path)) ||
			is_endless(listing, &entry))
			return -EIO;
		r = note_entry(listing, &entry);
		if (r >= 0)
			r = listing->sink(listing->user, &entry);
	}
	return r;
}

static int64_t take_since(void *user, struct remote_request *request, int64_t result)
{
	struct listing *listing = user;
	uint64_t since = wire_get_number(&request->call->body);

	if (since && remote_position_is_good(since))
		listing->since = since + request->call->base;
	return remote_request_finish(request, result);
}

int remote_readdir(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	bool watch, dir_entry_sink sink, void *user, uint64_t *ret_since)
{
	struct remote *remote = remote_of(w);
	cleanup_remote_request struct remote_request request = {
		ctx, remote, REQUEST_READDIR, .object = directory, .take_part = take_entries};
	struct listing listing = {.remote = remote, .sink = sink, .user = user};
	int r = remote_settle(ctx, remote);

	if (r < 0)
		return r;
	wire_put_number(&request.arguments, watch);
	r = (int)remote_request_run(&request, take_since, &listing);
	if (r < 0)
		return r;
	if (watch && !directory->file)
		remote_note_watched(remote, directory->path, &directory->id, listing.since);
	*ret_since = listing.since;
	return 0;
}

/* What a search looks for, and where not. */
static void put_texts(struct wire_writer *out, const struct scan_request *scan)
{
	size_t known = scan->known_count < KNOWN_MAX ? scan->known_count : KNOWN_MAX;
	uint64_t last = 0;

	wire_put_number(out, literals_ignore_case(scan->texts));
	wire_put_number(out, literals_count(scan->texts));
	for (size_t i = 0; i < literals_count(scan->texts); i++) {
		struct literal_text text = literals_text(scan->texts, i);

		wire_put_bytes(out, text.bytes, text.size);
	}
	wire_put_string(out, scan->names ? scan->names : "");
	wire_put_number(out, scan->wants_lines ? 1 + (uint64_t)scan->context : 0);
	wire_put_number(out, known);
	for (size_t i = 0; i < known; i++) {
		wire_put_number(out, scan->known[i] - last);
		last = scan->known[i];
	}
}

int remote_scan(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	const struct scan_request *scan, dir_entry_sink sink, void *user)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_SCAN, .object = directory, .take_part = take_entries};
	struct listing listing = {
		.remote = remote_of(w), .sink = sink, .user = user, .directory = directory->path};
	bool is_search = scan->texts || (scan->flags & SCAN_NOT_IGNORED);
	unsigned flags = scan->flags;
	int r;

	if (is_search && !(remote_of(w)->capabilities & WORKSPACE_CAN_SEARCH))
		return -EOPNOTSUPP;
	r = remote_settle(ctx, remote_of(w));
	if (r < 0)
		return r;
	if (remote_of(w)->capabilities & WORKSPACE_CAN_READ_FIRST)
		flags |= SCAN_PACKED;
	else
		flags &= ~(unsigned)SCAN_READ_FIRST;
	wire_put_number(&request.arguments, flags | (scan->texts ? SCAN_HAS_TEXTS : 0u));
	wire_put_number(&request.arguments, scan->depth_max);
	wire_put_number(&request.arguments, scan->entries_max);
	wire_put_number(&request.arguments, scan->content_max_bytes);
	wire_put_number(&request.arguments, scan->content_total_bytes);
	if (scan->texts)
		put_texts(&request.arguments, scan);
	return (int)remote_request_run(&request, NULL, &listing);
}

static int64_t take_target(void *ret_target, struct remote_request *request, int64_t result)
{
	const char *target = wire_get_link_target(&request->call->body);
	char *copy;

	result = remote_request_finish(request, result);
	if (result < 0)
		return result;
	copy = strdup(target);
	if (!copy)
		return -ENOMEM;
	*(char **)ret_target = copy;
	return 0;
}

int remote_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target)
{
	struct remote_request request = {ctx, remote_of(w), REQUEST_READLINK, .object = link};

	return (int)remote_request_run(&request, take_target, ret_target);
}

/* ---- Making, removing, moving ------------------------------------------------------ */

/* A directory, and a file that was prepared in it if one was asked for (NULL: none was). */
struct new_directory {
	struct attributes *ret_attributes;
	struct prepared_file *file;
};

static int64_t take_directory(void *user, struct remote_request *request, int64_t result)
{
	const struct new_directory *directory = user;
	struct wire_reader *answer = &request->call->body;
	struct attributes attributes, prepared;
	bool is_prepared;

	wire_get_attributes(answer, &attributes);
	is_prepared = wire_get_number_max(answer, directory->file != NULL);
	if (is_prepared)
		wire_get_attributes(answer, &prepared);
	if (is_prepared && !S_ISREG(prepared.mode))
		return -EIO;
	result = remote_request_finish(request, result);
	if (result < 0)
		return result;
	*directory->ret_attributes = attributes;
	if (is_prepared)
		remote_prepared_is_ready(
			directory->file, &attributes.id, request->call->epoch, &prepared);
	return 0;
}

int remote_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes)
{
	struct remote *remote = remote_of(w);
	cleanup_remote_request struct remote_request request = {ctx, remote, REQUEST_MKDIR};
	uint32_t file_mode = 0;
	struct prepared_file *file = remote_prepared_new(ctx, remote, &file_mode, &request.makes);
	struct new_directory directory = {ret_attributes, file};
	int r;

	wire_put_name(&request.arguments, path, &ctx->parent);
	wire_put_number(&request.arguments, mode);
	wire_put_number(&request.arguments, file_mode);
	wire_put_number(&request.arguments, request.makes);
	r = (int)remote_request_run(&request, take_directory, &directory);
	remote_prepared_done(file);
	return r;
}

int remote_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes)
{
	cleanup_remote_request struct remote_request request = {ctx, remote_of(w), REQUEST_MKNOD};

	wire_put_name(&request.arguments, path, &ctx->parent);
	wire_put_number(&request.arguments, mode);
	wire_put_number(&request.arguments, rdev);
	return (int)remote_request_run(&request, take_attributes, ret_attributes);
}

int remote_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes)
{
	cleanup_remote_request struct remote_request request = {ctx, remote_of(w), REQUEST_SYMLINK};

	wire_put_string(&request.arguments, target);
	wire_put_name(&request.arguments, path, &ctx->parent);
	return (int)remote_request_run(&request, take_attributes, ret_attributes);
}

int remote_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_LINK, .object = object};

	wire_put_name(&request.arguments, path, &ctx->new_parent);
	return (int)remote_request_run(&request, take_attributes, ret_attributes);
}

static int remove_name(struct op_context *ctx, struct workspace *w, enum frame_type type,
	const char *path, const struct object_id *expected)
{
	cleanup_remote_request struct remote_request request = {ctx, remote_of(w), type};

	wire_put_name(&request.arguments, path, &ctx->parent);
	wire_put_object_id(&request.arguments, expected);
	return (int)remote_request_run(&request, NULL, NULL);
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
	cleanup_remote_request struct remote_request request = {ctx, remote_of(w), REQUEST_RENAME};
	int r;

	wire_put_name(&request.arguments, from, &ctx->parent);
	wire_put_name(&request.arguments, to, &ctx->new_parent);
	wire_put_number(&request.arguments, flags);
	wire_put_object_id(&request.arguments, expected);
	r = (int)remote_request_run(&request, NULL, NULL);
	if (r == 0)
		remote_files_renamed(request.remote, from, to, flags & RENAME_SWAP);
	return r;
}

/* ---- Attributes ------------------------------------------------------------------------ */

int remote_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_SETATTR, .object = object};
	struct attributes attributes = *want;
	int r;

	if (mask == SET_SIZE && object->file && ctx->create_hint == CREATE_ASYNC) {
		r = remote_queue_size(ctx, remote_file_of(object->file), want->size_bytes);
		ctx->served.is_async = r == 0;
		return r;
	}
	attributes.size_bytes = mask & SET_SIZE ? want->size_bytes : 0;
	attributes.atime = mask & SET_ATIME ? want->atime : (struct timespec){0};
	attributes.mtime = mask & SET_MTIME ? want->mtime : (struct timespec){0};
	attributes.ctime = (struct timespec){0};
	wire_put_number(&request.arguments, mask);
	wire_put_attributes(&request.arguments, &attributes);
	r = (int)remote_request_run(&request, take_attributes, ret_attributes);
	if (r >= 0 && (mask & SET_SIZE))
		remote_object_changed(remote_of(w), &ret_attributes->id, 0);
	return r;
}

/* Room for the bytes of an xattr answer; 0: only their count is asked for. */
struct value {
	void *bytes;
	size_t size;
};

static int64_t take_value(void *user, struct remote_request *request, int64_t result)
{
	struct value *value = user;
	const uint8_t *bytes;

	if (value->size == 0)
		return result;
	if ((uint64_t)result > value->size)
		return -EIO;
	bytes = wire_get_raw(&request->call->body, (size_t)result);
	if (!bytes)
		return -EIO;
	memcpy(value->bytes, bytes, (size_t)result);
	return result;
}

ssize_t remote_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_GETXATTR, .object = object};

	/* The kernel asks for it before it changes a file's content or owner. */
	if (strcmp(name, "security.capability") == 0 &&
		remote_has_no_xattrs(remote_of(w), object, false)) {
		ctx->served.from_cache = true;
		return -ENODATA;
	}
	wire_put_string(&request.arguments, name);
	wire_put_number(&request.arguments, size);
	return (ssize_t)remote_request_run(&request, take_value, &(struct value){value, size});
}

ssize_t remote_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_LISTXATTR, .object = object};

	wire_put_number(&request.arguments, size);
	return (ssize_t)remote_request_run(&request, take_value, &(struct value){names, size});
}

int remote_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_SETXATTR, .object = object};

	remote_has_no_xattrs(remote_of(w), object, true);
	wire_put_string(&request.arguments, name);
	wire_put_number(&request.arguments, flags);
	wire_put_bytes(&request.arguments, value, size);
	return (int)remote_request_run(&request, NULL, NULL);
}

int remote_removexattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name)
{
	cleanup_remote_request struct remote_request request = {
		ctx, remote_of(w), REQUEST_REMOVEXATTR, .object = object};

	wire_put_string(&request.arguments, name);
	return (int)remote_request_run(&request, NULL, NULL);
}

static int64_t take_stats(void *ret_stats, struct remote_request *request, int64_t result)
{
	struct fs_stats stats = {0};

	wire_get_fs_stats(&request->call->body, &stats);
	result = remote_request_finish(request, result);
	if (result >= 0)
		*(struct fs_stats *)ret_stats = stats;
	return result;
}

int remote_statfs(struct op_context *ctx, struct workspace *w, struct fs_stats *ret_stats)
{
	struct remote_request request = {ctx, remote_of(w), REQUEST_STATFS};

	return (int)remote_request_run(&request, take_stats, ret_stats);
}

static int64_t pass_over(void *user, struct remote_request *request, int64_t result)
{
	(void)user;
	(void)request;
	return result;
}

/* An older helper answers something, at least. */
int remote_check(struct op_context *ctx, struct workspace *w)
{
	struct remote *remote = remote_of(w);
	bool is_known = remote->capabilities & WORKSPACE_CAN_CHECK;
	struct remote_request request = {ctx, remote, is_known ? REQUEST_CHECK : REQUEST_STATFS};

	return (int)remote_request_run(&request, pass_over, NULL);
}
