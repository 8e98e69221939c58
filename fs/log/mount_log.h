/*
 * fs/log/mount_log.h - the record of every operation on a mount, JSON Lines (fs/LOG.md).
 *
 * Recording never waits for the disk: records go to a bounded queue that a thread
 * of the log's own formats and writes.  Mutations are never dropped (a full queue
 * holds them up); reads are, and then a line says how many.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct callers; /* fs/log/callers.h */
struct log_anchor;
struct mount_log;

enum log_op_flags {
	LOG_IS_MUTATION = 1 << 0,     /* changes the workspace: never dropped */
	LOG_HAS_RANGE = 1 << 1,       /* offset and bytes are set */
	LOG_HAS_HASH = 1 << 2,        /* hash is set */
	LOG_HAS_EXIT = 1 << 3,        /* exit_code, signal are set */
	LOG_FROM_CACHE = 1 << 4,      /* answered without asking the workspace */
	LOG_IS_REDACTED = 1 << 5,     /* secrets were left out of detail */
	LOG_HAS_NO_CALLER = 1 << 6,   /* no process here made it */
	LOG_HAS_HASH_BEFORE = 1 << 7, /* hash_before is set */
	LOG_HAS_BYTES = 1 << 8,       /* bytes is set, but no offset */
};

/* One operation.  The strings are copied. */
struct log_record {
	const char *op;    /* "read", "rename", "exec"...: see fs/LOG.md; static */
	unsigned flags;    /* enum log_op_flags */
	const char *path;  /* workspace path, bytes */
	const char *path2; /* rename, link: the new name; symlink: the target; or NULL */
	pid_t pid;         /* of the caller (or its thread id, as FUSE has it); 0: the kernel */
	uid_t uid;
	const char *call_id; /* NULL: found by pid; may be unknown or have ended */
	uint64_t start_ns;   /* CLOCK_REALTIME at the request */
	uint32_t latency_us;
	int result;     /* 0 or -errno */
	int64_t offset; /* bytes */
	uint64_t bytes; /* transferred */
	uint32_t round_trips;
	uint8_t hash[16];        /* xxh3-128 of the content after the write */
	uint8_t hash_before[16]; /* ... and of the one that it replaced */
	int exit_code;           /* exec: as struct exec_event */
	int signal;
	const char *detail; /* exec: the command line; connect: where to; status changes: the text;
			     * or NULL */
	const char *const
		*changed;       /* exec: paths that changed meanwhile, NULL-terminated; or NULL */
	bool changed_truncated; /* ... there were more */
};

struct mount_log_stats {
	uint64_t records; /* since the start */
	uint64_t dropped; /* reads that are counted in a "dropped" line */
	uint64_t errors;  /* records whose result is not 0, but for misses (log_is_miss()) */
	uint64_t bytes_written;
	bool is_sealed;   /* with keys */
	uint64_t removed; /* times that the file was removed while it was written */
	uint64_t lost; /* records that could not be written (disk full...): a "lost" line says so */
	int last_error;   /* 0 or -errno of the last write to the log */
	int anchor_error; /* ... to its anchor */
};

struct mount_log_options {
	uint64_t limit_bytes;      /* of the segments with all records; 0: 192 MiB */
	uint64_t keep_bytes;       /* ... of the second copy of changes; 0: 64 MiB */
	struct log_anchor *anchor; /* gets each seal, and must outlive the log; NULL: none */
	bool is_required;          /* without it the mount serves nothing: mount_log_refuses() */
	void (*removed)(void);     /* the log's files were removed and recreated; may be NULL */
};

/* Opens (continues) the log in `directory`, made 0700 when missing (its parents too), and seals it
 * where it has a key (fs/log/mount_log_seal.h).  `options` may be NULL.  The directory stays open:
 * a mount that covers it later does not matter.  -EBUSY: another daemon writes there; -errno of the
 * file system; a log that is required also fails where it has a key that cannot be used. */
int mount_log_open(
	const char *directory, const struct mount_log_options *options, struct mount_log **ret_log);

/* True while a log that is required cannot be written, or anchored.  NULL is fine. */
bool mount_log_refuses(const struct mount_log *log);

/* Writes what is queued, ends the thread, frees.  NULL is fine. */
void mount_log_close(struct mount_log *log);

/* Records one operation; returns its sequence number (0: dropped or log is NULL).  Called
 * before the reply is sent, it names even a process that ends right afterwards. */
uint64_t mount_log_record(struct mount_log *log, const struct log_record *record);

/* Waits until everything recorded so far can be read from the file. */
void mount_log_flush(struct mount_log *log);

uint64_t mount_log_last_seq(struct mount_log *log); /* 0: none, or log is NULL */
void mount_log_stats(struct mount_log *log, struct mount_log_stats *ret_stats);

/* Path of the segment being written (rotation renames the older ones); lives as long as
 * the log. */
const char *mount_log_path(struct mount_log *log);

/* Where tool calls begin and end, which the records of their processes name.  NULL: log is NULL. */
struct callers *mount_log_callers(struct mount_log *log);
