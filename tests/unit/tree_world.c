#include "tests/unit/tree_world.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ops/cache/tree_internal.h"
#include "tests/unit/arena.h"
#include "tests/unit/seen.h"

enum {
	DIRECTORIES = 2,
	NAMES = 2,
	OBJECTS = 12,
	MESSAGES = 14,
	CALLS = 4,
	FACTS = 5,
	ACTIONS_MAX = 128,
	DEPTH_MAX = 160,
	NO_CALL = 255,
	NOW_MS = 1,
};

enum world_mistake world_mistake;
const char *const world_mistakes[MISTAKE_COUNT] = {
	[MISTAKE_NUMBER_AFTER_LOOK] = "the position is drawn after the look",
	[MISTAKE_NUMBER_BEFORE_CHANGE] = "the position is drawn before the own change",
	[MISTAKE_NO_MOVE_SELF] = "no event of a directory that moves itself",
	[MISTAKE_NO_PARENT_LOOK] = "no look at the directory of an event",
	[MISTAKE_LOSS_TOO_EARLY] = "LOSS is numbered too early",
	[MISTAKE_WATCH_TOO_EARLY] = "the watch is looked at before its position is drawn",
	[MISTAKE_SESSION_COUNTS_FROM_1] = "a new helper's positions begin below those of before",
};

/* clang-format off */
const struct world_case world_cases[WORLD_CASES] = {
	/* Small enough for all orders. */
	{"one name", 1, 1, false, {[B_CHANGE] = 2, [B_LOOKUP] = 2}},
	{"one name, own change", 1, 1, false, {[B_CHANGE] = 1, [B_OWN] = 1, [B_LOOKUP] = 1}},
	{"two own changes", 1, 1, false, {[B_OWN] = 2, [B_LOOKUP] = 1}},
	{"two names renamed", 1, 2, false, {[B_RENAME] = 1, [B_LOOKUP] = 2}},
	{"two names, own rename", 1, 2, false, {[B_OWN_RENAME] = 1, [B_LOOKUP] = 1}},
	{"a directory moves", 2, 2, false, {[B_RENAME] = 1, [B_UNWATCH] = 1}},
	{"two links", 2, 1, false, {[B_LINK] = 1, [B_WRITE] = 1}},
	{"a link is made here", 2, 1, false, {[B_OWN_LINK] = 1, [B_CHANGE] = 1}},
	{"content", 1, 1, false, {[B_WRITE] = 3, [B_READ] = 1}},
	{"watch ends and begins", 1, 1, false, {[B_CHANGE] = 1, [B_UNWATCH] = 1, [B_WATCH] = 1, [B_LOOKUP] = 1}},
	{"unknown directory", 2, 1, true, {[B_UNWATCH] = 1, [B_WATCH] = 1, [B_GETATTR] = 1, [B_LIST] = 1}},
	{"lost events", 1, 2, false, {[B_CHANGE] = 2, [B_DROP] = 1, [B_LOOKUP] = 1}},
	{"new session", 1, 1, false, {[B_CHANGE] = 1, [B_SESSION] = 1, [B_WATCH] = 1, [B_LOOKUP] = 1}},
	{"listing", 1, 2, false, {[B_CHANGE] = 1, [B_LIST] = 2}},
	{"evicted names", 1, 1, false, {[B_CHANGE] = 1, [B_EVICT] = 1, [B_LIST] = 1}},
	{"no memory", 1, 1, true, {[B_CHANGE] = 1, [B_MEMORY] = 1, [B_WATCH] = 1, [B_LIST] = 1}},
	{"given up", 1, 1, false, {[B_OWN] = 1, [B_FAIL] = 1, [B_LOOKUP] = 1}},
	/* At random. */
	{"many changes of a name", 1, 1, false, {[B_CHANGE] = 3, [B_OWN] = 2, [B_LOOKUP] = 3}},
	{"many of two names", 1, 2, false, {[B_CHANGE] = 1, [B_RENAME] = 1, [B_OWN] = 1, [B_OWN_RENAME] = 1, [B_LOOKUP] = 2}},
	{"renames by both", 1, 2, false, {[B_RENAME] = 1, [B_OWN_RENAME] = 1, [B_LOOKUP] = 2}},
	{"changes and renames", 1, 2, false, {[B_CHANGE] = 1, [B_RENAME] = 1, [B_OWN_RENAME] = 1, [B_LOOKUP] = 4}},
	{"directories move", 2, 2, false, {[B_RENAME] = 2, [B_OWN_RENAME] = 1, [B_LOOKUP] = 2, [B_UNWATCH] = 1}},
	{"links", 2, 1, false, {[B_LINK] = 1, [B_CHANGE] = 1, [B_OWN_LINK] = 1, [B_UNWATCH] = 1, [B_GETATTR] = 1}},
	{"links and writes", 2, 1, false, {[B_LINK] = 1, [B_WRITE] = 1, [B_UNWATCH] = 1, [B_WATCH] = 1, [B_GETATTR] = 2}},
	{"writes", 1, 1, false, {[B_WRITE] = 3, [B_OWN_WRITE] = 1, [B_READ] = 1, [B_GETATTR] = 1}},
	{"watches", 1, 1, false, {[B_CHANGE] = 2, [B_UNWATCH] = 2, [B_WATCH] = 2, [B_LOOKUP] = 2, [B_LIST] = 1}},
	{"nothing known", 2, 1, true, {[B_CHANGE] = 2, [B_UNWATCH] = 1, [B_WATCH] = 2, [B_LOOKUP] = 2, [B_LIST] = 1, [B_GETATTR] = 1}},
	{"loss", 1, 2, false, {[B_CHANGE] = 2, [B_DROP] = 1, [B_WATCH] = 1, [B_LOOKUP] = 2, [B_LIST] = 1, [B_OWN] = 1}},
	{"session", 1, 1, false, {[B_CHANGE] = 2, [B_SESSION] = 1, [B_WATCH] = 1, [B_LOOKUP] = 2, [B_OWN] = 1}},
	{"listings", 1, 2, false, {[B_CHANGE] = 2, [B_RENAME] = 1, [B_LIST] = 2, [B_EVICT] = 1, [B_LOOKUP] = 1}},
	{"eviction", 1, 1, false, {[B_CHANGE] = 2, [B_EVICT] = 3, [B_GETATTR] = 1, [B_LIST] = 1, [B_LOOKUP] = 2}},
	{"memory", 1, 2, true, {[B_CHANGE] = 2, [B_MEMORY] = 1, [B_WATCH] = 2, [B_UNWATCH] = 1, [B_LIST] = 2, [B_LOOKUP] = 1}},
	{"everything", 2, 2, false, {[B_CHANGE] = 3, [B_RENAME] = 2, [B_LINK] = 1, [B_WRITE] = 2, [B_DROP] = 1,
		[B_UNWATCH] = 1, [B_SESSION] = 1, [B_LOOKUP] = 4, [B_OWN] = 2, [B_OWN_RENAME] = 2, [B_OWN_LINK] = 1,
		[B_OWN_WRITE] = 1, [B_FAIL] = 1, [B_LIST] = 1, [B_WATCH] = 1, [B_GETATTR] = 2, [B_READ] = 1,
		[B_EVICT] = 2, [B_MEMORY] = 1}},
	{"everything, nothing known", 2, 2, true, {[B_CHANGE] = 3, [B_RENAME] = 2, [B_LINK] = 1, [B_WRITE] = 1,
		[B_UNWATCH] = 1, [B_LOOKUP] = 4, [B_OWN] = 1, [B_OWN_RENAME] = 1, [B_FAIL] = 1, [B_LIST] = 3,
		[B_WATCH] = 3, [B_EVICT] = 2, [B_MEMORY] = 1}},
};
/* clang-format on */

