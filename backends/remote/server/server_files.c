#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/server/server_internal.h"
#include "ops/read_data.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

enum { NAME_ATTEMPTS = 4 };

/* The handle that a request names; `*job` has it until handle_done(). */
struct file_ref {
	struct server *server;
	struct handle *handle;
};

static void file_ref_done(struct file_ref *ref)
{
	if (ref->handle)
		server_handle_put(ref->server, ref->handle);
}

#define cleanup_file_ref cleanup_with(file_ref_done)

static int read_file_ref(struct job *job, struct file_ref *ref)
{
	ref->server = job->server;
	ref->handle = server_handle_get(job->server, wire_get_number(&job->in));
	return ref->handle ? 0 : -EBADF;
}

/* ---- Opening ------------------------------------------------------------------ */

/* Reads the start of a file: the client has asked for it by itself, or wants the whole file, which
 * may be more than its caller does.  What has no size, as in /proc, may have content. */
static ssize_t read_start(struct job *job, struct open_file *file, void *data, size_t size)
{
	uint64_t position = job->ctx.served.position; /* of what was looked at before */
	struct attributes attributes;
	int r = workspace_getattr(&job->ctx, job->server->workspace, &OBJECT_OF(file), &attributes);

	job->ctx.served.position = position;
	if (r < 0 || !attributes.size_bytes)
		return workspace_read(&job->ctx, file, data, size, 0);
	return read_data(
		&job->ctx, file, data, size < attributes.size_bytes ? size : attributes.size_bytes);
}

/* Appends attributes and the first bytes of the file. */
static int put_opened(struct job *job, struct wire_writer *out, struct open_file *file,
	const struct attributes *attributes, size_t inline_bytes)
{
	uint64_t position = job->ctx.served.position;
	ssize_t got = 0;

	wire_put_attributes(out, attributes);
	if (out->error == 0 && inline_bytes)
		out->error = buffer_reserve(&out->buffer, inline_bytes);
	if (out->error)
		return out->error;
	if (inline_bytes)
		got = read_start(job, file, out->buffer.data + out->buffer.size, inline_bytes);
	if (got > 0)
		out->buffer.size += (size_t)got;
	job->ctx.served.position = position; /* that of the attributes */
	return 0;
}

/* OPENED_INLINE: the rest of the reply is the start of the file. */
static int64_t keep_opened(struct job *job, struct wire_writer *out, int r, uint64_t id,
	struct open_file *file, const struct attributes *attributes, size_t inline_bytes)
{
	if (r < 0)
		return r;
	r = put_opened(job, out, file, attributes, inline_bytes);
	if (r == 0)
		r = server_handle_add(job->server, id, file, &attributes->id);
	if (r < 0)
		workspace_close(&job->ctx, file);
	if (r < 0)
		return r;
	return (inline_bytes ? OPENED_INLINE : 0) |
	       (job->facts.little_room ? OPENED_WITH_LITTLE_ROOM : 0);
}

int64_t handle_open(struct job *job, struct wire_writer *out)
{
	cleanup_server_object struct server_object object;
	int r = server_object_read(job, &object);
	int flags = wire_get_open_flags(&job->in);
	uint64_t id = wire_get_number(&job->in);
	size_t inline_bytes = wire_get_number_max(&job->in, TRANSFER_MAX_BYTES);
	struct open_file *file = NULL;
	struct attributes attributes;

	job->ctx.facts = &job->facts;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0)
		r = workspace_open_file(
			&job->ctx, job->server->workspace, &object.ref, flags, &file, &attributes);
	return keep_opened(job, out, r, id, file, &attributes, inline_bytes);
}

