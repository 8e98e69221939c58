#include "tools/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <magic.h>
#include <pwd.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <xxhash.h>

#include "ops/support/path.h"
#include "ops/support/utf8.h"

enum { LINKS_MAX = 16 };

int files_root_open(const char *directory, struct files_root *ret_root)
{
	cleanup_fd int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *path;

	if (fd < 0)
		return -errno;
	path = realpath(directory, NULL);
	if (!path)
		return -errno;
	*ret_root = (struct files_root){.fd = steal_fd(&fd), .path = path};
	return 0;
}

void files_root_close(struct files_root *root)
{
	if (root->fd >= 0)
		close(root->fd);
	free(root->path);
	*root = (struct files_root){.fd = -1};
}

/* ---- Names -------------------------------------------------------------- */

static const char *home_directory(void)
{
	const char *home = getenv("HOME");

	return home && *home == '/' ? home : NULL;
}

static const char *below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	if (strcmp(directory, "/") == 0)
		return path;
	if (strncmp(path, directory, length) != 0 || (path[length] && path[length] != '/'))
		return NULL;
	return path + length;
}

/* The part of an absolute path below the root, if the path reaches the root through a symbolic link
 * (/tmp/x for /private/tmp/x): one of its ancestors is then the root directory. */
static const char *below_by_identity(const char *path, const struct files_root *root)
{
	char prefix[PATH_MAX];
	struct stat wanted, got;

	if (fstat(root->fd, &wanted) < 0 || strlen(path) >= sizeof(prefix))
		return NULL;
	for (const char *end = path + 1; *end; end++) {
		end += strcspn(end, "/");
		memcpy(prefix, path, (size_t)(end - path));
		prefix[end - path] = '\0';
		if (stat(prefix, &got) < 0)
			return NULL;
		if (got.st_dev == wanted.st_dev && got.st_ino == wanted.st_ino)
			return end;
		if (!*end)
			break;
	}
	return NULL;
}

