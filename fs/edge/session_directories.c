#include "fs/edge/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/edge/virtual.h"
#include "ops/listing_order.h"
#include "ops/support/buffer.h"
#include "ops/support/log.h"
#include "ops/workspace.h"

/* Directories are not opened: each READDIR says after which entry it begins.  Entries are ordered
 * by a hash of their names, which is their offset: an offset means the same in every listing,
 * whatever was made or removed meanwhile, and the kernel may continue from its cache of another
 * listing.  Offset 1 is after ".", 2 after "..".  A listing is kept from its first page to its
 * last, so that a directory is read once. */
struct listing {
	struct listing *next; /* the latest first (listings_lock) */
	atomic_uint references;
	struct inode *inode;     /* holds a reference */
	uint32_t changes;        /* of the inode, before it was read ... */
	uint64_t at;             /* ... at this position */
	bool of_another;         /* that had replaced it: names alone */
	struct buffer entries;   /* struct snapshot_entry, its attributes if it has them, name,
				  * padding; in turn */
	struct buffer positions; /* struct position, ascending */
	size_t charged;          /* their bytes, as in session.listings_bytes */
};

struct position {
	uint64_t after; /* the position that follows the entry */
	size_t at;      /* where it starts in `entries` */
};

struct snapshot_entry {
	uint64_t inode; /* as it is shown */
	uint32_t mode;
	bool has_attributes; /* struct attributes come next, then the name; else the name */
};

enum {
	DOTS = 2,
	/* The bound on all listings together, however many are read: one of ten million names of
	 * 20 bytes, of a million of which the attributes are kept. */
	LISTINGS_MAX_BYTES = 768 << 20,
	ATTRIBUTES_MAX_BYTES = 192 << 20, /* a listing that is larger has names alone from there */
	/* The bound on listings that readers did not read to the end. */
	LEFT_MAX = 256,
	LEFT_MAX_BYTES = 64 << 20,
};

/* ENOSYS: none is ever opened again, nor released.  The kernel then keeps what it read of every
 * directory (see finish_listing()). */
void session_opendir(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct session *s = fuse_req_userdata(fuse);

	(void)ino;
	if (!s->opens_directories) {
		fuse_reply_err(fuse, ENOSYS);
		return;
	}
	fi->cache_readdir = fi->keep_cache = !s->mount->options->cache_strict;
	fuse_reply_open(fuse, fi);
}

/* ---- Listings in use --------------------------------------------------------------------- */

/* What is in it is about to go. */
static void discharge(struct session *s, struct listing *listing)
{
	s->listings_bytes -= listing->charged;
	listing->charged = 0;
}

static void listing_free(struct listing *listing)
{
	buffer_done(&listing->entries);
	buffer_done(&listing->positions);
	free(listing);
}

static void listing_unref(struct session *s, struct listing *listing)
{
	if (!listing || --listing->references)
		return;
	inode_table_unref(s->mount->inodes, listing->inode);
	discharge(s, listing);
	listing_free(listing);
}

/* With the lock held: the link to the inode's listing, or the end of the list ... */
static struct listing **slot_of(struct session *s, const struct inode *inode)
{
	struct listing **at = &s->listings;

	while (*at && (*at)->inode != inode)
		at = &(*at)->next;
	return at;
}

/* ... and to those beyond the bound; never the first one. */
static struct listing **slot_past_bounds(struct session *s)
{
	struct listing **at = &s->listings;
	size_t count = 0, bytes = 0;

	while (*at && (!count || (count < LEFT_MAX && bytes < LEFT_MAX_BYTES))) {
		count++;
		bytes += (*at)->entries.size + (*at)->positions.size;
		at = &(*at)->next;
	}
	return at;
}

static struct listing *take_out(struct listing **at)
{
	struct listing *listing = *at;

	if (listing)
		*at = listing->next;
	return listing;
}

static struct listing *listing_find(struct session *s, const struct inode *inode)
{
	struct listing *listing;

	pthread_mutex_lock(&s->listings_lock);
	listing = *slot_of(s, inode);
	if (listing)
		listing->references++;
	pthread_mutex_unlock(&s->listings_lock);
	return listing;
}

static void listing_keep(struct session *s, struct listing *listing)
{
	struct listing *previous, *too_much;

	pthread_mutex_lock(&s->listings_lock);
	previous = take_out(slot_of(s, listing->inode));
	listing->references++;
	listing->next = s->listings;
	s->listings = listing;
	too_much = take_out(slot_past_bounds(s));
	pthread_mutex_unlock(&s->listings_lock);
	listing_unref(s, previous);
	listing_unref(s, too_much);
}

