/*
 * The rules of fs/edge/drops.c in a played world: a file at a workspace, others who lock and write
 * it, the daemon, and the kernel with attributes, pages and requests.  The world advances in steps,
 * each of which happens at once; between any two of them anything else may happen.  All orders of
 * small cases, then random schedules of larger ones.  Each rule is switched off in turn, and each
 * mistake made around them: that must be found.
 *
 *   DROPS_SECONDS=N  random schedules for so long, from a random seed on, and nothing else
 */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "fs/edge/drops_internal.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/unit/seen.h"

enum { PROCESSES = 3, HALVES = 2, DEPTH_MAX = 200, ACTIONS_MAX = 64, WHOLE = 3 };

#ifdef IS_SANITIZED
enum { STATES_MAX = 5000, SCHEDULES = 5000, IS_SLOW = 1 };
#else
enum { STATES_MAX = 2000000, SCHEDULES = 200000, IS_SLOW = 0 };
#endif
enum { STATES_OF_MUTANT = 1000000, SCHEDULES_OF_MUTANT = 50000 };

/* ---- Cases --------------------------------------------------------------------------- */

enum budget {
	B_FAR,      /* others lock, write and unlock */
	B_FAR_FREE, /* others write without a lock */
	B_FAR_SAME, /* ... so soon that the times stay as they are */
	B_SHARED,   /* locks here */
	B_EXCLUSIVE,
	B_RELOCK,
	B_READ,
	B_FREE_READ, /* without a lock */
	B_WRITE,
	B_SET, /* attributes */
	B_OPEN,
	B_COUNT
};

struct world_case {
	const char *name;
	uint8_t processes;
	uint8_t in_halves; /* locks of either half (1, 2), too */
	bool is_far;       /* the workspace: the pages are dropped with each lock */
	bool for_ever;     /* locks are never released */
	uint8_t budgets[B_COUNT];
};

/* clang-format off */
static const struct world_case cases[] = {
	{"one holder", 3, .budgets = {[B_FAR] = 2, [B_SHARED] = 2, [B_READ] = 2}},
	{"two holders", 3, .budgets = {[B_FAR] = 1, [B_SHARED] = 2, [B_READ] = 2}},
	{"two holders, far", 3, .is_far = true, .budgets = {[B_FAR] = 1, [B_FAR_SAME] = 1, [B_SHARED] = 2, [B_READ] = 2}},
	{"a holder and a reader", 3, .budgets = {[B_FAR] = 1, [B_SHARED] = 1, [B_READ] = 1, [B_FREE_READ] = 2}},
	{"a holder, and attributes are set", 3, .budgets = {[B_FAR] = 1, [B_SHARED] = 1, [B_READ] = 1, [B_SET] = 1}},
	{"a holder writes", 3, .budgets = {[B_FAR] = 1, [B_EXCLUSIVE] = 2, [B_READ] = 2, [B_WRITE] = 1}},
	{"halves", 2, .in_halves = WHOLE, .budgets = {[B_FAR] = 1, [B_SHARED] = 2, [B_READ] = 1}},
	{"a half is unlocked", 2, .in_halves = 2, .budgets = {[B_FAR] = 1, [B_SHARED] = 2, [B_READ] = 2}},
	{"a lock is asked for once more", 2, .budgets = {[B_FAR] = 1, [B_SHARED] = 2, [B_RELOCK] = 1, [B_READ] = 2}},
	{"a lock for ever", 3, .for_ever = true, .budgets = {[B_FAR_FREE] = 2, [B_SHARED] = 1, [B_READ] = 1, [B_FREE_READ] = 1}},
	{"readers", 3, .budgets = {[B_FAR_FREE] = 2, [B_FAR_SAME] = 1, [B_FREE_READ] = 3}},
	{"attributes are set", 2, .budgets = {[B_FAR_FREE] = 1, [B_FREE_READ] = 1, [B_SET] = 2}},
	{"opens", 3, .budgets = {[B_FAR_FREE] = 1, [B_FREE_READ] = 1, [B_OPEN] = 2}},
	/* At random. */
	{"many holders", 3, .budgets = {[B_FAR] = 4, [B_FAR_FREE] = 1, [B_SHARED] = 5, [B_EXCLUSIVE] = 1, [B_RELOCK] = 1, [B_READ] = 8, [B_FREE_READ] = 2, [B_WRITE] = 2, [B_SET] = 2}},
	{"many holders, far", 3, .is_far = true, .budgets = {[B_FAR] = 4, [B_FAR_SAME] = 2, [B_SHARED] = 5, [B_EXCLUSIVE] = 1, [B_RELOCK] = 1, [B_READ] = 8, [B_FREE_READ] = 2, [B_WRITE] = 2, [B_SET] = 2}},
	{"many halves", 3, .in_halves = WHOLE, .budgets = {[B_FAR] = 4, [B_SHARED] = 5, [B_EXCLUSIVE] = 1, [B_RELOCK] = 1, [B_READ] = 8, [B_FREE_READ] = 2, [B_WRITE] = 2}},
};
/* clang-format on */
enum { SMALL = 13, CASES = sizeof(cases) / sizeof(cases[0]) };

