#include "fs/edge/announce.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/edge/invalidate.h"
#include "ops/support/cleanup.h"

/* The handle of a file that an event helper has open. */
static struct open_handle helpers_handle;

/* ---- Who ------------------------------------------------------------------------------ */

void announce_init(struct session *s)
{
	pthread_mutex_init(&s->announcing, NULL);
	for (unsigned i = 0; i < ANNOUNCE_HELPERS_MAX; i++)
		pthread_mutex_init(&s->announcers[i].lock, NULL);
}

void announce_done(struct session *s)
{
	for (unsigned i = 0; i < ANNOUNCE_HELPERS_MAX; i++) {
		announce_end(s->mount, i);
		pthread_mutex_destroy(&s->announcers[i].lock);
	}
	pthread_mutex_destroy(&s->announcing);
}

void announce_observe(struct mount *m, const struct change_observer *observer)
{
	m->edge->observer = observer;
}

void announce_wants_own(struct mount *m, bool wanted)
{
	m->edge->observes_own = wanted;
}

void announce_helper(struct mount *m, unsigned slot, pid_t pid)
{
	m->edge->announcers[slot].pid = pid;
}

static struct announcer *announcer_of(struct session *s, pid_t pid)
{
	for (unsigned i = 0; pid && i < ANNOUNCE_HELPERS_MAX; i++)
		if (s->announcers[i].pid == pid)
			return &s->announcers[i];
	return NULL;
}

bool announce_is_helper(struct session *s, pid_t pid)
{
	return announcer_of(s, pid);
}

/* ---- What ----------------------------------------------------------------------------- */

static void ref_one(struct inode_table *table, struct inode *inode)
{
	if (inode)
		inode_table_ref(table, inode);
}

static void for_each_inode(struct inode_table *table, const struct announcement *a,
	void (*work)(struct inode_table *, struct inode *))
{
	work(table, a->parent);
	work(table, a->new_parent);
	work(table, a->inode);
	work(table, a->replaced);
	for (unsigned i = 0; i < a->way_length; i++) {
		work(table, a->way[i].parent);
		work(table, a->way[i].inode);
	}
}

void announce_begin(struct mount *m, unsigned slot, const struct announcement *announcement)
{
	struct announcer *announcer = &m->edge->announcers[slot];
	struct announcement *copy = malloc(sizeof(*copy));

	if (copy) {
		*copy = *announcement;
		for_each_inode(m->inodes, copy, ref_one);
	}
	announce_end(m, slot);
	pthread_mutex_lock(&announcer->lock);
	announcer->current = copy;
	pthread_mutex_unlock(&announcer->lock);
}

static void free_announcement(struct inode_table *table, struct announcement *a)
{
	if (!a)
		return;
	for_each_inode(table, a, inode_table_unref);
	free(a);
}

void announce_end(struct mount *m, unsigned slot)
{
	struct announcer *announcer = &m->edge->announcers[slot];
	struct announcement *previous;

	pthread_mutex_lock(&announcer->lock);
	previous = announcer->current;
	announcer->current = NULL;
	pthread_mutex_unlock(&announcer->lock);
	free_announcement(m->inodes, previous);
}

/* False: the request is not an event helper's.  `*ret_current`: what the helper is about to do, for
 * the caller to free; NULL: nothing, or no memory. */
static bool take_current(fuse_req_t fuse, struct announcement **ret_current)
{
	struct session *s = fuse_req_userdata(fuse);
	struct announcer *announcer = announcer_of(s, fuse_req_ctx(fuse)->pid);
	struct announcement *copy = NULL;

	if (!announcer)
		return false;
	pthread_mutex_lock(&announcer->lock);
	if (announcer->current && (copy = malloc(sizeof(*copy)))) {
		*copy = *announcer->current;
		for_each_inode(s->mount->inodes, copy, ref_one);
	}
	pthread_mutex_unlock(&announcer->lock);
	*ret_current = copy;
	return true;
}

static bool is_at(struct session *s, fuse_ino_t ino, const char *name, const struct inode *parent,
	const char *announced)
{
	return parent && session_inode(s, ino) == parent && strcmp(name, announced) == 0;
}

/* ---- Answers ---------------------------------------------------------------------------- */

static struct timespec time_of(int64_t ns)
{
	bool borrows = ns % 1000000000 < 0;

	return (struct timespec){.tv_sec = ns / 1000000000 - borrows,
		.tv_nsec = ns % 1000000000 + (borrows ? 1000000000 : 0)};
}

/* The attributes that the kernel last got. */
static void last_attributes(
	struct session *s, struct inode *inode, struct attributes *ret_attributes)
{
	struct inode_state state;
	const struct inode_version *v = &state.version;