int files_resolve(const struct files_root *root, const char *given, char **ret_path)
{
	cleanup_free char *expanded = NULL, *normal = NULL;
	const char *rest;
	int r;

	if (strncmp(given, "file://", 7) == 0)
		given += 7;
	if (*given == '@' && given[1] && faccessat(root->fd, given, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		given++;
	if (*given == '~' && (given[1] == '/' || !given[1]) && home_directory()) {
		expanded = path_join(home_directory(), given + 1 + (given[1] == '/'));
		if (!expanded)
			return -ENOMEM;
		given = expanded;
	}
	if (*given == '/') {
		/* Normalise first, so that ROOT/../x does not count as inside. */
		r = path_normalise(given, &normal);
		if (r < 0)
			return r == -EINVAL ? -EXDEV : r;
		free(expanded);
		expanded = malloc(strlen(normal) + 2);
		if (!expanded)
			return -ENOMEM;
		expanded[0] = '/';
		strcpy(expanded + 1, normal);
		rest = below(expanded, root->path);
		if (!rest)
			rest = below_by_identity(expanded, root);
		if (!rest)
			return -EXDEV;
		given = rest;
	}
	r = path_normalise(given, ret_path);
	return r == -EINVAL ? -EXDEV : r;
}

static int open_in_root(int root_fd, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (unsigned)(flags | O_CLOEXEC) & 0xffffffffU,
		.mode = flags & (O_CREAT | __O_TMPFILE) ? mode : 0,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	for (;;) {
		long fd = syscall(SYS_openat2, root_fd, *path ? path : ".", &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		/* EAGAIN: a concurrent rename made the kernel give up the walk; retry. */
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
}

/* RESOLVE_IN_ROOT interprets an absolute link target as a path below the root.  This function
 * handles such a target as the system does: inside if it begins with the root's absolute path, else
 * outside. */
static int absolute_link_target(const struct files_root *root, const char *path, char **ret_path)
{
	char target[PATH_MAX];
	ssize_t length;
	cleanup_fd int fd = open_in_root(root->fd, path, O_PATH | O_NOFOLLOW, 0);

	if (fd < 0)
		return -ENOENT;
	length = readlinkat(fd, "", target, sizeof(target) - 1);
	if (length <= 0 || target[0] != '/')
		return -ENOENT;
	target[length] = '\0';
	return files_resolve(root, target, ret_path);
}

int files_open(const struct files_root *root, const char *path, int flags, mode_t mode)
{
	cleanup_free char *current = NULL;
	int fd = open_in_root(root->fd, path, flags, mode);

	for (int i = 0; fd == -ENOENT && !(flags & O_NOFOLLOW) && i < LINKS_MAX; i++) {
		cleanup_free char *next = NULL;
		int r = absolute_link_target(root, current ? current : path, &next);

		if (r == -EXDEV)
			return -EXDEV;
		if (r < 0)
			return -ENOENT;
		free(current);
		current = steal_ptr(&next);
		fd = open_in_root(root->fd, current, flags, mode);
	}
	return fd;
}

int files_stat(const struct files_root *root, const char *path, struct stat *ret_stat)
{
	cleanup_fd int fd = files_open(root, path, O_PATH, 0);

	if (fd < 0)
		return fd;
	return fstat(fd, ret_stat) < 0 ? -errno : 0;
}

int files_lstat(const struct files_root *root, const char *path, struct stat *ret_stat)
{
	cleanup_fd int fd = files_open(root, path, O_PATH | O_NOFOLLOW, 0);

	if (fd < 0)
		return fd;
	return fstat(fd, ret_stat) < 0 ? -errno : 0;
}

static int open_or_make(int directory, const char *name, bool make)
{
	int fd = open_in_root(directory, name, O_RDONLY | O_DIRECTORY, 0);

	if (fd != -ENOENT || !make)
		return fd;
	if (mkdirat(directory, name, 0777) < 0 && errno != EEXIST)
		return -errno;
	return open_in_root(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
}

/* Opens the directory of `path`; with `make`, creates the missing ones one by one. */
static int open_directory(const struct files_root *root, const char *path, bool make)
{
	cleanup_free char *parent = NULL;
	cleanup_fd int above = -1;
	int fd = files_open(root, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd != -ENOENT || !make || !*path)
		return fd;
	parent = strndup(path, path_parent_length(path));
	if (!parent)
		return -ENOMEM;
	above = open_directory(root, parent, make);
	if (above < 0)
		return above;
	return open_or_make(above, path_name(path), make);
}

int files_open_parent(const struct files_root *root, const char *path, bool make, char name[256])
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));

	if (!parent)
		return -ENOMEM;
	if (!*path)
		return -EISDIR;
	if (strlen(path_name(path)) > PATH_NAME_MAX_BYTES)
		return -ENAMETOOLONG;
	strcpy(name, path_name(path));
	return open_directory(root, parent, make);
}

int files_note_directories(const struct files_root *root, const char *path, size_t *ret_length)
{
	cleanup_free char *above = strndup(path, path_parent_length(path));
	struct stat status;
	int r;

	if (!above)
		return -ENOMEM;
	while ((r = files_stat(root, above, &status)) == -ENOENT && *above)
		above[path_parent_length(above)] = '\0';
	*ret_length = strlen(above);
	return r;
}

void files_remove_made_directories(const struct files_root *root, const char *path, size_t kept)
{
	cleanup_free char *above = strndup(path, path_parent_length(path));

	while (above && strlen(above) > kept) {
		char name[256];
		cleanup_fd int directory = files_open_parent(root, above, false, name);

		/* Fails if another process has put something into the directory. */
		if (directory < 0 || unlinkat(directory, name, AT_REMOVEDIR) < 0)
			return;
		above[path_parent_length(above)] = '\0';
	}
}

int files_real_path(const struct files_root *root, const char *path, char **ret_path)
{
	char link[64], target[PATH_MAX];
	const char *rest;
	ssize_t length;
	cleanup_fd int fd = files_open(root, path, O_PATH, 0);

	if (fd < 0)
		return fd;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, target, sizeof(target) - 1);
	if (length < 0)
		return -errno;
	target[length] = '\0';
	rest = below(target, root->path);
	return rest ? path_normalise(rest, ret_path) : -EXDEV;
}

/* The target of the link at `path`, as a path below the root.  0; -ENOENT: no link, or outside. */
static int link_target(const struct files_root *root, const char *path, char **ret_target)
{
	cleanup_fd int fd = files_open(root, path, O_PATH | O_NOFOLLOW, 0);
	cleanup_free char *parent = strndup(path, path_parent_length(path)), *joined = NULL;
	char target[PATH_MAX];
	ssize_t length = fd < 0 ? -1 : readlinkat(fd, "", target, sizeof(target) - 1);
	int r;

	if (!parent)
		return -ENOMEM;
	if (length <= 0)
		return -ENOENT;
	target[length] = '\0';
	if (target[0] != '/') {
		joined = path_join(parent, target);
		if (!joined)
			return -ENOMEM;
	}
	r = files_resolve(root, joined ? joined : target, ret_target);
	return r == 0 || r == -ENOMEM ? r : -ENOENT;
}

static int path_led_to(
	const struct files_root *root, const char *path, bool follow, int links, char **ret_path)
{
	size_t length = follow ? strlen(path) : path_parent_length(path);

	for (;;) {
		cleanup_free char *above = strndup(path, length), *real = NULL, *target = NULL;
		const char *rest = path + length + (path[length] == '/');
		int r = above ? files_real_path(root, above, &real) : -ENOMEM;

		if (r == 0) {
			*ret_path = path_join(real, rest);
			return *ret_path ? 0 : -ENOMEM;
		}
		if (r != -ENOENT)
			return r == -ENOMEM ? r : -ENOENT;
		r = links < LINKS_MAX ? link_target(root, above, &target) : -ENOENT;
		if (r == 0) {
			cleanup_free char *whole = path_join(target, rest);

			return whole ? path_led_to(root, whole, true, links + 1, ret_path)
				     : -ENOMEM;
		}
		if (r == -ENOMEM || !length)
			return r;
		length = path_parent_length(above);
	}
}

int files_path_led_to(const struct files_root *root, const char *path, bool follow, char **ret_path)
{
	return path_led_to(root, path, follow, 0, ret_path);
}

/* ---- Content -------------------------------------------------------------- */

int files_read(const struct files_root *root, const char *path, size_t limit_bytes,
	struct buffer *content, struct stat *ret_stat)
{
	/* O_NONBLOCK: the open must not wait if it is a named pipe. */
	cleanup_fd int fd = files_open(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	struct stat status;

	if (fd < 0)
		return fd;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return S_ISDIR(status.st_mode) ? -EISDIR : -ESPIPE;
	if ((uint64_t)status.st_size > limit_bytes)
		return -EFBIG;
	for (size_t want = (size_t)status.st_size + 1;; want = 65536) {
		ssize_t got;

		if (content->size > limit_bytes)
			return -EFBIG;
		if (buffer_reserve(content, want) < 0)
			return -ENOMEM;
		got = read(fd, content->data + content->size, want);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		content->size += (size_t)got;
	}
	if (ret_stat)
		*ret_stat = status;
	return 0;
}

void files_hash(const void *content, size_t size, char hash[33])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(content, size));
	for (size_t i = 0; i < sizeof(canonical.digest); i++)
		snprintf(hash + 2 * i, 3, "%02x", canonical.digest[i]);
}