/* Around the rules. */
static bool stores_anyway;  /* pages are handed over that were read before a drop */
static bool compares_known; /* at a grant, with what was replied last */
static bool sets_together;  /* the kernel asks for SETATTR before it has installed another */

/* ---- The world ----------------------------------------------------------------------- */

enum stage {
	IDLE,
	LOCKED, /* there; the daemon does not know */
	LOCK_LOOKED,
	LOCK_WAITS,
	LOCK_DROPS,
	LOCK_DROPPED,
	HOLDS,
	UNLOCKS, /* the daemon knows */
	RELOCKS,
	GETATTR_ASKED,
	GETATTR_LOOKED,
	GETATTR_REPLIED,
	GETATTR_INSTALLED, /* and the pages are not yet dropped */
	READ_BEGINS,
	READ_ASKED,
	READ_LOOKED,
	SET_ASKED,
	SET_DONE,
	SET_REPLIED,
	OPEN_ASKED,
	OPEN_LOOKED,
	OPEN_READ,
	OPEN_STORED,
	OPEN_DROPS,
	OPEN_REPLIED,
};
static const char *const stages[] = {"idle", "locked", "lock: looked", "lock: waits", "lock: drops",
	"lock: dropped", "holds", "unlocks", "relocks", "getattr: asked", "getattr: looked",
	"getattr: replied", "getattr: installed", "read: begins", "read: asked", "read: looked",
	"set: asked", "set: done", "set: replied", "open: asked", "open: looked", "open: read",
	"open: stored", "open: drops", "open: replied"};

struct state {
	uint8_t stamp; /* size and times */
	uint8_t mode;
};

struct program {
	uint8_t stage;
	uint8_t lock; /* halves, as bits */
	bool is_used, is_exclusive, may_be_wrong, changed, stored;
	bool is_void; /* the kernel will discard the reply */
	uint8_t what, reply, turn, least_stamp;
	struct state seen;
	uint8_t content[HALVES];
	uint64_t until_ns;
};

static struct world {
	struct drops drops;
	uint64_t now_ns;
	/* The workspace. */
	struct state there;
	uint8_t content[HALVES], stamps[HALVES]; /* of the last write to each */
	uint8_t far_lock;
	bool far_wrote, event;
	/* The daemon, and its thread. */
	struct state known, seen;
	uint8_t turn, thread, thread_what;
	/* The kernel. */
	struct state kernel;
	bool is_valid, has_pages;
	uint8_t pages[HALVES], reading; /* processes, as bits */
	struct program processes[PROCESSES];
	uint8_t budgets[B_COUNT];
} w;

enum { THREAD_IDLE, THREAD_LOOKED, THREAD_DROPS, THREAD_DROPPED };

struct action {
	uint8_t kind, process, arg;
};
enum action_kind {
	STEP, /* the next one of a process */
	LOCK,
	LOCK_EXCLUSIVELY,
	CUT,
	UNLOCK,
	RELOCK, /* exclusively */
	READ,
	WRITE,
	SET,
	OPEN,
	FAR_LOCK,
	FAR_WRITE,
	FAR_WRITE_SAME,
	FAR_UNLOCK,
	THREAD,
	TICK
};
static const char *const kinds[] = {"step", "lock", "lock exclusively", "unlock half", "unlock",
	"relock", "read", "write", "set", "open", "others lock", "others write",
	"others write in the same tick", "others unlock", "thread", "tick"};

static const struct world_case *config;
static struct inode *const inode = (struct inode *)&w; /* only compared */
static const char *broken;
static struct action actions[ACTIONS_MAX];
static int action_count;

static struct file_lock lock_of(unsigned process, unsigned halves)
{
	return (struct file_lock){.kind = LOCK_KIND_POSIX,
		.owner = process + 1,
		.offset = halves == 2,
		.length = halves == WHOLE ? 0 : 1};
}

/* ---- The kernel ---------------------------------------------------------------------- */

static void raise_version(void)
{
	for (int i = 0; i < PROCESSES; i++)
		w.processes[i].is_void = true;
}

static void kernel_drops(void)
{
	w.turn++;
	raise_version();
	w.is_valid = false;
}

static void kernel_installs(const struct state *state)
{
	w.kernel = *state;
	w.is_valid = true;
	raise_version();
}

static void end_read(struct program *p)
{
	p->stage = p->lock ? HOLDS : IDLE;
	if (!p->lock || p->may_be_wrong)
		return;
	if (w.kernel.stamp < p->least_stamp)
		broken = "a holder reads by the size of before";
	for (int half = 0; half < HALVES; half++)
		if ((p->lock & 1 << half) && w.pages[half] != w.content[half])
			broken = "a holder reads the content of before";
}

