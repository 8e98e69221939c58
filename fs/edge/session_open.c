#include "fs/edge/announce.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/edge/dropper.h"
#include "fs/edge/virtual.h"
#include "ops/read_data.h"
#include "ops/support/cleanup.h"
#include "ops/workspace.h"

struct open_handle *session_handle(const struct fuse_file_info *fi)
{
	return (struct open_handle *)(uintptr_t)fi->fh;
}

/* Begins a request on an open file: the path is for the log only. */
struct open_handle *session_begin_on_handle(struct request *r, fuse_req_t fuse, const char *op,
	unsigned flags, const struct fuse_file_info *fi)
{
	struct open_handle *handle = session_handle(fi);
	struct object_id id;

	request_begin(r, fuse, op, flags);
	inode_table_path(r->mount->inodes, handle->inode, NULL, &r->path);
	id = inode_table_id(r->mount->inodes, handle->inode);
	request_changes(r, r->path.path, &id);
	return handle;
}

static bool is_writing(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* ---- Which way the data goes ------------------------------------------------------------ */

enum {
	/* The largest file whose content is handed to the kernel when it is opened. */
	STORE_MAX_BYTES = 128 << 10,
};

/*
 * BACKED: the kernel reads and maps the file at the workspace by itself; writes come here,
 *   so that the log has them.  While one handle of an inode is backed, all have to be, and
 *   none may be while one is cached.
 * DIRECT: every read and write comes here.  For all with -o log_reads; for files whose content is
 *   made when it is read, where the kernel would read no further than st_size, which is 0, and keep
 *   what it has read; for handles that only write;
 * for those that append: the kernel would put the data into its pages at the end it knows of,
 * which may have moved; and for those that write with O_DIRECT: it does not forget what others read
 * during an asynchronous write (direct_write() sees to that).
 *
 * CACHED: through the kernel's pages.  A file that may be mapped wants it: what was written around
 * a page is lost when a program changes that page in its map meanwhile.
 */
static bool wants_backing(const struct fuse_file_info *fi, const struct attributes *attributes)
{
	return !is_writing(fi->flags) && !attributes->is_generated &&
	       attributes->size_bytes > STORE_MAX_BYTES;
}

static bool wants_direct(const struct session *s, const struct open_handle *handle,
	const struct attributes *attributes)
{
	if (s->mount->options->log_reads || attributes->is_generated)
		return true;
	if (!is_writing(handle->flags))
		return false;
	return (handle->flags & O_ACCMODE) == O_WRONLY || (handle->flags & (O_APPEND | O_DIRECT));
}

static void choose_way(struct session *s, struct open_handle *handle,
	const struct fuse_file_info *fi, const struct attributes *attributes)
{
	struct inode_file *file = inode_file(handle->inode);
	int fd, id;

	handle->way = wants_direct(s, handle, attributes) ? WAY_DIRECT : WAY_CACHED;
	if (!s->passes_through || s->mount->options->log_reads || s->mount->options->no_atime)
		return;
	pthread_mutex_lock(&s->backing_lock);
	if (!file->cached_users && !file->backing_users && wants_backing(fi, attributes)) {
		fd = workspace_descriptor(handle->file);
		id = fd < 0 ? fd : session_raw_backing_open(s, fd);
		file->backing_id = id > 0 ? id : 0;
	}
	if (file->backing_id && !file->cached_users) {
		handle->way = WAY_BACKED;
		session_raw_answer_backed(file->backing_id);
	}
	file->backing_users += handle->way == WAY_BACKED;
	file->cached_users += handle->way == WAY_CACHED;
	pthread_mutex_unlock(&s->backing_lock);
}

static void leave_way(struct session *s, struct open_handle *handle)
{
	struct inode_file *file = inode_file(handle->inode);

	if (!s->passes_through)
		return;
	pthread_mutex_lock(&s->backing_lock);
	file->cached_users -= handle->way == WAY_CACHED;
	if (handle->way == WAY_BACKED && --file->backing_users == 0) {
		session_raw_backing_close(s, file->backing_id);
		file->backing_id = 0;
	}
	pthread_mutex_unlock(&s->backing_lock);
}

/* Every close of a file drops the process's POSIX locks and reports a late error, so the kernel
 * must send FLUSH. */
static bool needs_flush(const struct session *s, const struct open_handle *handle)
{
	if (inode_file(handle->inode)->was_locked)
		return true;
	return s->is_remote ? is_writing(handle->flags) : (handle->flags & O_ACCMODE) == O_RDWR;
}

/* Puts a small file into the kernel's pages before it asks for them.  Nobody else has the
 * file open (whoever opens it to write meanwhile bars this): a page that a map has changed would be
 * lost.  True: they are the whole file. */
static bool hand_over_content(struct request *r, struct open_handle *handle,
	const struct attributes *attributes, const struct inode_note *note, unsigned turn)
{
	char *data = session_thread_buffer(STORE_MAX_BYTES);
	struct fuse_bufvec content = FUSE_BUFVEC_INIT(0);
	struct inode_file *file = inode_file(handle->inode);
	ssize_t got;

	if (handle->way != WAY_CACHED || is_writing(handle->flags) || !data ||
		attributes->size_bytes > STORE_MAX_BYTES || !attributes->size_bytes)
		return false;
	if (!note->only_handle || note->has_shrunk || (!note->data_changed && file->content_given))
		return false;
	got = r->session->is_remote
		      ? workspace_read(&r->op, handle->file, data, attributes->size_bytes, 0)
		      : read_data(&r->op, handle->file, data, attributes->size_bytes);
	if (got != (ssize_t)attributes->size_bytes)
		return false;
	content.buf[0].mem = data;
	content.buf[0].size = (size_t)got;
	/* Not if the kernel was told to drop pages after the content was read. */
	pthread_rwlock_rdlock(&r->session->store_lock);
	file->content_given = session_pages_turn(r->session, handle->inode) == turn &&
			      fuse_lowlevel_notify_store(r->session->fuse,
				      session_ino(r->session, handle->inode), 0, &content, 0) == 0;
	pthread_rwlock_unlock(&r->session->store_lock);
	return file->content_given;
}

/* Through another handle the file may be mapped, and it was written to just now.  A page that is
 * dropped meanwhile may come back as it was before, and the map be written back over what was
 * written: it is dropped a while later. */
static bool drops_later(struct request *r, struct open_handle *handle)
{
	unsigned own = (handle->flags & O_ACCMODE) == O_RDWR;

	if (inode_file(handle->inode)->mappers == own || !dropper_is_being_written(handle->inode))
		return false;
	session_thread_block();
	dropper_drop(r->session->dropper, handle->inode, true, NULL);
	session_thread_unblock();
	return true;
}

/* Whether the kernel's pages are those of the file as it was opened.  With cache=strict only the
 * workspace knows. */
static bool has_the_pages(struct request *r, struct open_handle *handle,
	const struct attributes *attributes, const struct inode_note *note, unsigned turn)
{
	if (drops_later(r, handle))
		return true;
	if (r->mount->options->cache_strict)
		return false;
	return hand_over_content(r, handle, attributes, note, turn) || !note->data_changed;
}

/* ---- Opening ------------------------------------------------------------------------- */

/* The hash of the content that the file had, without a look at it.  `before`: the attributes it had
 * then, or NULL. */
static bool hash_before(struct request *r, struct inode *inode, const struct attributes *before,
	uint8_t ret_digest[CONTENT_HASH_BYTES])
{
	static const uint8_t nothing[CONTENT_HASH_BYTES] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47,
		0x98, 0xd8, 0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};

	if (before && before->size_bytes)
		return inode_table_hash(r->mount->inodes, inode, before, ret_digest);
	memcpy(ret_digest, nothing, sizeof(nothing));
	return before;
}

