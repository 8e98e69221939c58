#include "fs/edge/dropper.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/edge/drops.h"
#include "ops/support/clock.h"
#include "ops/support/thread.h"

enum {
	SENT_WAIT_MS = 100,
	STEP_MS = 50,
	LISTED_MAX = 16,
	READ_AHEAD_BYTES = 2 * SESSION_REQUEST_MAX_BYTES
};

static const uint64_t WRITTEN_MS = 80; /* a map may be written back in several requests */

/* Pages that were left out of a drop. */
struct late_drop {
	TAILQ_ENTRY(late_drop) link; /* lock, as all below */
	struct inode *inode;         /* referenced */
	off_t start, end;
	uint64_t before; /* requests with lower numbers may have brought old content */
	uint64_t number; /* they are counted */
	bool is_due;     /* the request is over */
};

struct dropper {
	struct session *session;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t sent; /* something was sent or replied; drains and locks wait here (lock) */
	pthread_cond_t is_due;    /* before `sleeps_until_ns`; the thread waits here */
	uint64_t sleeps_until_ns; /* lock, as all below; 0: for ever */
	struct drops drops;
	struct listed {
		const struct inode *inode; /* only compared */
		int64_t ctime_ns;
	} listed[LISTED_MAX];
	unsigned listed_next;
	LIST_HEAD(, page_request) requests;
	TAILQ_HEAD(, late_drop) late;       /* the oldest first */
	uint64_t late_count, request_count; /* of all so far */
	unsigned waiting;
	unsigned draining;    /* of those; pages are dropped although they are being written */
	unsigned catching_up; /* ... if others have changed them */
	bool ending;
};

bool dropper_is_being_written(const struct inode *inode)
{
	const struct inode_file *file = inode_file(inode);
	uint16_t written_ms;

	if (!file || !file->mappers)
		return false;
	written_ms = file->written_ms; /* first: a write may come between the two */
	return (uint16_t)((uint16_t)clock_now_ms() - written_ms) < WRITTEN_MS;
}

/* With the lock held: something is due then. */
static void wake_thread(struct dropper *d, uint64_t due_ns)
{
	if (d->drops.count && (!d->sleeps_until_ns || due_ns < d->sleeps_until_ns))
		pthread_cond_signal(&d->is_due);
}

/* With the lock held. */
static void wake_waiting(struct dropper *d)
{
	if (d->waiting)
		pthread_cond_broadcast(&d->sent);
}

/* ---- Pages of requests under way ----------------------------------------------------- */

void dropper_begin_pages(struct dropper *d, struct page_request *request, const struct inode *inode,
	off_t offset, size_t size)
{
	const off_t page = sysconf(_SC_PAGESIZE);

	*request = (struct page_request){.inode = inode,
		.start = offset / page * page,
		.end = (offset + (off_t)size + page - 1) / page * page};
	pthread_mutex_lock(&d->lock);
	request->number = ++d->request_count;
	LIST_INSERT_HEAD(&d->requests, request, link);
	pthread_mutex_unlock(&d->lock);
}

void dropper_end_pages(struct dropper *d, struct page_request *request)
{
	pthread_mutex_lock(&d->lock);
	LIST_REMOVE(request, link);
	if (request->late) {
		request->late->is_due = true;
		pthread_cond_signal(&d->is_due);
	}
	pthread_mutex_unlock(&d->lock);
}

/* The pages behind a request's may be read ahead: the kernel has locked those, too, and their
 * request may not have been fetched yet. */
static off_t busy_until(const struct page_request *request)
{
	return request->end + READ_AHEAD_BYTES;
}

/* The first request whose pages are busy from `start` on; NULL: none.  With the lock held. */
static struct page_request *next_request(
	const struct dropper *d, const struct inode *inode, off_t start)
{
	struct page_request *request, *first = NULL;

	LIST_FOREACH(request, &d->requests, link)
		if (request->inode == inode && busy_until(request) > start &&
			(!first || request->start < first->start))
			first = request;
	return first;
}

