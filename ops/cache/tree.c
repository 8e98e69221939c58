/* The rules are in ops/cache/COHERENCE.md, under the names that RULE() has here. */
#include "ops/cache/tree_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ops/support/hash_seed.h"

enum {
	SWEEP_BUCKETS = 64, /* with each fact, while there are too many */
	SETTLE_MS = 10000,  /* no fact is on its way for longer */
	LINKS_MAX = 64,     /* with more, attributes are not backed: walking all names takes long */
};

#ifdef TREE_MUTANTS
enum tree_rule tree_rule_off = RULE_COUNT;
#endif

static uint64_t higher(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- Tables -------------------------------------------------------------------------------- */

static size_t id_hash(const struct object_id *id)
{
	return XXH3_64bits_withSeed(id, sizeof(*id), hash_seed());
}

static size_t object_entry_hash(const void *entry)
{
	return id_hash(&((const struct object *)entry)->id);
}

static void **object_entry_link(void *entry)
{
	return (void **)&((struct object *)entry)->next;
}

static uint32_t name_hash(const char *name)
{
	return (uint32_t)XXH3_64bits_withSeed(name, strlen(name), hash_seed());
}

static size_t slot_entry_hash(const void *entry)
{
	return ((const struct slot *)entry)->hash;
}

static void **slot_entry_link(void *entry)
{
	return (void **)&((struct slot *)entry)->next;
}

struct object *tree_object(const struct tree *t, const struct object_id *id)
{
	struct object *o = t->objects.buckets[id_hash(id) & t->objects.mask];

	while (o && !object_id_equal(&o->id, id))
		o = o->next;
	return o;
}

struct slot *tree_slot(const struct object *directory, const char *name)
{
	const struct hash_table *slots;
	struct slot *s;
	uint32_t hash;

	if (!directory || !directory->has_facts)
		return NULL;
	slots = &directory->facts->slots;
	hash = name_hash(name);
	s = slots->buckets[hash & slots->mask];
	while (s && (s->hash != hash || strcmp(s->name, name) != 0))
		s = s->next;
	return s;
}

/* The first and the next of all slots of a directory; `*bucket` is the walk's. */
static struct slot *slot_first(const struct directory_facts *d, size_t *bucket)
{
	for (*bucket = 0; *bucket <= d->slots.mask; (*bucket)++)
		if (d->slots.buckets[*bucket])
			return d->slots.buckets[*bucket];
	return NULL;
}

static struct slot *slot_next(const struct directory_facts *d, const struct slot *s, size_t *bucket)
{
	if (s->next)
		return s->next;
	while (++*bucket <= d->slots.mask)
		if (d->slots.buckets[*bucket])
			return d->slots.buckets[*bucket];
	return NULL;
}

/* ---- Attributes ----------------------------------------------------------------------------- */

/* False: it does not fit. */
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

/* False: they do not fit, and what is kept differs from them. */
static bool set_attributes(struct object *o, const struct attributes *a)
{
	bool fits = set_time(&o->atime, &a->atime);

	fits = set_time(&o->mtime, &a->mtime) && fits;
	fits = set_time(&o->ctime, &a->ctime) && fits;
	o->mode = a->mode & UINT16_MAX;
	o->nlink = a->nlink;
	o->uid = a->uid;
	o->gid = a->gid;
	o->size_or_rdev = is_device(a->mode) ? a->rdev : a->size_bytes;
	o->blocks = (uint32_t)a->blocks;
	o->block_size_bytes = a->block_size_bytes;
	o->changed_lately = a->changed_lately;
	return fits && o->mode == a->mode && o->blocks == a->blocks;
}

static struct attributes attributes_of(const struct object *o)
{
	bool has_rdev = is_device(o->mode);

	return (struct attributes){
		.id = o->id,
		.mode = o->mode,
		.nlink = o->nlink,
		.uid = o->uid,
		.gid = o->gid,
		.rdev = has_rdev ? o->size_or_rdev : 0,
		.size_bytes = has_rdev ? 0 : o->size_or_rdev,
		.blocks = o->blocks,
		.block_size_bytes = o->block_size_bytes,
		.atime = time_of(&o->atime),
		.mtime = time_of(&o->mtime),
		.ctime = time_of(&o->ctime),
		.changed_lately = o->changed_lately,
	};
}

/* ---- Losses --------------------------------------------------------------------------------- */

/* The watch was told of before the last loss: it may have ended with that. */
static bool is_watch_lost(const struct tree *t, const struct directory_facts *d)
{
	return d->watch_seen < t->lost_at && RULE(LOST_WATCH);
}

/* Whatever was looked at before may have changed without a fact, and later what is in directories
 * whose watch was lost, too. */
static void lose(struct tree *t, uint64_t at)
{
	if (RULE(LOSS) && at > t->lost_at)
		t->lost_at = at;
}

/* There is no memory for a fact of that position. */
static void lose_fact(struct tree *t, uint64_t at)
{
	if (!RULE(NO_MEMORY))
		return;
	t->evicted_at = higher(t->evicted_at, at);
	lose(t, at);
}

/* ---- Objects and slots --------------------------------------------------------------------- */

/* A look at that position has an event when what it saw changes. */
static bool is_backed(const struct tree *t, const struct directory_facts *d, uint64_t at)
{
	return d->on && !is_watch_lost(t, d) && (at >= d->watch_at || !RULE(BACKED)) &&
	       at >= t->lost_at;
}

/* What has no slot is not there. */
static bool is_listed(const struct tree *t, const struct directory_facts *d)
{
	return d->listed_at && is_backed(t, d, d->listed_at);
}

static void **kept_of(struct object *o)
{
	return o->has_facts ? &o->facts->kept : &o->kept;
}

static void object_leave(struct slot *s)
{
	struct slot **link;

	if (!s->of)
		return;
	for (link = &s->of->slots; *link != s; link = &(*link)->next_of)
		;
	*link = s->next_of;
	s->of = NULL;
}

static void object_join(struct slot *s, struct object *o)
{
	s->of = o;
	if (!o)
		return;
	s->next_of = o->slots;
	o->slots = s;
}

static void slot_free(struct tree *t, struct slot *s)
{
	object_leave(s);
	hash_table_remove(&s->in->facts->slots, s, slot_entry_hash, slot_entry_link);
	t->names--;
	free(s);
}

void tree_evict_slot(struct tree *t, struct slot *s)
{
	struct directory_facts *d = s->in->facts;

	if (s->of || s->unknown) {
		if (RULE(EVICT_LISTED))
			d->listed_at = 0;
	}
	if (RULE(EVICTED))
		d->evicted_at = higher(d->evicted_at, s->at);
	slot_free(t, s);
}

bool tree_evict_object(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);

	if (o->slots || (d && d->slots.count > 0))
		return false;
	if (RULE(EVICTED)) {
		t->evicted_at = higher(t->evicted_at, o->at);
		if (d)
			t->evicted_at = higher(t->evicted_at,
				higher(d->watch_seen, higher(d->listed_at, d->evicted_at)));
	}
	hash_table_remove(&t->objects, o, object_entry_hash, object_entry_link);
	if (d)
		free(d->slots.buckets);
	free(d);
	free(o);
	return true;
}