static const char *const names[NAMES] = {"a", "b"};

/* ---- State -------------------------------------------------------------------------------------
 */

enum fact_kind { F_NAME, F_ATTRIBUTES, F_WATCH, F_LOSS, F_LISTING, F_CONTENT };

struct fact {
	uint8_t kind, d, n;
	uint8_t value; /* object; F_WATCH: on; F_LISTING: names as bits */
	uint8_t version, nlink, lately, content;
	uint64_t at, since;
};

struct message {
	uint8_t count, call;
	struct fact facts[FACTS];
};

enum call_kind { C_LOOKUP, C_LIST, C_WATCH, C_GETATTR, C_READ, C_OWN };
enum own_kind { O_MAKE, O_REMOVE, O_RENAME, O_SWAP, O_LINK, O_WRITE };
/* What a call waits for: to be sent on, its number, its look, or its reply. */
enum stage { S_SENT, S_CHANGED, S_NUMBERED, S_LOOKED, S_REPLY };

struct call {
	uint8_t kind, stage, own;
	uint8_t d, n, to_d, to_n; /* names; `n`: object of C_GETATTR, C_READ, O_WRITE */
	uint8_t value;            /* C_OWN: the object; C_LIST: names that were there, as bits */
	uint8_t has_failed, is_given_up;
	uint8_t moved, replaced; /* objects whose links it changed */
	uint8_t seen;            /* C_LIST: names still to be looked at, as bits */
	uint64_t at;
	uint64_t changed_at; /* C_OWN: the first position after the change */
	struct message reply;
};

struct place_object {
	uint8_t version, content, lately;
	uint64_t linked_at; /* the first position after its links last changed */
};

struct world {
	/* The workspace and the helper. */
	uint8_t at[DIRECTORIES][NAMES]; /* object; 0: none */
	struct place_object objects[OBJECTS];
	uint8_t next_object;
	bool watched[DIRECTORIES];
	bool pending[DIRECTORIES][NAMES], pending_self[DIRECTORIES], overflow;
	bool ignored[DIRECTORIES]; /* the watch has ended, and that is still to be read */
	uint64_t since[DIRECTORIES];
	struct {
		bool is_under_way, is_numbered, is_self;
		uint8_t d, n;
		struct fact fact;
	} event;
	uint64_t drawn, drawn_before_loss;
	/* The way, and calls. */
	uint8_t message_count;
	struct message messages[MESSAGES];
	uint8_t call_count;
	struct call calls[CALLS];
	/* Content of the last file that was read. */
	uint8_t content_object, content;
	uint64_t content_state;
	/* To be checked. */
	uint64_t own_at[DIRECTORIES][NAMES], last_at[DIRECTORIES][NAMES], last_object_at[OBJECTS];
	uint8_t budgets[B_COUNT];
};

enum action_kind {
	A_CHANGE,
	A_RENAME,
	A_SWAP,
	A_LINK,
	A_WRITE,
	A_WRITE_SAME,
	A_PLACE_TICK,
	A_EVENT,
	A_NUMBER,
	A_LOOK,
	A_LOSS,
	A_UNWATCH,
	A_IGNORED,
	A_SESSION,
	A_DELIVER,
	A_DELIVER_NO_MEMORY,
	A_LOOKUP,
	A_OWN,
	A_LIST,
	A_WATCH,
	A_GETATTR,
	A_READ,
	A_ADVANCE,
	A_FAIL,
	A_EVICT,
	A_EVICT_OBJECT,
};

static const char *const action_names[] = {
	"others change",
	"others rename",
	"others exchange",
	"others link",
	"others write",
	"others write in the same tick",
	"the clock ticks",
	"event",
	"number",
	"look",
	"LOSS",
	"unwatch",
	"watch's end is read",
	"new session",
	"deliver",
	"deliver without memory",
	"lookup",
	"own",
	"list",
	"watch",
	"getattr",
	"read",
	"advance",
	"fail",
	"evict",
	"evict object",
};

struct action {
	uint8_t kind, a, b, c, d, own, dropped;
};

static struct world w;
static struct tree *tree;
static const struct world_case *config;
static struct world_result *result;
static struct action path[DEPTH_MAX];
static int depth;
static const char *broken;

#define HOLDS(condition, text)           \
	do {                             \
		if (!(condition))        \
			broken = (text); \
	} while (0)

/* ---- The workspace ------------------------------------------------------------------------------
 */

static uint8_t directory_object(uint8_t d)
{
	return (uint8_t)(d + 1);
}

static bool is_directory(uint8_t object)
{
	return object == 1 || object == 2;
}

static struct object_id id_of(uint8_t object)
{
	return (struct object_id){.inode = object};
}

static struct object *object_at(uint8_t object)
{
	const struct object_id id = id_of(object);

	return tree_object(tree, &id);
}

static struct slot *slot_at(uint8_t d, uint8_t n)
{
	return tree_slot(object_at(directory_object(d)), names[n]);
}

static uint8_t nlink_of(uint8_t object)
{
	uint8_t count = is_directory(object) ? 2 : 0;

	for (int i = 0; i < DIRECTORIES * NAMES && !is_directory(object); i++)
		count = (uint8_t)(count + (w.at[i / NAMES][i % NAMES] == object));
	return count;
}

/* The name changed, by whomever. */
static void changed(uint8_t d, uint8_t n, bool dropped)
{
	struct place_object *directory = &w.objects[directory_object(d)];

	directory->version++;
	if (!w.watched[d])
		return;
	if (dropped)
		w.overflow = true;
	else {
		w.pending[d][n] = true;
		if (world_mistake != MISTAKE_NO_PARENT_LOOK)
			w.pending_self[d] = true;
	}
	if (dropped)
		w.drawn_before_loss = w.drawn;
}

static void links_changed(uint8_t object, bool dropped)
{
	if (object == 0)
		return;
	w.objects[object].version++;
	w.objects[object].linked_at = w.drawn + 1;
	if (object == 2 && w.watched[1] && world_mistake != MISTAKE_NO_MOVE_SELF) {
		if (dropped)
			w.overflow = true;
		else
			w.pending_self[1] = true;
	}
}

static uint8_t object_new(void)
{
	uint8_t object = w.next_object++;

	assert(object < OBJECTS);
	w.objects[object] = (struct place_object){.version = 1, .content = 1};
	return object;
}

static void place_set(uint8_t d, uint8_t n, uint8_t value, bool dropped)
{
	uint8_t old = w.at[d][n];

	w.at[d][n] = value;
	links_changed(old, dropped);
	links_changed(value, dropped);
	changed(d, n, dropped);
}

/* Whether a rename of what is at one name to another can be. */
static bool may_move(uint8_t d, uint8_t n, uint8_t to_d, uint8_t to_n, bool swap)
{
	uint8_t from = w.at[d][n], to = w.at[to_d][to_n];

	if (from == 0 || from == to || (swap && to == 0))
		return false;
	if ((from == 2 && to_d == 1) || (to == 2 && (d == 1 || !swap)))
		return false;
	return swap || to == 0 || is_directory(from) == is_directory(to);
}

