#include "fs/edge/announce.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fs/edge/dropper.h"
#include "fs/edge/invalidate.h"
#include "fs/log/caller_signals.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

enum { RENAME_WAIT_MS = 100 };

/* How long the retry after ESTALE may take for one path, besides the time that the workspace needs
 * to answer. */
static const uint64_t STALE_NS = 1000000000;

/* Extra grace for a caller that was descheduled early in its path walk. */
static const uint64_t HELD_UP_NS = 4000000000;

enum { RESIZED_MS = 100 }; /* nearly always enough for a reply to be installed */

static const uint64_t CHECK_CALLER_NS = 100000000; /* between two checks of a caller that waits */
static const uint64_t ASKED_TO_END_NS =
	1000000000; /* the thread that handles a request to end polls this often */

/* A caller that handles the signal (an interpreter on Ctrl-C, a server that is to stop) still gets
 * its answer if the workspace sends one within this time. */
static bool was_asked_to_end(struct request *r)
{
	uint64_t now = clock_now_ns(), since = 0;

	if (atomic_compare_exchange_strong(&r->asked_to_end_ns, &since, now))
		return false;
	return now - since >= ASKED_TO_END_NS;
}

/* With io_uring the kernel does not report the interruption of a request that was not fetched yet;
 * all requests of a process that is being killed are such. */
static bool must_check_caller(struct request *r)
{
	uint64_t now = clock_now_ns(), last = r->looked_ns;

	return r->op.pid && session_ring_serves() && now - r->start_ns >= CHECK_CALLER_NS &&
	       now - last >= CHECK_CALLER_NS &&
	       atomic_compare_exchange_strong(&r->looked_ns, &last, now);
}

static bool interrupted(struct op_context *op)
{
	struct request *r = op->interrupted_data;
	bool interrupted;

	session_thread_waits(r->session);
	/* After a forced unmount no interrupt comes.  What the kernel releases has no caller. */
	if (r->session->ending || (op->pid && fuse_session_exited(r->session->fuse)))
		return true;
	interrupted = fuse_req_interrupted(r->fuse);
	if (!interrupted && !must_check_caller(r))
		return false;
	if (interrupted && r->any_signal_interrupts)
		return true;
	switch (caller_wish(op->pid)) {
	case CALLER_WAITS:
		return false;
	case CALLER_ASKED_TO_END:
		return was_asked_to_end(r);
	case CALLER_ENDS:
		return true;
	case CALLER_UNKNOWN:
		break;
	}
	return interrupted;
}

void request_begin(struct request *r, fuse_req_t fuse, const char *op, unsigned flags)
{
	const struct fuse_ctx *caller = fuse_req_ctx(fuse);
	struct session *s = fuse_req_userdata(fuse);

	*r = (struct request){.session = s,
		.mount = s->mount,
		.fuse = fuse,
		.op = {.pid = caller->pid,
			.uid = mount_swap_uid(s->mount, caller->uid),
			.gid = mount_swap_gid(s->mount, caller->gid),
			.umask = caller->umask & 0777,
			.interrupted = interrupted,
			.interrupted_data = r},
		.record = {.op = op,
			.flags = flags,
			.pid = caller->pid,
			.uid = caller->uid,
			.start_ns = clock_wall_ns()},
		.start_ns = clock_now_ns()};
	r->path.path = r->path.fixed;
	r->is_announcement = announce_is_helper(s, caller->pid);
	if (!r->is_announcement)
		atomic_fetch_add_explicit(&s->mount->requests, 1, memory_order_relaxed);
}

/* ---- ESTALE retry: by name or by inode ---------------------------------------------------------
 *
 * A request for an object that is no longer at its name fails with ESTALE, and the kernel walks the
 * path once more, with a lookup of every name.  (For a working directory or an open file it only
 * repeats the request.)  So a caller that has found an inode by name since its ESTALE, and done
 * nothing else, means whatever has that name, and needs no second ESTALE however often it is
 * replaced; all other callers mean the object.
 */

static struct retrier *slot_of(const struct request *r)
{
	return &r->session->retriers[(unsigned)r->op.pid % RETRIERS];
}

