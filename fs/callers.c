#include "fs/callers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/cleanup.h"

enum {
	SETS = 1024,
	WAYS = 4,
	LOCKS = 64,
	ANCESTORS_MAX = 64,
	RECHECK_FIRST_NS = 1000000,
	RECHECK_LAST_NS = 1000000000,
};

struct entry {
	pid_t tid; /* 0: free */
	pid_t pid;
	uint64_t start_time;  /* of the process, in ticks since boot; 0: it was gone */
	uint64_t checked_ns;  /* when /proc was read last */
	uint32_t interval_ns; /* until it is read again */
	uint32_t epoch;       /* of `calls` when `call` was found */
	uint32_t used;        /* last, in ms or so: the oldest makes room */
	struct tool_call *call;
	char name[16];
};

struct callers {
	pthread_mutex_t locks[LOCKS]; /* each guards the sets whose index it divides */
	struct entry sets[SETS][WAYS];

	pthread_rwlock_t calls_lock;
	struct tool_call *calls; /* latest first; guarded by calls_lock */
	unsigned call_count;     /* guarded by calls_lock */
	atomic_uint epoch;       /* grows whenever `calls` changes */
};

/* What /proc knows of a process. */
struct process_facts {
	pid_t pid, parent, session;
	uint64_t start_time;
	char name[16];
};

/* ---- /proc ------------------------------------------------------------------ */

static ssize_t read_proc(pid_t id, const char *file, char *text, size_t size)
{
	char path[48];
	cleanup_fd int fd = -1;
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/%s", id, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	length = read(fd, text, size - 1);
	if (length < 0)
		return -errno;
	text[length] = '\0';
	return length;
}

/* The process of a thread; the thread's own id when it is gone. */
static pid_t process_of(pid_t tid)
{
	char text[512];
	const char *line;

	if (read_proc(tid, "status", text, sizeof(text)) < 0)
		return tid;
	line = strstr(text, "\nTgid:");
	return line ? (pid_t)strtol(line + strlen("\nTgid:"), NULL, 10) : tid;
}

/* "PID (NAME) STATE PPID PGRP SESSION ..., field 22 is the start time" (proc(5)) */
static bool read_facts(pid_t pid, struct process_facts *ret_facts)
{
	char text[512];
	const char *open, *close;
	unsigned long long start_time;
	size_t length;
	int parent, session;

	if (read_proc(pid, "stat", text, sizeof(text)) < 0)
		return false;
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (!open || !close || close < open)
		return false;
	if (sscanf(close + 1,
		    " %*c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		    "%llu",
		    &parent, &session, &start_time) != 3)
		return false;
	length = (size_t)(close - open - 1);
	if (length >= sizeof(ret_facts->name))
		length = sizeof(ret_facts->name) - 1;
	memcpy(ret_facts->name, open + 1, length);
	ret_facts->name[length] = '\0';
	ret_facts->pid = pid;
	ret_facts->parent = parent;
	ret_facts->session = session;
	ret_facts->start_time = start_time;
	return true;
}

/* ---- Calls ------------------------------------------------------------------ */

static struct tool_call *call_ref(struct tool_call *call)
{
	if (call)
		atomic_fetch_add_explicit(&call->references, 1, memory_order_relaxed);
	return call;
}

void tool_call_unref(struct tool_call *call)
{
	if (call && atomic_fetch_sub_explicit(&call->references, 1, memory_order_acq_rel) == 1)
		free(call);
}

/* The list is short: calls that are under way now. */
static struct tool_call **find_call(struct callers *callers, const char *id)
{
	struct tool_call **at = &callers->calls;

	while (*at && strcmp((*at)->id, id) != 0)
		at = &(*at)->next;
	return at;
}

struct tool_call *callers_call_by_id(struct callers *callers, const char *id)
{
	struct tool_call *call;

	pthread_rwlock_rdlock(&callers->calls_lock);
	call = call_ref(*find_call(callers, id));
	pthread_rwlock_unlock(&callers->calls_lock);
	return call;
}