static void place_move(uint8_t d, uint8_t n, uint8_t to_d, uint8_t to_n, bool swap, bool dropped)
{
	uint8_t from = w.at[d][n], to = w.at[to_d][to_n];

	w.at[to_d][to_n] = from;
	w.at[d][n] = swap ? to : 0;
	links_changed(from, dropped);
	links_changed(to, dropped);
	changed(d, n, dropped);
	changed(to_d, to_n, dropped);
}

/* Through one of its names: that one has an event, and no other. */
static void place_write(uint8_t d, uint8_t n, bool same_tick, bool dropped)
{
	struct place_object *o = &w.objects[w.at[d][n]];

	o->content++;
	if (!same_tick)
		o->version++;
	o->lately = 1;
	if (!w.watched[d])
		return;
	if (dropped) {
		w.overflow = true;
		w.drawn_before_loss = w.drawn;
	} else {
		w.pending[d][n] = true;
	}
}

/* ---- Looks, facts and frames --------------------------------------------------------------------
 */

static void look_at(uint8_t object, struct fact *fact)
{
	fact->version = w.objects[object].version;
	fact->lately = w.objects[object].lately;
	fact->nlink = nlink_of(object);
}

static struct fact look_at_name(uint8_t d, uint8_t n, uint64_t at)
{
	struct fact fact = {.kind = F_NAME, .d = d, .n = n, .value = w.at[d][n], .at = at};

	if (fact.value)
		look_at(fact.value, &fact);
	return fact;
}

static struct fact look_at_object(uint8_t object, uint64_t at)
{
	struct fact fact = {.kind = F_ATTRIBUTES, .value = object, .at = at};

	look_at(object, &fact);
	return fact;
}

static void add(struct message *m, struct fact fact)
{
	assert(m->count < FACTS);
	m->facts[m->count++] = fact;
}

static void send(struct message m, uint8_t call)
{
	m.call = call;
	assert(w.message_count < MESSAGES);
	w.messages[w.message_count++] = m;
}

static void send_fact(struct fact fact)
{
	struct message m = {0};

	add(&m, fact);
	send(m, NO_CALL);
}

static struct attributes attributes_of(const struct fact *fact)
{
	return (struct attributes){
		.id = id_of(fact->value),
		.mode = is_directory(fact->value) ? S_IFDIR | 0755 : S_IFREG | 0644,
		.nlink = fact->nlink,
		.mtime.tv_sec = fact->version,
		.changed_lately = fact->lately,
	};
}

/* fact->since: the state when it was asked for. */
static void learn_content(const struct fact *fact)
{
	const struct object_id id = id_of(fact->value);
	const struct attributes attributes = attributes_of(fact);
	struct attributes known;
	uint64_t state = tree_state(tree, &id);

	if (state == 0)
		return;
	if (fact->since != state && (fact->lately || !tree_last_attributes(tree, &id, &known) ||
					    !attributes_same_version(&known, &attributes)))
		return;
	w.content_object = fact->value;
	w.content = fact->content;
	w.content_state = state;
}

static void learn(const struct fact *fact)
{
	const struct tree_look look = {.at = fact->at, .ms = NOW_MS};
	const struct object_id directory = id_of(directory_object(fact->d));
	const struct attributes attributes = attributes_of(fact);

	switch ((enum fact_kind)fact->kind) {
	case F_NAME:
		tree_learn_name(
			tree, &look, &directory, names[fact->n], fact->value ? &attributes : NULL);
		break;
	case F_ATTRIBUTES:
		tree_learn_attributes(tree, &look, &attributes);
		break;
	case F_WATCH:
		tree_learn_watch(tree, &look, &directory, fact->value, fact->since);
		break;
	case F_LOSS:
		tree_learn_loss(tree, &look);
		break;
	case F_LISTING:
		tree_learn_listing(tree, &look, &directory);
		break;
	case F_CONTENT:
		learn_content(fact);
		break;
	}
}

/* ---- Changes of our own -------------------------------------------------------------------------
 */

static bool is_call_on(const struct call *c, uint8_t d)
{
	bool has_two = c->own == O_RENAME || c->own == O_SWAP || c->own == O_LINK;

	return c->kind == C_OWN && c->own != O_WRITE && !c->is_given_up &&
	       ((c->d == d && c->own != O_LINK) || (has_two && c->to_d == d));
}

/* The kernel has a directory locked while it is changed. */
static bool is_locked(uint8_t d)
{
	for (int i = 0; i < w.call_count; i++)
		if (is_call_on(&w.calls[i], d))
			return true;
	return false;
}

static uint8_t object_of(const struct object_id *id)
{
	return (uint8_t)id->inode;
}

/* False: the kernel itself refuses. */
static bool begin_own(struct call *c)
{
	uint8_t at = w.at[c->d][c->n], to = w.at[c->to_d][c->to_n];

	if (c->own == O_WRITE)
		return true;
	if (c->own == O_MAKE ? at != 0 : at == 0)
		return false;
	c->value = at;
	if ((c->own == O_REMOVE || c->own == O_LINK) && is_directory(at))
		return false;
	if (c->own == O_RENAME || c->own == O_SWAP)
		return may_move(c->d, c->n, c->to_d, c->to_n, c->own == O_SWAP);
	return c->own != O_LINK || to == 0;
}

/* The helper makes the change, if it can be made. */
static void make_own(struct call *c)
{
	uint8_t at = w.at[c->d][c->n], to = w.at[c->to_d][c->to_n];

	if (world_mistake == MISTAKE_NUMBER_BEFORE_CHANGE)
		c->at = ++w.drawn;
	c->changed_at = w.drawn + 1;
	c->stage = S_CHANGED;
	c->moved = c->replaced = 0;
	switch ((enum own_kind)c->own) {
	case O_MAKE:
		c->has_failed = at != 0;
		if (!at) {
			c->value = object_new();
			place_set(c->d, c->n, c->value, false);
		}
		break;
	case O_REMOVE:
		c->has_failed = at == 0 || is_directory(at);
		if (!c->has_failed) {
			c->moved = at;
			place_set(c->d, c->n, 0, false);
		}
		break;
	case O_RENAME:
	case O_SWAP:
		c->has_failed = !may_move(c->d, c->n, c->to_d, c->to_n, c->own == O_SWAP);
		if (!c->has_failed) {
			c->moved = at;
			c->replaced = to;
			place_move(c->d, c->n, c->to_d, c->to_n, c->own == O_SWAP, false);
		}
		break;
	case O_LINK:
		c->has_failed = to != 0 || nlink_of(c->value) == 0;
		c->moved = c->value;
		if (!c->has_failed)
			place_set(c->to_d, c->to_n, c->value, false);
		break;
	case O_WRITE:
		c->has_failed = at == 0 || is_directory(at);
		c->value = at;
		if (!c->has_failed)
			place_write(c->d, c->n, false, false);
		break;
	}
}

static void reply_own(struct call *c, uint8_t number)
{
	struct message m = {0};
	bool has_two = c->own == O_RENAME || c->own == O_SWAP;

	c->stage = S_REPLY;
	if (c->own == O_WRITE) {
		if (!c->has_failed && nlink_of(c->value) > 0)
			add(&m, look_at_object(c->value, c->at));
		send(m, number);
		return;
	}
	if (c->own != O_LINK)
		add(&m, look_at_name(c->d, c->n, c->at));
	if (has_two || c->own == O_LINK)
		add(&m, look_at_name(c->to_d, c->to_n, c->at));
	add(&m, look_at_object(directory_object(c->d), c->at));
	if (has_two || c->own == O_LINK)
		add(&m, look_at_object(directory_object(c->to_d), c->at));
	if (has_two ? c->replaced && nlink_of(c->replaced) > 0 : c->moved && nlink_of(c->moved) > 0)
		add(&m, look_at_object(has_two ? c->replaced : c->moved, c->at));
	send(m, number);
}