static int64_t create(struct job *job, struct wire_writer *out,
	int (*make)(struct op_context *ctx, struct workspace *w, const char *path, int flags,
		uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes))
{
	const char *path = wire_get_name(&job->in, &job->ctx.parent);
	int flags = wire_get_open_flags(&job->in);
	uint32_t mode = (uint32_t)wire_get_number_max(&job->in, UINT32_MAX);
	uint64_t id = wire_get_number(&job->in);
	int r = wire_reader_finish(&job->in);
	struct open_file *file = NULL;
	struct attributes attributes;

	job->ctx.facts = &job->facts;
	if (r == 0)
		r = make(&job->ctx, job->server->workspace, path, flags, mode, &file, &attributes);
	return keep_opened(job, out, r, id, file, &attributes, 0);
}

int64_t handle_create(struct job *job, struct wire_writer *out)
{
	return create(job, out, workspace_create);
}

int64_t handle_create_unnamed(struct job *job, struct wire_writer *out)
{
	return create(job, out, workspace_create_unnamed);
}

/* ---- Files that are prepared for a name ------------------------------------------- */

/* What a new file there would have from the directory beside its group. */
static bool has_default_acl(struct job *job, const struct object_ref *directory)
{
	ssize_t r = workspace_getxattr(
		&job->ctx, job->server->workspace, directory, "system.posix_acl_default", NULL, 0);

	return r != -ENODATA && r != -EOPNOTSUPP;
}

/* Only where what create would make can be told beforehand; and not on another file system than
 * the root's, which somebody may want to unmount. */
static int check_prepared(struct job *job, const struct object_ref *directory)
{
	struct workspace *w = job->server->workspace;
	struct attributes root, attributes;
	int r = workspace_getattr(&job->ctx, w, &OBJECT_AT(""), &root);

	if (r == 0)
		r = workspace_getattr(&job->ctx, w, directory, &attributes);
	if (r < 0)
		return r;
	if (attributes.id.device != root.id.device || has_default_acl(job, directory))
		return -EOPNOTSUPP;
	return 0;
}

static int prepare(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	const struct object_ref directory = {.path = path, .id = ctx->parent};
	int r = check_prepared(ctx->interrupted_data, &directory);

	return r < 0 ? r
		     : workspace_create_unnamed(
			       ctx, w, path, flags, mode, ret_file, ret_attributes);
}

int64_t handle_prepare(struct job *job, struct wire_writer *out)
{
	return create(job, out, prepare);
}

int server_prepare_in(struct job *job, const char *path, const struct object_id *directory,
	uint32_t mode, uint64_t id, struct attributes *ret_attributes)
{
	struct op_context ctx = job->ctx;
	struct facts opened = {0};
	struct open_file *file;
	int r;

	ctx.parent = *directory;
	ctx.facts = &opened;
	r = prepare(&ctx, job->server->workspace, path, O_RDWR, mode, &file, ret_attributes);
	if (r < 0)
		return r;
	r = opened.little_room ? -ENOSPC
			       : server_handle_add(job->server, id, file, &ret_attributes->id);
	if (r < 0)
		workspace_close(&ctx, file);
	return r;
}

/* The directory may be another than when the file was prepared. */
static int check_directory(struct job *job, const char *path, const struct attributes *file)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	const struct object_ref directory = {.path = parent, .id = job->ctx.new_parent};
	struct attributes attributes;
	int r = parent ? 0 : -ENOMEM;

	if (r == 0)
		r = workspace_getattr(&job->ctx, job->server->workspace, &directory, &attributes);
	if (r < 0)
		return r;
	if (has_default_acl(job, &directory) ||
		((attributes.mode & S_ISGID) && attributes.gid != file->gid))
		return -ESTALE;
	return 0;
}

static int give_name(struct job *job, struct handle *handle, const char *path)
{
	struct object_ref object = OBJECT_OF(handle->file);
	struct workspace *w = job->server->workspace;
	struct attributes attributes;
	int r = workspace_getattr(&job->ctx, w, &object, &attributes);

	if (r == 0)
		r = check_directory(job, path, &attributes);
	return r < 0 ? r : workspace_link(&job->ctx, w, &object, path, &attributes);
}

/* Events are about the name that a file was opened by.  If that leads elsewhere by now, the one
 * that was prepared will do. */
