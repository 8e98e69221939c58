/* Which names the kernel holds, and the notifications that it needs.  The rules are in
 * ops/COHERENCE.md, under the names that RULE() has here. */
#include <string.h>

#include "ops/tree_internal.h"

/* ---- Notifications ------------------------------------------------------------------------- */

void tree_queue_leave(struct tree *t, struct slot *s)
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
	tree_queue_leave(t, s);
	if (queue == QUEUE_FORGETS)
		TAILQ_INSERT_TAIL(&t->forgets, s, queue);
	else
		TAILQ_INSERT_TAIL(&t->repeats, s, queue);
	s->queued = queue;
}

bool tree_is_forgetting(const struct slot *s)
{
	return s->taken || s->queued != QUEUE_NONE;
}

void tree_forget_slot(struct tree *t, struct slot *s, enum forget_kind kind)
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
	tree_queue_leave(t, s);
	s->wanted = FORGET_NO;
	s->mixed = false;
	s->held = false;
	s->given = GIVEN_NONE;
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
	struct object *in = tree_directory_make(t, directory);
	struct slot *s = tree_slot(in, name);

	if (in && !s)
		s = tree_slot_make(t, in, name);
	return s;
}

static enum tree_validity slot_validity(
	const struct tree *t, const struct slot *s, const struct object_id *id, uint64_t now_ms)
{
	const struct object *o = tree_object(t, id);

	if (s->unknown || s->of != o || (id->inode != 0 && !o))
		return TREE_ASK;
	return tree_validity_at(t, s->in->directory, s->at, s->looked_ms, now_ms);
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
	if (s->given != GIVEN_NONE && s->given != number && (s->held || tree_is_forgetting(s)) &&
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

struct slot *tree_own_end(struct tree *t, const struct object_id *directory, const char *name)
{
	struct slot *s = slot_for_kernel(t, directory, name);

	if (s && s->own > 0)
		s->own--;
	return s;
}

enum tree_validity tree_own_made(struct tree *t, const struct object_id *directory,
	const char *name, const struct object_id *id, uint64_t now_ms)
{
	struct slot *s = tree_own_end(t, directory, name);
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
	struct slot *s = tree_own_end(t, directory, name);

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
		tree_forget_slot(t, s, FORGET_CERTAIN);
	else if (slot_validity(t, s, s->of ? &s->of->attributes.id : &none, now_ms) == TREE_ASK)
		tree_forget_slot(t, s, FORGET_DOUBT);
	else
		s->held = true;
}

void tree_own_moved(struct tree *t, const struct object_id *from_directory, const char *from,
	const struct object_id *to_directory, const char *to, bool swap, uint64_t now_ms)
{
	struct slot *a = tree_own_end(t, from_directory, from),
		    *b = tree_own_end(t, to_directory, to);
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
	tree_own_end(t, directory, name);
}

static void take(struct tree *t, struct slot *s, struct tree_forget *ret_forget)
{
	*ret_forget = (struct tree_forget){
		.directory = s->in->attributes.id,
		.certain = s->wanted == FORGET_CERTAIN,
		.repeated = s->queued == QUEUE_REPEATS,
		.slot = s,
	};
	tree_queue_leave(t, s);
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