/* The caller's slot if it is retrying after ESTALE, else NULL. */
static struct retrier *retrying(const struct request *r)
{
	struct retrier *slot = slot_of(r);
	uint64_t until_ns = slot->until_ns + (slot->found_count <= FOUND_MAX ? HELD_UP_NS : 0);

	return slot->thread == r->op.pid && r->op.pid && r->start_ns < until_ns ? slot : NULL;
}

static void begin_retry(struct request *r)
{
	struct retrier *slot = slot_of(r);

	if (!retrying(r))
		slot->found_count = 0;
	slot->thread = r->op.pid;
	slot->until_ns = clock_now_ns() + STALE_NS;
}

/* A looping walk gets one walk's retry budget. */
static void extend_retry(struct request *r)
{
	struct retrier *retrier = retrying(r);

	if (retrier && retrier->found_count <= FOUND_MAX)
		retrier->until_ns += clock_now_ns() - r->start_ns;
}

/* When the kernel finds another file than it knew, it forgets the found one at once, and looks up
 * again. */
static void keep(struct request *r, struct retrier *slot, struct inode *file)
{
	if (file)
		inode_table_ref(r->mount->inodes, file);
	inode_table_unref(r->mount->inodes, atomic_exchange(&slot->kept, file));
}

static void end_retry(struct request *r)
{
	struct retrier *slot = slot_of(r);

	if (slot->thread != r->op.pid)
		return;
	slot->thread = 0;
	keep(r, slot, NULL);
}

void request_found(struct request *r, struct inode *inode)
{
	struct retrier *retrier = retrying(r);

	if (!retrier)
		return;
	retrier->found[retrier->found_count++ % FOUND_MAX] = inode;
	if (!inode->is_directory)
		keep(r, retrier, inode);
}

bool request_means_name(const struct request *r, const struct inode *inode)
{
	const struct retrier *retrier = retrying(r);

	for (unsigned i = 0; retrier && i < retrier->found_count && i < FOUND_MAX; i++)
		if (retrier->found[i] == inode)
			return true;
	return false;
}

bool request_is_retry(const struct request *r)
{
	return r->path_is_stale || retrying(r);
}

/* ---- The end ------------------------------------------------------------------------- */

void request_changes(struct request *r, const char *path, const struct object_id *id)
{
	if ((r->record.flags & LOG_IS_MUTATION) && !r->is_announcement)
		foreign_own(&r->session->foreign, path, id, clock_now_ms());
}

struct own_change *request_owns_name(
	struct request *r, const struct inode *parent, const char *name)
{
	struct own_change *own = &r->own[r->own_count++];

	*own = (struct own_change){
		.directory = inode_table_id(r->mount->inodes, parent), .name = name};
	invalidator_own_begin(r->session->invalidator, own);
	return own;
}

/* Before the feed's change of the same name is handled. */
static void tell_observer(struct request *r)
{
	const struct change_observer *observer = r->session->observer;
	bool is_write = r->session->is_remote && strcmp(r->record.op, "write") == 0;

	if (!r->session->observes_own || !observer || r->is_announcement ||
		!((r->record.flags & LOG_IS_MUTATION) || r->settles))
		return;
	observer->own(observer->user, &r->op, r->path.path, !is_write);
	if (r->path2.path && *r->path2.path)
		observer->own(observer->user, &r->op, r->path2.path, true);
}

void request_record(struct request *r, int64_t result)
{
	uint64_t took_us = (clock_now_ns() - r->start_ns) / 1000;

	r->record.path = r->path.path;
	if (!r->record.path2)
		r->record.path2 = r->path2.path;
	r->record.latency_us = took_us > UINT32_MAX ? UINT32_MAX : (uint32_t)took_us;
	r->record.result = result < 0 ? (int)result : 0;
	r->record.round_trips = r->op.served.round_trips;
	if (r->op.served.from_cache)
		r->record.flags |= LOG_FROM_CACHE;
	if (result > 0 && (r->record.flags & LOG_HAS_RANGE))
		r->record.bytes = (uint64_t)result;
	request_changes(r, r->path.path, NULL);
	request_changes(r, r->path2.path, NULL);
	if (!r->is_announcement)
		mount_log_record(r->mount->log, &r->record);
	if (result >= 0)
		tell_observer(r);
	if (result == -ESTALE)
		begin_retry(r);
	else if (r->is_step)
		extend_retry(r);
	else
		end_retry(r);
	while (r->own_count)
		invalidator_own_end(r->session->invalidator, &r->own[--r->own_count]);
	if (r->handle)
		inode_table_handle_put(r->mount->inodes, &r->op, r->handle);
	path_string_done(&r->path);
	path_string_done(&r->path2);
}

