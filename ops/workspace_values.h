/*
 * ops/workspace_values.h - what the operations of ops/workspace.h take and give: objects, their
 * attributes, entries, locks, changes, the state of a workspace, and the context of a call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct literals;
struct open_file;
struct workspace;

/* ---- Values ------------------------------------------------------------- */

/* Identifies an object, not a name.  `generation` distinguishes the uses of a reused inode number
 * (birth time in ns where the workspace has it, else 0).  All zero: unknown. */
struct object_id {
	uint64_t device;
	uint64_t inode;
	uint64_t generation;
};

/* The device of objects that the workspace does not have yet (-o writes=back).  Their inode numbers
 * are shown as they are. */
#define PROVISIONAL_DEVICE (UINT64_MAX - 0x697374)

/* An existing object. */
struct object_ref {
	const char *path;          /* used when `file` is NULL */
	struct object_id id;       /* inode 0: whatever is at the path */
	struct object_id parent;   /* getattr by the path: of its parent directory (as `id`) */
	struct object_id expected; /* getattr by the path without `id`: the object that the caller
				    * expects there.  For any other object the answer may not
				    * include a write that has returned.  Inode 0: none */
	struct open_file *file;    /* an open handle of the object, which wins over the path
				    * (an unlinked object has no other way); or NULL */
};

#define OBJECT_AT(path_)      ((struct object_ref){.path = (path_)})
#define OBJECT_OF(open_file_) ((struct object_ref){.path = "", .file = (open_file_)})

struct attributes {
	struct object_id id;
	uint32_t mode; /* type and permissions, as st_mode */
	uint32_t nlink;
	uint32_t uid;
	uint32_t gid;
	uint64_t rdev; /* as makedev(3) of Linux */
	uint64_t size_bytes;
	uint64_t blocks; /* of 512 bytes */
	uint32_t block_size_bytes;
	struct timespec atime;
	struct timespec mtime;
	struct timespec ctime;
	bool changed_lately; /* by the workspace's clock, so lately that one more change may not
			      * show in the times */
	bool is_generated;   /* a regular file whose content is made when it is read (procfs, sysfs,
			      * cgroup): size and times say nothing about it */
};

bool object_id_equal(const struct object_id *a, const struct object_id *b);

/* True when both describe the same state of the same object: id, mode, owner,
 * nlink, size, mtime and ctime agree.  (Nothing else counts.) */
bool attributes_same_version(const struct attributes *a, const struct attributes *b);

/* Results of a call on an object whose path does not lead to it any more: the path, or a directory
 * on the way, is gone, or is another object. */
bool path_misses_object(int result);

/* Results when another object is there, perhaps of another type: a directory instead of a file, a
 * link where there was none, or no link where there was one. */
bool path_leads_to_another(int result);

/* The outcome of a change, looked at after it, at served.position.  `mode` 0: not given.  Without a
 * parent the names are not as the change should have left them: another process was quicker, or the
 * old name exists again. */
struct facts {
	struct attributes parent; /* of the directory whose entry was made, removed or moved ... */
	struct attributes new_parent; /* ... and of the one with the new name of a rename */
	struct attributes object; /* of what was moved, written to, or given extended attributes */
	bool little_room;         /* after a write or an open: the next write may not fit */
};

enum create_hint {
	CREATE_WAITS,
	CREATE_IS_FIRST, /* waits, but the next create in the directory may be CREATE_ASYNC */
	CREATE_ASYNC,    /* what is at the name is known, and a change of that would be reported:
			  * need not wait.  Without O_EXCL the caller accepts a file that another
			  * process is quicker to make */
};

/* The caller of an operation, and what served it.  In the caller's memory; one call at a time. */
struct op_context {
	/* The calling process as the workspace should see it (ids are already mapped). */
	pid_t pid; /* 0: unknown */
	uid_t uid;
	gid_t gid;
	mode_t umask;        /* for what is created */
	const gid_t *groups; /* supplementary groups; may be NULL */
	size_t group_count;

	/* The parent directory of the name that is made (create_unnamed: the directory itself),
	 * removed or moved; `new_parent` that of the new name of rename and link.  inode 0:
	 * whichever is there (see Identity in ops/workspace.h). */
	struct object_id parent, new_parent;

