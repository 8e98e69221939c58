#define XXH_INLINE_ALL
#include "fs/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "fs/virtual.h"
#include "ops/support/buffer.h"

/*
 * A directory handle holds what the directory had when it was first read through it (or
 * rewound).  Entries are in the order of a hash of their names, which is their position: so
 * it means the same in every listing, whatever came and went meanwhile, and the kernel may
 * go on from its own cache of another one.  Position 1 is after ".", 2 after "..".
 */
struct directory_handle {
	struct inode *inode;
	pthread_mutex_t lock;    /* all below: readers share a descriptor */
	bool is_read;            /* the snapshot is there */
	uint32_t changes;        /* of the inode, before it was read */
	struct buffer entries;   /* struct snapshot_entry, name, padding; in turn */
	struct buffer positions; /* struct position, ascending */
};

struct position {
	uint64_t after; /* the position that follows the entry */
	size_t at;      /* where it starts in `entries` */
};

struct snapshot_entry {
	struct attributes attributes;
	char name[];
};

enum { ENTRIES_MAX_BYTES = 1 << 30, DOTS = 2 };

static struct directory_handle *directory_of(const struct fuse_file_info *fi)
{
	return (struct directory_handle *)(uintptr_t)fi->fh;
}

static void directory_free(struct session *s, struct directory_handle *directory)
{
	inode_table_unref(s->mount->inodes, directory->inode);
	buffer_done(&directory->entries);
	buffer_done(&directory->positions);
	pthread_mutex_destroy(&directory->lock);
	free(directory);
}

void session_opendir(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct session *s = fuse_req_userdata(fuse);
	struct directory_handle *directory;
	struct inode *inode = session_inode(s, ino);

	if (virtual_opendir(fuse, ino, fi))
		return;
	directory = calloc(1, sizeof(*directory));
	if (!directory) {
		fuse_reply_err(fuse, ENOMEM);
		return;
	}
	inode_table_ref(s->mount->inodes, inode);
	directory->inode = inode;
	pthread_mutex_init(&directory->lock, NULL);
	directory->entries.limit_bytes = ENTRIES_MAX_BYTES;
	fi->fh = (uintptr_t)directory;
	fi->cache_readdir = 1;
	fi->keep_cache = inode->watched;
	if (fuse_reply_open(fuse, fi) < 0)
		directory_free(s, directory);
}

void session_releasedir(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (virtual_releasedir(fuse, ino))
		return;
	directory_free(fuse_req_userdata(fuse), directory_of(fi));
	fuse_reply_err(fuse, 0);
}

/* ---- The snapshot ------------------------------------------------------------------------ */

/* Positive as off_t, and above the dots, with room for those that collide. */
static uint64_t hash_name(const char *name, size_t length)
{
	return (XXH3_64bits(name, length) >> 2) + DOTS + 1;
}

static int keep_entry(void *user, const struct dir_entry *entry)
{
	struct directory_handle *directory = user;
	size_t length = strlen(entry->path) + 1;
	struct position position = {
		.after = hash_name(entry->path, length - 1), .at = directory->entries.size};
	size_t padding = -(length + sizeof(struct snapshot_entry)) % sizeof(uint64_t);
	int r;

	if (virtual_hides(directory->inode, entry->path))
		return 0;
	r = buffer_reserve(&directory->entries, sizeof(struct snapshot_entry) + length + padding);
	if (r == 0)
		r = buffer_append(&directory->positions, &position, sizeof(position));
	if (r < 0)
		return r;
	buffer_append(&directory->entries, &entry->attributes, sizeof(entry->attributes));
	buffer_append(&directory->entries, entry->path, length);
	buffer_append(&directory->entries, "\0\0\0\0\0\0\0", padding);
	return 0;
}

static int compare_positions(const void *a, const void *b)
{
	const struct position *first = a, *second = b;

	return (first->after > second->after) - (first->after < second->after);
}

static void sort_positions(struct directory_handle *directory)
{
	struct position *positions = (void *)directory->positions.data;
	size_t count = directory->positions.size / sizeof(*positions);

	if (count)
		qsort(positions, count, sizeof(*positions), compare_positions);
	for (size_t i = 1; i < count; i++)
		if (positions[i].after <= positions[i - 1].after)
			positions[i].after = positions[i - 1].after + 1;
}

static int read_directory(struct request *r, struct directory_handle *directory)
{
	struct object_ref object;
	struct inode_state state;
	bool watched = false;
	int result;

	do {
		directory->entries.size = 0;
		directory->positions.size = 0;
		directory->changes = directory->inode->changes;
		result = request_locate(r, directory->inode, &object);
		if (result == 0)
			result = workspace_readdir(&r->op, r->mount->workspace, &object, true,
				keep_entry, directory, &watched);
	} while (request_retry(r, result, NULL));
	inode_table_state(r->mount->inodes, directory->inode, &state);
	if (result == -ENOENT && !state.has_name)
		result = 0; /* removed: it is empty */
	if (result < 0)
		return result;
	sort_positions(directory);
	directory->inode->watched = watched;
	directory->is_read = true;
	return 0;
}

