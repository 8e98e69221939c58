#include "fs/edge/announce.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/edge/dropper.h"
#include "fs/edge/invalidate.h"
#include "fs/mount/mount_point.h"
#include "ops/support/buffer.h"
#include "ops/support/clock.h"
#include "ops/support/log.h"
#include "ops/support/thread.h"
#include "ops/workspace_ops.h"

enum {
	WATCHED_TTL_SECONDS = 24 * 3600,
	WRITE_WAIT_MS = 5000,
	WRITE_WAITS_MAX = 6,
	SILENT_CLOSE_MS = 5000,
};

/* How late a change may show in a directory that could be watched but is not yet. */
static const double BRIEF_TTL_SECONDS = 0.1;

static const struct {
	unsigned capability;
	bool wanted;
} capabilities[] = {
	{FUSE_CAP_ASYNC_READ, true}, {FUSE_CAP_ATOMIC_O_TRUNC, true},
	{FUSE_CAP_PARALLEL_DIROPS, true}, {FUSE_CAP_AUTO_INVAL_DATA, true},
	{FUSE_CAP_READDIRPLUS, true},
	{FUSE_CAP_READDIRPLUS_AUTO, false}, /* each entry is looked up anyway */
	{FUSE_CAP_CACHE_SYMLINKS, true}, {FUSE_CAP_ASYNC_DIO, true},
	{FUSE_CAP_DONT_MASK, true}, /* where there is a default access list, no umask counts */
	{FUSE_CAP_HANDLE_KILLPRIV, false}, /* the kernel clears set-user-ID bits by setattr */
	{FUSE_CAP_SPLICE_READ, false},     /* costs more than the copy it saves */
	{FUSE_CAP_WRITEBACK_CACHE, false}, /* would hide changes of size and times by others */
};

/* Only root gets in, whom no permission stops: the kernel need not get a directory's mode anew
 * after each change in it. */
static bool root_alone(const struct mount_options *options)
{
	for (const char *const *pair = options->fuse_pairs; pair && *pair; pair++)
		if (strncmp(*pair, "allow_", 6) == 0)
			return false;
	return geteuid() == 0;
}

static void session_init(void *user, struct fuse_conn_info *connection)
{
	struct session *s = user;

	s->opens_directories = s->mount->options->cache_strict ||
			       !(connection->capable & FUSE_CAP_NO_OPENDIR_SUPPORT);
	s->expires_entries = connection->capable & FUSE_CAP_EXPIRE_ONLY;
	for (size_t i = 0; i < array_size(capabilities); i++) {
		connection->want &= ~capabilities[i].capability;
		if (capabilities[i].wanted)
			connection->want |= capabilities[i].capability & connection->capable;
	}
	/* Access control lists name ids of the workspace. */
	if (!root_alone(s->mount->options) && s->mount->options->idmap_none)
		connection->want |= FUSE_CAP_POSIX_ACL & connection->capable;
	/* Listings without lookups: those come anyway. */
	if (s->mount->options->cache_strict)
		connection->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS | FUSE_CAP_CACHE_SYMLINKS);
	/* The kernel keeps the locks. */
	if (!s->mount->workspace->ops->lock || s->mount->options->locks_local)
		connection->want &= ~(unsigned)(FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS);
	connection->max_write = SESSION_REQUEST_MAX_BYTES;
	connection->max_readahead = SESSION_REQUEST_MAX_BYTES;
	connection->max_background = 64;
	connection->congestion_threshold = 48;
}

static const struct fuse_lowlevel_ops operations = {
	.init = session_init,
	.lookup = session_lookup,
	.forget = session_forget,
	.forget_multi = session_forget_multi,
	.getattr = session_getattr,
	.access = session_access,
	.setattr = session_setattr,
	.readlink = session_readlink,
	.mknod = session_mknod,
	.mkdir = session_mkdir,
	.symlink = session_symlink,
	.link = session_link,
	.unlink = session_unlink,
	.rmdir = session_rmdir,
	.rename = session_rename,
	.statfs = session_statfs,
	.getxattr = session_getxattr,
	.listxattr = session_listxattr,
	.setxattr = session_setxattr,
	.removexattr = session_removexattr,
	.open = session_open,
	.create = session_create,
	.read = session_read,
	.write = session_write,
	.flush = session_flush,
	.release = session_release,
	.fsync = session_fsync,
	.fallocate = session_fallocate,
	.copy_file_range = session_copy_file_range,
	.lseek = session_lseek,
	.getlk = session_getlk,
	.setlk = session_setlk,
	.flock = session_flock,
	.opendir = session_opendir,
	.readdir = session_readdir,
	.readdirplus = session_readdirplus,
	.fsyncdir = session_fsyncdir,
};