static void release_hash(struct open_handle *handle)
{
	content_hash_free(handle->hash);
}

/* Takes over `file`.  `before`: its attributes before it was opened, when they are known. */
static int make_handle(struct request *r, struct inode *inode, struct open_file *file,
	const struct attributes *attributes, const struct attributes *before,
	struct fuse_file_info *fi)
{
	struct open_handle *handle = malloc(sizeof(*handle));
	int result;

	if (!handle) {
		workspace_close(&r->op, file);
		return -ENOMEM;
	}
	*handle = (struct open_handle){.inode = inode, .file = file, .flags = fi->flags};
	if (is_writing(fi->flags) && r->mount->log) {
		handle->hash = content_hash_new(!attributes->size_bytes);
		handle->release = release_hash;
		handle->knows_before = hash_before(r, inode, before, handle->hash_before);
	}
	result = inode_table_handle_add(r->mount->inodes, handle);
	if (result < 0) {
		workspace_close(&r->op, file);
		content_hash_free(handle->hash);
		free(handle);
		return result;
	}
	if (is_writing(fi->flags) || (fi->flags & O_TRUNC))
		session_bar_content(r->session, inode, false);
	choose_way(r->session, handle, fi, attributes);
	fi->fh = (uintptr_t)handle;
	fi->direct_io =
		handle->way == WAY_DIRECT || (handle->way == WAY_BACKED && is_writing(fi->flags));
	fi->noflush = !needs_flush(r->session, handle);
	return 0;
}

