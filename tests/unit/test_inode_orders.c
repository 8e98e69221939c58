/*
 * The names of fs/inode/ and what fs/edge/invalidate.c tells the kernel of them, in a played world:
 * a workspace with its helper, the daemon's requests step by step, and a kernel with entries, locks
 * of directories, lookups, revalidations, changes and forgets.  All orders of small cases, then
 * random schedules of larger ones.  Each rule is switched off in turn, and each mistake made around
 * them: that must be found.
 *
 *   INODE_SECONDS=N  random schedules for so long, from a random seed on, and nothing else
 *   INODE_SEED=N     the first seed; a failure prints its own
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/edge/dropper.h"
#include "fs/inode/inode_internal.h"
#include "fs/inode/inode_rules.h"
#include "fs/edge/invalidate_internal.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "tests/check.h"
#include "tests/unit/arena.h"
#include "tests/unit/orders.h"
#include "tests/unit/seen.h"

#ifdef IS_SANITIZED
enum { STATES_MAX = 3000, SCHEDULES = 5000, IS_SLOW = 1 };
#else
enum { STATES_MAX = 2000000, SCHEDULES = 100000, IS_SLOW = 0 };
#endif
enum { STATES_OF_MUTANT = 200000, SCHEDULES_FIRST = 5000, SCHEDULES_OF_MUTANT = 40000 };

enum {
	DIRECTORIES = 2, /* objects 1 (the root) and 2 have names in them */
	NAMES = 2,
	OBJECTS = 12,
	INODES = 14,
	ENTRIES = 12,
	CALLS = 3,
	MESSAGES = 12,
	NOTICES = 24,
	NONE = 255,
};

/* ---- Cases --------------------------------------------------------------------------- */

/* How often each may happen in one schedule. */
enum budget {
	B_CHANGE,  /* others make a file, or remove what is there */
	B_DIR,     /* others make a directory */
	B_RENAME,  /* others rename, over what is there, or exchange */
	B_DROP,    /* an event of that is lost */
	B_UNWATCH, /* the helper loses a watch */
	B_LOOKUP,
	B_LIST,
	B_WATCH,
	B_OWN, /* the kernel makes or removes a name */
	B_OWN_DIR,
	B_OWN_RENAME,
	B_FORGET, /* the kernel drops an entry, or forgets an inode */
	B_COUNT
};

struct world_case {
	const char *name;
	uint8_t directories, names; /* 1 or 2 */
	bool is_cold;               /* nothing is watched yet */
	uint8_t budgets[B_COUNT];
	bool has_two; /* files, from the beginning on */
};

/* clang-format off */
static const struct world_case cases[] = {
	/* Small enough for all orders. */
	{"one name", 1, 1, false, {[B_CHANGE] = 2, [B_LOOKUP] = 2}},
	{"own change", 1, 1, false, {[B_CHANGE] = 1, [B_OWN] = 1, [B_LOOKUP] = 1}},
	{"two own changes", 1, 1, false, {[B_OWN] = 2, [B_LOOKUP] = 1}},
	{"a directory comes and goes", 1, 1, false, {[B_CHANGE] = 1, [B_DIR] = 1, [B_LOOKUP] = 2}},
	{"two names renamed", 1, 2, false, {[B_RENAME] = 1, [B_LOOKUP] = 2}},
	{"own rename", 1, 2, false, {[B_OWN_RENAME] = 1, [B_LOOKUP] = 1}},
	{"both rename", 1, 2, false, {[B_RENAME] = 1, [B_OWN_RENAME] = 1}},
	{"a directory moves", 2, 2, false, {[B_RENAME] = 1, [B_LOOKUP] = 1}},
	{"an own directory moves", 2, 1, false, {[B_OWN_RENAME] = 1, [B_LOOKUP] = 1, [B_UNWATCH] = 1}},
	{"watch ends and begins", 1, 1, false, {[B_CHANGE] = 1, [B_UNWATCH] = 1, [B_WATCH] = 1, [B_LOOKUP] = 1}},
	{"watch begins", 1, 1, true, {[B_CHANGE] = 1, [B_UNWATCH] = 1, [B_WATCH] = 2, [B_LOOKUP] = 2}},
	{"loss", 1, 1, false, {[B_CHANGE] = 2, [B_DROP] = 1, [B_LOOKUP] = 1}},
	{"listing", 1, 2, false, {[B_CHANGE] = 1, [B_LIST] = 1, [B_LOOKUP] = 1}},
	{"forgotten", 1, 1, false, {[B_CHANGE] = 1, [B_LOOKUP] = 2, [B_FORGET] = 2}},
	{"looked for again", 1, 1, false, {[B_CHANGE] = 2, [B_LOOKUP] = 2, [B_FORGET] = 1}},
	{"exchanged and back", 1, 2, false, {[B_RENAME] = 2, [B_LOOKUP] = 1, [B_FORGET] = 1}, .has_two = true},
	/* At random. */
	{"many changes of a name", 1, 1, false, {[B_CHANGE] = 3, [B_OWN] = 2, [B_LOOKUP] = 3}},
	{"changes and renames", 1, 2, false, {[B_CHANGE] = 1, [B_RENAME] = 1, [B_OWN] = 1, [B_OWN_RENAME] = 1, [B_LOOKUP] = 3}},
	{"directories move", 2, 2, false, {[B_DIR] = 1, [B_RENAME] = 2, [B_OWN_RENAME] = 1, [B_LOOKUP] = 3, [B_UNWATCH] = 1, [B_FORGET] = 1}},
	{"watches", 1, 1, true, {[B_CHANGE] = 2, [B_UNWATCH] = 2, [B_WATCH] = 2, [B_LOOKUP] = 3, [B_LIST] = 1}},
	{"losses", 2, 2, false, {[B_CHANGE] = 2, [B_DROP] = 1, [B_WATCH] = 1, [B_LOOKUP] = 3, [B_OWN] = 1}},
	{"listings", 1, 2, false, {[B_CHANGE] = 2, [B_RENAME] = 1, [B_LIST] = 2, [B_LOOKUP] = 1, [B_OWN] = 1}},
	{"everything", 2, 2, false, {[B_CHANGE] = 3, [B_DIR] = 1, [B_RENAME] = 2, [B_DROP] = 1, [B_UNWATCH] = 1,
		[B_LOOKUP] = 4, [B_LIST] = 1, [B_WATCH] = 2, [B_OWN] = 2, [B_OWN_DIR] = 1, [B_OWN_RENAME] = 2, [B_FORGET] = 2}},
};
/* clang-format on */
enum { SMALL = 16, CASES = sizeof(cases) / sizeof(cases[0]) };

/* Of the helper, and of the daemon around the table, which must be found too. */
enum mistake {
	MISTAKE_NONE,
	MISTAKE_NUMBER_AFTER_LOOK,
	MISTAKE_LOSSES_LATE,
	MISTAKE_RENAME_IS_A_LOOK,
	MISTAKE_COUNT
};
static const char *const mistakes[MISTAKE_COUNT] = {
	[MISTAKE_NUMBER_AFTER_LOOK] = "the position is drawn after the look",
	[MISTAKE_RENAME_IS_A_LOOK] = "what a rename left has the position of its reply",
	[MISTAKE_LOSSES_LATE] = "the ends of watches are counted after the watch began",
};
static enum mistake mistake;

static const char *const names[NAMES] = {"a", "b"};

/* ---- The world ----------------------------------------------------------------------- */

enum message_kind { M_ENTRY, M_END, M_LOSS };
struct message {
	uint8_t kind, d, n, object;
	uint64_t at;
};