/* ---- Words of libfuse, for the reason of a failure -------------------------------------- */

static struct buffer fuse_words; /* before the session serves; one thread */

__attribute__((format(printf, 2, 0))) static void keep_message(
	enum fuse_log_level level, const char *format, va_list arguments)
{
	if (level <= FUSE_LOG_WARNING && fuse_words.size < 4096)
		buffer_vprintf(&fuse_words, format, arguments);
}

__attribute__((format(printf, 2, 0))) static void log_message(
	enum fuse_log_level level, const char *format, va_list arguments)
{
	char line[512];

	vsnprintf(line, sizeof(line), format, arguments);
	line[strcspn(line, "\n")] = '\0';
	log_print(level <= FUSE_LOG_ERR ? LOG_LEVEL_ERROR : LOG_LEVEL_DEBUG, "%s", line);
}

static char *take_words(void)
{
	while (fuse_words.size && fuse_words.data[fuse_words.size - 1] == '\n')
		fuse_words.size--;
	return fuse_words.size ? buffer_steal_string(&fuse_words) : NULL;
}

/* ---- Mounting ------------------------------------------------------------------------------ */

static int add_option(struct fuse_args *args, const char *option)
{
	return fuse_opt_add_arg(args, "-o") < 0 || fuse_opt_add_arg(args, option) < 0 ? -ENOMEM : 0;
}

static int add_name(struct fuse_args *args, const char *uri)
{
	cleanup_buffer struct buffer option = {0};
	cleanup_free char *text = NULL;

	buffer_append_string(&option, "fsname=");
	for (const char *c = uri; *c; c++)
		buffer_printf(&option, *c == ',' || *c == '\\' ? "\\%c" : "%c", *c);
	text = buffer_steal_string(&option);
	return text ? add_option(args, text) : -ENOMEM;
}

static int build_arguments(const struct mount_options *options, struct fuse_args *args)
{
	int r = fuse_opt_add_arg(args, "isthmus") < 0 ? -ENOMEM : 0;

	if (r == 0)
		r = add_name(args, options->uri);
	if (r == 0)
		r = add_option(args, "subtype=isthmus");
	if (r == 0 && !root_alone(options))
		r = add_option(args, "default_permissions");
	if (r == 0 && options->read_only)
		r = add_option(args, "ro");
	for (const char *const *pair = options->fuse_pairs; pair && *pair && r == 0; pair++)
		r = add_option(args, *pair);
	return r;
}

static int mount_session(struct session *s, char **ret_reason)
{
	struct mount *m = s->mount;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int r = build_arguments(m->options, &args);

	fuse_set_log_func(keep_message);
	if (r == 0) {
		s->fuse = fuse_session_new(&args, &operations, sizeof(operations), s);
		r = s->fuse ? 0 : -EINVAL;
	}
	fuse_opt_free_args(&args);
	if (r == 0 && fuse_session_mount(s->fuse, m->options->mount_point) < 0) {
		r = -EPERM;
		fuse_session_destroy(s->fuse);
		s->fuse = NULL;
	}
	if (r == 0) {
		m->connection = mount_point_connection(m->options->mount_point);
		r = session_raw_attach(s);
	}
	if (r < 0)
		*ret_reason = take_words();
	buffer_done(&fuse_words);
	fuse_set_log_func(log_message);
	return r;
}

/* ---- Running --------------------------------------------------------------------------------- */

static sem_t stop_wanted; /* posted by signal handlers too */
static atomic_bool was_stopped;

void mount_stop(struct mount *m)
{
	(void)m;
	was_stopped = true;
	sem_post(&stop_wanted);
}

struct stopper {
	struct session *session;
	pthread_t thread;
	atomic_bool over; /* the session has ended by itself: unmounted from outside */
};