/* ---- The daemon ---------------------------------------------------------------------- */

static struct inode_version version_of(const struct state *state)
{
	return (struct inode_version){.size_bytes = state->stamp, .mode = state->mode + 1U};
}

/* `state`: that was looked at; NULL: none. */
static void want(bool pages, const struct state *state)
{
	const struct inode_version version = state ? version_of(state) : (struct inode_version){0};

	if (drops_want(&w.drops, inode, pages, &version, 0, w.now_ns) == DROPS_FULL)
		broken = "there is no room";
}

static void others_may_be_wrong(const struct program *p)
{
	for (int i = 0; i < PROCESSES; i++)
		if (&w.processes[i] != p && w.processes[i].lock)
			w.processes[i].may_be_wrong = true;
}

static void lock_step(struct program *p, unsigned number)
{
	const struct file_lock lock = lock_of(number, p->lock);
	const struct inode_version version = version_of(&p->seen);
	uint64_t due_ns = 0;

	switch (p->stage) {
	case LOCKED:
		p->seen = w.there;
		p->stage = LOCK_LOOKED;
		break;
	case LOCK_LOOKED:
		drops_lock(&w.drops, inode, &lock, w.now_ns);
		p->until_ns = w.now_ns + DROPS_LOCK_NS;
		p->stage = LOCK_WAITS;
		break;
	case LOCK_WAITS:
		if (drops_decide(&w.drops, inode, &lock, w.now_ns, &due_ns) ==
			DROPS_GRANT_NOTHING) {
			drops_granted(&w.drops, inode, &lock);
			p->stage = HOLDS;
			break;
		}
		want(config->is_far ||
				(compares_known ? p->seen.stamp != w.known.stamp
						: !drops_is_clean(&w.drops, inode, &version)),
			NULL);
		p->what = (uint8_t)drops_take(&w.drops, inode, DROPS_GRANT, w.now_ns, &due_ns);
		/* Not modelled: the holder of another part reads just now (COHERENCE.md). */
		if (config->in_halves)
			others_may_be_wrong(p);
		p->stage = LOCK_DROPS;
		break;
	case LOCK_DROPS:
		kernel_drops();
		p->stage = LOCK_DROPPED;
		break;
	case LOCK_DROPPED:
		if (p->what == DROP_PAGES)
			w.has_pages = false;
		drops_end(&w.drops, inode);
		drops_granted(&w.drops, inode, &lock);
		if (p->what == DROP_PAGES && !config->is_far)
			drops_clean(&w.drops, inode, &version);
		p->stage = HOLDS;
		break;
	case RELOCKS: /* lost there, before it is granted */
		p->lock = 0;
		p->stage = IDLE;
		break;
	default: /* UNLOCKS */
		p->lock = p->what;
		p->stage = p->lock ? HOLDS : IDLE;
	}
}

static void read_step(struct program *p, unsigned number)
{
	switch (p->stage) {
	case GETATTR_ASKED:
		p->seen = w.there;
		p->stage = GETATTR_LOOKED;
		break;
	case GETATTR_LOOKED:
		w.known = p->seen;
		p->stage = GETATTR_REPLIED;
		break;
	case GETATTR_REPLIED:
		p->stage = !p->is_void && p->seen.stamp != w.kernel.stamp ? GETATTR_INSTALLED
									  : READ_BEGINS;
		if (!p->is_void)
			kernel_installs(&p->seen);
		break;
	case GETATTR_INSTALLED:
		w.has_pages = false;
		p->stage = READ_BEGINS;
		break;
	case READ_BEGINS:
		if (w.has_pages) {
			end_read(p);
			break;
		}
		w.reading |= (uint8_t)(1 << number);
		p->stage = READ_ASKED;
		break;
	case READ_ASKED:
		memcpy(p->content, w.content, sizeof(w.content));
		p->stage = READ_LOOKED;
		break;
	default: /* READ_LOOKED */
		w.has_pages = true;
		w.reading &= (uint8_t) ~(1 << number);
		memcpy(w.pages, p->content, sizeof(w.pages));
		end_read(p);
	}
}

static void set_step(struct program *p)
{
	struct inode_version version;

	switch (p->stage) {
	case SET_ASKED:
		w.there.mode++;
		w.event = true;
		p->seen = w.there;
		p->stage = SET_DONE;
		break;
	case SET_DONE:
		w.known = p->seen;
		version = version_of(&p->seen);
		drops_replied(&w.drops, p->reply, inode, &version, w.now_ns);
		p->stage = SET_REPLIED;
		break;
	default:
		kernel_installs(&p->seen);
		p->stage = IDLE;
	}
}