enum call_kind { C_FREE, C_FRESH, C_REVALIDATE, C_LIST, C_WATCH, C_OWN };
enum own_kind { O_MAKE, O_MAKE_DIR, O_REMOVE, O_RENAME, O_SWAP };
/* What a call waits for: the daemon, the helper's number (own: the change before), its look, its
 * reply, the daemon's answer, the kernel's thread. */
enum stage { S_SENT, S_BEGUN, S_CHANGED, S_NUMBERED, S_LOOKED, S_WATCHED, S_ANSWERED };

struct found {
	struct inode *inode; /* entered; NULL: nothing */
	uint8_t object;
	bool is_valid;
};

struct call {
	uint8_t kind, stage, own;
	uint8_t in, n, to_in, to_n; /* the kernel's inodes of directories, and names */
	uint8_t entry;              /* C_REVALIDATE: its number */
	uint8_t path, to_path;      /* name of directory 2 in the root by which it is looked for */
	uint8_t renames;            /* of our own, before the path was made */
	uint8_t looked[NAMES];      /* objects; without C_LIST: the first */
	uint8_t moved, replaced;    /* own rename: objects, before it */
	bool has_failed, is_stale;
	bool is_told;        /* own rename: both names were looked at, and are as it left them */
	struct inode *known; /* own: what was at the name; with a reference */
	uint32_t changes, losses;
	uint64_t at, before; /* of a look; before an own change */
	struct found found[NAMES];
	struct own_change own_changes[2];
};

static struct world {
	/* The workspace and the helper. */
	uint8_t at[DIRECTORIES][NAMES]; /* objects; 0: none */
	uint8_t next_object;
	uint16_t directories; /* objects that are, as bits */
	bool watched[DIRECTORIES], ignored[DIRECTORIES], pending[DIRECTORIES][NAMES], overflow;
	struct {
		bool is_under_way, is_looked;
		uint8_t d, n, object;
		uint64_t at;
	} event;
	uint64_t drawn;
	/* The way. */
	uint8_t message_count;
	struct message messages[MESSAGES];
	struct call calls[CALLS];
	uint8_t renames;
	/* The kernel. */
	struct kernel_inode {
		struct inode *inode; /* NULL: free */
		uint8_t object;
		uint32_t lookups;
	} inodes[INODES];
	struct entry {
		uint8_t number; /* 0: free */
		uint8_t in, n;
		uint8_t inode; /* NONE: nothing is there */
		bool is_valid; /* it may be used without asking */
	} entries[ENTRIES];
	uint8_t next_entry;
	struct {
		uint8_t in, n;
	} notices[NOTICES];
	uint8_t notice_count;
	uint8_t seconds;
	/* To be checked. */
	struct {
		const struct inode *inode;
		uint64_t at;
	} last[INODES][NAMES];
	uint8_t budgets[B_COUNT];
} w;

static const struct world_case *config;
static struct mount_options options;
static struct mount mount;
static struct session session;
static struct inode_table *table;
static struct invalidator *invalidator;
static uint64_t rests, held_names; /* for the tests: that it is not right by asking always */

#define HOLDS(condition, text)             \
	do {                               \
		if (!(condition))          \
			orders_fail(text); \
	} while (0)

/* ---- What the linker puts in other places -------------------------------------------- */

/* NOLINTBEGIN */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_hash_table_init(struct hash_table *to);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	(void)clock;
	*ret_now = (struct timespec){.tv_sec = 10 + 2 * w.seconds};
	return 0;
}

/* Small ones, as they are copied all the time. */
int __wrap_hash_table_init(struct hash_table *to)
{
	return hash_table_init_small(to);
}
/* NOLINTEND */

static uint8_t kernel_inode_of(const struct inode *inode)
{
	for (uint8_t i = 0; i < INODES; i++)
		if (w.inodes[i].inode == inode)
			return i;
	return NONE;
}

/* Sent, and to be done by the kernel. */
static int notify(fuse_ino_t in, const char *name)
{
	const uint8_t i = kernel_inode_of((const struct inode *)(uintptr_t)in);

	if (i == NONE)
		return -ENOENT;
	assert(w.notice_count < NOTICES);
	w.notices[w.notice_count].in = i;
	w.notices[w.notice_count++].n = name[0] == 'b';
	return 0;
}

int fuse_lowlevel_notify_inval_entry(
	struct fuse_session *fuse, fuse_ino_t in, const char *name, size_t length)
{
	(void)fuse;
	(void)length;
	return notify(in, name);
}

#if FUSE_VERSION < 316
int fuse_lowlevel_notify_expire_entry(struct fuse_session *fuse, fuse_ino_t in, const char *name,
	size_t length, enum fuse_expire_flags flags)
{
	(void)fuse;
	(void)length;
	(void)flags;
	return notify(in, name);
}
#else
int fuse_lowlevel_notify_expire_entry(
	struct fuse_session *fuse, fuse_ino_t in, const char *name, size_t length)
{
	(void)fuse;
	(void)length;
	return notify(in, name);
}
#endif

fuse_ino_t session_ino(struct session *s, const struct inode *inode)
{
	(void)s;
	return (fuse_ino_t)(uintptr_t)inode;
}

int dropper_drop(
	struct dropper *d, struct inode *inode, bool pages, const struct inode_version *found)
{
	(void)d;
	(void)pages;
	(void)found;
	return kernel_inode_of(inode) == NONE ? -ENOENT : 0;
}

int dropper_drop_foreign(struct dropper *d, struct inode *inode, const struct inode_version *found)
{
	return dropper_drop(d, inode, true, found);
}

void dropper_drain(struct dropper *d)
{
	(void)d;
}

int dropper_catch_up(struct dropper *d, struct op_context *ctx)
{
	(void)d;
	(void)ctx;
	return 0;
}

bool mount_note_change(struct mount *m, const char *path, uint32_t own_age_ms, uint64_t at)
{
	(void)m;
	(void)at;
	(void)path;
	(void)own_age_ms;
	return true;
}

/* ---- The workspace ------------------------------------------------------------------- */

static bool is_directory(uint8_t object)
{
	return w.directories >> object & 1;
}

static struct attributes attributes_of(uint8_t object)
{
	return (struct attributes){.id = {.inode = object},
		.mode = is_directory(object) ? S_IFDIR | 0755 : S_IFREG | 0644,
		.nlink = is_directory(object) ? 2 : 1};
}

static uint8_t object_new(bool is_dir)
{
	assert(w.next_object < OBJECTS);
	if (is_dir)
		w.directories |= (uint16_t)(1 << w.next_object);
	return w.next_object++;
}

static void changed(uint8_t d, uint8_t n, bool dropped)
{
	if (!w.watched[d])
		return;
	if (dropped)
		w.overflow = true;
	else
		w.pending[d][n] = true;
}

static void place_set(uint8_t d, uint8_t n, uint8_t object, bool dropped)
{
	w.at[d][n] = object;
	changed(d, n, dropped);
}

/* Whether a rename of what is at one name to another can be. */
static bool may_move(uint8_t d, uint8_t n, uint8_t to_d, uint8_t to_n, bool swap)
{
	const uint8_t from = w.at[d][n], to = w.at[to_d][to_n];

	if (from == 0 || (swap && to == 0) || (d == to_d && n == to_n))
		return false;
	if ((from == 2 && to_d == 1) || (to == 2 && (d == 1 || !swap)))
		return false;
	return swap || to == 0 || is_directory(from) == is_directory(to);
}

static void place_move(uint8_t d, uint8_t n, uint8_t to_d, uint8_t to_n, bool swap, bool dropped)
{
	const uint8_t from = w.at[d][n], to = w.at[to_d][to_n];

	w.at[to_d][to_n] = from;
	w.at[d][n] = swap ? to : 0;
	changed(d, n, dropped);
	changed(to_d, to_n, dropped);
}