/* Was the call begun for, or joined by, this very process or thread? */
static bool is_root_of(const struct tool_call *call, pid_t pid)
{
	unsigned count = atomic_load(&call->joined_count);

	for (unsigned i = 0; i < count; i++)
		if (call->joined[i] == pid)
			return true;
	return call->pid == pid;
}

/* The latest call under way that was begun for this very process or thread. */
static struct tool_call *call_of_root(struct callers *callers, pid_t pid)
{
	struct tool_call *call;

	pthread_rwlock_rdlock(&callers->calls_lock);
	for (call = callers->calls; call && !is_root_of(call, pid); call = call->next)
		;
	call_ref(call);
	pthread_rwlock_unlock(&callers->calls_lock);
	return call;
}

int callers_call_begin(struct callers *callers, const char *id, const char *tool, pid_t pid)
{
	struct tool_call *call;
	int r = 0;

	if (!*id || strlen(id) > CALL_ID_MAX_BYTES || strlen(tool) > CALL_TOOL_MAX_BYTES ||
		pid <= 0)
		return -EINVAL;
	call = calloc(1, sizeof(*call));
	if (!call)
		return -ENOMEM;
	atomic_init(&call->references, 1);
	call->pid = pid;
	strcpy(call->id, id);
	strcpy(call->tool, tool);

	pthread_rwlock_wrlock(&callers->calls_lock);
	if (*find_call(callers, id))
		r = -EEXIST;
	else if (callers->call_count >= CALLS_MAX)
		r = -ENOSPC;
	if (r == 0) {
		call->next = callers->calls;
		callers->calls = call;
		callers->call_count++;
		atomic_fetch_add(&callers->epoch, 1);
	}
	pthread_rwlock_unlock(&callers->calls_lock);
	if (r < 0)
		tool_call_unref(call);
	return r;
}

int callers_call_join(struct callers *callers, const char *id, pid_t pid)
{
	struct tool_call *call;
	unsigned count;
	int r = 0;

	if (pid <= 0)
		return -EINVAL;
	pthread_rwlock_wrlock(&callers->calls_lock);
	call = *find_call(callers, id);
	count = call ? atomic_load(&call->joined_count) : 0;
	if (!call) {
		r = -ENOENT;
	} else if (count >= CALL_JOINED_MAX) {
		r = -ENOSPC;
	} else {
		call->joined[count] = pid;
		atomic_store(&call->joined_count, count + 1);
		atomic_fetch_add(&callers->epoch, 1);
	}
	pthread_rwlock_unlock(&callers->calls_lock);
	return r;
}

int callers_call_end(struct callers *callers, const char *id, struct tool_call **ret_call)
{
	struct tool_call **at, *call;

	pthread_rwlock_wrlock(&callers->calls_lock);
	at = find_call(callers, id);
	call = *at;
	if (call) {
		*at = call->next;
		callers->call_count--;
		atomic_fetch_add(&callers->epoch, 1);
	}
	pthread_rwlock_unlock(&callers->calls_lock);
	if (!call)
		return -ENOENT;
	*ret_call = call;
	return 0;
}

/* ---- The cache -------------------------------------------------------------- */

static unsigned set_of(pid_t tid)
{
	return (unsigned)tid % SETS;
}

static pthread_mutex_t *lock_of(struct callers *callers, pid_t tid)
{
	return &callers->locks[set_of(tid) % LOCKS];
}

static struct entry *find_entry(struct callers *callers, pid_t tid)
{
	struct entry *set = callers->sets[set_of(tid)];

	for (unsigned i = 0; i < WAYS; i++)
		if (set[i].tid == tid)
			return &set[i];
	return NULL;
}

static struct entry *pick_entry(struct callers *callers, pid_t tid)
{
	struct entry *set = callers->sets[set_of(tid)], *victim = find_entry(callers, tid);

	for (unsigned i = 0; i < WAYS && !victim; i++)
		if (set[i].tid == 0)
			victim = &set[i];
	if (victim)
		return victim;
	victim = &set[0];
	for (unsigned i = 1; i < WAYS; i++)
		if ((int32_t)(set[i].used - victim->used) < 0)
			victim = &set[i];
	return victim;
}

