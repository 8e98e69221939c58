/* The rules are in ops/COHERENCE.md, under the names that RULE() has here. */
#include "ops/tree_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ops/support/hash_seed.h"

enum { SWEEP_BUCKETS = 64 };

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
	return id_hash(&((const struct object *)entry)->attributes.id);
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

	while (o && !object_id_equal(&o->attributes.id, id))
		o = o->next;
	return o;
}

struct slot *tree_slot(const struct object *directory, const char *name)
{
	const struct hash_table *slots;
	struct slot *s;
	uint32_t hash;

	if (!directory || !directory->directory)
		return NULL;
	slots = &directory->directory->slots;
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

/* ---- Notifications ------------------------------------------------------------------------- */

static void queue_leave(struct tree *t, struct slot *s)
{
	if (s->queued == QUEUE_FORGETS)
		TAILQ_REMOVE(&t->forgets, s, queue);
	if (s->queued == QUEUE_REPEATS)
		TAILQ_REMOVE(&t->repeats, s, queue);
	s->queued = QUEUE_NONE;
}

static void queue_join(struct tree *t, struct slot *s, enum forget_queue queue)
{
	if (s->queued == queue)
		return;
	queue_leave(t, s);
	if (queue == QUEUE_FORGETS)
		TAILQ_INSERT_TAIL(&t->forgets, s, queue);
	else
		TAILQ_INSERT_TAIL(&t->repeats, s, queue);
	s->queued = queue;
}

static bool forget_is_pending(const struct slot *s)
{
	return s->taken || s->queued != QUEUE_NONE;
}

/* The kernel is to be notified.  It may be using what it was given until that is done. */
static void forget(struct tree *t, struct slot *s, enum forget_kind kind)
{
	s->held = false;
	s->given_since = false;
	if (!RULE(FORGET))
		return;
	if (!RULE(CERTAIN))
		kind = FORGET_DOUBT;
	if (kind > s->wanted)
		s->wanted = kind & 3;
	if (!s->taken)
		queue_join(t, s, QUEUE_FORGETS);
}

/* An own change made the kernel drop its entry, or replace it. */
static void forget_no_more(struct tree *t, struct slot *s)
{
	queue_leave(t, s);
	s->wanted = FORGET_NO;
	s->mixed = false;
	s->held = false;
	s->given = GIVEN_NONE;
}

static void doubt_directory(struct tree *t, const struct directory_facts *d, uint64_t below)
{
	size_t bucket;

	for (struct slot *s = slot_first(d, &bucket); s; s = slot_next(d, s, &bucket))
		if (s->held && s->at < below)
			forget(t, s, FORGET_DOUBT);
}

static void doubt_all(struct tree *t, uint64_t below)
{
	for (size_t i = 0; i <= t->objects.mask; i++)
		for (const struct object *o = t->objects.buckets[i]; o; o = o->next)
			if (o->directory)
				doubt_directory(t, o->directory, below);
}

/* Whatever was looked at before may have changed without a fact. */
static void lose(struct tree *t, uint64_t at)
{
	if (RULE(LOSS) && at > t->lost_at)
		t->lost_at = at;
	doubt_all(t, t->lost_at);
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
	queue_leave(t, s);
	object_leave(s);
	hash_table_remove(&s->in->directory->slots, s, slot_entry_hash, slot_entry_link);
	t->names--;
	t->name_bytes -= strlen(s->name) + 1;
	free(s);
}

bool tree_evict_slot(struct tree *t, struct slot *s)
{
	struct directory_facts *d = s->in->directory;

	if (s->own || (RULE(EVICT_HELD) ? s->held || forget_is_pending(s) : s->taken))
		return false;
	if (s->of || s->unknown) {
		if (RULE(EVICT_LISTED))
			d->listed_at = 0;
	}
	if (RULE(EVICTED))
		d->evicted_at = higher(d->evicted_at, s->at);
	slot_free(t, s);
	return true;
}

bool tree_evict_object(struct tree *t, struct object *o)
{
	struct directory_facts *d = o->directory;

	if (o->slots || (d && d->slots.count > 0))
		return false;
	if (RULE(EVICTED)) {
		t->evicted_at = higher(t->evicted_at, o->at);
		if (d)
			t->evicted_at = higher(t->evicted_at,
				higher(d->watch_seen, higher(d->listed_at, d->evicted_at)));
	}
	hash_table_remove(&t->objects, o, object_entry_hash, object_entry_link);
	if (d) {
		free(d->slots.buckets);
		t->directories--;
	}
	free(d);
	free(o);
	return true;
}

/* Drops what was not used since the last sweep: names in it that lead nowhere, then it itself. */
static void sweep_object(struct tree *t, struct object *o)
{
	size_t bucket;
	struct slot *next;

	if (o->directory)
		for (struct slot *s = slot_first(o->directory, &bucket); s; s = next) {
			next = slot_next(o->directory, s, &bucket);
			if (!s->of && !s->used)
				tree_evict_slot(t, s);
			else
				s->used = false;
		}
	if (o->used || (o->directory && o->directory->slots.count > 0)) {
		o->used = false;
		return;
	}
	for (struct slot *s = o->slots; s; s = next) {
		next = s->next_of;
		tree_evict_slot(t, s);
	}
	tree_evict_object(t, o);
}

static void sweep(struct tree *t)
{
	size_t max = t->options.facts_max;

	for (int i = 0; max > 0 && i < SWEEP_BUCKETS && t->objects.count + t->names > max; i++) {
		struct object *next;

		t->hand = (t->hand + 1) & t->objects.mask;
		for (struct object *o = t->objects.buckets[t->hand]; o; o = next) {
			next = o->next;
			sweep_object(t, o);
		}
	}
}

/* Found or made; NULL: no memory. */
static struct object *object_make(struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return NULL;
		o->attributes.id = *id;
		o->unknown = true;
		o->at = t->evicted_at;
		o->number = ++t->numbers;
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
	if (!o || o->directory)
		return o;
	d = calloc(1, sizeof(*d));
	if (!d || hash_table_init_small(&d->slots) < 0) {
		free(d);
		return NULL;
	}
	d->watch_seen = d->evicted_at = t->evicted_at;
	o->directory = d;
	t->directories++;
	return o;
}

/* What is known of a name without slot becomes a slot; NULL: no memory. */
static struct slot *slot_make(struct tree *t, struct object *in, const char *name)
{
	struct directory_facts *d = in->directory;
	size_t size = strlen(name) + 1;
	struct slot *s = calloc(1, sizeof(*s) + size);