/* The directory that is at a path of the daemon's: the root, or what has a name there; NONE: not
 * the one that it means. */
static uint8_t resolve(uint8_t in, uint8_t path)
{
	if (w.inodes[in].object == 1)
		return 0;
	return path < NAMES && w.at[0][path] == 2 ? 1 : NONE;
}

static void send(enum message_kind kind, uint8_t d, uint8_t n, uint8_t object, uint64_t at)
{
	assert(w.message_count < MESSAGES);
	w.messages[w.message_count++] =
		(struct message){.kind = kind, .d = d, .n = n, .object = object, .at = at};
}

/* ---- The kernel ---------------------------------------------------------------------- */

static struct entry *entry_at(uint8_t in, uint8_t n)
{
	for (int i = 0; i < ENTRIES; i++)
		if (w.entries[i].number && w.entries[i].in == in && w.entries[i].n == n)
			return &w.entries[i];
	return NULL;
}

static struct entry *entry_of_number(uint8_t number)
{
	assert(number);
	for (int i = 0; i < ENTRIES; i++)
		if (w.entries[i].number == number)
			return &w.entries[i];
	return NULL;
}

static void entry_drop(struct entry *e)
{
	*e = (struct entry){0};
}

/* A reply brought a lookup of it. */
static uint8_t kernel_inode_get(const struct found *found)
{
	uint8_t i = kernel_inode_of(found->inode);

	for (i = i == NONE ? 0 : i; w.inodes[i].inode && w.inodes[i].inode != found->inode;)
		i++;
	assert(i < INODES);
	w.inodes[i].inode = found->inode;
	w.inodes[i].object = found->object;
	w.inodes[i].lookups++;
	return i;
}

static void entry_make(uint8_t in, uint8_t n, uint8_t inode, bool is_valid)
{
	struct entry *e = entry_at(in, n);

	if (e && e->inode != inode)
		entry_drop(e);
	/* A directory has one entry: the kernel moves it, if it is not in another one. */
	for (int i = 0; i < ENTRIES && inode != NONE && is_directory(w.inodes[inode].object); i++) {
		struct entry *other = &w.entries[i];

		if (!other->number || other->inode != inode || other == e)
			continue;
		HOLDS(other->in == in, "ESTALE: the kernel has the directory in another one");
		entry_drop(other);
	}
	for (e = entry_at(in, n); !e; e = entry_at(in, n)) {
		struct entry *free_one = w.entries;

		while (free_one->number)
			free_one++;
		assert(free_one < w.entries + ENTRIES);
		*free_one =
			(struct entry){.number = ++w.next_entry, .in = in, .n = n, .inode = inode};
	}
	e->is_valid = is_valid;
}

/* A first lookup and a listing have the directory locked, so that it is not changed; a change of
 * ours has it alone. */
static bool is_locked(uint8_t in, bool also_shared)
{
	for (int i = 0; i < CALLS; i++) {
		const struct call *c = &w.calls[i];

		if (c->kind == C_OWN && (c->in == in || (c->own >= O_RENAME && c->to_in == in)))
			return true;
		if (also_shared && (c->kind == C_FRESH || c->kind == C_LIST) && c->in == in)
			return true;
	}
	return false;
}

static void forget_found(const struct found *found)
{
	if (found->inode)
		inode_table_forget(table, found->inode, 1);
}

static void install_found(const struct call *c, uint8_t n, const struct found *found)
{
	entry_make(c->in, n, found->inode ? kernel_inode_get(found) : NONE, found->is_valid);
}

static void install_revalidation(const struct call *c)
{
	struct entry *e = entry_of_number(c->entry);

	if (!e) {
		forget_found(&c->found[0]);
		return;
	}
	if (c->found[0].inode && e->inode != NONE &&
		w.inodes[e->inode].inode == c->found[0].inode) {
		kernel_inode_get(&c->found[0]);
		e->is_valid = c->found[0].is_valid;
		return;
	}
	forget_found(&c->found[0]);
	entry_drop(e);
}

static void install_rename(const struct call *c)
{
	struct entry *from = entry_at(c->in, c->n), *to = entry_at(c->to_in, c->to_n);

	if (to && c->own == O_SWAP) {
		to->in = c->in;
		to->n = c->n;
	} else if (to) {
		entry_drop(to);
	}
	if (from) {
		from->in = c->to_in;
		from->n = c->to_n;
	}
}

static void install(const struct call *c)
{
	struct entry *e;

	if (c->has_failed || c->is_stale) {
		e = c->kind == C_REVALIDATE ? entry_of_number(c->entry) : NULL;
		if (e)
			entry_drop(e);
		return;
	}
	if (c->kind == C_REVALIDATE)
		install_revalidation(c);
	else if (c->kind == C_FRESH || (c->kind == C_OWN && c->own <= O_MAKE_DIR))
		install_found(c, c->n, &c->found[0]);
	else if (c->kind == C_OWN && c->own == O_REMOVE && (e = entry_at(c->in, c->n)))
		entry_drop(e);
	else if (c->kind == C_OWN && c->own >= O_RENAME)
		install_rename(c);
	for (uint8_t n = 0; n < NAMES && c->kind == C_LIST; n++)
		if (c->found[n].inode)
			install_found(c, n, &c->found[n]);
}

static void do_notice(void)
{
	struct entry *e = entry_at(w.notices[0].in, w.notices[0].n);

	if (e)
		e->is_valid = false;
	w.notice_count--;
	memmove(&w.notices[0], &w.notices[1], w.notice_count * sizeof(w.notices[0]));
	memset(&w.notices[w.notice_count], 0, sizeof(w.notices[0]));
	invalidator->busy = w.notice_count;
}

static void forget_inode(uint8_t i)
{
	uint8_t kept = 0;

	for (uint8_t k = 0; k < w.notice_count; k++)
		if (w.notices[k].in != i)
			w.notices[kept++] = w.notices[k];
	memset(&w.notices[kept], 0, (size_t)(w.notice_count - kept) * sizeof(w.notices[0]));
	w.notice_count = kept;
	invalidator->busy = kept;
	inode_table_forget(table, w.inodes[i].inode, w.inodes[i].lookups);
	memset(&w.inodes[i], 0, sizeof(w.inodes[i]));
	memset(&w.last[i], 0, sizeof(w.last[i]));
}

/* ---- The daemon ---------------------------------------------------------------------- */

/* As request_locate_entry().  False: it has no path. */
static bool locate(uint8_t in, uint8_t *ret_path)
{
	struct path_string path;

	if (inode_table_path(table, w.inodes[in].inode, NULL, &path) < 0)
		return false;
	*ret_path = path.path[0] == 'b';
	path_string_done(&path);
	return true;
}

/* As reply_found() and session_enter(). */
static void enter(struct call *c, struct inode *in, bool checks_changes)
{
	const struct attributes a = attributes_of(c->looked[0]);
	struct inode_note note;

	if (inode_table_enter(table, in, names[c->n], &a, c->at, &c->found[0].inode, &note) < 0) {
		c->has_failed = true;
		return;
	}
	if (note.superseded)
		invalidator_superseded(invalidator, note.superseded);
	if (note.is_another || (note.was_missing && c->kind != C_OWN)) /* or reply_entry() */
		invalidator_another(invalidator, in, names[c->n]);
	c->found[0].object = c->looked[0];
	c->found[0].is_valid = !note.is_old && inode_lifetime(in) == LIFETIME_WATCHED &&
			       (!checks_changes || inode_changes(in) == c->changes);
}

static void answer_lookup(struct call *c, struct inode *in)
{
	if (c->looked[0])
		enter(c, in, true);
	else
		c->found[0].is_valid = inode_table_missing(table, in, names[c->n], c->changes,
					       c->at) == LIFETIME_WATCHED;
}

