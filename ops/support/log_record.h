/*
 * ops/support/log_record.h - one operation as the log records it (fs/LOG.md), and as it waits to be
 * written.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	LOG_PATH_MAX_BYTES = 1 << 16, /* longer paths, and command lines, are cut */
	LOG_DETAIL_MAX_BYTES = 1 << 14,
	LOG_CHANGED_MAX_BYTES = 1 << 19, /* all names together */
	LOG_CALL_MAX_BYTES = 128,
	LOG_TOOL_MAX_BYTES = 64,
	LOG_NAME_MAX_BYTES = 128, /* of an agent, a user, a conversation */
};

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

/* The strings of a record. */
enum log_string {
	LOG_PATH,
	LOG_PATH2,
	LOG_CALL,
	LOG_TOOL,
	LOG_AGENT,
	LOG_USER,
	LOG_CONVERSATION,
	LOG_RESULT, /* the name of the error, where it is no errno */
	LOG_DETAIL,
	LOG_STRINGS,
};

/* A record as it waits to be written: this, then its strings, each with its NUL.  A length
 * counts the NUL, so 0 means that there is no such string. */
struct queued_record {
	uint32_t size; /* of it all, a multiple of 8 */
	uint64_t seq;
	struct log_record record; /* whose pointers to strings are not to be followed */
	pid_t pid;                /* of the process that has the thread record.pid */
	char process[16];
	uint32_t lengths[LOG_STRINGS], changed_length;
	bool cut;       /* a string was longer than its bound */
	uint64_t count; /* dropped, lost */
};

/* Fills in the lengths and the size from the strings, of which any may be NULL. */
void log_record_measure(struct queued_record *queued, const char *const strings[LOG_STRINGS]);

/* Writes the record with its strings to `to`, which has room for queued->size. */
void log_record_copy(
	uint8_t *to, const struct queued_record *queued, const char *const strings[LOG_STRINGS]);