	if (!s)
		return NULL;
	memcpy(s->name, name, size);
	s->hash = name_hash(name);
	s->in = in;
	s->given = GIVEN_NONE;
	/* Nobody remembers whether the name was dropped with that position or never had one. */
	s->at = higher(d->listed_at, d->evicted_at);
	s->unknown = d->listed_at == 0 || d->listed_at < d->evicted_at;
	s->looked_ms = d->listed_ms;
	hash_table_insert(&d->slots, s, slot_entry_hash, slot_entry_link);
	t->names++;
	t->name_bytes += size;
	return s;
}

/* ---- Facts --------------------------------------------------------------------------------- */

/* 1 and `*ret_at`: to be applied; 0: of an earlier session; -EPROTO. */
static int look_position(struct tree *t, const struct tree_look *look, uint64_t *ret_at)
{
	if (look->at == 0 || look->at >= TREE_POSITIONS)
		return -EPROTO;
	if (look->session != t->session && RULE(SESSIONS))
		return 0;
	*ret_at = t->base + look->at;
	t->highest = higher(t->highest, *ret_at);
	return 1;
}

/* A directory has one name: the one that was looked at last. */
static void keep_one_name(struct tree *t, struct slot *s)
{
	for (struct slot *other = s->of->slots; other && RULE(ONE_NAME); other = other->next_of) {
		struct slot *older = other->at > s->at ? s : other;

		if (other == s || other->unknown)
			continue;
		older->unknown = true;
		if (older->held)
			forget(t, older, FORGET_DOUBT);
	}
}

static bool is_older(uint64_t at, uint64_t known_at)
{
	return at <= known_at && RULE(HIGHEST_WINS);
}

static void learn_slot(
	struct tree *t, struct slot *s, struct object *of, uint64_t at, uint64_t looked_ms)
{
	bool changed = s->of != of;

