/* The queue of pending operations, and callers that wait for them. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"

enum { POLL_MS = 50, UNREACHABLE_MS = 5000 };

/* ---- Those that may run --------------------------- */

void back_put_ready(struct writeback *b, struct operation *operation)
{
	if (operation->facts.kind == OP_FENCE) {
		pthread_cond_broadcast(&b->changed);
		return;
	}
	TAILQ_INSERT_TAIL(&b->ready, operation, ready);
	operation->is_ready = true;
	pthread_cond_signal(&b->work);
}

void back_take_ready(struct writeback *b, struct operation *operation)
{
	if (operation->is_ready)
		TAILQ_REMOVE(&b->ready, operation, ready);
	if (operation->is_later) {
		TAILQ_REMOVE(&b->later, operation, ready);
		b->later_count--;
	}
	operation->is_ready = operation->is_later = false;
}

void back_put_later(struct writeback *b, struct operation *operation, int64_t again_ms)
{
	TAILQ_INSERT_TAIL(&b->later, operation, ready);
	b->later_count++;
	operation->is_later = true;
	operation->again_ms = again_ms;
	pthread_cond_signal(&b->work); /* its time is measured */
}

void back_unblock(struct writeback *b, struct operation *operation)
{
	if (--operation->blockers == 0)
		back_put_ready(b, operation);
}

void back_start(struct operation *operation)
{
	operation->is_started = true;
	operation->stored = operation->node->shown;
}

/* ---- Operations --------------------------- */

struct operation *back_operation_new(
	const struct op_context *ctx, enum operation_kind kind, const char *path, const char *path2)
{
	struct operation *operation = calloc(1, sizeof(*operation));
	struct operation_facts *facts;

	if (!operation)
		return NULL;
	operation->path = strdup(path);
	operation->path2 = path2 ? strdup(path2) : NULL;
	if (!operation->path || (path2 && !operation->path2)) {
		back_operation_free(operation);
		return NULL;
	}
	facts = &operation->facts;
	facts->kind = kind;
	facts->uid = ctx->uid;
	facts->gid = ctx->gid;
	facts->pid = ctx->pid;
	facts->group_count = ctx->groups ? (uint32_t)ctx->group_count : 0;
	for (uint32_t i = 0; i < facts->group_count && i < GROUPS_MAX; i++)
		facts->groups[i] = ctx->groups[i];
	facts->parent = ctx->parent;
	facts->new_parent = ctx->new_parent;
	return operation;
}

void back_operation_free(struct operation *operation)
{
	if (!operation)
		return;
	free(operation->path);
	free(operation->path2);
	free(operation);
}

static bool is_directory_link(const struct operation *operation)
{
	return operation->facts.kind == OP_MKDIR || operation->facts.kind == OP_RMDIR;
}

/* The operation changes which names the directory has, or what they lead to. */
static bool changes_names(const struct operation *operation)
{
	return operation->facts.kind != OP_SETATTR && operation->facts.kind != OP_CONTENT;
}

static void touch_directory(struct writeback *b, struct name *name, int links)
{
	name->directory->changed = back_now(b);
	name->directory->links += links;
}

/* The mtime of the directory was set explicitly: earlier changes in it no longer count. */
static void forget_change(struct writeback *b, const char *path)
{
	struct directory *directory = back_directory(b, path, strlen(path));

	if (directory)
		directory->changed = (struct timespec){0};
}

/* The path will lead to another directory, or to none. */
static void forget_directory(struct writeback *b, const struct operation *operation)
{
	struct directory *directory = back_directory(b, operation->path, strlen(operation->path));

	if (!directory)
		return;
	directory->known.mode = 0;
	directory->id =
		operation->facts.kind == OP_MKDIR ? operation->node->id : (struct object_id){0};
}

/* Updates what callers see.  The operation is already counted in both names. */
static void show_effect(
	struct writeback *b, struct operation *operation, struct name *name, struct name *name2)
{
	struct node *node = operation->node;
	enum operation_kind kind = operation->facts.kind;

