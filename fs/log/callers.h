/*
 * fs/log/callers.h - the caller of a request: the process, its name, its tool call.
 *
 * FUSE gives the id of the calling thread.  For the first request of a thread, callers_find() reads
 * /proc; before the reply the kernel still blocks the thread, so that the entry exists.  Later
 * requests use a bounded cache.  Its entries are refreshed at growing intervals, as execve(2)
 * changes the name of a process and the kernel reuses ids.
 * Threads: any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ops/support/log_record.h"

struct callers;

enum {
	CALL_JOINED_MAX = 64,
	CALLS_MAX = 4096, /* registered at a time */
};

/* The data with which a call is registered. */
struct call_identity {
	const char *id;
	const char *tool;
	const char *agent, *user, *conversation; /* for the log; "" or NULL: not known */
	pid_t pid;                               /* the process or thread that works for it */
	pid_t owner; /* the requesting process; `pid` must be in its tree; 0: not checked */
};

/* A tool call, reference-counted; it outlives its end as long as processes of it are known. */
struct tool_call {
	atomic_uint references;
	struct tool_call *next; /* in the list of running calls; guarded by calls_lock */
	pid_t pid, owner;
	pid_t joined[CALL_JOINED_MAX]; /* further threads that work for it; entries never change */
	atomic_uint joined_count;      /* written under calls_lock */
	atomic_uint_fast64_t last_seq; /* its last record; 0: none */
	char id[LOG_CALL_MAX_BYTES + 1];
	char tool[LOG_TOOL_MAX_BYTES + 1];
	char agent[LOG_NAME_MAX_BYTES + 1];
	char user[LOG_NAME_MAX_BYTES + 1];
	char conversation[LOG_NAME_MAX_BYTES + 1];
};

struct caller {
	pid_t pid;              /* the process that the thread belongs to */
	char name[16];          /* as in /proc/PID/comm; "": the process had ended */
	struct tool_call *call; /* a reference, or NULL */
};

/* 0 or -ENOMEM. */
int callers_new(struct callers **ret_callers);
void callers_free(struct callers *callers); /* NULL is fine */

/* Finds the process, the name and the tool call of the thread or process `tid`.  `now_ns`: any
 * monotonic clock.  Always succeeds; caller_done() must follow. */
void callers_find(struct callers *callers, pid_t tid, uint64_t now_ns, struct caller *ret_caller);
void caller_done(struct caller *caller);

/* The same where the caller has said which call it works for: of the process that has the thread,
 * nothing but its name is needed. */
void callers_find_by_id(
	struct callers *callers, pid_t tid, const char *id, struct caller *ret_caller);

/* From now on `pid` (a process or one thread) and its descendants belong to the call.
 * -EINVAL: empty or too long, -EEXIST, -ENOSPC, -ENOMEM; -EPERM: `pid` is not of the owner's
 * process tree. */
int callers_call_begin(struct callers *callers, const struct call_identity *identity);

/* In the functions below `peer` is the requesting process (0: not checked).  -EPERM: it is neither
 * the owner of the call nor an ancestor or descendant of the owner. */

/* The thread `pid` also works for the call.  0, -ENOENT, -EINVAL, -ENOSPC (CALL_JOINED_MAX), -EPERM
 * (also if `pid` is not in the peer's process tree). */
int callers_call_join(struct callers *callers, const char *id, pid_t pid, pid_t peer);

/* Ends a call: its threads no longer belong to it, but descendants that are known do.  `*ret_call`:
 * a reference.  0, -ENOENT, -EPERM. */
int callers_call_end(
	struct callers *callers, const char *id, pid_t peer, struct tool_call **ret_call);

/* Whether `peer` may refer to the call.  0, also for an unknown call; -EPERM. */
int callers_call_check(struct callers *callers, const char *id, pid_t peer);

/* A reference to the running call with this id; NULL: there is none. */
struct tool_call *callers_call_by_id(struct callers *callers, const char *id);
void tool_call_unref(struct tool_call *call); /* NULL is fine */