/* As read_entries(), and then add_entry() for each. */
static void answer_listing(struct call *c, struct inode *in)
{
	for (uint8_t n = 0; n < NAMES; n++) {
		const struct attributes a = attributes_of(c->looked[n]);
		struct found *found = &c->found[n];
		struct inode_note note;

		if (!c->looked[n] || inode_table_enter_listed(table, in, names[n], &a, c->at,
					     c->changes, &found->inode, &note) < 0)
			continue;
		if (note.superseded)
			invalidator_superseded(invalidator, note.superseded);
		if (note.is_another)
			invalidator_another(invalidator, in, names[n]);
		found->object = c->looked[n];
		found->is_valid = !note.is_old && inode_lifetime(in) == LIFETIME_WATCHED;
	}
}

static void answer_own(struct call *c, struct inode *in)
{
	if (!c->has_failed && c->own <= O_MAKE_DIR)
		enter(c, in, false);
	else if (!c->has_failed && c->own == O_REMOVE)
		inode_table_removed(table, in, names[c->n], c->at);
	else if (!c->has_failed)
		inode_table_renamed(table, in, names[c->n], w.inodes[c->to_in].inode,
			names[c->to_n], c->known, c->own == O_SWAP,
			c->is_told || mistake == MISTAKE_RENAME_IS_A_LOOK ? c->at : c->before);
	w.renames += c->own >= O_RENAME;
	inode_table_unref(table, c->known);
	c->known = NULL;
	invalidator_own_end(invalidator, &c->own_changes[0]);
	if (c->own >= O_RENAME)
		invalidator_own_end(invalidator, &c->own_changes[1]);
}

static void begin(struct call *c)
{
	struct inode *in = w.inodes[c->in].inode;

	c->changes = inode_changes(in);
	c->losses = inode_table_watch_losses(table, in);
	c->renames = w.renames;
	c->stage = S_BEGUN;
	if (!locate(c->in, &c->path) ||
		(c->kind == C_OWN && c->own >= O_RENAME && !locate(c->to_in, &c->to_path))) {
		c->has_failed = c->kind == C_OWN;
		c->is_stale = !c->has_failed;
		c->stage = S_LOOKED;
		return;
	}
	if (c->kind == C_OWN && c->own >= O_REMOVE)
		c->known = inode_table_child(table, in, names[c->n]);
	c->before = inode_table_position(table);
}

static void answer(struct call *c)
{
	struct inode *in = w.inodes[c->in].inode;

	/* request_retry() */
	if (c->is_stale && c->renames != w.renames) {
		c->is_stale = false;
		c->stage = S_SENT;
		return;
	}
	c->stage = S_ANSWERED;
	if (c->kind == C_OWN)
		answer_own(c, in);
	else if (c->is_stale)
		return;
	else if (c->kind <= C_REVALIDATE)
		answer_lookup(c, in);
	else if (c->kind == C_LIST)
		answer_listing(c, in);
}

/* ---- The helper ---------------------------------------------------------------------- */

static void make_own(struct call *c, uint8_t d, uint8_t to_d)
{
	const uint8_t known = c->known ? (uint8_t)c->known->number : 0;
	uint8_t at;

	c->stage = S_CHANGED;
	c->has_failed = d == NONE || (c->own >= O_RENAME && to_d == NONE);
	if (c->has_failed)
		return;
	at = w.at[d][c->n];
	if (c->own <= O_MAKE_DIR) {
		c->has_failed = at != 0;
		if (!at)
			place_set(d, c->n, object_new(c->own == O_MAKE_DIR), false);
	} else if (c->own == O_REMOVE) { /* whatever has the name by now: remove_known() */
		c->has_failed =
			at == 0 || at == 2 || (known && is_directory(known) != is_directory(at));
		if (!c->has_failed)
			place_set(d, c->n, 0, false);
	} else {
		c->has_failed = (known && at != known) ||
				!may_move(d, c->n, to_d, c->to_n, c->own == O_SWAP);
		c->moved = at;
		c->replaced = w.at[to_d][c->to_n];
		if (!c->has_failed)
			place_move(d, c->n, to_d, c->to_n, c->own == O_SWAP, false);
	}
}

static void look(struct call *c, uint8_t d)
{
	c->is_stale = d == NONE;
	for (uint8_t n = 0; n < NAMES && d != NONE; n++)
		c->looked[n] = w.at[d][n];
	if (d != NONE && c->kind != C_LIST)
		c->looked[0] = w.at[d][c->n];
	/* A new one has been removed again. */
	if (c->kind == C_OWN && c->own <= O_MAKE_DIR && !c->looked[0])
		c->has_failed = true;
}

/* After a rename, as local_rename() does. */
static void look_at_names(struct call *c, uint8_t d, uint8_t to_d)
{
	const uint8_t left = c->own == O_SWAP ? c->replaced : 0;

	c->is_told = d != NONE && to_d != NONE && w.at[to_d][c->to_n] == c->moved &&
		     w.at[d][c->n] == left;
}

/* One step further, at the daemon or at the helper. */
static void advance(struct call *c)
{
	const bool is_late = mistake == MISTAKE_NUMBER_AFTER_LOOK && c->kind != C_OWN;
	const uint8_t d = resolve(c->in, c->path);
	const uint8_t to_d = c->own >= O_RENAME ? resolve(c->to_in, c->to_path) : NONE;

	switch ((enum stage)c->stage) {
	case S_SENT:
		begin(c);
		break;
	case S_BEGUN:
		if (c->kind == C_OWN) {
			make_own(c, d, to_d);
			break;
		}
		c->stage = c->kind == C_WATCH ? S_LOOKED : S_NUMBERED;
		if (c->kind == C_WATCH || c->kind == C_LIST) {
			c->is_stale = d == NONE;
			if (d != NONE)
				w.watched[d] = true;
		}
		if (is_late && d != NONE)
			look(c, d);
		else
			c->at = ++w.drawn;
		break;
	case S_CHANGED:
		c->at = ++w.drawn;
		c->stage = c->own != O_REMOVE && !c->has_failed ? S_NUMBERED : S_LOOKED;
		break;
	case S_NUMBERED:
		if (is_late)
			c->at = ++w.drawn;
		else if (c->kind == C_OWN && c->own >= O_RENAME)
			look_at_names(c, d, to_d);
		else if (c->kind == C_OWN && d == NONE)
			c->has_failed = true;
		else
			look(c, d);
		c->stage = S_LOOKED;
		break;
	case S_LOOKED:
		if ((c->kind == C_WATCH || c->kind == C_LIST) && !c->is_stale) {
			struct inode *in = w.inodes[c->in].inode;

			if (mistake == MISTAKE_LOSSES_LATE)
				c->losses = inode_table_watch_losses(table, in);
			inode_table_set_watched(table, in, true, c->losses);
			c->changes |= 1; /* it was listed after the watch began */
			c->stage = S_WATCHED;
			if (c->kind == C_LIST)
				break;
		}
		if (c->kind == C_WATCH)
			*c = (struct call){0};
		else
			answer(c);
		break;
	case S_WATCHED:
		answer(c);
		break;
	case S_ANSWERED:
		install(c);
		*c = (struct call){0};
	}
}

static struct call *call_new(uint8_t kind, uint8_t in, uint8_t n)
{
	struct call *c = w.calls;

	while (c->kind)
		c++;
	assert(c < w.calls + CALLS);
	*c = (struct call){.kind = kind, .in = in, .n = n};
	return c;
}

