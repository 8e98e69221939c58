#include "backends/local/local_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#ifndef STATX_TYPE /* musl before 1.2.5; with a later one this header would define statx again */
#include <linux/stat.h>
#endif

#include "backends/local/file_system.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

enum { SETTLED_SECONDS = 2, LITTLE_ROOM_BYTES = 64 << 20 };

/* ---- Attributes --------------------------------------------------------------- */

static struct timespec from_statx_time(const struct statx_timestamp *time)
{
	return (struct timespec){.tv_sec = (time_t)time->tv_sec, .tv_nsec = (long)time->tv_nsec};
}

/* Some file systems keep whole seconds, or every other one. */
static bool changed_lately(const struct statx *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec - st->stx_ctime.tv_sec <= SETTLED_SECONDS;
}

/* With a coarse clock, an object that is made right after a removal may have the same inode number
 * and birth time; but its type tells a link from a file. */
static uint64_t generation_of(const struct statx *st, uint64_t born)
{
	return st->stx_mask & STATX_BTIME ? born ^ (st->stx_mode & S_IFMT) : 0;
}

enum { KNOWN_DEVICES = 64, KNOWN_SECONDS = 8, TRAIT_BITS = 8 };

/* enum file_system_traits of devices without a major number, by minor number: what was found, the
 * minor number, and when (in KNOWN_SECONDS): another file system may get the number after this one.
 */
static atomic_uint_fast64_t known_traits[KNOWN_DEVICES];

