/* One entry of a listing. */
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/wire/wire.h"
#include "ops/support/path.h"

/* ---- Attributes that tell how they differ from those of the entry before ------------------ */

enum packed_bits {
	PACKED_ATIME = 1 << 0,  /* it is not mtime */
	PACKED_CTIME = 1 << 1,  /* ... */
	PACKED_BLOCKS = 1 << 2, /* not what the size takes */
	PACKED_MODE = 1 << 3,   /* not that of the entry before ... */
	PACKED_NLINK = 1 << 4,
	PACKED_OWNER = 1 << 5,
	PACKED_GENERATION = 1 << 6,
	PACKED_OTHER = 1 << 7, /* device, rdev, block size, changed lately */
	PACKED_BITS = (1 << 8) - 1,
};

static const int64_t nanoseconds_max = 1000000000;

/* Modulo 2^64 at both ends. */
static uint64_t count_ns(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * (uint64_t)nanoseconds_max + (uint64_t)time->tv_nsec;
}

static struct timespec time_of(uint64_t count)
{
	int64_t ns = (int64_t)count, rest = ns % nanoseconds_max;
	struct timespec time = {.tv_sec = ns / nanoseconds_max, .tv_nsec = rest};

	if (rest < 0) {
		time.tv_sec--;
		time.tv_nsec += nanoseconds_max;
	}
	return time;
}

static bool is_countable(const struct timespec *time)
{
	return time->tv_sec < INT64_MAX / nanoseconds_max &&
	       time->tv_sec > INT64_MIN / nanoseconds_max;
}

static bool may_pack(const struct attributes *a)
{
	return is_countable(&a->atime) && is_countable(&a->mtime) && is_countable(&a->ctime);
}

static uint64_t usual_blocks(uint64_t size)
{
	return (size / 4096 + (size % 4096 != 0)) * 8;
}

static void put_time(
	struct wire_writer *w, const struct timespec *before, const struct timespec *time)
{
	wire_put_signed(w, (int64_t)(count_ns(time) - count_ns(before)));
}

static void get_time(
	struct wire_reader *r, const struct timespec *before, struct timespec *ret_time)
{
	*ret_time = time_of(count_ns(before) + (uint64_t)wire_get_signed(r));
}

/* What is mostly little: many a generation is when the object was made, with its type in it
 * (backends/local/local_path.c). */
static uint64_t generation_base(const struct attributes *a)
{
	return count_ns(&a->ctime) ^ (a->mode & S_IFMT);
}

static bool same_other(const struct attributes *a, const struct attributes *b)
{
	return a->id.device == b->id.device && a->rdev == b->rdev &&
	       a->block_size_bytes == b->block_size_bytes &&
	       wire_attribute_bits(a) == wire_attribute_bits(b);
}

static void put_packed(
	struct wire_writer *w, const struct attributes *before, const struct attributes *a)
{
	unsigned bits = (count_ns(&a->atime) != count_ns(&a->mtime) ? PACKED_ATIME : 0) |
			(count_ns(&a->ctime) != count_ns(&a->mtime) ? PACKED_CTIME : 0) |
			(a->blocks != usual_blocks(a->size_bytes) ? PACKED_BLOCKS : 0) |
			(a->mode != before->mode ? PACKED_MODE : 0) |
			(a->nlink != before->nlink ? PACKED_NLINK : 0) |
			(a->uid != before->uid || a->gid != before->gid ? PACKED_OWNER : 0) |
			(a->id.generation != before->id.generation ? PACKED_GENERATION : 0) |
			(same_other(a, before) ? 0 : PACKED_OTHER);

	wire_put_number(w, bits);
	wire_put_signed(w, (int64_t)(a->id.inode - before->id.inode));
	wire_put_number(w, a->size_bytes);
	put_time(w, &before->mtime, &a->mtime);
	if (bits & PACKED_ATIME)
		put_time(w, &a->mtime, &a->atime);
	if (bits & PACKED_CTIME)
		put_time(w, &a->mtime, &a->ctime);
	if (bits & PACKED_BLOCKS)
		wire_put_number(w, a->blocks);
	if (bits & PACKED_MODE)
		wire_put_number(w, a->mode);
	if (bits & PACKED_NLINK)
		wire_put_number(w, a->nlink);
	if (bits & PACKED_OWNER) {
		wire_put_number(w, a->uid);
		wire_put_number(w, a->gid);
	}
	if (bits & PACKED_GENERATION)
		wire_put_signed(w, (int64_t)(a->id.generation - generation_base(a)));
	if (bits & PACKED_OTHER) {
		wire_put_number(w, a->id.device);
		wire_put_number(w, a->rdev);
		wire_put_number(w, a->block_size_bytes);
		wire_put_number(w, wire_attribute_bits(a));
	}
}

static void get_other(struct wire_reader *r, struct attributes *a)
{
	a->id.device = wire_get_number(r);
	a->rdev = wire_get_number(r);
	a->block_size_bytes = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	wire_get_attribute_bits(r, a);
}