/* With the lock held: leaves the request out of a drop up to `end`.  False: no memory. */
static bool drop_later(struct dropper *d, struct inode *inode, struct page_request *request,
	off_t end, uint64_t before)
{
	off_t from = request->number < before ? request->start : request->end;
	off_t to = busy_until(request) < end ? busy_until(request) : end;
	struct late_drop *late = request->late;

	if (from >= to)
		return true;
	if (!late) {
		late = malloc(sizeof(*late));
		if (!late)
			return false;
		*late = (struct late_drop){
			.inode = inode, .start = from, .end = to, .number = ++d->late_count};
		inode_table_ref(d->session->mount->inodes, inode);
		TAILQ_INSERT_TAIL(&d->late, late, link);
		request->late = late;
	}
	late->start = from < late->start ? from : late->start;
	late->end = to > late->end ? to : late->end;
	late->before = before > late->before ? before : late->before;
	return true;
}

/* The pages from `*at` up to `end` that no request has locked; those that one has are dropped
 * later.
 * `*at` becomes where to go on, the return value is the end of the first of them. */
static off_t next_idle(
	struct dropper *d, struct inode *inode, off_t *at, off_t end, uint64_t before)
{
	struct page_request *request;
	off_t until = end;

	pthread_mutex_lock(&d->lock);
	while ((request = next_request(d, inode, *at)) && request->start <= *at && *at < end &&
		drop_later(d, inode, request, end, before))
		*at = busy_until(request);
	if (request && request->start > *at && request->start < end)
		until = request->start;
	pthread_mutex_unlock(&d->lock);
	return until;
}

static const off_t ALL_PAGES = INT64_MAX;

/* Without the lock held. */
static int drop_idle(
	struct dropper *d, struct inode *inode, off_t start, off_t end, uint64_t before)
{
	off_t at = start, until = next_idle(d, inode, &at, end, before);
	int r;

	if (at == 0 && until == ALL_PAGES)
		return session_drop_inode(d->session, inode, true);
	r = session_drop_inode(d->session, inode, false);
	while (r == 0 && at < end) {
		session_drop_range(d->session, inode, at, until == ALL_PAGES ? 0 : until - at);
		at = until;
		until = next_idle(d, inode, &at, end, before);
	}
	return r;
}

/* What the kernel asks for from now on is current. */
static uint64_t next_number(struct dropper *d)
{
	uint64_t number;

	pthread_mutex_lock(&d->lock);
	number = d->request_count + 1;
	pthread_mutex_unlock(&d->lock);
	return number;
}

static int drop(struct dropper *d, struct inode *inode, bool pages)
{
	return pages ? drop_idle(d, inode, 0, ALL_PAGES, next_number(d))
		     : session_drop_inode(d->session, inode, false);
}

/* ---- Drops --------------------------------------------------------------------------- */

/* With the lock held.  False: there is no room. */
static bool want(
	struct dropper *d, struct inode *inode, bool pages, const struct inode_version *found)
{
	static const struct inode_version unknown;
	uint64_t now_ns = clock_now_ns();
	uint64_t not_before_ns =
		pages && dropper_is_being_written(inode) ? now_ns + WRITTEN_MS * 1000000 : 0;
	enum drops_added added = drops_want(
		&d->drops, inode, pages, found ? found : &unknown, not_before_ns, now_ns);

	if (added == DROPS_NEW)
		inode_table_ref(d->session->mount->inodes, inode);
	return added != DROPS_FULL;
}

/* Sends what was taken; `lock`: that it was for, or NULL, and the version that was found then.
 * Without the lock held. */