static void open_step(struct program *p)
{
	uint64_t due_ns = 0;

	switch (p->stage) {
	case OPEN_ASKED:
		p->seen = w.there;
		p->stage = OPEN_LOOKED;
		break;
	case OPEN_LOOKED:
		p->changed = p->seen.stamp != w.known.stamp;
		w.known = p->seen;
		memcpy(p->content, w.content, sizeof(w.content));
		p->stage = OPEN_READ;
		break;
	case OPEN_READ:
		p->stored = p->turn == w.turn || stores_anyway;
		if (p->stored) {
			memcpy(w.pages, p->content, sizeof(w.pages));
			w.has_pages = true;
		}
		p->stage = OPEN_STORED;
		break;
	case OPEN_STORED:
		p->stage = OPEN_REPLIED;
		if (!p->changed)
			break;
		want(false, &p->seen);
		p->what = (uint8_t)drops_take(&w.drops, inode, DROPS_USUAL, w.now_ns, &due_ns);
		p->stage = p->what ? OPEN_DROPS : OPEN_REPLIED;
		break;
	case OPEN_DROPS:
		kernel_drops();
		if (p->what == DROP_PAGES)
			w.has_pages = false;
		drops_end(&w.drops, inode);
		p->stage = OPEN_REPLIED;
		break;
	default:
		if (p->changed && !p->stored)
			w.has_pages = false;
		p->stage = IDLE;
	}
}

static void thread_step(void)
{
	uint64_t due_ns = 0;
	enum drop_what what;

	switch (w.thread) {
	case THREAD_IDLE:
		if (drops_next(&w.drops, DROPS_USUAL, w.now_ns, &what, &due_ns)) {
			w.thread_what = (uint8_t)what;
			w.thread = THREAD_DROPS;
			break;
		}
		w.event = false;
		w.seen = w.there;
		w.thread = THREAD_LOOKED;
		break;
	case THREAD_LOOKED:
		want(true, &w.seen);
		w.known = w.seen;
		w.thread = THREAD_IDLE;
		break;
	case THREAD_DROPS:
		kernel_drops();
		w.thread = THREAD_DROPPED;
		break;
	default:
		if (w.thread_what == DROP_PAGES)
			w.has_pages = false;
		drops_end(&w.drops, inode);
		w.thread = THREAD_IDLE;
	}
}

/* ---- Actions ------------------------------------------------------------------------- */

static void add(enum action_kind kind, int process, unsigned arg)
{
	assert(action_count < ACTIONS_MAX);
	actions[action_count++] = (struct action){
		.kind = (uint8_t)kind, .process = (uint8_t)process, .arg = (uint8_t)arg};
}

static bool may_lock(const struct program *p, unsigned halves, bool exclusively)
{
	if (w.far_lock & halves)
		return false;
	for (int i = 0; i < PROCESSES; i++)
		if (&w.processes[i] != p && (w.processes[i].lock & halves) &&
			(exclusively || w.processes[i].is_exclusive))
			return false;
	return true;
}

/* The kernel lets one process at a time write, or set attributes. */
static bool is_set(void)
{
	for (int i = 0; i < PROCESSES; i++)
		if (w.processes[i].stage >= SET_ASKED && w.processes[i].stage <= SET_REPLIED)
			return true;
	return false;
}

/* When the next thing happens for which nothing but time is needed; 0: there is none. */
static uint64_t next_due(void)
{
	struct drops drops = w.drops;
	uint64_t due_ns = 0;
	enum drop_what what;

	drops_next(&drops, DROPS_USUAL, w.now_ns, &what, &due_ns);
	for (unsigned i = 0; i < PROCESSES; i++) {
		const struct file_lock lock = lock_of(i, w.processes[i].lock);

		if (w.processes[i].stage == LOCK_WAITS)
			drops_decide(&drops, inode, &lock, w.now_ns, &due_ns);
	}
	return due_ns > w.now_ns ? due_ns : 0;
}

static bool thread_may_step(void)
{
	struct drops drops = w.drops;
	uint64_t due_ns = 0;
	enum drop_what what;

	if (w.thread == THREAD_IDLE)
		return w.event || drops_next(&drops, DROPS_USUAL, w.now_ns, &what, &due_ns);
	return w.thread != THREAD_DROPPED || !(w.thread_what == DROP_PAGES) || !w.reading;
}

static bool may_step(const struct program *p, unsigned number)
{
	const struct file_lock lock = lock_of(number, p->lock);
	uint64_t due_ns = 0;

	switch (p->stage) {
	case LOCK_WAITS:
		return drops_decide(&w.drops, inode, &lock, w.now_ns, &due_ns) != DROPS_GRANT_WAITS;
	case LOCK_DROPPED:
		return !(p->what == DROP_PAGES) || !w.reading;
	case GETATTR_INSTALLED:
		return !w.reading;
	case READ_BEGINS:
		return w.has_pages || !w.reading;
	case OPEN_READ:
	case OPEN_DROPS:
	case OPEN_REPLIED:
		return !w.reading;
	default:
		return true;
	}
}

