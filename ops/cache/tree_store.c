/* The rules are in ops/cache/COHERENCE.md, under the names that RULE() has here. */
#include "ops/cache/tree_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ops/support/hash_seed.h"

enum {
	SWEEP_BUCKETS = 64,   /* swept with each fact while the tree is above facts_max */
	CLEAN_BUCKETS = 1024, /* cleaned by each call of tree_clean() */
	SETTLE_MS = 10000,    /* a fact arrives within this time of its position */
};

/* ---- Tables -------------------------------------------------------------------------------- */

/* Leaves out the device, as objects have few different ones. */
static size_t number_hash(uint64_t inode, uint64_t generation)
{
	const uint64_t numbers[] = {inode, generation};

	return XXH3_64bits_withSeed(numbers, sizeof(numbers), hash_seed());
}

static size_t object_entry_hash(const void *entry)
{
	const struct object *o = entry;

	return number_hash(o->inode, o->generation);
}

static slab_ref *object_entry_link(void *entry)
{
	return &((struct object *)entry)->next;
}

/* The 24 bits that a slot stores. */
static uint32_t name_hash(const char *name)
{
	return XXH3_64bits_withSeed(name, strlen(name), hash_seed()) & ((1 << 24) - 1);
}

static size_t slot_entry_hash(const void *entry)
{
	return ((const struct slot *)entry)->hash;
}

static slab_ref *slot_entry_link(void *entry)
{
	return &((struct slot *)entry)->next;
}

struct object *tree_object(const struct tree *t, const struct object_id *id)
{
	struct object *o = slab_table_bucket(&t->objects, number_hash(id->inode, id->generation));

	while (o && (o->inode != id->inode || o->generation != id->generation ||
			    file_kind_at(o->kind)->device != id->device))
		o = slab_at(o->next);
	return o;
}

struct slot *tree_slot(const struct object *directory, const char *name)
{
	struct slot *s;
	uint32_t hash;

	if (!directory || !directory->has_facts)
		return NULL;
	hash = name_hash(name);
	s = slab_table_bucket(&tree_facts(directory)->slots, hash);
	while (s && (s->hash != hash || strcmp(s->name, name) != 0))
		s = slab_at(s->next);
	return s;
}

struct slot *tree_slot_first(const struct directory_facts *d, size_t *bucket)
{
	for (*bucket = 0; *bucket <= d->slots.mask; (*bucket)++)
		if (d->slots.buckets[*bucket])
			return slab_at(d->slots.buckets[*bucket]);
	return NULL;
}

struct slot *tree_slot_next(const struct directory_facts *d, const struct slot *s, size_t *bucket)
{
	if (s->next)
		return slab_at(s->next);
	while (++*bucket <= d->slots.mask)
		if (d->slots.buckets[*bucket])
			return slab_at(d->slots.buckets[*bucket]);
	return NULL;
}

/* ---- Attributes ----------------------------------------------------------------------------- */

/* False: the time does not fit. */
static bool set_time(struct short_time *into, const struct timespec *time)
{
	*into = (struct short_time){.seconds = time->tv_sec, .ns = (uint64_t)time->tv_nsec};
	return into->seconds == time->tv_sec;
}

static struct timespec time_of(const struct short_time *time)
{
	return (struct timespec){.tv_sec = time->seconds, .tv_nsec = time->ns};
}

static bool is_device(uint32_t mode)
{
	return S_ISCHR(mode) || S_ISBLK(mode);
}

/* False: no memory; the object keeps its former kind. */
static bool set_kind(struct tree *t, struct object *o, const struct file_kind *kind)
{
	slab_ref ref = file_kind_get(&t->kinds, kind);

	if (!ref)
		return false;
	file_kind_put(&t->kinds, o->kind);
	o->kind = ref;
	return true;
}