/* The caller agrees. */
static bool may_drop(struct tree *t, struct object *o)
{
	if (t->options.drop && !t->options.drop(t->options.user, &o->id, *kept_of(o)))
		return false;
	*kept_of(o) = NULL;
	return true;
}

/* Those of the directory that `is_chosen` chooses; NULL: all. */
static void evict_slots(struct tree *t, const struct directory_facts *d,
	bool (*is_chosen)(const struct tree *t, struct slot *s))
{
	struct slot *next;
	size_t bucket;

	for (struct slot *s = slot_first(d, &bucket); s; s = next) {
		next = slot_next(d, s, &bucket);
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

/* Nothing is known of the object that an answer on its way may be older than. */
static bool is_settled(const struct tree *t, const struct object *o)
{
	const struct directory_facts *d = tree_facts(o);

	return o->at <= t->settled_at &&
	       (!d || (!d->on && d->watch_seen <= t->settled_at && d->listed_at <= t->settled_at &&
			      d->evicted_at <= t->settled_at));
}

/* The names in it, too. */
static bool are_settled(const struct tree *t, const struct directory_facts *d)
{
	size_t bucket;

	if (!d)
		return true;
	for (const struct slot *s = slot_first(d, &bucket); s; s = slot_next(d, s, &bucket))
		if (s->at > t->settled_at)
			return false;
	return true;
}

/* Drops what was not used since the last sweep: names in it that lead nowhere, then it itself. */
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
	for (struct slot *s = o->slots; s; s = next) {
		next = s->next_of;
		tree_evict_slot(t, s);
	}
	tree_evict_object(t, o);
}

/* Drops an object that has no name: nobody will ask for it.  Not sooner, as a fact about it that is
 * still on its way would make the tree ask. */
static void clean_object(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);

	if (o->slots || !is_settled(t, o) || !may_drop(t, o) || !are_settled(t, d))
		return;
	if (d)
		evict_slots(t, d, NULL);
	tree_evict_object(t, o);
}

