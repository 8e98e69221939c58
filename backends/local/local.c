#include "backends/local/local.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/local/local_internal.h"
#include "backends/local/file_system.h"
#include "backends/local/watch.h"

enum { RESERVE_MAX = 256 }; /* descriptors */

void local_free(struct workspace *workspace)
{
	struct local_workspace *w = local_from(workspace);

	watcher_free(w->watcher);
	local_locks_free(w->locks);
	if (w->root_fd >= 0)
		close(w->root_fd);
	free(w->root_path);
	free(w);
}

void local_status(struct workspace *workspace, struct workspace_status *ret_status)
{
	const struct local_workspace *w = local_from(workspace);

	*ret_status = (struct workspace_status){
		.capabilities = WORKSPACE_CAN_EXEC | WORKSPACE_CAN_WATCH | WORKSPACE_CAN_STREAM |
				WORKSPACE_CAN_CHECK | WORKSPACE_CAN_SEARCH |
				WORKSPACE_CAN_READ_FIRST |
				(w->ignores_case ? WORKSPACE_IGNORES_CASE : 0),
		.link = LINK_ONLINE,
		.owner_uid = w->owner_uid,
		.owner_gid = w->owner_gid,
	};
	if (w->watcher)
		watcher_counts(w->watcher, &ret_status->watched_directories,
			&ret_status->unwatched_directories);
}

static const struct workspace_ops local_ops = {
	.name = "local",
	.free = local_free,
	.status = local_status,
	.getattr = local_getattr,
	.readdir = local_readdir,
	.readlink = local_readlink,
	.mkdir = local_mkdir,
	.mknod = local_mknod,
	.symlink = local_symlink,
	.link = local_link,
	.unlink = local_unlink,
	.rmdir = local_rmdir,
	.rename = local_rename,
	.setattr = local_setattr,
	.getxattr = local_getxattr,
	.listxattr = local_listxattr,
	.setxattr = local_setxattr,
	.removexattr = local_removexattr,
	.statfs = local_statfs,
	.check = local_check,
	.open_file = local_open_file,
	.create = local_create,
	.create_unnamed = local_create_unnamed,
	.read = local_read,
	.write = local_write,
	.fsync = local_fsync,
	.close = local_close,
	.fallocate = local_fallocate,
	.descriptor = local_descriptor,
	.seek = local_seek,
	.copy_range = local_copy_range,
	.lock = local_lock,
	.lock_test = local_lock_test,
	.lock_release_owner = local_lock_release_owner,
	.exec = local_exec,
	.process_next = local_process_next,
	.process_write = local_process_write,
	.process_close_stdin = local_process_close_stdin,
	.process_signal = local_process_signal,
	.process_resize = local_process_resize,
	.process_free = local_process_free,
	.watch = local_watch,
	.watch_directory = local_watch_directory,
	.unwatch = local_unwatch,
};

struct local_workspace *local_from(struct workspace *w)
{
	assert(w->ops == &local_ops);
	return (struct local_workspace *)w;
}

struct local_file *local_file_from(struct open_file *file)
{
	assert(file->workspace->ops == &local_ops);
	return (struct local_file *)file;
}

/* Old kernels say ENOSYS, some containers' filters EPERM. */
static bool probe_openat2(int root_fd)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
	long fd = syscall(SYS_openat2, root_fd, ".", &how, sizeof(how));

	if (fd >= 0)
		close((int)fd);
	return fd >= 0;
}

int local_open_root(const char *path)
{
	cleanup_fd int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	/* O_PATH alone does not check access to the directory. */
	if (fd < 0 || faccessat(fd, ".", F_OK, AT_EACCESS) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* Allocated; NULL: not known (without /proc, for example). */
static char *path_of_descriptor(int fd)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return realpath(link, NULL);
}

int local_check(struct op_context *ctx, struct workspace *workspace)
{
	const struct local_workspace *w = local_from(workspace);
	struct stat root, there;

	(void)ctx;
	if (fstat(w->root_fd, &root) < 0)
		return -errno;
	if (root.st_nlink == 0)
		return -ENOENT;
	if (!w->root_path)
		return 0;
	if (stat(w->root_path, &there) < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ESTALE : 0;
	return there.st_dev == root.st_dev && there.st_ino == root.st_ino ? 0 : -ESTALE;
}

/* Calls that need a descriptor for a moment (to stat, remove, lock, ...) go on when as many files
 * are open as may be: the one program that opens them is to see EMFILE, not every other. */
static unsigned open_files_max(void)
{
	struct rlimit limit;
	rlim_t reserve;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > UINT_MAX)
		return UINT_MAX;
	reserve = limit.rlim_cur / 4;
	return (unsigned)(limit.rlim_cur - (reserve < RESERVE_MAX ? reserve : RESERVE_MAX));
}

int local_workspace_new(
	int root_fd, const struct local_options *options, struct workspace **ret_workspace)
{
	struct local_workspace *w;
	struct attributes root;
	int r;

	r = local_stat_fd(root_fd, &root);
	if (r < 0)
		return r;
	if (!S_ISDIR(root.mode))
		return -ENOTDIR;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->base.ops = &local_ops;
	w->root_fd = -1;
	w->owner_uid = root.uid;
	w->owner_gid = root.gid;
	w->open_files_max = open_files_max();
	w->has_openat2 = !(options && options->no_openat2) && probe_openat2(root_fd);
	local_identity_init(w);
	r = local_locks_new(&w->locks);
	if (r < 0) {
		local_free(&w->base);
		return r;
	}
	w->root_fd = root_fd;
	w->ignores_case = file_system_ignores_case(root_fd);
	w->root_path = path_of_descriptor(root_fd);
	*ret_workspace = &w->base;
	return 0;
}

static void explain(char **ret_reason, const char *directory, int error)
{
	const char *remedy = error == -ENOENT ? "; create it first"
			     : error == -EACCES
				     ? "; it must be readable and searchable for the mounting user"
			     : error == -ENOTDIR ? "; if it is a file, name its directory"
						 : "";

	if (asprintf(ret_reason, "cannot open the directory \"%s\": %s%s", directory,
		    strerror(-error), remedy) < 0)
		*ret_reason = NULL;
}

static int refuse(char **ret_reason, const char *text, const char *what)
{
	if (asprintf(ret_reason, "\"%s\" %s", what, text) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}

static int local_open(const struct scheme *scheme, const char *rest,
	const struct workspace_options *options, struct workspace **ret_workspace,
	char **ret_reason)
{
	cleanup_fd int root_fd = -1;
	int r;

	(void)scheme;
	(void)options;
	if (rest[0] != '/')
		return refuse(
			ret_reason, "is not an absolute path; write the URI as local:/dir", rest);
	root_fd = local_open_root(rest);
	r = root_fd < 0 ? root_fd : local_workspace_new(root_fd, NULL, ret_workspace);
	if (r < 0) {
		explain(ret_reason, rest, r);
		return r;
	}
	steal_fd(&root_fd);
	return 0;
}

const struct scheme local_scheme = {
	.about = {.name = "local", .form = "local:/dir", .summary = "a directory of this machine"},
	.open = local_open,
};