/* What the kernel has at the name when a change of ours begins; it looks if it has to. */
static uint8_t look_now(uint8_t in, uint8_t n)
{
	struct entry *e = entry_at(in, n);
	struct call *c;

	if (e && e->is_valid)
		return e->inode;
	if (e)
		entry_drop(e);
	c = call_new(C_FRESH, in, n);
	while (c->stage != S_ANSWERED)
		advance(c);
	install(c);
	*c = (struct call){0};
	e = entry_at(in, n);
	return e ? e->inode : NONE;
}

static uint8_t object_at(uint8_t inode)
{
	return inode == NONE ? 0 : w.inodes[inode].object;
}

static void own_begin(struct call *c, int i, uint8_t in, uint8_t n)
{
	c->own_changes[i] = (struct own_change){.directory = inode_id(w.inodes[in].inode),
		.name = names[n],
		.moves_in = c->own >= O_RENAME ? w.inodes[in].inode : NULL};
	invalidator_own_begin(invalidator, &c->own_changes[i]);
}

/* The kernel itself may refuse. */
static void begin_own(const struct step *s)
{
	const uint8_t own = s->e, from = look_now(s->a, s->b);
	const uint8_t to = own >= O_RENAME ? look_now(s->c, s->d) : NONE;
	const uint8_t object = object_at(from), other = object_at(to);
	struct call *c;

	if (own <= O_MAKE_DIR ? object != 0 : object == 0 || (own == O_REMOVE && object == 2))
		return;
	if (own >= O_RENAME) {
		const uint8_t d = w.inodes[s->a].object, to_d = w.inodes[s->c].object;

		if (from == to || (own == O_SWAP && !other) || (object == 2 && to_d == 2) ||
			(other == 2 && (d == 2 || own == O_RENAME)))
			return;
		if (own == O_RENAME && other && is_directory(object) != is_directory(other))
			return;
	}
	c = call_new(C_OWN, s->a, s->b);
	c->own = own;
	c->to_in = s->c;
	c->to_n = s->d;
	own_begin(c, 0, c->in, c->n);
	if (own >= O_RENAME)
		own_begin(c, 1, c->to_in, c->to_n);
}

static void deliver(void)
{
	const struct message *m = &w.messages[0];
	const struct change change = {
		.kind = m->kind == M_ENTRY ? CHANGE_ENTRY
			: m->kind == M_END ? CHANGE_UNWATCHED
					   : CHANGE_RESCAN,
		.path = m->kind == M_ENTRY ? names[m->n] : "",
		.directory.inode = m->kind == M_LOSS ? 0 : m->d + 1U,
		.at = m->at,
		.exists = m->object,
		.attributes = attributes_of(m->object),
	};

	invalidator_take(invalidator, &change);
	w.message_count--;
	memmove(&w.messages[0], &w.messages[1], w.message_count * sizeof(w.messages[0]));
	memset(&w.messages[w.message_count], 0, sizeof(w.messages[0]));
}

/* ---- Steps --------------------------------------------------------------------------- */

enum step_kind {
	A_CHANGE,
	A_CHANGE_DIR,
	A_RENAME,
	A_SWAP,
	A_EVENT,
	A_EVENT_GOES_ON,
	A_LOSS,
	A_UNWATCH,
	A_END,
	A_DELIVER,
	A_HANDLE,
	A_NOTICE,
	A_LOOKUP,
	A_LIST,
	A_WATCH,
	A_OWN,
	A_ADVANCE,
	A_PRUNE,
	A_FORGET,
	A_SECOND,
};

static void step_event(void)
{
	if (mistake == MISTAKE_NUMBER_AFTER_LOOK && !w.event.is_looked) {
		w.event.object = w.at[w.event.d][w.event.n];
		w.event.is_looked = true;
		return;
	}
	if (mistake == MISTAKE_NUMBER_AFTER_LOOK)
		w.event.at = ++w.drawn;
	else
		w.event.object = w.at[w.event.d][w.event.n];
	send(M_ENTRY, w.event.d, w.event.n, w.event.object, w.event.at);
	memset(&w.event, 0, sizeof(w.event));
}

static void spend(enum budget budget)
{
	assert(w.budgets[budget] > 0);
	w.budgets[budget]--;
}

static void step(const struct step *s)
{
	struct call *c;
	struct entry *e;

	if (s->f)
		spend(B_DROP);
	switch ((enum step_kind)s->kind) {
	case A_CHANGE:
		spend(B_CHANGE);
		place_set(s->a, s->b, w.at[s->a][s->b] ? 0 : object_new(false), s->f);
		break;
	case A_CHANGE_DIR:
		spend(B_DIR);
		place_set(s->a, s->b, object_new(true), s->f);
		break;
	case A_RENAME:
	case A_SWAP:
		spend(B_RENAME);
		place_move(s->a, s->b, s->c, s->d, s->kind == A_SWAP, s->f);
		break;
	case A_EVENT:
		w.event.is_under_way = true;
		w.event.d = s->a;
		w.event.n = s->b;
		w.pending[s->a][s->b] = false;
		if (mistake != MISTAKE_NUMBER_AFTER_LOOK)
			w.event.at = ++w.drawn;
		break;
	case A_EVENT_GOES_ON:
		step_event();
		break;
	case A_LOSS:
		w.overflow = false;
		send(M_LOSS, 0, 0, 0, ++w.drawn);
		break;
	case A_UNWATCH:
		spend(B_UNWATCH);
		w.watched[s->a] = false;
		w.ignored[s->a] = true;
		break;
	case A_END:
		w.ignored[s->a] = false;
		send(M_END, s->a, 0, 0, ++w.drawn);
		break;
	case A_DELIVER:
		deliver();
		break;
	case A_HANDLE:
		pthread_mutex_lock(&invalidator->lock);
		invalidator_handle_next(invalidator);
		pthread_mutex_unlock(&invalidator->lock);
		invalidator->busy = w.notice_count;
		break;
	case A_NOTICE:
		do_notice();
		break;
	case A_LOOKUP:
		spend(B_LOOKUP);
		e = entry_at(s->a, s->b);
		c = call_new(e && e->inode != NONE ? C_REVALIDATE : C_FRESH, s->a, s->b);
		if (c->kind == C_REVALIDATE)
			c->entry = e->number;
		else if (e) /* that nothing is there is never revalidated */
			entry_drop(e);
		break;
	case A_LIST:
		spend(B_LIST);
		call_new(C_LIST, s->a, 0);
		break;
	case A_WATCH:
		spend(B_WATCH);
		call_new(C_WATCH, s->a, 0);
		break;
	case A_OWN:
		spend(s->e == O_MAKE_DIR ? B_OWN_DIR : s->e >= O_RENAME ? B_OWN_RENAME : B_OWN);
		begin_own(s);
		break;
	case A_ADVANCE:
		advance(&w.calls[s->a]);
		break;
	case A_PRUNE:
		spend(B_FORGET);
		entry_drop(&w.entries[s->a]);
		break;
	case A_FORGET:
		forget_inode(s->a);
		break;
	case A_SECOND:
		w.seconds++;
		break;
	}
}

/* ---- Which steps there are ----------------------------------------------------------- */

static bool has_room(void)
{
	int count = 0;

	for (int i = 0; i < CALLS; i++)
		count += w.calls[i].kind != C_FREE;
	/* One is for look_now(). */
	return count < CALLS - 1;
}

/* Also such that its event is lost. */
static void offer_change(struct step s, bool is_watched)
{
	orders_offer(s);
	if (is_watched && w.budgets[B_DROP]) {
		s.f = true;
		orders_offer(s);
	}
}

