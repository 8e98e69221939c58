/* What new objects will be like, which must be known before their creation can be answered early.
 */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

enum { ATTEMPTS_MAX = 4, PATIENCE_MS = 500 };

/* ---- Owner and time --------------------------- */

/* The workspace's clock, and which owner it gives to a caller's new objects, are asked for when the
 * caller is first seen: else its first change would have to wait, and while the link is away all of
 * them.  A file without a name shows both and leaves no trace.  Where none can be made, the first
 * change shows them. */

/* Counts an attempt for the caller: it may not write to every directory.  False: there were enough.
 */
static bool may_probe(struct writeback *b, const struct op_context *ctx)
{
	struct probed *probed = b->probed;

	while (probed < b->probed + b->probed_count &&
		(probed->uid != ctx->uid || probed->gid != ctx->gid))
		probed++;
	if (probed == b->probed + IDENTITIES_MAX)
		return false;
	if (probed == b->probed + b->probed_count) {
		*probed = (struct probed){.uid = ctx->uid, .gid = ctx->gid};
		b->probed_count++;
	}
	return probed->attempts++ < ATTEMPTS_MAX;
}

void back_meet(struct writeback *b, const struct op_context *ctx, const char *path,
	const struct attributes *directory)
{
	struct probe *probe = &b->probe;

	if ((b->knows_clock && back_identity(b, ctx)) || probe->directory || b->drains ||
		!b->base.ops.create_unnamed || !S_ISDIR(directory->mode) ||
		(directory->mode & S_ISGID) || ctx->group_count > GROUPS_MAX || !may_probe(b, ctx))
		return;
	*probe = (struct probe){.pid = ctx->pid,
		.uid = ctx->uid,
		.gid = ctx->gid,
		.group_count = ctx->groups ? ctx->group_count : 0,
		.directory = strdup(path)};
	for (size_t i = 0; i < probe->group_count; i++)
		probe->groups[i] = ctx->groups[i];
	pthread_cond_signal(&b->work);
}

static bool is_ending(struct op_context *ctx)
{
	return ((struct writeback *)ctx->interrupted_data)->is_ending;
}

void back_probe(struct writeback *b)
{
	struct probe probe = b->probe; /* another one waits until this one's directory is freed */
	struct op_context ctx = {.pid = probe.pid,
		.uid = probe.uid,
		.gid = probe.gid,
		.groups = probe.groups,
		.group_count = probe.group_count,
		.interrupted = is_ending,
		.interrupted_data = b};
	struct attributes made;
	struct open_file *file;
	int r;

	b->probe.runs = true;
	writeback_unlock(b);
	r = workspace_create_unnamed(
		&ctx, b->base.inner, probe.directory, O_RDWR, 0600, &file, &made);
	if (r == 0)
		workspace_close(&ctx, file);
	writeback_lock(b);
	back_learn(b, &ctx, r, &made);
	free(probe.directory);
	b->probe = (struct probe){0};
}

/* ---- Access lists --------------------------- */

/* How long a look may take. */
struct patience {
	struct op_context *caller;
	int64_t until_ms;
};

static bool has_no_patience(struct op_context *ctx)
{
	const struct patience *patience = ctx->interrupted_data;

	return op_interrupted(patience->caller) || clock_now_ms() > patience->until_ms;
}

/* The size of the directory's default access list; -EAGAIN: the link is away.  Does not wait for
 * the workspace while it is: looks at the link from time to time, ever less, as one that is slow
 * must get to answer. */
static ssize_t ask_for_list(
	struct op_context *ctx, struct workspace *w, const struct object_ref *directory)
{
	struct writeback *b = writeback_of(w);
	struct patience patience = {.caller = ctx};
	struct op_context own = *ctx;
	bool is_away;
	ssize_t size = -EINTR;

	own.facts = NULL;
	own.served.round_trips = 0;
	own.interrupted = has_no_patience;
	own.interrupted_data = &patience;
	for (int64_t wait_ms = PATIENCE_MS;; wait_ms *= 2) {
		writeback_lock(b);
		is_away = back_is_away(b);
		writeback_unlock(b);
		if (is_away || size != -EINTR || op_interrupted(ctx))
			break;
		patience.until_ms = clock_now_ms() + wait_ms;
		size = forward_getxattr(&own, w, directory, "system.posix_acl_default", NULL, 0);
		if (size >= 0 || size == -ENODATA || size == -EOPNOTSUPP)
			break;
	}
	ctx->served.round_trips += own.served.round_trips;
	return is_away ? -EAGAIN : size;
}

/* A default access list of the parent changes the modes of new objects.  The answer is cached; if a
 * list is added later, or there is one that nobody has asked for before the link went away, callers
 * see the right mode once the object is stored. */
bool back_inherits(struct op_context *ctx, struct workspace *w, const char *path,
	const struct attributes *parent)
{
	struct writeback *b = writeback_of(w);
	struct inherited *known;
	struct object_ref object = {.id = parent->id};
	cleanup_free char *directory = strndup(path, path_parent_length(path));
	const struct node *node;
	bool is_known, has_list;
	ssize_t size;

	if (!directory)
		return true;
	writeback_lock(b);
	known = &b->inherited[parent->id.inode % INHERITED_MAX];
	node = back_node(b, &parent->id);
	is_known = object_id_equal(&known->directory, &parent->id);
	has_list = is_known && known->has_list;
	/* A directory is made here only if its parent has none, so it has none either. */
	if (node && back_is_provisional(&node->id) && !node->is_extended)
		is_known = true;
	object.id = back_real(b, &parent->id);
	writeback_unlock(b);
	if (is_known)
		return has_list;
	object.path = directory;
	size = ask_for_list(ctx, w, &object);
	if (size == -EAGAIN)
		return false;
	if (size < 0 && size != -ENODATA && size != -EOPNOTSUPP)
		return true;
	writeback_lock(b);
	*known = (struct inherited){.directory = parent->id, .has_list = size > 0};
	writeback_unlock(b);
	return size > 0;
}