bool tree_set_attributes(struct tree *t, struct object *o, const struct attributes *a)
{
	const struct file_kind kind = {.device = a->id.device,
		.mode = a->mode,
		.nlink = a->nlink,
		.uid = a->uid,
		.gid = a->gid,
		.block_size_bytes = a->block_size_bytes};
	bool fits = set_time(&o->atime, &a->atime);

	fits = set_time(&o->mtime, &a->mtime) && fits;
	fits = set_time(&o->ctime, &a->ctime) && fits;
	o->size_or_rdev = is_device(a->mode) ? a->rdev : a->size_bytes;
	o->blocks = (uint32_t)a->blocks;
	o->changed_lately = a->changed_lately;
	o->is_generated = a->is_generated;
	return set_kind(t, o, &kind) && fits && o->blocks == a->blocks;
}

struct attributes tree_attributes_of(const struct object *o)
{
	const struct file_kind *kind = file_kind_at(o->kind);
	bool has_rdev = is_device(kind->mode);

	return (struct attributes){
		.id = object_id_of(o),
		.mode = kind->mode,
		.nlink = kind->nlink,
		.uid = kind->uid,
		.gid = kind->gid,
		.rdev = has_rdev ? o->size_or_rdev : 0,
		.size_bytes = has_rdev ? 0 : o->size_or_rdev,
		.blocks = o->blocks,
		.block_size_bytes = kind->block_size_bytes,
		.atime = time_of(&o->atime),
		.mtime = time_of(&o->mtime),
		.ctime = time_of(&o->ctime),
		.changed_lately = o->changed_lately,
		.is_generated = o->is_generated,
	};
}

/* ---- Losses --------------------------------------------------------------------------------- */

/* The last fact about the watch is older than the last loss: the end of the watch may be lost. */
static bool is_watch_lost(const struct tree *t, const struct directory_facts *d)
{
	return d->watch_seen < t->lost_at && RULE(LOST_WATCH);
}

void tree_lose(struct tree *t, uint64_t at)
{
	if (RULE(LOSS) && at > t->lost_at)
		t->lost_at = at;
}

void tree_lose_fact(struct tree *t, uint64_t at)
{
	if (!RULE(NO_MEMORY))
		return;
	t->evicted_at = tree_higher(t->evicted_at, at);
	tree_lose(t, at);
}

/* ---- Objects and slots --------------------------------------------------------------------- */

bool tree_is_backed(const struct tree *t, const struct directory_facts *d, uint64_t at)
{
	return d->on && !is_watch_lost(t, d) && (at >= d->watch_at || !RULE(BACKED)) &&
	       at >= t->lost_at;
}

/* Whether a name without slot is known to be absent. */
static bool is_listed(const struct tree *t, const struct directory_facts *d)
{
	return d->listed_at && tree_is_backed(t, d, d->listed_at);
}

slab_ref *tree_kept_of(struct object *o)
{
	return o->has_facts ? &tree_facts(o)->kept : &o->kept;
}

void tree_object_leave(struct slot *s)
{
	const slab_ref ref = slab_ref_of(s);
	slab_ref *link;

	if (!s->of)
		return;
	for (link = &slot_object(s)->slots; *link != ref;
		link = &((struct slot *)slab_at(*link))->next_of)
		;
	*link = s->next_of;
	s->of = 0;
}

void tree_object_join(struct slot *s, struct object *o)
{
	s->of = slab_ref_of(o);
	if (!o)
		return;
	s->next_of = o->slots;
	o->slots = slab_ref_of(s);
}

static size_t slot_bytes(const char *name)
{
	return offsetof(struct slot, name) + strlen(name) + 1;
}

void tree_slot_release(struct tree *t, struct slot *s)
{
	slab_free(&t->slab, s, slot_bytes(s->name));
}

static void slot_free(struct tree *t, struct slot *s)
{
	tree_object_leave(s);
	slab_table_remove(&slot_facts(s)->slots, s, slot_entry_hash, slot_entry_link);
	t->names--;
	tree_slot_release(t, s);
}

