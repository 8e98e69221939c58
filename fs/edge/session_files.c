#include "fs/edge/announce.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/edge/dropper.h"
#include "fs/edge/invalidate.h"
#include "fs/edge/virtual.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/workspace.h"

enum { PAGES_PAUSE_NS = 100000000, PAGES_PAUSES_MAX = 300 };

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

char *session_answer_buffer(size_t size)
{
	char *payload = session_ring_payload(size);

	return payload ? payload : session_thread_buffer(size);
}

void session_thread_buffer_free(void)
{
	free(thread_buffer.data);
	thread_buffer.data = NULL;
	thread_buffer.size = 0;
}

/* A write past the kernel's pages (WAY_DIRECT) to a file that may be mapped.  The kernel drops the
 * affected pages before and after it; but a program that touches one in between reads the old
 * content, and if it changes the page, that is written back over the new data.  So reads meanwhile
 * are given the data that will be there, and the old pages are dropped first. */
struct direct_write {
	struct direct_write *next;
	const char *data;
	size_t size;
	off_t offset;
};

static void begin_direct_write(struct session *s, struct inode *inode, struct direct_write *direct)
{
	struct inode_file *file = inode_file(inode);

	pthread_mutex_lock(&s->direct_writes_lock);
	direct->next = file->direct_writes;
	file->direct_writes = direct;
	pthread_mutex_unlock(&s->direct_writes_lock);
	session_drop_pages(s, inode, direct->offset, direct->size);
}

static void end_direct_write(
	struct session *s, struct inode_file *file, struct direct_write *direct)
{
	struct direct_write *before;

	pthread_mutex_lock(&s->direct_writes_lock);
	file->direct_writes_done++; /* first, as a reader checks this last */
	before = file->direct_writes;
	while (before != direct && before->next != direct)
		before = before->next;
	if (before == direct)
		file->direct_writes = direct->next;
	else
		before->next = direct->next;
	pthread_mutex_unlock(&s->direct_writes_lock);
}

static ssize_t direct_write(
	struct request *r, struct open_handle *handle, const char *data, size_t size, off_t offset)
{
	struct direct_write direct = {.data = data, .size = size, .offset = offset};
	ssize_t done;

	begin_direct_write(r->session, handle->inode, &direct);
	done = workspace_write(&r->op, handle->file, data, size, offset);
	end_direct_write(r->session, inode_file(handle->inode), &direct);
	if (done != (ssize_t)size)
		session_drop_pages(r->session, handle->inode, offset, size);
	return done;
}

static ssize_t apply_direct_write(
	const struct direct_write *direct, char *data, size_t size, off_t offset, ssize_t got)
{
	off_t start = direct->offset > offset ? direct->offset : offset;
	off_t end = direct->offset + (off_t)direct->size;

	if (end > offset + (off_t)size)
		end = offset + (off_t)size;
	if (start >= end)
		return got;
	if (start > offset + got)
		memset(data + got, 0, (size_t)(start - offset - got));
	memcpy(data + (start - offset), direct->data + (start - direct->offset),
		(size_t)(end - start));
	return end - offset > got ? end - offset : got;
}

/* False: one has ended since direct_writes_done was taken; what was read may be from before it. */
static bool apply_direct_writes(struct session *s, struct inode_file *file,
	unsigned direct_writes_done, char *data, size_t size, off_t offset, ssize_t *got)
{
	bool shown;

	if (!file->direct_writes && file->direct_writes_done == direct_writes_done)
		return true;
	pthread_mutex_lock(&s->direct_writes_lock);
	shown = file->direct_writes_done == direct_writes_done;
	for (const struct direct_write *direct = file->direct_writes; shown && direct;
		direct = direct->next)
		*got = apply_direct_write(direct, data, size, offset, *got);
	pthread_mutex_unlock(&s->direct_writes_lock);
	return shown;
}

