#include "ops/cache/cached.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cache/cached_internal.h"
#include "ops/cache/content_store.h"
#include "ops/support/clock.h"
#include "ops/support/exec.h"
#include "ops/support/log.h"

enum {
	SCANNERS = 3,
	MEMORY_DEFAULT_MIN_BYTES = 64 << 20,
	MEMORY_DEFAULT_MAX_BYTES = 512 << 20,
	MEMORY_SHARE = 16,     /* the default is this fraction of the machine's memory */
	STATS_MS = 1000,       /* how long statfs is answered from the cache ... */
	STATS_IDLE_MS = 10000, /* ... and if no change is known; a worker then renews it */
	NAMES_DEFAULT_MAX = 3 << 19,
};

/* ---- Processes ------------------------------------------------------------------ */

int cached_exec(struct op_context *ctx, struct workspace *w, const struct exec_request *request,
	struct process **ret_process)
{
	cached_enter(cached_of(w));
	cached_await_all(cached_of(w), ctx);
	cached_apply_all_deferred(cached_of(w), ctx);
	cached_leave(cached_of(w));
	return forward_exec(ctx, w, request, ret_process);
}

int cached_process_next(struct op_context *ctx, struct process *process, void *buffer, size_t size,
	struct exec_event *ret_event)
{
	int r = forward_process_next(ctx, process, buffer, size, ret_event);
	struct cached *c = cached_of(process->workspace);

	if (r < 0 || ret_event->type != EXEC_EXIT)
		return r;
	cached_enter(c);
	c->changes++;
	cached_expire_unwatched(c);
	cached_leave(c);
	return r;
}

/* ---- The workspace ------------------------------------------------------------------ */

static int ask_stats(struct cached *c, struct op_context *ctx, struct fs_stats *ret_stats)
{
	struct fs_stats stats;
	uint64_t changes;
	int r;

	cached_enter(c);
	changes = c->changes;
	cached_leave(c);
	r = workspace_statfs(ctx, c->base.inner, &stats);
	if (r < 0)
		return r;
	cached_enter(c);
	c->stats = stats;
	c->stats_ms = cached_now_ms();
	c->stats_changes = changes;
	cached_leave(c);
	*ret_stats = stats;
	return 0;
}

/* A task of a worker: no caller waits for it. */
static void renew_stats(void *user)
{
	struct cached *c = user;
	struct op_context ctx;
	struct fs_stats stats;

	op_context_init(&ctx);
	ask_stats(c, &ctx, &stats);
	cached_enter(c);
	c->stats_come = false;
	cached_leave(c);
}

void cached_renew_stats(struct cached *c)
{
	if (!c->stats_come)
		c->stats_come = worker_pool_submit(&c->scanners, renew_stats, c);
}

/* find(1), rm(1) and others call statfs once per run: hence the cache. */
int cached_statfs(struct op_context *ctx, struct workspace *w, struct fs_stats *ret_stats)
{
	struct cached *c = cached_of(w);
	uint64_t age_ms, max_ms;

	cached_enter(c);
	age_ms = cached_now_ms() - c->stats_ms;
	max_ms = c->changes == c->stats_changes ? STATS_IDLE_MS : STATS_MS;
	ctx->served.from_cache = c->stats_ms && age_ms < max_ms;
	if (ctx->served.from_cache)
		*ret_stats = c->stats;
	if (ctx->served.from_cache && age_ms >= STATS_MS)
		cached_renew_stats(c);
	cached_leave(c);
	return ctx->served.from_cache ? 0 : ask_stats(c, ctx, ret_stats);
}

int cached_watch(struct workspace *w, change_sink sink, void *user)
{
	struct cached *c = cached_of(w);
	int r = 0;

	cached_enter(c);
	if (!c->feed)
		r = -EOPNOTSUPP;
	else if (c->sink)
		r = -EBUSY;
	if (r == 0) {
		c->sink = sink;
		c->sink_user = user;
	}
	cached_leave(c);
	return r;
}

/* The kernel forgot the directory.  The tree still knows it, so its watch stays; only the upper
 * layer no longer gets its changes. */
void cached_unwatch(struct workspace *w, const struct object_ref *directory)
{
	struct cached *c = cached_of(w);
	struct directory *d;
	bool is_watched;

	cached_enter(c);
	is_watched = tree_watched_since(c->tree, &directory->id) != 0;
	d = directory_find(c, &directory->id);
	if (d) {
		d->subscribed = false;
		d->unsubscribed = true;
	}
	cached_leave(c);
	if (!is_watched)
		workspace_unwatch(c->base.inner, directory);
}

void cached_status(struct workspace *w, struct workspace_status *ret_status)
{
	struct cached_stats stats;

	workspace_status(cached_of(w)->base.inner, ret_status);
	cached_statistics(w, &stats);
	ret_status->cache_hits = stats.hits;
	ret_status->cache_misses = stats.misses;
	ret_status->cache_bytes = stats.content_bytes;
	ret_status->cache_disk_hits = stats.disk_hits;
	ret_status->prefetched_bytes = stats.prefetched_bytes;
	ret_status->cache_names = stats.names;
	ret_status->scans = stats.scanning;
	ret_status->scanned_names = stats.scanned_names;
}