static void give_up_name(
	const struct object_id *directory, const char *name, const struct object_id *linked)
{
	struct attributes a;
	struct object_id id;

	tree_own_unclear(tree, 0, directory, name, linked);
	HOLDS(tree_get_name(tree, directory, name, NOW_MS, &id) == TREE_ASK &&
			tree_get_attributes(tree, directory, NOW_MS, &a) == TREE_ASK &&
			(!linked || tree_get_attributes(tree, linked, NOW_MS, &a) == TREE_ASK),
		"I6: what a change that was given up has done is not asked for");
}

/* The caller is answered before the reply has come. */
static void own_unclear(const struct call *c)
{
	const struct object_id directory = id_of(directory_object(c->d));
	const struct object_id to_directory = id_of(directory_object(c->to_d));
	const struct object_id id = id_of(c->value);

	if (c->own == O_WRITE)
		return;
	if (c->own != O_LINK)
		give_up_name(&directory, names[c->n], NULL);
	if (c->own == O_RENAME || c->own == O_SWAP || c->own == O_LINK)
		give_up_name(&to_directory, names[c->to_n], c->own == O_LINK ? &id : NULL);
}

/* After its facts: what the caller is answered counts. */
static void own_made(const struct call *c)
{
	if (c->own == O_WRITE || c->has_failed)
		return;
	if (c->own != O_LINK)
		w.own_at[c->d][c->n] = c->changed_at;
	if (c->own == O_RENAME || c->own == O_SWAP || c->own == O_LINK)
		w.own_at[c->to_d][c->to_n] = c->changed_at;
}

static void call_end(uint8_t i)
{
	for (int m = 0; m < w.message_count; m++) {
		if (w.messages[m].call == i)
			w.messages[m].call = NO_CALL;
		else if (w.messages[m].call != NO_CALL && w.messages[m].call > i)
			w.messages[m].call--;
	}
	w.call_count--;
	memmove(&w.calls[i], &w.calls[i + 1], (size_t)(w.call_count - i) * sizeof(w.calls[0]));
	memset(&w.calls[w.call_count], 0, sizeof(w.calls[0]));
}

/* ---- Steps --------------------------------------------------------------------------------------
 */

static void deliver(uint8_t i)
{
	struct message m = w.messages[i];

	w.message_count--;
	memmove(&w.messages[i], &w.messages[i + 1],
		(size_t)(w.message_count - i) * sizeof(w.messages[0]));
	for (int f = 0; f < m.count; f++)
		learn(&m.facts[f]);
	arena_is_without_memory = false;
	if (m.call == NO_CALL)
		return;
	if (w.calls[m.call].kind == C_OWN && !w.calls[m.call].is_given_up)
		own_made(&w.calls[m.call]);
	call_end(m.call);
}

/* What is watched is told with a position drawn now. */
static void number_watch(struct call *c, uint8_t i)
{
	struct message m = {0};

	c->at = ++w.drawn;
	add(&m, (struct fact){.kind = F_WATCH,
			.d = c->d,
			.value = 1,
			.at = c->at,
			.since = c->reply.facts[0].since});
	c->stage = S_REPLY;
	send(m, i);
}

/* A call of the daemon's goes one step further at the helper. */
static void advance(uint8_t i)
{
	struct call *c = &w.calls[i];
	struct message m = {0};
	bool is_late = world_mistake == MISTAKE_NUMBER_AFTER_LOOK;

	if (c->kind == C_OWN && c->stage == S_SENT) {
		make_own(c);
		return;
	}
	if (c->kind == C_OWN && c->stage == S_CHANGED) {
		if (world_mistake != MISTAKE_NUMBER_BEFORE_CHANGE)
			c->at = ++w.drawn;
		c->stage = S_NUMBERED;
		return;
	}
	if (c->kind == C_OWN) {
		reply_own(c, i);
		return;
	}
	if (c->kind == C_WATCH && c->stage == S_SENT) {
		if (!w.watched[c->d])
			w.since[c->d] = ++w.drawn;
		w.watched[c->d] = true;
		c->reply.facts[0].since = w.since[c->d];
		c->stage = S_LOOKED;
		/* So that it cannot end before its position is drawn. */
		if (world_mistake != MISTAKE_WATCH_TOO_EARLY)
			number_watch(c, i);
		return;
	}
	if (c->kind == C_WATCH) {
		number_watch(c, i);
		return;
	}
	if (c->stage == S_SENT) {
		if (!is_late || c->kind == C_LIST)
			c->at = ++w.drawn;
		else if (c->kind == C_LOOKUP)
			c->reply.facts[0] = look_at_name(c->d, c->n, 0);
		c->stage = S_NUMBERED;
		return;
	}
	if (c->kind == C_READ && c->stage == S_NUMBERED) {
		struct fact fact = look_at_object(c->n, c->at);

		fact.kind = F_CONTENT;
		fact.since = c->reply.facts[0].since;
		c->reply.facts[0] = fact;
		c->stage = S_LOOKED;
		return;
	}
	if (c->kind == C_LIST && c->stage == S_NUMBERED) {
		for (int n = 0; n < NAMES; n++)
			if (w.at[c->d][n])
				c->seen |= (uint8_t)(1 << n);
		c->value = 0;
		c->stage = S_LOOKED;
		return;
	}
	if (c->kind == C_LIST && c->seen) {
		uint8_t n = c->seen & 1 ? 0 : 1;
		struct fact fact = look_at_name(c->d, n, ++w.drawn);

		c->seen &= (uint8_t) ~(1 << n);
		/* What went in between is left out. */
		if (fact.value) {
			c->value |= (uint8_t)(1 << n);
			add(&c->reply, fact);
		}
		return;
	}
	if (c->kind == C_LIST) {
		m = c->reply;
		add(&m, (struct fact){
				.kind = F_LISTING, .d = c->d, .value = c->value, .at = c->at});
	} else if (c->kind == C_GETATTR) {
		add(&m, look_at_object(c->n, c->at));
	} else if (c->kind == C_READ) {
		c->reply.facts[0].content = w.objects[c->n].content;
		add(&m, c->reply.facts[0]);
	} else if (is_late) {
		c->reply.facts[0].at = ++w.drawn;
		add(&m, c->reply.facts[0]);
	} else {
		add(&m, look_at_name(c->d, c->n, c->at));
	}
	c->stage = S_REPLY;
	send(m, i);
}

static struct call *call_new(uint8_t kind, uint8_t d, uint8_t n)
{
	struct call *c = &w.calls[w.call_count++];

	assert(w.call_count <= CALLS);
	*c = (struct call){.kind = kind, .d = d, .n = n};
	return c;
}

/* They do not arrive; events may, some time. */
static void drop_replies(void)
{
	uint8_t kept = 0;

	for (uint8_t m = 0; m < w.message_count; m++)
		if (w.messages[m].call == NO_CALL)
			w.messages[kept++] = w.messages[m];
	memset(&w.messages[kept], 0, (size_t)(w.message_count - kept) * sizeof(w.messages[0]));
	w.message_count = kept;
}

