/* The threads that bring pending operations to the inner workspace. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/thread.h"

enum {
	RETRY_MS = 500,
	LATER_MAX = 2 * WORKERS, /* no others are begun when so many are to be tried again */
	POLL_MS = 50,
	LAST_WAIT_MS = 15000
};

/* ---- Workers --------------------------- */

static void tell_rescan(struct writeback *b, const char *path)
{
	if (b->sink)
		b->sink(b->sink_user,
			&(struct change){.kind = CHANGE_RESCAN, .path = path, .at = b->position});
}

void back_undo(struct writeback *b, struct operation *operation, int error)
{
	struct node *node = operation->node;
	enum operation_kind kind = operation->facts.kind;
	struct name *name = back_name(b, operation->path, NULL);

	operation->is_undone = true;
	if (kind == OP_UNLINK || kind == OP_RMDIR)
		node->is_gone = false;
	else if (kind == OP_SETATTR || kind == OP_RENAME)
		node->refused = error;
	else
		node->error = error;
	if (kind == OP_MKDIR || kind == OP_CREATE || kind == OP_SYMLINK) {
		node->is_gone = true;
		if (name->node == node)
			name->node = NULL;
	}
	if (operation->replaced)
		operation->replaced->is_gone = false;
}

/* Counts an operation as lost, and has barriers and callers told. */
static void lose(struct writeback *b, struct operation *operation, int error)
{
	b->lost++;
	if (!b->unreported)
		b->unreported = error;
	back_undo(b, operation, error);
}

/* The next attempt first checks whether this one has succeeded; or, if the operation is lost, tries
 * again to save it. */
static void try_later(struct writeback *b, struct operation *operation)
{
	if (!b->failing_since_ms)
		b->failing_since_ms = clock_now_ms();
	b->is_away = b->is_away || !operation->refusal;
	operation->may_be_done = true;
	back_put_later(b, operation, clock_now_ms() + RETRY_MS);
}

/* Makes those ready whose time it is.  Returns how long a worker may sleep. */
static int64_t make_due_ready(struct writeback *b)
{
	int64_t now_ms = clock_now_ms();
	struct operation *operation;

	while ((operation = TAILQ_FIRST(&b->later)) && operation->again_ms <= now_ms) {
		back_take_ready(b, operation);
		back_put_ready(b, operation);
	}
	if (operation && operation->again_ms - now_ms < HELD_MS / 4)
		return operation->again_ms - now_ms;
	return HELD_MS / 4;
}

static void finish(struct writeback *b, struct operation *operation, int r)
{
	char *path, *path2;

	if (!operation->refusal) {
		b->failing_since_ms = 0;
		b->is_away = false;
	}
	if (r == 0) {
		back_end(b, operation);
		return;
	}
	operation->refusal = r;
	writeback_unlock(b);
	if (back_keep_lost(b, operation) < 0) {
		writeback_lock(b);
		try_later(b, operation);
		return;
	}
	path = strdup(operation->path);
	path2 = operation->facts.kind == OP_RENAME ? strdup(operation->path2) : NULL;
	writeback_lock(b);
	lose(b, operation, r);
	back_end(b, operation);
	writeback_unlock(b);
	tell_rescan(b, path ? path : "");
	if (path2)
		tell_rescan(b, path2);
	free(path);
	free(path2);
	writeback_lock(b);
}

static void run(struct writeback *b, struct operation *operation)
{
	int r;

	back_take_ready(b, operation);
	if (!operation->is_started) {
		back_journal_add(
			&b->journal, RECORD_STARTED, operation->sequence, NULL, 0, NULL, 0, NULL);
		back_start(operation);
	}
	writeback_unlock(b);
	r = operation->refusal ? operation->refusal : back_apply(b, operation);
	writeback_lock(b);
	if (r == -EAGAIN)
		try_later(b, operation);
	else
		finish(b, operation, r);
}

static void *work(void *argument)
{
	struct writeback *b = argument;

	int64_t sleep_ms;

	writeback_lock(b);
	while (!b->is_abandoned && !(b->is_ending && TAILQ_EMPTY(&b->operations))) {
		back_release_holds(b, b->is_ending ? INT64_MAX : clock_now_ms() - HELD_MS);
		sleep_ms = make_due_ready(b);
		if (b->probe.directory && !b->probe.runs)
			back_probe(b);
		else if (!TAILQ_EMPTY(&b->ready) && b->later_count < LATER_MAX)
			run(b, TAILQ_FIRST(&b->ready));
		else if (TAILQ_EMPTY(&b->operations))
			pthread_cond_wait(&b->work, &b->lock);
		else
			clock_cond_wait_ms(&b->work, &b->lock, sleep_ms);
	}
	writeback_unlock(b);
	return NULL;
}

int back_start_worker(struct writeback *b)
{
	int r = thread_start(&b->workers[b->worker_count], "writeback", 0, work, b);

	if (r == 0)
		b->worker_count++;
	return r;
}

/* Applies what is pending first, unless the workspace is out of reach. */
void back_workers_stop(struct writeback *b)
{
	int64_t until_ms = clock_now_ms() + LAST_WAIT_MS;

	writeback_lock(b);
	b->is_ending = true;
	pthread_cond_broadcast(&b->work);
	while (!TAILQ_EMPTY(&b->operations) && b->worker_count &&
		(!b->failing_since_ms || clock_now_ms() < until_ms))
		clock_cond_wait_ms(&b->changed, &b->lock, POLL_MS);
	b->is_abandoned = true;
	pthread_cond_broadcast(&b->work);
	pthread_cond_broadcast(&b->changed);
	writeback_unlock(b);
	for (unsigned i = 0; i < b->worker_count; i++)
		pthread_join(b->workers[i], NULL);
}
