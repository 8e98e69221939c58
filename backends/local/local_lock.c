#include "backends/local/local_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/hash_seed.h"
#include "ops/support/hash_table.h"

#ifndef sigev_notify_thread_id /* glibc 2.36 has no name for it */
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { INTERRUPT_MS = 50 }; /* a wait goes on for so long after its caller has given up */

/*
 * The POSIX locks of one owner on one file are open-file-description locks of a description
 * of their own: so they hold against processes at the workspace, and against other owners of
 * the same handle.
 */
struct lock_owner {
	struct lock_owner *next; /* in the table; under local_locks.mutex, as are those below */
	struct object_id file_id;
	uint64_t owner;
	const struct local_file *file; /* through which it came first */
	pid_t pid;
	unsigned users; /* calls under way */
	bool gone;      /* freed by the last user */
	int fd;
};

struct local_locks {
	pthread_mutex_t mutex;
	atomic_uint owner_count;
	struct hash_table owners; /* by file; under mutex */
};

static void interrupt(int signal)
{
	(void)signal;
}

int local_locks_new(struct local_locks **ret_locks)
{
	struct local_locks *locks = calloc(1, sizeof(*locks));
	struct sigaction action = {.sa_handler = interrupt};

	if (!locks || hash_table_init_small(&locks->owners) < 0) {
		free(locks);
		return -ENOMEM;
	}
	pthread_mutex_init(&locks->mutex, NULL);
	sigemptyset(&action.sa_mask);
	sigaction(SIGRTMIN, &action, NULL); /* see wait_lock() */
	*ret_locks = locks;
	return 0;
}

/* ---- The table: the owners of one file share a chain --------------------------------------- */

static size_t file_hash(const struct object_id *id)
{
	return (size_t)((id->inode ^ hash_seed()) * 0x9e3779b97f4a7c15U >> 32);
}

static size_t owner_hash(const void *entry)
{
	return file_hash(&((const struct lock_owner *)entry)->file_id);
}

static void **owner_link(void *entry)
{
	return (void **)&((struct lock_owner *)entry)->next;
}

static struct lock_owner *first_owner(struct local_locks *locks, const struct object_id *id)
{
	return hash_table_bucket(&locks->owners, file_hash(id));
}

static struct lock_owner *next_owner(struct local_locks *locks, struct lock_owner *owner)
{
	return hash_table_next(&locks->owners, owner, owner_hash, owner_link);
}

static void owner_free(struct lock_owner *owner)
{
	close(owner->fd);
	free(owner);
}

void local_locks_free(struct local_locks *locks)
{
	struct lock_owner *next;

	if (!locks)
		return;
	for (struct lock_owner *owner = next_owner(locks, NULL); owner; owner = next) {
		next = next_owner(locks, owner);
		owner_free(owner);
	}
	hash_table_done(&locks->owners);
	pthread_mutex_destroy(&locks->mutex);
	free(locks);
}

static struct lock_owner *find_owner(
	struct local_locks *locks, const struct object_id *id, uint64_t owner)
{
	struct lock_owner *at = first_owner(locks, id);

	while (at && (at->owner != owner || !object_id_equal(&at->file_id, id)))
		at = at->next;
	return at;
}

/* Takes it off the table; with mutex held. */
static void remove_owner(struct local_locks *locks, struct lock_owner *owner)
{
	hash_table_remove(&locks->owners, owner, owner_hash, owner_link);
	locks->owner_count--;
	owner->gone = true;
	if (!owner->users)
		owner_free(owner);
}

/* A description that can hold both kinds of lock where the file allows. */
static int open_description(const struct local_file *file)
{
	static const int accesses[] = {O_RDWR, O_RDONLY, O_WRONLY};
	struct local_fd_path path = local_fd_path(file->fd);
	int error = 0;

	for (size_t i = 0; i < array_size(accesses); i++) {
		int fd = open(path.text, accesses[i] | O_CLOEXEC | O_NONBLOCK);

		if (fd >= 0)
			return fd;
		error = error ? error : -errno;
	}
	return error;
}