static int tell(struct dropper *d, struct inode *inode, enum drop_what what,
	const struct file_lock *granted, const struct inode_version *found)
{
	bool pages = what == DROP_PAGES, is_gone;
	/* The holder of a lock must not read a page that was requested before. */
	int r = granted ? session_drop_inode(d->session, inode, pages) : drop(d, inode, pages);

	pthread_mutex_lock(&d->lock);
	is_gone = drops_end(&d->drops, inode);
	if (granted)
		drops_granted(&d->drops, inode, granted);
	if (found && what == DROP_PAGES)
		drops_clean(&d->drops, inode, found);
	wake_waiting(d);
	pthread_mutex_unlock(&d->lock);
	if (is_gone)
		inode_table_unref(d->session->mount->inodes, inode);
	return r;
}

/* The last access list of the inode, or NULL.  With the lock held. */
static struct listed *find_listed(struct dropper *d, const struct inode *inode)
{
	for (unsigned i = 0; i < LISTED_MAX; i++)
		if (d->listed[i].inode == inode)
			return &d->listed[i];
	return NULL;
}

/* With the lock held. */
static enum drops_mode mode_now(const struct dropper *d)
{
	if (d->draining)
		return DROPS_HURRY;
	return d->catching_up ? DROPS_BARRIER : DROPS_USUAL;
}

static int drop_or_want(struct dropper *d, struct inode *inode, bool pages, bool is_pressing,
	const struct inode_version *found)
{
	enum drop_what what = DROP_NOTHING;
	const struct listed *listed;
	uint64_t due_ns = 0;
	bool has_room;

	pthread_mutex_lock(&d->lock);
	listed = found ? find_listed(d, inode) : NULL;
	if (listed && found->ctime_ns <= listed->ctime_ns) {
		pthread_mutex_unlock(&d->lock);
		return -EALREADY;
	}
	has_room = want(d, inode, pages, found);
	if (is_pressing)
		drops_press(&d->drops, inode);
	if (has_room)
		what = drops_take(&d->drops, inode, mode_now(d), clock_now_ns(), &due_ns);
	if (due_ns)
		wake_thread(d, due_ns);
	pthread_mutex_unlock(&d->lock);
	if (!has_room)
		return drop(d, inode, pages);
	return what ? tell(d, inode, what, NULL, NULL) : 0;
}

int dropper_drop(
	struct dropper *d, struct inode *inode, bool pages, const struct inode_version *found)
{
	return drop_or_want(d, inode, pages, false, found);
}

int dropper_drop_foreign(struct dropper *d, struct inode *inode, const struct inode_version *found)
{
	return drop_or_want(d, inode, true, true, found);
}

/* With a bound, as a drop may wait for a page that is being read.  With the lock held. */
static void wait_until_sent(struct dropper *d, const struct inode *inode)
{
	const struct timespec until = clock_in_ms(SENT_WAIT_MS);

	d->waiting++;
	while (drops_is_under_way(&d->drops, inode) &&
		pthread_cond_timedwait(&d->sent, &d->lock, &until) == 0) {}
	d->waiting--;
}

void dropper_listed(
	struct dropper *d, struct inode *inode, const struct attributes *found, bool pages)
{
	struct inode_version version;
	struct listed *listed;

	inode_version_of(found, &version);
	pthread_mutex_lock(&d->lock);
	listed = find_listed(d, inode);
	if (!listed)
		listed = &d->listed[d->listed_next++ % LISTED_MAX];
	*listed = (struct listed){.inode = inode, .ctime_ns = version.ctime_ns};
	wait_until_sent(d, inode);
	pthread_mutex_unlock(&d->lock);
	/* Answers that were asked for before the list was set are late. */
	dropper_drop(d, inode, pages, NULL);
}

/* ---- Locks --------------------------------------------------------------------------- */

/* With a bound, as a drop may wait for a page that is being read.  With the lock held. */
static enum drops_decision decide(
	struct dropper *d, const struct inode *inode, const struct file_lock *lock)
{
	const uint64_t end_ns = clock_now_ns() + SENT_WAIT_MS * 1000000;

	for (;;) {
		uint64_t due_ns = end_ns;
		enum drops_decision decision =
			drops_decide(&d->drops, inode, lock, clock_now_ns(), &due_ns);
		struct timespec until = clock_at_ns(due_ns);

		if (decision != DROPS_GRANT_WAITS || clock_now_ns() >= end_ns)
			return decision;
		d->waiting++;
		pthread_cond_timedwait(&d->sent, &d->lock, &until);
		d->waiting--;
	}
}

