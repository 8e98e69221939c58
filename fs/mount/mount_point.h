/*
 * fs/mount/mount_point.h - the directory a workspace is mounted on: its state, unmounting it, and
 * which programs keep them busy.
 *
 * Nothing here waits for the daemon of the mount: a dead or hung one is what it is for.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum mount_point_state {
	MOUNT_POINT_FREE,    /* an empty directory, nothing mounted */
	MOUNT_POINT_MISSING, /* no such file or directory */
	MOUNT_POINT_NOT_DIRECTORY,
	MOUNT_POINT_NOT_EMPTY,
	MOUNT_POINT_MOUNTED, /* an isthmus that lives (or another file system) */
	MOUNT_POINT_DEAD,    /* a FUSE mount without its daemon (ENOTCONN, or it hangs) */
	MOUNT_POINT_REFUSED, /* cannot be looked at */
};

/* `*ret_type` (optional, the caller frees): type of the mounted file system, or NULL. */
enum mount_point_state mount_point_look(const char *path, char **ret_type);

/* The number of the FUSE connection of what is mounted at `path`, which no other mount has at the
 * same time; 0: nothing is. */
unsigned mount_point_connection(const char *path);

/* The daemon that serves `path` and is alive; 0: none that we know of. */
pid_t mount_point_daemon(const char *path);

/* That daemon is there but does not answer.  Waits for 3 s at most. */
bool mount_point_is_silent(const char *path);

/* Absolute path of `path` without looking into the mount itself; the caller frees.
 * -ENOENT, -ENOTDIR, -EACCES of the directory above it. */
int mount_point_resolve(const char *path, char **ret_path);

/* The mount that `path` lies on (`below` false), or one that lies below it (true); the caller
 * frees.  NULL: none of ours, none at all. */
char *mount_point_around(const char *path, bool below);

/* Changes the flags of the isthmus mount at `path` to those of the words ("noexec", "dev" ...);
 * flags that no word names stay as they are.  -EINVAL: no isthmus is mounted there; -EPERM. */
int mount_point_remount(const char *path, bool read_only, const char *const *words);

/* Unmounts: as root by umount2(2), else by fusermount3.  `lazy`: detaches at once, busy or
 * not.  -EBUSY, -EINVAL (nothing mounted), -EPERM, -ENOENT (no fusermount3). */
int mount_point_unmount(const char *path, bool lazy);

/* Programs that wait for the daemon of a connection get an error, and it is over.  Works for
 * ordinary users, too; does nothing where the control file system of FUSE is not mounted. */
void mount_point_abort(unsigned connection);

/* Unmounts a MOUNT_POINT_DEAD, or a mount that the user gives up: programs that wait for its daemon
 * get an error.  Errors as above. */
int mount_point_recover(const char *path);

/* The programs that use the mount: "make (pid 12), bash (pid 7)", at most 8 of them; the caller
 * frees. NULL: none was found.  Takes 2 s at most. */
char *mount_point_holders(const char *path);

/* A sentence that says where else the file system of a connection is mounted; the caller frees.
 * NULL: nowhere visible (it may be in a mount namespace without processes). */
char *mount_point_copy(unsigned connection);

/* For a daemon that ends while the mount is busy; it must go on serving meanwhile.  Makes the
 * kernel write back the pages that programs changed through mmap(2): some may still be on their way
 * afterwards.  -ETIMEDOUT: not within that time; -errno. */
int mount_point_write_pages(const char *path, int wait_ms);

/* Unmounts lazily, with a warning that says who uses it. */
void mount_point_detach(const char *path);