static void list_idle(int i)
{
	struct program *p = &w.processes[i];

	for (unsigned halves = 1; halves <= WHOLE; halves++) {
		if (halves != WHOLE && !(config->in_halves & halves))
			continue;
		if (w.budgets[B_SHARED] && may_lock(p, halves, false))
			add(LOCK, i, halves);
		if (w.budgets[B_EXCLUSIVE] && may_lock(p, halves, true))
			add(LOCK_EXCLUSIVELY, i, halves);
	}
	if (w.budgets[B_FREE_READ])
		add(READ, i, 0);
	if (w.budgets[B_SET] && (!is_set() || sets_together))
		add(SET, i, 0);
	if (w.budgets[B_OPEN])
		add(OPEN, i, 0);
}

static void list_holder(int i)
{
	const struct program *p = &w.processes[i];

	if (w.budgets[B_READ])
		add(READ, i, 0);
	if (w.budgets[B_WRITE] && p->is_exclusive && !w.reading && !is_set())
		add(WRITE, i, 0);
	if (config->in_halves && p->lock == WHOLE)
		add(CUT, i, 2);
	if (w.budgets[B_RELOCK])
		add(RELOCK, i, p->lock);
	if (!config->for_ever)
		add(UNLOCK, i, WHOLE);
}

static void list_far(void)
{
	unsigned held = 0;

	for (int i = 0; i < PROCESSES; i++)
		held |= w.processes[i].lock;
	if (w.far_lock)
		add(FAR_UNLOCK, 0, 0);
	for (unsigned halves = 1; !w.far_lock && halves <= WHOLE; halves++)
		if (w.budgets[B_FAR] && !(held & halves) &&
			(halves == WHOLE || (config->in_halves & halves)))
			add(FAR_LOCK, 0, halves);
	if (w.far_lock ? !w.far_wrote : w.budgets[B_FAR_FREE])
		add(FAR_WRITE, 0, 0);
	if (w.budgets[B_FAR_SAME] && (w.budgets[B_FAR_FREE] || w.far_lock))
		add(FAR_WRITE_SAME, 0, 0);
}

static void list_actions(void)
{
	bool waits = false;

	action_count = 0;
	for (int i = 0; i < PROCESSES; i++) {
		const struct program *p = &w.processes[i];

		/* Those who have done nothing yet are all the same. */
		if (p->stage == IDLE && i < config->processes &&
			(p->is_used || !i || p[-1].is_used))
			list_idle(i);
		else if (p->stage == IDLE)
			continue;
		else if (p->stage == HOLDS)
			list_holder(i);
		else if (may_step(p, (unsigned)i))
			add(STEP, i, 0);
		waits = waits || p->stage == SET_REPLIED;
	}
	list_far();
	if (thread_may_step())
		add(THREAD, 0, 0);
	/* A thread whose reply was written has run by then. */
	if (!waits && next_due())
		add(TICK, 0, 0);
}

static void write_half(int half)
{
	w.content[half]++;
	w.stamps[half] = w.there.stamp;
}

static void far_write(bool in_same_tick)
{
	unsigned halves = w.far_lock ? w.far_lock : WHOLE;

	if (in_same_tick)
		w.budgets[B_FAR_SAME]--;
	else
		w.there.stamp++;
	for (int half = 0; half < HALVES; half++)
		if (halves >> half & 1)
			write_half(half);
	w.event = true;
	w.far_wrote = true;
	if (w.far_lock)
		return;
	w.budgets[B_FAR_FREE]--;
	others_may_be_wrong(NULL);
}

static void own_write(struct program *p)
{
	bool is_new = w.kernel.stamp == w.there.stamp;

	w.budgets[B_WRITE]--;
	w.there.stamp++;
	for (int half = 0; half < HALVES; half++)
		if (p->lock >> half & 1) {
			write_half(half);
			w.pages[half] = w.content[half];
		}
	if (is_new)
		w.kernel.stamp = w.there.stamp;
	raise_version();
	w.is_valid = false;
	w.event = true;
	if (config->in_halves)
		others_may_be_wrong(p);
	p->least_stamp = is_new ? w.there.stamp : p->least_stamp;
}

static void tick(void)
{
	w.now_ns = next_due();
	/* Reads with locks are right for so long only. */
	for (int i = 0; i < PROCESSES; i++)
		if (w.processes[i].until_ns <= w.now_ns)
			w.processes[i].may_be_wrong = true;
	for (unsigned i = 0; i < w.drops.count; i++)
		if (w.drops.drops[i].wanted &&
			w.drops.drops[i].wanted_ns + DROPS_LOCK_NS <= w.now_ns)
			others_may_be_wrong(NULL);
}

static void begin_lock(struct program *p, unsigned halves, bool exclusively)
{
	w.budgets[exclusively ? B_EXCLUSIVE : B_SHARED]--;
	p->may_be_wrong = false;
	for (int i = 0; i < PROCESSES; i++)
		p->may_be_wrong =
			p->may_be_wrong || (w.processes[i].lock && w.processes[i].may_be_wrong);
	p->lock = (uint8_t)halves;
	p->is_exclusive = exclusively;
	p->least_stamp = 0;
	for (int half = 0; half < HALVES; half++)
		if ((halves >> half & 1) && w.stamps[half] > p->least_stamp)
			p->least_stamp = w.stamps[half];
	p->until_ns = UINT64_MAX;
	p->stage = LOCKED;
}