/* Of the file at the path; "": at the descriptor itself. */
static unsigned find_traits(int fd, const char *path)
{
	cleanup_fd int file_fd = -1;

	if (!*path)
		return file_system_traits(fd);
	file_fd = openat(fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return file_fd < 0 ? 0 : file_system_traits(file_fd);
}

static bool is_generated(int directory_fd, const char *path, const struct statx *st)
{
	atomic_uint_fast64_t *known = &known_traits[st->stx_dev_minor % KNOWN_DEVICES];
	uint64_t key = (clock_now_ms() / 1000 / KNOWN_SECONDS << 32 | st->stx_dev_minor)
		       << TRAIT_BITS;
	uint64_t found = *known;

	if (!S_ISREG(st->stx_mode) || st->stx_dev_major)
		return false;
	if (found >> TRAIT_BITS != key >> TRAIT_BITS)
		*known = found = key | find_traits(directory_fd, path);
	return (found & FILE_SYSTEM_GENERATED) ||
	       ((found & FILE_SYSTEM_GENERATED_IF_EMPTY) && !st->stx_size);
}

static void from_statx(const struct statx *st, struct attributes *ret_attributes)
{
	uint64_t born = (uint64_t)st->stx_btime.tv_sec * 1000000000 + st->stx_btime.tv_nsec;

	/* overlayfs: of the copy that the first change in it made.  (tmpfs and btrfs, which have no
	 * device of their own either, do not use inode numbers again.) */
	if (S_ISDIR(st->stx_mode) && !st->stx_dev_major)
		born = 0;
	*ret_attributes = (struct attributes){
		.id = {.device = makedev(st->stx_dev_major, st->stx_dev_minor),
			.inode = st->stx_ino,
			.generation = generation_of(st, born)},
		.mode = st->stx_mode,
		.nlink = st->stx_nlink,
		.uid = st->stx_uid,
		.gid = st->stx_gid,
		.rdev = makedev(st->stx_rdev_major, st->stx_rdev_minor),
		.size_bytes = st->stx_size,
		.blocks = st->stx_blocks,
		.block_size_bytes = st->stx_blksize,
		.atime = from_statx_time(&st->stx_atime),
		.mtime = from_statx_time(&st->stx_mtime),
		.ctime = from_statx_time(&st->stx_ctime),
		.changed_lately = changed_lately(st),
	};
}

/* The raw call: some libc lack it. */
static int stat_at(int directory_fd, const char *path, int flags, struct attributes *ret_attributes)
{
	struct statx st;

	if (syscall(SYS_statx, directory_fd, path, flags | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		    STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
		return -errno;
	from_statx(&st, ret_attributes);
	ret_attributes->is_generated = is_generated(directory_fd, path, &st);
	return 0;
}

int local_stat_fd(int fd, struct attributes *ret_attributes)
{
	return stat_at(fd, "", AT_EMPTY_PATH, ret_attributes);
}

int local_stat_name(int directory_fd, const char *name, struct attributes *ret_attributes)
{
	return stat_at(directory_fd, name, 0, ret_attributes);
}

int local_check_id(const struct object_id *expected, const struct attributes *attributes)
{
	return !expected->inode || object_id_equal(expected, &attributes->id) ? 0 : -ESTALE;
}

/* ---- Walking --------------------------------------------------------------------- */

static bool is_link(int directory_fd, const char *name)
{
	struct stat st;

	return fstatat(directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* One component after the other, each refused when it is a link. */
static int open_by_steps(int base_fd, const char *path, int flags, uint32_t mode)
{
	cleanup_fd int held = -1;
	int at = base_fd, fd;

	for (;;) {
		size_t length = strcspn(path, "/");
		char name[PATH_NAME_MAX_BYTES + 1];

		if (length > PATH_NAME_MAX_BYTES)
			return -ENAMETOOLONG;
		if (!path[length])
			break;
		memcpy(name, path, length);
		name[length] = '\0';
		fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return errno == ENOTDIR && is_link(at, name) ? -ELOOP : -errno;
		if (held >= 0)
			close(held);
		at = held = fd;
		path += length + 1;
	}
	fd = openat(at, path, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return errno == ENOTDIR && is_link(at, path) ? -ELOOP : -errno;
	return fd;
}

/* `path` is shorter than PATH_MAX and not "". */
static int open_piece(
	const struct local_workspace *w, int base_fd, const char *path, int flags, uint32_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	if (!w->has_openat2)
		return open_by_steps(base_fd, path, flags, mode);
	if ((flags & O_PATH) && !(flags & O_DIRECTORY))
		how.flags |= O_NOFOLLOW; /* the link itself */
	fd = syscall(SYS_openat2, base_fd, path, &how, sizeof(how));
	if (fd < 0)
		return errno == EXDEV ? -ENOENT : -errno; /* moved out of the root meanwhile */
	return (int)fd;
}

/* Bytes of the longest part of `path` that ends before a '/' and fits into PATH_MAX. */
static size_t piece_length(const char *path)
{
	const char *slash = memrchr(path, '/', PATH_MAX - 1);

	return slash ? (size_t)(slash - path) : 0;
}

int local_open_path(const struct local_workspace *w, const char *path, int flags, uint32_t mode)
{
	return local_open_below(w, w->root_fd, path, flags, mode);
}

int local_open_below(
	const struct local_workspace *w, int base_fd, const char *path, int flags, uint32_t mode)
{
	cleanup_fd int held = -1;
	int at = base_fd;

	if (!*path)
		path = ".";
	while (strnlen(path, PATH_MAX) == PATH_MAX) {
		char piece[PATH_MAX];
		size_t length = piece_length(path);
		int fd;

		if (!length)
			return -ENAMETOOLONG;
		memcpy(piece, path, length);
		piece[length] = '\0';
		fd = open_piece(w, at, piece, O_PATH | O_DIRECTORY, 0);
		if (fd < 0)
			return fd;
		if (held >= 0)
			close(held);
		at = held = fd;
		path += length + 1;
	}
	return open_piece(w, at, path, flags, mode);
}

int local_check_directory(int fd, const struct object_id *expected)
{
	struct attributes attributes;
	int r = expected->inode ? local_stat_fd(fd, &attributes) : 0;

	return expected->inode && r == 0 ? local_check_id(expected, &attributes) : r;
}

int local_parent_open(const struct local_workspace *w, const char *path,
	const struct object_id *expected, struct local_parent *ret_parent)
{
	size_t length = path_parent_length(path);
	cleanup_free char *parent = NULL;
	cleanup_fd int fd = -1;
	int r;

	*ret_parent =
		(struct local_parent){.fd = w->root_fd, .owned_fd = -1, .name = path_name(path)};
	if (!length)
		return 0;
	parent = strndup(path, length);
	if (!parent)
		return -ENOMEM;
	fd = local_open_path(w, parent, O_PATH | O_DIRECTORY, 0);
	if (expected->inode && path_misses_object(fd))
		return -ESTALE;
	if (fd < 0)
		return fd;
	r = local_check_directory(fd, expected);
	if (r == 0)
		ret_parent->fd = ret_parent->owned_fd = steal_fd(&fd);
	return r;
}

void local_parent_done(struct local_parent *parent)
{
	if (parent->owned_fd >= 0)
		close(parent->owned_fd);
}

int local_object_open(const struct local_workspace *w, const struct object_ref *object,
	struct local_object *ret_object)
{
	struct local_object result = {.owned_fd = -1};
	int r;

	if (object->file) {
		*ret_object = (struct local_object){
			.fd = local_file_from(object->file)->fd, .owned_fd = -1, .is_handle = true};
		return 0;
	}
	result.fd = result.owned_fd = local_open_path(w, object->path, O_PATH, 0);
	if (result.fd < 0)
		return result.fd;
	r = local_stat_fd(result.fd, &result.attributes);
	if (r == 0)
		r = local_check_id(&object->id, &result.attributes);
	if (r < 0) {
		local_object_done(&result);
		return r;
	}
	*ret_object = result;
	return 0;
}

void local_object_done(struct local_object *object)
{
	if (object->owned_fd >= 0)
		close(object->owned_fd);
	object->owned_fd = -1;
}

void local_tell_name(
	struct op_context *ctx, const struct local_parent *parent, const struct object_id *object)
{
	struct attributes found;
	int r;

	if (!ctx->facts)
		return;
	local_stat_fd(parent->fd, &ctx->facts->parent);
	r = local_stat_name(parent->fd, parent->name, &found);
	if (object ? r < 0 || !object_id_equal(object, &found.id) : r != -ENOENT)
		ctx->facts->parent = (struct attributes){0};
}

void local_tell_object(struct op_context *ctx, int fd)
{
	if (ctx->facts)
		local_stat_fd(fd, &ctx->facts->object);
}

/* One without a bound has no blocks. */
void local_tell_room(struct op_context *ctx, int fd)
{
	struct statvfs st;

	if (ctx->facts && fstatvfs(fd, &st) == 0)
		ctx->facts->little_room =
			st.f_blocks > 0 && st.f_bavail < LITTLE_ROOM_BYTES / st.f_frsize;
}

struct local_fd_path local_fd_path(int fd)
{
	struct local_fd_path path;

	snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
	return path;
}
