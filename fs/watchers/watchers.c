#include "fs/watchers/watchers_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/support/mountinfo.h"
#include "ops/support/path.h"
#include "ops/support/thread.h"
#include "ops/workspace.h"

enum { END_WAIT_MS = 3000 };

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif

/* ---- What it is told ----------------------------------------------------------------------- */

static void wake(int fd)
{
	uint64_t one = 1;

	/* It fails only when the counter is full: then the thread is awake anyway. */
	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

static bool interrupted(struct op_context *op)
{
	const struct watchers *w = op->interrupted_data;

	return w->ending;
}

void watchers_op(struct watchers *w, struct op_context *ret_op)
{
	op_context_init(ret_op);
	ret_op->interrupted = interrupted;
	ret_op->interrupted_data = w;
}

void watchers_lock(struct watchers *w)
{
	pthread_mutex_lock(&w->lock);
}

void watchers_unlock(struct watchers *w)
{
	struct seen_released *released = seen_take_released(&w->seen);

	pthread_mutex_unlock(&w->lock);
	seen_free_released(w->mount->inodes, released);
}

void watchers_want(struct watchers *w, struct seen_directory *directory, const char *text,
	const struct known_before *before, const struct attributes *now, uint64_t at,
	uint64_t arrived_ns)
{
	struct seen_name *name = seen_find_name(directory, text);
	const struct seen_object object = {.exists = before->kind == BEFORE_OBJECT,
		.id = before->id,
		.version = before->version};

	if (!name) {
		name = seen_add_name(&w->seen, directory, text);
		if (name && !name->is_known && before->kind != BEFORE_UNKNOWN)
			seen_set_before(&w->seen, name, &object);
	}
	if (!name || w->seen.pending_count >= PENDING_MAX)
		directory->is_missed = true;
	else if (!name->is_pending || name->now_at <= at)
		seen_want(&w->seen, name, now, at, arrived_ns);
}

/* With the lock held. */
static void keep_undecided(struct watchers *w, struct inode *parent, const char *name,
	const struct change *change, const struct known_before *before)
{
	struct undecided_change *s =
		w->undecided_count < UNDECIDED_MAX ? malloc(sizeof(*s) + strlen(name) + 1) : NULL;

	if (!s)
		return;
	*s = (struct undecided_change){.directory = parent,
		.before = *before,
		.exists = change->exists,
		.now = change->attributes,
		.at = change->at,
		.arrived_ns = clock_now_ns()};
	strcpy(s->name, name);
	inode_table_ref(w->mount->inodes, parent);
	*w->last_undecided = s;
	w->last_undecided = &s->next;
	w->mount->watch_events.undecided = ++w->undecided_count;
}

static void note_own(struct watchers *w, struct inode *parent, const char *text,
	const struct attributes *found, uint64_t at, bool settled)
{
	struct seen_directory *directory;
	struct seen_name *name;

	watchers_lock(w);
	directory = seen_find(&w->seen, parent);
	name = directory ? seen_add_name(&w->seen, directory, text) : NULL;
	if (name)
		name->written_ns = settled ? 0 : clock_now_ns();
	if (name && settled && (!at || at >= name->at))
		seen_set(&w->seen, name, found, at);
	watchers_unlock(w);
}

static void foreign(void *user, struct inode *parent, const char *name, const struct change *change,
	const struct known_before *before)
{
	struct watchers *w = user;
	struct seen_directory *directory;
	bool is_foreign;

	if (!inode_table_is_known(w->mount->inodes, parent))
		return;       /* an inode that the kernel does not know cannot be watched */
	if (change->is_own) { /* the kernel has raised its event when it was answered */
		note_own(w, parent, name, change->exists ? &change->attributes : NULL, change->at,
			true);
		return;
	}
	watchers_lock(w);
	directory = seen_find(&w->seen, parent);
	if (directory)
		watchers_want(w, directory, name, before,
			change->exists ? &change->attributes : NULL, change->at, clock_now_ns());
	else if (!before->is_ours)
		keep_undecided(w, parent, name, change, before);
	is_foreign = directory || !before->is_ours;
	watchers_unlock(w);
	if (is_foreign)
		wake(w->wake_fd);
}

/* With a reference; NULL: it is not watched. */
static struct inode *watched_parent(struct watchers *w, const char *path)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	struct inode *inode = parent ? inode_table_find(w->mount->inodes, parent) : NULL;
	bool is_watched;

	if (!inode)
		return NULL;
	watchers_lock(w);
	is_watched = seen_find(&w->seen, inode);
	watchers_unlock(w);
	if (is_watched)
		return inode;
	inode_table_unref(w->mount->inodes, inode);
	return NULL;
}