static void new_session(void)
{
	memset(w.watched, 0, sizeof(w.watched));
	memset(w.pending, 0, sizeof(w.pending));
	memset(w.pending_self, 0, sizeof(w.pending_self));
	memset(w.ignored, 0, sizeof(w.ignored));
	memset(&w.event, 0, sizeof(w.event));
	w.overflow = false;
	w.drawn_before_loss = 0;
	if (world_mistake == MISTAKE_SESSION_COUNTS_FROM_1)
		w.drawn = 0;
	send_fact((struct fact){.kind = F_LOSS, .at = ++w.drawn});
	drop_replies();
	for (uint8_t i = w.call_count; i-- > 0;) {
		struct call *c = &w.calls[i];

		if (c->kind == C_OWN && !c->is_given_up)
			own_unclear(c);
		call_end(i);
	}
}

static void run_event(enum action_kind kind, uint8_t d, uint8_t n)
{
	bool is_late = world_mistake == MISTAKE_NUMBER_AFTER_LOOK;

	if (kind == A_EVENT) {
		w.event.is_under_way = true;
		w.event.is_self = n == NAMES;
		w.event.d = d;
		w.event.n = n;
		if (w.event.is_self)
			w.pending_self[d] = false;
		else
			w.pending[d][n] = false;
		if (!is_late)
			w.event.fact.at = ++w.drawn;
		return;
	}
	if (kind == A_LOOK) {
		struct fact fact =
			w.event.is_self
				? look_at_object(directory_object(w.event.d), w.event.fact.at)
				: look_at_name(w.event.d, w.event.n, w.event.fact.at);

		if (is_late) {
			w.event.fact = fact;
			w.event.is_numbered = true;
			return;
		}
		send_fact(fact);
	} else {
		w.event.fact.at = ++w.drawn;
		send_fact(w.event.fact);
	}
	memset(&w.event, 0, sizeof(w.event));
}

static enum budget own_budget(uint8_t own)
{
	static const enum budget budgets[] = {
		[O_MAKE] = B_OWN,
		[O_REMOVE] = B_OWN,
		[O_RENAME] = B_OWN_RENAME,
		[O_SWAP] = B_OWN_RENAME,
		[O_LINK] = B_OWN_LINK,
		[O_WRITE] = B_OWN_WRITE,
	};

	return budgets[own];
}

static void spend(enum budget budget)
{
	assert(w.budgets[budget] > 0);
	w.budgets[budget]--;
}

static void step(const struct action *a)
{
	struct call *c;

	if (a->dropped)
		spend(B_DROP);
	switch ((enum action_kind)a->kind) {
	case A_CHANGE:
		spend(B_CHANGE);
		place_set(a->a, a->b, w.at[a->a][a->b] ? 0 : object_new(), a->dropped);
		break;
	case A_RENAME:
	case A_SWAP:
		spend(B_RENAME);
		place_move(a->a, a->b, a->c, a->d, a->kind == A_SWAP, a->dropped);
		break;
	case A_LINK:
		spend(B_LINK);
		place_set(a->c, a->d, w.at[a->a][a->b], a->dropped);
		break;
	case A_WRITE:
	case A_WRITE_SAME:
		spend(B_WRITE);
		place_write(a->a, a->b, a->kind == A_WRITE_SAME, a->dropped);
		break;
	case A_PLACE_TICK:
		w.objects[a->a].lately = 0;
		break;
	case A_EVENT:
	case A_NUMBER:
	case A_LOOK:
		run_event(a->kind, a->a, a->b);
		break;
	case A_LOSS:
		w.overflow = false;
		send_fact((struct fact){.kind = F_LOSS,
			.at = world_mistake == MISTAKE_LOSS_TOO_EARLY && w.drawn_before_loss > 0
				      ? w.drawn_before_loss
				      : ++w.drawn});
		break;
	case A_UNWATCH:
		spend(B_UNWATCH);
		w.watched[a->a] = false;
		w.ignored[a->a] = true;
		break;
	case A_IGNORED:
		/* What came before it in the queue has been looked at. */
		w.ignored[a->a] = false;
		if (!w.watched[a->a])
			send_fact((struct fact){.kind = F_WATCH, .d = a->a, .at = ++w.drawn});
		break;
	case A_SESSION:
		spend(B_SESSION);
		new_session();
		break;
	case A_DELIVER_NO_MEMORY:
		spend(B_MEMORY);
		arena_is_without_memory = true;
		deliver(a->a);
		arena_is_without_memory = false;
		break;
	case A_DELIVER:
		deliver(a->a);
		break;
	case A_LOOKUP:
		spend(B_LOOKUP);
		call_new(C_LOOKUP, a->a, a->b);
		break;
	case A_OWN:
		spend(own_budget(a->own));
		c = call_new(C_OWN, a->a, a->b);
		c->own = a->own;
		c->to_d = a->c;
		c->to_n = a->d;
		w.call_count--; /* it does not wait for itself */
		if (begin_own(c))
			w.call_count++;
		else
			memset(c, 0, sizeof(*c));
		break;
	case A_LIST:
		spend(B_LIST);
		call_new(C_LIST, a->a, 0);
		break;
	case A_WATCH:
		spend(B_WATCH);
		call_new(C_WATCH, a->a, 0);
		break;
	case A_GETATTR:
		spend(B_GETATTR);
		call_new(C_GETATTR, 0, a->a);
		break;
	case A_READ:
		spend(B_READ);
		c = call_new(C_READ, 0, a->a);
		c->reply.facts[0].since = tree_state(tree, &(struct object_id){.inode = a->a});
		break;
	case A_ADVANCE:
		advance(a->a);
		break;
	case A_FAIL:
		spend(B_FAIL);
		own_unclear(&w.calls[a->a]);
		w.calls[a->a].is_given_up = true; /* the change goes on */
		break;
	case A_EVICT:
		spend(B_EVICT);
		tree_evict_slot(tree, slot_at(a->a, a->b));
		w.last_at[a->a][a->b] = 0;
		break;
	case A_EVICT_OBJECT:
		spend(B_EVICT);
		if (tree_evict_object(tree, object_at(a->a)))
			w.last_object_at[a->a] = 0;
		break;
	}
}

/* ---- Which steps there are ----------------------------------------------------------------------
 */

static struct action actions[DEPTH_MAX][ACTIONS_MAX];
static int action_count;
static struct action *action_list;

static void offer(struct action a)
{
	assert(action_count < ACTIONS_MAX);
	action_list[action_count++] = a;
}

/* Also such that its events are lost. */
static void offer_change(struct action a, bool is_watched)
{
	offer(a);
	if (is_watched && w.budgets[B_DROP]) {
		a.dropped = true;
		offer(a);
	}
}

static void offer_name(uint8_t d, uint8_t n)
{
	uint8_t object = w.at[d][n];
	bool has_room = w.call_count < CALLS && w.message_count + w.call_count < MESSAGES - 2;

	if (w.budgets[B_CHANGE] && (object ? !is_directory(object) : w.next_object < OBJECTS))
		offer_change((struct action){A_CHANGE, d, n, 0, 0, 0, 0}, w.watched[d]);
	if (w.budgets[B_WRITE] && object && !is_directory(object)) {
		offer_change((struct action){A_WRITE, d, n, 0, 0, 0, 0}, w.watched[d]);
		if (w.objects[object].lately)
			offer_change((struct action){A_WRITE_SAME, d, n, 0, 0, 0, 0}, w.watched[d]);
	}
	if (w.budgets[B_OWN_WRITE] && has_room && object && !is_directory(object))
		offer((struct action){A_OWN, d, n, 0, 0, O_WRITE, 0});
	if (w.budgets[B_EVICT] && slot_at(d, n))
		offer((struct action){A_EVICT, d, n, 0, 0, 0, 0});
	if (w.budgets[B_LOOKUP] && has_room)
		offer((struct action){A_LOOKUP, d, n, 0, 0, 0, 0});
	if (has_room && !is_locked(d) && w.budgets[B_OWN]) {
		offer((struct action){A_OWN, d, n, 0, 0, O_MAKE, 0});
		offer((struct action){A_OWN, d, n, 0, 0, O_REMOVE, 0});
	}
}