static void drop_failed_handle(struct session *s, struct fuse_file_info *fi)
{
	struct op_context op;

	op_context_init(&op);
	leave_way(s, session_handle(fi));
	inode_table_handle_put(s->mount->inodes, &op, session_handle(fi));
}

static bool caller_is_in_group(const struct request *r, gid_t gid)
{
	gid_t groups[64];
	int count;

	if (fuse_req_ctx(r->fuse)->gid == gid)
		return true;
	count = fuse_req_getgroups(r->fuse, array_size(groups), groups);
	for (int i = 0; i < count && i < (int)array_size(groups); i++)
		if (groups[i] == gid)
			return true;
	return false;
}

/* What the kernel does itself where it can. */
bool session_clears_suid(const struct request *r, struct inode *inode, uint32_t *ret_permissions)
{
	struct inode_state state;
	uint32_t mode;

	inode_table_state(r->mount->inodes, inode, &state);
	mode = state.version.mode & 07777;
	*ret_permissions = mode & ~(uint32_t)S_ISUID;
	if ((mode & S_ISGID) &&
		((mode & S_IXGRP) ||
			!caller_is_in_group(r, mount_swap_gid(r->mount, state.version.gid))))
		*ret_permissions &= ~(uint32_t)S_ISGID;
	return *ret_permissions != mode;
}

void session_clear_suid(struct request *r, struct open_handle *handle)
{
	struct object_ref object = OBJECT_OF(handle->file);
	struct attributes attributes = {0};
	struct inode_note note;

	if (!session_clears_suid(r, handle->inode, &attributes.mode) ||
		workspace_setattr(&r->op, r->mount->workspace, &object, SET_MODE, &attributes,
			&attributes) < 0)
		return;
	inode_table_note(r->mount->inodes, handle->inode, &attributes, &note);
	session_drop_inode(r->session, handle->inode, false);
}

/* On a far workspace most files are read ahead, which does not change their atime. */
static int flags_there(const struct session *s, int flags)
{
	return s->mount->options->no_atime && !s->is_remote ? flags | O_NOATIME : flags;
}

/* The attributes of a file that opening is about to truncate, if they say which content it has. Far
 * away they would cost a round trip. */
static bool look_before(struct request *r, struct inode *inode, const struct object_ref *object,
	int flags, struct attributes *ret_attributes)
{
	return (flags & O_TRUNC) && !r->session->is_remote &&
	       inode_table_has_hash(r->mount->inodes, inode) &&
	       workspace_getattr(&r->op, r->mount->workspace, object, ret_attributes) == 0;
}

