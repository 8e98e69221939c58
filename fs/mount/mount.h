/*
 * fs/mount/mount.h - one mount: what the FUSE edge, the control socket and the log share.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "fs/log/mount_log.h"
struct fuse_session;
struct inode_table;
struct session;
struct workspace;

struct mount_options {
	const char *uri;
	const char *mount_point;          /* absolute */
	const char *const *backend_pairs; /* -o key=value that fs/ does not know; NULL-terminated */
	const char *const *fuse_pairs;    /* -o that goes to libfuse; NULL-terminated */
	bool read_only;
	bool foreground;
	bool remount;    /* -o remount: other flags for a mount that is there */
	bool idmap_none; /* --idmap=none */
	bool idmap_given;
	bool log_reads;        /* -o log_reads: every read comes to the daemon */
	bool cache_strict;     /* -o cache=strict: nothing that others can change is cached */
	bool log_secrets;      /* -o log_secrets: command lines are logged as they are */
	bool env_login;        /* -o env=login: commands have the environment of a login shell */
	bool no_atime;         /* -o noatime: reads here do not change atime at the workspace */
	bool io_uring;         /* -o io_uring: if the kernel supports it */
	bool log_required;     /* -o log=required: serve nothing without the log */
	uint64_t log_size;     /* -o log_size=: bytes; 0: the default */
	uint64_t log_keep;     /* -o log_keep=: bytes; 0: the default */
	char *log_anchor;      /* -o log_anchor=; NULL: none */
	bool watch_events_off; /* -o watch_events=off */
	bool locks_local;      /* -o locks=local: locks hold on this mount only */
	bool nonempty;         /* -o nonempty: hide what the mount point contains */
	uint32_t ttl_ms;       /* how long unwatched names and attributes are cached */
};

/* Whether programs here get inotify(7) events of changes by others (fs/watchers/). */
enum watch_events_state { WATCH_EVENTS_OFF, WATCH_EVENTS_STARTING, WATCH_EVENTS_ON };

struct mount;

/* What the control server does for the layers below it; set before the mount serves. */
struct mount_control {
	bool (*note_change)(struct mount *m, const char *path, uint32_t own_age_ms, uint64_t at);

	/* Connections and commands under way. */
	void (*usage)(struct mount *m, uint32_t *ret_connections, uint32_t *ret_commands);
};

struct mount {
	const struct mount_options *options;
	struct workspace *workspace;
	struct mount_log *log; /* may be NULL: not logged */
	struct inode_table *inodes;
	struct fuse_session *session;
	struct control_server *control;            /* NULL: not running */
	const struct mount_control *control_calls; /* NULL: no control server */
	struct session *edge;                      /* fs/edge/session.h */
	char *control_path;                        /* of the control socket */
	unsigned connection;            /* mount_point_connection(); 0: not mounted yet */
	struct timespec started;        /* CLOCK_REALTIME */
	uid_t mount_uid, workspace_uid; /* --idmap=user maps one to the other */
	gid_t mount_gid, workspace_gid;
	atomic_uint_fast64_t requests; /* FUSE requests served */
	atomic_bool uses_io_uring;     /* they come that way */
	struct {
		_Atomic(enum watch_events_state) state;
		const char *_Atomic reason; /* why they are off; static */
		atomic_uint directories;    /* that are watched */
		atomic_uint undecided;      /* changes that are not handled yet */
		atomic_uint_fast64_t announced, failed;
	} watch_events;
};

/* `path` was changed (NULL: changes were missed): commands that run now may have done it, unless a
 * request of this mount did since they began.  `own_age_ms`: milliseconds since one did;
 * UINT32_MAX: none.  `at`: position of the look that found it; a command that was started later has
 * not done it.  False: no command runs. */
bool mount_note_change(struct mount *m, const char *path, uint32_t own_age_ms, uint64_t at);

/* --idmap, in both directions: as seen on this machine <-> at the workspace.  Two ids are
 * exchanged, so the mapping is its own inverse. */
uid_t mount_swap_uid(const struct mount *m, uid_t uid);
gid_t mount_swap_gid(const struct mount *m, gid_t gid);

/* ---- fs/mount/status.c: status and statistics, for the control socket and .isthmus/ -- */

/* Asks the workspace itself, if its link is up, and waits for at most that long: the result of
 * workspace_check(), -EINTR when there was no answer, 0 when it was not asked. */
int mount_check(struct mount *m, int64_t wait_ms);

/* JSON texts that the caller frees; NULL when there is no memory.  `check`: of mount_check(), or 0.
 */
char *mount_status_json(struct mount *m, int check);
char *mount_stats_json(struct mount *m);
