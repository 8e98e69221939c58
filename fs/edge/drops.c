/* The rules are in ops/cache/COHERENCE.md, under the names that RULE() has here. */
#include "fs/edge/drops_internal.h"

#include <string.h>

#ifdef DROPS_MUTANTS
enum drops_rule drops_rule_off = DROPS_RULE_COUNT;
#endif

/* Whichever comes first; 0 is never. */
static void earlier(uint64_t *due_ns, uint64_t ns)
{
	if (!*due_ns || (ns && ns < *due_ns))
		*due_ns = ns;
}

static struct drop *find(struct drops *d, const struct inode *inode)
{
	for (unsigned i = 0; i < d->count; i++)
		if (d->drops[i].inode == inode)
			return &d->drops[i];
	return NULL;
}

static bool is_same(const struct inode_version *a, const struct inode_version *b)
{
	return a->mode && memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- Locks --------------------------------------------------------------------------- */

static uint64_t end_of(const struct file_lock *lock)
{
	return lock->length ? lock->offset + lock->length : UINT64_MAX;
}

static bool covers(const struct file_lock *outer, const struct file_lock *inner)
{
	return outer->kind == inner->kind && outer->offset <= inner->offset &&
	       end_of(outer) >= end_of(inner);
}

static bool overlaps(const struct file_lock *a, const struct file_lock *b)
{
	return a->kind == b->kind && a->offset < end_of(b) && b->offset < end_of(a);
}

static bool is_of(const struct held *held, const struct inode *inode, const struct file_lock *lock)
{
	return held->inode == inode && held->lock.owner == lock->owner &&
	       overlaps(&held->lock, lock);
}

void drops_relock(struct drops *d, const struct inode *inode, const struct file_lock *lock)
{
	for (unsigned i = 0; i < d->held_count; i++)
		if (is_of(&d->held[i], inode, lock))
			d->held[i].is_cut = RULE(CUT);
}

void drops_unlock(struct drops *d, const struct inode *inode, const struct file_lock *lock)
{
	drops_relock(d, inode, lock);
	for (unsigned i = d->held_count; i-- > 0;)
		if (RULE(RELEASED) && is_of(&d->held[i], inode, lock) &&
			covers(lock, &d->held[i].lock))
			d->held[i] = d->held[--d->held_count];
}

void drops_lock(
	struct drops *d, const struct inode *inode, const struct file_lock *lock, uint64_t now_ns)
{
	unsigned i = 0;

	drops_unlock(d, inode, lock);
	for (unsigned k = 1; k < d->held_count; k++)
		if (d->held[k].until_ns < d->held[i].until_ns)
			i = k;
	if (d->held_count < DROPS_MAX)
		i = d->held_count++;
	d->held[i] =
		(struct held){.inode = inode, .lock = *lock, .until_ns = now_ns + DROPS_LOCK_NS};
}

void drops_granted(struct drops *d, const struct inode *inode, const struct file_lock *lock)
{
	for (unsigned i = 0; i < d->held_count; i++)
		if (d->held[i].inode == inode && d->held[i].lock.owner == lock->owner &&
			covers(lock, &d->held[i].lock))
			d->held[i].is_ready = true;
}

/* No process elsewhere can have had this lock since another holder here was granted it. */
static bool is_shared(const struct drops *d, const struct inode *inode,
	const struct file_lock *lock, uint64_t now_ns)
{
	for (unsigned i = 0; i < d->held_count; i++) {
		const struct held *held = &d->held[i];

		if (held->inode == inode && held->lock.owner != lock->owner && held->is_ready &&
			!held->is_cut && covers(&held->lock, lock) && held->until_ns > now_ns)
			return true;
	}
	return false;
}

enum drops_decision drops_decide(const struct drops *d, const struct inode *inode,
	const struct file_lock *lock, uint64_t now_ns, uint64_t *ret_due_ns)
{
	for (unsigned i = 0; RULE(GRANT_IN_TURN) && i < d->count; i++)
		if (d->drops[i].inode == inode && d->drops[i].under_way)
			return DROPS_GRANT_WAITS;
	if (RULE(SHARED) && is_shared(d, inode, lock, now_ns))
		return DROPS_GRANT_NOTHING;
	for (unsigned i = 0; RULE(GRANT_AFTER_REPLY) && i < DROPS_MAX; i++) {
		const struct reply *reply = &d->replies[i];

		if (reply->inode != inode)
			continue;
		if (reply->is_under_way)
			return DROPS_GRANT_WAITS;
		if (reply->done_ns + DROPS_INSTALL_NS > now_ns) {
			earlier(ret_due_ns, reply->done_ns + DROPS_INSTALL_NS);
			return DROPS_GRANT_WAITS;
		}
	}
	return RULE(GRANT) ? DROPS_GRANT_DROPS : DROPS_GRANT_NOTHING;
}

void drops_clean(struct drops *d, const struct inode *inode, const struct inode_version *version)
{
	unsigned number = d->clean_next;

	for (unsigned i = 0; i < DROPS_MAX; i++)
		if (d->clean[i].inode == inode)
			number = i;
	if (number == d->clean_next)
		d->clean_next = (number + 1) % DROPS_MAX;
	d->clean[number] = (struct clean){.inode = inode, .version = *version};
}

bool drops_is_clean(
	const struct drops *d, const struct inode *inode, const struct inode_version *version)
{
	for (unsigned i = 0; i < DROPS_MAX; i++)
		if (d->clean[i].inode == inode)
			return is_same(version, &d->clean[i].version);
	return false;
}

/* How long a drop waits for locks; 0: not at all. */
static uint64_t locked_until(const struct drops *d, const struct drop *drop, uint64_t now_ns)
{
	uint64_t until_ns = 0;

	for (unsigned i = 0; RULE(LOCKED) && i < d->held_count; i++)
		if (d->held[i].inode == drop->inode && d->held[i].until_ns > now_ns)
			earlier(&until_ns, d->held[i].until_ns);
		else if (d->held[i].inode == drop->inode && !RULE(BOUND))
			until_ns = UINT64_MAX;
	/* Locks here may overlap one another for ever. */
	if (until_ns && drop->wanted_ns + DROPS_LOCK_NS < until_ns && RULE(BOUND))
		until_ns = drop->wanted_ns + DROPS_LOCK_NS;
	return until_ns > now_ns ? until_ns : 0;
}

/* ---- Replies ------------------------------------------------------------------------- */

/* For a repetition: a while after a reply that is still under way. */
static const uint64_t WITH_REPLY = UINT64_MAX;

unsigned drops_reply(struct drops *d, const struct inode *inode, pid_t caller)
{
	unsigned number = d->reply_next;

	/* A thread makes one request at a time: the earlier reply is installed. */
	for (unsigned i = 0; i < DROPS_MAX; i++)
		if (d->replies[i].inode == inode && !d->replies[i].is_under_way)
			d->replies[i].inode = NULL;
	for (unsigned i = 0; i < DROPS_MAX && d->replies[number].is_under_way; i++)
		number = (number + 1) % DROPS_MAX;
	d->reply_next = (number + 1) % DROPS_MAX;
	d->replies[number] = (struct reply){.inode = inode, .caller = caller, .is_under_way = true};
	return number;
}

/* True: it is gone. */
static bool remove_unused(struct drops *d, struct drop *drop)
{
	if (drop->wanted || drop->under_way || drop->repeat_ns)
		return false;
	*drop = d->drops[--d->count];
	return true;
}

bool drops_replied(struct drops *d, unsigned number, const struct inode *inode,
	const struct inode_version *version, uint64_t now_ns)
{
	struct reply *reply = &d->replies[number];
	struct drop *drop = find(d, inode);

	if (reply->inode != inode)
		return false;
	reply->is_under_way = false;
	reply->done_ns = now_ns;
	reply->version = *version;
	if (drop && drop->repeat_ns == WITH_REPLY)
		drop->repeat_ns = reply->is_overtaken && !is_same(version, &drop->version)
					  ? now_ns + DROPS_REPEAT_NS
					  : 0;
	for (unsigned i = 0; drop && i < DROPS_MAX; i++)
		if (d->replies[i].inode == inode && d->replies[i].is_under_way &&
			d->replies[i].is_overtaken)
			drop->repeat_ns = WITH_REPLY;
	return drop && remove_unused(d, drop);
}

void drops_installed(struct drops *d, const struct inode *inode, pid_t caller)
{
	for (unsigned i = 0; caller && i < DROPS_MAX; i++)
		if (d->replies[i].inode == inode && d->replies[i].caller == caller &&
			!d->replies[i].is_under_way)
			d->replies[i].inode = NULL;
}

/* A reply that is installed after this drop would bring the old attributes back. */
static void repeat_after_replies(struct drops *d, struct drop *drop, uint64_t now_ns)
{
	for (unsigned i = 0; RULE(REPEAT) && i < DROPS_MAX; i++) {
		struct reply *reply = &d->replies[i];
		uint64_t repeat_ns =
			reply->is_under_way ? WITH_REPLY : reply->done_ns + DROPS_REPEAT_NS;

		if (reply->inode != drop->inode || repeat_ns <= now_ns ||
			(!reply->is_under_way && is_same(&reply->version, &drop->version)))
			continue;
		reply->is_overtaken = true;
		if (repeat_ns > drop->repeat_ns)
			drop->repeat_ns = repeat_ns;
	}
}

/* ---- Drops --------------------------------------------------------------------------- */

enum drops_added drops_want(struct drops *d, struct inode *inode, bool pages,
	const struct inode_version *version, uint64_t not_before_ns, uint64_t now_ns)
{
	struct drop *drop = find(d, inode);
	bool is_new = !drop;

	if (is_new && d->count == DROPS_MAX)
		return DROPS_FULL;
	if (is_new) {
		drop = &d->drops[d->count++];
		*drop = (struct drop){.inode = inode};
	}
	if ((drop->wanted || drop->repeat_ns) && !is_same(version, &drop->version))
		drop->version = (struct inode_version){0};
	else
		drop->version = *version;
	if (!drop->wanted) {
		drop->wanted_ns = now_ns;
		drop->is_pressing = false;
	}
	if (pages)
		drop->not_before_ns = not_before_ns;
	else
		drop->attributes_first = true;
	if (drop->wanted != DROP_PAGES)
		drop->wanted = pages ? DROP_PAGES : DROP_ATTRIBUTES;
	return is_new ? DROPS_NEW : DROPS_KNOWN;
}

/* 0: now. */
static uint64_t due(
	const struct drops *d, const struct drop *drop, enum drops_mode mode, uint64_t now_ns)
{
	uint64_t until_ns = mode == DROPS_GRANT ? 0 : locked_until(d, drop, now_ns);

	if (until_ns)
		return until_ns;
	if (drop->wanted != DROP_PAGES || mode >= DROPS_HURRY ||
		(mode == DROPS_BARRIER && drop->is_pressing))
		return 0;
	return drop->not_before_ns > now_ns ? drop->not_before_ns : 0;
}

static enum drop_what take(struct drops *d, struct drop *drop, enum drops_mode mode,
	uint64_t now_ns, uint64_t *ret_due_ns)
{
	enum drop_what what;
	uint64_t due_ns;

	if (drop->repeat_ns && drop->repeat_ns <= now_ns) {
		drop->repeat_ns = 0;
		drops_want(d, drop->inode, false, &drop->version, drop->not_before_ns, now_ns);
	}
	if (drop->repeat_ns != WITH_REPLY)
		earlier(ret_due_ns, drop->repeat_ns);
	if (!drop->wanted)
		return DROP_NOTHING;
	due_ns = due(d, drop, mode, now_ns);
	what = drop->wanted;
	if (due_ns) {
		earlier(ret_due_ns, due_ns);
		if (!drop->attributes_first || locked_until(d, drop, now_ns))
			return DROP_NOTHING;
		what = DROP_ATTRIBUTES; /* the pages follow */
	} else {
		drop->wanted = DROP_NOTHING;
	}
	drop->attributes_first = false;
	if (!drop->under_way++)
		drop->taken_ns = drop->wanted_ns;
	repeat_after_replies(d, drop, now_ns);
	return what;
}

enum drop_what drops_take(struct drops *d, const struct inode *inode, enum drops_mode mode,
	uint64_t now_ns, uint64_t *ret_due_ns)
{
	struct drop *drop = find(d, inode);

	return drop ? take(d, drop, mode, now_ns, ret_due_ns) : DROP_NOTHING;
}

struct inode *drops_next(struct drops *d, enum drops_mode mode, uint64_t now_ns,
	enum drop_what *ret_what, uint64_t *ret_due_ns)
{
	for (unsigned i = 0; i < d->count; i++) {
		*ret_what = take(d, &d->drops[i], mode, now_ns, ret_due_ns);
		if (*ret_what)
			return d->drops[i].inode;
	}
	return NULL;
}

bool drops_end(struct drops *d, const struct inode *inode)
{
	struct drop *drop = find(d, inode);

	drop->under_way--;
	return remove_unused(d, drop);
}

void drops_press(struct drops *d, const struct inode *inode)
{
	struct drop *drop = find(d, inode);

	if (drop)
		drop->is_pressing = true;
}

bool drops_is_pressing(const struct drops *d, const struct inode *inode)
{
	for (unsigned i = 0; i < d->count; i++)
		if (d->drops[i].inode == inode)
			return d->drops[i].is_pressing;
	return false;
}

bool drops_is_under_way(const struct drops *d, const struct inode *inode)
{
	for (unsigned i = 0; i < d->count; i++)
		if (d->drops[i].inode == inode)
			return d->drops[i].under_way;
	return false;
}

bool drops_is_wanted(struct drops *d, const struct inode *inode, enum drops_mode mode,
	uint64_t now_ns, uint64_t *ret_due_ns)
{
	const struct drop *drop = find(d, inode);

	if (!drop || !drop->wanted)
		return false;
	*ret_due_ns = due(d, drop, mode, now_ns);
	return true;
}

bool drops_are_sent(const struct drops *d, enum drops_mode mode, uint64_t until_ns, uint64_t now_ns)
{
	for (unsigned i = 0; i < d->count; i++) {
		const struct drop *drop = &d->drops[i];

		if (drop->under_way && drop->taken_ns <= until_ns)
			return false;
		if (drop->wanted && drop->wanted_ns <= until_ns &&
			(mode != DROPS_BARRIER || !due(d, drop, mode, now_ns)))
			return false;
	}
	return true;
}