void dropper_locked(struct dropper *d, struct inode *inode, const struct file_lock *lock,
	const struct inode_version *found)
{
	enum drop_what what = DROP_NOTHING;
	uint64_t due_ns = 0;
	bool has_room = true, pages = true;

	pthread_mutex_lock(&d->lock);
	drops_lock(&d->drops, inode, lock, clock_now_ns());
	if (decide(d, inode, lock) == DROPS_GRANT_NOTHING) {
		drops_granted(&d->drops, inode, lock);
	} else {
		pages = !found || !drops_is_clean(&d->drops, inode, found);
		has_room = want(d, inode, pages, NULL);
		what = drops_take(&d->drops, inode, DROPS_GRANT, clock_now_ns(), &due_ns);
	}
	pthread_mutex_unlock(&d->lock);
	if (!has_room)
		session_drop_inode(d->session, inode, pages);
	if (what)
		tell(d, inode, what, lock, found);
}

void dropper_unlocking(
	struct dropper *d, const struct inode *inode, const struct file_lock *lock, pid_t caller)
{
	uint64_t due_ns;

	pthread_mutex_lock(&d->lock);
	drops_installed(&d->drops, inode, caller);
	if (lock->type == LOCK_NONE)
		drops_unlock(&d->drops, inode, lock);
	else
		drops_relock(&d->drops, inode, lock);
	if (drops_is_wanted(&d->drops, inode, mode_now(d), clock_now_ns(), &due_ns))
		wake_thread(d, due_ns);
	pthread_mutex_unlock(&d->lock);
}

/* ---- Replies ------------------------------------------------------------------------- */

unsigned dropper_reply(struct dropper *d, const struct inode *inode, pid_t caller)
{
	unsigned number;

	pthread_mutex_lock(&d->lock);
	number = drops_reply(&d->drops, inode, caller);
	pthread_mutex_unlock(&d->lock);
	return number;
}

void dropper_replied(struct dropper *d, unsigned number, struct inode *inode,
	const struct attributes *attributes)
{
	struct inode_version version = {0};
	uint64_t now_ns;
	bool is_gone;

	if (attributes)
		inode_version_of(attributes, &version);
	pthread_mutex_lock(&d->lock);
	now_ns = clock_now_ns();
	is_gone = drops_replied(&d->drops, number, inode, &version, now_ns);
	wake_thread(d, now_ns + DROPS_REPEAT_NS);
	wake_waiting(d);
	pthread_mutex_unlock(&d->lock);
	if (is_gone)
		inode_table_unref(d->session->mount->inodes, inode);
}

/* ---- The thread ---------------------------------------------------------------------- */

/* With the lock held.  False: no pages were left out. */
static bool drop_late(struct dropper *d)
{
	struct late_drop *late;

	TAILQ_FOREACH(late, &d->late, link)
		if (late->is_due)
			break;
	if (!late)
		return false;
	if (d->draining || !dropper_is_being_written(late->inode) ||
		!want(d, late->inode, true, NULL)) {
		pthread_mutex_unlock(&d->lock);
		drop_idle(d, late->inode, late->start, late->end, late->before);
		pthread_mutex_lock(&d->lock);
	}
	TAILQ_REMOVE(&d->late, late, link);
	wake_waiting(d);
	pthread_mutex_unlock(&d->lock);
	inode_table_unref(d->session->mount->inodes, late->inode);
	pthread_mutex_lock(&d->lock);
	free(late);
	return true;
}

