/*
 * fs/log/callers.h - the caller of a request: the process, its name, its tool call.
 *
 * FUSE gives the calling thread.  The first request of a thread reads /proc (while the kernel still
 * blocks the thread, if the caller of callers_find() has not replied yet); later ones use a bounded
 * cache, which is refreshed at growing intervals, as a process changes its name at execve(2), and
 * the kernel reuses ids.
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
	CALLS_MAX = 4096, /* under way at once */
};

/* A call when it is registered. */
struct call_identity {
	const char *id;
	const char *tool;
	const char *agent, *user, *conversation; /* on whose behalf; "" or NULL: not said */
	pid_t pid;                               /* the process or thread that works for it */
	pid_t owner; /* the requesting process, whose tree must have `pid`; 0: not checked */
};

/* One tool call, counted; lives on after its end while processes of it are known. */
struct tool_call {
	atomic_uint references;
	struct tool_call *next; /* of those under way; guarded by callers' lock */
	pid_t pid, owner;
	pid_t joined[CALL_JOINED_MAX]; /* threads that work for it too; only added to */
	atomic_uint joined_count;      /* of those; grows under callers' lock */
	atomic_uint_fast64_t last_seq; /* of its records; 0: none */
	char id[LOG_CALL_MAX_BYTES + 1];
	char tool[LOG_TOOL_MAX_BYTES + 1];
	char agent[LOG_NAME_MAX_BYTES + 1];
	char user[LOG_NAME_MAX_BYTES + 1];
	char conversation[LOG_NAME_MAX_BYTES + 1];
};

struct caller {
	pid_t pid;              /* the process that the thread belongs to */
	char name[16];          /* as in /proc/PID/comm; "" when the process was gone */
	struct tool_call *call; /* a reference, or NULL */
};

/* -ENOMEM. */
int callers_new(struct callers **ret_callers);
void callers_free(struct callers *callers); /* NULL is fine */

/* Finds out about thread (or process) `tid`; `now_ns` is any clock that only grows.  Always
 * succeeds; the caller ends with caller_done(). */
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

/* Below, `peer` is the requesting process (0: not checked).  -EPERM: it is neither the owner of the
 * call nor an ancestor or descendant of the owner. */

/* Another thread of the caller works for the call.  -ENOENT, -EINVAL, -ENOSPC (64), -EPERM (also
 * when `pid` is not of the peer's process tree). */
int callers_call_join(struct callers *callers, const char *id, pid_t pid, pid_t peer);

/* The threads no longer belong to the call; descendants that are known already still do.
 * Returns a reference.  -ENOENT, -EPERM. */
int callers_call_end(
	struct callers *callers, const char *id, pid_t peer, struct tool_call **ret_call);

/* Whether `peer` may name the call: 0 (also for one that is not under way), or -EPERM. */
int callers_call_check(struct callers *callers, const char *id, pid_t peer);

/* The call under way with this id, as a reference, or NULL. */
struct tool_call *callers_call_by_id(struct callers *callers, const char *id);
void tool_call_unref(struct tool_call *call); /* NULL is fine */