/* The same of names that are not there, as the listing says as well; a few each time. */
static void clean_names(struct tree *t, struct directory_facts *d)
{
	struct slot *next;

	d->hand = (d->hand + 1) & d->slots.mask;
	for (struct slot *s = d->slots.buckets[d->hand]; s && is_listed(t, d); s = next) {
		next = s->next;
		if (!s->of && !s->unknown && s->at <= t->settled_at)
			tree_evict_slot(t, s);
	}
}

static void sweep_bucket(
	struct tree *t, size_t *hand, void (*sweep_one)(struct tree *t, struct object *o))
{
	struct object *next;

	*hand = (*hand + 1) & t->objects.mask;
	for (struct object *o = t->objects.buckets[*hand]; o; o = next) {
		next = o->next;
		sweep_one(t, o);
	}
}

static void sweep(struct tree *t, uint64_t now_ms)
{
	size_t max = t->options.facts_max;

	if (max == 0)
		return;
	if (now_ms >= t->mark_ms + SETTLE_MS) {
		t->settled_at = t->mark_at;
		t->mark_at = t->highest;
		t->mark_ms = now_ms;
	}
	sweep_bucket(t, &t->clean_hand, clean_object);
	for (int i = 0; i < SWEEP_BUCKETS && t->objects.count + t->names > max; i++)
		sweep_bucket(t, &t->sweep_hand, sweep_object);
}

/* Found or made; NULL: no memory. */
static struct object *object_make(struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return NULL;
		o->id = *id;
		o->unknown = true;
		o->at = t->evicted_at;
		hash_table_insert(&t->objects, o, object_entry_hash, object_entry_link);
	}
	o->used = true;
	return o;
}

/* The directory with room for what is said of it; NULL: no memory. */
static struct object *directory_make(struct tree *t, const struct object_id *id)
{
	struct object *o;
	struct directory_facts *d;

	o = object_make(t, id);
	if (!o || o->has_facts)
		return o;
	d = calloc(1, sizeof(*d));
	if (!d || hash_table_init_small(&d->slots) < 0) {
		free(d);
		return NULL;
	}
	d->watch_seen = d->evicted_at = t->evicted_at;
	d->kept = o->kept;
	o->facts = d;
	o->has_facts = true;
	return o;
}

/* What is known of a name without slot becomes a slot; NULL: no memory. */
static struct slot *slot_make(struct tree *t, struct object *in, const char *name)
{
	struct directory_facts *d = in->facts;
	size_t size = strlen(name) + 1;
	struct slot *s = calloc(1, offsetof(struct slot, name) + size);

	if (!s)
		return NULL;
	memcpy(s->name, name, size);
	s->hash = name_hash(name);
	s->in = in;
	/* Nobody remembers whether the name was dropped with that position or never had one. */
	s->at = higher(d->listed_at, d->evicted_at);
	s->unknown = d->listed_at == 0 || d->listed_at < d->evicted_at;
	s->looked_ms = d->listed_ms;
	hash_table_insert(&d->slots, s, slot_entry_hash, slot_entry_link);
	t->names++;
	return s;
}