static int get_owner(struct local_locks *locks, const struct local_file *file,
	const struct file_lock *lock, struct lock_owner **ret_owner)
{
	struct lock_owner *owner;
	int r = 0;

	pthread_mutex_lock(&locks->mutex);
	owner = find_owner(locks, &file->id, lock->owner);
	if (!owner) {
		owner = malloc(sizeof(*owner));
		r = owner ? open_description(file) : -ENOMEM;
		if (r < 0) {
			free(owner);
			goto out;
		}
		*owner = (struct lock_owner){.file_id = file->id,
			.owner = lock->owner,
			.file = file,
			.pid = lock->pid,
			.fd = r};
		hash_table_insert(&locks->owners, owner, owner_hash, owner_link);
		locks->owner_count++;
		r = 0;
	}
	owner->users++;
	*ret_owner = owner;
out:
	pthread_mutex_unlock(&locks->mutex);
	return r;
}

static void put_owner(struct local_locks *locks, struct lock_owner *owner)
{
	pthread_mutex_lock(&locks->mutex);
	if (--owner->users == 0 && owner->gone)
		owner_free(owner);
	pthread_mutex_unlock(&locks->mutex);
}

void local_locks_forget_file(struct local_locks *locks, const struct local_file *file)
{
	struct lock_owner *next;

	if (!locks->owner_count)
		return;
	pthread_mutex_lock(&locks->mutex);
	for (struct lock_owner *at = first_owner(locks, &file->id); at; at = next) {
		next = at->next;
		if (at->file == file)
			remove_owner(locks, at);
	}
	pthread_mutex_unlock(&locks->mutex);
}

int local_lock_release_owner(struct op_context *ctx, struct open_file *open_file, uint64_t owner)
{
	const struct local_file *file = local_file_from(open_file);
	struct local_locks *locks = local_from(open_file->workspace)->locks;
	struct lock_owner *at;

	(void)ctx;
	if (!locks->owner_count)
		return 0;
	pthread_mutex_lock(&locks->mutex);
	at = find_owner(locks, &file->id, owner);
	pthread_mutex_unlock(&locks->mutex);
	if (!at)
		return 0;
	local_drain(local_from(open_file->workspace)); /* see local_lock() */
	pthread_mutex_lock(&locks->mutex);
	at = find_owner(locks, &file->id, owner);
	if (at)
		remove_owner(locks, at);
	pthread_mutex_unlock(&locks->mutex);
	return 0;
}

/* ---- Setting ---------------------------------------------------------------------------------
 *
 * Changes of our own have been reported before a lock is released, and those by others when one has
 * been granted. */

static const short kernel_types[] = {
	[LOCK_SHARED] = F_RDLCK, [LOCK_EXCLUSIVE] = F_WRLCK, [LOCK_NONE] = F_UNLCK};
static const int flock_operations[] = {
	[LOCK_SHARED] = LOCK_SH, [LOCK_EXCLUSIVE] = LOCK_EX, [LOCK_NONE] = LOCK_UN};

static struct flock to_kernel(const struct file_lock *lock)
{
	return (struct flock){
		.l_type = kernel_types[lock->type],
		.l_whence = SEEK_SET,
		.l_start = (off_t)lock->offset,
		.l_len = (off_t)lock->length,
	};
}

static int set_lock(int fd, const struct file_lock *lock, bool wait)
{
	struct flock range = to_kernel(lock);
	int r;

	if (lock->kind == LOCK_KIND_FLOCK)
		r = flock(fd, flock_operations[lock->type] | (wait ? 0 : LOCK_NB));
	else
		r = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
	if (r < 0)
		return errno == EACCES ? -EAGAIN : -errno;
	return 0;
}

/* Sends SIGRTMIN to this thread every INTERRUPT_MS. */
static int start_interrupting(timer_t *ret_timer)
{
	const struct timespec interval = {.tv_nsec = INTERRUPT_MS * 1000000};
	struct sigevent to_thread = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};

	to_thread.sigev_notify_thread_id = gettid();
	if (timer_create(CLOCK_MONOTONIC, &to_thread, ret_timer) < 0)
		return -ENOLCK; /* its own EAGAIN would say that somebody holds the lock */
	timer_settime(*ret_timer, 0, &(struct itimerspec){interval, interval}, NULL);
	return 0;
}