void tree_evict_slot(struct tree *t, struct slot *s)
{
	struct directory_facts *d = slot_facts(s);

	if (s->of || s->unknown) {
		if (RULE(EVICT_LISTED))
			d->listed_at = 0;
	}
	if (RULE(EVICTED))
		d->evicted_at = tree_higher(d->evicted_at, s->at);
	slot_free(t, s);
}

void tree_object_release(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);

	if (d)
		slab_table_done(&d->slots);
	slab_free(&t->slab, d, sizeof(*d));
	file_kind_put(&t->kinds, o->kind);
	slab_free(&t->slab, o, sizeof(*o));
}

bool tree_evict_object(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);

	if (o->slots || (d && d->slots.count > 0))
		return false;
	if (RULE(EVICTED)) {
		t->evicted_at = tree_higher(t->evicted_at, o->at);
		if (d)
			t->evicted_at = tree_higher(
				t->evicted_at, tree_higher(d->watch_seen,
						       tree_higher(d->listed_at, d->evicted_at)));
	}
	slab_table_remove(&t->objects, o, object_entry_hash, object_entry_link);
	tree_object_release(t, o);
	return true;
}

/* Asks options.drop. */
static bool may_drop(struct tree *t, struct object *o)
{
	const struct object_id id = object_id_of(o);

	if (t->options.drop && !t->options.drop(t->options.user, &id, slab_at(*tree_kept_of(o))))
		return false;
	*tree_kept_of(o) = 0;
	return true;
}

/* Drops the slots of the directory for which `is_chosen` is true; NULL: all. */
static void evict_slots(struct tree *t, const struct directory_facts *d,
	bool (*is_chosen)(const struct tree *t, struct slot *s))
{
	struct slot *next;
	size_t bucket;

	for (struct slot *s = tree_slot_first(d, &bucket); s; s = next) {
		next = tree_slot_next(d, s, &bucket);
		if (!is_chosen || is_chosen(t, s))
			tree_evict_slot(t, s);
	}
}

static bool is_unused_absence(const struct tree *t, struct slot *s)
{
	bool used = s->used;

	(void)t;
	s->used = false;
	return !s->of && !used;
}

/* Whether no fact older than those known about the object can still arrive. */
static bool is_settled(const struct tree *t, const struct object *o)
{
	const struct directory_facts *d = tree_facts(o);

	return o->at <= t->settled_at &&
	       (!d || (!d->on && d->watch_seen <= t->settled_at && d->listed_at <= t->settled_at &&
			      d->evicted_at <= t->settled_at));
}

/* The same for all names in the directory. */
static bool are_settled(const struct tree *t, const struct directory_facts *d)
{
	size_t bucket;

	if (!d)
		return true;
	for (const struct slot *s = tree_slot_first(d, &bucket); s;
		s = tree_slot_next(d, s, &bucket))
		if (s->at > t->settled_at)
			return false;
	return true;
}

/* Drops what was not used since the last sweep: absent names in the object, then the object. */
static void sweep_object(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);
	struct slot *next;

	if (d)
		evict_slots(t, d, is_unused_absence);
	if (o->used || (d && d->slots.count > 0)) {
		o->used = false;
		return;
	}
	if (!may_drop(t, o))
		return;
	for (struct slot *s = slab_at(o->slots); s; s = next) {
		next = slab_at(s->next_of);
		tree_evict_slot(t, s);
	}
	tree_evict_object(t, o);
}

/* Drops an object without names, as no caller can ask for it, once no older fact can arrive: such a
 * fact would make the tree ask the workspace. */
static void clean_object(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);

	if (o->slots || !is_settled(t, o) || !may_drop(t, o) || !are_settled(t, d))
		return;
	if (d)
		evict_slots(t, d, NULL);
	tree_evict_object(t, o);
}

void tree_clean_names(struct tree *t, struct directory_facts *d)
{
	struct slot *next;

	d->hand = (d->hand + 1) & d->slots.mask;
	for (struct slot *s = slab_at(d->slots.buckets[d->hand]); s && is_listed(t, d); s = next) {
		next = slab_at(s->next);
		if (!s->of && !s->unknown && s->at <= t->settled_at)
			tree_evict_slot(t, s);
	}
}