	node->shown = operation->facts.shown;
	node->shown.id = node->id;
	if (operation->facts.parent.inode)
		name->directory->id = operation->facts.parent;
	if (name2)
		name2->directory->id = operation->facts.new_parent;
	if (changes_names(operation))
		touch_directory(b, name, kind == OP_MKDIR ? 1 : kind == OP_RMDIR ? -1 : 0);
	if (name2)
		touch_directory(b, name2, 0);
	name->node = node;
	if (kind == OP_UNLINK || kind == OP_RMDIR) {
		name->node = NULL;
		node->is_gone = true;
	}
	if (kind == OP_RENAME) {
		name->node = NULL;
		name2->node = node;
	}
	if (kind == OP_SETATTR && (operation->facts.mask & SET_MTIME))
		forget_change(b, operation->path);
	if (is_directory_link(operation))
		forget_directory(b, operation);
	if (operation->replaced)
		operation->replaced->is_gone = true;
	if (operation->data) {
		back_content_drop(b, node);
		node->content = operation;
		node->data = operation->data;
		node->data->refs++;
	}
}

static int add_names(struct writeback *b, const struct operation *operation, struct name **ret_name,
	struct name **ret_name2)
{
	int r = back_name_add(b, operation->path, ret_name);

	if (r == 0 && operation->facts.kind == OP_RENAME) {
		r = back_name_add(b, operation->path2, ret_name2);
		if (r < 0)
			back_name_not_entered(b, *ret_name);
	}
	return r;
}

/* Keeps the nodes of the parent directories, whose real ids are needed to apply the operation. */
static void hold_parents(struct writeback *b, struct operation *operation)
{
	const struct object_id *ids[] = {&operation->facts.parent, &operation->facts.new_parent};

	for (unsigned i = 0; i < 2; i++) {
		operation->parents[i] = ids[i]->inode ? back_node(b, ids[i]) : NULL;
		if (operation->parents[i])
			back_node_hold(b, operation->parents[i]);
	}
}

static int add_nodes(struct writeback *b, struct operation *operation)
{
	struct operation_facts *facts = &operation->facts;
	struct node *node =
		back_node_add(b, &facts->shown.id, facts->known.mode ? &facts->known : NULL);

	if (!node)
		return -ENOMEM;
	if (facts->kind == OP_SYMLINK && !node->target) {
		node->target = strdup(operation->path2);
		if (!node->target) {
			back_node_release(b, node);
			return -ENOMEM;
		}
	}
	if (facts->replaced_id.inode) {
		operation->replaced = back_node_add(
			b, &facts->replaced_id, facts->replaced.mode ? &facts->replaced : NULL);
		if (!operation->replaced) {
			back_node_release(b, node);
			return -ENOMEM;
		}
	}
	operation->node = node;
	node->pending++;
	node->renames += facts->kind == OP_RENAME;
	node->last = operation;
	if (operation->replaced)
		operation->replaced->pending++;
	hold_parents(b, operation);
	return 0;
}

static int add_data(struct writeback *b, struct operation *operation)
{
	const struct operation_facts *facts = &operation->facts;

	if (facts->kind != OP_CREATE && facts->kind != OP_CONTENT)
		return 0;
	operation->data = back_content_new(b, facts->continues ? operation->node->data : NULL);
	return operation->data ? 0 : -ENOMEM;
}

static void drop_data(struct writeback *b, struct operation *operation)
{
	back_content_unref(b, operation->data);
	operation->data = NULL;
}

static void drop_nodes(struct writeback *b, struct operation *operation)
{
	struct node *node = operation->node, *replaced = operation->replaced;

	for (unsigned i = 0; i < 2; i++)
		if (operation->parents[i]) {
			operation->parents[i]->inside--;
			back_node_release(b, operation->parents[i]);
		}
	if (replaced) {
		replaced->pending--;
		back_node_release(b, replaced);
	}
	node->pending--;
	node->renames -= operation->facts.kind == OP_RENAME;
	if (node->last == operation)
		node->last = NULL;
	back_node_release(b, node);
}

