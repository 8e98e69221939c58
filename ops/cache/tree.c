/* The rules are in ops/cache/COHERENCE.md, under the names that RULE() has here. */
#include "ops/cache/tree_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
	LINKS_MAX = 64, /* files with more links are never backed: walking all names is slow */
};

#ifdef TREE_MUTANTS
enum tree_rule tree_rule_off = RULE_COUNT;
#endif

/* ---- Facts --------------------------------------------------------------------------------- */

/* 0 or -EPROTO. */
static int note_position(struct tree *t, uint64_t at)
{
	if (at == 0 || at >= TREE_POSITIONS)
		return -EPROTO;
	t->highest = tree_higher(t->highest, at);
	return 0;
}

/* A directory has one name: the one that was looked at last. */
static void keep_one_name(struct slot *s)
{
	for (struct slot *other = slab_at(slot_object(s)->slots); other && RULE(ONE_NAME);
		other = slab_at(other->next_of)) {
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

static void invalidate_object(struct object *o, uint64_t at)
{
	if (!o)
		return;
	o->unknown = true;
	o->at = tree_higher(o->at, at);
}

static void learn_slot(struct slot *s, struct object *of, const struct tree_look *look)
{
	struct object *was = slot_object(s);
	bool changed = was != of;

	if (is_older(look->at, s->at))
		return;
	/* The former object lost a name and its attributes were not looked at since: an older look
	 * that arrives late must not count. */
	if (changed && was && !was->is_directory && look->at > was->at)
		invalidate_object(was, look->at);
	s->at = look->at;
	s->looked_ms = look->ms;
	s->unknown = false;
	s->used = true;
	if (changed) {
		tree_object_leave(s);
		tree_object_join(s, of);
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
	/* SAME_TICK: the earlier look came so soon after a change that another change may have left
	 * the times as they were. */
	before = tree_attributes_of(o);
	if ((o->changed_lately && RULE(SAME_TICK)) ||
		!attributes_same_version(&before, attributes)) {
		if (++t->states == 0)
			t->states = 1;
		o->state = t->states;
		o->mark = 0;
	}
	o->unknown = !tree_set_attributes(t, o, attributes);
	o->at = look->at;
	o->looked_ms = look->ms;
}

/* Whether a fact at position `at` about a name without slot is older than what the listing says. */
static bool is_outdated(const struct directory_facts *d, uint64_t at)
{
	return is_older(at, d->listed_at) || (d->listed_at == 0 && at <= d->evicted_at);
}

/* True in a mutant only: a fact about an unknown object must be kept, as the fact that introduces
 * the object may arrive later. */
static bool is_ignored(const struct tree *t, const struct object_id *id)
{
	return !RULE(KEEP_UNKNOWN) && !tree_object(t, id);
}

/* A fact about a name in the directory could not be stored for lack of memory. */
static void lose_name(struct tree *t, struct object *in, uint64_t at)
{
	if (in)
		tree_facts(in)->evicted_at = tree_higher(tree_facts(in)->evicted_at, at);
	tree_lose_fact(t, at);
}

int tree_learn_name(struct tree *t, const struct tree_look *look, const struct object_id *directory,
	const char *name, const struct attributes *found)
{
	struct object *in, *of = NULL;
	struct slot *s;
	int r = note_position(t, look->at);

	if (r < 0 || is_ignored(t, directory))
		return r;
	in = tree_directory_make(t, directory);
	if (found)
		of = tree_object_make(t, &found->id);
	if (!in || (found && !of)) {
		lose_name(t, in, look->at);
		return 0;
	}
	if (found)
		learn_object(t, of, found, look);
	s = tree_slot(in, name);
	if (!s && !is_outdated(tree_facts(in), look->at)) {
		s = tree_slot_make(t, in, name);
		if (!s)
			lose_name(t, in, look->at);
	}
	if (s)
		learn_slot(s, of, look);
	if (t->options.facts_max)
		tree_clean_names(t, tree_facts(in));
	tree_sweep(t, look->ms);
	return 0;
}

int tree_learn_attributes(
	struct tree *t, const struct tree_look *look, const struct attributes *attributes)
{
	struct object *o;
	int r = note_position(t, look->at);

	if (r < 0)
		return r;
	o = tree_object_make(t, &attributes->id);
	if (!o) {
		tree_lose_fact(t, look->at);
		return 0;
	}
	learn_object(t, o, attributes, look);
	tree_sweep(t, look->ms);
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
	in = tree_directory_make(t, directory);
	if (!in) {
		tree_lose_fact(t, look->at);
		return 0;
	}
	d = tree_facts(in);
	if (look->at <= d->listed_at)
		return 0;
	for (struct slot *s = tree_slot_first(d, &bucket); s; s = tree_slot_next(d, s, &bucket))
		if (s->at < look->at)
			learn_slot(s, NULL, look);
	/* A listing older than evicted_at may include a name that was dropped or not stored. */
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
	in = tree_directory_make(t, directory);
	if (!in) {
		tree_lose_fact(t, look->at);
		return -ENOMEM;
	}
	d = tree_facts(in);
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
	tree_lose(t, look->at);
	return 0;
}

void tree_expire_unwatched(struct tree *t, uint64_t now_ms)
{
	t->expired_ms = now_ms;
}

/* ---- What is known ------------------------------------------------------------------------- */

static bool is_young(const struct tree *t, uint64_t looked_ms, uint64_t now_ms)
{
	return looked_ms >= t->expired_ms && now_ms < looked_ms + t->options.ttl_ms;
}

static enum tree_validity validity_at(const struct tree *t, const struct directory_facts *d,
	uint64_t at, uint64_t looked_ms, uint64_t now_ms)
{
	if (tree_is_backed(t, d, at))
		return TREE_WATCHED;
	return !d->on && is_young(t, looked_ms, now_ms) ? TREE_BRIEFLY : TREE_ASK;
}

static enum tree_validity listing_validity(
	const struct tree *t, const struct directory_facts *d, uint64_t now_ms)
{
	return d->listed_at ? validity_at(t, d, d->listed_at, d->listed_ms, now_ms) : TREE_ASK;
}

enum tree_validity tree_get_name(struct tree *t, const struct object_id *directory,
	const char *name, uint64_t now_ms, struct object_id *ret_id)
{
	struct object *in = tree_object(t, directory), *of;
	const struct directory_facts *d = in ? tree_facts(in) : NULL;
	struct slot *s = tree_slot(in, name);

	*ret_id = (struct object_id){0};
	if (!d)
		return TREE_ASK;
	in->used = true;
	if (!s)
		return listing_validity(t, d, now_ms);
	s->used = true;
	of = slot_object(s);
	if (of) {
		*ret_id = object_id_of(of);
		of->used = true;
	}
	return s->unknown ? TREE_ASK : validity_at(t, d, s->at, s->looked_ms, now_ms);
}

/* ALL_LINKS: a change of a file has an event if all its names are in watched directories, whichever
 * name was used. */
static enum tree_validity file_validity(
	const struct tree *t, const struct object *o, uint64_t now_ms)
{
	const uint32_t nlink = file_kind_at(o->kind)->nlink;
	bool all_on = nlink <= LINKS_MAX, all_backed = true;
	uint32_t names = 0;

	for (const struct slot *s = slab_at(o->slots); s && all_on; s = slab_at(s->next_of)) {
		const struct directory_facts *d = slot_facts(s);

		if (s->unknown)
			continue;
		names++;
		all_on = all_on && d->on;
		all_backed =
			all_backed && tree_is_backed(t, d, s->at) && tree_is_backed(t, d, o->at);
	}
	if (names > 0 && (names == nlink || !RULE(ALL_LINKS)) && all_on)
		return all_backed ? TREE_WATCHED : TREE_ASK;
	if (nlink > 1 && o->at <= t->links_at)
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
		return validity_at(t, tree_facts(o), o->at, o->looked_ms, now_ms);
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
		*ret_attributes = tree_attributes_of(o);
	return v;
}

enum tree_validity tree_get_listing(
	struct tree *t, const struct object_id *directory, uint64_t now_ms)
{
	struct object *in = tree_object(t, directory);

	if (!in || !in->has_facts)
		return TREE_ASK;
	in->used = true;
	return listing_validity(t, tree_facts(in), now_ms);
}

/* `attributes`: storage that the entry points to. */
static struct tree_entry entry_of(
	struct tree *t, const struct slot *s, uint64_t now_ms, struct attributes *attributes)
{
	struct object *of = slot_object(s);

	*attributes = tree_attributes_of(of);
	return (struct tree_entry){
		.name = s->name,
		.attributes = attributes,
		.name_validity =
			s->unknown ? TREE_ASK
				   : validity_at(t, slot_facts(s), s->at, s->looked_ms, now_ms),
		.attributes_validity = object_validity(t, of, now_ms),
		.kept = slab_at(*tree_kept_of(of)),
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
	for (struct slot *s = tree_slot_first(d, &bucket); s; s = tree_slot_next(d, s, &bucket)) {
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

	if (!o || !file_kind_at(o->kind)->mode)
		return 0;
	if (ret_attributes)
		*ret_attributes = tree_attributes_of(o);
	return o->at;
}

uint32_t tree_type(const struct tree *t, const struct object_id *id)
{
	const struct object *o = tree_object(t, id);

	return o ? file_kind_at(o->kind)->mode & S_IFMT : 0;
}

const char *tree_name_of(
	const struct tree *t, const struct object_id *id, struct object_id *ret_directory)
{
	const struct object *o = tree_object(t, id);
	const struct slot *s = o ? slab_at(o->slots) : NULL;

	while (s && s->unknown && s->next_of)
		s = slab_at(s->next_of);
	if (!s)
		return NULL;
	*ret_directory = object_id_of(slot_directory(s));
	return s->name;
}

uint64_t tree_watched_since(const struct tree *t, const struct object_id *directory)
{
	const struct object *o = tree_object(t, directory);

	const struct directory_facts *d = o ? tree_facts(o) : NULL;

	return d && d->on ? d->watch_at : 0;
}

uint64_t tree_state(const struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	return o ? o->state : 0;
}

/* ---- Invalidation --------------------------------------------------------------------------- */

static void invalidate_slot(struct slot *s, uint64_t at)
{
	s->unknown = true;
	s->at = tree_higher(s->at, at);
}

void tree_invalidate_name(
	struct tree *t, uint64_t at, const struct object_id *directory, const char *name)
{
	struct object *in = tree_object(t, directory);
	struct slot *s = tree_slot(in, name);

	if (!in || !in->has_facts)
		return;
	if (!s)
		s = tree_slot_make(t, in, name);
	if (s)
		invalidate_slot(s, at);
	else
		tree_facts(in)->listed_at = 0;
}

void tree_invalidate_attributes(struct tree *t, uint64_t at, const struct object_id *id)
{
	invalidate_object(tree_object(t, id), at);
}

void tree_invalidate_links(struct tree *t, uint64_t at)
{
	t->links_at = tree_higher(t->links_at, at);
}

void tree_own_unclear(struct tree *t, uint64_t at, const struct object_id *directory,
	const char *name, const struct object_id *linked)
{
	struct object *in = tree_directory_make(t, directory);
	struct slot *s = tree_slot(in, name);

	if (in && !s)
		s = tree_slot_make(t, in, name);
	if (!s || !RULE(UNCLEAR))
		return;
	tree_facts(in)->listed_at = 0;
	invalidate_object(in, at);
	invalidate_object(slot_object(s), at);
	invalidate_object(linked ? tree_object(t, linked) : NULL, at);
	invalidate_slot(s, at);
}

/* ---- Data of the caller ---------------------------------------------------------------------- */

void *tree_kept(const struct tree *t, const struct object_id *id)
{
	struct object *o = tree_object(t, id);

	return o ? slab_at(*tree_kept_of(o)) : NULL;
}

int tree_keep(struct tree *t, const struct object_id *id, void *kept)
{
	struct object *o = tree_object_make(t, id);

	if (!o)
		return -ENOMEM;
	*tree_kept_of(o) = slab_ref_of(kept);
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

	if (!t)
		return NULL;
	if (slab_table_init(&t->objects) < 0 || file_kinds_init(&t->kinds) < 0) {
		slab_table_done(&t->objects);
		free(t);
		return NULL;
	}
	t->options = *options;
	return t;
}

static void object_free(struct tree *t, struct object *o)
{
	const struct directory_facts *d = tree_facts(o);
	const struct object_id id = object_id_of(o);

	if (*tree_kept_of(o))
		t->options.drop(t->options.user, &id, slab_at(*tree_kept_of(o)));
	for (size_t i = 0; d && i <= d->slots.mask; i++)
		while (d->slots.buckets[i]) {
			struct slot *s = slab_at(d->slots.buckets[i]);

			d->slots.buckets[i] = s->next;
			tree_slot_release(t, s);
		}
	tree_object_release(t, o);
}

void tree_free(struct tree *t)
{
	if (!t)
		return;
	for (size_t i = 0; i <= t->objects.mask; i++)
		while (t->objects.buckets[i]) {
			struct object *o = slab_at(t->objects.buckets[i]);

			t->objects.buckets[i] = o->next;
			object_free(t, o);
		}
	slab_table_done(&t->objects);
	file_kinds_done(&t->kinds);
	slab_done(&t->slab);
	free(t);
}

size_t tree_names(const struct tree *t)
{
	return t->names;
}