void session_open(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct attributes attributes, truncated;
	const struct attributes *before;
	struct inode_version version;
	struct open_file *file;
	struct object_ref object;
	struct inode_note note;
	struct inode *inode;
	struct request r;
	unsigned turn;
	int result;

	if (virtual_open(fuse, ino, fi) || announce_open(fuse, fi))
		return;
	request_begin(&r, fuse, "open", (fi->flags & O_TRUNC) ? LOG_IS_MUTATION : 0);
	inode = session_inode(r.session, ino);
	turn = session_pages_turn(r.session, inode);
	do {
		result = request_locate(&r, inode, &object);
		before = result == 0 && look_before(&r, inode, &object, fi->flags, &truncated)
				 ? &truncated
				 : NULL;
		if (result == 0)
			result = workspace_open_file(&r.op, r.mount->workspace, &object,
				flags_there(r.session, fi->flags), &file, &attributes);
		if (result == -EISDIR || result == -ENXIO) /* what is there now */
			result = -ESTALE;
	} while (request_retry(&r, result, inode));
	result = request_object_result(&r, inode, result);
	/* Those of a far workspace may be from a cache. */
	if (!(fi->flags & O_TRUNC) && !r.session->is_remote)
		before = &attributes;
	if (result == 0)
		result = make_handle(&r, inode, file, &attributes, before, fi);
	if (result < 0) {
		request_finish(&r, result);
		return;
	}
	inode_table_note(r.mount->inodes, inode, &attributes, &note);
	if (atomic_exchange(&inode_file(inode)->rewritten, false) &&
		note.lifetime != LIFETIME_WATCHED)
		note.data_changed = true;
	fi->keep_cache = has_the_pages(&r, session_handle(fi), &attributes, &note, turn);
	/* Above all the size that the kernel has. */
	if (note.data_changed) {
		inode_version_of(&attributes, &version);
		dropper_drop(r.session->dropper, inode, false, &version);
	}
	if ((fi->flags & O_TRUNC) && session_raw_kills_suid())
		session_clear_suid(&r, session_handle(fi));
	request_record(&r, 0);
	if (fuse_reply_open(fuse, fi) < 0)
		drop_failed_handle(r.session, fi);
}

/* Another process made the file after the kernel's lookup. */
static int open_existing(struct request *r, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	struct object_ref object = {.path = r->path.path, .parent = r->op.parent};
	struct attributes attributes;
	int result = workspace_getattr(&r->op, r->mount->workspace, &object, &attributes);

	if (result < 0)
		return result;
	if (!S_ISREG(attributes.mode))
		return -ESTALE;
	object.id = attributes.id;
	r->is_found = true;
	result = workspace_open_file(
		&r->op, r->mount->workspace, &object, flags, ret_file, ret_attributes);
	return result == -ESTALE ? -ENOENT : result;
}

/* What exists may be removed before it is opened, and made again.  O_TMPFILE: a file in the
 * directory at the path, without a name. */
static int create(struct request *r, mode_t mode, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	int result, attempts = 0;

	if (session_raw_is_unnamed())
		return workspace_create_unnamed(&r->op, r->mount->workspace, r->path.path,
			flags & ~O_TMPFILE, mode, ret_file, ret_attributes);
	do {
		result = workspace_create(&r->op, r->mount->workspace, r->path.path, flags, mode,
			ret_file, ret_attributes);
		if (result != -EEXIST || (flags & O_EXCL))
			return result;
		result = open_existing(r, flags, ret_file, ret_attributes);
	} while (result == -ENOENT && ++attempts <= ATTEMPTS_MAX);
	return result;
}

/* `before`: the highest position from before the create, for a name that is not there yet
 * (is_async): there was no look at it. */