static void get_packed(struct wire_reader *r, const struct attributes *before, struct attributes *a)
{
	unsigned bits = (unsigned)wire_get_number_max(r, PACKED_BITS);

	*a = *before;
	a->id.inode += (uint64_t)wire_get_signed(r);
	a->size_bytes = wire_get_number_max(r, INT64_MAX);
	get_time(r, &before->mtime, &a->mtime);
	a->atime = a->ctime = a->mtime;
	if (bits & PACKED_ATIME)
		get_time(r, &a->mtime, &a->atime);
	if (bits & PACKED_CTIME)
		get_time(r, &a->mtime, &a->ctime);
	a->blocks = bits & PACKED_BLOCKS ? wire_get_number(r) : usual_blocks(a->size_bytes);
	if (bits & PACKED_MODE)
		a->mode = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	if (bits & PACKED_NLINK)
		a->nlink = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	if (bits & PACKED_OWNER) {
		a->uid = (uint32_t)wire_get_number_max(r, UINT32_MAX);
		a->gid = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	}
	if (bits & PACKED_GENERATION)
		a->id.generation = generation_base(a) + (uint64_t)wire_get_signed(r);
	if (bits & PACKED_OTHER)
		get_other(r, a);
}

/* ---- An entry ----------------------------------------------------------------------------- */

enum entry_bits {
	ENTRY_WATCHED = 1 << 0,
	ENTRY_COMPLETE = 1 << 1,
	ENTRY_LINK = 1 << 2,
	ENTRY_CONTENT = 1 << 3,
	ENTRY_MOVED_ON = 1 << 4, /* its position is not that of the entry before */
	ENTRY_LACKS_TEXTS = 1 << 5,
	ENTRY_PACKED = 1 << 6, /* its attributes are */
	ENTRY_LINES = 1 << 7,
	ENTRY_BITS = (1 << 8) - 1,
};

static size_t shared_length(const char *a, const char *b)
{
	size_t length = 0;

	while (a[length] && a[length] == b[length])
		length++;
	return length;
}

void wire_put_dir_entry(struct wire_writer *w, const char *previous, uint64_t previous_at,
	const struct attributes *before, const struct dir_entry *entry)
{
	bool packs = before && may_pack(&entry->attributes);
	size_t shared = shared_length(previous, entry->path);
	unsigned bits = (entry->watched_since ? ENTRY_WATCHED : 0) |
			(entry->complete ? ENTRY_COMPLETE : 0) |
			(entry->link_target ? ENTRY_LINK : 0) |
			(entry->content ? ENTRY_CONTENT : 0) |
			(entry->at != previous_at ? ENTRY_MOVED_ON : 0) |
			(entry->lacks_texts ? ENTRY_LACKS_TEXTS : 0) | (packs ? ENTRY_PACKED : 0) |
			(entry->lines ? ENTRY_LINES : 0);

	wire_put_number(w, bits);
	wire_put_number(w, shared);
	wire_put_string(w, entry->path + shared);
	if (packs)
		put_packed(w, before, &entry->attributes);
	else
		wire_put_attributes(w, &entry->attributes);
	if (entry->at != previous_at)
		wire_put_signed(w, (int64_t)(entry->at - previous_at));
	if (entry->watched_since)
		wire_put_signed(w, (int64_t)(entry->at - entry->watched_since));
	if (entry->link_target)
		wire_put_string(w, entry->link_target);
	if (entry->content)
		wire_put_bytes(w, entry->content, entry->content_size);
	if (entry->lines)
		wire_put_bytes(w, entry->lines, entry->lines_size);
}

static void get_entry_path(struct wire_reader *r, struct buffer *path)
{
	size_t shared = wire_get_number(r);
	const char *rest = wire_get_string(r);

	if (shared > 0 && shared >= path->size)
		r->failed = true;
	if (r->failed)
		shared = 0;
	path->size = shared;
	if (buffer_append(path, rest, strlen(rest) + 1) < 0)
		r->failed = true;
}

void wire_get_dir_entry(
	struct wire_reader *r, struct buffer *path, uint64_t *at, struct dir_entry *entry)
{
	unsigned bits = (unsigned)wire_get_number_max(r, ENTRY_BITS);

	struct attributes before = entry->attributes;

	*entry = (struct dir_entry){.path = "",
		.complete = bits & ENTRY_COMPLETE,
		.lacks_texts = bits & ENTRY_LACKS_TEXTS};
	get_entry_path(r, path);
	if (bits & ENTRY_PACKED)
		get_packed(r, &before, &entry->attributes);
	else
		wire_get_attributes(r, &entry->attributes);
	if (bits & ENTRY_MOVED_ON)
		*at += (uint64_t)wire_get_signed(r);
	entry->at = *at;
	if (bits & ENTRY_WATCHED)
		entry->watched_since = *at - (uint64_t)wire_get_signed(r);
	if (bits & ENTRY_LINK)
		entry->link_target = wire_get_link_target(r);
	if (bits & ENTRY_CONTENT)
		entry->content = wire_get_bytes(r, &entry->content_size);
	if (bits & ENTRY_LINES)
		entry->lines = wire_get_bytes(r, &entry->lines_size);
	if (r->failed)
		return;
	entry->path = (const char *)path->data;
	if (!path_is_normal(entry->path))
		r->failed = true;
}
