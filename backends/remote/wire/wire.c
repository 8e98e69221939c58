#include "backends/remote/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "ops/support/path.h"

enum { HASH_BYTES = 16 };

/* ---- Codes ---------------------------------------------------------------- */

static const struct {
	int error;
	int code;
} error_codes[] = {
	{EPERM, 1},
	{ENOENT, 2},
	{ESRCH, 3},
	{EINTR, 4},
	{EIO, 5},
	{ENXIO, 6},
	{E2BIG, 7},
	{ENOEXEC, 8},
	{EBADF, 9},
	{ECHILD, 10},
	{EAGAIN, 11},
	{ENOMEM, 12},
	{EACCES, 13},
	{EFAULT, 14},
	{EBUSY, 16},
	{EEXIST, 17},
	{EXDEV, 18},
	{ENODEV, 19},
	{ENOTDIR, 20},
	{EISDIR, 21},
	{EINVAL, 22},
	{ENFILE, 23},
	{EMFILE, 24},
	{ENOTTY, 25},
	{ETXTBSY, 26},
	{EFBIG, 27},
	{ENOSPC, 28},
	{ESPIPE, 29},
	{EROFS, 30},
	{EMLINK, 31},
	{EPIPE, 32},
	{EDOM, 33},
	{ERANGE, 34},
	{EDEADLK, 35},
	{ENAMETOOLONG, 36},
	{ENOLCK, 37},
	{ENOTEMPTY, 39},
	{ELOOP, 40},
	{ENODATA, 61},
	{ECOMM, 70},
	{EPROTO, 71},
	{EBADMSG, 74},
	{EOVERFLOW, 75},
	{EMSGSIZE, 90},
	{EOPNOTSUPP, 95},
	{EADDRINUSE, 98},
	{EADDRNOTAVAIL, 99},
	{ENETUNREACH, 101},
	{ECONNRESET, 104},
	{ETIMEDOUT, 110},
	{ECONNREFUSED, 111},
	{EHOSTUNREACH, 113},
	{ENOTCONN, 107},
	{ESTALE, 116},
	{EREMOTEIO, 121},
	{EDQUOT, 122},
	{ECANCELED, 125},
};

int wire_code_of_errno(int error)
{
	for (size_t i = 0; i < array_size(error_codes); i++)
		if (error_codes[i].error == error)
			return error_codes[i].code;
	return 5;
}

int wire_errno_of_code(int code)
{
	for (size_t i = 0; i < array_size(error_codes); i++)
		if (error_codes[i].code == code)
			return error_codes[i].error;
	return EIO;
}

enum {
	WIRE_ACCESS_MASK = 3, /* 0 read, 1 write, 2 both */
	ATTRIBUTE_BYTES = 18 * 10,
	NANOSECONDS = 1000000000,
};

static const struct {
	int flag;
	unsigned bit;
} open_flag_bits[] = {
	{O_APPEND, 1 << 2},
	{O_TRUNC, 1 << 3},
	{O_EXCL, 1 << 4},
	{O_DSYNC, 1 << 5},
	{O_SYNC & ~O_DSYNC, 1 << 6},
	{O_NOATIME, 1 << 7},
	{O_DIRECT, 1 << 8},
};

/* ---- Writing -------------------------------------------------------------- */

void wire_writer_done(struct wire_writer *w)
{
	buffer_done(&w->buffer);
}

void wire_put_raw(struct wire_writer *w, const void *data, size_t size)
{
	if (w->error == 0)
		w->error = buffer_append(&w->buffer, data, size);
}

static size_t encode_number(uint8_t *out, uint64_t number)
{
	size_t size = 0;

	while (number >= 0x80) {
		out[size++] = (uint8_t)(number | 0x80);
		number >>= 7;
	}
	out[size++] = (uint8_t)number;
	return size;
}

static uint64_t zigzag(int64_t number)
{
	return ((uint64_t)number << 1) ^ (number < 0 ? UINT64_MAX : 0);
}

void wire_put_number(struct wire_writer *w, uint64_t number)
{
	uint8_t bytes[10];

	wire_put_raw(w, bytes, encode_number(bytes, number));
}

void wire_put_signed(struct wire_writer *w, int64_t number)
{
	wire_put_number(w, zigzag(number));
}

void wire_put_bytes(struct wire_writer *w, const void *data, size_t size)
{
	wire_put_number(w, size);
	wire_put_raw(w, data, size);
}