/* The workspace's link count includes the new directory from now on; adjusts older attributes. */
static void end_link(struct directory *directory, const struct operation *operation)
{
	int links = operation->facts.kind == OP_MKDIR ? 1 : -1;

	directory->links -= links;
	if (directory->known.mode && !operation->is_undone &&
		directory->known_at < operation->position)
		directory->known.nlink = (uint32_t)((int)directory->known.nlink + links);
}

static bool removes_name(const struct operation *operation)
{
	enum operation_kind kind = operation->facts.kind;

	return kind == OP_UNLINK || kind == OP_RMDIR || kind == OP_RENAME;
}

static void drop_names(
	struct writeback *b, struct operation *operation, struct change *told, struct change *told2)
{
	struct name *name = back_name(b, operation->path, NULL);

	if (is_directory_link(operation))
		end_link(name->directory, operation);
	if (!operation->is_undone)
		name->is_removed = removes_name(operation);
	back_name_done(b, name, operation, told);
	if (operation->facts.kind == OP_RENAME) {
		name = back_name(b, operation->path2, NULL);
		name->is_removed = false;
		back_name_done(b, name, operation, told2);
	}
}

int back_enter(struct writeback *b, struct operation *operation, bool is_recovered)
{
	const char *path2 = operation->facts.kind == OP_RENAME ? operation->path2 : NULL;
	struct name *name = NULL, *name2 = NULL;
	int r = add_nodes(b, operation);

	if (r < 0)
		return r;
	r = add_data(b, operation);
	if (r == 0)
		r = add_names(b, operation, &name, &name2);
	if (r < 0) {
		drop_data(b, operation);
		drop_nodes(b, operation);
		return r;
	}
	operation->blockers = operation->is_held;
	r = back_refs_add(b, operation, operation->path, path2, &operation->node->id, false);
	if (!is_recovered)
		operation->sequence = ++b->sequence;
	if (r == 0 && !is_recovered)
		r = back_journal_operation(b, operation);
	if (r < 0) {
		back_refs_drop(b, operation);
		operation->blockers = 0;
		back_name_not_entered(b, name);
		if (name2)
			back_name_not_entered(b, name2);
		drop_data(b, operation);
		drop_nodes(b, operation);
		return r;
	}
	operation->taken_ms = clock_now_ms();
	TAILQ_INSERT_TAIL(&b->operations, operation, link);
	if (operation->is_held)
		TAILQ_INSERT_TAIL(&b->held, operation, held);
	b->count++;
	show_effect(b, operation, name, name2);
	back_refs_hurry(b, operation);
	if (!operation->blockers)
		back_put_ready(b, operation);
	else if (operation->is_held)
		pthread_cond_signal(&b->work); /* its time is measured */
	return 0;
}

void back_hold(struct writeback *b, struct operation *operation)
{
	if (operation->is_held)
		return;
	back_take_ready(b, operation);
	operation->is_held = true;
	operation->blockers++;
	operation->taken_ms = clock_now_ms();
	TAILQ_INSERT_TAIL(&b->held, operation, held);
}

void back_release_hold(struct writeback *b, struct operation *operation)
{
	if (!operation->is_held)
		return;
	operation->is_held = false;
	TAILQ_REMOVE(&b->held, operation, held);
	back_unblock(b, operation);
}

/* For an operation that ends while it is held. */
static void drop_hold(struct writeback *b, struct operation *operation)
{
	if (operation->is_held)
		TAILQ_REMOVE(&b->held, operation, held);
	operation->is_held = false;
}

/* After its last operation the workspace has the object's state.  Returns a handle to be closed, or
 * NULL. */
static struct open_file *leave_to_workspace(struct writeback *b, struct node *node)
{
	if (node->pending > 1)
		return NULL;
	back_content_drop(b, node);
	return node->handles ? NULL : steal_ptr(&node->inner);
}

static void close_inner(struct writeback *b, struct open_file *inner)
{
	struct op_context ctx;

	if (!inner)
		return;
	op_context_init(&ctx);
	writeback_unlock(b);
	workspace_close(&ctx, inner);
	writeback_lock(b);
}