/* ---- Facts --------------------------------------------------------------------------------- */

/* 0 or -EPROTO. */
static int note_position(struct tree *t, uint64_t at)
{
	if (at == 0 || at >= TREE_POSITIONS)
		return -EPROTO;
	t->highest = higher(t->highest, at);
	return 0;
}

/* A directory has one name: the one that was looked at last. */
static void keep_one_name(struct slot *s)
{
	for (struct slot *other = s->of->slots; other && RULE(ONE_NAME); other = other->next_of) {
		struct slot *older = other->at > s->at ? s : other;

		if (other == s || other->unknown)
			continue;
		older->unknown = true;
	}
}

static bool is_older(uint64_t at, uint64_t known_at)
{
	return at <= known_at && RULE(HIGHEST_WINS);
}

static void learn_slot(struct slot *s, struct object *of, const struct tree_look *look)
{
	bool changed = s->of != of;

	if (is_older(look->at, s->at))
		return;
	/* It has a name less, and nobody told its attributes since. */
	if (changed && s->of && !s->of->is_directory && look->at > s->of->at)
		s->of->unknown = true;
	s->at = look->at;
	s->looked_ms = look->ms;
	s->unknown = false;
	s->used = true;
	if (changed) {
		object_leave(s);
		object_join(s, of);
	}
	if (of && of->is_directory)
		keep_one_name(s);
}

static void learn_object(struct tree *t, struct object *o, const struct attributes *attributes,
	const struct tree_look *look)
{
	struct attributes before;

	o->is_directory = S_ISDIR(attributes->mode);
	if (is_older(look->at, o->at))
		return;
	/* It is the earlier look that came so early that a change might leave the times as they
	 * are. */
	before = attributes_of(o);
	if ((o->changed_lately && RULE(SAME_TICK)) ||
		!attributes_same_version(&before, attributes)) {
		if (++t->states == 0)
			t->states = 1;
		o->state = t->states;
		o->mark = 0;
	}
	o->unknown = !set_attributes(o, attributes);
	o->at = look->at;
	o->looked_ms = look->ms;
}

/* Of a name without slot, nothing that is not known already. */
static bool is_old_news(const struct directory_facts *d, uint64_t at)
{
	return is_older(at, d->listed_at) || (d->listed_at == 0 && at <= d->evicted_at);
}

/* Never, but in a mutant: what is not known yet may be introduced by a fact that is late. */
static bool is_ignored(const struct tree *t, const struct object_id *id)
{
	return !RULE(KEEP_UNKNOWN) && !tree_object(t, id);
}

/* There is no memory for what is in the directory. */
static void lose_name(struct tree *t, struct object *in, uint64_t at)
{
	if (in)
		in->facts->evicted_at = higher(in->facts->evicted_at, at);
	lose_fact(t, at);
}

int tree_learn_name(struct tree *t, const struct tree_look *look, const struct object_id *directory,
	const char *name, const struct attributes *found)
{
	struct object *in, *of = NULL;
	struct slot *s;
	int r = note_position(t, look->at);

	if (r < 0 || is_ignored(t, directory))
		return r;
	in = directory_make(t, directory);
	if (found)
		of = object_make(t, &found->id);
	if (!in || (found && !of)) {
		lose_name(t, in, look->at);
		return 0;
	}
	if (found)
		learn_object(t, of, found, look);
	s = tree_slot(in, name);
	if (!s && !is_old_news(in->facts, look->at)) {
		s = slot_make(t, in, name);
		if (!s)
			lose_name(t, in, look->at);
	}
	if (s)
		learn_slot(s, of, look);
	if (t->options.facts_max)
		clean_names(t, in->facts);
	sweep(t, look->ms);
	return 0;
}

int tree_learn_attributes(
	struct tree *t, const struct tree_look *look, const struct attributes *attributes)
{
	struct object *o;
	int r = note_position(t, look->at);