void wire_put_string(struct wire_writer *w, const char *string)
{
	size_t length = strlen(string);

	wire_put_number(w, length);
	wire_put_raw(w, string, length + 1);
}

void wire_put_error(struct wire_writer *w, int64_t result)
{
	wire_put_signed(w, result < 0 ? -wire_code_of_errno((int)-result) : result);
}

void wire_put_object(
	struct wire_writer *w, const char *path, const struct object_id *id, uint64_t handle)
{
	wire_put_string(w, path);
	wire_put_object_id(w, id);
	wire_put_number(w, handle);
}

void wire_set_result(uint8_t *out, int64_t result, uint64_t position)
{
	uint64_t code = (uint64_t)(result < 0 ? -wire_code_of_errno((int)-result) : result);

	for (int i = 0; i < 8; i++) {
		out[i] = (uint8_t)(code >> (8 * i));
		out[8 + i] = (uint8_t)(position >> (8 * i));
	}
}

void wire_put_object_id(struct wire_writer *w, const struct object_id *id)
{
	wire_put_number(w, id->device);
	wire_put_number(w, id->inode);
	wire_put_number(w, id->generation);
}

void wire_put_name(struct wire_writer *w, const char *path, const struct object_id *directory)
{
	wire_put_string(w, path);
	wire_put_object_id(w, directory);
}

static size_t encode_time(uint8_t *out, const struct timespec *time)
{
	size_t size = encode_number(out, zigzag(time->tv_sec));

	return size + encode_number(out + size, (uint64_t)time->tv_nsec);
}

enum attribute_bits {
	ATTRIBUTE_CHANGED_LATELY = 1 << 0,
	ATTRIBUTE_GENERATED = 1 << 1,
	ATTRIBUTE_BITS = (1 << 2) - 1,
};

unsigned wire_attribute_bits(const struct attributes *a)
{
	return (a->changed_lately ? ATTRIBUTE_CHANGED_LATELY : 0U) |
	       (a->is_generated ? ATTRIBUTE_GENERATED : 0U);
}

void wire_get_attribute_bits(struct wire_reader *r, struct attributes *a)
{
	uint64_t bits = wire_get_number_max(r, ATTRIBUTE_BITS);

	a->changed_lately = bits & ATTRIBUTE_CHANGED_LATELY;
	a->is_generated = bits & ATTRIBUTE_GENERATED;
}

void wire_put_attributes(struct wire_writer *w, const struct attributes *a)
{
	const uint64_t numbers[] = {a->id.device, a->id.inode, a->id.generation, a->mode, a->nlink,
		a->uid, a->gid, a->rdev, a->size_bytes, a->blocks, a->block_size_bytes};
	uint8_t bytes[ATTRIBUTE_BYTES];
	size_t size = 0;

	for (size_t i = 0; i < array_size(numbers); i++)
		size += encode_number(bytes + size, numbers[i]);
	size += encode_time(bytes + size, &a->atime);
	size += encode_time(bytes + size, &a->mtime);
	size += encode_time(bytes + size, &a->ctime);
	size += encode_number(bytes + size, wire_attribute_bits(a));
	wire_put_raw(w, bytes, size);
}

void wire_put_open_flags(struct wire_writer *w, int flags)
{
	unsigned bits = (flags & O_ACCMODE) == O_WRONLY ? 1 : (flags & O_ACCMODE) == O_RDWR ? 2 : 0;

	for (size_t i = 0; i < array_size(open_flag_bits); i++)
		if (flags & open_flag_bits[i].flag)
			bits |= open_flag_bits[i].bit;
	wire_put_number(w, bits);
}

void wire_put_lock(struct wire_writer *w, const struct file_lock *lock)
{
	wire_put_number(w, lock->kind);
	wire_put_number(w, lock->type);
	wire_put_number(w, lock->owner);
	wire_put_number(w, lock->offset);
	wire_put_number(w, lock->length);
	wire_put_signed(w, lock->pid);
}

void wire_put_fs_stats(struct wire_writer *w, const struct fs_stats *s)
{
	const uint64_t numbers[] = {s->block_size_bytes, s->fragment_size_bytes, s->blocks,
		s->blocks_free, s->blocks_available, s->inodes, s->inodes_free, s->name_max_bytes};

	for (size_t i = 0; i < array_size(numbers); i++)
		wire_put_number(w, numbers[i]);
}

enum fact_bits {
	FACT_PARENT = 1 << 0,
	FACT_NEW_PARENT = 1 << 1,
	FACT_OBJECT = 1 << 2,
	FACT_LITTLE_ROOM = 1 << 3,
	FACT_BITS = (1 << 4) - 1,
};