static void listing_drop(struct session *s, const struct inode *inode)
{
	struct listing *listing;

	pthread_mutex_lock(&s->listings_lock);
	listing = take_out(slot_of(s, inode));
	pthread_mutex_unlock(&s->listings_lock);
	listing_unref(s, listing);
}

/* All that readers may still come back to: they read the directory anew. */
static void drop_all(struct session *s)
{
	struct listing *listing;

	do {
		pthread_mutex_lock(&s->listings_lock);
		listing = take_out(&s->listings);
		pthread_mutex_unlock(&s->listings_lock);
		listing_unref(s, listing);
	} while (listing);
}

void session_directories_done(struct session *s)
{
	while (s->listings) {
		struct listing *next = s->listings->next;

		listing_free(s->listings);
		s->listings = next;
	}
}

/* ---- Reading ----------------------------------------------------------------------------- */

struct reading {
	struct session *session;
	struct listing *listing;
};

/* Positive as off_t, and above the dots, with room for those that collide. */
static uint64_t position_after(const char *name, size_t length)
{
	return (listing_order_of(name, length) >> 2) + DOTS + 1;
}

/* Counts so many bytes more for it.  -ENOMEM: there is no room for them. */
static int charge(struct reading *reading, size_t bytes)
{
	struct session *s = reading->session;
	struct listing *listing = reading->listing;

	if (s->listings_bytes + bytes > LISTINGS_MAX_BYTES)
		drop_all(s);
	if (s->listings_bytes + bytes > LISTINGS_MAX_BYTES) {
		log_warning("gave up a listing after %zu names: listings that are read take more "
			    "than %d MiB",
			listing->positions.size / sizeof(struct position),
			LISTINGS_MAX_BYTES >> 20);
		return -ENOMEM;
	}
	s->listings_bytes += bytes;
	listing->charged += bytes;
	return 0;
}

static int keep_entry(void *user, const struct dir_entry *entry)
{
	struct reading *reading = user;
	struct listing *listing = reading->listing;
	const struct snapshot_entry snapshot = {
		.inode = inode_table_number_of(
			reading->session->mount->inodes, &entry->attributes.id),
		.mode = entry->attributes.mode,
		.has_attributes = listing->entries.size < ATTRIBUTES_MAX_BYTES};
	size_t length = strlen(entry->path) + 1;
	size_t attributes = snapshot.has_attributes ? sizeof(entry->attributes) : 0;
	struct position position = {
		.after = position_after(entry->path, length - 1), .at = listing->entries.size};
	size_t padding = -length % sizeof(uint64_t);
	size_t size = sizeof(snapshot) + attributes + length + padding;
	int r;

	if (virtual_hides(listing->inode, entry->path))
		return 0;
	r = charge(reading, size + sizeof(position));
	if (r == 0)
		r = buffer_reserve(&listing->entries, size);
	if (r == 0)
		r = buffer_append(&listing->positions, &position, sizeof(position));
	if (r < 0)
		return r;
	buffer_append(&listing->entries, &snapshot, sizeof(snapshot));
	buffer_append(&listing->entries, &entry->attributes, attributes);
	buffer_append(&listing->entries, entry->path, length);
	buffer_append(&listing->entries, "\0\0\0\0\0\0\0", padding);
	return 0;
}

static void start_anew(struct reading *reading)
{
	reading->listing->entries.size = 0;
	reading->listing->positions.size = 0;
	discharge(reading->session, reading->listing);
}

static int compare_positions(const void *a, const void *b)
{
	const struct position *first = a, *second = b;

	return (first->after > second->after) - (first->after < second->after);
}

static void sort_positions(struct listing *listing)
{
	struct position *positions = (void *)listing->positions.data;
	size_t count = listing->positions.size / sizeof(*positions);

	if (count)
		qsort(positions, count, sizeof(*positions), compare_positions);
	for (size_t i = 1; i < count; i++)
		if (positions[i].after <= positions[i - 1].after)
			positions[i].after = positions[i - 1].after + 1;
}

/* The kernel does not look up an open directory again.  One that was just replaced reads as its
 * replacement, as if it had been opened later; one that was removed is empty. */
