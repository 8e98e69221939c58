/*
 * ops/workspace.h - what a workspace provides: the contract of backends and their callers.
 *
 * A workspace is one tree of files and, where it can, processes beside them.
 * Backends (local, mem, remote) and decorators (cached, policy, faulty: each a
 * workspace that holds a workspace) implement these operations: each is a slot of
 * `struct workspace_ops` (ops/workspace_ops.h) with the parameters, the meaning and the
 * errors of the function below.  "Required": the slot is never NULL.  "Optional": NULL
 * means what the comment says.
 * Callers use the functions, which check what every implementation may rely on (normal
 * paths, names below the root for changes, sane offsets: -EINVAL, -ENAMETOOLONG, -EBUSY
 * for the root) and apply the defaults.
 *
 * Paths:   relative to the workspace's root, normalised (ops/support/path.h),
 *          bytes, never NULL; "" is the root.  They may be longer than PATH_MAX:
 *          a backend walks them in pieces.
 * Errors:  0 or a count on success, else -errno from the list beside the
 *          operation or from this common list: -EACCES, -EPERM (refused there),
 *          -EINVAL, -EIO, -EINTR (interrupted() said so), -ENOMEM, -EMFILE, -ENFILE,
 *          -ENOTCONN (out of reach, and will not come back by itself),
 *          -ESTALE (see Identity), -EOPNOTSUPP (not possible there).
 *          -ENOSYS is a bug.  Path operations add -ENOENT, -ENOTDIR, -ELOOP,
 *          -ENAMETOOLONG; changing ones add -EROFS, -ENOSPC, -EDQUOT.
 *          ret_ parameters are written only on success.
 * Threads: any thread may call any operation at any time; a workspace guards its
 *          own state.  Calls are synchronous.
 * Links:   a path's last component is never followed, and no component before it
 *          may be a symbolic link (-ELOOP): the kernel above resolves links.
 * Identity: an operation on an existing object takes an object_ref.  When its id is
 *          set and the path leads to another object, the call answers -ESTALE and
 *          changes nothing; likewise when `parent` is set and another directory is now
 *          at that path.
 * Positions: numbers of one counter of the workspace, which never goes back
 *          (ops/support/position.h).
 *          One is drawn right before each look at the workspace; after a change by the caller,
 *          between that change and the look at its outcome.  So of two statements about the
 *          same name or object the one with the higher position counts, in whichever order
 *          they arrive.  0: unknown.
 * Semantics are those of the Linux system call of the same name (man section 2),
 * unless the operation's comment says otherwise.
 */
#pragma once

#include "ops/workspace_values.h"

struct exec_event; /* ops/support/exec.h */
struct exec_request;
struct process;
struct workspace;

/* Required.  Frees the workspace (NULL is fine).  No handle or process is open any more and no call
 * under way; the change sink is not called after it returns. */
void workspace_free(struct workspace *w);

/* Required.  Never waits for a far end.  Cannot fail. */
void workspace_status(struct workspace *w, struct workspace_status *ret_status);

/* Required.  Attributes of the object. */
int workspace_getattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	struct attributes *ret_attributes);

/* Required.  All entries of a directory with full attributes, without "." and "..", in any order.
 * An entry that vanishes meanwhile is left out.  With `watch`, the directory is watched before it
 * is read; `*ret_since`: a look at this position or later stays valid until a change is reported
 * (the position of the listing is not below it, and a later end of the watch is above that); 0: it
 * is not watched. */
int workspace_readdir(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since);

/* Optional (NULL: walks with readdir, readlink, open and read).  A subtree, parents before
 * children, breadth first.  What cannot be read is left out and its directory is not `complete`;
 * likewise a directory that is below itself. */
int workspace_scan(struct op_context *ctx, struct workspace *w, const struct object_ref *directory,
	const struct scan_request *request, dir_entry_sink sink, void *user);

/* Required.  Target of a symbolic link; the caller frees `*ret_target`.
 * -EINVAL: not a link. */
int workspace_readlink(struct op_context *ctx, struct workspace *w, const struct object_ref *link,
	char **ret_target);

/* Optional as a group (all NULL: the workspace is read-only, -EROFS).  `mode`
 * loses the bits of ctx->umask, unless the directory has a default access control list
 * (acl(5)), which then decides.  New objects belong to ctx->uid and ctx->gid (or the
 * group of a set-group-ID parent) where the workspace has the right to do that.  -EEXIST;
 * unlink: -EISDIR; rmdir: -ENOTEMPTY, -ENOTDIR, -EBUSY; link: -EMLINK, -EXDEV; rename:
 * those of unlink and rmdir. unlink, rmdir and rename check `expected` (inode 0: no check)
 * for what they remove or move: -ESTALE. */