static int open_named(struct job *job, struct handle *handle, const char *path, int flags)
{
	const struct object_ref object = {.path = path, .id = handle->object};
	struct attributes attributes;
	struct open_file *file;
	int r = workspace_open_file(&job->ctx, job->server->workspace, &object,
		flags & ~(O_TRUNC | O_EXCL), &file, &attributes);

	if (r < 0)
		return 0;
	r = server_handle_named(job->server, handle, file, &handle->object);
	if (r < 0)
		workspace_close(&job->ctx, file);
	return r;
}

static int check_regular(const struct attributes *attributes)
{
	if (S_ISREG(attributes->mode))
		return 0;
	if (S_ISLNK(attributes->mode))
		return -ELOOP;
	return S_ISDIR(attributes->mode) ? -EISDIR : -ENXIO;
}

/* Another process has made the name: without O_EXCL, that file is opened. */
static int open_other(struct job *job, struct handle *handle, const char *path, int flags,
	struct attributes *ret_attributes)
{
	struct object_ref object = {.path = path, .parent = job->ctx.new_parent};
	struct workspace *w = job->server->workspace;
	struct open_file *file;
	int r = workspace_getattr(&job->ctx, w, &object, ret_attributes);

	if (r == 0)
		r = check_regular(ret_attributes);
	if (r < 0)
		return r;
	object.id = ret_attributes->id;
	r = workspace_open_file(&job->ctx, w, &object, flags, &file, ret_attributes);
	if (r < 0)
		return r;
	r = server_handle_named(job->server, handle, file, &ret_attributes->id);
	if (r < 0)
		workspace_close(&job->ctx, file);
	return r;
}

/* It has the times of when it was prepared. */
static int set_times(struct job *job, struct handle *handle, struct attributes *ret_attributes)
{
	const struct object_ref object = OBJECT_OF(handle->file);

	return workspace_setattr(&job->ctx, job->server->workspace, &object,
		SET_ATIME_NOW | SET_MTIME_NOW, &(struct attributes){0}, ret_attributes);
}

/* The prepared file takes the name. */
static int name_prepared(struct job *job, struct handle *handle, const char *path, int flags,
	struct attributes *ret_attributes, struct facts *opened)
{
	int r = give_name(job, handle, path);
	uint64_t position;

	if (r < 0)
		return r;
	position = job->ctx.served.position;
	job->ctx.facts = opened;
	r = open_named(job, handle, path, flags);
	job->ctx.facts = NULL;
	if (r == 0)
		r = set_times(job, handle, ret_attributes);
	job->ctx.served.position = position;
	return r;
}

/* What is there may go again before it is opened.  `makes`: the file that was prepared is wanted.
 */
static int name_or_open(struct job *job, struct handle *handle, const char *path, int flags,
	bool makes, struct attributes *ret_attributes, struct facts *opened)
{
	int r, attempts = 0;

	do {
		if (makes) {
			r = name_prepared(job, handle, path, flags, ret_attributes, opened);
			if (r != -EEXIST || (flags & O_EXCL))
				return r;
		}
		job->facts = (struct facts){0}; /* of the attempt */
		job->ctx.facts = opened;
		r = open_other(job, handle, path, flags, ret_attributes);
		job->ctx.facts = &job->facts;
	} while ((r == -ESTALE || (makes && r == -ENOENT)) && ++attempts < NAME_ATTEMPTS);
	job->ctx.facts = NULL;
	return r;
}

int64_t handle_name(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	const char *path = wire_get_name(&job->in, &job->ctx.new_parent);
	int flags = wire_get_open_flags(&job->in);
	bool makes = wire_get_number_max(&job->in, 1);
	struct attributes attributes;
	struct facts opened = {0};

	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0 && ref.handle->is_named)
		r = -EBADF;
	if (r == 0)
		r = name_or_open(job, ref.handle, path, flags, makes, &attributes, &opened);
	if (r < 0)
		return r;
	wire_put_attributes(out, &attributes);
	return opened.little_room ? OPENED_WITH_LITTLE_ROOM : 0;
}