	if (is_older(at, s->at))
		return;
	s->at = at;
	s->looked_ms = looked_ms;
	s->unknown = false;
	s->used = true;
	if (changed) {
		object_leave(s);
		object_join(s, of);
		if (s->held || forget_is_pending(s))
			forget(t, s, FORGET_CERTAIN);
	}
	if (of && of->is_directory)
		keep_one_name(t, s);
}

static void learn_object(struct tree *t, struct object *o, const struct attributes *attributes,
	uint64_t at, uint64_t looked_ms)
{
	o->is_directory = S_ISDIR(attributes->mode);
	if (is_older(at, o->at))
		return;
	/* It is the earlier look that came so early that a change might leave the times as they
	 * are. */
	if (!attributes_same_version(&o->attributes, attributes) ||
		(o->attributes.changed_lately && RULE(SAME_TICK)))
		o->state = ++t->states;
	o->attributes = *attributes;
	o->at = at;
	o->looked_ms = looked_ms;
	o->unknown = false;
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

int tree_learn_name(struct tree *t, const struct tree_look *look, const struct object_id *directory,
	const char *name, const struct attributes *found)
{
	struct object *in, *of = NULL;
	struct slot *s;
	uint64_t at;
	int r = look_position(t, look, &at);

	if (r <= 0 || is_ignored(t, directory))
		return r < 0 ? r : 0;
	in = directory_make(t, directory);
	if (found)
		of = object_make(t, &found->id);
	if (!in || (found && !of)) {
		lose_fact(t, at);
		return 0;
	}
	if (found)
		learn_object(t, of, found, at, look->ms);
	s = tree_slot(in, name);
	if (!s && !is_old_news(in->directory, at)) {
		s = slot_make(t, in, name);
		if (!s)
			lose_fact(t, at);
	}
	if (s)
		learn_slot(t, s, of, at, look->ms);
	sweep(t);
	return 0;
}

int tree_learn_attributes(
	struct tree *t, const struct tree_look *look, const struct attributes *attributes)
{
	struct object *o;
	uint64_t at;
	int r = look_position(t, look, &at);

	if (r <= 0)
		return r;
	o = object_make(t, &attributes->id);
	if (!o)
		lose_fact(t, at);
	else {
		learn_object(t, o, attributes, at, look->ms);
		sweep(t);
	}
	return 0;
}

int tree_learn_listing(struct tree *t, const struct tree_look *look,
	const struct object_id *directory, const char *const *names, size_t count)
{
	struct object *in;
	struct directory_facts *d;
	bool complete = true;
	size_t bucket;
	uint64_t at;
	int r = look_position(t, look, &at);

	if (r <= 0 || is_ignored(t, directory))
		return r < 0 ? r : 0;
	in = directory_make(t, directory);
	if (!in) {
		lose_fact(t, at);
		return 0;
	}
	d = in->directory;
	if (at <= d->listed_at)
		return 0;
	/* A listed name leads its slot past the listing's position, for the time of this call. */
	for (size_t i = 0; i < count; i++) {
		struct slot *s = tree_slot(in, names[i]);

		if (s)
			s->listed = true;
		/* There was no memory for what was found there. */
		if ((!s || s->at < at) && RULE(LISTING_COMPLETE))
			complete = false;
	}
	for (struct slot *s = slot_first(d, &bucket); s; s = slot_next(d, s, &bucket)) {
		if (!s->listed)
			learn_slot(t, s, NULL, at, look->ms);
		s->listed = false;
	}
	if (complete && (at > d->evicted_at || !RULE(EVICTED))) {
		d->listed_at = at;
		d->listed_ms = look->ms;
	}
	return 0;
}

int tree_learn_watch(struct tree *t, const struct tree_look *look,
	const struct object_id *directory, bool on, uint64_t since)
{
	struct object *in;
	struct directory_facts *d;
	bool began;
	uint64_t at;
	int r = since > look->at ? -EPROTO : look_position(t, look, &at);

	if (r <= 0 || is_ignored(t, directory))
		return r < 0 ? r : 0;
	in = directory_make(t, directory);
	if (!in) {
		lose_fact(t, at);
		return 0;
	}
	d = in->directory;
	if (at <= d->watch_seen && RULE(WATCH_ORDER))
		return 0;
	began = on && t->base + since > d->watch_at;
	d->watch_seen = at;
	d->on = on;
	if (on)
		d->watch_at = t->base + since;
	/* Also when it was on before: it went off in between, and that fact has not come yet. */
	if ((!on || began) && RULE(WATCH_DOUBT))
		doubt_directory(t, d, on ? d->watch_at : UINT64_MAX);
	return 0;
}

int tree_learn_loss(struct tree *t, const struct tree_look *look)
{
	uint64_t at;
	int r = look_position(t, look, &at);

	if (r <= 0)
		return r;
	lose(t, at);
	return 0;
}

uint32_t tree_new_session(struct tree *t)
{
	if (RULE(SESSIONS))
		t->base = t->highest;
	t->session++;
	lose(t, t->base + 1);
	return t->session;
}

void tree_command_ran(struct tree *t, uint64_t now_ms)
{
	t->command_ms = now_ms;
}

/* ---- What is known ------------------------------------------------------------------------- */

/* Of this session: the watches of earlier ones ended with them. */
static bool is_on(const struct tree *t, const struct directory_facts *d)
{
	return d->on && (d->watch_seen > t->base || !RULE(SESSIONS));
}

/* A look at that position has an event when what it saw changes. */
static bool is_backed(const struct tree *t, const struct directory_facts *d, uint64_t at)
{
	return is_on(t, d) && (at >= d->watch_at || !RULE(BACKED)) && at >= t->lost_at;
}

static bool is_young(const struct tree *t, uint64_t looked_ms, uint64_t now_ms)
{
	return looked_ms >= t->command_ms && now_ms < looked_ms + t->options.ttl_ms;
}

static enum tree_validity validity(const struct tree *t, const struct directory_facts *d,
	uint64_t at, uint64_t looked_ms, uint64_t now_ms)
{
	if (is_backed(t, d, at))
		return TREE_WATCHED;
	return !is_on(t, d) && is_young(t, looked_ms, now_ms) ? TREE_BRIEFLY : TREE_ASK;
}

enum tree_validity tree_get_name(struct tree *t, const struct object_id *directory,
	const char *name, uint64_t now_ms, struct object_id *ret_id)
{
	struct object *in = tree_object(t, directory);
	struct slot *s = tree_slot(in, name);

	*ret_id = (struct object_id){0};
	if (!in || !in->directory)
		return TREE_ASK;
	in->used = true;
	if (!s)
		return in->directory->listed_at == 0
			       ? TREE_ASK
			       : validity(t, in->directory, in->directory->listed_at,
					 in->directory->listed_ms, now_ms);
	s->used = true;
	if (s->of) {
		*ret_id = s->of->attributes.id;
		s->of->used = true;
	}
	return s->unknown ? TREE_ASK : validity(t, in->directory, s->at, s->looked_ms, now_ms);
}

/* A change through whichever of its names has an event when all of them are in watched
 * directories. */
static enum tree_validity file_validity(
	const struct tree *t, const struct object *o, uint64_t now_ms)
{
	bool all_on = true, all_backed = true;
	uint32_t names = 0;

	for (const struct slot *s = o->slots; s; s = s->next_of) {
		const struct directory_facts *d = s->in->directory;

		if (s->unknown)
			continue;
		names++;
		all_on = all_on && is_on(t, d);
		all_backed = all_backed && is_backed(t, d, s->at) && is_backed(t, d, o->at);
	}
	if (names > 0 && (names == o->attributes.nlink || !RULE(ALL_LINKS)) && all_on)
		return all_backed ? TREE_WATCHED : TREE_ASK;
	return is_young(t, o->looked_ms, now_ms) ? TREE_BRIEFLY : TREE_ASK;
}

enum tree_validity tree_get_attributes(struct tree *t, const struct object_id *id, uint64_t now_ms,
	struct attributes *ret_attributes)
{
	struct object *o = tree_object(t, id);
	enum tree_validity v;

	if (!o || o->unknown)
		return TREE_ASK;
	o->used = true;
	if (!o->is_directory)
		v = file_validity(t, o, now_ms);
	else if (o->directory)
		v = validity(t, o->directory, o->at, o->looked_ms, now_ms);
	else
		v = is_young(t, o->looked_ms, now_ms) ? TREE_BRIEFLY : TREE_ASK;
	if (v != TREE_ASK)
		*ret_attributes = o->attributes;
	return v;
}

enum tree_validity tree_list(struct tree *t, const struct object_id *directory, uint64_t now_ms,
	void (*sink)(void *user, const char *name, const struct object_id *id), void *user)
{
	struct object *in = tree_object(t, directory);
	struct directory_facts *d = in ? in->directory : NULL;
	enum tree_validity v;
	size_t bucket;

	if (!d || d->listed_at == 0)
		return TREE_ASK;
	in->used = true;
	v = validity(t, d, d->listed_at, d->listed_ms, now_ms);
	for (struct slot *s = slot_first(d, &bucket); s && v != TREE_ASK;
		s = slot_next(d, s, &bucket))
		if (s->unknown)
			v = TREE_ASK;
	for (struct slot *s = slot_first(d, &bucket); s && v != TREE_ASK;
		s = slot_next(d, s, &bucket))
		if (s->of)
			sink(user, s->name, &s->of->attributes.id);
	return v;
}

uint64_t tree_state(const struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	return o ? o->state : 0;
}

/* ---- The kernel's names -------------------------------------------------------------------- */

static uint64_t number_of(struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	if (id->inode == 0)
		return 0;
	return o ? o->number : GIVEN_NONE;
}

/* The slot of a name of which the kernel knows something; NULL: no memory. */
static struct slot *slot_for_kernel(
	struct tree *t, const struct object_id *directory, const char *name)
{
	struct object *in = directory_make(t, directory);
	struct slot *s = tree_slot(in, name);

	if (in && !s)
		s = slot_make(t, in, name);
	return s;
}

static enum tree_validity slot_validity(
	const struct tree *t, const struct slot *s, const struct object_id *id, uint64_t now_ms)
{
	const struct object *o = tree_object(t, id);

	if (s->unknown || s->of != o || (id->inode != 0 && !o))
		return TREE_ASK;
	return validity(t, s->in->directory, s->at, s->looked_ms, now_ms);
}

enum tree_validity tree_given(struct tree *t, const struct object_id *directory, const char *name,
	const struct object_id *id, uint64_t now_ms)
{
	struct slot *s = slot_for_kernel(t, directory, name);
	enum tree_validity v;
	uint64_t number;

	if (!s)
		return TREE_ASK;
	number = number_of(t, id);
	if (s->given != GIVEN_NONE && s->given != number && (s->held || forget_is_pending(s)) &&
		RULE(OWN_MIXED))
		s->mixed = true;
	s->given = number;
	s->given_ms = now_ms;
	s->given_since = true;
	v = slot_validity(t, s, id, now_ms);
	if (v != TREE_ASK)
		s->held = true;
	return v;
}

void tree_own_begin(struct tree *t, const struct object_id *directory, const char *name)
{
	struct slot *s = slot_for_kernel(t, directory, name);

	if (s)
		s->own++;
}

static struct slot *own_end(struct tree *t, const struct object_id *directory, const char *name)
{
	struct slot *s = slot_for_kernel(t, directory, name);

	if (s && s->own > 0)
		s->own--;
	return s;
}

enum tree_validity tree_own_made(struct tree *t, const struct object_id *directory,
	const char *name, const struct object_id *id, uint64_t now_ms)
{
	struct slot *s = own_end(t, directory, name);
	enum tree_validity v;

	if (!s)
		return TREE_ASK;
	forget_no_more(t, s);
	s->given = number_of(t, id);
	s->given_ms = now_ms;
	s->given_since = true;
	v = RULE(OWN_AGREES) ? slot_validity(t, s, id, now_ms) : TREE_WATCHED;
	s->held = v != TREE_ASK;
	return v;
}

void tree_own_removed(struct tree *t, const struct object_id *directory, const char *name)
{
	struct slot *s = own_end(t, directory, name);

	if (s)
		forget_no_more(t, s);
}

/* The kernel's entry of that number is at the name now, and may be used for long. */
static void entry_arrived(
	struct tree *t, struct slot *s, uint64_t number, bool sure, uint64_t now_ms)
{
	const uint64_t known = s->of ? s->of->number : 0;
	const struct object_id none = {0};

	forget_no_more(t, s);
	s->given = number;
	s->given_ms = now_ms;
	s->given_since = true;
	s->mixed = !sure;
	if ((!sure || number != known) && RULE(OWN_MOVED))
		forget(t, s, FORGET_CERTAIN);
	else if (slot_validity(t, s, s->of ? &s->of->attributes.id : &none, now_ms) == TREE_ASK)
		forget(t, s, FORGET_DOUBT);
	else
		s->held = true;
}

void tree_own_moved(struct tree *t, const struct object_id *from_directory, const char *from,
	const struct object_id *to_directory, const char *to, bool swap, uint64_t now_ms)
{
	struct slot *a = own_end(t, from_directory, from), *b = own_end(t, to_directory, to);
	const uint64_t given_a = a ? a->given : GIVEN_NONE, given_b = b ? b->given : GIVEN_NONE;
	const bool sure_a = given_a != GIVEN_NONE && !a->mixed;
	const bool sure_b = given_b != GIVEN_NONE && !b->mixed;

	if (b)
		entry_arrived(t, b, given_a, sure_a, now_ms);
	if (a && swap)
		entry_arrived(t, a, given_b, sure_b, now_ms);
	else if (a)
		forget_no_more(t, a);
}

void tree_own_failed(struct tree *t, const struct object_id *directory, const char *name)
{
	own_end(t, directory, name);
}

void tree_own_unclear(struct tree *t, const struct object_id *directory, const char *name,
	const struct object_id *linked)
{
	struct slot *s = own_end(t, directory, name);
	struct object *o = linked ? tree_object(t, linked) : NULL;

	if (!s || !RULE(UNCLEAR))
		return;
	s->unknown = s->in->unknown = true;
	s->in->directory->listed_at = 0;
	if (s->of)
		s->of->unknown = true;
	if (o)
		o->unknown = true;
	if (s->held)
		forget(t, s, FORGET_DOUBT);
}

static void take(struct tree *t, struct slot *s, struct tree_forget *ret_forget)
{
	*ret_forget = (struct tree_forget){
		.directory = s->in->attributes.id,
		.certain = s->wanted == FORGET_CERTAIN,
		.repeated = s->queued == QUEUE_REPEATS,
		.slot = s,
	};
	queue_leave(t, s);
	s->taken = true;
	s->wanted = FORGET_NO;
	memcpy(ret_forget->name, s->name, strlen(s->name) + 1);
}

bool tree_take_forget(
	struct tree *t, uint64_t now_ms, struct tree_forget *ret_forget, uint64_t *ret_due_ms)
{
	struct slot *s;

	*ret_due_ms = UINT64_MAX;
	TAILQ_FOREACH(s, &t->forgets, queue)
	if (s->own == 0 || !RULE(OWN_WAITS)) {
		take(t, s, ret_forget);
		return true;
	}
	TAILQ_FOREACH(s, &t->repeats, queue)
	{
		if (s->due_ms > now_ms) {
			*ret_due_ms = s->due_ms;
			return false;
		}
		if (s->own == 0) {
			take(t, s, ret_forget);
			return true;
		}
	}
	return false;
}

void tree_forgotten(struct tree *t, const struct tree_forget *taken, uint64_t now_ms)
{
	struct slot *s = taken->slot;

	s->taken = false;
	if (s->wanted != FORGET_NO) {
		queue_join(t, s, QUEUE_FORGETS);
		return;
	}
	/* An answer from before may undo the first expiry, but its thread runs within that time. */
	if (!taken->certain && !taken->repeated && now_ms < s->given_ms + FORGET_REPEAT_MS &&
		RULE(REPEAT)) {
		s->due_ms = now_ms + FORGET_REPEAT_MS;
		queue_join(t, s, QUEUE_REPEATS);
		return;
	}
	s->mixed = false;
	if (taken->certain && !s->given_since)
		s->given = GIVEN_NONE;
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
	TAILQ_INIT(&t->forgets);
	TAILQ_INIT(&t->repeats);
	return t;
}

static void object_free(struct object *o)
{
	struct directory_facts *d = o->directory;

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
			object_free(o);
		}
	free(t->objects.buckets);
	free(t);
}

void tree_usage(const struct tree *t, struct tree_usage *ret_usage)
{
	size_t buckets = t->objects.mask + 1;

	for (size_t i = 0; i <= t->objects.mask; i++)
		for (const struct object *o = t->objects.buckets[i]; o; o = o->next)
			if (o->directory)
				buckets += o->directory->slots.mask + 1;
	*ret_usage = (struct tree_usage){
		.objects = t->objects.count,
		.names = t->names,
		.bytes = sizeof(*t) + buckets * sizeof(void *) +
			 t->objects.count * sizeof(struct object) +
			 t->directories * sizeof(struct directory_facts) +
			 t->names * sizeof(struct slot) + t->name_bytes,
	};
}