static int read_successor(struct request *r, struct reading *reading)
{
	struct listing *listing = reading->listing;
	struct path_string path;
	int result = inode_table_last_path(r->mount->inodes, listing->inode, NULL, &path);

	listing->of_another = true;
	if (result < 0)
		return result == -ENOENT ? 0 : result;
	if (request_is_removed(r, listing->inode)) {
		path_string_done(&path);
		return 0;
	}
	do {
		start_anew(reading);
		result = workspace_readdir(&r->op, r->mount->workspace, &OBJECT_AT(path.path),
			false, keep_entry, reading, &(uint64_t){0});
	} while (result == -ESTALE && ++r->attempts <= ATTEMPTS_MAX);
	path_string_done(&path);
	return result != -ESTALE && path_misses_object(result) ? 0 : result;
}

static int read_entries(struct request *r, struct listing *listing)
{
	struct reading reading = {r->session, listing};
	struct inode *inode = listing->inode;
	struct object_ref object;
	uint64_t since = 0;
	uint32_t losses;
	int result;

	do {
		losses = inode_table_watch_losses(r->mount->inodes, inode);
		start_anew(&reading);
		listing->changes = inode_changes(inode);
		result = request_locate(r, inode, &object);
		if (result == 0)
			result = workspace_readdir(&r->op, r->mount->workspace, &object, true,
				keep_entry, &reading, &since);
		listing->at = r->op.served.position;
	} while (request_retry(r, result, NULL));
	if (path_misses_object(result))
		result = read_successor(r, &reading);
	if (result < 0)
		return result;
	sort_positions(listing);
	if (!listing->of_another)
		inode_table_set_watched(r->mount->inodes, inode, since, losses);
	/* Unless it was listed after the watch began. */
	listing->changes = (listing->changes & ~1U) | (since != 0);
	return 0;
}

static int read_directory(struct request *r, struct inode *inode, struct listing **ret_listing)
{
	struct listing *listing = calloc(1, sizeof(*listing));
	int result;

	if (!listing)
		return -ENOMEM;
	inode_table_ref(r->mount->inodes, inode);
	listing->inode = inode;
	listing->references = 1;
	result = read_entries(r, listing);
	if (result < 0) {
		listing_unref(r->session, listing);
		return result;
	}
	listing_keep(r->session, listing);
	*ret_listing = listing;
	return 0;
}

/* ---- Watching ---------------------------------------------------------------------------- */

void session_watch_directory(struct mount *m, struct op_context *op, struct inode *inode)
{
	struct object_ref object = {.id = inode_table_id(m->inodes, inode)};
	struct path_string path;
	bool watched = false;
	uint32_t losses;
	int r;

	if (!inode_table_wants_watch(m->inodes, inode, &losses) ||
		inode_table_path(m->inodes, inode, NULL, &path) < 0)
		return;
	object.path = path.path;
	r = workspace_watch_directory(op, m->workspace, &object, &watched);
	path_string_done(&path);
	if (r != -EAGAIN && r != -EINTR && !path_misses_object(r))
		inode_table_set_watched(m->inodes, inode, watched, losses);
}

void session_watch(struct request *r, struct inode *directory)
{
	if (!inode_directory(directory)->watched && r->session->can_watch)
		session_watch_directory(r->mount, &r->op, directory);
}

void session_watch_around(struct request *r, struct inode *inode)
{
	struct inode *parent = inode_table_parent(r->mount->inodes, inode);

	if (parent)
		session_watch(r, parent);
	inode_table_unref(r->mount->inodes, parent);
	if (inode->is_directory)
		session_watch(r, inode);
}

void mount_watch(struct mount *m, const char *path)
{
	struct inode *inode = m->inodes ? inode_table_find(m->inodes, path) : NULL;
	struct op_context op;

	if (!inode)
		return;
	op_context_init(&op);
	if (inode->is_directory)
		session_watch_directory(m, &op, inode);
	inode_table_unref(m->inodes, inode);
}

/* ---- Pages ------------------------------------------------------------------------------- */

static int find_or_read(
	struct request *r, struct inode *inode, off_t offset, struct listing **ret_listing)
{
	struct listing *listing = offset ? listing_find(r->session, inode) : NULL;

	if (!listing)
		return read_directory(r, inode, ret_listing);
	inode_table_path(r->mount->inodes, inode, NULL, &r->path);
	*ret_listing = listing;
	return 0;
}

/* The first position after `offset`; NULL at the end. */
static const struct position *find_position(const struct listing *listing, uint64_t offset)
{
	const struct position *positions = (const void *)listing->positions.data;
	size_t low = 0, count = listing->positions.size / sizeof(*positions), high = count;

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
	struct listing *listing;
	bool plus;
	char *data;
	size_t size, used;
};