static void begin_read(struct program *p)
{
	w.budgets[p->lock ? B_READ : B_FREE_READ]--;
	p->is_void = false;
	p->stage = w.is_valid ? READ_BEGINS : GETATTR_ASKED;
}

static void begin_unlock(struct program *p, unsigned number, unsigned halves)
{
	const struct file_lock lock = lock_of(number, halves);

	drops_unlock(&w.drops, inode, &lock);
	p->what = (uint8_t)(p->lock & ~halves);
	p->stage = UNLOCKS;
}

static void step(const struct action *action)
{
	struct program *p = &w.processes[action->process];
	const struct file_lock lock = lock_of(action->process, p->lock);

	if (action->kind <= OPEN)
		p->is_used = true;
	if (action->kind >= LOCK && action->kind <= RELOCK)
		drops_installed(&w.drops, inode, action->process + 1);
	switch ((enum action_kind)action->kind) {
	case STEP:
		if (p->stage < GETATTR_ASKED)
			lock_step(p, action->process);
		else if (p->stage < SET_ASKED)
			read_step(p, action->process);
		else if (p->stage < OPEN_ASKED)
			set_step(p);
		else
			open_step(p);
		break;
	case LOCK:
	case LOCK_EXCLUSIVELY:
		begin_lock(p, action->arg, action->kind == LOCK_EXCLUSIVELY);
		break;
	case CUT:
	case UNLOCK:
		begin_unlock(p, action->process, action->arg);
		break;
	case RELOCK:
		w.budgets[B_RELOCK]--;
		w.budgets[B_EXCLUSIVE]++;
		drops_relock(&w.drops, inode, &lock);
		p->stage = RELOCKS;
		break;
	case READ:
		begin_read(p);
		break;
	case WRITE:
		own_write(p);
		break;
	case SET:
		w.budgets[B_SET]--;
		p->reply = (uint8_t)drops_reply(&w.drops, inode, action->process + 1);
		p->stage = SET_ASKED;
		break;
	case OPEN:
		w.budgets[B_OPEN]--;
		p->turn = w.turn;
		p->stage = OPEN_ASKED;
		break;
	case FAR_LOCK:
		w.budgets[B_FAR]--;
		w.far_lock = action->arg;
		w.far_wrote = false;
		break;
	case FAR_WRITE:
	case FAR_WRITE_SAME:
		far_write(action->kind == FAR_WRITE_SAME);
		break;
	case FAR_UNLOCK:
		w.far_lock = 0;
		break;
	case THREAD:
		thread_step();
		break;
	case TICK:
		tick();
		break;
	}
}

/* ---- Right or wrong ------------------------------------------------------------------ */

static void check_rest(void)
{
	for (int i = 0; i < PROCESSES; i++)
		if (w.processes[i].stage != IDLE &&
			!(config->for_ever && w.processes[i].stage == HOLDS))
			broken = "a process waits for ever";
	if (w.drops.count)
		broken = "a drop waits for ever";
	if (w.is_valid && memcmp(&w.kernel, &w.there, sizeof(w.there)) != 0)
		broken = "the kernel has the attributes of before";
	/* Attributes that are asked for are compared. */
	if (w.has_pages && w.kernel.stamp == w.there.stamp &&
		memcmp(w.pages, w.content, sizeof(w.pages)) != 0)
		broken = "the kernel has the pages of before";
}

/* ---- States -------------------------------------------------------------------------- */

static uint8_t bytes[1024];
static size_t byte_count;

static void put(const void *data, size_t size)
{
	assert(byte_count + size <= sizeof(bytes));
	memcpy(bytes + byte_count, data, size);
	byte_count += size;
}

static void put_number(uint64_t number)
{
	put(&number, sizeof(number));
}

/* Only how far away it is matters. */
static void put_time(uint64_t ns)
{
	put_number(ns <= w.now_ns || ns == UINT64_MAX ? (ns == UINT64_MAX) : ns - w.now_ns);
}

static void put_process(const struct program *p)
{
	put_number(
		p->stage | p->is_used << 7 | p->lock << 8 | p->is_exclusive << 10 |
		p->may_be_wrong << 11 | p->changed << 12 | p->stored << 13 | p->is_void << 14 |
		(p->turn == w.turn) << 15 | p->what << 16 |
		(uint64_t)(p->stage < SET_ASKED || p->stage >= SET_REPLIED ? 0 : p->reply) << 24 |
		(uint64_t)p->least_stamp << 32);
	put(&p->seen, sizeof(p->seen));
	put(p->content, sizeof(p->content));
	put_time(p->lock ? p->until_ns : 0);
}

