/* The writing functions of tools/base/files.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#include "ops/support/files.h"
#include "ops/support/path.h"
#include "ops/support/rename.h"
#include "tools/base/files.h"

enum { XATTR_MAX_BYTES = 65536, BACKUPS_MAX = 1000, COPY_BYTES = 64 << 20 };

/* Writes from offset 0; a read may have moved the file's offset. */
static int write_from_start(int fd, const void *content, size_t size)
{
	return lseek(fd, 0, SEEK_SET) < 0 ? -errno : write_all(fd, content, size);
}

/* ---- The temporary file and its guardian -------------------------------------
 * The guardian is a child process with one end of a socket pair.  A byte on it says that the
 * temporary name is gone (renamed or removed).  End of file without that byte means that the parent
 * was killed: the guardian removes the file. */

struct temporary {
	int directory; /* borrowed */
	char name[64];
	int fd;
	int guardian_socket;
	pid_t guardian;
};

static void close_all_but(int a, int b)
{
	unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);

	if (low > 0)
		close_range(0, low - 1, 0);
	if (high > low + 1)
		close_range(low + 1, high - 1, 0);
	close_range(high + 1, ~0U, 0);
}

/* The guardian's code.  It may use async-signal-safe functions only: at the fork, other threads of
 * the parent may have held locks. */
static void guard(int socket, int directory, const char *name)
{
	char byte;
	ssize_t got;

	setsid();
	close_all_but(socket, directory);
	do
		got = read(socket, &byte, 1);
	while (got < 0 && errno == EINTR);
	if (got == 0)
		unlinkat(directory, name, 0);
	_exit(0);
}

static int start_guardian(struct temporary *t)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		int r = -errno;

		close(ends[0]);
		close(ends[1]);
		return r;
	}
	if (pid == 0)
		guard(ends[0], t->directory, t->name);
	close(ends[0]);
	t->guardian_socket = ends[1];
	t->guardian = pid;
	return 0;
}

static void dismiss_guardian(struct temporary *t)
{
	if (t->guardian_socket < 0)
		return;
	/* A failure is harmless: the guardian then tries to remove a name that is gone. */
	(void)!send(t->guardian_socket, "", 1, MSG_NOSIGNAL);
	close(t->guardian_socket);
	while (waitpid(t->guardian, NULL, 0) < 0 && errno == EINTR)
		;
	t->guardian_socket = -1;
}

static void temporary_done(struct temporary *t)
{
	if (t->fd >= 0) {
		close(t->fd);
		t->fd = -1;
		if (t->name[0])
			unlinkat(t->directory, t->name, 0);
	}
	dismiss_guardian(t);
}

#define cleanup_temporary cleanup_with(temporary_done)