static void offer_place(uint8_t d, uint8_t n)
{
	const uint8_t object = w.at[d][n];

	if (w.budgets[B_CHANGE] && object != 2)
		offer_change((struct step){.kind = A_CHANGE, .a = d, .b = n}, w.watched[d]);
	if (w.budgets[B_DIR] && !object)
		offer_change((struct step){.kind = A_CHANGE_DIR, .a = d, .b = n}, w.watched[d]);
	for (uint8_t k = 0; w.budgets[B_RENAME] && k < config->directories * config->names; k++) {
		const uint8_t to_d = k / config->names, to_n = k % config->names;
		struct step s = {.kind = A_RENAME, .a = d, .b = n, .c = to_d, .d = to_n};

		if (may_move(d, n, to_d, to_n, false))
			offer_change(s, w.watched[d] && w.watched[to_d]);
		s.kind = A_SWAP;
		if (d * NAMES + n < to_d * NAMES + to_n && may_move(d, n, to_d, to_n, true))
			offer_change(s, w.watched[d] && w.watched[to_d]);
	}
}

static void offer_helper(void)
{
	for (uint8_t d = 0; d < config->directories; d++) {
		bool is_waiting = false;

		for (uint8_t n = 0; n < NAMES; n++) {
			is_waiting = is_waiting || w.pending[d][n];
			if (w.pending[d][n] && !w.event.is_under_way)
				orders_offer((struct step){.kind = A_EVENT, .a = d, .b = n});
		}
		if (w.ignored[d] && !is_waiting && !w.event.is_under_way)
			orders_offer((struct step){.kind = A_END, .a = d});
		if (w.watched[d] && !w.ignored[d] && w.budgets[B_UNWATCH])
			orders_offer((struct step){.kind = A_UNWATCH, .a = d});
	}
	if (w.event.is_under_way)
		orders_offer((struct step){.kind = A_EVENT_GOES_ON});
	else if (w.overflow)
		orders_offer((struct step){.kind = A_LOSS});
}

static void offer_own(uint8_t in, uint8_t n)
{
	struct step s = {.kind = A_OWN, .a = in, .b = n, .e = O_MAKE};

	if (is_locked(in, true))
		return;
	if (w.budgets[B_OWN]) {
		orders_offer(s);
		s.e = O_REMOVE;
		orders_offer(s);
	}
	s.e = O_MAKE_DIR;
	if (w.budgets[B_OWN_DIR])
		orders_offer(s);
	for (uint8_t to = 0; to < INODES && w.budgets[B_OWN_RENAME]; to++)
		for (uint8_t to_n = 0; to_n < config->names; to_n++) {
			if (!w.inodes[to].inode || w.inodes[to].object > config->directories ||
				is_locked(to, true) || (to == in && to_n == n))
				continue;
			s.c = to;
			s.d = to_n;
			s.e = O_RENAME;
			orders_offer(s);
			s.e = O_SWAP;
			if (to > in || (to == in && to_n > n))
				orders_offer(s);
		}
}

static bool is_asked_for(uint8_t in, uint8_t n)
{
	for (int i = 0; i < CALLS; i++)
		if (w.calls[i].kind == C_FRESH && w.calls[i].in == in && w.calls[i].n == n)
			return true;
	return false;
}

static void offer_requests(uint8_t in)
{
	for (uint8_t n = 0; n < config->names; n++) {
		const struct entry *e = entry_at(in, n);

		offer_own(in, n);
		if (w.budgets[B_LOOKUP] && (!e || !e->is_valid) &&
			((e && e->inode != NONE) ||
				(!is_locked(in, false) && !is_asked_for(in, n))))
			orders_offer((struct step){.kind = A_LOOKUP, .a = in, .b = n});
	}
	if (w.budgets[B_LIST] && !is_locked(in, true))
		orders_offer((struct step){.kind = A_LIST, .a = in});
	if (w.budgets[B_WATCH] && !inode_directory(w.inodes[in].inode)->watched)
		orders_offer((struct step){.kind = A_WATCH, .a = in});
}

static bool is_in_use(uint8_t inode)
{
	for (int i = 0; i < ENTRIES; i++)
		if (w.entries[i].number &&
			(w.entries[i].in == inode || w.entries[i].inode == inode))
			return true;
	for (int i = 0; i < CALLS; i++)
		if (w.calls[i].kind &&
			(w.calls[i].in == inode ||
				(w.calls[i].own >= O_RENAME && w.calls[i].to_in == inode)))
			return true;
	return false;
}

static void offer_kernel(void)
{
	for (uint8_t i = 0; i < INODES; i++) {
		if (!w.inodes[i].inode)
			continue;
		if (w.inodes[i].object <= config->directories && has_room() &&
			w.message_count < MESSAGES - 4)
			offer_requests(i);
		if (i > 0 && w.budgets[B_FORGET] && !is_in_use(i))
			orders_offer((struct step){.kind = A_FORGET, .a = i});
	}
	for (uint8_t i = 0; i < ENTRIES && w.budgets[B_FORGET]; i++)
		if (w.entries[i].number && !is_locked(w.entries[i].in, true))
			orders_offer((struct step){.kind = A_PRUNE, .a = i});
	if (w.notice_count && !is_locked(w.notices[0].in, true))
		orders_offer((struct step){.kind = A_NOTICE});
}

/* A thread whose answer was written runs within the second. */
static bool may_time_pass(void)
{
	for (int i = 0; i < CALLS; i++)
		if (w.calls[i].stage == S_ANSWERED)
			return false;
	return !w.notice_count;
}

static void offer(void)
{
	for (uint8_t i = 0; i < config->directories * config->names; i++)
		offer_place(i / config->names, i % config->names);
	offer_helper();
	offer_kernel();
	for (uint8_t i = 0; i < CALLS; i++)
		if (w.calls[i].kind)
			orders_offer((struct step){.kind = A_ADVANCE, .a = i});
	if (w.message_count)
		orders_offer((struct step){.kind = A_DELIVER});
	if (!w.notice_count && invalidator_has_work(invalidator))
		orders_offer((struct step){.kind = A_HANDLE});
	else if (invalidator->repeats && may_time_pass())
		orders_offer((struct step){.kind = A_SECOND});
}

/* ---- What must hold ------------------------------------------------------------------ */

static bool is_missing(const struct inode *in, const char *name)
{
	const struct missing *missing = in->is_directory ? inode_directory(in)->missing : NULL;

	while (missing && strcmp(missing->name, name) != 0)
		missing = missing->next;
	return missing;
}

static bool is_noticed(uint8_t in, uint8_t n)
{
	for (int i = 0; i < w.notice_count; i++)
		if (w.notices[i].in == in && w.notices[i].n == n)
			return true;
	for (const struct superseded *one = invalidator->superseded; one; one = one->next)
		if (one->inode == w.inodes[in].inode)
			return true;
	for (const struct repeat *repeat = invalidator->repeats; repeat; repeat = repeat->next)
		if (repeat->directory == w.inodes[in].inode && strcmp(repeat->name, names[n]) == 0)
			return true;
	return invalidator->lost;
}

/* The kernel is about to do what the daemon has answered. */
static bool is_answered(uint8_t in)
{
	for (int i = 0; i < CALLS; i++)
		if (w.calls[i].stage == S_ANSWERED && w.calls[i].in == in)
			return true;
	return false;
}

static void check_entry(const struct entry *e)
{
	struct inode *in = w.inodes[e->in].inode;
	struct inode_name *name = name_find(table, in, names[e->n]);

	if (!e->is_valid || is_answered(e->in) || is_locked(e->in, false) ||
		is_noticed(e->in, e->n))
		return;
	HOLDS(inode_directory(in)->watched,
		"I4: the kernel uses a name in a directory that is not watched");
	if (!name && is_missing(in, names[e->n]))
		return;
	if (e->inode == NONE)
		HOLDS(!name && is_missing(in, names[e->n]),
			"I4: the kernel holds what is not known to be missing");
	else
		HOLDS(name && name_inode(name) == w.inodes[e->inode].inode,
			"I4: the kernel holds a name that is not known");
}

