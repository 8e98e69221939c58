#include "backends/mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_readable(const struct mem_file *file)
{
	return (file->flags & O_ACCMODE) != O_WRONLY;
}

static bool is_writable(const struct mem_file *file)
{
	return (file->flags & O_ACCMODE) != O_RDONLY;
}

int mem_file_new(struct mem *m, struct mem_inode *inode, int flags, struct open_file **ret_file)
{
	struct mem_file *file = malloc(sizeof(*file));

	if (!file)
		return -ENOMEM;
	*file = (struct mem_file){.file.workspace = &m->workspace, .inode = inode, .flags = flags};
	if (inode)
		inode->handles++;
	*ret_file = &file->file;
	return 0;
}

void mem_set_size(struct mem *m, struct mem_inode *inode, uint64_t size)
{
	if (size < inode->attributes.size_bytes)
		mem_pages_zero(m, &inode->pages, size, INT64_MAX);
	inode->attributes.size_bytes = size;
}

static int check_openable(uint32_t mode)
{
	if (S_ISREG(mode))
		return 0;
	if (S_ISLNK(mode))
		return -ELOOP;
	return S_ISDIR(mode) ? -EISDIR : -ENXIO;
}

int mem_open_file(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	int flags, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	int r;

	mem_lock_to_change(m, ctx);
	r = mem_find(m, object, &inode);
	if (r == 0)
		r = check_openable(inode->attributes.mode);
	if (r == 0)
		r = mem_file_new(m, inode, flags, ret_file);
	if (r == 0 && (flags & O_TRUNC)) {
		mem_set_size(m, inode, 0);
		mem_content_changed(ctx, inode);
	}
	if (r == 0)
		*ret_attributes = mem_inode_attributes(inode);
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

int mem_close(struct op_context *ctx, struct open_file *open_file)
{
	struct mem *m = mem_of(open_file->workspace);
	struct mem_file *file = mem_file_of(open_file);

	(void)ctx;
	mem_locks_drop_handle(m, file);
	pthread_rwlock_wrlock(&m->tree_lock);
	file->inode->handles--;
	mem_inode_release(m, file->inode);
	pthread_rwlock_unlock(&m->tree_lock);
	free(file);
	return 0;
}

/* ---- Reading and writing -------------------------------------------------------- */

static size_t bytes_in_page(uint64_t offset, size_t size)
{
	size_t room = MEM_PAGE_BYTES - offset % MEM_PAGE_BYTES;

	return size < room ? size : room;
}

static void copy_out(const struct mem_pages *pages, uint8_t *data, size_t size, uint64_t offset)
{
	while (size > 0) {
		const uint8_t *page = mem_pages_get(pages, offset / MEM_PAGE_BYTES);
		size_t part = bytes_in_page(offset, size);

		if (page)
			memcpy(data, page + offset % MEM_PAGE_BYTES, part);
		else
			memset(data, 0, part);
		data += part;
		offset += part;
		size -= part;
	}
}

ssize_t mem_read(
	struct op_context *ctx, struct open_file *open_file, void *data, size_t size, off_t offset)
{
	struct mem *m = mem_of(open_file->workspace);
	struct mem_file *file = mem_file_of(open_file);
	uint64_t at = (uint64_t)offset, file_size;
	bool touch;

	if (!is_readable(file))
		return -EBADF;
	mem_lock_to_look(m, ctx);
	file_size = file->inode->attributes.size_bytes;
	if (at >= file_size)
		size = 0;
	else if (size > file_size - at)
		size = file_size - at;
	copy_out(&file->inode->pages, data, size, at);
	touch = size > 0 && !(file->flags & O_NOATIME) && mem_atime_is_due(file->inode);
	pthread_rwlock_unlock(&m->tree_lock);
	if (touch)
		mem_touch_atime(m, file->inode);
	return (ssize_t)size;
}

/* Returns the count that fit before the error. */
static ssize_t copy_in(
	struct mem *m, struct mem_pages *pages, const uint8_t *data, size_t size, uint64_t offset)
{
	size_t done = 0;

	while (done < size) {
		size_t part = bytes_in_page(offset + done, size - done);
		uint8_t *page;
		int r = mem_pages_make(m, pages, (offset + done) / MEM_PAGE_BYTES, &page);

		if (r < 0)
			return done ? (ssize_t)done : r;
		memcpy(page + (offset + done) % MEM_PAGE_BYTES, data + done, part);
		done += part;
	}
	return (ssize_t)done;
}

static ssize_t write_locked(const struct op_context *ctx, struct mem *m, struct mem_inode *inode,
	const void *data, size_t size, uint64_t offset)
{
	ssize_t written;

	if (offset + size > INT64_MAX)
		return -EFBIG;
	written = copy_in(m, &inode->pages, data, size, offset);
	if (written <= 0)
		return written;
	if (offset + (uint64_t)written > inode->attributes.size_bytes)
		inode->attributes.size_bytes = offset + (uint64_t)written;
	mem_content_changed(ctx, inode);
	return written;
}

ssize_t mem_write(struct op_context *ctx, struct open_file *open_file, const void *data,
	size_t size, off_t offset)
{
	struct mem *m = mem_of(open_file->workspace);
	struct mem_file *file = mem_file_of(open_file);
	struct mem_inode *inode = file->inode;
	uint64_t at = (uint64_t)offset;
	ssize_t written;

	if (!is_writable(file))
		return -EBADF;
	mem_lock_to_change(m, ctx);
	if (file->flags & O_APPEND)
		at = inode->attributes.size_bytes;
	written = write_locked(ctx, m, inode, data, size, at);
	if (written >= 0)
		mem_tell_object(ctx, inode);
	pthread_rwlock_unlock(&m->tree_lock);
	return written;
}

/* ---- Ranges ------------------------------------------------------------------------- */

static int allocate(struct mem *m, struct mem_inode *inode, uint64_t offset, uint64_t end)
{
	uint64_t last = (end - 1) / MEM_PAGE_BYTES;
	uint64_t index = mem_pages_next(&inode->pages, offset / MEM_PAGE_BYTES, false);
	uint64_t missing = last - offset / MEM_PAGE_BYTES + 1;
	uint8_t *page;
	int r = 0;

	/* Refuse early what cannot fit rather than fill the memory first. */
	if (missing > inode->pages.count &&
		(missing - inode->pages.count) >
			(m->limit_bytes - atomic_load(&m->used_bytes)) / MEM_PAGE_BYTES)
		return -ENOSPC;
	while (r == 0 && index <= last) {
		r = mem_pages_make(m, &inode->pages, index, &page);
		if (r == 0)
			index = mem_pages_next(&inode->pages, index + 1, false);
	}
	return r;
}

static int fallocate_locked(const struct op_context *ctx, struct mem *m, struct mem_inode *inode,
	unsigned mode, uint64_t offset, uint64_t end)
{
	uint64_t size = inode->attributes.size_bytes;
	bool keeps_size = mode & ALLOCATE_KEEP_SIZE;
	int r = 0;

	if (mode & (ALLOCATE_PUNCH_HOLE | ALLOCATE_ZERO_RANGE))
		mem_pages_zero(m, &inode->pages, offset, end);
	if (!(mode & ALLOCATE_PUNCH_HOLE))
		r = allocate(m, inode, offset, end);
	if (r < 0)
		return r;
	if (!keeps_size && end > size)
		inode->attributes.size_bytes = end;
	mem_content_changed(ctx, inode);
	return 0;
}

int mem_fallocate(struct op_context *ctx, struct open_file *open_file, unsigned mode, off_t offset,
	off_t length)
{
	struct mem *m = mem_of(open_file->workspace);
	struct mem_file *file = mem_file_of(open_file);
	int r;

	if (!is_writable(file))
		return -EBADF;
	if (mode != 0 && mode != ALLOCATE_KEEP_SIZE && mode != ALLOCATE_ZERO_RANGE &&
		mode != (ALLOCATE_ZERO_RANGE | ALLOCATE_KEEP_SIZE) &&
		mode != (ALLOCATE_PUNCH_HOLE | ALLOCATE_KEEP_SIZE))
		return -EOPNOTSUPP;
	mem_lock_to_change(m, ctx);
	r = fallocate_locked(
		ctx, m, file->inode, mode, (uint64_t)offset, (uint64_t)offset + (uint64_t)length);
	if (r == 0)
		mem_tell_object(ctx, file->inode);
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

static off_t seek_locked(const struct mem_inode *inode, uint64_t offset, int whence)
{
	uint64_t size = inode->attributes.size_bytes;
	uint64_t index = offset / MEM_PAGE_BYTES, found, at;

	if (offset >= size)
		return -ENXIO;
	found = mem_pages_next(&inode->pages, index, whence == SEEK_DATA);
	at = found == index ? offset : found * MEM_PAGE_BYTES;
	if (found > (size - 1) / MEM_PAGE_BYTES)
		return whence == SEEK_DATA ? -ENXIO : (off_t)size;
	return (off_t)at;
}

off_t mem_seek(struct op_context *ctx, struct open_file *open_file, off_t offset, int whence)
{
	struct mem *m = mem_of(open_file->workspace);
	off_t found;

	mem_lock_to_look(m, ctx);
	found = seek_locked(mem_file_of(open_file)->inode, (uint64_t)offset, whence);
	pthread_rwlock_unlock(&m->tree_lock);
	return found;
}

/* Copies up to the end of one source page, which stays where it is: only adding pages
 * happens here. */
static ssize_t copy_part(const struct op_context *ctx, struct mem *m, struct mem_inode *from,
	uint64_t from_offset, struct mem_inode *to, uint64_t to_offset, size_t size)
{
	static const uint8_t zeros[MEM_PAGE_BYTES];
	const uint8_t *page = mem_pages_get(&from->pages, from_offset / MEM_PAGE_BYTES);
	size_t part = bytes_in_page(from_offset, size);

	return write_locked(
		ctx, m, to, page ? page + from_offset % MEM_PAGE_BYTES : zeros, part, to_offset);
}

static ssize_t copy_range_locked(const struct op_context *ctx, struct mem *m,
	struct mem_inode *from, uint64_t from_offset, struct mem_inode *to, uint64_t to_offset,
	size_t size)
{
	uint64_t from_size = from->attributes.size_bytes;
	size_t done = 0;

	if (from_offset >= from_size)
		return 0;
	if (size > from_size - from_offset)
		size = from_size - from_offset;
	if (from == to && from_offset < to_offset + size && to_offset < from_offset + size)
		return -EINVAL;
	while (done < size) {
		ssize_t part = copy_part(
			ctx, m, from, from_offset + done, to, to_offset + done, size - done);

		if (part < 0)
			return done ? (ssize_t)done : part;
		done += (size_t)part;
	}
	return (ssize_t)done;
}

ssize_t mem_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size)
{
	struct mem *m = mem_of(from->workspace);
	ssize_t copied;

	if (!is_readable(mem_file_of(from)) || !is_writable(mem_file_of(to)) ||
		(mem_file_of(to)->flags & O_APPEND))
		return -EBADF;
	mem_lock_to_change(m, ctx);
	copied = copy_range_locked(ctx, m, mem_file_of(from)->inode, (uint64_t)from_offset,
		mem_file_of(to)->inode, (uint64_t)to_offset, size);
	if (copied >= 0)
		mem_tell_object(ctx, mem_file_of(to)->inode);
	pthread_rwlock_unlock(&m->tree_lock);
	return copied;
}
