#include "fs/log/callers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fs/log/proc.h"
#include "ops/support/cleanup.h"

enum {
	SETS = 1024,
	WAYS = 4,
	LOCKS = 64,
	ANCESTORS_MAX = 64,
	RECHECK_FIRST_NS = 1000000,
	RECHECK_LAST_NS = 1000000000,
	PIDFS_TYPE = 0x50494446,
};

struct entry {
	pid_t tid; /* 0: free */
	pid_t pid;
	uint64_t incarnation; /* incarnation() of the process; 0: it had ended */
	uint64_t checked_ns;  /* when /proc was last read */
	uint32_t interval_ns; /* until /proc is read again */
	uint32_t epoch;       /* callers.epoch when `call` was found */
	uint32_t used;        /* last use, in about ms; the least recently used entry is replaced */
	struct tool_call *call;
	char name[16];
};

struct callers {
	pthread_mutex_t locks[LOCKS]; /* each guards the sets whose index it divides */
	struct entry sets[SETS][WAYS];

	pthread_rwlock_t calls_lock;
	struct tool_call *calls; /* latest first; guarded by calls_lock */
	unsigned call_count;     /* guarded by calls_lock */
	atomic_uint epoch;       /* incremented at each change of `calls` */
};

/* Facts from /proc about a process. */
struct process_facts {
	pid_t pid, parent, session;
	uint64_t incarnation;
	char name[16];
};

/* ---- /proc ------------------------------------------------------------------ */

/* The value after this key in the text of /proc/PID/status; NULL: no such line. */
static const char *status_line(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	return line ? line + strlen(key) : NULL;
}

/* Copies a name from /proc/PID/status, which escapes "\n" and "\\". */
static void copy_name(const char *from, char *name, size_t size)
{
	size_t length = 0;

	for (; *from && *from != '\n' && length + 1 < size; from++) {
		bool escaped = *from == '\\' && from[1];

		from += escaped;
		name[length++] = escaped && *from == 'n' ? '\n' : *from;
	}
	name[length] = '\0';
}

/* A number that distinguishes a process from a later one with the same id: the inode of its pidfd.
 * Before Linux 6.9 all pidfds had the same inode; there, the inode of its directory in /proc is
 * used.  The kernel may replace that under memory pressure, which costs another read of /proc. */
static uint64_t incarnation(pid_t pid)
{
	cleanup_fd int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct statfs system;
	struct stat facts;
	char path[32];

	if (fd < 0)
		return 0;
	if (fstatfs(fd, &system) == 0 && system.f_type == PIDFS_TYPE)
		return fstat(fd, &facts) == 0 ? facts.st_ino : 0;
	snprintf(path, sizeof(path), "/proc/%d", pid);
	return stat(path, &facts) == 0 ? facts.st_ino : 0;
}

/* Reads the facts about the process of a thread.  The caller may be in execve(2), which closes
 * files, so waits for this daemon's reply, and holds its exec_update_lock.  Files in /proc that
 * take that lock ("stat", "wchan", "exe", "environ") would deadlock and must not be read. */