bool request_failed(struct request *r, int64_t result)
{
	request_record(r, result);
	if (result < 0)
		fuse_reply_err(r->fuse, (int)-result);
	return result < 0;
}

void request_finish(struct request *r, int result)
{
	if (!request_failed(r, result))
		fuse_reply_err(r->fuse, 0);
}

/* ---- Where things are ------------------------------------------------------------ */

/* With a remote workspace a new lookup is cheaper than the retry handle, so a caller that means the
 * name does not get that. */
static struct open_handle *any_handle(struct request *r, struct inode *inode)
{
	return inode_table_handle_any(
		r->mount->inodes, inode, !r->session->is_remote || request_means_name(r, inode));
}

int request_locate(struct request *r, struct inode *inode, struct object_ref *ret_object)
{
	int error = 0;

	r->op.parent = (struct object_id){0};
	if (r->by_name) {
		*ret_object = (struct object_ref){.path = r->path.path, .id = r->successor};
		return 0;
	}
	r->renames_seen = r->session->renames;
	if (!r->by_handle) {
		path_string_done(&r->path);
		error = inode_table_path(r->mount->inodes, inode, NULL, &r->path);
	}
	if ((r->by_handle || error == -ENOENT) && !r->handle)
		r->handle = any_handle(r, inode);
	if (error < 0 && !r->handle)
		return error;
	*ret_object = (struct object_ref){.path = r->path.path,
		.id = inode_table_id(r->mount->inodes, inode),
		.file = r->handle ? r->handle->file : NULL};
	request_changes(r, r->path.path, &ret_object->id);
	return 0;
}

int request_locate_open(struct request *r, struct inode *inode, struct object_ref *ret_object)
{
	int error = request_locate(r, inode, ret_object);

	if (error < 0 || r->handle || r->by_name || r->session->is_remote || inode->is_directory)
		return error;
	r->handle = any_handle(r, inode);
	if (r->handle)
		ret_object->file = r->handle->file;
	return 0;
}

bool request_is_removed(struct request *r, const struct inode *directory)
{
	uint64_t lost_ns = inode_table_lost_ns(r->mount->inodes, directory);

	return lost_ns && lost_ns != LOST_UNSENT && clock_now_ns() - lost_ns > STALE_NS;
}

/* `ret_parent`: the directory that the workspace must find there. */
static int locate_entry(struct request *r, struct inode *parent, const char *name,
	struct path_string *path, struct object_id *ret_parent)
{
	int error;

	path_string_done(path);
	*ret_parent = (struct object_id){0};
	error = r->by_path ? -ENOENT : inode_table_path(r->mount->inodes, parent, name, path);
	if (error == 0) {
		*ret_parent = inode_table_id(r->mount->inodes, parent);
		request_changes(r, path->path, NULL);
	}
	if (error != -ENOENT)
		return error;
	r->path_is_stale = true;
	error = inode_table_last_path(r->mount->inodes, parent, name, path);
	if (r->by_path)
		return error;
	return request_is_removed(r, parent) ? -ENOENT : -ESTALE;
}

int request_locate_entry(struct request *r, struct inode *parent, const char *name)
{
	r->renames_seen = r->session->renames;
	return locate_entry(r, parent, name, &r->path, &r->op.parent);
}

int request_locate_second(struct request *r, struct inode *parent, const char *name)
{
	return locate_entry(r, parent, name, &r->path2, &r->op.new_parent);
}