static int enter_created(struct request *r, struct inode *parent, const char *name,
	const struct attributes *attributes, uint64_t before, struct fuse_entry_param *ret_entry,
	struct inode **ret_inode)
{
	uint64_t at = r->op.served.is_async && !r->path_is_stale ? before : request_position(r);
	int result;

	if (!session_raw_is_unnamed()) {
		result = session_enter(
			r->session, parent, name, attributes, at, NULL, ret_entry, ret_inode);
		return result < 0 ? result : 0;
	}
	result = inode_table_enter_unnamed(r->mount->inodes, attributes, ret_inode);
	if (result < 0)
		return result;
	*ret_entry = (struct fuse_entry_param){.ino = session_ino(r->session, *ret_inode)};
	session_stat(r->session, *ret_inode, attributes, &ret_entry->attr);
	return 0;
}

void session_create(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name, mode_t mode,
	struct fuse_file_info *fi)
{
	bool unnamed = session_raw_is_unnamed();
	struct fuse_entry_param entry;
	struct attributes attributes;
	struct inode *inode, *parent;
	struct open_file *file;
	struct request r;
	uint64_t before;
	int result;

	if (virtual_refuses_entry(fuse, parent_ino, unnamed ? "" : name))
		return;
	request_begin(&r, fuse, unnamed ? "tmpfile" : "create", LOG_IS_MUTATION);
	parent = session_inode(r.session, parent_ino);
	if (!unnamed)
		request_owns_name(&r, parent, name);
	before = inode_table_position(r.mount->inodes);
	do {
		result = request_locate_entry(&r, parent, unnamed ? NULL : name);
		if (result == 0)
			result = create(&r, mode & 07777, fi->flags, &file, &attributes);
	} while (request_retry_entry(&r, result, parent, NULL));
	if (result == 0) {
		result = enter_created(&r, parent, name, &attributes, before, &entry, &inode);
		if (result < 0)
			workspace_close(&r.op, file);
	}
	if (r.path_is_stale || r.op.served.is_async)
		entry.entry_timeout = entry.attr_timeout = 0;
	if (result == 0) {
		result = make_handle(
			&r, inode, file, &attributes, r.is_found ? NULL : &attributes, fi);
		if (result < 0)
			inode_table_forget(r.mount->inodes, inode, 1);
	}
	if (request_failed(&r, result))
		return;
	if (fuse_reply_create(fuse, &entry, fi) < 0) {
		drop_failed_handle(r.session, fi);
		inode_table_forget(r.mount->inodes, inode, 1);
	}
}

static void record_hashes(struct request *r, struct open_handle *handle)
{
	bool is_near = !r->session->is_remote;
	bool is_sure =
		is_near &&
		handle->way != WAY_BACKED; /* maps of those are written by the kernel itself */
	struct attributes attributes;

	if (!content_hash_end(
		    handle->hash, &r->op, handle->file, is_near, r->record.hash, &attributes))
		return;
	r->record.flags |= LOG_HAS_HASH;
	if (!inode_table_keep_hash(r->mount->inodes, handle->inode, is_sure ? &attributes : NULL,
		    r->record.hash) ||
		!handle->knows_before)
		return;
	memcpy(r->record.hash_before, handle->hash_before, CONTENT_HASH_BYTES);
	r->record.flags |= LOG_HAS_HASH_BEFORE;
}

void session_release(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;
	int result;

	if (virtual_release(fuse, ino, fi) || announce_close(fuse, fi))
		return;
	handle = session_begin_on_handle(
		&r, fuse, "close", is_writing(fi->flags) ? LOG_IS_MUTATION : 0, fi);
	record_hashes(&r, handle);
	leave_way(r.session, handle);
	if (fi->flock_release)
		dropper_unlocking(r.session->dropper, handle->inode,
			&(struct file_lock){.kind = LOCK_KIND_FLOCK,
				.type = LOCK_NONE,
				.owner = fi->lock_owner},
			r.op.pid);
	result = inode_table_handle_put(r.mount->inodes, &r.op, handle);
	request_finish(&r, result);
}
