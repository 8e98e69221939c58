#include "fs/edge/announce.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fs/edge/dropper.h"
#include "fs/edge/invalidate.h"
#include "fs/edge/virtual.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/workspace.h"

/* ---- Finding and forgetting -------------------------------------------------------- */

/* How long the kernel may cache that there is no such name.  Not at all in an unwatched directory,
 * as a command might make the name and the kernel could not be notified. */
static double missing_ttl(
	const struct request *r, struct inode *parent, const char *name, uint32_t changes)
{
	enum lifetime lifetime = LIFETIME_BRIEF;

	if (!r->path_is_stale && !r->mount->options->cache_strict &&
		misses_again(&r->session->misses, parent, name, (uint32_t)clock_now_ms()))
		lifetime = inode_table_missing(
			r->mount->inodes, parent, name, changes, request_position(r));
	return lifetime == LIFETIME_BRIEF ? 0 : session_ttl(r->session, lifetime);
}

static void reply_negative(struct request *r, double ttl)
{
	struct fuse_entry_param entry = {.entry_timeout = ttl};

	request_record(r, -ENOENT);
	fuse_reply_entry(r->fuse, &entry);
}

static void reply_known(
	struct request *r, int result, const struct fuse_entry_param *entry, struct inode *inode)
{
	if (!request_failed(r, result) && fuse_reply_entry(r->fuse, entry) < 0)
		inode_table_forget(r->mount->inodes, inode, 1);
}

/* What a lookup found.  In a retry after ESTALE it may be replaced again before the kernel uses it:
 * so it is opened, or read, at once. */
struct found {
	struct attributes attributes;
	uint64_t at;                      /* position of that look */
	struct open_handle *retry_handle; /* of a file; or NULL */
	char *target;                     /* of a link; or NULL */
};

/* True when the name's directory was replaced by another. */
static bool is_in_another(struct request *r)
{
	const struct object_ref object = {.path = r->path.path, .parent = r->op.parent};
	struct attributes attributes;

	return r->op.parent.inode &&
	       workspace_getattr(&r->op, r->mount->workspace, &object, &attributes) == -ESTALE;
}

/* Opens a file for a caller that is about to open it and may find it replaced. */
static int open_retry_handle(struct request *r, const struct object_ref *object,
	struct attributes *ret_attributes, struct open_handle **ret_handle)
{
	struct open_handle *retry_handle = malloc(sizeof(*retry_handle));
	int result;

	if (!retry_handle)
		return -ENOMEM;
	*retry_handle = (struct open_handle){.flags = O_RDONLY, .is_for_retry = true};
	result = workspace_open_file(&r->op, r->mount->workspace, object, O_RDONLY | O_NOATIME,
		&retry_handle->file, ret_attributes);
	if (result < 0)
		free(retry_handle);
	else
		*ret_handle = retry_handle;
	return result;
}

/* Takes over the handle, or closes it (`inode` NULL).  NULL is fine. */
static void keep_retry_handle(
	struct request *r, struct inode *inode, struct open_handle *retry_handle)
{
	if (!retry_handle)
		return;
	retry_handle->inode = inode;
	if (inode && inode_table_handle_add(r->mount->inodes, retry_handle) == 0) {
		invalidator_retry_handle_added(r->session->invalidator);
		return;
	}
	workspace_close(&r->op, retry_handle->file);
	free(retry_handle);
}

/* Whichever file has the name by now: one that is replaced again and again would never still be the
 * one that was found. */
static int open_found(struct request *r, struct found *found)
{
	int result = open_retry_handle(
		r, &OBJECT_AT(r->path.path), &found->attributes, &found->retry_handle);

	found->at = request_position(r);
	if (result < 0 || !is_in_another(r))
		return result;
	keep_retry_handle(r, NULL, found->retry_handle);
	found->retry_handle = NULL;
	return -ESTALE;
}