/* Takes a reference to the call that a known process belongs to.  False: look further up. */
static bool known_call(struct callers *callers, pid_t pid, const struct process_facts *alive,
	uint32_t epoch, struct tool_call **ret_call)
{
	struct entry *entry;
	bool known = false;

	pthread_mutex_lock(lock_of(callers, pid));
	entry = find_entry(callers, pid);
	if (entry && (!alive || entry->start_time == alive->start_time)) {
		/* The root of a call leaves it with the call's end; others stay. */
		bool inherited = entry->call && !is_root_of(entry->call, pid);

		known = inherited || entry->epoch == epoch;
		if (known)
			*ret_call = call_ref(entry->call);
	}
	pthread_mutex_unlock(lock_of(callers, pid));
	return known;
}

/* A process that is not the leader of its session, but whose parent is in another one,
 * has lost its own parent: its session leader stands in. */
static pid_t next_ancestor(const struct process_facts *facts)
{
	struct process_facts parent;

	if (facts->session > 1 && facts->session != facts->pid &&
		(!read_facts(facts->parent, &parent) || parent.session != facts->session))
		return facts->session;
	return facts->parent;
}

static void store_entry(struct callers *callers, const struct entry *fresh)
{
	struct tool_call *old;
	struct entry *entry;

	pthread_mutex_lock(lock_of(callers, fresh->tid));
	entry = pick_entry(callers, fresh->tid);
	old = entry->call;
	*entry = *fresh;
	call_ref(entry->call);
	pthread_mutex_unlock(lock_of(callers, fresh->tid));
	tool_call_unref(old);
}

/* They may do nothing themselves, and end, before another child of theirs is asked for. */
static void remember_ancestors(struct callers *callers, const struct process_facts *walked,
	unsigned count, struct tool_call *call, uint32_t epoch, uint64_t now_ns)
{
	for (unsigned i = 0; i < count; i++) {
		struct entry entry = {
			.tid = walked[i].pid,
			.pid = walked[i].pid,
			.start_time = walked[i].start_time,
			.checked_ns = now_ns,
			.interval_ns = RECHECK_FIRST_NS,
			.epoch = epoch,
			.used = (uint32_t)(now_ns >> 20),
			.call = call,
		};

		memcpy(entry.name, walked[i].name, sizeof(entry.name));
		store_entry(callers, &entry);
	}
}

static struct tool_call *call_of_ancestors(
	struct callers *callers, const struct process_facts *start, uint32_t epoch, uint64_t now_ns)
{
	struct process_facts walked[ANCESTORS_MAX];
	const struct process_facts *below = start;
	struct tool_call *call = NULL;

	for (unsigned depth = 0; depth < ANCESTORS_MAX; depth++) {
		struct process_facts *facts = &walked[depth];
		pid_t pid = next_ancestor(below);
		bool alive;

		if (pid <= 1)
			return NULL;
		alive = read_facts(pid, facts);
		call = call_of_root(callers, pid);
		if (!call && !known_call(callers, pid, alive ? facts : NULL, epoch, &call) &&
			alive) {
			below = facts;
			continue;
		}
		if (call)
			remember_ancestors(callers, walked, depth, call, epoch, now_ns);
		return call;
	}
	return NULL;
}

/* Which call a thread belongs to; `kept` is what it belonged to so far. */
static struct tool_call *resolve_call(struct callers *callers, pid_t tid,
	const struct process_facts *facts, struct tool_call *kept, uint32_t epoch, uint64_t now_ns)
{
	struct tool_call *call = NULL;

	pthread_rwlock_rdlock(&callers->calls_lock);
	call = callers->calls;
	pthread_rwlock_unlock(&callers->calls_lock);
	if (!call && !kept)
		return NULL;

	call = call_of_root(callers, tid);
	if (!call && facts->pid != tid)
		call = call_of_root(callers, facts->pid);
	if (call)
		return call;
	if (kept && kept->pid != tid && kept->pid != facts->pid)
		return call_ref(kept);
	return facts->start_time ? call_of_ancestors(callers, facts, epoch, now_ns) : NULL;
}