void wire_put_facts(struct wire_writer *w, const struct facts *facts)
{
	wire_put_number(w, (facts->parent.mode ? FACT_PARENT : 0) |
				   (facts->new_parent.mode ? FACT_NEW_PARENT : 0) |
				   (facts->object.mode ? FACT_OBJECT : 0) |
				   (facts->little_room ? FACT_LITTLE_ROOM : 0));
	if (facts->parent.mode)
		wire_put_attributes(w, &facts->parent);
	if (facts->new_parent.mode)
		wire_put_attributes(w, &facts->new_parent);
	if (facts->object.mode)
		wire_put_attributes(w, &facts->object);
}

enum change_flags { CHANGE_IS_HASHED = 1 << 0, CHANGE_IS_FOREIGN = 1 << 1 };

void wire_put_change(struct wire_writer *w, const struct change *change)
{
	wire_put_number(w, change->kind);
	wire_put_string(w, change->path);
	wire_put_object_id(w, &change->directory);
	wire_put_number(w, change->at);
	wire_put_number(w, change->exists);
	if (!change->exists)
		return;
	wire_put_attributes(w, &change->attributes);
	wire_put_number(w, (change->hash ? CHANGE_IS_HASHED : 0) |
				   (change->is_foreign ? CHANGE_IS_FOREIGN : 0));
	if (change->hash)
		wire_put_raw(w, change->hash, HASH_BYTES);
}

/* ---- Reading -------------------------------------------------------------- */

int wire_reader_finish(const struct wire_reader *r)
{
	return r->failed || r->offset != r->size ? -EPROTO : 0;
}

uint64_t wire_get_number(struct wire_reader *r)
{
	uint64_t number = 0;

	for (unsigned shift = 0; shift < 64 && !r->failed; shift += 7) {
		uint8_t byte;

		if (r->offset >= r->size)
			break;
		byte = r->data[r->offset++];
		if (shift == 63 && byte > 1)
			break;
		number |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return number;
	}
	r->failed = true;
	return 0;
}

uint64_t wire_get_number_max(struct wire_reader *r, uint64_t max)
{
	uint64_t number = wire_get_number(r);

	if (number <= max)
		return number;
	r->failed = true;
	return 0;
}

int64_t wire_get_signed(struct wire_reader *r)
{
	uint64_t number = wire_get_number(r);

	return (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
}

const uint8_t *wire_get_raw(struct wire_reader *r, size_t size)
{
	const uint8_t *data = r->data + r->offset;

	if (r->failed || size > r->size - r->offset) {
		r->failed = true;
		return NULL;
	}
	r->offset += size;
	return data;
}

const uint8_t *wire_get_bytes(struct wire_reader *r, size_t *ret_size)
{
	size_t size = wire_get_number(r);
	const uint8_t *data = wire_get_raw(r, size);

	*ret_size = data ? size : 0;
	return data;
}

const char *wire_get_string(struct wire_reader *r)
{
	size_t length = wire_get_number(r);
	const uint8_t *data;

	if (length >= SIZE_MAX)
		r->failed = true;
	data = wire_get_raw(r, length + 1);
	if (data && !data[length] && strlen((const char *)data) == length)
		return (const char *)data;
	r->failed = true;
	return "";
}

const char *wire_get_path(struct wire_reader *r)
{
	const char *path = wire_get_string(r);

	if (path_is_normal(path))
		return path;
	r->failed = true;
	return "";
}

const char *wire_get_link_target(struct wire_reader *r)
{
	const char *target = wire_get_string(r);

	if (strlen(target) <= PATH_MAX)
		return target;
	r->failed = true;
	return "";
}

static int64_t result_of_code(int64_t code)
{
	if (code >= 0)
		return code;
	return code < -INT_MAX ? -EIO : -wire_errno_of_code((int)-code);
}

int64_t wire_get_error(struct wire_reader *r)
{
	return result_of_code(wire_get_signed(r));
}

int64_t wire_get_result(struct wire_reader *r, uint64_t *ret_position)
{
	const uint8_t *bytes = wire_get_raw(r, WIRE_RESULT_BYTES);
	uint64_t code = 0, position = 0;

	for (int i = 0; bytes && i < 8; i++) {
		code |= (uint64_t)bytes[i] << (8 * i);
		position |= (uint64_t)bytes[8 + i] << (8 * i);
	}
	*ret_position = position;
	return result_of_code((int64_t)code);
}

void wire_get_object_id(struct wire_reader *r, struct object_id *ret_id)
{
	ret_id->device = wire_get_number(r);
	ret_id->inode = wire_get_number(r);
	ret_id->generation = wire_get_number(r);
}

const char *wire_get_name(struct wire_reader *r, struct object_id *ret_directory)
{
	const char *path = wire_get_path(r);

	wire_get_object_id(r, ret_directory);
	return path;
}

static struct timespec get_time(struct wire_reader *r)
{
	struct timespec time;

	time.tv_sec = (time_t)wire_get_signed(r);
	time.tv_nsec = (long)wire_get_number_max(r, NANOSECONDS - 1);
	return time;
}

void wire_get_attributes(struct wire_reader *r, struct attributes *a)
{
	wire_get_object_id(r, &a->id);
	a->mode = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	a->nlink = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	a->uid = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	a->gid = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	a->rdev = wire_get_number(r);
	a->size_bytes = wire_get_number_max(r, INT64_MAX);
	a->blocks = wire_get_number(r);
	a->block_size_bytes = (uint32_t)wire_get_number_max(r, UINT32_MAX);
	a->atime = get_time(r);
	a->mtime = get_time(r);
	a->ctime = get_time(r);
	wire_get_attribute_bits(r, a);
}

int wire_get_open_flags(struct wire_reader *r)
{
	static const int access_modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY};
	unsigned bits = (unsigned)wire_get_number_max(r, (1 << 9) - 1);
	int flags = access_modes[bits & WIRE_ACCESS_MASK];

	if ((bits & WIRE_ACCESS_MASK) == WIRE_ACCESS_MASK)
		r->failed = true;
	for (size_t i = 0; i < array_size(open_flag_bits); i++)
		if (bits & open_flag_bits[i].bit)
			flags |= open_flag_bits[i].flag;
	return flags;
}