/* True when a rename has finished since `seen`, or was under way and was waited for. */
static bool rename_interfered(struct session *s, uint64_t seen)
{
	bool did;

	pthread_mutex_lock(&s->rename_lock);
	did = s->renames != seen || s->renames_active;
	if (s->renames == seen && s->renames_active)
		clock_cond_wait_ms(&s->rename_done, &s->rename_lock, RENAME_WAIT_MS);
	pthread_mutex_unlock(&s->rename_lock);
	return did;
}

bool request_retry(struct request *r, int result, struct inode *inode)
{
	if (!path_misses_object(result))
		return false;
	if (r->handle || op_interrupted(&r->op))
		return false;
	if (++r->attempts <= ATTEMPTS_MAX && rename_interfered(r->session, r->renames_seen))
		return true;
	if (!inode)
		return false;
	r->handle = any_handle(r, inode);
	r->by_handle = r->handle;
	return r->by_handle;
}

static bool means_entry(const struct request *r, const struct inode *parent)
{
	return !parent || parent->is_root || request_means_name(r, parent);
}

bool request_retry_entry(struct request *r, int result, struct inode *parent, struct inode *second)
{
	if (request_retry(r, result, NULL))
		return true;
	if (result != -ESTALE || r->by_path || op_interrupted(&r->op))
		return false;
	r->by_path = means_entry(r, parent) && means_entry(r, second);
	return r->by_path;
}

/* ---- Names that are replaced all the time ------------------------------------------------- */

bool request_is_stale(struct request *r, struct inode *inode, int result)
{
	if (!path_misses_object(result))
		return false;
	if (!*r->path.path)
		inode_table_last_path(r->mount->inodes, inode, NULL, &r->path);
	return true;
}

int request_object_result(struct request *r, struct inode *inode, int result)
{
	if (!request_is_stale(r, inode, result))
		return result;
	return r->is_gone ? -ENOENT : -ESTALE;
}

int request_successor(
	struct request *r, const char *path, struct inode *known, struct attributes *ret_attributes)
{
	struct inode_state state;
	int result = workspace_getattr(&r->op, r->mount->workspace,
		&(struct object_ref){.path = path, .parent = r->op.parent}, ret_attributes);

	if (result < 0)
		return result;
	inode_table_state(r->mount->inodes, known, &state);
	return ret_attributes->uid == state.version.uid &&
			       (ret_attributes->mode & S_IFMT) == (state.version.mode & S_IFMT)
		       ? 0
		       : -ESTALE;
}

bool request_retry_name(struct request *r, int result, struct inode *inode)
{
	struct attributes attributes;
	int error;

	if (request_retry(r, result, inode))
		return true;
	if (op_interrupted(&r->op) || !request_is_stale(r, inode, result) ||
		!request_means_name(r, inode) || ++r->attempts > ATTEMPTS_MAX)
		return false;
	error = request_successor(r, r->path.path, inode, &attributes);
	r->is_gone = error == -ENOENT;
	r->by_name = error == 0;
	if (r->by_name)
		r->successor = attributes.id;
	return r->by_name;
}

/* ---- Answers ------------------------------------------------------------------------ */

struct inode *session_inode(struct session *s, fuse_ino_t ino)
{
	if (ino == FUSE_ROOT_ID)
		return inode_table_root(s->mount->inodes);
	return (struct inode *)(uintptr_t)ino;
}

fuse_ino_t session_ino(struct session *s, const struct inode *inode)
{
	if (inode == inode_table_root(s->mount->inodes))
		return FUSE_ROOT_ID;
	return (fuse_ino_t)(uintptr_t)inode;
}

void session_stat(struct session *s, const struct inode *inode, const struct attributes *a,
	struct stat *ret_stat)
{
	*ret_stat = (struct stat){.st_ino = inode_table_number(s->mount->inodes, inode),
		.st_mode = a->mode,
		.st_nlink = a->nlink,
		.st_uid = mount_swap_uid(s->mount, a->uid),
		.st_gid = mount_swap_gid(s->mount, a->gid),
		.st_rdev = a->rdev,
		.st_size = (off_t)a->size_bytes,
		.st_blocks = (blkcnt_t)a->blocks,
		.st_blksize = a->block_size_bytes,
		.st_atim = a->atime,
		.st_mtim = a->mtime,
		.st_ctim = a->ctime};
}