	if (r < 0)
		return r;
	o = object_make(t, &attributes->id);
	if (!o) {
		lose_fact(t, look->at);
		return 0;
	}
	learn_object(t, o, attributes, look);
	sweep(t, look->ms);
	return 0;
}

int tree_learn_listing(
	struct tree *t, const struct tree_look *look, const struct object_id *directory)
{
	struct object *in;
	struct directory_facts *d;
	size_t bucket;
	int r = note_position(t, look->at);

	if (r < 0 || is_ignored(t, directory))
		return r;
	in = directory_make(t, directory);
	if (!in) {
		lose_fact(t, look->at);
		return 0;
	}
	d = in->facts;
	if (look->at <= d->listed_at)
		return 0;
	for (struct slot *s = slot_first(d, &bucket); s; s = slot_next(d, s, &bucket))
		if (s->at < look->at)
			learn_slot(s, NULL, look);
	/* Else a name of it may have been dropped, or there was no memory for it. */
	if (look->at > d->evicted_at || !RULE(EVICTED)) {
		d->listed_at = look->at;
		d->listed_ms = look->ms;
	}
	return 0;
}

int tree_learn_watch(struct tree *t, const struct tree_look *look,
	const struct object_id *directory, bool on, uint64_t since)
{
	struct object *in;
	struct directory_facts *d;
	int r = since > look->at ? -EPROTO : note_position(t, look->at);

	if (r < 0 || is_ignored(t, directory))
		return r;
	in = directory_make(t, directory);
	if (!in) {
		lose_fact(t, look->at);
		return -ENOMEM;
	}
	d = in->facts;
	if (look->at <= d->watch_seen && RULE(WATCH_ORDER))
		return 0;
	d->watch_seen = look->at;
	d->on = on;
	if (on)
		d->watch_at = since;
	return 0;
}

int tree_learn_loss(struct tree *t, const struct tree_look *look)
{
	int r = note_position(t, look->at);

	if (r < 0)
		return r;
	lose(t, look->at);
	return 0;
}

void tree_command_ran(struct tree *t, uint64_t now_ms)
{
	t->command_ms = now_ms;
}

/* ---- What is known ------------------------------------------------------------------------- */

static bool is_young(const struct tree *t, uint64_t looked_ms, uint64_t now_ms)
{
	return looked_ms >= t->command_ms && now_ms < looked_ms + t->options.ttl_ms;
}

static enum tree_validity validity_at(const struct tree *t, const struct directory_facts *d,
	uint64_t at, uint64_t looked_ms, uint64_t now_ms)
{
	if (is_backed(t, d, at))
		return TREE_WATCHED;
	return !d->on && is_young(t, looked_ms, now_ms) ? TREE_BRIEFLY : TREE_ASK;
}

enum tree_validity tree_get_name(struct tree *t, const struct object_id *directory,
	const char *name, uint64_t now_ms, struct object_id *ret_id)
{
	struct object *in = tree_object(t, directory);
	struct slot *s = tree_slot(in, name);

	*ret_id = (struct object_id){0};
	if (!in || !in->has_facts)
		return TREE_ASK;
	in->used = true;
	if (!s)
		return in->facts->listed_at == 0 ? TREE_ASK
						 : validity_at(t, in->facts, in->facts->listed_at,
							   in->facts->listed_ms, now_ms);
	s->used = true;
	if (s->of) {
		*ret_id = s->of->id;
		s->of->used = true;
	}
	return s->unknown ? TREE_ASK : validity_at(t, in->facts, s->at, s->looked_ms, now_ms);
}

/* A change through whichever of its names has an event when all of them are in watched
 * directories. */