static ssize_t read_file(
	struct request *r, struct open_handle *handle, char *data, size_t size, off_t offset)
{
	struct inode_file *file = inode_file(handle->inode);
	unsigned direct_writes_done;
	ssize_t got;

	do {
		direct_writes_done = file->direct_writes_done;
		got = workspace_read(&r->op, handle->file, data, size, offset);
	} while (got >= 0 && !apply_direct_writes(r->session, file, direct_writes_done, data, size,
				     offset, &got));
	return got;
}

/* A read may be served before an earlier write, as each is served by a thread of its own.  The
 * kernel unlocks a page when it sends the write; if it drops the page (for an open) before the
 * write is served, such a read brings the old content back.  So the write drops it once more; only
 * pages that such a read has asked for, which excludes those that the writer has locked until the
 * reply. */
static void see_read(struct session *s, const struct inode *inode, size_t size, off_t offset)
{
	struct seen_read seen = {inode, session_raw_unique(), offset, size};

	pthread_mutex_lock(&s->direct_writes_lock);
	s->reads[s->read_next++ % READS_MAX] = seen;
	pthread_mutex_unlock(&s->direct_writes_lock);
}

static void drop_read_too_early(struct session *s, struct inode *inode, size_t size, off_t offset)
{
	struct seen_read early[READS_MAX];
	unsigned count = 0;

	pthread_mutex_lock(&s->direct_writes_lock);
	for (unsigned i = 0; i < READS_MAX; i++) {
		const struct seen_read *read = &s->reads[i];

		if (read->inode == inode && read->unique > session_raw_unique() &&
			read->offset < offset + (off_t)size &&
			read->offset + (off_t)read->size > offset)
			early[count++] = *read;
	}
	pthread_mutex_unlock(&s->direct_writes_lock);
	while (count--)
		session_drop_pages(s, inode, early[count].offset, early[count].size);
}

void session_read(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	char *data = session_answer_buffer(size);
	struct page_request pages;
	bool fills_pages;
	struct request r;
	ssize_t got;

	if (virtual_read(fuse, ino, size, offset, fi))
		return;
	handle = session_begin_on_handle(&r, fuse, "read", LOG_HAS_RANGE, fi);
	r.record.offset = offset;
	fills_pages = handle->way == WAY_CACHED && !(fi->flags & O_DIRECT);
	if (fills_pages) {
		see_read(r.session, handle->inode, size, offset);
		dropper_begin_pages(r.session->dropper, &pages, handle->inode, offset, size);
	}
	got = data ? read_file(&r, handle, data, size, offset) : -ENOMEM;
	if (fills_pages)
		dropper_end_pages(r.session->dropper, &pages);
	if (request_failed(&r, got))
		return;
	fuse_reply_buf(fuse, data, (size_t)got);
}

static void content_has_changed(struct request *r, struct open_handle *handle)
{
	inode_file(handle->inode)->written_ms = (uint16_t)clock_now_ms();
	if (r->session->kills_suid && session_raw_kills_suid())
		session_clear_suid(r, handle);
}

/* F_SETFL has turned O_APPEND on or off since the file was opened, or the kernel writes pages
 * back through a handle that appends: the workspace goes by how it opened the file. */
static ssize_t write_otherwise(
	struct request *r, struct open_handle *handle, const char *data, size_t size, off_t offset)
{
	int flags = (handle->flags & (O_ACCMODE | O_SYNC | O_DSYNC | O_APPEND)) ^ O_APPEND;
	struct object_ref object = OBJECT_OF(handle->file);
	struct attributes attributes;
	struct open_file *file;
	ssize_t done;
	int result = workspace_open_file(
		&r->op, r->mount->workspace, &object, flags, &file, &attributes);

	if (result < 0)
		return result;
	done = workspace_write(&r->op, file, data, size, offset);
	result = workspace_close(&r->op, file);
	return done >= 0 && result < 0 ? result : done;
}