/* Reads /proc.  `fresh` holds what was known (with a reference to its call); it is brought up
 * to date. */
static void look_again(struct callers *callers, struct entry *fresh, uint64_t now_ns)
{
	struct process_facts facts = {.pid = fresh->pid ? fresh->pid : process_of(fresh->tid)};
	struct tool_call *kept = fresh->call;
	bool alive = read_facts(facts.pid, &facts);

	fresh->interval_ns = fresh->interval_ns * 2ull > RECHECK_LAST_NS ? RECHECK_LAST_NS
									 : fresh->interval_ns * 2;
	if (alive && fresh->pid && facts.start_time != fresh->start_time) {
		/* The id belongs to another process now, or to another thread of one. */
		kept = NULL;
		fresh->interval_ns = RECHECK_FIRST_NS;
		facts.pid = process_of(fresh->tid);
		alive = read_facts(facts.pid, &facts);
	}
	fresh->epoch = atomic_load(&callers->epoch);
	if (alive) {
		memcpy(fresh->name, facts.name, sizeof(fresh->name));
		fresh->start_time = facts.start_time;
	} else {
		facts.start_time = 0;
	}
	fresh->pid = facts.pid;
	fresh->checked_ns = now_ns;
	fresh->used = (uint32_t)(now_ns >> 20);
	fresh->call = resolve_call(callers, fresh->tid, &facts, kept, fresh->epoch, now_ns);
	store_entry(callers, fresh);
}

static bool is_fresh(struct callers *callers, const struct entry *entry, uint64_t now_ns)
{
	return now_ns - entry->checked_ns < entry->interval_ns &&
	       entry->epoch == atomic_load_explicit(&callers->epoch, memory_order_acquire);
}

void callers_find(struct callers *callers, pid_t tid, uint64_t now_ns, struct caller *ret_caller)
{
	struct entry known = {.tid = tid, .interval_ns = RECHECK_FIRST_NS / 2};
	struct tool_call *before;
	struct entry *entry;
	bool fresh = false;

	memset(ret_caller, 0, sizeof(*ret_caller));
	if (tid <= 0)
		return;
	pthread_mutex_lock(lock_of(callers, tid));
	entry = find_entry(callers, tid);
	if (entry) {
		entry->used = (uint32_t)(now_ns >> 20);
		fresh = is_fresh(callers, entry, now_ns);
		known = *entry;
		call_ref(known.call);
	}
	pthread_mutex_unlock(lock_of(callers, tid));
	if (!fresh) {
		before = known.call;
		look_again(callers, &known, now_ns);
		tool_call_unref(before);
	}
	ret_caller->pid = known.pid;
	ret_caller->call = known.call;
	memcpy(ret_caller->name, known.name, sizeof(ret_caller->name));
}

void caller_done(struct caller *caller)
{
	tool_call_unref(caller->call);
	caller->call = NULL;
}

/* ---- Life ------------------------------------------------------------------- */

int callers_new(struct callers **ret_callers)
{
	struct callers *callers = calloc(1, sizeof(*callers));

	if (!callers)
		return -ENOMEM;
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_init(&callers->locks[i], NULL);
	pthread_rwlock_init(&callers->calls_lock, NULL);
	*ret_callers = callers;
	return 0;
}

void callers_free(struct callers *callers)
{
	if (!callers)
		return;
	for (unsigned i = 0; i < SETS; i++)
		for (unsigned j = 0; j < WAYS; j++)
			tool_call_unref(callers->sets[i][j].call);
	while (callers->calls) {
		struct tool_call *next = callers->calls->next;

		tool_call_unref(callers->calls);
		callers->calls = next;
	}
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_destroy(&callers->locks[i]);
	pthread_rwlock_destroy(&callers->calls_lock);
	free(callers);
}
