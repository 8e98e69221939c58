#include "fs/session.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "fs/virtual.h"
#include "ops/support/cleanup.h"

static struct open_handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct open_handle *)(uintptr_t)fi->fh;
}

/* Begins a request on an open file: the path is for the log only. */
static struct open_handle *begin_on_handle(struct request *r, fuse_req_t fuse, const char *op,
	unsigned flags, const struct fuse_file_info *fi)
{
	struct open_handle *handle = handle_of(fi);

	request_begin(r, fuse, op, flags);
	inode_table_path(r->mount->inodes, handle->inode, NULL, &r->path);
	return handle;
}

/* ---- Opening ------------------------------------------------------------------------- */

static bool is_writing(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* While any handle of an inode is read by the kernel itself, all have to be; and none may
 * be while one goes through the page cache of the mount. */
static void choose_path(struct session *s, struct open_handle *handle)
{
	struct inode *inode = handle->inode;
	int fd, id = 0;

	if (!s->passes_through)
		return;
	pthread_mutex_lock(&s->backing_lock);
	if (!inode->cached_users && !inode->backing_users) {
		fd = workspace_descriptor(handle->file);
		id = fd < 0 ? fd : session_raw_backing_open(s, fd);
		inode->backing_id = id > 0 ? id : 0;
	}
	if (inode->cached_users || !inode->backing_id) {
		inode->cached_users++;
	} else {
		inode->backing_users++;
		handle->backing_id = inode->backing_id;
	}
	pthread_mutex_unlock(&s->backing_lock);
}

static void leave_path(struct session *s, struct open_handle *handle)
{
	struct inode *inode = handle->inode;

	if (!s->passes_through)
		return;
	pthread_mutex_lock(&s->backing_lock);
	if (!handle->backing_id) {
		inode->cached_users--;
	} else if (--inode->backing_users == 0) {
		session_raw_backing_close(s, inode->backing_id);
		inode->backing_id = 0;
	}
	pthread_mutex_unlock(&s->backing_lock);
}

/* Takes over `file`. */
static int make_handle(
	struct request *r, struct inode *inode, struct open_file *file, struct fuse_file_info *fi)
{
	struct open_handle *handle = malloc(sizeof(*handle));

	if (!handle) {
		workspace_close(&r->op, file);
		return -ENOMEM;
	}
	*handle = (struct open_handle){.inode = inode, .file = file, .flags = fi->flags};
	inode_table_handle_add(r->mount->inodes, handle);
	choose_path(r->session, handle);
	fi->fh = (uintptr_t)handle;
	/* Without the page cache in between when the kernel reads the file itself, so that the
	 * log has every write; and when appending, as the kernel would put the data into its
	 * pages at the end it knows of, which may have moved. */
	fi->direct_io = is_writing(fi->flags) && (handle->backing_id || (fi->flags & O_APPEND));
	/* Every close of a file drops the process's POSIX locks: that takes a flush. */
	fi->noflush = !is_writing(fi->flags) && !inode->was_locked;
	return 0;
}

static void drop_failed_handle(struct session *s, struct fuse_file_info *fi)
{
	struct op_context op;

	op_context_init(&op);
	leave_path(s, handle_of(fi));
	inode_table_handle_put(s->mount->inodes, &op, handle_of(fi));
}

static int reply_open(fuse_req_t fuse, struct fuse_file_info *fi)
{
	int backing_id = handle_of(fi)->backing_id;

	return backing_id ? session_raw_reply_open(fuse, fi, backing_id)
			  : fuse_reply_open(fuse, fi);
}

/* What the kernel does itself where it can: a write by somebody without the right to keep
 * them clears set-user-ID, and set-group-ID where the group may execute. */
static void clear_suid(struct request *r, struct open_handle *handle)
{
	uint32_t mode = handle->inode->version.mode;
	struct object_ref object = OBJECT_OF(handle->file);
	struct attributes attributes;
	struct inode_note note;

	attributes.mode = mode & ~(uint32_t)S_ISUID;
	if (mode & S_IXGRP)
		attributes.mode &= ~(uint32_t)S_ISGID;
	if (attributes.mode == mode)
		return;
	attributes.mode &= 07777;
	if (workspace_setattr(
		    &r->op, r->mount->workspace, &object, SET_MODE, &attributes, &attributes) == 0)
		inode_table_note(r->mount->inodes, handle->inode, &attributes, &note);
}

void session_open(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct attributes attributes;
	struct open_file *file;
	struct object_ref object;
	struct inode_note note;
	struct inode *inode;
	struct request r;
	int result;

	if (virtual_open(fuse, ino, fi))
		return;
	request_begin(&r, fuse, "open", (fi->flags & O_TRUNC) ? LOG_IS_MUTATION : 0);
	inode = session_inode(r.session, ino);
	do {
		result = request_locate(&r, inode, &object);
		if (result == 0)
			result = workspace_open_file(
				&r.op, r.mount->workspace, &object, fi->flags, &file, &attributes);
	} while (request_retry(&r, result, inode));
	if (result == 0)
		result = make_handle(&r, inode, file, fi);
	if (result < 0) {
		request_finish(&r, result);
		return;
	}
	inode_table_note(r.mount->inodes, inode, &attributes, &note);
	fi->keep_cache = !note.data_changed;
	if ((fi->flags & O_TRUNC) && session_raw_kills_suid())
		clear_suid(&r, handle_of(fi));
	request_record(&r, 0);
	if (reply_open(fuse, fi) < 0)
		drop_failed_handle(r.session, fi);
}

/* Somebody else made the file since the kernel looked. */
static int open_existing(struct request *r, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	struct object_ref object = OBJECT_AT(r->path.path);
	struct attributes attributes;
	int result = workspace_getattr(&r->op, r->mount->workspace, &object, &attributes);

	if (result < 0)
		return result;
	if (!S_ISREG(attributes.mode))
		return -ESTALE;
	object.id = attributes.id;
	return workspace_open_file(
		&r->op, r->mount->workspace, &object, flags, ret_file, ret_attributes);
}

static int create(struct request *r, mode_t mode, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	int result = workspace_create(
		&r->op, r->mount->workspace, r->path.path, flags, mode, ret_file, ret_attributes);

	if (result == -EEXIST && !(flags & O_EXCL))
		result = open_existing(r, flags, ret_file, ret_attributes);
	return result;
}

/* O_TMPFILE: a file in the directory `parent`, but without a name. */
static int create_unnamed(struct request *r, struct inode *parent, mode_t mode, int flags,
	struct open_file **ret_file, struct attributes *ret_attributes)
{
	int result = request_locate_entry(r, parent, NULL);

	if (result < 0)
		return result;
	return workspace_create_unnamed(&r->op, r->mount->workspace, r->path.path,
		flags & ~O_TMPFILE, mode, ret_file, ret_attributes);
}

static int create_named(struct request *r, struct inode *parent, const char *name, mode_t mode,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	int result = request_locate_entry(r, parent, name);

	return result < 0 ? result : create(r, mode, flags, ret_file, ret_attributes);
}

static int enter_created(struct request *r, struct inode *parent, const char *name,
	const struct attributes *attributes, struct fuse_entry_param *ret_entry,
	struct inode **ret_inode)
{
	int result;

	if (!session_raw_is_unnamed())
		return session_enter(r->session, parent, name, attributes, ret_entry, ret_inode);
	result = inode_table_enter_unnamed(r->mount->inodes, attributes, ret_inode);
	if (result < 0)
		return result;
	*ret_entry = (struct fuse_entry_param){.ino = session_ino(r->session, *ret_inode)};
	session_stat(r->session, attributes, &ret_entry->attr);
	return 0;
}

static int reply_create(
	fuse_req_t fuse, const struct fuse_entry_param *entry, struct fuse_file_info *fi)
{
	int backing_id = handle_of(fi)->backing_id;

	return backing_id ? session_raw_reply_create(fuse, entry, fi, backing_id)
			  : fuse_reply_create(fuse, entry, fi);
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
	int result;

	if (virtual_refuses_entry(fuse, parent_ino, unnamed ? "" : name))
		return;
	request_begin(&r, fuse, unnamed ? "tmpfile" : "create", LOG_IS_MUTATION);
	parent = session_inode(r.session, parent_ino);
	do {
		result = unnamed ? create_unnamed(
					   &r, parent, mode & 07777, fi->flags, &file, &attributes)
				 : create_named(&r, parent, name, mode & 07777, fi->flags, &file,
					   &attributes);
	} while (request_retry(&r, result, NULL));
	if (result == 0) {
		result = enter_created(&r, parent, name, &attributes, &entry, &inode);
		if (result < 0)
			workspace_close(&r.op, file);
	}
	if (result == 0) {
		result = make_handle(&r, inode, file, fi);
		if (result < 0)
			inode_table_forget(r.mount->inodes, inode, 1);
	}
	if (result < 0) {
		request_finish(&r, result);
		return;
	}
	request_record(&r, 0);
	if (reply_create(fuse, &entry, fi) < 0) {
		drop_failed_handle(r.session, fi);
		inode_table_forget(r.mount->inodes, inode, 1);
	}
}

void session_release(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;
	int result;

	if (virtual_release(fuse, ino, fi))
		return;
	handle =
		begin_on_handle(&r, fuse, "close", is_writing(fi->flags) ? LOG_IS_MUTATION : 0, fi);
	leave_path(r.session, handle);
	result = inode_table_handle_put(r.mount->inodes, &r.op, handle);
	request_finish(&r, result);
}

/* ---- Data ------------------------------------------------------------------------------- */

/* One buffer a thread, as large as the largest request so far. */
static _Thread_local struct {
	char *data;
	size_t size;
} thread_buffer;

char *session_thread_buffer(size_t size)
{
	if (thread_buffer.size < size) {
		free(thread_buffer.data);
		thread_buffer.data = malloc(size);
		thread_buffer.size = thread_buffer.data ? size : 0;
	}
	return thread_buffer.data;
}

void session_thread_buffer_free(void)
{
	free(thread_buffer.data);
	thread_buffer.data = NULL;
	thread_buffer.size = 0;
}

void session_read(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	char *data = session_thread_buffer(size);
	struct request r;
	ssize_t got;

	if (virtual_read(fuse, ino, size, offset, fi))
		return;
	handle = begin_on_handle(&r, fuse, "read", LOG_HAS_RANGE, fi);
	r.record.offset = offset;
	got = data ? workspace_read(&r.op, handle->file, data, size, offset) : -ENOMEM;
	if (got < 0) {
		request_finish(&r, (int)got);
		return;
	}
	request_record(&r, got);
	fuse_reply_buf(fuse, data, (size_t)got);
}

void session_write(fuse_req_t fuse, fuse_ino_t ino, const char *data, size_t size, off_t offset,
	struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;
	ssize_t done;

	(void)ino;
	handle = begin_on_handle(&r, fuse, "write", LOG_IS_MUTATION | LOG_HAS_RANGE, fi);
	r.record.offset = offset;
	done = workspace_write(&r.op, handle->file, data, size, offset);
	if (done >= 0 && r.session->kills_suid && session_raw_kills_suid())
		clear_suid(&r, handle);
	if (done < 0) {
		request_finish(&r, (int)done);
		return;
	}
	request_record(&r, done);
	fuse_reply_write(fuse, (size_t)done);
}

void session_flush(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;

	if (virtual_refuses(fuse, ino))
		return;
	handle = begin_on_handle(&r, fuse, "flush", 0, fi);
	workspace_lock_release_owner(&r.op, handle->file, fi->lock_owner);
	request_finish(&r, workspace_flush(&r.op, handle->file));
}

void session_fsync(fuse_req_t fuse, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;

	if (virtual_refuses(fuse, ino))
		return;
	handle = begin_on_handle(&r, fuse, "fsync", 0, fi);
	request_finish(&r, workspace_fsync(&r.op, handle->file, data_only));
}

void session_fallocate(fuse_req_t fuse, fuse_ino_t ino, int mode, off_t offset, off_t length,
	struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;

	(void)ino;
	handle = begin_on_handle(&r, fuse, "fallocate", LOG_IS_MUTATION | LOG_HAS_RANGE, fi);
	r.record.offset = offset;
	r.record.bytes = (uint64_t)length;
	request_finish(
		&r, workspace_fallocate(&r.op, handle->file, (unsigned)mode, offset, length));
}

void session_copy_file_range(fuse_req_t fuse, fuse_ino_t from, off_t from_offset,
	struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
	struct fuse_file_info *to_fi, size_t size, int flags)
{
	struct open_handle *source;
	struct request r;
	ssize_t done;

	(void)to;
	(void)flags;
	if (virtual_refuses(fuse, from))
		return;
	source = begin_on_handle(&r, fuse, "copy_range", LOG_IS_MUTATION | LOG_HAS_RANGE, from_fi);
	inode_table_path(r.mount->inodes, handle_of(to_fi)->inode, NULL, &r.path2);
	r.record.offset = to_offset;
	done = workspace_copy_range(
		&r.op, source->file, from_offset, handle_of(to_fi)->file, to_offset, size);
	if (done < 0) {
		request_finish(&r, (int)done);
		return;
	}
	request_record(&r, done);
	fuse_reply_write(fuse, (size_t)done);
}

void session_lseek(
	fuse_req_t fuse, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;
	off_t found;

	if (virtual_refuses(fuse, ino))
		return;
	handle = begin_on_handle(&r, fuse, "seek", 0, fi);
	r.record.offset = offset;
	found = workspace_seek(&r.op, handle->file, offset, whence);
	if (found < 0) {
		request_finish(&r, (int)found);
		return;
	}
	request_record(&r, 0);
	fuse_reply_lseek(fuse, found);
}

/* ---- Locks ---------------------------------------------------------------------------------- */

static enum lock_type lock_type_of(int type)
{
	if (type == F_UNLCK)
		return LOCK_NONE;
	return type == F_RDLCK ? LOCK_SHARED : LOCK_EXCLUSIVE;
}

static short fcntl_type_of(enum lock_type type)
{
	if (type == LOCK_NONE)
		return F_UNLCK;
	return type == LOCK_SHARED ? F_RDLCK : F_WRLCK;
}

static struct file_lock posix_lock(const struct fuse_file_info *fi, const struct flock *lock)
{
	return (struct file_lock){.kind = LOCK_KIND_POSIX,
		.type = lock_type_of(lock->l_type),
		.owner = fi->lock_owner,
		.offset = (uint64_t)lock->l_start,
		.length = (uint64_t)lock->l_len,
		.pid = lock->l_pid};
}

void session_getlk(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
	struct file_lock wanted = posix_lock(fi, lock);
	struct open_handle *handle;
	struct request r;
	int result;

	if (virtual_refuses(fuse, ino))
		return;
	handle = begin_on_handle(&r, fuse, "lock_test", 0, fi);
	result = workspace_lock_test(&r.op, handle->file, &wanted);
	if (result < 0) {
		request_finish(&r, result);
		return;
	}
	request_record(&r, 0);
	fuse_reply_lock(fuse, &(struct flock){.l_type = fcntl_type_of(wanted.type),
				      .l_whence = SEEK_SET,
				      .l_start = (off_t)wanted.offset,
				      .l_len = (off_t)wanted.length,
				      .l_pid = wanted.pid});
}

static void take_lock(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi,
	const struct file_lock *lock, bool wait)
{
	bool may_block = wait && lock->type != LOCK_NONE;
	struct open_handle *handle;
	struct request r;
	int result;

	if (virtual_refuses(fuse, ino))
		return;
	handle = begin_on_handle(&r, fuse, "lock", 0, fi);
	if (lock->kind == LOCK_KIND_POSIX)
		handle->inode->was_locked = true;
	if (may_block)
		session_thread_lend(r.session);
	result = workspace_lock(&r.op, handle->file, lock, wait);
	if (may_block)
		session_thread_return(r.session);
	request_finish(&r, result);
}

void session_setlk(
	fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int wait)
{
	struct file_lock wanted = posix_lock(fi, lock);

	take_lock(fuse, ino, fi, &wanted, wait);
}

void session_flock(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	static const enum lock_type types[] = {
		[LOCK_SH] = LOCK_SHARED, [LOCK_EX] = LOCK_EXCLUSIVE, [LOCK_UN] = LOCK_NONE};
	int type = op & ~LOCK_NB;

	if (type != LOCK_SH && type != LOCK_EX && type != LOCK_UN) {
		fuse_reply_err(fuse, EINVAL);
		return;
	}
	take_lock(fuse, ino, fi,
		&(struct file_lock){
			.kind = LOCK_KIND_FLOCK, .type = types[type], .owner = fi->lock_owner},
		!(op & LOCK_NB));
}