static void see_settled(struct tree *t, uint64_t now_ms)
{
	if (now_ms < t->mark_ms + SETTLE_MS)
		return;
	t->settled_at = t->mark_at;
	t->mark_at = t->highest;
	t->mark_ms = now_ms;
}

static void sweep_bucket(
	struct tree *t, size_t *hand, void (*sweep_one)(struct tree *t, struct object *o))
{
	struct object *next;

	*hand = (*hand + 1) & t->objects.mask;
	for (struct object *o = slab_at(t->objects.buckets[*hand]); o; o = next) {
		next = slab_at(o->next);
		sweep_one(t, o);
	}
}

void tree_sweep(struct tree *t, uint64_t now_ms)
{
	size_t max = t->options.facts_max;

	if (max == 0)
		return;
	see_settled(t, now_ms);
	sweep_bucket(t, &t->clean_hand, clean_object);
	for (int i = 0; i < SWEEP_BUCKETS && t->objects.count + t->names > max; i++)
		sweep_bucket(t, &t->sweep_hand, sweep_object);
}

/* The same at once, and with the absent names in the object. */
static void clean_all(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);

	for (size_t i = 0; d && i <= d->slots.mask; i++)
		tree_clean_names(t, d);
	if (d)
		slab_table_shrink(&d->slots, slot_entry_hash, slot_entry_link);
	clean_object(t, o);
}

bool tree_clean(struct tree *t, size_t *part)
{
	t->settled_at = t->highest;
	for (int i = 0; i < CLEAN_BUCKETS; i++) {
		sweep_bucket(t, part, clean_all);
		if (*part == 0) {
			slab_table_shrink(&t->objects, object_entry_hash, object_entry_link);
			slab_trim(&t->slab);
			slab_trim(&t->kinds.slab);
			return false;
		}
	}
	return true;
}

struct object *tree_object_make(struct tree *t, const struct object_id *id)
{
	const struct file_kind kind = {.device = id->device};
	struct object *o = tree_object(t, id);

	if (!o) {
		o = slab_alloc(&t->slab, sizeof(*o));
		if (!o)
			return NULL;
		o->inode = id->inode;
		o->generation = id->generation;
		if (!set_kind(t, o, &kind)) {
			slab_free(&t->slab, o, sizeof(*o));
			return NULL;
		}
		o->unknown = true;
		o->at = t->evicted_at;
		slab_table_insert(&t->objects, o, object_entry_hash, object_entry_link);
	}
	o->used = true;
	return o;
}

struct object *tree_directory_make(struct tree *t, const struct object_id *id)
{
	struct object *o;
	struct directory_facts *d;

	o = tree_object_make(t, id);
	if (!o || o->has_facts)
		return o;
	d = slab_alloc(&t->slab, sizeof(*d));
	if (!d || slab_table_init(&d->slots) < 0) {
		slab_free(&t->slab, d, sizeof(*d));
		return NULL;
	}
	d->watch_seen = d->evicted_at = t->evicted_at;
	d->kept = o->kept;
	o->kept = slab_ref_of(d);
	o->has_facts = true;
	return o;
}

struct slot *tree_slot_make(struct tree *t, struct object *in, const char *name)
{
	struct directory_facts *d = tree_facts(in);
	struct slot *s = slab_alloc(&t->slab, slot_bytes(name));

	if (!s)
		return NULL;
	strcpy(s->name, name);
	s->hash = name_hash(name);
	s->in = slab_ref_of(in);
	/* Whether the name never had a slot, or lost one with position evicted_at, is not known. */
	s->at = tree_higher(d->listed_at, d->evicted_at);
	s->unknown = d->listed_at == 0 || d->listed_at < d->evicted_at;
	s->looked_ms = d->listed_ms;
	slab_table_insert(&d->slots, s, slot_entry_hash, slot_entry_link);
	t->names++;
	return s;
}