static bool read_facts(pid_t tid, struct process_facts *ret_facts)
{
	char text[512];
	const char *process, *parent;
	pid_t pid;

	if (proc_read(tid, "status", text, sizeof(text)) < 0)
		return false;
	process = status_line(text, "\nTgid:");
	parent = status_line(text, "\nPPid:");
	if (!process || !parent || strncmp(text, "Name:\t", 6) != 0)
		return false;
	pid = (pid_t)strtol(process, NULL, 10);
	if (pid != tid)
		return read_facts(pid, ret_facts);
	ret_facts->incarnation = incarnation(pid);
	if (!ret_facts->incarnation)
		return false;
	ret_facts->pid = pid;
	ret_facts->parent = (pid_t)strtol(parent, NULL, 10);
	ret_facts->session = getsid(pid);
	copy_name(text + 6, ret_facts->name, sizeof(ret_facts->name));
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

/* Walks the list, which is short: it has running calls only. */
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

/* Whether the call was registered for this process or thread, or joined by it. */
static bool is_root_of(const struct tool_call *call, pid_t pid)
{
	unsigned count = atomic_load(&call->joined_count);

	for (unsigned i = 0; i < count; i++)
		if (call->joined[i] == pid)
			return true;
	return call->pid == pid;
}

/* The latest running call of which this process or thread is a root. */
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

/* Whether `pid` is the process `ancestor`, a thread of it or a descendant. */
static bool is_within(pid_t pid, pid_t ancestor)
{
	struct process_facts facts;

	for (unsigned depth = 0; depth < ANCESTORS_MAX && pid > 1; depth++) {
		if (pid == ancestor)
			return true;
		if (!read_facts(pid, &facts))
			return false;
		if (facts.pid == ancestor)
			return true;
		pid = facts.parent;
	}
	return false;
}

static bool is_related(pid_t owner, pid_t peer)
{
	return !owner || !peer || is_within(peer, owner) || is_within(owner, peer);
}

int callers_call_check(struct callers *callers, const char *id, pid_t peer)
{
	struct tool_call *call = callers_call_by_id(callers, id);
	int r = call && !is_related(call->owner, peer) ? -EPERM : 0;

	tool_call_unref(call);
	return r;
}

/* Drops the calls of processes that ended without ending them.  Called with calls_lock held. */
static void drop_abandoned(struct callers *callers)
{
	for (struct tool_call **at = &callers->calls; *at;) {
		struct tool_call *call = *at;

		if (!call->owner || kill(call->owner, 0) == 0 || errno != ESRCH) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		callers->call_count--;
		tool_call_unref(call);
	}
}

/* False: the text is too long. */
static bool copy_text(char *to, size_t max_bytes, const char *text)
{
	size_t length = text ? strlen(text) : 0;

	if (length > max_bytes)
		return false;
	memcpy(to, text ? text : "", length + 1);
	return true;
}

static struct tool_call *call_new(const struct call_identity *identity)
{
	struct tool_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	atomic_init(&call->references, 1);
	call->pid = identity->pid;
	call->owner = identity->owner;
	if (!copy_text(call->id, LOG_CALL_MAX_BYTES, identity->id) ||
		!copy_text(call->tool, LOG_TOOL_MAX_BYTES, identity->tool) ||
		!copy_text(call->agent, LOG_NAME_MAX_BYTES, identity->agent) ||
		!copy_text(call->user, LOG_NAME_MAX_BYTES, identity->user) ||
		!copy_text(call->conversation, LOG_NAME_MAX_BYTES, identity->conversation))
		call->pid = 0;
	return call;
}

int callers_call_begin(struct callers *callers, const struct call_identity *identity)
{
	struct tool_call *call = call_new(identity);
	int r = 0;

	if (!call)
		return -ENOMEM;
	if (!*call->id || call->pid <= 0)
		r = -EINVAL;
	else if (identity->owner && !is_within(identity->pid, identity->owner))
		r = -EPERM;
	if (r < 0) {
		tool_call_unref(call);
		return r;
	}

	pthread_rwlock_wrlock(&callers->calls_lock);
	if (callers->call_count >= CALLS_MAX)
		drop_abandoned(callers);
	if (*find_call(callers, call->id))
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

int callers_call_join(struct callers *callers, const char *id, pid_t pid, pid_t peer)
{
	struct tool_call *call;
	unsigned count;
	int r;

	if (pid <= 0)
		return -EINVAL;
	r = peer && !is_within(pid, peer) ? -EPERM : callers_call_check(callers, id, peer);
	if (r < 0)
		return r;
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

int callers_call_end(
	struct callers *callers, const char *id, pid_t peer, struct tool_call **ret_call)
{
	struct tool_call **at, *call;
	int r = callers_call_check(callers, id, peer);

	if (r < 0)
		return r;
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
	struct entry *set = callers->sets[set_of(tid)], *oldest = &set[0];
	struct entry *known = find_entry(callers, tid);

	for (unsigned i = 0; i < WAYS && !known; i++)
		if (set[i].tid == 0)
			known = &set[i];
		else if ((int32_t)(set[i].used - oldest->used) < 0)
			oldest = &set[i];
	return known ? known : oldest;
}

/* Takes a reference to the call of a cached process.  False: not known, look at its parent. */
static bool known_call(struct callers *callers, pid_t pid, const struct process_facts *alive,
	uint32_t epoch, struct tool_call **ret_call)
{
	struct entry *entry;
	bool known = false;

	pthread_mutex_lock(lock_of(callers, pid));
	entry = find_entry(callers, pid);
	if (entry && (!alive || entry->incarnation == alive->incarnation)) {
		/* A root leaves its call when the call ends; its descendants stay. */
		bool inherited = entry->call && !is_root_of(entry->call, pid);

		known = inherited || entry->epoch == epoch;
		if (known)
			*ret_call = call_ref(entry->call);
	}
	pthread_mutex_unlock(lock_of(callers, pid));
	return known;
}

/* A process whose parent is in another session, and that is not a session leader, is orphaned.  Its
 * session leader then counts as its parent. */
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

/* Caches the ancestors too: they may end before another of their children makes a request. */
static void remember_ancestors(struct callers *callers, const struct process_facts *walked,
	unsigned count, struct tool_call *call, uint32_t epoch, uint64_t now_ns)
{
	for (unsigned i = 0; i < count; i++) {
		struct entry entry = {
			.tid = walked[i].pid,
			.pid = walked[i].pid,
			.incarnation = walked[i].incarnation,
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

/* The call that a thread belongs to; `kept`: the one that it belonged to so far. */
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
	return facts->incarnation ? call_of_ancestors(callers, facts, epoch, now_ns) : NULL;
}

/* Reads /proc and updates `fresh`, a copy of the cached entry with a reference to its call. */
static void look_again(struct callers *callers, struct entry *fresh, uint64_t now_ns)
{
	struct process_facts facts = {.pid = fresh->pid ? fresh->pid : fresh->tid};
	struct tool_call *kept = fresh->call;
	bool alive = read_facts(facts.pid, &facts);

	fresh->interval_ns = fresh->interval_ns * 2ull > RECHECK_LAST_NS ? RECHECK_LAST_NS
									 : fresh->interval_ns * 2;
	if (alive && fresh->pid && facts.incarnation != fresh->incarnation) {
		/* The kernel has reused the id for another process or thread. */
		kept = NULL;
		fresh->interval_ns = RECHECK_FIRST_NS;
		facts.pid = fresh->tid;
		alive = read_facts(fresh->tid, &facts);
	}
	fresh->epoch = atomic_load(&callers->epoch);
	if (alive) {
		memcpy(fresh->name, facts.name, sizeof(fresh->name));
		fresh->incarnation = facts.incarnation;
	} else {
		facts.incarnation = 0;
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

void callers_find_by_id(
	struct callers *callers, pid_t tid, const char *id, struct caller *ret_caller)
{
	struct process_facts facts = {.pid = tid};

	read_facts(tid, &facts);
	ret_caller->pid = facts.pid;
	memcpy(ret_caller->name, facts.name, sizeof(ret_caller->name));
	ret_caller->call = callers_call_by_id(callers, id);
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