static enum tree_validity file_validity(
	const struct tree *t, const struct object *o, uint64_t now_ms)
{
	bool all_on = o->nlink <= LINKS_MAX, all_backed = true;
	uint32_t names = 0;

	for (const struct slot *s = o->slots; s && all_on; s = s->next_of) {
		const struct directory_facts *d = s->in->facts;

		if (s->unknown)
			continue;
		names++;
		all_on = all_on && d->on;
		all_backed = all_backed && is_backed(t, d, s->at) && is_backed(t, d, o->at);
	}
	if (names > 0 && (names == o->nlink || !RULE(ALL_LINKS)) && all_on)
		return all_backed ? TREE_WATCHED : TREE_ASK;
	if (o->nlink > 1 && o->looked_ms <= t->links_ms)
		return TREE_ASK;
	return is_young(t, o->looked_ms, now_ms) ? TREE_BRIEFLY : TREE_ASK;
}

static enum tree_validity object_validity(
	const struct tree *t, const struct object *o, uint64_t now_ms)
{
	if (o->unknown)
		return TREE_ASK;
	if (!o->is_directory)
		return file_validity(t, o, now_ms);
	if (o->has_facts)
		return validity_at(t, o->facts, o->at, o->looked_ms, now_ms);
	return is_young(t, o->looked_ms, now_ms) ? TREE_BRIEFLY : TREE_ASK;
}

enum tree_validity tree_get_attributes(struct tree *t, const struct object_id *id, uint64_t now_ms,
	struct attributes *ret_attributes)
{
	struct object *o = tree_object(t, id);
	enum tree_validity v;

	if (!o)
		return TREE_ASK;
	o->used = true;
	v = object_validity(t, o, now_ms);
	if (v != TREE_ASK && ret_attributes)
		*ret_attributes = attributes_of(o);
	return v;
}

static enum tree_validity listing_validity(
	const struct tree *t, const struct directory_facts *d, uint64_t now_ms)
{
	return d->listed_at ? validity_at(t, d, d->listed_at, d->listed_ms, now_ms) : TREE_ASK;
}

enum tree_validity tree_get_listing(
	struct tree *t, const struct object_id *directory, uint64_t now_ms)
{
	struct object *in = tree_object(t, directory);

	if (!in || !in->has_facts)
		return TREE_ASK;
	in->used = true;
	return listing_validity(t, in->facts, now_ms);
}

/* `attributes`: room for them. */
static struct tree_entry entry_of(
	struct tree *t, const struct slot *s, uint64_t now_ms, struct attributes *attributes)
{
	*attributes = attributes_of(s->of);
	return (struct tree_entry){
		.name = s->name,
		.attributes = attributes,
		.name_validity =
			s->unknown ? TREE_ASK
				   : validity_at(t, s->in->facts, s->at, s->looked_ms, now_ms),
		.attributes_validity = object_validity(t, s->of, now_ms),
		.kept = *kept_of(s->of),
	};
}

enum tree_validity tree_list(struct tree *t, const struct object_id *directory, uint64_t now_ms,
	bool (*sink)(void *user, const struct tree_entry *entry), void *user)
{
	struct object *in = tree_object(t, directory);
	struct directory_facts *d = in ? tree_facts(in) : NULL;
	enum tree_validity v;
	bool goes_on = true;
	size_t bucket;

	if (!d)
		return TREE_ASK;
	in->used = true;
	v = listing_validity(t, d, now_ms);
	for (struct slot *s = slot_first(d, &bucket); s; s = slot_next(d, s, &bucket)) {
		if (s->unknown)
			v = TREE_ASK;
		if (s->of && goes_on) {
			struct attributes attributes;
			const struct tree_entry entry = entry_of(t, s, now_ms, &attributes);

			goes_on = sink(user, &entry);
		}
	}
	return v;
}

uint64_t tree_last_attributes(
	const struct tree *t, const struct object_id *id, struct attributes *ret_attributes)
{
	const struct object *o = tree_object(t, id);

	if (!o || !o->mode)
		return 0;
	if (ret_attributes)
		*ret_attributes = attributes_of(o);
	return o->at;
}

uint32_t tree_type(const struct tree *t, const struct object_id *id)
{
	const struct object *o = tree_object(t, id);

	return o ? o->mode & S_IFMT : 0;
}

