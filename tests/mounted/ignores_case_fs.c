/*
 * ignores_case_fs.c - a file system for tests, where names that differ in case only lead to one
 * file, which keeps the name that it was made with.
 *
 *     ignores_case_fs DIRECTORY MOUNT_POINT [fuse option...]
 *
 * It shows the directory.  As on other such file systems by FUSE, each name has an inode number of
 * its own.
 */
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static int root_fd;

/* Replaces the component by the name that it has in the directory `path`, if it has one. */
static void find_name(const char *path, char *component)
{
	int fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		if (strcasecmp(entry->d_name, component) == 0)
			strcpy(component, entry->d_name);
	if (directory)
		closedir(directory);
}

/* The path as it is in the directory: where a component is not there, as it was asked for. */
static const char *real_path(const char *path, char ret_path[PATH_MAX])
{
	char component[NAME_MAX + 1];

	strcpy(ret_path, ".");
	for (path++; *path; path += *path == '/') {
		size_t length = strcspn(path, "/"), end = strlen(ret_path);

		if (length > NAME_MAX || end + length + 2 > PATH_MAX)
			break;
		memcpy(component, path, length);
		component[length] = '\0';
		find_name(ret_path, component);
		ret_path[end] = '/';
		strcpy(ret_path + end + 1, component);
		path += length;
	}
	return ret_path;
}

static int result(ssize_t r)
{
	return r < 0 ? -errno : (int)r;
}

static int fs_getattr(const char *path, struct stat *ret_stat, struct fuse_file_info *fi)
{
	char real[PATH_MAX];

	(void)fi;
	return result(fstatat(root_fd, real_path(path, real), ret_stat, AT_SYMLINK_NOFOLLOW));
}

static int fs_readdir(const char *path, void *into, fuse_fill_dir_t fill, off_t offset,
	struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	char real[PATH_MAX];
	int fd = openat(root_fd, real_path(path, real), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	(void)offset, (void)fi, (void)flags;
	if (!directory)
		return -errno;
	while ((entry = readdir(directory)))
		fill(into, entry->d_name, NULL, 0, 0);
	closedir(directory);
	return 0;
}

static int open_file(const char *path, int flags, mode_t mode, struct fuse_file_info *fi)
{
	char real[PATH_MAX];
	int fd = openat(root_fd, real_path(path, real), flags | O_CLOEXEC, mode);

	fi->fh = (uint64_t)fd;
	return fd < 0 ? -errno : 0;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
	return open_file(path, fi->flags & ~(O_CREAT | O_EXCL), 0, fi);
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	return open_file(path, fi->flags | O_CREAT, mode, fi);
}

static int fs_read(
	const char *path, char *data, size_t size, off_t offset, struct fuse_file_info *fi)
{
	(void)path;
	return result(pread((int)fi->fh, data, size, offset));
}

static int fs_write(
	const char *path, const char *data, size_t size, off_t offset, struct fuse_file_info *fi)
{
	(void)path;
	return result(pwrite((int)fi->fh, data, size, offset));
}

static int fs_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	return result(close((int)fi->fh));
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	struct fuse_file_info own;
	int r = fi ? 0 : open_file(path, O_WRONLY, 0, &own);

	if (r == 0)
		r = result(ftruncate((int)(fi ? fi : &own)->fh, size));
	if (!fi && r == 0)
		close((int)own.fh);
	return r;
}

static int fs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
	char real[PATH_MAX];

	(void)fi;
	return result(utimensat(root_fd, real_path(path, real), times, AT_SYMLINK_NOFOLLOW));
}

static int fs_mkdir(const char *path, mode_t mode)
{
	char real[PATH_MAX];

	return result(mkdirat(root_fd, real_path(path, real), mode));
}

static int fs_unlink(const char *path)
{
	char real[PATH_MAX];

	return result(unlinkat(root_fd, real_path(path, real), 0));
}

static int fs_rmdir(const char *path)
{
	char real[PATH_MAX];

	return result(unlinkat(root_fd, real_path(path, real), AT_REMOVEDIR));
}

/* One that differs in case only, gets the new name. */
static int fs_rename(const char *from, const char *to, unsigned flags)
{
	char real_from[PATH_MAX], real_to[PATH_MAX];

	if (flags)
		return -EINVAL;
	real_path(from, real_from);
	if (strcmp(real_path(to, real_to), real_from) == 0)
		strcpy(strrchr(real_to, '/'), strrchr(to, '/'));
	return result(renameat(root_fd, real_from, root_fd, real_to));
}

static void *fs_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
	(void)connection;
	config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
	config->hard_remove = 1;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = fs_init,
	.getattr = fs_getattr,
	.readdir = fs_readdir,
	.open = fs_open,
	.create = fs_create,
	.read = fs_read,
	.write = fs_write,
	.release = fs_release,
	.truncate = fs_truncate,
	.utimens = fs_utimens,
	.mkdir = fs_mkdir,
	.unlink = fs_unlink,
	.rmdir = fs_rmdir,
	.rename = fs_rename,
};

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: %s DIRECTORY MOUNT_POINT [fuse option...]\n", argv[0]);
		return 2;
	}
	root_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0) {
		perror(argv[1]);
		return 1;
	}
	argv[1] = argv[0];
	return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