void session_write(fuse_req_t fuse, fuse_ino_t ino, const char *data, size_t size, off_t offset,
	struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct page_request pages;
	struct request r;
	bool has_pages;
	ssize_t done;

	(void)ino;
	handle = session_begin_on_handle(&r, fuse, "write", LOG_IS_MUTATION | LOG_HAS_RANGE, fi);
	r.record.offset = offset;
	inode_file(handle->inode)->written_ms = (uint16_t)clock_now_ms();
	if (fi->writepage) {
		r.session->pages_under_way++;
		r.session->pages_seen++;
	}
	has_pages = fi->writepage || (handle->way == WAY_CACHED && !(fi->flags & O_DIRECT));
	if (has_pages)
		dropper_begin_pages(r.session->dropper, &pages, handle->inode, offset, size);
	if ((fi->flags ^ handle->flags) & O_APPEND)
		done = write_otherwise(&r, handle, data, size, offset);
	else if (handle->way == WAY_DIRECT && !fi->writepage && !(fi->flags & O_APPEND) &&
		 (inode_file(handle->inode)->mappers || (fi->flags & O_DIRECT)))
		done = direct_write(&r, handle, data, size, offset);
	else
		done = workspace_write(&r.op, handle->file, data, size, offset);
	if (done >= 0)
		content_has_changed(&r, handle);
	if (done > 0)
		inode_table_grown(r.mount->inodes, handle->inode, (uint64_t)(offset + done));
	if (!fi->writepage)
		drop_read_too_early(r.session, handle->inode, size, offset);
	if (done > 0 && !(fi->flags & O_APPEND))
		content_hash_write(handle->hash, data, (size_t)done, offset);
	else if (done > 0)
		content_hash_disturb(handle->hash);
	if (fi->writepage) {
		r.session->pages_under_way--;
		/* Unlike a write(2), this does not make the kernel discard the reply to a GETATTR
		 * that was answered before. */
		session_discard_attributes(r.session, handle->inode);
	}
	if (has_pages)
		dropper_end_pages(r.session->dropper, &pages);
	if (request_failed(&r, done))
		return;
	fuse_reply_write(fuse, (size_t)done);
}

/* The kernel sends the next page when an earlier one is answered. */
void session_wait_for_pages(struct session *s)
{
	const struct timespec pause = {.tv_nsec = PAGES_PAUSE_NS};
	uint64_t seen;
	int pauses = 0;

	do {
		seen = s->pages_seen;
		nanosleep(&pause, NULL);
	} while ((s->pages_under_way || seen != s->pages_seen) && ++pauses < PAGES_PAUSES_MAX &&
		 !session_link_is_silent(s));
}

void session_flush(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;
	int result;

	if (virtual_refuses(fuse, ino) || announce_close(fuse, fi))
		return;
	handle = session_begin_on_handle(&r, fuse, "flush", 0, fi);
	r.settles = true;
	/* First: the next holder of the lock must find what was written. */
	result = workspace_flush(&r.op, handle->file);
	if (r.op.served.is_other) /* what was written is not all of its content */
		content_hash_disturb(handle->hash);
	if (inode_file(handle->inode)->was_locked)
		dropper_unlocking(r.session->dropper, handle->inode,
			&(struct file_lock){.kind = LOCK_KIND_POSIX,
				.type = LOCK_NONE,
				.owner = fi->lock_owner},
			r.op.pid);
	workspace_lock_release_owner(&r.op, handle->file, fi->lock_owner);
	request_finish(&r, result);
}

void session_fsync(fuse_req_t fuse, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;

	if (virtual_refuses(fuse, ino))
		return;
	handle = session_begin_on_handle(&r, fuse, "fsync", 0, fi);
	request_finish(
		&r, workspace_fsync(&r.op, handle->file->workspace, handle->file, "", data_only));
}

void session_fallocate(fuse_req_t fuse, fuse_ino_t ino, int mode, off_t offset, off_t length,
	struct fuse_file_info *fi)
{
	struct open_handle *handle;
	struct request r;
	int result;