/* The first position after `offset`; NULL at the end. */
static const struct position *find_position(const struct directory_handle *d, uint64_t offset)
{
	const struct position *positions = (const void *)d->positions.data;
	size_t low = 0, count = d->positions.size / sizeof(*positions), high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (positions[middle].after <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count ? &positions[low] : NULL;
}

/* ---- Answers ------------------------------------------------------------------------------- */

struct page {
	struct request *r;
	struct directory_handle *directory;
	bool plus;
	char *data;
	size_t size, used;
};

/* Adds one entry; 0 when it does not fit. */
static bool add_plain(struct page *page, const char *name, const struct stat *stat, off_t next)
{
	size_t length = fuse_add_direntry(
		page->r->fuse, page->data + page->used, page->size - page->used, name, stat, next);

	if (length > page->size - page->used)
		return false;
	page->used += length;
	return true;
}

static bool add_plus(
	struct page *page, const char *name, const struct fuse_entry_param *entry, off_t next)
{
	size_t length = fuse_add_direntry_plus(
		page->r->fuse, page->data + page->used, page->size - page->used, name, entry, next);

	if (length > page->size - page->used)
		return false;
	page->used += length;
	return true;
}

static bool add_dots(struct page *page, off_t at)
{
	struct fuse_entry_param entry = {
		.attr = {.st_ino = page->directory->inode->id.inode, .st_mode = S_IFDIR}};
	const char *name = at ? ".." : ".";

	if (page->plus)
		return add_plus(page, name, &entry, at + 1);
	return add_plain(page, name, &entry.attr, at + 1);
}

static bool add_entry(struct page *page, const struct snapshot_entry *snapshot, off_t next)
{
	struct session *s = page->r->session;
	struct fuse_entry_param entry;
	struct stat stat;
	int r;

	if (!page->plus) {
		session_stat(s, &snapshot->attributes, &stat);
		return add_plain(page, snapshot->name, &stat, next);
	}
	if (fuse_add_direntry_plus(page->r->fuse, NULL, 0, snapshot->name, NULL, 0) >
		page->size - page->used)
		return false;
	r = session_enter_listed(s, page->directory->inode, snapshot->name, &snapshot->attributes,
		page->directory->changes, &entry);
	if (r == -ESTALE || r == -ELOOP) { /* the name alone: the kernel asks if it needs more */
		entry = (struct fuse_entry_param){.ino = 0};
		session_stat(s, &snapshot->attributes, &entry.attr);
	} else if (r < 0) {
		return false;
	}
	return add_plus(page, snapshot->name, &entry, next);
}

static void fill(struct page *page, off_t offset)
{
	const struct directory_handle *d = page->directory;
	const struct position *position, *end;

	for (; offset < DOTS; offset++)
		if (!add_dots(page, offset))
			return;
	position = find_position(d, (uint64_t)offset);
	end = (const struct position *)(const void *)(d->positions.data + d->positions.size);
	for (; position && position < end; position++)
		if (!add_entry(page, (const void *)(d->entries.data + position->at),
			    (off_t)position->after))
			return;
}

static void reply_page(fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset,
	struct fuse_file_info *fi, bool plus)
{
	struct directory_handle *directory;
	struct page page;
	struct request r;
	int result = 0;

	if (virtual_readdir(fuse, ino, size, offset, plus))
		return;
	directory = directory_of(fi);
	request_begin(&r, fuse, "readdir", 0);
	page = (struct page){.r = &r,
		.directory = directory,
		.plus = plus,
		.data = session_thread_buffer(size),
		.size = size};
	if (!page.data) {
		request_finish(&r, -ENOMEM);
		return;
	}
	pthread_mutex_lock(&directory->lock);
	if (!directory->is_read || offset == 0)
		result = read_directory(&r, directory);
	else
		inode_table_path(r.mount->inodes, directory->inode, NULL, &r.path);
	if (result == 0)
		fill(&page, offset);
	pthread_mutex_unlock(&directory->lock);
	if (result < 0) {
		request_finish(&r, result);
		return;
	}
	request_record(&r, 0);
	fuse_reply_buf(fuse, page.data, page.used);
}

void session_readdir(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	reply_page(fuse, ino, size, offset, fi, false);
}

void session_readdirplus(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	reply_page(fuse, ino, size, offset, fi, true);
}

void session_fsyncdir(fuse_req_t fuse, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	struct inode *inode;
	struct request r;
	int result;

	(void)fi;
	if (virtual_refuses(fuse, ino))
		return;
	request_begin(&r, fuse, "fsync", 0);
	inode = session_inode(r.session, ino);
	do {
		result = request_locate_entry(&r, inode, NULL);
		if (result == 0)
			result = workspace_fsync_directory(
				&r.op, r.mount->workspace, r.path.path, data_only);
	} while (request_retry(&r, result, NULL));
	request_finish(&r, result);
}
