/*
 * fs/callers.h - who a request comes from: the process, its name, its tool call.
 *
 * FUSE names the thread that asks.  The first request of a thread reads /proc (while the
 * kernel still holds the thread, if the caller of callers_find() has not replied yet);
 * later ones come from a bounded cache, which looks again at growing intervals because a
 * process changes its name at execve(2) and an id may be used anew.
 * Threads: any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct callers;

enum {
	CALL_ID_MAX_BYTES = 128,
	CALL_TOOL_MAX_BYTES = 64,
	CALL_JOINED_MAX = 64,
	CALLS_MAX = 4096, /* under way at once */
};

/* One tool call, counted; lives on after its end while processes of it are known. */
struct tool_call {
	atomic_uint references;
	struct tool_call *next; /* of those under way; guarded by callers' lock */
	pid_t pid;
	pid_t joined[CALL_JOINED_MAX]; /* threads that work for it too; only added to */
	atomic_uint joined_count;      /* of those; grows under callers' lock */
	atomic_uint_fast64_t last_seq; /* of its records; 0: none */
	char id[CALL_ID_MAX_BYTES + 1];
	char tool[CALL_TOOL_MAX_BYTES + 1];
};

struct caller {
	pid_t pid;              /* the process that the thread belongs to */
	char name[16];          /* as in /proc/PID/comm; "" when it was gone already */
	struct tool_call *call; /* a reference, or NULL */
};

/* -ENOMEM. */
int callers_new(struct callers **ret_callers);
void callers_free(struct callers *callers); /* NULL is fine */

/* Finds out about thread (or process) `tid`; `now_ns` is any clock that only grows.  Always
 * succeeds; the caller ends with caller_done(). */
void callers_find(struct callers *callers, pid_t tid, uint64_t now_ns, struct caller *ret_caller);
void caller_done(struct caller *caller);

/* From now on `pid` (a process or one thread) and its descendants belong to the call.
 * -EINVAL: empty or too long, -EEXIST, -ENOSPC, -ENOMEM. */
int callers_call_begin(struct callers *callers, const char *id, const char *tool, pid_t pid);

/* Another thread of the caller works for the call.  -ENOENT, -EINVAL, -ENOSPC (64). */
int callers_call_join(struct callers *callers, const char *id, pid_t pid);

/* `pid` no longer belongs to the call; descendants that are known already still do.
 * Returns a reference.  -ENOENT. */
int callers_call_end(struct callers *callers, const char *id, struct tool_call **ret_call);

/* The call under way with this id, as a reference, or NULL. */
struct tool_call *callers_call_by_id(struct callers *callers, const char *id);
void tool_call_unref(struct tool_call *call); /* NULL is fine */