	/* True once the caller gave up; the operation then ends with -EINTR within 100 ms, unless
	 * it has already taken effect.  NULL: never.  Cheap enough to poll from a wait loop, and
	 * may be called from any thread of the call.  Called before each wait, so that the caller
	 * can start another thread. */
	bool (*interrupted)(struct op_context *ctx);
	void *interrupted_data;

	/* create, and open_file with O_TRUNC for writing only: whether it may be answered before
	 * the name is made, or the file truncated (see await_name).  setattr of the size alone,
	 * through a handle: CREATE_ASYNC if it may be answered before. */
	enum create_hint create_hint;

	/* getattr through a handle: only the size matters.  It may be answered from what this mount
	 * has written (served.is_async); the times are not known then. */
	bool size_only;

	/* getattr by path: the workspace is asked, whatever a cache knows. */
	bool is_uncached;

	/* Filled in by a change that succeeds; the operation clears it first.  NULL: not wanted. */
	struct facts *facts;

	/* Filled in by lower layers, for the mount log. */
	struct {
		uint32_t round_trips; /* waits for the far end on this call's behalf */
		uint32_t repeats;  /* requests that were made anew, as the far end had lost them */
		bool from_cache;   /* answered without asking the workspace */
		bool is_async;     /* create, open_file: see await_name; setattr: the times are
				    * not known yet; getattr: see size_only */
		bool is_other;     /* flush: without O_EXCL, the file is not the one that create
				    * returned (see await_name) */
		uint64_t position; /* see Positions in ops/workspace.h: the answer is from a look
				    * then or later (flush: after all writes) */
	} served;
};

/* A context that acts as this process itself (but with no umask) and is never interrupted. */
void op_context_init(struct op_context *ctx);

static inline bool op_interrupted(struct op_context *ctx)
{
	return ctx->interrupted && ctx->interrupted(ctx);
}

/* ---- Names -------------------------------------------------------------- */

/* One entry of readdir or scan.  Valid during the call of the sink only. */
struct dir_entry {
	const char *path; /* readdir: the name; scan: path relative to the scanned directory
			   * ("" for that directory itself, which comes first) */
	struct attributes attributes;
	uint64_t at;             /* scan: position of the look at it, and of the look at what is
				  * in it when it is complete */
	const char *link_target; /* scan only: of a symbolic link; else NULL */
	const void *content;     /* scan only, with SCAN_CONTENT: the whole file, or NULL */
	size_t content_size;
	uint64_t watched_since; /* scan only: of a directory; as readdir's `*ret_since` */
	bool complete;          /* scan only: a directory all of whose entries are in this scan */
	bool lacks_texts; /* scan only: a searched file that has none of the request's texts (before
			   * its first NUL) */
	const void *lines; /* scan only: of a searched file, those that have one of the texts, if
			    * wanted and few (ops/support/excerpt.h); or NULL */
	size_t lines_size;
};

/* Takes one entry.  A negative result ends the walk and is returned from it. */
typedef int (*dir_entry_sink)(void *user, const struct dir_entry *entry);

enum scan_flags {
	SCAN_WATCH = 1 << 0,      /* watch each directory, before it is read */
	SCAN_CONTENT = 1 << 1,    /* bring the content of files up to content_max_bytes */
	SCAN_NOT_HIDDEN = 1 << 2, /* do not look into directories whose names begin with "." */
	SCAN_GUESS = 1 << 3,      /* prefetching: everything else goes first */

	/* For searches as git does them: skip what .gitignore files, from the root down, exclude,
	 * and .git but for its `info`.  Brings the content of the files that have patterns
	 * (.gitignore, .git/info/exclude) or name some (.git/config).  With this flag, and with
	 * `texts`, a decorator may leave out of the answer what the caller has cached.
	 * -EOPNOTSUPP: the far end is too old. */
	SCAN_NOT_IGNORED = 1 << 4,

	/* Bring the content of a few small files that programs read first (ops/read_first.h):
	 * .gitignore, Makefile, package.json, .git/HEAD ...; and, whatever the bounds, list the few
	 * directories that git looks into first (.git/refs, .git/objects/pack ...), if .git is
	 * listed.  A far end that is too old does neither. */
	SCAN_READ_FIRST = 1 << 6, /* 1 << 5 and 1 << 7 are taken, on the wire */
};

enum { SCAN_CONTEXT_MAX = 1000 };