static void tell(struct writeback *b, const char *path, struct change *change)
{
	change->path = path;
	if (!change->at || !b->sink)
		return;
	writeback_unlock(b);
	b->sink(b->sink_user, change);
	writeback_lock(b);
}

void back_forget(struct writeback *b, struct operation *operation)
{
	struct change told = {.at = 0}, told2 = {.at = 0};
	struct node *node = operation->node;

	struct open_file *inner[2] = {NULL, NULL};

	if (node->content == operation) {
		node->content = NULL;
		back_content_drop(b, node);
	}
	inner[0] = leave_to_workspace(b, node);
	inner[1] = operation->replaced ? leave_to_workspace(b, operation->replaced) : NULL;
	/* Before barriers return: a program cannot be run while it is open for writing. */
	close_inner(b, inner[0]);
	close_inner(b, inner[1]);
	back_take_ready(b, operation);
	drop_hold(b, operation);
	TAILQ_REMOVE(&b->operations, operation, link);
	b->count--;
	back_refs_drop(b, operation);
	drop_names(b, operation, &told, &told2);
	drop_data(b, operation);
	drop_nodes(b, operation);
	back_journal_clear(b);
	pthread_cond_broadcast(&b->changed);
	tell(b, operation->path, &told);
	tell(b, operation->path2, &told2);
	back_operation_free(operation);
}

void back_end(struct writeback *b, struct operation *operation)
{
	back_journal_add(&b->journal, operation->is_undone ? RECORD_UNDONE : RECORD_DONE,
		operation->sequence, &operation->node->settled, sizeof(operation->node->settled),
		NULL, 0, NULL);
	back_forget(b, operation);
}

/* Frees it without any effect, when the decorator is freed. */
void back_drop(struct writeback *b, struct operation *operation)
{
	struct node *nodes[] = {operation->node, operation->replaced};

	back_take_ready(b, operation);
	drop_hold(b, operation);
	TAILQ_REMOVE(&b->operations, operation, link);
	back_refs_drop(b, operation); /* which makes others ready */
	drop_data(b, operation);
	for (unsigned i = 0; i < 2; i++)
		if (nodes[i])
			close_inner(b, steal_ptr(&nodes[i]->inner));
	back_operation_free(operation);
}

/* What was created and removed changes the times of a directory that was made here, although the
 * workspace's stay as they are. */
static void keep_time(struct writeback *b, const struct directory *directory)
{
	struct node *node = back_node(b, &directory->id);

	if (node)
		node->shown.mtime = node->shown.ctime = directory->changed;
}

/* Cancels the creation of an object that has not been sent. */
void back_cancel(struct writeback *b, struct operation *operation)
{
	struct name *name = back_name(b, operation->path, NULL);

	operation->is_undone = true;
	operation->node->is_gone = true;
	if (name->node == operation->node)
		name->node = NULL;
	touch_directory(b, name, 0);
	keep_time(b, name->directory);
	back_end(b, operation);
}

/* ---- Callers that wait --------------------------- */

int back_wait(struct writeback *b, struct op_context *ctx)
{
	clock_cond_wait_ms(&b->changed, &b->lock, POLL_MS);
	if (op_interrupted(ctx))
		return -EINTR;
	return b->failing_since_ms && clock_now_ms() - b->failing_since_ms > UNREACHABLE_MS ? -EIO
											    : 0;
}

void back_forget_removal(struct writeback *b, const char *path)
{
	struct name *name = path ? back_any_name(b, path) : NULL;

	if (name)
		name->is_removed = false;
}

int back_fence_begin(struct writeback *b, struct op_context *ctx, struct operation *fence,
	const char *path, const char *path2, const struct object_id *id, bool all)
{
	int r;

	*fence = (struct operation){.facts.kind = OP_FENCE};
	r = back_refs_add(b, fence, path, path2, id, all);
	if (r < 0)
		return r;
	fence->is_move = all;
	b->moving += all;
	back_refs_hurry(b, fence);
	while (fence->blockers && r == 0)
		r = back_wait(b, ctx);
	if (fence->blockers) {
		back_fence_end(b, fence);
		return r;
	}
	/* The caller may make something there. */
	back_forget_removal(b, path);
	back_forget_removal(b, path2);
	return 0;
}