static void offer_pair(uint8_t d, uint8_t n, uint8_t to_d, uint8_t to_n)
{
	bool is_watched = w.watched[d] && w.watched[to_d];
	bool has_room = w.call_count < CALLS && w.message_count + w.call_count < MESSAGES - 2;

	if (w.budgets[B_RENAME] && may_move(d, n, to_d, to_n, false))
		offer_change((struct action){A_RENAME, d, n, to_d, to_n, 0, 0}, is_watched);
	if (w.budgets[B_RENAME] && d * NAMES + n < to_d * NAMES + to_n &&
		may_move(d, n, to_d, to_n, true))
		offer_change((struct action){A_SWAP, d, n, to_d, to_n, 0, 0}, is_watched);
	if (w.budgets[B_LINK] && w.at[d][n] && !is_directory(w.at[d][n]) && !w.at[to_d][to_n] &&
		w.watched[to_d])
		offer_change((struct action){A_LINK, d, n, to_d, to_n, 0, 0}, true);
	if (!has_room || is_locked(d) || is_locked(to_d))
		return;
	if (w.budgets[B_OWN_RENAME]) {
		offer((struct action){A_OWN, d, n, to_d, to_n, O_RENAME, 0});
		if (d * NAMES + n < to_d * NAMES + to_n)
			offer((struct action){A_OWN, d, n, to_d, to_n, O_SWAP, 0});
	}
	if (w.budgets[B_OWN_LINK])
		offer((struct action){A_OWN, d, n, to_d, to_n, O_LINK, 0});
}

static void offer_object(uint8_t object)
{
	bool has_room = w.call_count < CALLS && w.message_count + w.call_count < MESSAGES - 2;
	const struct object *known = object_at(object);

	if (w.budgets[B_EVICT] && known && !known->slots && object != 1)
		offer((struct action){A_EVICT_OBJECT, object, 0, 0, 0, 0, 0});
	if (object >= w.next_object || nlink_of(object) == 0)
		return;
	if (w.budgets[B_GETATTR] && has_room)
		offer((struct action){A_GETATTR, object, 0, 0, 0, 0, 0});
	if (is_directory(object))
		return;
	if (w.objects[object].lately)
		offer((struct action){A_PLACE_TICK, object, 0, 0, 0, 0, 0});
	if (w.budgets[B_READ] && has_room)
		offer((struct action){A_READ, object, 0, 0, 0, 0, 0});
}

static void offer_helper(void)
{
	for (uint8_t d = 0; d < config->directories; d++) {
		bool is_waiting = w.pending_self[d];

		for (uint8_t n = 0; n < config->names; n++) {
			is_waiting = is_waiting || w.pending[d][n];
			if (w.pending[d][n] && !w.event.is_under_way)
				offer((struct action){A_EVENT, d, n, 0, 0, 0, 0});
		}
		if (w.pending_self[d] && !w.event.is_under_way)
			offer((struct action){A_EVENT, d, NAMES, 0, 0, 0, 0});
		if (w.ignored[d] && !is_waiting && !w.event.is_under_way)
			offer((struct action){A_IGNORED, d, 0, 0, 0, 0, 0});
		if (w.watched[d] && w.budgets[B_UNWATCH])
			offer((struct action){A_UNWATCH, d, 0, 0, 0, 0, 0});
	}
	if (w.event.is_under_way)
		offer((struct action){w.event.is_numbered ? A_NUMBER : A_LOOK, 0, 0, 0, 0, 0, 0});
	else if (w.overflow)
		offer((struct action){A_LOSS, 0, 0, 0, 0, 0, 0});
	if (w.budgets[B_SESSION])
		offer((struct action){A_SESSION, 0, 0, 0, 0, 0, 0});
}

static void offer_calls(void)
{
	bool has_room = w.call_count < CALLS && w.message_count + w.call_count < MESSAGES - 2;

	for (uint8_t d = 0; d < config->directories && has_room; d++) {
		if (w.budgets[B_LIST])
			offer((struct action){A_LIST, d, 0, 0, 0, 0, 0});
		if (w.budgets[B_WATCH])
			offer((struct action){A_WATCH, d, 0, 0, 0, 0, 0});
	}
	for (uint8_t i = 0; i < w.call_count; i++) {
		const struct call *c = &w.calls[i];

		if (c->stage != S_REPLY)
			offer((struct action){A_ADVANCE, i, 0, 0, 0, 0, 0});
		if (c->kind == C_OWN && c->stage > S_SENT && w.budgets[B_FAIL] && !c->is_given_up)
			offer((struct action){A_FAIL, i, 0, 0, 0, 0, 0});
	}
	for (uint8_t i = 0; i < w.message_count; i++) {
		offer((struct action){A_DELIVER, i, 0, 0, 0, 0, 0});
		if (w.budgets[B_MEMORY])
			offer((struct action){A_DELIVER_NO_MEMORY, i, 0, 0, 0, 0, 0});
	}
}

static void list_actions(int level)
{
	uint8_t count = config->names;

	action_list = actions[level];
	action_count = 0;
	for (uint8_t i = 0; i < config->directories * count; i++) {
		offer_name(i / count, i % count);
		for (uint8_t k = 0; k < config->directories * count; k++)
			if (k != i)
				offer_pair(i / count, i % count, k / count, k % count);
	}
	for (uint8_t object = 1; object < w.next_object; object++)
		if (object != 2 || config->directories == 2)
			offer_object(object);
	offer_helper();
	offer_calls();
}

/* ---- What must hold -----------------------------------------------------------------------------
 */

static void check_name(uint8_t d, uint8_t n)
{
	const struct object_id directory = id_of(directory_object(d));
	const struct object *in = object_at(directory_object(d));
	const struct slot *s = slot_at(d, n);
	struct object_id id;
	uint64_t at = 0;

	HOLDS(!s || s->at >= w.last_at[d][n], "I1: the position of a name fell");
	w.last_at[d][n] = s ? s->at : 0;
	if (s)
		at = s->at;
	else if (in && in->has_facts)
		at = tree_facts(in)->listed_at > tree_facts(in)->evicted_at
			     ? tree_facts(in)->listed_at
			     : tree_facts(in)->evicted_at;
	if (tree_get_name(tree, &directory, names[n], NOW_MS, &id) != TREE_ASK)
		HOLDS(at >= w.own_at[d][n], "I6: older than the answer of an own change");
}

static void check_object(uint8_t object)
{
	const struct object *o = object_at(object);
	int valid = 0;

	if (!o)
		return;
	HOLDS(o->at >= w.last_object_at[object], "I1: the position of an object fell");
	w.last_object_at[object] = o->at;
	for (const struct slot *s = slab_at(o->slots); s; s = slab_at(s->next_of)) {
		HOLDS(slot_object(s) == o, "I2: a name of an object that leads elsewhere");
		valid += !s->unknown;
	}
	if (is_directory(object))
		HOLDS(valid <= 1, "I3: two names of a directory");
	if (!o->has_facts)
		return;
	for (uint8_t n = 0; n < config->names; n++) {
		const struct slot *s = tree_slot(o, names[n]),
				  *other = s && s->of ? slab_at(slot_object(s)->slots) : s;

		while (other && other != s)
			other = slab_at(other->next_of);
		HOLDS(other == s, "I2: an object that does not know its name");
		if (s)
			HOLDS(s->at >= tree_facts(o)->listed_at,
				"I1: a name is older than the listing");
	}
}