struct scan_request {
	unsigned flags;               /* enum scan_flags */
	uint32_t depth_max;           /* 1: the directory's own entries; 0: no bound */
	uint64_t entries_max;         /* 0: no bound.  Reached: directories stay incomplete */
	uint64_t content_max_bytes;   /* per file */
	uint64_t content_total_bytes; /* budget of the whole scan, of which each file takes some
				       * hundred more than its size; 0: no bound */

	/* A search: the files that are not ignored are searched at the workspace, with all
	 * processors; content is brought only of those that have one of the texts.  NULL: no
	 * search. */
	const struct literals *texts;
	bool wants_lines;  /* of a search: of a file in which they are few, the lines that have one
			    * of the texts are told in place of its content ... */
	uint32_t context;  /* ... with so many around each, SCAN_CONTEXT_MAX at most */
	const char *names; /* of a search: a glob without a '/' for the names of the files to be
			    * searched; NULL: all */
	const uint64_t *known; /* of a search: inode numbers, ascending, of files that the caller
				* has and that are not searched */
	size_t known_count;
};

enum setattr_mask {
	SET_MODE = 1 << 0,
	SET_UID = 1 << 1,
	SET_GID = 1 << 2,
	SET_SIZE = 1 << 3,
	SET_ATIME = 1 << 4,
	SET_MTIME = 1 << 5,
	SET_ATIME_NOW = 1 << 6, /* the workspace's clock; wins over SET_ATIME */
	SET_MTIME_NOW = 1 << 7,
};

enum rename_flags {
	RENAME_KEEP_TARGET = 1 << 0,    /* RENAME_NOREPLACE: -EEXIST when the new name exists */
	RENAME_SWAP = 1 << 1,           /* RENAME_EXCHANGE; alone */
	RENAME_LEAVE_WHITEOUT = 1 << 2, /* RENAME_WHITEOUT: the device 0,0 takes the old name */
};

enum xattr_flags {
	XATTR_MUST_CREATE = 1 << 0,  /* XATTR_CREATE: -EEXIST when it exists */
	XATTR_MUST_REPLACE = 1 << 1, /* XATTR_REPLACE: -ENODATA when it does not */
};

struct fs_stats { /* as struct statvfs */
	uint64_t block_size_bytes;
	uint64_t fragment_size_bytes;
	uint64_t blocks; /* of fragment_size_bytes */
	uint64_t blocks_free;
	uint64_t blocks_available;
	uint64_t inodes;
	uint64_t inodes_free;
	uint32_t name_max_bytes;
};

/* ---- Open files --------------------------------------------------------- */

/* First member of every implementation's handle, which sets it. */
struct open_file {
	struct workspace *workspace; /* whose operations serve it */
};

/* Open flags are those of open(2): O_RDONLY, O_WRONLY, O_RDWR, O_APPEND, O_TRUNC,
 * O_EXCL, O_SYNC, O_DSYNC, O_NOATIME, O_DIRECT (a hint).  Others are ignored. */

enum fallocate_mode { /* the values of fallocate(2) */
	ALLOCATE_KEEP_SIZE = 0x01,
	ALLOCATE_PUNCH_HOLE = 0x02, /* with KEEP_SIZE */
	ALLOCATE_COLLAPSE_RANGE = 0x08,
	ALLOCATE_ZERO_RANGE = 0x10,
	ALLOCATE_INSERT_RANGE = 0x20,
};

enum lock_kind {
	LOCK_KIND_FLOCK, /* flock(2): whole file, belongs to the open handle */
	LOCK_KIND_POSIX, /* fcntl(2): byte range, belongs to `owner` */
};

enum lock_type { LOCK_SHARED, LOCK_EXCLUSIVE, LOCK_NONE };

struct file_lock {
	enum lock_kind kind;
	enum lock_type type;
	uint64_t owner;  /* LOCK_KIND_POSIX: whose; unique among this workspace's callers */
	uint64_t offset; /* bytes; LOCK_KIND_POSIX only */
	uint64_t length; /* 0: to the end of file, however far it grows */
	pid_t pid;       /* lock_test: the holder; 0 or -1 where unknown */
};

/* ---- Change feed -------------------------------------------------------- */

enum change_kind {
	CHANGE_ENTRY,     /* the name appeared, vanished, or its object changed in content or
			   * attributes */
	CHANGE_RESCAN,    /* events were lost: anything at or below `path` may have changed */
	CHANGE_UNWATCHED, /* the directory `path` is no longer (or could not be) watched */
};

enum { CONTENT_HASH_BYTES = 16 }; /* xxh3-128, canonical */