static void put_version(const struct inode_version *version)
{
	put_number(version->size_bytes | (uint64_t)version->mode << 32);
}

static void put_drops(void)
{
	const struct drops *d = &w.drops;

	for (unsigned i = 0; i < d->count; i++) {
		put_number(d->drops[i].wanted | (uint64_t)d->drops[i].attributes_first << 7 |
			   d->drops[i].under_way << 8);
		put_version(&d->drops[i].version);
		put_time(d->drops[i].wanted ? d->drops[i].wanted_ns + DROPS_LOCK_NS : 0);
		put_time(d->drops[i].not_before_ns);
		put_time(d->drops[i].repeat_ns);
	}
	for (unsigned i = 0; i < DROPS_MAX; i++)
		put_version(&d->clean[i].version);
	put_number(d->held_count);
	for (unsigned i = 0; i < d->held_count; i++) {
		put_number(d->held[i].lock.owner | d->held[i].lock.offset << 8 |
			   d->held[i].lock.length << 9 | (uint64_t)d->held[i].is_ready << 10 |
			   (uint64_t)d->held[i].is_cut << 11);
		put_time(d->held[i].until_ns);
	}
	for (unsigned i = 0; i < DROPS_MAX; i++) {
		const struct reply *reply = &d->replies[i];

		if (!reply->inode) {
			put_number(0);
			continue;
		}
		put_number(reply->is_under_way | reply->is_overtaken << 1 |
			   (uint64_t)reply->caller << 2);
		put_version(&reply->version);
		put_time(reply->is_under_way ? 0 : reply->done_ns + DROPS_INSTALL_NS);
		put_time(reply->is_under_way ? 0 : reply->done_ns + DROPS_REPEAT_NS);
	}
}

static uint64_t state_hash(void)
{
	byte_count = 0;
	put_number(w.event | w.far_wrote << 1 | w.thread << 2 | w.thread_what << 4 |
		   w.is_valid << 6 | w.has_pages << 7 | w.reading << 8 | w.far_lock << 12);
	put(&w.there, sizeof(w.there));
	put(w.content, sizeof(w.content));
	put(w.stamps, sizeof(w.stamps));
	put(&w.known, sizeof(w.known));
	put(&w.seen, sizeof(w.seen));
	put(&w.kernel, sizeof(w.kernel));
	put(w.pages, sizeof(w.pages));
	put(w.budgets, sizeof(w.budgets));
	for (int i = 0; i < PROCESSES; i++)
		put_process(&w.processes[i]);
	put_drops();
	return XXH3_64bits(bytes, byte_count);
}

/* ---- Orders -------------------------------------------------------------------------- */

static struct action path[DEPTH_MAX];
static int depth;
static uint64_t states, rests;

/* The kernel has what is there. */
static void start(const struct world_case *c)
{
	memset(&w, 0, sizeof(w));
	config = c;
	broken = NULL;
	memcpy(w.budgets, c->budgets, sizeof(w.budgets));
	w.now_ns = 10 * DROPS_LOCK_NS;
	w.is_valid = w.has_pages = true;
}

static void list_or_check(void)
{
	list_actions();
	if (action_count)
		return;
	rests++;
	check_rest();
}

static void run_all(int level, uint64_t states_max)
{
	struct world saved = w;
	struct action here[ACTIONS_MAX];
	int count;

	assert(level < DEPTH_MAX);
	depth = level;
	list_or_check();
	count = action_count;
	memcpy(here, actions, sizeof(here[0]) * (size_t)count);
	for (int i = 0; i < count && !broken && states < states_max; i++) {
		path[level] = here[i];
		depth = level + 1;
		step(&here[i]);
		if (!broken && seen_add(state_hash())) {
			states++;
			run_all(level + 1, states_max);
		}
		if (!broken)
			w = saved;
	}
}

static void run_case(const struct world_case *c, uint64_t states_max)
{
	states = rests = 0;
	start(c);
	run_all(0, states_max);
	seen_clear();
}

/* The finalizer of splitmix64. */
static uint64_t mixed(uint64_t number)
{
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
	number = (number ^ number >> 27) * 0x94d049bb133111eb;
	return number ^ number >> 31;
}

static void run_random(uint64_t seed)
{
	uint64_t random = seed << 20;

	start(&cases[seed % CASES]);
	for (depth = 0; !broken; depth++) {
		list_or_check();
		if (!action_count)
			return;
		assert(depth < DEPTH_MAX);
		path[depth] = actions[mixed(++random) % (uint64_t)action_count];
		step(&path[depth]);
		states++;
	}
}

static void report(void)
{
	if (!broken)
		return;
	fprintf(stderr, "%s: %s, after these steps:\n", config->name, broken);
	start(config);
	for (int i = 0; i < depth; i++) {
		const struct action *action = &path[i];

		step(action);
		fprintf(stderr, "  %s", kinds[action->kind]);
		if (action->kind <= OPEN)
			fprintf(stderr, " %d %d -> %s", action->process, action->arg,
				stages[w.processes[action->process].stage]);
		fprintf(stderr, "\n");
	}
}