void wire_get_lock(struct wire_reader *r, struct file_lock *lock)
{
	int64_t pid;

	lock->kind = (enum lock_kind)wire_get_number_max(r, LOCK_KIND_POSIX);
	lock->type = (enum lock_type)wire_get_number_max(r, LOCK_NONE);
	lock->owner = wire_get_number(r);
	lock->offset = wire_get_number_max(r, INT64_MAX);
	lock->length = wire_get_number_max(r, INT64_MAX);
	pid = wire_get_signed(r);
	if (pid < -1 || pid > INT_MAX)
		r->failed = true;
	lock->pid = (pid_t)pid;
}

void wire_get_fs_stats(struct wire_reader *r, struct fs_stats *s)
{
	s->block_size_bytes = wire_get_number(r);
	s->fragment_size_bytes = wire_get_number(r);
	s->blocks = wire_get_number(r);
	s->blocks_free = wire_get_number(r);
	s->blocks_available = wire_get_number(r);
	s->inodes = wire_get_number(r);
	s->inodes_free = wire_get_number(r);
	s->name_max_bytes = (uint32_t)wire_get_number_max(r, UINT32_MAX);
}

void wire_get_facts(struct wire_reader *r, struct facts *facts)
{
	unsigned bits = (unsigned)wire_get_number_max(r, FACT_BITS);

	*facts = (struct facts){0};
	if (bits & FACT_PARENT)
		wire_get_attributes(r, &facts->parent);
	if (bits & FACT_NEW_PARENT)
		wire_get_attributes(r, &facts->new_parent);
	if (bits & FACT_OBJECT)
		wire_get_attributes(r, &facts->object);
	facts->little_room = bits & FACT_LITTLE_ROOM;
}

void wire_get_change(struct wire_reader *r, struct change *change)
{
	uint64_t flags;

	*change = (struct change){0};
	change->kind = (enum change_kind)wire_get_number_max(r, CHANGE_UNWATCHED);
	change->path = wire_get_path(r);
	wire_get_object_id(r, &change->directory);
	change->at = wire_get_number(r);
	change->exists = wire_get_number_max(r, 1);
	if (!change->exists)
		return;
	wire_get_attributes(r, &change->attributes);
	flags = wire_get_number_max(r, CHANGE_IS_HASHED | CHANGE_IS_FOREIGN);
	change->is_foreign = flags & CHANGE_IS_FOREIGN;
	if (flags & CHANGE_IS_HASHED)
		change->hash = wire_get_raw(r, HASH_BYTES);
}
