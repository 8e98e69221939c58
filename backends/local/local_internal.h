/*
 * backends/local/local_internal.h - what the files of the local backend share.
 * Threads: any.
 * Errors:  -errno of the system call; what fails has nothing that is to be freed.
 */
#pragma once

#include <linux/capability.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "ops/support/cleanup.h"
#include "ops/support/position.h"
#include "ops/workspace_ops.h"

struct local_locks;
struct watcher;

struct local_workspace {
	struct workspace base;
	int root_fd;
	char *root_path; /* its path when it was opened; NULL: not known */
	bool ignores_case;
	bool has_openat2;
	uid_t owner_uid;
	gid_t owner_gid;
	struct local_locks *locks;
	struct watcher *_Atomic watcher; /* NULL until changes are wanted */
	atomic_uint open_files;
	unsigned open_files_max;

	/* This process itself (local_identity.c). */
	bool can_switch; /* it may act as another user */
	uid_t own_uid;
	gid_t own_gid;
	struct __user_cap_data_struct capabilities[_LINUX_CAPABILITY_U32S_3];
};

struct local_file {
	struct open_file base;
	int fd;
	int access; /* O_ACCMODE part of the flags */
	struct object_id id;
	uint64_t path_hash;   /* of the path by which it was opened: local_changing() */
	atomic_bool had_lock; /* which close() may free */
};

struct local_workspace *local_from(struct workspace *w);
struct local_file *local_file_from(struct open_file *file);

/* ---- local_path.c: from paths to descriptors ------------------------------- */

/* Opens `path` below the root as open(2) does with these flags (plus O_CLOEXEC), following
 * no link; with O_PATH also a link itself.  Returns the descriptor. */
int local_open_path(const struct local_workspace *w, const char *path, int flags, uint32_t mode);

/* The same below another directory. */
int local_open_below(
	const struct local_workspace *w, int base_fd, const char *path, int flags, uint32_t mode);

/* The directory that holds a name. */
struct local_parent {
	int fd;           /* the root's own, or `owned_fd` */
	int owned_fd;     /* -1: none */
	const char *name; /* in the path given */
};

/* -ESTALE when `expected` is set and another is there, or none. */
int local_parent_open(const struct local_workspace *w, const char *path,
	const struct object_id *expected, struct local_parent *ret_parent);
void local_parent_done(struct local_parent *parent);
#define cleanup_parent cleanup_with(local_parent_done)

/* An existing object, its identity checked. */
struct local_object {
	int fd; /* of the handle (as it was opened), or `owned_fd` (O_PATH) */
	int owned_fd;
	bool is_handle;               /* of a regular file: there is nothing to check */
	struct attributes attributes; /* as they were at the check; else all zero */
};

int local_object_open(const struct local_workspace *w, const struct object_ref *object,
	struct local_object *ret_object);
void local_object_done(struct local_object *object);
#define cleanup_object cleanup_with(local_object_done)

/* Draws the position of the next look. */
static inline void local_draw(struct op_context *ctx)
{
	ctx->served.position = position_draw();
}

/* Attributes of an open object, of a name in a directory (not followed). */
int local_stat_fd(int fd, struct attributes *ret_attributes);
int local_stat_name(int directory_fd, const char *name, struct attributes *ret_attributes);

/* -ESTALE when `expected` is set and differs. */
int local_check_id(const struct object_id *expected, const struct attributes *attributes);

/* The same for an open directory. */
int local_check_directory(int fd, const struct object_id *expected);

/* A call is about to change what is at the path, or a file: see watcher_changing(). */
void local_changing(const struct local_workspace *w, const char *path);
void local_changing_object(const struct local_workspace *w, const struct object_ref *object);
void local_changing_file(const struct local_file *file);
void local_closing_file(const struct local_file *file); /* watcher_closing() */

/* Waits until every change made before this call has been reported, if any are. */
void local_drain(const struct local_workspace *w);

/* Watches an open directory: see watcher_add().  Draws the position. */
uint64_t local_watch_fd(struct op_context *ctx, const struct local_workspace *w, int fd,
	const char *path, const struct object_id *id);

/* Fills in the facts of a change, if they are wanted (op_context.facts), after the position was
 * drawn.  Of a name: the object that should be there (NULL: none); if another process was quicker,
 * so that something else is there, no facts are given. */
void local_tell_object(struct op_context *ctx, int fd);
void local_tell_name(
	struct op_context *ctx, const struct local_parent *parent, const struct object_id *object);

/* Whether the file system of the file has little room left.  After the other facts. */
void local_tell_room(struct op_context *ctx, int fd);

/* "/proc/self/fd/N": leads to the very object of an O_PATH descriptor, links included. */
struct local_fd_path {
	char text[32];
};

struct local_fd_path local_fd_path(int fd);

/* ---- local_identity.c: acting as the caller --------------------------------- */

void local_identity_init(struct local_workspace *w);

/* While it is in scope, new objects belong to the caller, and the caller's umask counts. */
struct local_guise {
	const struct local_workspace *switched; /* NULL: the ids are the caller's already */
	bool has_umask;
	mode_t own_umask; /* the identity to return to */
	mode_t mask;      /* mode bits to be removed here, if the umask cannot be set */
};

struct local_guise local_act_as(const struct local_workspace *w, const struct op_context *ctx);
void local_guise_done(struct local_guise *guise);
#define cleanup_guise cleanup_with(local_guise_done)

/* ---- local_lock.c ------------------------------------------------------------ */

int local_locks_new(struct local_locks **ret_locks);
void local_locks_free(struct local_locks *locks); /* NULL is fine */

/* Drops the POSIX locks that were taken through this handle only. */
void local_locks_forget_file(struct local_locks *locks, const struct local_file *file);

/* ---- The operations, as in ops/workspace.h ------------------------------------ */

WORKSPACE_DECLARE_OPERATIONS(local)