int workspace_mkdir(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	struct attributes *ret_attributes);
int workspace_mknod(struct op_context *ctx, struct workspace *w, const char *path, uint32_t mode,
	uint64_t rdev, struct attributes *ret_attributes);
int workspace_symlink(struct op_context *ctx, struct workspace *w, const char *target,
	const char *path, struct attributes *ret_attributes);
int workspace_link(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *path, struct attributes *ret_attributes);
int workspace_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected);
int workspace_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected);
int workspace_rename(struct op_context *ctx, struct workspace *w, const char *from, const char *to,
	unsigned flags, const struct object_id *expected);

/* Optional (NULL: -EROFS).  Sets what `mask` (enum setattr_mask) names, all or, as far
 * as can be told beforehand, nothing.  -EFBIG, -EISDIR (size of a
 * directory).  SET_SIZE through a handle that is open for writing needs no
 * permission of the file's mode; with CREATE_ASYNC it may return when it is only queued
 * (served.is_async, and no attributes): flush, fsync, or a later write then return its error. */
int workspace_setattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	unsigned mask, const struct attributes *want, struct attributes *ret_attributes);

/* Optional as a group (NULL: -EOPNOTSUPP).  As getxattr(2): `size` 0 asks for the
 * length.  -ENODATA, -ERANGE, -E2BIG, -EEXIST. */
ssize_t workspace_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name, void *value, size_t size);
ssize_t workspace_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size);
int workspace_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags);
int workspace_removexattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *name);

/* Required.  Of the file system at the root. */
int workspace_statfs(struct op_context *ctx, struct workspace *w, struct fs_stats *ret_stats);

/* Optional (NULL: 0).  Looks at the root, past every cache.  -ENOENT: it was removed; -ESTALE: it
 * is not where it was opened any more. */
int workspace_check(struct op_context *ctx, struct workspace *w);

/* Required.  Opens a regular file; the handle stays valid after unlink and rename,
 * and its writes, with O_APPEND, go to the end of file in one piece, also while
 * others append.  The caller closes it.  -EISDIR, -ETXTBSY, -ENXIO.
 * Through object->file it opens the same object once more, with other flags.
 * With served.is_async (see await_name) only the ctime of the attributes counts. */
int workspace_open_file(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes);

/* Optional (NULL: -EROFS).  Creates a regular file that must not exist (-EEXIST),
 * and opens it. */
int workspace_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes);

/* Optional (NULL: nothing is answered before it is done).  For a handle that create or open_file
 * gave out with served.is_async: waits until that is done, and returns what it would have; the same
 * each time.  The attributes from create were right but for the times; or, without O_EXCL, another
 * process was quicker to make the name, or has put another file there: then the handle leads to
 * that file, truncated if asked for, and the answer has its attributes.  After an error every
 * operation on the handle returns that. -EAGAIN: interrupted, or the workspace is out of reach; to
 * be called again. */
int workspace_await_name(
	struct op_context *ctx, struct open_file *file, struct attributes *ret_attributes);

/* Optional (NULL: -EOPNOTSUPP).  Creates a regular file without a name in a
 * directory; link() through the handle gives it one.  (O_TMPFILE) */
int workspace_create_unnamed(struct op_context *ctx, struct workspace *w, const char *directory,
	int flags, uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes);

/* Required.  Reads up to `size` bytes at `offset`.  Returns the count; less than
 * `size` only at end of file.  -EBADF. */
ssize_t workspace_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset);

/* Optional (NULL: -EROFS).  Writes all `size` bytes at `offset` (ignored with O_APPEND), or returns
 * the count that fit before the error.  A remote workspace may return when a write is only queued;
 * flush, fsync, or a later write then return its error.  -EBADF, -EFBIG. */
ssize_t workspace_write(struct op_context *ctx, struct open_file *file, const void *data,
	size_t size, off_t offset);

/* Optional (NULL: nothing to do).  Waits until every earlier write of this handle is
 * acknowledged by the workspace, and returns their error once.  (close(2) of a
 * descriptor.) */
int workspace_flush(struct op_context *ctx, struct open_file *file);

/* Optional (NULL: as flush).  Data (and, unless `data_only`, attributes) are on
 * stable storage there.  A file, or with `file` NULL the directory `path`. */
int workspace_fsync(struct op_context *ctx, struct workspace *w, struct open_file *file,
	const char *path, bool data_only);

/* Required.  Frees the handle (NULL is fine), its flock, and the POSIX locks of owners that came
 * through it (the kernel above does not unlock open-file-description locks itself); never waits
 * longer than the workspace's bound.  Returns the error of a write that was not reported yet. */
int workspace_close(struct op_context *ctx, struct open_file *file);

/* Optional (NULL: -EOPNOTSUPP).  `mode`: enum fallocate_mode. */
int workspace_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length);