/* Closed before the reply goes out.  When other jobs still use the file the last of them
 * closes it, and the error is lost, as with close(2) of a descriptor that was duplicated. */
int64_t handle_close(struct job *job, struct wire_writer *out)
{
	uint64_t id = wire_get_number(&job->in);
	int r = wire_reader_finish(&job->in);
	struct handle *handle;
	int r_order;

	(void)out;
	if (r < 0)
		return r;
	if (server_close_frees_locks(job))
		server_wait_for_writes(job);
	handle = server_handle_remove(job->server, id);
	if (!handle)
		return -EBADF;
	r = server_handle_put(job->server, handle);
	r_order = server_leave_order(job);
	return r < 0 ? r : r_order;
}

/* ---- Content -------------------------------------------------------------------- */

int64_t handle_read(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	uint64_t offset = wire_get_number_max(&job->in, INT64_MAX);
	size_t size = wire_get_number_max(&job->in, TRANSFER_MAX_BYTES);
	void *data;
	ssize_t got;

	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0 && size > LANE_LARGE_BYTES / 4)
		lane_writer_enlarge(job->lane, out);
	if (r == 0)
		r = buffer_reserve(&out->buffer, size);
	if (r < 0)
		return r;
	data = out->buffer.data + out->buffer.size;
	got = offset ? workspace_read(&job->ctx, ref.handle->file, data, size, (off_t)offset)
		     : read_start(job, ref.handle->file, data, size);
	if (got > 0)
		out->buffer.size += (size_t)got;
	return got;
}

/* What stops it halfway is the result: the client has gone on, and wants to know why. */
static int64_t write_all(
	struct job *job, struct open_file *file, const uint8_t *data, size_t size, off_t offset)
{
	size_t done = 0;
	ssize_t written;

	do {
		written = workspace_write(
			&job->ctx, file, data + done, size - done, offset + (off_t)done);
		if (written > 0)
			done += (size_t)written;
	} while (written > 0 && done < size);
	return written < 0 ? written : (int64_t)done;
}

int64_t handle_write(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	uint64_t offset = wire_get_number_max(&job->in, INT64_MAX);
	size_t size;
	const uint8_t *data = wire_get_bytes(&job->in, &size);

	(void)out;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	server_note_changed(job->server, &ref.handle->object);
	return write_all(job, ref.handle->file, data, size, (off_t)offset);
}

int64_t handle_write_detached(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	uint64_t offset = wire_get_number_max(&job->in, INT64_MAX);
	size_t size = wire_get_number_max(&job->in, FRAME_PAYLOAD_MAX_BYTES);

	(void)out;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0 && (!job->content || job->content->size != size))
		r = -EPROTO;
	if (r < 0)
		return r;
	server_note_changed(job->server, &ref.handle->object);
	return write_all(job, ref.handle->file, job->content->data, size, (off_t)offset);
}

int64_t handle_fsync(struct job *job, struct wire_writer *out)
{
	uint64_t id = wire_get_number(&job->in);
	const char *path = wire_get_path(&job->in);
	bool data_only = wire_get_number_max(&job->in, 1);
	int r = wire_reader_finish(&job->in);
	struct handle *handle;

	(void)out;
	if (r < 0)
		return r;
	if (!id)
		return workspace_fsync(&job->ctx, job->server->workspace, NULL, path, data_only);
	handle = server_handle_get(job->server, id);
	if (!handle)
		return -EBADF;
	r = workspace_fsync(&job->ctx, job->server->workspace, handle->file, "", data_only);
	server_handle_put(job->server, handle);
	return r;
}

int64_t handle_fallocate(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	unsigned mode = (unsigned)wire_get_number_max(&job->in, UINT32_MAX);
	uint64_t offset = wire_get_number_max(&job->in, INT64_MAX);
	uint64_t length = wire_get_number_max(&job->in, INT64_MAX);

	(void)out;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	server_note_changed(job->server, &ref.handle->object);
	return workspace_fallocate(&job->ctx, ref.handle->file, mode, (off_t)offset, (off_t)length);
}

