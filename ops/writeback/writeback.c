/* Constructor, table and destructor of the decorator. */
#include "ops/writeback/writeback.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/writeback/writeback_internal.h"

int back_exec(struct op_context *ctx, struct workspace *w, const struct exec_request *request,
	struct process **ret_process)
{
	struct writeback *b = writeback_of(w);
	int r;

	writeback_lock(b);
	r = back_barrier(b, ctx);
	writeback_unlock(b);
	return r < 0 ? r : forward_exec(ctx, w, request, ret_process);
}

void back_status(struct workspace *w, struct workspace_status *ret_status)
{
	struct writeback *b = writeback_of(w);
	const struct operation *oldest;

	forward_status(w, ret_status);
	writeback_lock(b);
	oldest = TAILQ_FIRST(&b->operations);
	ret_status->pending_operations = b->count;
	ret_status->pending_bytes = b->bytes;
	ret_status->pending_ms = oldest ? (uint64_t)(clock_now_ms() - oldest->taken_ms) : 0;
	ret_status->lost_operations = b->lost;
	writeback_unlock(b);
}

void back_free(struct workspace *w)
{
	struct writeback *b = writeback_of(w);
	struct operation *operation;

	back_workers_stop(b);
	writeback_lock(b);
	while ((operation = TAILQ_FIRST(&b->operations))) /* they stay in the journal */
		back_drop(b, operation);
	writeback_unlock(b);
	workspace_free(b->base.inner); /* no event comes after this */
	back_journal_close(&b->journal);
	back_tables_done(b);
	free(b->lost_directory);
	free(b->probe.directory);
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->changed);
	pthread_cond_destroy(&b->work);
	free(b);
}

/* clang-format off */
#define CHANGED_OPERATIONS(X) \
	X(free) X(status) X(getattr) X(readdir) X(scan) X(readlink) X(mkdir) X(mknod) X(symlink) \
	X(link) X(unlink) X(rmdir) X(rename) X(setattr) X(getxattr) X(listxattr) X(setxattr) \
	X(removexattr) X(open_file) X(create) X(create_unnamed) X(read) X(write) X(flush) X(fsync) \
	X(close) X(fallocate) X(seek) X(copy_range) X(lock) X(lock_test) X(lock_release_owner) \
	X(exec) X(watch) X(watch_directory) X(unwatch)
/* clang-format on */

#define CHANGE(name)          \
	if (b->base.ops.name) \
		b->base.ops.name = back_##name;

static int start(struct writeback *b, struct workspace *inner,
	const struct writeback_options *options, char **ret_reason)
{
	int r = back_tables_init(b);

	if (r < 0)
		return r;
	b->lost_directory = strdup(options->lost);
	if (!b->lost_directory)
		return -ENOMEM;
	b->drains = options->drains;
	forward_init(&b->base, inner, &forward_ops);
	b->base.ops.name = inner->ops->name;
	CHANGED_OPERATIONS(CHANGE)
	b->base.ops.flush = back_flush;
	b->base.ops.fsync = back_fsync;
	b->base.ops.descriptor = NULL; /* it would bypass pending changes */
	b->base.ops.await_name = NULL; /* a deferred creation is complete for callers */
	r = back_journal_open(b, options, ret_reason);
	if (r == 0)
		r = back_journal_recover(b, options, ret_reason);
	for (unsigned i = 0; i < WORKERS && r == 0; i++)
		r = back_start_worker(b);
	return b->worker_count ? 0 : r;
}

int writeback_new(struct workspace *inner, const struct writeback_options *options,
	struct workspace **ret_workspace, char **ret_reason)
{
	struct writeback *b = calloc(1, sizeof(*b));
	int r;

	*ret_reason = NULL;
	if (!b)
		return -ENOMEM;
	b->journal.fd = b->journal.directory = -1;
	pthread_mutex_init(&b->lock, NULL);
	clock_cond_init(&b->changed);
	clock_cond_init(&b->work);
	r = start(b, inner, options, ret_reason);
	if (r < 0) {
		b->is_abandoned = true;
		b->base.inner = NULL;
		back_free(&b->base.workspace);
		return r;
	}
	*ret_workspace = &b->base.workspace;
	return 0;
}

/* $XDG_STATE_HOME/isthmus/KIND[/IDENTITY]; NULL: there is no such directory. */
static char *directory_for(const char *kind, const char *identity)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const char *base = state && *state == '/' ? state : home;
	XXH128_hash_t hash = XXH3_128bits(identity, strlen(identity));
	char name[40] = "";

	if (!base || *base != '/')
		return NULL;
	if (*identity)
		snprintf(name, sizeof(name), "/%016llx%016llx", (unsigned long long)hash.high64,
			(unsigned long long)hash.low64);
	return string_printf(
		"%s%s/isthmus/%s%s", base, base == state ? "" : "/.local/state", kind, name);
}

char *writeback_state_directory(const char *identity)
{
	return directory_for("writes", identity);
}

char *writeback_lost_directory(const char *identity)
{
	return directory_for("lost", identity);
}

void writeback_each_waiting(
	void (*tell)(void *user, const char *identity, uint64_t operations), void *user)
{
	cleanup_free char *all = directory_for("writes", "");
	cleanup_dir DIR *directory = all ? opendir(all) : NULL;
	struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		cleanup_free char *state = string_printf("%s/%s", all, entry->d_name);
		cleanup_free char *identity = NULL;
		uint64_t operations = 0;
		int r = *entry->d_name != '.' && state
				? writeback_waiting(state, &operations, &identity)
				: -ENOENT;

		if (identity && ((r == 0 && operations) || r == -EBADMSG))
			tell(user, identity, operations);
	}
}