	(void)ino;
	handle =
		session_begin_on_handle(&r, fuse, "fallocate", LOG_IS_MUTATION | LOG_HAS_RANGE, fi);
	r.record.offset = offset;
	r.record.bytes = (uint64_t)length;
	content_hash_disturb(handle->hash);
	result = workspace_fallocate(&r.op, handle->file, (unsigned)mode, offset, length);
	if (result == 0)
		content_has_changed(&r, handle);
	request_finish(&r, result);
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
	source = session_begin_on_handle(
		&r, fuse, "copy_range", LOG_IS_MUTATION | LOG_HAS_RANGE, from_fi);
	inode_table_path(r.mount->inodes, session_handle(to_fi)->inode, NULL, &r.path2);
	r.record.offset = to_offset;
	content_hash_disturb(session_handle(to_fi)->hash);
	done = workspace_copy_range(
		&r.op, source->file, from_offset, session_handle(to_fi)->file, to_offset, size);
	if (done >= 0)
		content_has_changed(&r, session_handle(to_fi));
	if (request_failed(&r, done))
		return;
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
	handle = session_begin_on_handle(&r, fuse, "seek", 0, fi);
	r.record.offset = offset;
	found = workspace_seek(&r.op, handle->file, offset, whence);
	if (request_failed(&r, found))
		return;
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
	handle = session_begin_on_handle(&r, fuse, "lock_test", 0, fi);
	result = workspace_lock_test(&r.op, handle->file, &wanted);
	if (request_failed(&r, result))
		return;
	fuse_reply_lock(fuse, &(struct flock){.l_type = fcntl_type_of(wanted.type),
				      .l_whence = SEEK_SET,
				      .l_start = (off_t)wanted.offset,
				      .l_len = (off_t)wanted.length,
				      .l_pid = wanted.pid});
}

/* The version of the file when a lock was granted.  NULL: not known; of a far workspace, two
 * versions within one clock tick cannot be distinguished. */
static const struct inode_version *find_version(
	struct request *r, struct open_handle *handle, struct inode_version *ret_version)
{
	struct object_ref object = OBJECT_OF(handle->file);
	struct attributes attributes;

	if (r->session->is_remote ||
		workspace_getattr(&r->op, r->mount->workspace, &object, &attributes) < 0 ||
		attributes.changed_lately)
		return NULL;
	inode_version_of(&attributes, ret_version);
	return ret_version;
}

/* The holder of a lock relies on seeing what the last one did before it released it, perhaps
 * through another mount: names and other files as well.  The workspace has told what that was. */
static int refresh(struct request *r, struct open_handle *handle, const struct file_lock *lock)
{
	const struct file_lock none = {.kind = lock->kind,
		.type = LOCK_NONE,
		.owner = lock->owner,
		.offset = lock->offset,
		.length = lock->length};
	struct inode_version version;
	int result = invalidator_catch_up(r->session->invalidator, &r->op);

	if (result < 0)
		workspace_lock(&r->op, handle->file, &none, false);
	else
		dropper_locked(r->session->dropper, handle->inode, lock,
			find_version(r, handle, &version));
	return result;
}

static void take_lock(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi,
	const struct file_lock *lock, bool wait)
{
	bool may_block = lock->type != LOCK_NONE;
	struct open_handle *handle;
	struct request r;
	int result;

	if (virtual_refuses(fuse, ino))
		return;
	handle = session_begin_on_handle(&r, fuse, "lock", 0, fi);
	r.any_signal_interrupts = true;
	inode_file(handle->inode)->had_lock = true;
	if (lock->kind == LOCK_KIND_POSIX)
		inode_file(handle->inode)->was_locked = true;
	if (may_block)
		session_thread_block();
	dropper_unlocking(r.session->dropper, handle->inode, lock, r.op.pid);
	result = workspace_lock(&r.op, handle->file, lock, wait);
	if (result == 0 && lock->type != LOCK_NONE)
		result = refresh(&r, handle, lock);
	if (may_block)
		session_thread_unblock();
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