/* The kernel may look up twice for one open.  -ENOENT, or the like: the object has changed. */
static int hold(struct request *r, struct found *found)
{
	struct object_ref object = {.path = r->path.path, .id = found->attributes.id};

	if (inode_table_is_kept(r->mount->inodes, &found->attributes.id))
		return 0;
	if (S_ISREG(found->attributes.mode))
		return open_found(r, found);
	if (S_ISLNK(found->attributes.mode))
		return workspace_readlink(&r->op, r->mount->workspace, &object, &found->target);
	return 0;
}

static int find(struct request *r, struct found *found)
{
	const struct object_ref object = {.path = r->path.path, .parent = r->op.parent};
	unsigned attempts = request_is_retry(r) ? ATTEMPTS_MAX : 0;
	int result, held;

	do {
		result =
			workspace_getattr(&r->op, r->mount->workspace, &object, &found->attributes);
		found->at = request_position(r);
		if (result < 0 || !attempts)
			break;
		held = hold(r, found);
	} while ((held == -ENOENT || path_leads_to_another(held)) && --attempts);
	return result;
}

/* Answers a request that found or made the entry.  `changes`: of the parent, before the look. */
static void reply_entry(struct request *r, struct inode *parent, const char *name, int result,
	const struct found *found, unsigned changes)
{
	struct fuse_entry_param entry;
	struct inode *inode = NULL;

	if (result == 0)
		result = session_enter(r->session, parent, name, &found->attributes, found->at,
			NULL, &entry, &inode);
	/* If this is a revalidation, the kernel may discard its answer and use that of another
	 * lookup, which had found nothing. */
	if (result > 0 && !r->own_count)
		invalidator_another(r->session->invalidator, parent, name);
	result = result > 0 ? 0 : result;
	keep_retry_handle(r, inode, found->retry_handle);
	if (inode && found->target)
		inode_table_keep_target(r->mount->inodes, inode, found->target);
	else
		free(found->target);
	if (inode) {
		request_found(r, inode);
		/* The change may have been of this name, when it was not known yet. */
		if (inode_changes(parent) != changes || r->path_is_stale)
			entry.entry_timeout = entry.attr_timeout = 0;
	}
	reply_known(r, result, &entry, inode);
}

/* Another directory is where `parent` was, so what has the name there is not what `parent` held.
 * The kernel must look up again instead of caching an absent name.  (A lookup that is part of a
 * create would fail with an error.) */
static void reply_stale(struct request *r)
{
	struct fuse_entry_param entry = {.entry_timeout = 0};
	struct attributes attributes;
	struct inode *inode = NULL;
	int result = *r->path.path ? workspace_getattr(&r->op, r->mount->workspace,
					     &OBJECT_AT(r->path.path), &attributes)
				   : -ESTALE;

	r->path_is_stale = true;
	if (result == -ENOENT) {
		reply_negative(r, 0);
		return;
	}
	if (result == 0)
		result = inode_table_enter_stale(r->mount->inodes, &attributes, &inode);
	if (result == 0) {
		entry.ino = session_ino(r->session, inode);
		session_stat(r->session, inode, &attributes, &entry.attr);
	}
	reply_known(r, result < 0 ? -ESTALE : 0, &entry, inode);
}

void session_lookup(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name)
{
	struct found found = {.retry_handle = NULL};
	struct inode *parent;
	struct request r;
	unsigned changes;
	int result;

	if (virtual_lookup(fuse, parent_ino, name) || announce_lookup(fuse, parent_ino, name))
		return;
	request_begin(&r, fuse, "lookup", 0);
	r.is_step = true;
	parent = session_inode(r.session, parent_ino);
	session_watch(&r, parent);
	changes = inode_changes(parent);
	do {
		result = request_locate_entry(&r, parent, name);
		if (result == 0)
			result = find(&r, &found);
	} while (request_retry_entry(&r, result, parent, NULL));
	if (result == -ENOENT)
		reply_negative(&r, missing_ttl(&r, parent, name, changes));
	else if (result == -ESTALE)
		reply_stale(&r);
	else
		reply_entry(&r, parent, name, result, &found, changes);
}