void cached_free(struct workspace *w)
{
	struct cached *c = cached_of(w);

	c->stopping = true;
	cached_tidy_stop(c);
	cached_idle_close_all(c);
	worker_pool_done(&c->scanners);
	worker_pool_done(&c->keepers);
	content_store_close(c->store);
	workspace_free(c->base.inner);
	tree_free(c->tree);
	slab_done(&c->extras);
	pthread_cond_destroy(&c->changed);
	pthread_cond_destroy(&c->tidier_wanted);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static const struct workspace_ops cached_ops = {
	.name = "cached",
	.free = cached_free,
	.status = cached_status,
	.getattr = cached_getattr,
	.readdir = cached_readdir,
	.scan = cached_scan,
	.readlink = cached_readlink,
	.mkdir = cached_mkdir,
	.mknod = cached_mknod,
	.symlink = cached_symlink,
	.link = cached_link,
	.unlink = cached_unlink,
	.rmdir = cached_rmdir,
	.rename = cached_rename,
	.setattr = cached_setattr,
	.getxattr = cached_getxattr,
	.listxattr = cached_listxattr,
	.setxattr = cached_setxattr,
	.removexattr = cached_removexattr,
	.statfs = cached_statfs,
	.check = forward_check,
	.open_file = cached_open_file,
	.create = cached_create,
	.await_name = cached_await_name,
	.create_unnamed = cached_create_unnamed,
	.read = cached_read,
	.write = cached_write,
	.flush = cached_flush,
	.fsync = cached_fsync,
	.close = cached_close,
	.fallocate = cached_fallocate,
	.seek = cached_seek,
	.copy_range = cached_copy_range,
	.lock = cached_lock,
	.lock_test = cached_lock_test,
	.lock_release_owner = cached_lock_release_owner,
	.exec = cached_exec,
	.process_next = cached_process_next,
	.process_write = forward_process_write,
	.process_close_stdin = forward_process_close_stdin,
	.process_signal = forward_process_signal,
	.process_resize = forward_process_resize,
	.process_free = forward_process_free,
	.watch = cached_watch,
	.watch_directory = cached_watch_directory,
	.unwatch = cached_unwatch,
};

/* The operations that the cache needs, including those that the inner workspace leaves to the
 * defaults of workspace.c.  The name stays that of the inner workspace, as messages show it. */
static void set_operations(struct cached *c, struct workspace *inner)
{
	forward_init(&c->base, inner, &cached_ops);
	c->base.ops.name = inner->ops->name;
	c->base.ops.flush = cached_flush;
	c->base.ops.fsync = cached_fsync;
	c->base.ops.seek = cached_seek;
	c->base.ops.watch_directory = cached_watch_directory;
}

static const struct worker_limits scanner_limits = {
	.name = "prefetch", .threads_max = SCANNERS, .idle_max = SCANNERS, .queue_max = 256};
static const struct worker_limits keeper_limits = {
	.name = "cache-store", .threads_max = 1, .idle_max = 1, .queue_max = 1 << 16};

static int open_store(struct cached *c, const struct cached_options *options)
{
	int r;

	if (!options->disk_bytes || !options->identity)
		return 0;
	r = content_store_open(
		options->disk_directory, options->identity, options->disk_bytes, &c->store);
	if (r < 0) {
		log_warning("content cache of \"%s\" on disk: %s, doing without", options->identity,
			strerror(-r));
		return 0;
	}
	return 0;
}

static int start(struct cached *c, const struct cached_options *options)
{
	int r;

	worker_pool_init(&c->scanners, &scanner_limits);
	worker_pool_init(&c->keepers, &keeper_limits);
	r = open_store(c, options);
	if (r == 0)
		r = cached_tidy_start(c);
	if (r == 0)
		c->feed = workspace_watch(c->base.inner, cached_take_change, c) == 0;
	return r;
}

static uint64_t default_memory_bytes(void)
{
	uint64_t bytes =
		(uint64_t)sysconf(_SC_PHYS_PAGES) / MEMORY_SHARE * (uint64_t)sysconf(_SC_PAGESIZE);

	if (bytes < MEMORY_DEFAULT_MIN_BYTES)
		return MEMORY_DEFAULT_MIN_BYTES;
	return bytes < MEMORY_DEFAULT_MAX_BYTES ? bytes : MEMORY_DEFAULT_MAX_BYTES;
}

int cached_new(struct workspace *inner, const struct cached_options *options,
	struct workspace **ret_workspace)
{
	struct cached *c = calloc(1, sizeof(*c));
	uint64_t names_max;
	int r;

	if (!c)
		return -ENOMEM;
	names_max = options->names_max ? options->names_max : NAMES_DEFAULT_MAX;
	c->tree = tree_new(&(struct tree_options){.ttl_ms = options->ttl_ms,
		.facts_max = 2 * names_max,
		.drop = cached_drop,
		.user = c});
	c->memory_bytes_max =
		options->memory_bytes ? options->memory_bytes : default_memory_bytes();
	c->ttl_ms = options->ttl_ms;
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->changed);
	clock_cond_init(&c->tidier_wanted);
	TAILQ_INIT(&c->contents);
	TAILQ_INIT(&c->guesses);
	set_operations(c, inner);
	r = c->tree ? start(c, options) : -ENOMEM;
	if (r < 0) {
		c->base.inner = NULL;
		cached_free(&c->base.workspace);
		return r;
	}
	*ret_workspace = &c->base.workspace;
	return 0;
}

void cached_statistics(struct workspace *w, struct cached_stats *ret_stats)
{
	struct cached *c = cached_of(w);

	cached_enter(c);
	*ret_stats = c->statistics;
	ret_stats->names = tree_names(c->tree);
	ret_stats->content_bytes = c->content_bytes + c->waiting_bytes;
	cached_leave(c);
}

void cached_quiesce(struct workspace *w)
{
	struct cached *c = cached_of(w);

	worker_pool_wait_idle(&c->scanners, INT_MAX);
	worker_pool_wait_idle(&c->keepers, INT_MAX);
}