/* With the lock held.  False: nothing may be dropped now. */
static bool drop_next(struct dropper *d, uint64_t *ret_due_ns)
{
	enum drops_mode mode = mode_now(d);
	enum drop_what what;
	struct inode *inode = drops_next(&d->drops, mode, clock_now_ns(), &what, ret_due_ns);

	if (!inode)
		return false;
	if (what == DROP_PAGES && mode != DROPS_HURRY && dropper_is_being_written(inode) &&
		!(mode == DROPS_BARRIER && drops_is_pressing(&d->drops, inode))) {
		bool is_pressing = drops_is_pressing(&d->drops, inode);

		want(d, inode, true, NULL);
		if (is_pressing)
			drops_press(&d->drops, inode);
		drops_end(&d->drops, inode);
		return true;
	}
	pthread_mutex_unlock(&d->lock);
	tell(d, inode, what, NULL, NULL);
	pthread_mutex_lock(&d->lock);
	return true;
}

static void *thread_main(void *data)
{
	struct dropper *d = data;

	pthread_mutex_lock(&d->lock);
	while (!d->ending) {
		uint64_t due_ns = 0;
		struct timespec until;

		if (drop_late(d) || drop_next(d, &due_ns))
			continue;
		until = clock_at_ns(due_ns);
		d->sleeps_until_ns = due_ns;
		if (due_ns)
			pthread_cond_timedwait(&d->is_due, &d->lock, &until);
		else
			pthread_cond_wait(&d->is_due, &d->lock);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

int dropper_start(struct session *s, struct dropper **ret_dropper)
{
	struct dropper *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	d->session = s;
	TAILQ_INIT(&d->late);
	pthread_mutex_init(&d->lock, NULL);
	clock_cond_init(&d->sent);
	clock_cond_init(&d->is_due);
	r = thread_start(&d->thread, "dropper", 0, thread_main, d);
	if (r < 0) {
		free(d);
		return r;
	}
	*ret_dropper = d;
	return 0;
}

void dropper_stop(struct dropper *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->ending = true;
	pthread_cond_broadcast(&d->sent);
	pthread_cond_signal(&d->is_due);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
}

void dropper_free(struct dropper *d)
{
	struct late_drop *late;

	if (!d)
		return;
	while ((late = TAILQ_FIRST(&d->late))) {
		TAILQ_REMOVE(&d->late, late, link);
		free(late);
	}
	pthread_cond_destroy(&d->sent);
	pthread_cond_destroy(&d->is_due);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

/* With the lock held, which is released meanwhile. */
static int await_step(struct dropper *d, struct op_context *ctx)
{
	clock_cond_wait_ms(&d->sent, &d->lock, STEP_MS);
	return ctx && op_interrupted(ctx) ? -EINTR : 0;
}

/* With the lock held: drops pages that were left out before. */
static bool has_late(const struct dropper *d, uint64_t number)
{
	const struct late_drop *oldest = TAILQ_FIRST(&d->late);

	return oldest && oldest->number <= number;
}

/* `ctx` NULL: nothing interrupts it.  With the lock held. */
static int await_sent(struct dropper *d, enum drops_mode mode, struct op_context *ctx)
{
	uint64_t until_ns = clock_now_ns(), number;
	int r = 0;

	d->waiting++;
	while (!drops_are_sent(&d->drops, mode, until_ns, clock_now_ns()) && !d->ending && r == 0)
		r = await_step(d, ctx);
	number = d->late_count;
	if (has_late(d, number))
		pthread_cond_signal(&d->is_due);
	while (has_late(d, number) && !d->ending && r == 0)
		r = await_step(d, ctx);
	d->waiting--;
	return r;
}

void dropper_drain(struct dropper *d)
{
	pthread_mutex_lock(&d->lock);
	d->draining++;
	wake_thread(d, 0);
	await_sent(d, DROPS_HURRY, NULL);
	d->draining--;
	pthread_mutex_unlock(&d->lock);
}

int dropper_catch_up(struct dropper *d, struct op_context *ctx)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->drops.count || !TAILQ_EMPTY(&d->late)) {
		d->catching_up++;
		pthread_cond_signal(&d->is_due);
		r = await_sent(d, DROPS_BARRIER, ctx);
		d->catching_up--;
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}