	inode_table_state(s->mount->inodes, inode, &state);
	*ret_attributes = (struct attributes){.id = state.id,
		.mode = v->mode               ? v->mode
			: inode->is_directory ? S_IFDIR | 0755U
					      : S_IFREG | 0644U,
		.nlink = v->nlink ? v->nlink : 1,
		.uid = v->uid,
		.gid = v->gid,
		.size_bytes = v->size_bytes,
		.mtime = time_of(v->mtime_ns),
		.ctime = time_of(v->ctime_ns),
		.atime = time_of(v->mtime_ns)};
}

/* An inode with one more lookup, for this request only. */
static void reply_inode(fuse_req_t fuse, struct session *s, struct inode *inode,
	const struct attributes *attributes)
{
	struct fuse_entry_param entry = {.ino = session_ino(s, inode)};

	session_stat(s, inode, attributes, &entry.attr);
	if (fuse_reply_entry(fuse, &entry) < 0)
		inode_table_forget(s->mount->inodes, inode, 1);
}

/* What had the name; NULL: an inode that leads nowhere, of the right type. */
static void reply_known(
	fuse_req_t fuse, struct session *s, struct inode *inode, const struct attributes *announced)
{
	struct attributes attributes = *announced;
	struct inode *shown = inode;

	if (inode) {
		last_attributes(s, inode, &attributes);
		inode_table_add_lookup(s->mount->inodes, inode);
	} else if (inode_table_enter_stale(s->mount->inodes, &attributes, &shown) < 0) {
		fuse_reply_err(fuse, ENOMEM);
		return;
	}
	if (!attributes.nlink)
		attributes.nlink = 1;
	reply_inode(fuse, s, shown, &attributes);
}

static bool reply_way(fuse_req_t fuse, struct session *s, fuse_ino_t ino, const char *name,
	struct announcement *a)
{
	for (unsigned i = 0; i < a->way_length; i++)
		if (is_at(s, ino, name, a->way[i].parent, a->way[i].name)) {
			reply_known(fuse, s, a->way[i].inode, &a->attributes);
			return true;
		}
	return false;
}

static bool reply_before(fuse_req_t fuse, struct session *s, fuse_ino_t ino, const char *name,
	struct announcement *a)
{
	bool is_first = is_at(s, ino, name, a->parent, a->name);
	bool is_second = is_at(s, ino, name, a->new_parent, a->new_name);

	if (reply_way(fuse, s, ino, name, a))
		return true;
	if ((is_first && a->op == ANNOUNCE_CREATE) || (is_second && !a->replaced)) {
		fuse_reply_err(fuse, ENOENT);
		return true;
	}
	if (is_first && (a->op == ANNOUNCE_DELETE || a->op == ANNOUNCE_RENAME)) {
		reply_known(fuse, s, a->inode, &a->attributes);
		return true;
	}
	if (is_second)
		reply_known(fuse, s, a->replaced, &a->attributes);
	return is_second;
}

bool announce_lookup(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name)
{
	struct session *s = fuse_req_userdata(fuse);
	struct announcement *a = NULL;
	bool is_answered;

	if (!take_current(fuse, &a) || !a)
		return false;
	is_answered = reply_before(fuse, s, parent_ino, name, a);
	free_announcement(s->mount->inodes, a);
	return is_answered;
}

/* An event helper's request that does not match the announcement: its object was moved meanwhile.
 */
static bool refuse(fuse_req_t fuse, struct session *s, struct announcement *a)
{
	fuse_reply_err(fuse, EIO);
	free_announcement(s->mount->inodes, a);
	return true;
}

bool announce_make(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name, mode_t mode)
{
	struct session *s = fuse_req_userdata(fuse);
	struct announcement *a = NULL;
	struct fuse_entry_param entry;
	struct inode *inode;
	int r;

	if (!take_current(fuse, &a))
		return false;
	if (!a || a->op != ANNOUNCE_CREATE || !is_at(s, parent_ino, name, a->parent, a->name) ||
		(mode & S_IFMT) != (a->attributes.mode & S_IFMT))
		return refuse(fuse, s, a);
	r = session_enter(s, a->parent, name, &a->attributes, a->at, NULL, &entry, &inode);
	if (r < 0)
		fuse_reply_err(fuse, -r);
	else if (fuse_reply_entry(fuse, &entry) < 0)
		inode_table_forget(s->mount->inodes, inode, 1);
	free_announcement(s->mount->inodes, a);
	return true;
}

bool announce_remove(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name)
{
	struct session *s = fuse_req_userdata(fuse);
	struct announcement *a = NULL;

	if (!take_current(fuse, &a))
		return false;
	if (!a || a->op != ANNOUNCE_DELETE || !is_at(s, parent_ino, name, a->parent, a->name))
		return refuse(fuse, s, a);
	if (a->inode)
		inode_table_removed_in_kernel(s->mount->inodes, a->inode);
	fuse_reply_err(fuse, 0);
	free_announcement(s->mount->inodes, a);
	return true;
}