double session_ttl(struct session *s, enum lifetime lifetime)
{
	if (lifetime == LIFETIME_WATCHED)
		return s->watched_ttl;
	if (!atomic_load_explicit(&s->caches_unwatched, memory_order_relaxed))
		s->caches_unwatched = true;
	return lifetime == LIFETIME_BRIEF ? s->brief_ttl : s->ttl;
}

uint64_t request_position(const struct request *r)
{
	return r->path_is_stale ? 0 : r->op.served.position;
}

int session_enter(struct session *s, struct inode *parent, const char *name,
	const struct attributes *a, uint64_t at, const uint32_t *changes,
	struct fuse_entry_param *ret_entry, struct inode **ret_inode)
{
	struct inode_table *inodes = s->mount->inodes;
	struct inode_note note;
	int r = changes ? inode_table_enter_listed(
				  inodes, parent, name, a, at, *changes, ret_inode, &note)
			: inode_table_enter(inodes, parent, name, a, at, ret_inode, &note);

	if (r < 0)
		return r;
	if (note.superseded)
		invalidator_superseded(s->invalidator, note.superseded);
	if (note.is_another)
		invalidator_another(s->invalidator, parent, name);
	*ret_entry = (struct fuse_entry_param){.ino = session_ino(s, *ret_inode)};
	if (!note.is_old) {
		ret_entry->attr_timeout = session_ttl(s, note.lifetime);
		ret_entry->entry_timeout = session_ttl(s, inode_lifetime(parent));
	}
	session_stat(s, *ret_inode, a, &ret_entry->attr);
	session_keep_pages(s, *ret_inode, &note);
	return note.was_missing;
}

void session_keep_pages(struct session *s, struct inode *inode, const struct inode_note *note)
{
	struct inode_file *file = inode_file(inode);
	uint32_t now_ms = (uint32_t)clock_now_ms();

	if (!file)
		return;
	/* A drop can overtake the reply that has the size: replies soon afterwards, and the first
	 * one later, get through. */
	if (note->has_other_size) {
		file->resized_ms = now_ms ? now_ms : 1;
	} else if (file->resized_ms && now_ms - file->resized_ms > RESIZED_MS) {
		file->resized_ms = 0;
		return;
	}
	if (!file->resized_ms && !note->has_other_kind && dropper_is_being_written(inode))
		session_discard_attributes(s, inode);
}

static atomic_uint *pages_turn(struct session *s, const struct inode *inode)
{
	return &s->pages_turns[(uintptr_t)inode / sizeof(*inode) % PAGES_TURNS];
}

unsigned session_pages_turn(struct session *s, const struct inode *inode)
{
	return *pages_turn(s, inode);
}

void session_bar_content(struct session *s, struct inode *inode, bool drops)
{
	struct inode_file *file;

	/* Content that is being handed over (session_open.c) gets there before, or never. */
	pthread_rwlock_wrlock(&s->store_lock);
	++*pages_turn(s, inode);
	file = inode_file(inode);
	if (file && drops)
		file->content_given = false;
	pthread_rwlock_unlock(&s->store_lock);
}

void session_discard_attributes(struct session *s, struct inode *inode)
{
	if (!inode_file(inode)->had_lock)
		fuse_lowlevel_notify_inval_inode(s->fuse, session_ino(s, inode), -1, 0);
}

int session_drop_inode(struct session *s, struct inode *inode, bool data)
{
	session_bar_content(s, inode, data);
	return fuse_lowlevel_notify_inval_inode(s->fuse, session_ino(s, inode), data ? 0 : -1, 0);
}

void session_drop_range(struct session *s, struct inode *inode, off_t offset, off_t size)
{
	session_bar_content(s, inode, true);
	fuse_lowlevel_notify_inval_inode(s->fuse, session_ino(s, inode), offset, size);
}

void session_drop_pages(struct session *s, struct inode *inode, off_t offset, size_t size)
{
	session_bar_content(s, inode, true);
	session_thread_block();
	fuse_lowlevel_notify_inval_inode(s->fuse, session_ino(s, inode), offset, (off_t)size);
	session_thread_unblock();
}

/* ---- Whose is it (--idmap) ------------------------------------------------------------ */