/* Adds one entry; false when it does not fit. */
static bool add(
	struct page *page, const char *name, const struct fuse_entry_param *entry, off_t next)
{
	char *at = page->data + page->used;
	size_t room = page->size - page->used;
	size_t length =
		page->plus ? fuse_add_direntry_plus(page->r->fuse, at, room, name, entry, next)
			   : fuse_add_direntry(page->r->fuse, at, room, name, &entry->attr, next);

	if (length > room)
		return false;
	page->used += length;
	return true;
}

/* -ESTALE, -ELOOP: not with its attributes, which the kernel asks for if it needs them. */
static int enter(struct page *page, const char *name, const struct attributes *attributes,
	struct fuse_entry_param *ret_entry)
{
	struct inode *inode;

	if (!page->plus || page->listing->of_another || !attributes)
		return -ESTALE;
	return session_enter(page->r->session, page->listing->inode, name, attributes,
		page->listing->at, &page->listing->changes, ret_entry, &inode);
}

static bool add_entry(struct page *page, const struct snapshot_entry *snapshot, off_t next)
{
	const struct attributes *attributes =
		snapshot->has_attributes ? (const void *)(snapshot + 1) : NULL;
	const char *name =
		attributes ? (const char *)(attributes + 1) : (const char *)(snapshot + 1);
	struct fuse_entry_param entry;
	int r;

	/* Each entry counts as a lookup by the kernel, so only if it fits. */
	if (page->plus && fuse_add_direntry_plus(page->r->fuse, NULL, 0, name, NULL, 0) >
				  page->size - page->used)
		return false;
	r = enter(page, name, attributes, &entry);
	if (r == -ESTALE || r == -ELOOP)
		entry = (struct fuse_entry_param){
			.attr = {.st_ino = snapshot->inode, .st_mode = snapshot->mode}};
	else if (r < 0)
		return false;
	return add(page, name, &entry, next);
}

static void fill(struct page *page, off_t offset)
{
	const struct listing *listing = page->listing;
	const struct fuse_entry_param dots = {
		.attr = {.st_ino = inode_table_number(page->r->mount->inodes, listing->inode),
			.st_mode = S_IFDIR}};
	const struct position *position, *end;

	for (; offset < DOTS; offset++)
		if (!add(page, offset ? ".." : ".", &dots, offset + 1))
			return;
	position = find_position(listing, (uint64_t)offset);
	end = (const void *)(listing->positions.data + listing->positions.size);
	for (; position && position < end; position++)
		if (!add_entry(page, (const void *)(listing->entries.data + position->at),
			    (off_t)position->after))
			return;
}

/* The end of the directory.  Of an unwatched one the kernel must not keep the listing, of which it
 * has all but the end by now. */
static void finish_listing(struct session *s, const struct listing *listing)
{
	listing_drop(s, listing->inode);
	if (!inode_directory(listing->inode)->watched || listing->of_another)
		fuse_lowlevel_notify_inval_inode(s->fuse, session_ino(s, listing->inode), 0, 0);
}

static void reply_page(fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
	struct request r;
	struct page page;
	int result;

	if (virtual_readdir(fuse, ino, size, offset, plus))
		return;
	request_begin(&r, fuse, "readdir", 0);
	page = (struct page){
		.r = &r, .plus = plus, .data = session_answer_buffer(size), .size = size};
	result = page.data ? 0 : -ENOMEM;
	if (result == 0)
		result = find_or_read(&r, session_inode(r.session, ino), offset, &page.listing);
	if (result < 0) {
		request_finish(&r, result);
		return;
	}
	fill(&page, offset);
	if (!page.used)
		finish_listing(r.session, page.listing);
	listing_unref(r.session, page.listing);
	request_record(&r, 0);
	fuse_reply_buf(fuse, page.data, page.used);
}

void session_readdir(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	(void)fi;
	reply_page(fuse, ino, size, offset, false);
}

void session_readdirplus(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	(void)fi;
	reply_page(fuse, ino, size, offset, true);
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
			result = workspace_fsync(
				&r.op, r.mount->workspace, NULL, r.path.path, data_only);
	} while (request_retry(&r, result, NULL));
	if (result == -ESTALE) /* the kernel does not look up what is open */
		result = -ENOENT;
	request_finish(&r, result);
}