/* ---- The tests ----------------------------------------------------------------------- */

static void test_all_orders_of_small_cases_are_right(void)
{
	for (int i = 0; i < SMALL; i++) {
		run_case(&cases[i], STATES_MAX);
		printf("%s: %llu states\n", cases[i].name, (unsigned long long)states);
		CHECK(!broken);
		report();
		CHECK(states < STATES_MAX || IS_SLOW);
		CHECK(rests > 0 || IS_SLOW);
	}
}

static void test_random_schedules_are_right(void)
{
	const char *seconds = getenv("DROPS_SECONDS");
	time_t end = time(NULL) + (seconds ? atoi(seconds) : 0);
	uint64_t seed = seconds ? (uint64_t)time(NULL) << 24 : 1, count = 0;

	states = rests = 0;
	broken = NULL;
	while (!broken && (seconds ? time(NULL) < end : count < SCHEDULES)) {
		run_random(seed++);
		count++;
	}
	CHECK(!broken);
	report();
	printf("%llu schedules, %llu states\n", (unsigned long long)count,
		(unsigned long long)states);
}

static void check_is_found(const char *what)
{
	broken = NULL;
	for (uint64_t seed = 0; seed < SCHEDULES_OF_MUTANT && !broken; seed++)
		run_random(seed);
	for (int i = 0; i < SMALL && !broken; i++)
		run_case(&cases[i], STATES_OF_MUTANT);
	printf("%s: %s: %s\n", what, config->name, broken ? broken : "NOT FOUND");
	CHECK(broken);
}

static void test_each_rule_is_needed(void)
{
	static const char *const rules[] = {
#define X(name) #name,
		DROPS_RULES(X)
#undef X
	};

	for (int rule = 0; rule < DROPS_RULE_COUNT; rule++) {
		drops_rule_off = (enum drops_rule)rule;
		check_is_found(rules[rule]);
	}
	drops_rule_off = DROPS_RULE_COUNT;
	stores_anyway = true;
	check_is_found("pages of before are handed over");
	stores_anyway = false;
	compares_known = true;
	check_is_found("the pages stay if the file is as it was known");
	compares_known = false;
	sets_together = true;
	check_is_found("attributes are set together");
	sets_together = false;
}

/* As tar does: the owner, the mode and the times of one file. */
static void test_nothing_is_repeated_for_replies_that_are_installed(void)
{
	struct drops drops = {0};
	struct inode_version version = {.mode = 1};
	uint64_t now_ns = 10 * DROPS_LOCK_NS, due_ns = 0;

	for (int i = 0; i < 3; i++) {
		unsigned number = drops_reply(&drops, inode, 1);

		version.mode++;
		drops_replied(&drops, number, inode, &version, now_ns);
	}
	CHECK_RC(DROPS_NEW, drops_want(&drops, inode, true, &version, 0, now_ns));
	CHECK_RC(DROP_PAGES, drops_take(&drops, inode, DROPS_USUAL, now_ns, &due_ns));
	CHECK(drops_end(&drops, inode));
	CHECK(due_ns == 0);
}

/* Pages wait for the end of a map that is being written, whatever is found meanwhile. */
static void test_attributes_do_not_hurry_the_pages(void)
{
	struct drops drops = {0};
	const struct inode_version version = {.mode = 1};
	uint64_t now_ns = 10 * DROPS_LOCK_NS, later_ns = now_ns + 80000000, due_ns = 0;

	CHECK_RC(DROPS_NEW, drops_want(&drops, inode, true, &version, later_ns, now_ns));
	CHECK_RC(DROP_NOTHING, drops_take(&drops, inode, DROPS_USUAL, now_ns, &due_ns));
	CHECK(due_ns == later_ns);
	CHECK_RC(DROPS_KNOWN, drops_want(&drops, inode, false, &version, 0, now_ns));
	CHECK_RC(DROP_ATTRIBUTES, drops_take(&drops, inode, DROPS_USUAL, now_ns, &due_ns));
	CHECK(!drops_end(&drops, inode));
	CHECK_RC(DROP_NOTHING, drops_take(&drops, inode, DROPS_USUAL, now_ns, &due_ns));
	CHECK_RC(DROP_PAGES, drops_take(&drops, inode, DROPS_USUAL, later_ns, &due_ns));
	CHECK(drops_end(&drops, inode));
}

int main(void)
{
	static const struct test_case tests[] = {
		TEST(test_random_schedules_are_right),
		TEST(test_all_orders_of_small_cases_are_right),
		TEST(test_each_rule_is_needed),
		TEST(test_nothing_is_repeated_for_replies_that_are_installed),
		TEST(test_attributes_do_not_hurry_the_pages),
	};

	return test_run("drops orders", tests, getenv("DROPS_SECONDS") ? 1 : array_size(tests));
}