const char *tree_name_of(
	const struct tree *t, const struct object_id *id, struct object_id *ret_directory)
{
	const struct object *o = tree_object(t, id);
	const struct slot *s = o ? o->slots : NULL;

	while (s && s->unknown && s->next_of)
		s = s->next_of;
	if (!s)
		return NULL;
	*ret_directory = s->in->id;
	return s->name;
}

uint64_t tree_watched_since(const struct tree *t, const struct object_id *directory)
{
	const struct object *o = tree_object(t, directory);

	return o && o->has_facts && o->facts->on ? o->facts->watch_at : 0;
}

uint64_t tree_state(const struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	return o ? o->state : 0;
}

/* ---- Doubt --------------------------------------------------------------------------------- */

static void doubt_slot(struct slot *s, uint64_t at)
{
	s->unknown = true;
	s->at = higher(s->at, at);
}

static void doubt_object(struct object *o, uint64_t at)
{
	if (!o)
		return;
	o->unknown = true;
	o->at = higher(o->at, at);
}

void tree_doubt_name(
	struct tree *t, uint64_t at, const struct object_id *directory, const char *name)
{
	struct object *in = tree_object(t, directory);
	struct slot *s = tree_slot(in, name);

	if (!in || !in->has_facts)
		return;
	if (!s)
		s = slot_make(t, in, name);
	if (s)
		doubt_slot(s, at);
	else
		in->facts->listed_at = 0;
}

void tree_doubt_attributes(struct tree *t, uint64_t at, const struct object_id *id)
{
	doubt_object(tree_object(t, id), at);
}

void tree_doubt_links(struct tree *t, uint64_t now_ms)
{
	t->links_ms = now_ms;
}

void tree_own_unclear(struct tree *t, uint64_t at, const struct object_id *directory,
	const char *name, const struct object_id *linked)
{
	struct object *in = directory_make(t, directory);
	struct slot *s = tree_slot(in, name);

	if (in && !s)
		s = slot_make(t, in, name);
	if (!s || !RULE(UNCLEAR))
		return;
	in->facts->listed_at = 0;
	doubt_object(in, at);
	doubt_object(s->of, at);
	doubt_object(linked ? tree_object(t, linked) : NULL, at);
	doubt_slot(s, at);
}

/* ---- What the caller keeps ------------------------------------------------------------------ */

void *tree_kept(const struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	return o ? *kept_of(o) : NULL;
}

int tree_keep(struct tree *t, const struct object_id *id, void *kept)
{
	struct object *o = object_make(t, id);

	if (!o)
		return -ENOMEM;
	*kept_of(o) = kept;
	return 0;
}

uint8_t tree_mark(const struct tree *t, const struct object_id *id)
{
	const struct object *o = tree_object(t, id);

	return o ? o->mark : 0;
}

void tree_set_mark(struct tree *t, const struct object_id *id, uint8_t mark)
{
	struct object *o = tree_object(t, id);

	if (o)
		o->mark = mark;
}

/* ---- The tree ------------------------------------------------------------------------------ */

struct tree *tree_new(const struct tree_options *options)
{
	struct tree *t = calloc(1, sizeof(*t));

	if (!t || hash_table_init_small(&t->objects) < 0) {
		free(t);
		return NULL;
	}
	t->options = *options;
	return t;
}

static void object_free(struct tree *t, struct object *o)
{
	struct directory_facts *d = tree_facts(o);

	if (*kept_of(o))
		t->options.drop(t->options.user, &o->id, *kept_of(o));

	for (size_t i = 0; d && i <= d->slots.mask; i++)
		while (d->slots.buckets[i]) {
			struct slot *s = d->slots.buckets[i];

			d->slots.buckets[i] = s->next;
			free(s);
		}
	if (d)
		free(d->slots.buckets);
	free(d);
	free(o);
}

void tree_free(struct tree *t)
{
	if (!t)
		return;
	for (size_t i = 0; i <= t->objects.mask; i++)
		while (t->objects.buckets[i]) {
			struct object *o = t->objects.buckets[i];

			t->objects.buckets[i] = o->next;
			object_free(t, o);
		}
	free(t->objects.buckets);
	free(t);
}

size_t tree_names(const struct tree *t)
{
	return t->names;
}