bool announce_rename(fuse_req_t fuse, fuse_ino_t parent_ino, const char *name,
	fuse_ino_t new_parent_ino, const char *new_name)
{
	struct session *s = fuse_req_userdata(fuse);
	struct announcement *a = NULL;

	if (!take_current(fuse, &a))
		return false;
	if (!a || a->op != ANNOUNCE_RENAME || !is_at(s, parent_ino, name, a->parent, a->name) ||
		!is_at(s, new_parent_ino, new_name, a->new_parent, a->new_name))
		return refuse(fuse, s, a);
	if (a->inode)
		inode_table_moved_in_kernel(s->mount->inodes, a->inode, a->new_parent);
	if (a->replaced)
		inode_table_removed_in_kernel(s->mount->inodes, a->replaced);
	fuse_reply_err(fuse, 0);
	free_announcement(s->mount->inodes, a);
	return true;
}

/* The kernel's pages stay: fs/edge/dropper.h decides about them.  DIRECT_IO goes with whatever way
 * the file's data takes (session_open.c). */
bool announce_open(fuse_req_t fuse, struct fuse_file_info *fi)
{
	if (!announce_is_helper(fuse_req_userdata(fuse), fuse_req_ctx(fuse)->pid))
		return false;
	fi->fh = (uintptr_t)&helpers_handle;
	fi->keep_cache = 1;
	fi->direct_io = 1;
	fi->noflush = 1;
	fuse_reply_open(fuse, fi);
	return true;
}

/* RELEASE comes without a pid. */
bool announce_close(fuse_req_t fuse, const struct fuse_file_info *fi)
{
	if (fi->fh != (uintptr_t)&helpers_handle)
		return false;
	fuse_reply_err(fuse, 0);
	return true;
}

/* ---- Requests in flight ------------------------------------------------------------------- */

static atomic_uint *flights_of(struct session *s, uint64_t node)
{
	return &s->flights[(node >> 5 ^ node >> 17) % ANNOUNCE_FLIGHTS];
}

/* Requests for which the kernel holds no lock that another request needs. */
static bool holds_nothing(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_INIT:
	case FUSE_DESTROY:
	case FUSE_STATFS:
	case FUSE_GETLK:
	case FUSE_SETLK:
	case FUSE_SETLKW:
	case FUSE_POLL:
	case FUSE_NOTIFY_REPLY:
		return true;
	default:
		return false;
	}
}

void announce_flight_begin(
	struct session *s, const struct fuse_buf *buffer, struct announce_flight *ret_flight)
{
	const struct fuse_in_header *header = buffer->mem;
	uint64_t second = 0;

	*ret_flight = (struct announce_flight){{NULL}};
	/* A helper has its answer a moment before the request counts as done. */
	if (holds_nothing(header->opcode) || announce_is_helper(s, (pid_t)header->pid))
		return;
	ret_flight->nodes[0] = flights_of(s, header->nodeid);
	if (header->opcode == FUSE_RENAME || header->opcode == FUSE_RENAME2 ||
		header->opcode == FUSE_LINK)
		memcpy(&second, header + 1, sizeof(second)); /* newdir, or oldnodeid */
	if (second)
		ret_flight->nodes[1] = flights_of(s, second);
	for (unsigned i = 0; i < 2; i++)
		if (ret_flight->nodes[i])
			atomic_fetch_add_explicit(ret_flight->nodes[i], 1, memory_order_relaxed);
}

void announce_flight_end(const struct announce_flight *flight)
{
	for (unsigned i = 0; i < 2; i++)
		if (flight->nodes[i])
			atomic_fetch_sub_explicit(flight->nodes[i], 1, memory_order_release);
}

bool announce_must_wait(struct mount *m, const struct inode *inode)
{
	return atomic_load_explicit(
		       flights_of(m->edge, session_ino(m->edge, inode)), memory_order_acquire) > 0;
}

/* ---- Calls and notifications -------------------------------------------------------------- */

/* Calls follow each other closely: a waiting notification goes first. */
void announce_call_begin(struct mount *m)
{
	static const struct timespec moment = {.tv_nsec = 20000};

	while (m->edge->expiring)
		nanosleep(&moment, NULL);
	pthread_mutex_lock(&m->edge->announcing);
}

void announce_call_end(struct mount *m)
{
	pthread_mutex_unlock(&m->edge->announcing);
}

/* ---- The rest ----------------------------------------------------------------------------- */

void announce_expire(struct mount *m, struct inode *parent, const char *name, bool always)
{
	if (always || inode_table_is_missing(m->inodes, parent, name))
		invalidator_expire(m->edge->invalidator, parent, name);
}

void announce_watch(struct mount *m, struct op_context *op, struct inode *directory)
{
	if (m->edge->can_watch && !inode_directory(directory)->watched)
		session_watch_directory(m, op, directory);
}