static void check_positions(uint8_t i)
{
	for (uint8_t n = 0; n < NAMES; n++) {
		struct inode_name *name = name_find(table, w.inodes[i].inode, names[n]);

		HOLDS(!name || w.last[i][n].inode != name_inode(name) ||
				name->at >= w.last[i][n].at,
			"I1: the position of a name fell");
		w.last[i][n].inode = name ? name_inode(name) : NULL;
		w.last[i][n].at = name ? name->at : 0;
	}
}

static bool is_at_rest(void)
{
	for (int d = 0; d < DIRECTORIES; d++)
		if (w.ignored[d] || w.pending[d][0] || w.pending[d][1])
			return false;
	for (int i = 0; i < CALLS; i++)
		if (w.calls[i].kind)
			return false;
	return !w.overflow && !w.event.is_under_way && !w.message_count && !w.notice_count &&
	       !invalidator_has_work(invalidator) && !invalidator->repeats;
}

/* Without asking: whoever works in a directory that others have moved where nobody watches has to
 * come by its path once. */
static bool is_reached(uint8_t in)
{
	for (int i = 0; i < ENTRIES; i++)
		if (w.entries[i].number && w.entries[i].is_valid && w.entries[i].in == 0 &&
			w.entries[i].inode == in)
			return true;
	return in == 0;
}

/* The path that a request about the object takes leads to it. */
static void check_path(const struct entry *e)
{
	struct path_string path;
	uint8_t d = 0, found;
	const char *name;

	if (inode_table_path(table, w.inodes[e->inode].inode, NULL, &path) < 0) {
		orders_fail("I8: the kernel holds what has no path");
		return;
	}
	name = path.path;
	if (name[1] == '/') {
		d = w.at[0][name[0] == 'b'] == 2 ? 1 : NONE;
		name += 2;
	}
	found = d == NONE ? 0 : w.at[d][name[0] == 'b'];
	HOLDS(found == w.inodes[e->inode].object, "I8: the path of what the kernel holds is wrong");
	path_string_done(&path);
}

static void check_at_rest(void)
{
	rests++;
	HOLDS(!invalidator->waiting, "I9: a change waits for ever");
	for (int i = 0; i < ENTRIES; i++) {
		const struct entry *e = &w.entries[i];
		const uint8_t d = e->number ? w.inodes[e->in].object - 1 : 0;

		if (!e->number || !e->is_valid || d >= config->directories)
			continue;
		held_names++;
		HOLDS(object_at(e->inode) == w.at[d][e->n], "I8: the kernel holds what is not so");
		if (e->inode != NONE && is_reached(e->in))
			check_path(e);
	}
	for (int i = 0; i < INODES; i++)
		if (w.inodes[i].inode && w.inodes[i].inode->is_directory &&
			inode_directory(w.inodes[i].inode)->watched)
			HOLDS(w.inodes[i].object <= DIRECTORIES &&
					w.watched[w.inodes[i].object - 1],
				"I8: a directory is not watched");
}

static void check(void)
{
	for (uint8_t i = 0; i < INODES; i++)
		if (w.inodes[i].inode)
			check_positions(i);
	for (int i = 0; i < ENTRIES; i++)
		if (w.entries[i].number)
			check_entry(&w.entries[i]);
	if (is_at_rest())
		check_at_rest();
}

/* ---- States -------------------------------------------------------------------------- */

static uint64_t index_of(const struct inode *inode)
{
	return inode ? kernel_inode_of(inode) : NONE - 1;
}

static void put_inode(const struct kernel_inode *k)
{
	const struct inode *inode = k->inode;

	orders_put(
		inode ? k->object | (uint64_t)k->lookups << 8 | (uint64_t)inode->lookups << 16 |
				(uint64_t)inode->references << 24 |
				(uint64_t)inode->is_superseded << 33 |
				(uint64_t)inode->is_lost << 34 |
				(uint64_t)(inode->is_lost && inode->own.at == LOST_UNSENT) << 36 |
				(uint64_t)inode_version_now(inode).nlink << 40
		      : UINT64_MAX);
	if (!inode || !inode->is_directory)
		return;
	orders_put(inode_directory(inode)->watched | inode_directory(inode)->on_ttl << 1 |
		   (uint64_t)index_of(inode_directory(inode)->kernels_parent) << 8);
	for (uint8_t n = 0; n < NAMES; n++) {
		struct inode_name *name = name_find(table, inode, names[n]);
		const size_t hash = name_hash(inode, names[n]);
		const struct removal *removal = &table->removals[hash % REMOVALS];

		orders_put((name ? index_of(name_inode(name)) : NONE) |
			   (uint64_t)is_missing(inode, names[n]) << 8 |
			   (uint64_t)(removal->hash == hash && removal->is_due) << 9 |
			   (name ? (uint64_t)(name_latest(name_inode(name)) == name) << 10 |
						   name_inode(name)->number << 16
				 : 0));
		orders_put_at(name ? name->at : 0);
		orders_put_at(removal->hash == hash ? removal->at : 0);
		orders_put(inode_table_given_lately(table, inode, names[n]));
	}
}

static void put_call(const struct call *c)
{
	const struct inode *in = w.inodes[c->in].inode;

	orders_put(c->kind | c->stage << 4 | c->own << 8 | c->in << 12 | c->n << 16 |
		   c->to_in << 20 | c->to_n << 24 | (uint64_t)c->path << 28 |
		   (uint64_t)c->to_path << 29 | (uint64_t)c->has_failed << 30 |
		   (uint64_t)c->is_stale << 31 | (uint64_t)c->looked[0] << 32 |
		   (uint64_t)c->looked[1] << 40 | (uint64_t)(c->renames == w.renames) << 48 |
		   (uint64_t)(c->changes == inode_changes(in)) << 49 |
		   (uint64_t)(c->losses == inode_directory(in)->watch_losses) << 50 |
		   (uint64_t)c->found[0].is_valid << 51 | (uint64_t)c->found[1].is_valid << 52);
	orders_put(index_of(c->known) | index_of(c->found[0].inode) << 8 |
		   (uint64_t)c->found[0].object << 16 | index_of(c->found[1].inode) << 24 |
		   (uint64_t)c->found[1].object << 32);
	orders_put_at(c->at);
	orders_put_at(c->before);
}

static void put_changes(const struct queued *list)
{
	for (; list; list = list->next) {
		const struct change *c = &list->change;

		orders_put(c->kind | c->directory.inode << 8 | (uint64_t)c->path[0] << 16 |
			   (uint64_t)c->exists << 24 | c->attributes.id.inode << 32);
		orders_put_at(c->at);
	}
	orders_put(UINT64_MAX);
}

static void put_daemon(void)
{
	put_changes(invalidator->first);
	put_changes(invalidator->waiting);
	for (const struct superseded *one = invalidator->superseded; one; one = one->next)
		orders_put(index_of(one->inode));
	orders_put(invalidator->lost);
	for (const struct repeat *repeat = invalidator->repeats; repeat; repeat = repeat->next)
		orders_put(index_of(repeat->directory) | (uint64_t)repeat->name[0] << 8 |
			   (uint64_t)repeat->is_first << 15 |
			   (repeat->is_first ? 0 : repeat->due_ns - clock_now_ns()) << 16);
	orders_put_at(table->highest);
	orders_put(table->inodes.count << 8 | table->names);
}