void back_fence_end(struct writeback *b, struct operation *fence)
{
	if (fence->is_move) {
		b->moving--;
		__atomic_add_fetch(&b->moves, 1, __ATOMIC_RELAXED);
	}
	back_refs_drop(b, fence);
	pthread_cond_broadcast(&b->changed);
}

int back_turn_begin(struct writeback *b, struct op_context *ctx, struct operation *fence,
	const char *path, const char *path2, const struct object_id *id, bool all)
{
	int r;

	while ((r = back_fence_begin(b, ctx, fence, path, path2, id, all)) == 0 &&
		b->journal.has_failed && b->count) {
		back_fence_end(b, fence);
		r = back_barrier(b, ctx);
		if (r < 0)
			break;
	}
	return r;
}

int back_settle(struct writeback *b, struct op_context *ctx, const struct object_id *id)
{
	struct operation fence;
	int r = back_fence_begin(b, ctx, &fence, NULL, NULL, id, false);

	if (r == 0)
		back_fence_end(b, &fence);
	return r;
}

bool back_is_away(struct writeback *b)
{
	struct workspace_status status;

	writeback_unlock(b);
	workspace_status(b->base.inner, &status);
	writeback_lock(b);
	b->is_away = b->failing_since_ms || status.link != LINK_ONLINE;
	return b->is_away;
}

bool back_await_away(struct writeback *b, struct op_context *ctx, const struct object_id *id)
{
	const struct node *node;

	while ((node = back_node(b, id)) && node->pending) {
		if (back_is_away(b))
			return true;
		if (back_wait(b, ctx) < 0)
			return false;
	}
	return false;
}

void back_release_holds(struct writeback *b, int64_t taken_before_ms)
{
	struct operation *operation;

	while ((operation = TAILQ_FIRST(&b->held)) && operation->taken_ms <= taken_before_ms)
		back_release_hold(b, operation);
}

int back_barrier(struct writeback *b, struct op_context *ctx)
{
	uint64_t last = b->sequence;
	const struct operation *first;
	int r = 0;

	back_release_holds(b, INT64_MAX);
	while (r == 0 && (first = TAILQ_FIRST(&b->operations)) && first->sequence <= last)
		r = back_wait(b, ctx);
	return r;
}

/* The journal is cleared only when no operation is pending, so its size is bounded, too. */
static bool has_room(const struct writeback *b)
{
	return b->count < OPERATIONS_MAX && b->bytes < PENDING_MAX_BYTES &&
	       b->journal.size < JOURNAL_MAX_BYTES;
}

int back_await_room(struct writeback *b, struct op_context *ctx)
{
	int r = 0;

	if (has_room(b))
		return 0;
	back_release_holds(b, INT64_MAX);
	while (r == 0 && !has_room(b))
		r = back_wait(b, ctx);
	return r;
}

int back_find_room(struct writeback *b, struct op_context *ctx)
{
	int r;

	writeback_lock(b);
	r = back_await_room(b, ctx);
	writeback_unlock(b);
	return r;
}

/* Nothing is deferred before the workspace's clock, and which owner it gives to the caller's new
 * objects, are known (back_predict.c).  Nor are changes of root where root has no rights at the
 * workspace, as permissions are not checked for it here; nor changes while a directory is renamed,
 * as their paths may be outdated. */
bool back_defers(struct writeback *b, struct op_context *ctx, uint64_t moves)
{
	const struct identity *identity = back_identity(b, ctx);

	return (!b->journal.has_failed || b->journal.size == b->journal.start) && !b->drains &&
	       !b->is_ending && b->knows_clock && identity &&
	       !(ctx->uid == 0 && identity->makes_uid != 0) && ctx->group_count <= GROUPS_MAX &&
	       !b->moving && b->moves == moves;
}