static bool is_at_rest(void)
{
	for (int d = 0; d < DIRECTORIES; d++) {
		if (w.pending_self[d] || w.ignored[d])
			return false;
		for (int n = 0; n < NAMES; n++)
			if (w.pending[d][n])
				return false;
	}
	return !w.overflow && !w.event.is_under_way && w.message_count == 0 && w.call_count == 0;
}

struct listed {
	uint8_t d, count;
	bool is_wrong;
};

static bool count_name(void *user, const struct tree_entry *entry)
{
	struct listed *listed = user;

	if (w.at[listed->d][entry->name[0] == 'b'] != object_of(&entry->attributes->id))
		listed->is_wrong = true;
	listed->count++;
	return true;
}

static void check_directory_at_rest(uint8_t d)
{
	const struct object_id directory = id_of(directory_object(d));
	const struct object *in = object_at(directory_object(d));
	struct listed listed = {.d = d};
	struct object_id id;
	uint8_t there = 0;

	for (uint8_t n = 0; n < config->names; n++) {
		if (tree_get_name(tree, &directory, names[n], NOW_MS, &id) != TREE_ASK) {
			HOLDS(object_of(&id) == w.at[d][n], "I7: a name leads elsewhere");
			result->valid_names++;
		}
	}
	for (int n = 0; n < NAMES; n++)
		there = (uint8_t)(there + (w.at[d][n] != 0));
	if (tree_list(tree, &directory, NOW_MS, count_name, &listed) != TREE_ASK)
		HOLDS(listed.count == there && !listed.is_wrong, "I7: a listing is wrong");
	if (in && in->has_facts && tree_facts(in)->on && tree_facts(in)->watch_seen > tree->lost_at)
		HOLDS(w.watched[d], "I7: a directory is not watched");
}

static void check_at_rest(void)
{
	result->at_rest++;
	for (uint8_t d = 0; d < config->directories; d++)
		check_directory_at_rest(d);
	for (uint8_t object = 1; object < w.next_object; object++) {
		const struct object_id id = id_of(object);
		struct attributes a;

		if (tree_get_attributes(tree, &id, NOW_MS, &a) == TREE_ASK)
			continue;
		result->valid_attributes++;
		/* Of a link that comes and goes no event says which object's it was: the ctime of
		 * a file with another name stays as it was looked at before. */
		HOLDS(a.nlink == nlink_of(object) &&
				(a.mtime.tv_sec == w.objects[object].version ||
					(!is_directory(object) &&
						object_at(object)->at <
							w.objects[object].linked_at)),
			"I7: attributes are not so");
		if (w.content_object == object && w.content_state == tree_state(tree, &id))
			HOLDS(w.content == w.objects[object].content, "I7: content is not so");
	}
}

static void check(void)
{
	for (uint8_t d = 0; d < config->directories; d++)
		for (uint8_t n = 0; n < config->names; n++)
			check_name(d, n);
	for (uint8_t object = 1; object < w.next_object; object++)
		check_object(object);
	if (!broken && is_at_rest())
		check_at_rest();
}

/* ---- Runs ---------------------------------------------------------------------------------------
 */

static void start(const struct world_case *c)
{
	const struct tree_options options = {.ttl_ms = 0};

	config = c;
	broken = NULL;
	arena_is_without_memory = false;
	memset(&w, 0, sizeof(w));
	memcpy(w.budgets, c->budgets, sizeof(w.budgets));
	w.next_object = 4;
	for (int i = 1; i < w.next_object; i++)
		w.objects[i] = (struct place_object){.version = 1, .content = 1};
	w.at[0][0] = 3;
	if (c->directories == 2)
		w.at[0][1] = 2;
	tree = tree_new(&options);
	assert(tree);
	for (uint8_t d = 0; d < c->directories; d++) {
		struct fact fact = look_at_object(directory_object(d), ++w.drawn);

		if (c->is_cold && d == 1)
			break;
		learn(&fact);
		if (c->is_cold)
			break;
		w.watched[d] = true;
		w.since[d] = ++w.drawn;
		learn(&(struct fact){
			.kind = F_WATCH, .d = d, .value = 1, .at = w.drawn, .since = w.drawn});
		learn(&(struct fact){.kind = F_LISTING, .d = d, .at = ++w.drawn});
		fact = look_at_object(directory_object(d), ++w.drawn);
		learn(&fact);
		for (uint8_t n = 0; n < NAMES; n++)
			if (w.at[d][n]) {
				fact = look_at_name(d, n, ++w.drawn);
				learn(&fact);
			}
	}
}

static void note_failure(void)
{
	size_t size = 0;

	snprintf(result->failure, sizeof(result->failure), "%s: %s", config->name, broken);
	for (int i = 0; i < depth && size + 80 < sizeof(result->steps); i++)
		size += (size_t)snprintf(result->steps + size, sizeof(result->steps) - size,
			"  %s %u/%u %u/%u%s%s\n", action_names[path[i].kind], path[i].a, path[i].b,
			path[i].c, path[i].d,
			path[i].kind == A_OWN ? (const char *const[]){" make", " remove", " rename",
							" swap", " link", " write"}[path[i].own]
					      : "",
			path[i].dropped ? ", unseen" : "");
}

static bool is_offered(const struct action *a)
{
	for (int i = 0; i < action_count; i++)
		if (memcmp(&actions[0][i], a, sizeof(*a)) == 0)
			return true;
	return false;
}

/* Runs those of the steps that are possible, and keeps them. */
static void run_again(const struct action *steps, int count)
{
	start(config);
	depth = 0;
	for (int i = 0; i < count && !broken; i++) {
		list_actions(0);
		if (!is_offered(&steps[i]))
			continue;
		path[depth] = steps[i];
		step(&path[depth++]);
		check();
	}
}

/* Leaves out what the failure does not need. */
static void shorten(void)
{
	static struct action shortest[DEPTH_MAX], tried[DEPTH_MAX];
	const char *failure = broken;
	int count = depth;

	memcpy(shortest, path, sizeof(path));
	for (int i = count - 1; i >= 0; i--) {
		memcpy(tried, shortest, sizeof(tried));
		memmove(&tried[i], &tried[i + 1], (size_t)(count - i - 1) * sizeof(tried[0]));
		tree_free(tree);
		run_again(tried, count - 1);
		if (!broken)
			continue;
		failure = broken;
		count = depth;
		memcpy(shortest, path, sizeof(path));
		i = i > count ? count : i;
	}
	depth = count;
	memcpy(path, shortest, sizeof(path));
	broken = failure;
}

/* The finalizer of splitmix64. */
static uint64_t mixed(uint64_t number)
{
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
	number = (number ^ number >> 27) * 0x94d049bb133111eb;
	return number ^ number >> 31;
}

/* One of 32 schedules is of a large case. */
static const struct world_case *case_of(uint64_t seed)
{
	enum { SMALLER = WORLD_CASES - WORLD_LARGE };

	return &world_cases[seed % 32 == 0 ? SMALLER + seed / 32 % WORLD_LARGE : seed % SMALLER];
}