static void put(void)
{
	for (int d = 0; d < DIRECTORIES; d++)
		for (int n = 0; n < NAMES; n++)
			orders_put(w.at[d][n] | w.pending[d][n] << 8 | w.watched[d] << 9 |
				   w.ignored[d] << 10);
	orders_put(w.next_object | w.overflow << 8 | w.event.is_under_way << 9 |
		   w.event.is_looked << 10 | w.event.d << 12 | w.event.n << 14 |
		   w.event.object << 16 | (uint64_t)w.directories << 32);
	orders_put_at(w.event.at);
	orders_put_at(w.drawn);
	for (int i = 0; i < w.message_count; i++) {
		const struct message *m = &w.messages[i];

		orders_put(m->kind | m->d << 4 | m->n << 8 | m->object << 16);
		orders_put_at(m->at);
	}
	orders_put(UINT64_MAX);
	for (int i = 0; i < B_COUNT; i++)
		orders_put(w.budgets[i]);
	for (int i = 0; i < CALLS; i++) {
		orders_put(w.calls[i].kind);
		if (w.calls[i].kind)
			put_call(&w.calls[i]);
		orders_put(w.calls[i].kind == C_REVALIDATE
				   ? (uint64_t)(entry_of_number(w.calls[i].entry) - w.entries)
				   : 0);
	}
	for (int i = 0; i < INODES; i++)
		put_inode(&w.inodes[i]);
	for (int i = 0; i < ENTRIES; i++)
		orders_put(w.entries[i].number ? w.entries[i].in | w.entries[i].n << 8 |
							 w.entries[i].inode << 16 |
							 (uint64_t)w.entries[i].is_valid << 24
					       : UINT64_MAX);
	for (int i = 0; i < w.notice_count; i++)
		orders_put(w.notices[i].in << 8 | w.notices[i].n);
	put_daemon();
}

/* ---- Runs ---------------------------------------------------------------------------- */

static void ignore_forgotten(void *user, const struct object_ref *directory)
{
	(void)user;
	(void)directory;
}

/* What is there is known, and the kernel has it. */
static void start(const void *data)
{
	struct attributes root;

	config = data;
	memset(&w, 0, sizeof(w));
	memcpy(w.budgets, config->budgets, sizeof(w.budgets));
	w.next_object = 4;
	w.directories = 1 << 1 | 1 << 2;
	w.at[0][0] = 3;
	if (config->directories == 2)
		w.at[0][1] = 2;
	else if (config->has_two)
		w.at[0][1] = w.next_object++;
	mount = (struct mount){.options = &options};
	session = (struct session){.mount = &mount, .expires_entries = true};
	root = attributes_of(1);
	if (inode_table_new(&root, ignore_forgotten, NULL, &table) < 0 ||
		invalidator_new(&session, &invalidator) < 0)
		abort();
	mount.inodes = table;
	session.invalidator = invalidator;
	w.inodes[0] = (struct kernel_inode){inode_table_root(table), 1, 1};
	for (uint8_t d = 0; d < config->directories; d++) {
		if (!config->is_cold) {
			w.watched[d] = true;
			inode_table_set_watched(table, w.inodes[d].inode, true, 0);
		}
		/* The directory first: its number is known. */
		if (d == 0 && config->directories == 2)
			look_now(0, 1);
		for (uint8_t n = 0; n < config->names; n++)
			look_now(d, n);
	}
}

static void stop(void)
{
	for (int i = 0; i < CALLS; i++)
		if (w.calls[i].kind == C_OWN && w.calls[i].known)
			inode_table_unref(table, w.calls[i].known);
	invalidator_free(invalidator);
	inode_table_free(table);
}

static const char *const kinds[] = {"others change", "others make a directory", "others rename",
	"others exchange", "event", "event goes on", "LOSS", "unwatch", "end of a watch", "deliver",
	"handle", "notice", "lookup", "list", "watch", "own", "advance", "prune", "forget",
	"a second"};

static int describe(char *text, size_t size, const struct step *s)
{
	return snprintf(text, size, "%s %u/%u %u/%u%s%s", kinds[s->kind], s->a, s->b, s->c, s->d,
		s->kind == A_OWN ? (const char *const[]){" make", " make directory", " remove",
					   " rename", " swap"}[s->e]
				 : "",
		s->f ? ", unseen" : "");
}

static const struct orders orders = {.start = start,
	.stop = stop,
	.offer = offer,
	.step = step,
	.check = check,
	.put = put,
	.describe = describe,
	.state = &w,
	.state_size = sizeof(w)};

/* ---- The tests ----------------------------------------------------------------------- */

static struct orders_result result;

static void run_random(uint64_t seed)
{
	const struct world_case *c = &cases[seed % CASES];

	orders_run_random(&orders, c, c->name, seed, &result);
}

static void run_all(const struct world_case *c, uint64_t states_max)
{
	orders_run_all(&orders, c, c->name, states_max, &result);
}

static void report(void)
{
	if (result.failure[0])
		fprintf(stderr, "%s, after these steps:\n%s", result.failure, result.steps);
}

static void test_all_orders_of_small_cases_are_right(void)
{
	for (int i = 0; i < SMALL; i++) {
		rests = 0;
		run_all(&cases[i], STATES_MAX);
		report();
		CHECK(!result.failure[0]);
		CHECK(result.is_complete || IS_SLOW);
		CHECK(rests > 0 || IS_SLOW);
		printf("%s: %llu states\n", cases[i].name, (unsigned long long)result.states);
	}
}

static void test_random_schedules_are_right(void)
{
	const char *seconds = getenv("INODE_SECONDS"), *first = getenv("INODE_SEED");
	const time_t end = time(NULL) + (seconds ? atoi(seconds) : 0);
	uint64_t seed = seconds ? (uint64_t)time(NULL) << 24 : 1, count = 0;

	memset(&result, 0, sizeof(result));
	rests = held_names = 0;
	if (first)
		seed = strtoull(first, NULL, 10);
	while (!result.failure[0] && (seconds ? time(NULL) < end : count < SCHEDULES)) {
		run_random(seed++);
		count++;
	}
	report();
	if (!CHECK(!result.failure[0]))
		fprintf(stderr, "INODE_SEED=%llu\n", (unsigned long long)seed - 1);
	CHECK(held_names > rests / 8);
	printf("%llu schedules, %llu states\n", (unsigned long long)count,
		(unsigned long long)result.states);
}

static void check_is_found(const char *what)
{
	uint64_t seed = 0;

	memset(&result, 0, sizeof(result));
	while (!result.failure[0] && seed < SCHEDULES_FIRST)
		run_random(++seed);
	for (int i = 0; i < SMALL && !result.failure[0]; i++)
		run_all(&cases[i], STATES_OF_MUTANT);
	while (!result.failure[0] && seed < SCHEDULES_OF_MUTANT)
		run_random(++seed);
	printf("%s: %s (%llu)\n", what, result.failure[0] ? result.failure : "NOT FOUND",
		(unsigned long long)seed);
	CHECK(result.failure[0]);
}

static void test_each_rule_is_needed(void)
{
	static const char *const rules[] = {
#define X(name) #name,
		INODE_RULES(X)
#undef X
	};

	for (int rule = 0; rule < INODE_RULE_COUNT; rule++) {
		inode_rule_off = (enum inode_rule)rule;
		check_is_found(rules[rule]);
	}
	inode_rule_off = INODE_RULE_COUNT;
}

static void test_each_mistake_around_the_table_is_found(void)
{
	for (int i = 1; i < MISTAKE_COUNT; i++) {
		mistake = (enum mistake)i;
		check_is_found(mistakes[i]);
	}
	mistake = MISTAKE_NONE;
}

int main(void)
{
	static const struct test_case tests[] = {
		TEST(test_random_schedules_are_right),
		TEST(test_all_orders_of_small_cases_are_right),
		TEST(test_each_rule_is_needed),
		TEST(test_each_mistake_around_the_table_is_found),
	};

	return test_run("inode orders", tests, getenv("INODE_SECONDS") ? 1 : array_size(tests));
}