/* Optional (NULL: -EOPNOTSUPP).  A descriptor of the file itself, on this machine, for reading and
 * mapping it past this interface.  The handle keeps ownership. */
int workspace_descriptor(struct open_file *file);

/* Optional (NULL: the whole file is data).  lseek(2) with SEEK_DATA or SEEK_HOLE;
 * returns the offset.  -ENXIO. */
off_t workspace_seek(struct op_context *ctx, struct open_file *file, off_t offset, int whence);

/* Optional (NULL: -EOPNOTSUPP; the kernel then copies).  copy_file_range(2) within
 * this workspace; a reflink where possible.  Returns the count. */
ssize_t workspace_copy_range(struct op_context *ctx, struct open_file *from, off_t from_offset,
	struct open_file *to, off_t to_offset, size_t size);

/* Optional as a group (NULL: -EOPNOTSUPP; the kernel then locks locally).
 * lock: sets or, with LOCK_NONE, drops.  With `wait` it returns when it has the lock,
 * -EINTR, -EDEADLK or -ENOLCK; without, -EAGAIN when somebody else holds it.  A lock is dropped
 * behind every earlier write of any handle.  A remote workspace may return when that is only
 * queued: what is asked for through it later comes behind that, other processes there may see it a
 * moment later.  With a lock, the facts may have the object as it was when that was there, and the
 * sink of the feed has got what was changed before the lock was granted.
 * lock_test: `*lock` is what stands in the way, or type LOCK_NONE.
 * lock_release_owner: drops all LOCK_KIND_POSIX locks of `owner` on this file. */
int workspace_lock(
	struct op_context *ctx, struct open_file *file, const struct file_lock *lock, bool wait);
int workspace_lock_test(struct op_context *ctx, struct open_file *file, struct file_lock *lock);
int workspace_lock_release_owner(struct op_context *ctx, struct open_file *file, uint64_t owner);

/* Optional as a group (NULL: -EOPNOTSUPP; no commands run here).
 * exec: starts; -ENOENT, -EACCES, -ENOEXEC as execve(2) of argv[0] (looked up in the
 *   PATH of the new environment), -ENOENT or -ENOTDIR for cwd.
 *   EXEC_STREAM: errors of ops/support/socket_stream.h; -EOPNOTSUPP without
 *   WORKSPACE_CAN_STREAM.
 * process_next: waits for the next event.  Bounded memory: a process whose output is
 *   not fetched is held up by its pipe.  `buffer` has at least 1 byte.
 *   -EINTR leaves the process running; -ECONNRESET: what ran it is gone, how it ended
 *   nobody knows.
 * process_write: stdin.  Returns the count taken, waiting for room; -EPIPE.
 * process_close_stdin: end of file for the process; a second call does nothing.
 * process_signal: to the whole process tree.  -ESRCH once it has ended.  After INT,
 *   TERM, HUP or QUIT, what the command leaves running is killed at its end.
 * process_resize: EXEC_PTY.
 * process_free: kills the tree when it still runs (KILL, at once), frees.  NULL is fine. */
int workspace_exec(struct op_context *ctx, struct workspace *w, const struct exec_request *request,
	struct process **ret_process);
int workspace_process_next(struct op_context *ctx, struct process *process, void *buffer,
	size_t size, struct exec_event *ret_event);
ssize_t workspace_process_write(
	struct op_context *ctx, struct process *process, const void *data, size_t size);
int workspace_process_close_stdin(struct op_context *ctx, struct process *process);
int workspace_process_signal(struct op_context *ctx, struct process *process, int signal);
int workspace_process_resize(
	struct op_context *ctx, struct process *process, uint16_t rows, uint16_t columns);
void workspace_process_free(struct process *process);

/* Optional (NULL: -EOPNOTSUPP; nothing is watched).  Sets the one sink for changes in the
 * directories that readdir (watch), scan (SCAN_WATCH) and watch_directory watch.  Before the first
 * such call; once.  -EBUSY: there is one already. */
int workspace_watch(struct workspace *w, change_sink sink, void *user);

/* Optional (NULL: calls readdir (watch), and ignores the entries).  Watches the directory, before
 * names in it are looked at.  -EAGAIN: not yet, to be called again. */
int workspace_watch_directory(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool *ret_watched);

/* Optional (NULL: nothing to do).  The kernel above forgot the directory: stops watching it,
 * wherever it is.  Its id says which one (inode 0: none), the path only where it was.  The end of
 * the watch is reported like any other (CHANGE_UNWATCHED); a decorator that needs the watch itself
 * may keep it.  Asynchronous; cannot fail. */
void workspace_unwatch(struct workspace *w, const struct object_ref *directory);

/* "local"; static, unique. */
const char *workspace_name(const struct workspace *w);