static void own(void *user, struct op_context *op, const char *path, bool settled)
{
	struct watchers *w = user;
	struct inode *parent = *path ? watched_parent(w, path) : NULL;
	struct op_context look = *op;
	struct attributes found;
	uint64_t at;
	int r = 0;

	if (!parent)
		return;
	look.parent = inode_table_id(w->mount->inodes, parent);
	look.new_parent = (struct object_id){0};
	look.facts = NULL;
	if (settled)
		r = workspace_getattr(&look, w->mount->workspace,
			&(struct object_ref){.path = path, .parent = look.parent}, &found);
	/* A look at a cache has no position of its own; the change was made before it. */
	at = look.served.position > op->served.position ? look.served.position
							: op->served.position;
	if (r == 0 || r == -ENOENT)
		note_own(w, parent, path_name(path), r == 0 ? &found : NULL, at, settled);
	inode_table_unref(w->mount->inodes, parent);
}

static void lost(void *user, struct inode *inode)
{
	struct watchers *w = user;
	struct seen_directory *directory;

	watchers_lock(w);
	directory = inode ? seen_find(&w->seen, inode) : NULL;
	if (directory)
		directory->is_missed = true;
	w->is_missed = w->is_missed || !inode;
	watchers_unlock(w);
	wake(w->wake_fd);
}

/* An event helper at work keeps the mount busy. */
static void ending(void *user)
{
	struct watchers *w = user;
	struct timespec until = clock_in_ms(END_WAIT_MS);

	w->ending = true;
	wake(w->stop_fd);
	watchers_lock(w);
	while (!w->has_ended)
		if (pthread_cond_timedwait(&w->ended, &w->lock, &until) == ETIMEDOUT)
			break;
	watchers_unlock(w);
}

/* ---- The thread ----------------------------------------------------------------------------- */

/* Sets the times of the root to what they are, and waits for the event of that. */
static int probe(struct watchers *w)
{
	struct inode *root = inode_table_root(w->mount->inodes);
	struct announcement announcement = {.op = ANNOUNCE_ATTRIB, .inode = root};
	struct event_command command = {.call = EVENT_PROBE};
	struct attributes attributes;
	struct op_context op;
	int r;

	watchers_op(w, &op);
	r = workspace_getattr(&op, w->mount->workspace,
		&(struct object_ref){.path = "", .id = inode_table_id(w->mount->inodes, root)},
		&attributes);
	if (r < 0)
		return r;
	command.atime = attributes.atime;
	command.mtime = attributes.mtime;
	return event_helpers_call(&w->helpers, &command, &announcement);
}

/* The root may belong to another user, and yet changes of the user's own files can be announced. */
static bool is_possible(struct watchers *w)
{
	int r = probe(w);

	if (r == 0 || r == -EPERM || r == -EACCES) {
		w->mount->watch_events.state = WATCH_EVENTS_ON;
		w->mount->watch_events.reason = NULL;
		return true;
	}
	w->mount->watch_events.state = WATCH_EVENTS_OFF;
	w->mount->watch_events.reason = r == -ECHILD  ? "the event helper cannot be started"
					: r == -ETIME ? "the kernel raises no event"
						      : strerror(-r);
	if (r != -EINTR)
		log_warning("programs that wait on inotify will not hear of changes at the "
			    "workspace (%s)",
			w->mount->watch_events.reason);
	return false;
}

static bool is_ours(void *user, const struct mountinfo_line *line)
{
	unsigned *connection = user;

	if (line->minor != *connection || strncmp(line->type, "fuse", 4) != 0)
		return true;
	*connection = 0;
	return false;
}

/* The helpers' own copy would keep it alive. */
static bool is_unmounted(struct watchers *w)
{
	unsigned connection = w->mount->connection;

	return w->helpers.root_fd >= 0 && mountinfo_walk(is_ours, &connection) == 0 && connection;
}