struct change {
	enum change_kind kind;
	const char *path;           /* CHANGE_ENTRY: of the entry; else of the directory */
	struct object_id directory; /* CHANGE_ENTRY: the parent in which the name was looked at;
				     * inode 0: unknown, only the object's `attributes` count.
				     * CHANGE_UNWATCHED: that directory.  CHANGE_RESCAN: inode 0 */
	uint64_t at;                /* position of the look; of CHANGE_RESCAN: drawn after the last
				     * event that was lost; of CHANGE_UNWATCHED: after the end of
				     * the watch; never less than in an earlier change */
	bool is_own; /* CHANGE_ENTRY: it was made through this workspace, however long ago it was
		      * answered, and nobody has changed it since */
	bool is_foreign; /* CHANGE_ENTRY: no call of this workspace has changed the object by that
			  * path since a lock was last granted or released through it, a command
			  * started, or such a change told: so others have, or it is told twice */
	bool exists;     /* CHANGE_ENTRY: what is at the path now, read after the event ... */
	struct attributes attributes; /* ... valid when it exists */
	const uint8_t *hash; /* CONTENT_HASH_BYTES of a regular file's content in the version of
			      * `attributes`, where the workspace gives it; or NULL.  Valid during
			      * the call of the sink only */
};

/* Gets every change made by others, in order, from one thread of the workspace's own.  It may get
 * echoes of the caller's own changes too (compare with attributes_same_version).  It may call the
 * workspace. */
typedef void (*change_sink)(void *user, const struct change *change);

/* ---- State -------------------------------------------------------------- */

enum workspace_capabilities {
	WORKSPACE_CAN_EXEC = 1 << 0,
	WORKSPACE_CAN_WATCH = 1 << 1,
	WORKSPACE_IS_REMOTE = 1 << 2, /* a call may cost a round trip */
	WORKSPACE_READ_ONLY = 1 << 3,
	WORKSPACE_CAN_STREAM = 1 << 4,     /* exec takes EXEC_STREAM and EXEC_TELL_PORTS */
	WORKSPACE_CAN_CHECK = 1 << 5,      /* check looks at the root */
	WORKSPACE_CAN_SEARCH = 1 << 6,     /* scan takes SCAN_NOT_IGNORED and texts */
	WORKSPACE_CAN_READ_FIRST = 1 << 7, /* scan takes SCAN_READ_FIRST */
	WORKSPACE_CAN_PREPARE = 1 << 8,    /* of a helper: it names prepared files */
	WORKSPACE_CAN_DETACH = 1 << 9,     /* of a helper: it takes detached writes */

	/* Names that differ in case only lead to one object: a name that is in no listing may be
	 * there, and a change of one name changes what others lead to. */
	WORKSPACE_IGNORES_CASE = 1 << 10,
};

enum { WORKSPACE_ERROR_BYTES = 1536 };

enum link_state { LINK_ONLINE, LINK_DEGRADED, LINK_OFFLINE };

struct workspace_status {
	unsigned capabilities; /* enum workspace_capabilities */
	enum link_state link;
	char last_error[WORKSPACE_ERROR_BYTES]; /* one line for people; "" when there was none */
	uint64_t round_trips;                   /* since the start */
	uint64_t bytes_sent;                    /* to the far end, on the wire */
	uint64_t bytes_received;
	uint64_t reconnects;
	unsigned channels; /* connections that carry data now */
	uint64_t watched_directories;
	uint64_t unwatched_directories; /* not watched, so cached for the time-to-live */
	uint64_t cache_hits;            /* operations answered here; all 0 without a cache */
	uint64_t cache_misses;          /* operations that asked the workspace */
	uint64_t cache_bytes;           /* of file content in memory */
	uint64_t cache_disk_hits;       /* files whose content was found on local disk */
	uint64_t prefetched_bytes;      /* of file content, ahead of any reader */
	uint64_t cache_names;           /* that are known, present or absent */
	unsigned scans;                 /* under way ... */
	uint64_t scanned_names;         /* ... and what those have brought so far */
	uint64_t pending_operations;    /* answered, and not at the workspace yet (writes=back) */
	uint64_t pending_bytes;         /* of content among them */
	uint64_t pending_ms;            /* the age of the oldest */
	uint64_t lost_operations;       /* since the start: the workspace refused them afterwards */
	uid_t owner_uid;                /* of the workspace root at start: what --idmap=user maps */
	gid_t owner_gid;
};