/* Waits in the kernel, which grants the lock at once, whoever releases it.  A signal ends that
 * wait; one that comes just before it is followed by another. */
static int wait_lock(struct op_context *ctx, int fd, const struct file_lock *lock)
{
	sigset_t interrupts, before;
	timer_t timer;
	int r = start_interrupting(&timer);

	if (r < 0)
		return r;
	sigemptyset(&interrupts);
	sigaddset(&interrupts, SIGRTMIN);
	pthread_sigmask(SIG_UNBLOCK, &interrupts, &before);
	do
		r = set_lock(fd, lock, true);
	while (r == -EINTR && !op_interrupted(ctx));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	timer_delete(timer);
	return r;
}

static int take_lock(struct op_context *ctx, int fd, const struct file_lock *lock, bool wait)
{
	int r = set_lock(fd, lock, false);

	return r == -EAGAIN && wait ? wait_lock(ctx, fd, lock) : r;
}

int local_lock(struct op_context *ctx, struct open_file *open_file, const struct file_lock *lock,
	bool wait)
{
	const struct local_workspace *w = local_from(open_file->workspace);
	struct local_file *file = local_file_from(open_file);
	struct lock_owner *owner = NULL;
	int r;

	if (lock->type == LOCK_NONE && lock->kind == LOCK_KIND_POSIX && !lock->offset &&
		!lock->length)
		return local_lock_release_owner(ctx, open_file, lock->owner);
	file->had_lock = true;
	if (lock->type == LOCK_NONE)
		local_drain(w);
	if (lock->kind == LOCK_KIND_FLOCK) {
		r = take_lock(ctx, file->fd, lock, wait);
	} else {
		r = get_owner(w->locks, file, lock, &owner);
		if (r < 0)
			return r;
		r = take_lock(ctx, owner->fd, lock, wait);
		put_owner(w->locks, owner);
	}
	if (r == 0 && lock->type != LOCK_NONE) {
		local_drain(w); /* what others changed before they released it */
		local_draw(ctx);
		local_tell_object(ctx, file->fd);
	}
	return r;
}

/* ---- Testing ------------------------------------------------------------------------------- */

/* The kernel has no process for these locks; if only one owner can hold it, it is known here. */
static pid_t guess_holder(
	struct local_locks *locks, const struct object_id *id, uint64_t asking_owner)
{
	pid_t pid = 0;
	unsigned count = 0;

	pthread_mutex_lock(&locks->mutex);
	for (struct lock_owner *at = first_owner(locks, id); at; at = at->next)
		if (at->owner != asking_owner && object_id_equal(&at->file_id, id)) {
			pid = at->pid;
			count++;
		}
	pthread_mutex_unlock(&locks->mutex);
	return count == 1 ? pid : 0;
}

/* The caller's own locks must not conflict. */
static int test_posix(
	struct local_locks *locks, const struct local_file *file, struct file_lock *lock)
{
	struct flock range = to_kernel(lock);
	struct lock_owner *owner;
	int r;

	pthread_mutex_lock(&locks->mutex);
	owner = find_owner(locks, &file->id, lock->owner);
	r = fcntl(owner ? owner->fd : file->fd, F_OFD_GETLK, &range) < 0 ? -errno : 0;
	pthread_mutex_unlock(&locks->mutex);
	if (r < 0)
		return r;
	if (range.l_type == F_UNLCK) {
		lock->type = LOCK_NONE;
		return 0;
	}
	lock->type = range.l_type == F_RDLCK ? LOCK_SHARED : LOCK_EXCLUSIVE;
	lock->offset = (uint64_t)range.l_start;
	lock->length = (uint64_t)range.l_len;
	lock->pid = range.l_pid > 0 ? range.l_pid : guess_holder(locks, &file->id, lock->owner);
	return 0;
}

int local_lock_test(struct op_context *ctx, struct open_file *open_file, struct file_lock *lock)
{
	const struct local_file *file = local_file_from(open_file);

	(void)ctx;
	if (lock->kind == LOCK_KIND_FLOCK)
		return -EOPNOTSUPP; /* there is no such system call */
	return test_posix(local_from(open_file->workspace)->locks, file, lock);
}