static void wait_for_work(struct watchers *w, uint64_t until_ns)
{
	struct pollfd fds[3] = {{.fd = w->wake_fd, .events = POLLIN},
		{.fd = w->stop_fd, .events = POLLIN}, {.fd = w->mounts_fd, .events = POLLPRI}};
	uint64_t now_ns = clock_now_ns(), count;
	struct timespec wait = {0};

	if (until_ns > now_ns)
		wait = clock_at_ns(until_ns - now_ns);
	if (ppoll(fds, 3, &wait, NULL) <= 0)
		return;
	if (fds[0].revents && read(w->wake_fd, &count, sizeof(count)) < 0)
		return;
	if (fds[2].revents && is_unmounted(w))
		w->ending = true;
}

static void *thread_main(void *user)
{
	struct watchers *w = user;
	bool works = is_possible(w);

	while (works && !w->ending) {
		uint64_t discover_ns = watchers_discover(w);
		uint64_t deliver_ns = watchers_deliver(w);

		if (!w->ending)
			wait_for_work(w,
				deliver_ns && deliver_ns < discover_ns ? deliver_ns : discover_ns);
	}
	event_helpers_done(&w->helpers);
	announce_wants_own(w->mount, false);
	watchers_lock(w);
	w->has_ended = true;
	pthread_cond_broadcast(&w->ended);
	watchers_unlock(w);
	return NULL;
}

/* ---- Life ----------------------------------------------------------------------------------- */

static const char *why_not(const struct mount *m)
{
	struct workspace_status status;

	workspace_status(m->workspace, &status);
	if (m->options->watch_events_off)
		return "-o watch_events=off";
	if (m->options->read_only)
		return "the mount is read-only";
	if (m->options->cache_strict)
		return "-o cache=strict";
	if (!(status.capabilities & WORKSPACE_CAN_WATCH))
		return "the workspace reports no changes";
	return NULL;
}

static void watchers_free(struct watchers *w)
{
	watchers_lock(w);
	while (w->undecided) {
		struct undecided_change *next = w->undecided->next;

		inode_table_unref(w->mount->inodes, w->undecided->directory);
		free(w->undecided);
		w->undecided = next;
	}
	seen_done(&w->seen);
	watchers_unlock(w);
	close(w->wake_fd);
	close(w->stop_fd);
	if (w->mounts_fd >= 0)
		close(w->mounts_fd);
	pthread_cond_destroy(&w->ended);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* The mount's root, detached from all mount points, so that its use does not keep the mount busy;
 * -1: it takes CAP_SYS_ADMIN. */
static int open_apart(const struct mount *m)
{
	return (int)syscall(
		SYS_open_tree, AT_FDCWD, m->options->mount_point, OPEN_TREE_CLONE | O_CLOEXEC);
}

static int init(struct watchers *w, struct mount *m)
{
	w->mount = m;
	w->last_undecided = &w->undecided;
	w->knows_all = true;
	pthread_mutex_init(&w->lock, NULL);
	clock_cond_init(&w->ended);
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	w->observer = (struct change_observer){
		.user = w, .foreign = foreign, .own = own, .lost = lost, .ending = ending};
	if (seen_init(&w->seen, m->inodes) < 0 || w->wake_fd < 0 || w->stop_fd < 0)
		return -ENOMEM;
	/* A detached mount whose end cannot be noticed would keep the daemon running. */
	event_helpers_init(&w->helpers, m, w->mounts_fd < 0 ? -1 : open_apart(m), w->stop_fd);
	return 0;
}

struct watchers *watchers_start(struct mount *m)
{
	const char *reason = why_not(m);
	struct watchers *w = reason ? NULL : calloc(1, sizeof(*w));
	int r = 0;

	m->watch_events.state = WATCH_EVENTS_OFF;
	m->watch_events.reason = reason ? reason : "no memory";
	if (!w)
		return NULL;
	r = init(w, m);
	if (r == 0) {
		m->watch_events.state = WATCH_EVENTS_STARTING;
		announce_observe(m, &w->observer);
		r = thread_start(&w->thread, "watchers", 0, thread_main, w);
	}
	if (r == 0)
		return w;
	m->watch_events.state = WATCH_EVENTS_OFF;
	announce_observe(m, NULL);
	event_helpers_done(&w->helpers);
	watchers_free(w);
	return NULL;
}

void watchers_stop(struct watchers *w)
{
	if (!w)
		return;
	announce_observe(w->mount, NULL);
	w->ending = true;
	wake(w->stop_fd);
	pthread_join(w->thread, NULL);
	watchers_free(w);
}