/* A silent far end is not waited for any longer: the user who ends the daemon wants it to end. */
bool session_link_is_silent(const struct session *s)
{
	struct workspace_status status = {0};

	workspace_status(s->mount->workspace, &status);
	return status.link != LINK_ONLINE;
}

static void write_pages(struct session *s, const char *path)
{
	int r = -ETIMEDOUT;

	for (int i = 0; i < WRITE_WAITS_MAX && r == -ETIMEDOUT; i++) {
		r = mount_point_write_pages(path, WRITE_WAIT_MS);
		if (session_link_is_silent(s))
			break;
	}
	if (r < 0)
		log_warning("\"%s\": changes made through mmap(2) may not all be written "
			    "(%s), ignoring",
			path, strerror(-r));
}

/* While other threads serve, as they serve the writes of mapped pages.  Where this mount was
 * detached, another one may be mounted by now. */
static void unmount(struct session *s)
{
	const char *path = s->mount->options->mount_point;
	const struct change_observer *observer = s->observer;

	if (observer)
		observer->ending(observer->user);
	if (mount_point_connection(path) != s->mount->connection)
		return;
	if (mount_point_unmount(path, false) != -EBUSY)
		return;
	write_pages(s, path);
	session_wait_for_pages(s);
	mount_point_detach(path);
}

static bool connection_is_gone(struct session *s)
{
	struct pollfd device = {.fd = fuse_session_fd(s->fuse)};

	return poll(&device, 1, 0) == 1 && (device.revents & POLLERR);
}

void session_abort_connection(struct session *s)
{
	/* Else another mount may have its number by now. */
	if (!connection_is_gone(s))
		mount_point_abort(s->mount->connection);
}

static void *stopper_main(void *data)
{
	struct stopper *stopper = data;
	struct session *s = stopper->session;

	while (sem_wait(&stop_wanted) < 0)
		;
	if (!stopper->over) {
		unmount(s);
		session_loop_end(s);
	}
	return NULL;
}

static int serve(struct session *s, void (*ready)(void *user), void *user)
{
	struct stopper stopper = {.session = s};
	int r = thread_start(&stopper.thread, "stopper", 0, stopper_main, &stopper);

	if (r < 0)
		return r;
	r = session_loop_start(s);
	if (r == 0 && ready)
		ready(user);
	if (r == 0)
		session_loop_wait(s);
	stopper.over = true;
	sem_post(&stop_wanted);
	pthread_join(stopper.thread, NULL);
	return r;
}

struct closing {
	struct session *session;
	sem_t over;
	atomic_bool gives_up;
};

/* Written data is sent for as long as -o timeout says; after a signal to end, for as long as the
 * far end answers. */
static void *watch_closing(void *data)
{
	struct closing *closing = data;
	int64_t heard_ms = clock_now_ms();
	struct timespec until;

	do {
		if (!was_stopped || !session_link_is_silent(closing->session))
			heard_ms = clock_now_ms();
		closing->gives_up = clock_now_ms() - heard_ms >= SILENT_CLOSE_MS;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
	} while (sem_clockwait(&closing->over, CLOCK_MONOTONIC, &until) < 0);
	return NULL;
}

static bool gives_up(struct op_context *op)
{
	const struct closing *closing = op->interrupted_data;

	return closing->gives_up;
}

static void close_all(struct session *s)
{
	struct closing closing = {.session = s};
	struct op_context op;
	pthread_t thread;
	bool is_watched;

	op_context_init(&op);
	op.interrupted = gives_up;
	op.interrupted_data = &closing;
	sem_init(&closing.over, 0, 0);
	is_watched = thread_start(&thread, "closing", 0, watch_closing, &closing) == 0;
	inode_table_close_all(s->mount->inodes, &op);
	sem_post(&closing.over);
	if (is_watched)
		pthread_join(thread, NULL);
	sem_destroy(&closing.over);
}

static void directory_forgotten(void *user, const struct object_ref *directory)
{
	struct session *s = user;
	struct inode *inode;

	workspace_unwatch(s->mount->workspace, directory);
	/* A lookup may have found it again, while it counted as watched. */
	inode = inode_table_find_id(s->mount->inodes, &directory->id);
	if (inode && s->invalidator)
		invalidator_unwatched(s->invalidator, &directory->id);
	inode_table_unref(s->mount->inodes, inode);
}

