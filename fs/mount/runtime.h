/*
 * fs/mount/runtime.h - the files by which other commands find a user's mounts.
 *
 * $XDG_RUNTIME_DIR/isthmus (else /run/user/UID/isthmus, else /tmp/isthmus-UID), 0700, holds for
 * each mount ID.json (struct runtime_mount), ID.sock (the control socket) and, of a far workspace,
 * ID.session (its session there).  When another user has /tmp/isthmus-UID, it is
 * /tmp/isthmus-UID.XXXXXX.  The mount log is in ${XDG_STATE_HOME:-~/.local/state}/isthmus/ID/.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct runtime_mount {
	char *id;
	char *uri;
	char *mount_point; /* absolute */
	char *control_path;
	char *session_path;   /* see struct workspace_options; NULL in lists */
	char *log_directory;  /* NULL: not logged */
	pid_t pid;            /* of the daemon */
	uint64_t pid_started; /* when, as proc_pid_stat(5) has it (filled in by runtime_save()) */
	unsigned connection;  /* mount_point_connection() */
};

/* Frees the strings. */
void runtime_mount_done(struct runtime_mount *mount);

/* Where the directory usually is, or should be; allocated, NULL when there is no memory. */
char *runtime_directory_path(void);

/* The directory, made when missing.  -EPERM: it is there but belongs to somebody else or is
 * open to others; -errno. */
int runtime_directory(char **ret_path);

/* The id of a mount point: 16 hexadecimal digits.  NULL when there is no memory. */
char *runtime_id(const char *mount_point);

/* Fills in all but uri and pid from the mount point (absolute).  -ENOMEM, -errno. */
int runtime_mount_init(struct runtime_mount *mount, const char *mount_point);

/* Writes ID.json (at once, by rename). */
int runtime_save(const struct runtime_mount *mount);

/* Removes it, and the socket of a daemon that was killed; or it alone, if its daemon is `pid`:
 * a later mount on the same directory may have written it. */
void runtime_remove(const char *id);
void runtime_remove_own(const char *id, pid_t pid);

/* Reads what a daemon of the mount point has saved there.  False: nothing. */
bool runtime_load(const char *id, struct runtime_mount *ret_mount);

/* True when its daemon is there: it takes connections, even while it is stopped. */
bool runtime_is_alive(const struct runtime_mount *mount);

/* True when its daemon was killed but has not ended: not yet, or because a thread of it waits in
 * the kernel for an answer from the daemon itself.  Programs that use that mount then block, too;
 * it need not be what is mounted there now (see `connection`). */
bool runtime_is_stuck(const struct runtime_mount *mount);

/* True when the process is stopped (SIGSTOP, a debugger): it answers when it is continued. */
bool runtime_is_stopped(pid_t pid);

/* True when the daemon answers its control socket within 3 s.  A stopped one is not asked: false.
 */
bool runtime_answers(const struct runtime_mount *mount);

/* Every mount that has been saved and not removed, by mount point.  -errno. */
int runtime_list(struct runtime_mount **ret_mounts, size_t *ret_count);
void runtime_list_free(struct runtime_mount *mounts, size_t count);