int64_t handle_seek(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	uint64_t offset = wire_get_number_max(&job->in, INT64_MAX);
	bool hole = wire_get_number_max(&job->in, SEEK_CODE_HOLE) == SEEK_CODE_HOLE;

	(void)out;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	return r < 0 ? r
		     : workspace_seek(&job->ctx, ref.handle->file, (off_t)offset,
			       hole ? SEEK_HOLE : SEEK_DATA);
}

int64_t handle_copy_range(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref from = {0}, to = {0};
	int r = read_file_ref(job, &from);
	uint64_t from_offset = wire_get_number_max(&job->in, INT64_MAX);
	int r_to = read_file_ref(job, &to);
	uint64_t to_offset = wire_get_number_max(&job->in, INT64_MAX);
	uint64_t size = wire_get_number_max(&job->in, INT64_MAX);

	(void)out;
	if (r == 0)
		r = r_to;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r < 0)
		return r;
	server_note_changed(job->server, &to.handle->object);
	return workspace_copy_range(&job->ctx, from.handle->file, (off_t)from_offset,
		to.handle->file, (off_t)to_offset, size);
}

/* ---- Locks ------------------------------------------------------------------------ */

/* The start of the file, behind the look at its attributes. */
static void put_start(
	struct job *job, struct wire_writer *out, struct open_file *file, size_t inline_bytes)
{
	cleanup_free void *data = inline_bytes ? malloc(inline_bytes) : NULL;
	uint64_t position = job->ctx.served.position;
	ssize_t got = data ? read_start(job, file, data, inline_bytes) : 0;

	wire_put_bytes(out, data ? data : "", got > 0 ? (size_t)got : 0);
	job->ctx.served.position = position;
}

int64_t handle_lock(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	struct file_lock lock;
	size_t inline_bytes;
	int r_order;
	bool wait;

	wire_get_lock(&job->in, &lock);
	wait = wire_get_number_max(&job->in, 1);
	inline_bytes = wire_get_number_max(&job->in, LOCK_INLINE_MAX_BYTES);
	if (r == 0)
		r = wire_reader_finish(&job->in);
	if (r == 0 && lock.type == LOCK_NONE) {
		server_wait_for_writes(job);
		put_start(job, out, ref.handle->file, 0);
		return workspace_lock(&job->ctx, ref.handle->file, &lock, wait);
	}
	if (r == 0)
		ref.handle->has_locks = true;
	/* Who holds the lock may have to close a handle that this request came after. */
	r_order = server_leave_order(job);
	if (r == 0)
		r = r_order;
	server_wait_for_closes(job);
	/* It may be made of an exclusive one. */
	if (r == 0 && lock.type == LOCK_SHARED)
		r = server_wait_for_writes(job);
	if (r == 0)
		r = workspace_lock(&job->ctx, ref.handle->file, &lock, wait);
	server_tell_loss(job->server);
	if (r == 0)
		put_start(job, out, ref.handle->file, inline_bytes);
	return r;
}

int64_t handle_lock_test(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	struct file_lock lock;

	wire_get_lock(&job->in, &lock);
	if (r == 0)
		r = wire_reader_finish(&job->in);
	server_wait_for_closes(job);
	if (r == 0)
		r = workspace_lock_test(&job->ctx, ref.handle->file, &lock);
	if (r == 0)
		wire_put_lock(out, &lock);
	return r;
}

int64_t handle_lock_release_owner(struct job *job, struct wire_writer *out)
{
	cleanup_file_ref struct file_ref ref = {0};
	int r = read_file_ref(job, &ref);
	uint64_t owner = wire_get_number(&job->in);

	(void)out;
	if (r == 0)
		r = wire_reader_finish(&job->in);
	server_wait_for_writes(job);
	return r < 0 ? r : workspace_lock_release_owner(&job->ctx, ref.handle->file, owner);
}