static int make_table(struct session *s)
{
	struct mount *m = s->mount;
	struct attributes root;
	struct op_context op;
	int r;

	op_context_init(&op);
	r = workspace_getattr(&op, m->workspace, &OBJECT_AT(""), &root);
	if (r == 0 && !S_ISDIR(root.mode))
		r = -ENOTDIR;
	return r < 0 ? r : inode_table_new(&root, directory_forgotten, s, &m->inodes);
}

static int session_new(struct mount *m)
{
	struct session *s = calloc(1, sizeof(*s));
	struct workspace_status status;

	if (!s)
		return -ENOMEM;
	workspace_status(m->workspace, &status);
	s->is_remote = status.capabilities & WORKSPACE_IS_REMOTE;
	s->can_watch = status.capabilities & WORKSPACE_CAN_WATCH;
	s->ignores_case = status.capabilities & WORKSPACE_IGNORES_CASE;
	s->mount = m;
	if (!m->options->cache_strict) {
		s->watched_ttl = WATCHED_TTL_SECONDS;
		s->ttl = m->options->ttl_ms / 1000.0;
	}
	s->brief_ttl = s->can_watch && s->ttl > BRIEF_TTL_SECONDS ? BRIEF_TTL_SECONDS : s->ttl;
	pthread_mutex_init(&s->rename_lock, NULL);
	pthread_rwlock_init(&s->store_lock, NULL);
	clock_cond_init(&s->rename_done);
	pthread_mutex_init(&s->backing_lock, NULL);
	pthread_mutex_init(&s->direct_writes_lock, NULL);
	pthread_mutex_init(&s->listings_lock, NULL);
	announce_init(s);
	s->may_pass_through = geteuid() == 0 && m->workspace->ops->descriptor;
	pthread_mutex_init(&s->threads_lock, NULL);
	clock_cond_init(&s->threads_changed);
	m->edge = s;
	return 0;
}

int mount_run(struct mount *m, void (*ready)(void *user), void *user, char **ret_reason)
{
	int r;

	*ret_reason = NULL;
	sem_init(&stop_wanted, 0, 0);
	if (was_stopped) /* by a signal that came before */
		sem_post(&stop_wanted);
	r = session_new(m);
	if (r == 0)
		r = make_table(m->edge);
	if (r == 0)
		r = mount_session(m->edge, ret_reason);
	if (r < 0)
		return r;
	m->session = m->edge->fuse;
	r = dropper_start(m->edge, &m->edge->dropper);
	if (r == 0)
		r = invalidator_start(m->edge, &m->edge->invalidator);
	if (r == 0)
		r = serve(m->edge, ready, user);
	if (r < 0)
		fuse_session_unmount(m->edge->fuse);
	/* A lazy unmount leaves it behind, and the threads that are ended now may wait for what
	 * uses it. */
	if (m->edge->ending)
		session_abort_connection(m->edge);
	invalidator_stop(m->edge->invalidator);
	dropper_stop(m->edge->dropper);
	close_all(m->edge);
	return r;
}

void mount_drain_changes(struct mount *m)
{
	/* The control socket is there before the kernel's side is. */
	if (m->edge && m->edge->invalidator)
		invalidator_drain(m->edge->invalidator);
}

bool mount_is_written(struct mount *m, const struct object_id *id)
{
	struct inode *inode = m->inodes ? inode_table_find_id(m->inodes, id) : NULL;
	struct inode_state state;

	if (!inode)
		return false;
	inode_table_state(m->inodes, inode, &state);
	inode_table_unref(m->inodes, inode);
	return state.writers > 0;
}

void mount_done(struct mount *m)
{
	struct session *s = m->edge;

	if (!s)
		return;
	invalidator_free(s->invalidator);
	if (s->fuse) {
		if (connection_is_gone(s))
			fuse_session_unmount(s->fuse); /* only frees: the path may be another's */
		fuse_session_destroy(s->fuse);
	}
	session_directories_done(s);
	announce_done(s);
	inode_table_free(m->inodes);
	dropper_free(s->dropper);
	free(s);
	m->edge = NULL;
	m->session = NULL;
	m->inodes = NULL;
}