static void forget(struct session *s, fuse_ino_t ino, uint64_t count)
{
	if (ino != FUSE_ROOT_ID && !session_inode(s, ino)->is_virtual)
		inode_table_forget(s->mount->inodes, session_inode(s, ino), count);
}

void session_forget(fuse_req_t fuse, fuse_ino_t ino, uint64_t count)
{
	forget(fuse_req_userdata(fuse), ino, count);
	fuse_reply_none(fuse);
}

void session_forget_multi(fuse_req_t fuse, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget(fuse_req_userdata(fuse), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(fuse);
}

void session_readlink(fuse_req_t fuse, fuse_ino_t ino)
{
	cleanup_free char *target = NULL;
	struct object_ref object;
	struct inode *inode;
	struct request r;
	int result;

	request_begin(&r, fuse, "readlink", 0);
	r.is_step = true;
	inode = session_inode(r.session, ino);
	do {
		result = request_locate(&r, inode, &object);
		if (result == 0)
			result = workspace_readlink(&r.op, r.mount->workspace, &object, &target);
	} while (request_retry(&r, result, inode));
	/* A reader of a link that is being replaced may get either target. */
	if (request_is_stale(&r, inode, result) &&
		(workspace_readlink(&r.op, r.mount->workspace, &OBJECT_AT(r.path.path), &target) ==
				0 ||
			(target = inode_table_target(r.mount->inodes, inode))))
		result = 0;
	result = request_object_result(&r, inode, result);
	if (request_failed(&r, result))
		return;
	fuse_reply_readlink(fuse, target);
}

/* ---- Making names ------------------------------------------------------------------------ */

struct making {
	mode_t mode;        /* with the type */
	dev_t rdev;         /* of a device */
	const char *target; /* of a symbolic link */
};

static int make(struct request *r, const struct making *making, struct attributes *ret_attributes)
{
	struct workspace *w = r->mount->workspace;
	const char *path = r->path.path;

	if (S_ISDIR(making->mode))
		return workspace_mkdir(&r->op, w, path, making->mode & 07777, ret_attributes);
	if (S_ISLNK(making->mode))
		return workspace_symlink(&r->op, w, making->target, path, ret_attributes);
	return workspace_mknod(&r->op, w, path, making->mode, making->rdev, ret_attributes);
}

static void make_entry(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name, const char *op,
	const struct making *making)
{
	struct found made = {.retry_handle = NULL};
	struct inode *parent;
	struct request r;
	int result;

	if (virtual_refuses_entry(fuse, parent_ino, name) ||
		announce_make(fuse, parent_ino, name, making->mode))
		return;
	request_begin(&r, fuse, op, LOG_IS_MUTATION);
	r.record.path2 = making->target;
	parent = session_inode(r.session, parent_ino);
	request_owns_name(&r, parent, name);
	do {
		result = request_locate_entry(&r, parent, name);
		if (result == 0)
			result = make(&r, making, &made.attributes);
	} while (request_retry_entry(&r, result, parent, NULL));
	made.at = request_position(&r);
	reply_entry(&r, parent, name, result, &made, inode_directory(parent)->changes);
}

void session_mknod(fuse_req_t fuse, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	make_entry(fuse, parent, name, "mknod", &(struct making){.mode = mode, .rdev = rdev});
}

void session_mkdir(fuse_req_t fuse, fuse_ino_t parent, const char *name, mode_t mode)
{
	make_entry(fuse, parent, name, "mkdir", &(struct making){.mode = S_IFDIR | mode});
}

void session_symlink(fuse_req_t fuse, const char *target, fuse_ino_t parent, const char *name)
{
	make_entry(
		fuse, parent, name, "symlink", &(struct making){.mode = S_IFLNK, .target = target});
}

void session_link(fuse_req_t fuse, fuse_ino_t ino, fuse_ino_t parent_ino, const char *name)
{
	struct found made = {.retry_handle = NULL};
	struct inode *inode, *parent;
	struct object_ref object;
	struct request r;
	struct session *s;
	unsigned reply;
	bool is_gone;
	int result;

	if (virtual_refuses(fuse, ino) || virtual_refuses_entry(fuse, parent_ino, name))
		return;
	request_begin(&r, fuse, "link", LOG_IS_MUTATION);
	s = r.session;
	inode = session_inode(s, ino);
	inode_table_ref(s->mount->inodes, inode);
	reply = dropper_reply(s->dropper, inode, r.op.pid);
	parent = session_inode(r.session, parent_ino);
	request_owns_name(&r, parent, name);
	do {
		result = request_locate(&r, inode, &object);
		is_gone = result == -ENOENT;
		if (result == 0)
			result = request_locate_second(&r, parent, name);
		if (result == 0)
			result = workspace_link(
				&r.op, r.mount->workspace, &object, r.path2.path, &made.attributes);
	} while (request_retry_entry(&r, result, parent, NULL) ||
		 request_retry_name(&r, result, inode));
	if (is_gone || result == -ESTALE)
		result = request_object_result(&r, inode, result);
	made.at = request_position(&r);
	reply_entry(&r, parent, name, result, &made, inode_directory(parent)->changes);
	dropper_replied(s->dropper, reply, inode, result == 0 ? &made.attributes : NULL);
	inode_table_unref(s->mount->inodes, inode);
}

/* ---- Removing and moving names -------------------------------------------------------------- */

/* Removes what the kernel knows at (parent, name), or what has replaced it: a caller that removes a
 * name means whatever has it. */
static int remove_known(struct request *r, struct inode *known,
	int (*remove)(
		struct op_context *, struct workspace *, const char *, const struct object_id *))
{
	struct attributes now = {.id = inode_table_id(r->mount->inodes, known)};
	int result, looked = 0;

	do {
		result = remove(&r->op, r->mount->workspace, r->path.path, &now.id);
		if (result == -ESTALE && known)
			looked = request_successor(r, r->path.path, known, &now);
	} while (result == -ESTALE && known && looked == 0 && ++r->attempts <= ATTEMPTS_MAX);
	return looked == -ENOENT ? looked : result;
}

static void remove_entry(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name, const char *op,
	int (*remove)(
		struct op_context *, struct workspace *, const char *, const struct object_id *))
{
	struct inode *parent, *known;
	struct request r;
	int result;

	if (virtual_refuses_entry(fuse, parent_ino, name) ||
		announce_remove(fuse, parent_ino, name))
		return;
	request_begin(&r, fuse, op, LOG_IS_MUTATION);
	parent = session_inode(r.session, parent_ino);
	request_owns_name(&r, parent, name);
	known = inode_table_child(r.mount->inodes, parent, name);
	do {
		result = request_locate_entry(&r, parent, name);
		if (result == 0)
			result = remove_known(&r, known, remove);
	} while (request_retry_entry(&r, result, parent, NULL));
	inode_table_unref(r.mount->inodes, known);
	if (result == 0)
		inode_table_removed(r.mount->inodes, parent, name, request_position(&r));
	request_finish(&r, result);
}

void session_unlink(fuse_req_t fuse, fuse_ino_t parent, const char *name)
{
	remove_entry(fuse, parent, name, "unlink", workspace_unlink);
}

void session_rmdir(fuse_req_t fuse, fuse_ino_t parent, const char *name)
{
	remove_entry(fuse, parent, name, "rmdir", workspace_rmdir);
}

static void rename_begin(struct session *s)
{
	pthread_mutex_lock(&s->rename_lock);
	s->renames_active++;
	pthread_mutex_unlock(&s->rename_lock);
}

static void rename_end(struct session *s, bool renamed)
{
	pthread_mutex_lock(&s->rename_lock);
	s->renames_active--;
	s->renames += renamed;
	pthread_cond_broadcast(&s->rename_done);
	pthread_mutex_unlock(&s->rename_lock);
}

/* A process may have looked up the file that is about to be replaced, and open it only after that:
 * this must succeed, as on a disk.  NULL: no such file, or it would take a round trip; or it may be
 * the very file that is moved, by another name. */
static struct open_handle *open_target(struct request *r, struct inode *target)
{
	struct open_handle *retry_handle = NULL;
	struct attributes attributes;
	struct inode_state state;

	if (!target || target->is_directory || r->session->is_remote || r->session->ignores_case)
		return NULL;
	inode_table_state(r->mount->inodes, target, &state);
	if (S_ISREG(state.version.mode))
		open_retry_handle(r, &(struct object_ref){.path = r->path2.path, .id = state.id},
			&attributes, &retry_handle);
	return retry_handle;
}

static int rename_entry(struct request *r, struct inode *parent, const char *name,
	struct inode *new_parent, const char *new_name, unsigned flags)
{
	struct inode *moved, *target;
	struct object_id moved_id;
	struct open_handle *retry_handle;
	struct facts left = {0};
	uint64_t before, at;
	int result = request_locate_entry(r, parent, name);

	if (result == 0)
		result = request_locate_second(r, new_parent, new_name);
	if (result < 0)
		return result;
	moved = inode_table_child(r->mount->inodes, parent, name);
	moved_id = inode_table_id(r->mount->inodes, moved);
	target = flags & (RENAME_KEEP_TARGET | RENAME_SWAP)
			 ? NULL
			 : inode_table_child(r->mount->inodes, new_parent, new_name);
	retry_handle = open_target(r, target);
	rename_begin(r->session);
	before = inode_table_position(r->mount->inodes);
	r->op.facts = &left;
	result = workspace_rename(
		&r->op, r->mount->workspace, r->path.path, r->path2.path, flags, &moved_id);
	r->op.facts = NULL;
	/* With facts, both names were looked at. */
	at = left.parent.mode && left.new_parent.mode ? r->op.served.position : before;
	if (result == 0)
		inode_table_renamed(r->mount->inodes, parent, name, new_parent, new_name, moved,
			flags & RENAME_SWAP, r->path_is_stale ? 0 : at);
	keep_retry_handle(r, result == 0 ? target : NULL, retry_handle);
	rename_end(r->session, result == 0);
	inode_table_unref(r->mount->inodes, target);
	inode_table_unref(r->mount->inodes, moved);
	return result;
}

void session_rename(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name,
	fuse_ino_t new_parent_ino, const char *new_name, unsigned flags)
{
	struct inode *parent, *new_parent;
	unsigned our_flags = 0;
	struct request r;
	int result;

	if (virtual_refuses_entry(fuse, parent_ino, name) ||
		virtual_refuses_entry(fuse, new_parent_ino, new_name) ||
		announce_rename(fuse, parent_ino, name, new_parent_ino, new_name))
		return;
	request_begin(&r, fuse, "rename", LOG_IS_MUTATION);
	parent = session_inode(r.session, parent_ino);
	new_parent = session_inode(r.session, new_parent_ino);
	if (flags & RENAME_NOREPLACE)
		our_flags |= RENAME_KEEP_TARGET;
	if (flags & RENAME_EXCHANGE)
		our_flags |= RENAME_SWAP;
	if (flags & RENAME_WHITEOUT)
		our_flags |= RENAME_LEAVE_WHITEOUT;
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) {
		request_finish(&r, -EINVAL);
		return;
	}
	request_owns_name(&r, parent, name)->moves_in = parent;
	request_owns_name(&r, new_parent, new_name)->moves_in = new_parent;
	do {
		result = rename_entry(&r, parent, name, new_parent, new_name, our_flags);
	} while (request_retry_entry(&r, result, parent, new_parent));
	request_finish(&r, result);
}