static char *ask_magic(int flags, const void *content, size_t size)
{
	magic_t magic = magic_open(flags);
	const char *type = NULL;
	char *copy = NULL;

	if (!magic)
		return NULL;
	if (magic_load(magic, NULL) == 0)
		type = magic_buffer(magic, content, size);
	if (type)
		copy = strdup(type);
	magic_close(magic);
	return copy;
}

char *files_mime_type(const void *content, size_t size)
{
	return ask_magic(MAGIC_MIME_TYPE, content, size);
}

char *files_encoding(const void *content, size_t size)
{
	return ask_magic(MAGIC_MIME_ENCODING, content, size);
}

int files_lock_fd(int fd, bool (*interrupted)(void *user), void *user)
{
	static const struct timespec pause = {.tv_nsec = 10000000};

	for (int i = 0; i < 1000; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (interrupted && interrupted(user))
			return -EINTR;
		nanosleep(&pause, NULL);
	}
	return -ETIMEDOUT;
}

int files_lock(const struct files_root *root, const char *path, bool (*interrupted)(void *user),
	void *user)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	cleanup_fd int fd = -1;
	int r;

	if (!parent)
		return -ENOMEM;
	/* A directory that does not exist yet cannot be locked: lock the deepest existing one. */
	while ((fd = files_open(root, parent, O_RDONLY | O_DIRECTORY, 0)) == -ENOENT && *parent)
		parent[path_parent_length(parent)] = '\0';
	if (fd < 0)
		return fd;
	r = files_lock_fd(fd, interrupted, user);
	return r < 0 ? r : steal_fd(&fd);
}