static int temporary_make(struct temporary *t, int directory, mode_t mode)
{
	uint64_t random;
	int r;

	t->directory = directory;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(t->name, sizeof(t->name), ".isthmus-%016llx.tmp", (unsigned long long)random);
	r = start_guardian(t);
	if (r < 0)
		return r;
	t->fd = openat(
		directory, t->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	return t->fd < 0 ? -errno : 0;
}

static int temporary_rename(struct temporary *t, const char *name, bool must_create)
{
	int r = 0;

	if (must_create)
		r = rename_to_free_name(t->directory, t->name, name);
	else if (renameat(t->directory, t->name, t->directory, name) < 0)
		r = -errno;
	if (r == 0)
		t->name[0] = '\0';
	return r;
}

/* ---- Attributes that a replacement keeps -------------------------------------- */

static int copy_xattrs(int from, int to)
{
	cleanup_free char *names = malloc(XATTR_MAX_BYTES), *value = malloc(XATTR_MAX_BYTES);
	ssize_t size;

	if (!names || !value)
		return -ENOMEM;
	size = flistxattr(from, names, XATTR_MAX_BYTES);
	if (size < 0)
		return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
	for (const char *name = names; name < names + size; name += strlen(name) + 1) {
		ssize_t length = fgetxattr(from, name, value, XATTR_MAX_BYTES);

		/* Ignore attributes that this user may not read or set (security.*). */
		if (length < 0 || fsetxattr(to, name, value, (size_t)length, 0) == 0)
			continue;
		if (errno == ENOSPC || errno == EDQUOT || errno == EIO)
			return -errno;
	}
	return 0;
}

/* Copies mode, owner and attributes.  -EPERM: this user cannot set the owner. */
static int copy_metadata(int from, int to, const struct stat *status)
{
	struct stat made;

	if (fstat(to, &made) < 0)
		return -errno;
	if ((made.st_uid != status->st_uid || made.st_gid != status->st_gid) &&
		fchown(to, status->st_uid, status->st_gid) < 0)
		return -EPERM;
	if (fchmod(to, status->st_mode & 07777) < 0)
		return -errno;
	return copy_xattrs(from, to);
}

static bool same_version(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* ---- The two ways to write ------------------------------------------------------ */

struct target {
	int directory;
	char name[256];
	int fd; /* the existing file, or -1 */
	struct stat status;
	const struct stat *expected;
};

/* Until target->fd is closed; that of a file which is at the path no longer keeps nobody out, but
 * then it is not the expected one. */
static int lock_and_check(const struct target *target)
{
	struct stat now;
	int r = target->fd < 0 ? 0 : files_lock_fd(target->fd, NULL, NULL);

	/* There may be no locks, or none for who opened it only to read (NFS); and a program that
	 * keeps its own file locked for so long is no other edit. */
	if (r < 0 && r != -EOPNOTSUPP && r != -ENOSYS && r != -ENOLCK && r != -EBADF &&
		r != -EINVAL && r != -ETIMEDOUT)
		return r;
	if (!target->expected)
		return 0;
	if (fstatat(target->directory, target->name, &now, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return same_version(&now, target->expected) ? 0 : -ESTALE;
}

static int write_beside(struct target *target, const void *content, size_t size, bool must_create)
{
	struct temporary t cleanup_temporary = {.fd = -1, .guardian_socket = -1};
	int r;

	r = temporary_make(&t, target->directory, target->fd < 0 ? 0666 : 0600);
	if (r < 0)
		return r;
	r = write_from_start(t.fd, content, size);
	if (r == 0 && target->fd >= 0)
		r = copy_metadata(target->fd, t.fd, &target->status);
	if (r == 0 && fsync(t.fd) < 0)
		r = -errno;
	if (r == 0)
		r = lock_and_check(target);
	if (r == 0)
		r = temporary_rename(&t, target->name, must_create);
	return r;
}

static int put_back(int fd, const struct buffer *old)
{
	int r = write_from_start(fd, old->data, old->size);

	if (r == 0 && ftruncate(fd, (off_t)old->size) < 0)
		r = -errno;
	return r;
}

static int overwrite(int fd, const void *content, size_t size, const struct buffer *old)
{
	int r = write_from_start(fd, content, size);

	if (r == 0 && ftruncate(fd, (off_t)size) < 0)
		r = -errno;
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r < 0)
		put_back(fd, old);
	return r;
}

/* Overwrites the file in a child process with its own session, which continues if the parent is
 * killed.  The child uses system calls only, as other threads may have held locks at the fork.  It
 * inherits the lock of the directory and keeps it until it ends. */
static int overwrite_in_child(int fd, const void *content, size_t size, const struct buffer *old)
{
	int ends[2], r = -EIO;
	ssize_t got;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		setsid();
		close_range(0, 2, 0);
		r = overwrite(fd, content, size, old);
		(void)!write(ends[1], &r, sizeof(r));
		_exit(0);
	}
	if (pid < 0)
		r = -errno;
	close(ends[1]);
	if (pid > 0) {
		do
			got = read(ends[0], &r, sizeof(r));
		while (got < 0 && errno == EINTR);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		/* The child was killed. */
		if (got != sizeof(r))
			r = put_back(fd, old) < 0 ? -EIO : -EINTR;
	}
	close(ends[0]);
	return r;
}

/* Overwrites a file that has several links, or an owner that this user cannot restore. */
static int write_in_place(struct target *target, const void *content, size_t size)
{
	struct buffer old cleanup_buffer = {0};
	char link[64];
	cleanup_fd int fd = -1;
	int r;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", target->fd);
	fd = open(link, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (buffer_reserve(&old, (size_t)target->status.st_size + 1) < 0)
		return -ENOMEM;
	while (old.size < (size_t)target->status.st_size) {
		ssize_t got = pread(fd, old.data + old.size,
			(size_t)target->status.st_size - old.size, (off_t)old.size);

		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		old.size += (size_t)got;
	}
	r = lock_and_check(target);
	if (r < 0)
		return r;
	/* Reserve the space first, so that a full disk cannot leave half of the content. */
	if (size > old.size && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size) < 0 &&
		errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	return overwrite_in_child(fd, content, size, &old);
}

/* Opens the directory of a file that does not exist, also through a link that leads nowhere. */
static int open_place(
	const struct files_root *root, const char *path, unsigned flags, struct target *target)
{
	cleanup_free char *real = NULL;
	struct stat link;
	int r;

	if (flags & FILES_MUST_REPLACE)
		return -ENOENT;
	if (files_lstat(root, path, &link) == 0 && S_ISLNK(link.st_mode)) {
		if (flags & FILES_MUST_CREATE)
			return -EEXIST;
		r = files_path_led_to(root, path, true, &real);
		if (r < 0)
			return r;
		path = real;
	}
	target->directory = files_open_parent(root, path, true, target->name);
	return target->directory < 0 ? target->directory : 0;
}

static int open_target(
	const struct files_root *root, const char *path, unsigned flags, struct target *target)
{
	cleanup_free char *real = NULL;
	int r;

	target->fd = files_open(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (target->fd == -ENOENT)
		return open_place(root, path, flags, target);
	if (target->fd < 0)
		return target->fd;
	if (fstat(target->fd, &target->status) < 0)
		return -errno;
	if (S_ISDIR(target->status.st_mode))
		return -EISDIR;
	if (flags & FILES_MUST_CREATE)
		return -EEXIST;
	if (!S_ISREG(target->status.st_mode))
		return -ESPIPE;
	r = files_real_path(root, path, &real);
	if (r < 0)
		return r;
	target->directory = files_open_parent(root, real, false, target->name);
	return target->directory < 0 ? target->directory : 0;
}

/* 0, -EACCES, -EROFS.  The owner's bit does not count for root, but it may for the account at the
 * far end: that is known after an open only. */
static int check_writable(int fd, const struct stat *status)
{
	char link[64];
	cleanup_fd int writing = -1;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (faccessat(AT_FDCWD, link, W_OK, AT_EACCESS) < 0)
		return -errno;
	if (status->st_mode & S_IWUSR)
		return 0;
	writing = open(link, O_WRONLY | O_CLOEXEC);
	return writing < 0 ? -errno : 0;
}

int files_write(const struct files_root *root, const char *path, const void *content, size_t size,
	unsigned flags, const struct stat *expected)
{
	struct target target = {.directory = -1, .fd = -1, .expected = expected};
	int r = open_target(root, path, flags, &target);
	bool exists = target.fd >= 0;

	if (r == 0 && exists)
		r = check_writable(target.fd, &target.status);
	if (r == 0 && !exists && expected)
		r = -ESTALE;
	if (r == 0 && exists && target.status.st_nlink > 1) {
		r = write_in_place(&target, content, size);
	} else if (r == 0) {
		r = write_beside(&target, content, size, !exists);
		if (exists && (r == -EPERM || r == -EACCES))
			r = write_in_place(&target, content, size);
	}
	if (target.fd >= 0)
		close(target.fd);
	if (target.directory >= 0)
		close(target.directory);
	return r;
}

/* ---- Backups ---------------------------------------------------------------------- */

static int backup_name(const struct files_root *root, const char *path, char **ret_name)
{
	struct stat status;

	for (int i = 0; i < BACKUPS_MAX; i++) {
		cleanup_free char *name = NULL;
		int r = i ? asprintf(&name, "%s.bak.%d", path, i) : asprintf(&name, "%s.bak", path);

		if (r < 0)
			return -ENOMEM;
		r = files_lstat(root, name, &status);
		if (r == -ENOENT) {
			*ret_name = steal_ptr(&name);
			return 0;
		}
		if (r < 0)
			return r;
	}
	return -EEXIST;
}

/* Where the far end can copy, nothing comes over the link. */
static int copy_content(int from, int to)
{
	ssize_t got;

	do
		got = copy_file_range(from, NULL, to, NULL, COPY_BYTES, 0);
	while (got > 0 || (got < 0 && errno == EINTR));
	if (got < 0 && errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	/* The rest, and what says that it is empty (procfs). */
	do
		got = sendfile(to, from, NULL, COPY_BYTES);
	while (got > 0 || (got < 0 && errno == EINTR));
	return got < 0 ? -errno : 0;
}

static int fill_backup(int from, const struct stat *status, int to)
{
	const struct timespec times[2] = {status->st_atim, status->st_mtim};
	int r = copy_content(from, to);

	if (r < 0)
		return r;
	if (fchmod(to, status->st_mode & 07777) < 0 || fsync(to) < 0 || futimens(to, times) < 0)
		return -errno;
	return 0;
}

static int backup_from(const struct files_root *root, const char *real, int from, char **ret_backup)
{
	cleanup_free char *name = NULL;
	cleanup_fd int directory = -1;
	struct temporary t cleanup_temporary = {.fd = -1, .guardian_socket = -1}; /* is in it */
	struct stat status;
	char leaf[256];
	int r;

	if (fstat(from, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return S_ISDIR(status.st_mode) ? -EISDIR : -ESPIPE;
	directory = files_open_parent(root, real, false, leaf);
	if (directory < 0)
		return directory;
	r = temporary_make(&t, directory, 0600);
	if (r == 0)
		r = fill_backup(from, &status, t.fd);
	if (r < 0)
		return r;
	do { /* Another process may take the free name first. */
		free(steal_ptr(&name));
		r = backup_name(root, real, &name);
		if (r == 0)
			r = temporary_rename(&t, path_name(name), true);
	} while (r == -EEXIST);
	if (r == 0)
		*ret_backup = steal_ptr(&name);
	return r;
}

int files_backup(const struct files_root *root, const char *path, char **ret_backup)
{
	cleanup_free char *real = NULL;
	cleanup_fd int from = -1;
	int r = files_real_path(root, path, &real);

	if (r < 0)
		return r;
	from = files_open(root, real, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	return from < 0 ? from : backup_from(root, real, from, ret_backup);
}

/* Asks the file system rather than the kernel's cache, which a lost answer leaves as it was. */
static bool is_untouched(const struct files_root *root, const char *path, const struct stat *before)
{
	cleanup_fd int fd = files_open(root, path, O_PATH, 0);
	struct statx now;

	return fd >= 0 &&
	       statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &now) == 0 &&
	       now.stx_ino == before->st_ino && now.stx_nlink == before->st_nlink &&
	       now.stx_size == (uint64_t)before->st_size &&
	       now.stx_mtime.tv_sec == before->st_mtim.tv_sec &&
	       now.stx_mtime.tv_nsec == before->st_mtim.tv_nsec;
}

bool files_backup_undo(const struct files_root *root, const char *path, const struct stat *before,
	const char *backup)
{
	char name[256];
	cleanup_fd int directory = -1;

	if (!is_untouched(root, path, before))
		return false;
	directory = files_open_parent(root, backup, false, name);
	return directory >= 0 && unlinkat(directory, name, 0) == 0;
}