void world_run_random(uint64_t seed, struct world_result *ret)
{
	const struct world_case *c = case_of(seed);
	uint64_t random = seed << 20;

	result = ret;
	start(c);
	for (depth = 0; depth < DEPTH_MAX && !broken; depth++) {
		list_actions(0);
		if (action_count == 0)
			break;
		path[depth] = actions[0][mixed(++random) % (uint64_t)action_count];
		step(&path[depth]);
		check();
	}
	ret->states += (uint64_t)depth;
	if (broken) {
		shorten();
		note_failure();
	}
	tree_free(tree);
}

/* ---- All orders ---------------------------------------------------------------------------------
 */

enum { POSITIONS_MAX = 256, NUMBERS_MAX = 1024 };

/* A state as numbers, with positions by their rank: what differs in nothing else is the same. */
static uint64_t positions[POSITIONS_MAX], numbers[NUMBERS_MAX];
static int position_count, number_count;
static bool is_ranked; /* the positions are known; numbers are written */

static void put(uint64_t number)
{
	assert(number_count < NUMBERS_MAX);
	if (is_ranked)
		numbers[number_count++] = number;
}

static void put_at(uint64_t at)
{
	int low = 0, high = position_count;

	while (low < high) {
		int middle = (low + high) / 2;

		if (positions[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	if (is_ranked) {
		put((uint64_t)low);
		return;
	}
	if (low < position_count && positions[low] == at)
		return;
	assert(position_count < POSITIONS_MAX);
	memmove(&positions[low + 1], &positions[low],
		(size_t)(position_count - low) * sizeof(positions[0]));
	positions[low] = at;
	position_count++;
}

/* Of a state, only whether it is the present one matters. */
static void put_state(uint8_t object, uint64_t state)
{
	const struct object *o = object_at(object);

	put(o && o->state == state);
}

static void put_fact(const struct fact *f)
{
	put(f->kind | f->d << 4 | f->n << 6 | f->value << 8 | f->version << 16 |
		(uint64_t)f->nlink << 24 | (uint64_t)f->lately << 32 | (uint64_t)f->content << 40);
	put_at(f->at);
	if (f->kind == F_WATCH)
		put_at(f->since);
	if (f->kind == F_CONTENT)
		put_state(f->value, f->since);
}

/* Messages overtake one another: their order is none. */
static void put_messages(void)
{
	uint64_t sum = 0;
	int first = number_count;

	for (int i = 0; i < w.message_count; i++) {
		const struct message *m = &w.messages[i];

		number_count = first;
		put(m->call);
		for (int f = 0; f < m->count; f++)
			put_fact(&m->facts[f]);
		if (is_ranked)
			sum += XXH3_64bits(&numbers[first],
				(size_t)(number_count - first) * sizeof(numbers[0]));
	}
	number_count = first;
	put(sum);
}

static void put_call(const struct call *c)
{
	put(c->kind | c->stage << 4 | c->own << 8 | c->d << 12 | c->n << 16 | c->to_d << 20 |
		c->to_n << 21 | (uint64_t)c->value << 24 | (uint64_t)c->has_failed << 33 |
		(uint64_t)c->is_given_up << 34 | (uint64_t)c->moved << 40 |
		(uint64_t)c->replaced << 48 | (uint64_t)c->seen << 56);
	put_at(c->at);
	put_at(c->changed_at);
	if (c->kind == C_READ)
		put_state(c->n, c->reply.facts[0].since);
	if (c->stage < S_REPLY)
		for (int f = 0; f < FACTS; f++)
			put_fact(&c->reply.facts[f]);
}

static void put_slot(const struct slot *s)
{
	put_at(s->at);
	put(s->unknown | (s->of ? slot_object(s)->inode : 0) << 1);
}

static void put_tree(void)
{
	const struct slot *s;

	put_at(tree->lost_at);
	put_at(tree->evicted_at);
	for (uint8_t i = 1; i < w.next_object; i++) {
		const struct object *o = object_at(i);

		put(o ? file_kind_at(o->kind)->mode | (uint64_t)o->unknown << 32 |
					(uint64_t)o->has_facts << 33 |
					(uint64_t)file_kind_at(o->kind)->nlink << 40
		      : UINT64_MAX);
		if (!o)
			continue;
		put_at(o->at);
		put((uint64_t)o->mtime.seconds << 1 | o->changed_lately);
		put(w.content_object == i && w.content_state == o->state);
		if (!o->has_facts)
			continue;
		put(tree_facts(o)->on);
		put_at(tree_facts(o)->watch_seen);
		put_at(tree_facts(o)->watch_at);
		put_at(tree_facts(o)->listed_at);
		put_at(tree_facts(o)->evicted_at);
		for (uint8_t n = 0; n < NAMES; n++) {
			s = tree_slot(o, names[n]);
			put(s != NULL);
			if (s)
				put_slot(s);
		}
	}
}

static void put_world(void)
{
	put(w.next_object | w.overflow << 16 | w.event.is_under_way << 18 | w.event.is_self << 19 |
		w.event.is_numbered << 20 | (uint64_t)w.event.d << 24 | (uint64_t)w.event.n << 28 |
		(uint64_t)w.content << 40);
	put_at(w.drawn);
	put_fact(&w.event.fact);
	for (int d = 0; d < DIRECTORIES; d++) {
		put(w.watched[d] | w.pending_self[d] << 1 | w.ignored[d] << 2);
		put_at(w.since[d]);
		for (int n = 0; n < NAMES; n++) {
			put(w.at[d][n] | w.pending[d][n] << 8);
			put_at(w.own_at[d][n]);
		}
	}
	for (int i = 1; i < w.next_object; i++) {
		put(w.objects[i].version | w.objects[i].content << 8 | w.objects[i].lately << 16);
		put_at(w.objects[i].linked_at);
	}
	for (int i = 0; i < B_COUNT; i++)
		put(w.budgets[i]);
	for (int i = 0; i < w.call_count; i++)
		put_call(&w.calls[i]);
	put_messages();
	put_tree();
}

static uint64_t state_hash(void)
{
	position_count = 0;
	is_ranked = false;
	put_at(0);
	put_world();
	is_ranked = true;
	number_count = 0;
	put_world();
	return XXH3_64bits(numbers, (size_t)number_count * sizeof(numbers[0]));
}

struct saved {
	struct world w;
	struct arena arena;
	int action_count;
};

static void save(struct saved *to)
{
	to->w = w;
	to->action_count = action_count;
	arena_copy(&to->arena, &arena);
}

static void restore(const struct saved *from)
{
	w = from->w;
	action_count = from->action_count;
	arena_copy(&arena, &from->arena);
}

/* From the state that the world is in; it is left in another. */
static void run_all(struct saved *saved, int level, uint64_t states_max)
{
	int count;

	assert(level < DEPTH_MAX - 1);
	list_actions(level);
	count = action_count;
	save(&saved[level]);
	for (int i = 0; i < count && !broken; i++) {
		if (result->states >= states_max) {
			result->is_complete = false;
			return;
		}
		if (i > 0)
			restore(&saved[level]);
		path[level] = actions[level][i];
		depth = level + 1;
		step(&path[level]);
		check();
		if (!broken && seen_add(state_hash())) {
			result->states++;
			run_all(saved, level + 1, states_max);
		}
	}
}

void world_run_all(const struct world_case *c, uint64_t states_max, struct world_result *ret)
{
	struct saved *saved = calloc(DEPTH_MAX, sizeof(*saved));

	assert(saved);
	result = ret;
	memset(ret, 0, sizeof(*ret));
	ret->is_complete = true;
	arena_begin();
	start(c);
	run_all(saved, 0, states_max);
	arena_end();
	if (broken)
		note_failure();
	free(saved);
	seen_clear();
}
