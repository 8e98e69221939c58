#include "backends/mem/mem.h"

#include <errno.h>
#include <stdlib.h>

#include "ops/support/clock.h"

/* A waiter looks at interrupted() this often. */
enum { POLL_MS = 50 };

static uint64_t lock_end(const struct file_lock *lock)
{
	return lock->length ? lock->offset + lock->length : UINT64_MAX;
}

static uint64_t length_to(uint64_t offset, uint64_t end)
{
	return end == UINT64_MAX ? 0 : end - offset;
}

static bool overlaps(const struct file_lock *a, const struct file_lock *b)
{
	return a->kind == LOCK_KIND_FLOCK || (a->offset < lock_end(b) && b->offset < lock_end(a));
}

static bool same_owner(
	const struct mem_lock *held, const struct file_lock *lock, const void *handle)
{
	return lock->kind == LOCK_KIND_FLOCK ? held->handle == handle
					     : held->lock.owner == lock->owner;
}

static const struct mem_lock *find_conflict(
	const struct mem_inode *inode, const struct file_lock *lock, const void *handle)
{
	const struct mem_lock *held = inode->locks;

	while (held && (held->lock.kind != lock->kind || same_owner(held, lock, handle) ||
			       !overlaps(&held->lock, lock) ||
			       (held->lock.type == LOCK_SHARED && lock->type == LOCK_SHARED)))
		held = held->next;
	return held;
}

static int add_lock(
	struct mem *m, struct mem_inode *inode, const struct file_lock *lock, const void *handle)
{
	struct mem_lock *held;

	if (mem_charge(m, sizeof(*held)) < 0)
		return -ENOMEM;
	held = malloc(sizeof(*held));
	if (!held) {
		mem_refund(m, sizeof(*held));
		return -ENOMEM;
	}
	*held = (struct mem_lock){.next = inode->locks, .lock = *lock, .handle = handle};
	inode->locks = held;
	return 0;
}

static void drop_lock(struct mem *m, struct mem_lock **link)
{
	struct mem_lock *held = *link;

	*link = held->next;
	mem_refund(m, sizeof(*held));
	free(held);
}

/* Takes the range of `lock` out of one held lock; what is before and behind it stays. */
static int carve(struct mem *m, struct mem_inode *inode, struct mem_lock **link,
	const struct file_lock *lock)
{
	const void *handle = (*link)->handle;
	struct file_lock *held = &(*link)->lock;
	uint64_t end = lock_end(lock), held_end = lock_end(held);
	struct file_lock tail = *held;
	int r;

	if (held->offset >= lock->offset && held_end <= end) {
		drop_lock(m, link);
		return 0;
	}
	if (held_end > end) {
		tail.offset = end;
		tail.length = length_to(end, held_end);
		if (held->offset >= lock->offset) {
			*held = tail;
			return 0;
		}
		r = add_lock(m, inode, &tail, handle);
		if (r < 0)
			return r;
	}
	held->length = lock->offset - held->offset;
	return 0;
}

static int drop_range(struct mem *m, struct mem_inode *inode, const struct file_lock *lock)
{
	struct mem_lock **link = &inode->locks;

	while (*link) {
		struct mem_lock *held = *link;
		int r;

		if (held->lock.kind != lock->kind || held->lock.owner != lock->owner ||
			!overlaps(&held->lock, lock)) {
			link = &held->next;
			continue;
		}
		r = carve(m, inode, link, lock);
		if (r < 0)
			return r;
		if (*link == held)
			link = &held->next;
	}
	return 0;
}

/* Neighbours of one owner and type become one, so that a file locked byte by byte stays
 * cheap. */
static void merge_neighbours(struct mem *m, struct mem_inode *inode, struct file_lock *lock)
{
	struct mem_lock **link = &inode->locks;

	while (*link) {
		const struct file_lock *held = &(*link)->lock;
		uint64_t end = lock_end(lock), held_end = lock_end(held);

		if (held->kind != lock->kind || held->owner != lock->owner ||
			held->type != lock->type ||
			(held_end != lock->offset && held->offset != end)) {
			link = &(*link)->next;
			continue;
		}
		lock->offset = held->offset < lock->offset ? held->offset : lock->offset;
		lock->length = length_to(lock->offset, held_end > end ? held_end : end);
		drop_lock(m, link);
	}
}

static int set_posix(struct mem *m, struct mem_file *file, const struct file_lock *lock)
{
	struct mem_inode *inode = file->inode;
	struct file_lock merged = *lock;
	int r = drop_range(m, inode, lock);

	if (r < 0 || lock->type == LOCK_NONE)
		return r;
	merge_neighbours(m, inode, &merged);
	return add_lock(m, inode, &merged, file);
}

static void drop_handle(
	struct mem *m, struct mem_inode *inode, const void *handle, enum lock_kind kind)
{
	struct mem_lock **link = &inode->locks;

	while (*link)
		if ((*link)->handle == handle && (*link)->lock.kind == kind)
			drop_lock(m, link);
		else
			link = &(*link)->next;
}

static int set_lock(struct mem *m, struct mem_file *file, const struct file_lock *lock)
{
	if (lock->kind == LOCK_KIND_POSIX)
		return set_posix(m, file, lock);
	drop_handle(m, file->inode, file, LOCK_KIND_FLOCK);
	return lock->type == LOCK_NONE ? 0 : add_lock(m, file->inode, lock, file);
}

int mem_lock(struct op_context *ctx, struct open_file *open_file, const struct file_lock *lock,
	bool wait)
{
	struct mem *m = mem_of(open_file->workspace);
	struct mem_file *file = mem_file_of(open_file);
	int r = 0;

	if (lock->kind == LOCK_KIND_POSIX &&
		(lock->offset > INT64_MAX || lock->length > INT64_MAX - lock->offset))
		return -EINVAL;
	pthread_mutex_lock(&m->locks_mutex);
	while (r == 0 && lock->type != LOCK_NONE && find_conflict(file->inode, lock, file)) {
		if (!wait)
			r = -EAGAIN;
		else if (op_interrupted(ctx))
			r = -EINTR;
		else
			clock_cond_wait_ms(&m->locks_changed, &m->locks_mutex, POLL_MS);
	}
	if (r == 0)
		r = set_lock(m, file, lock);
	pthread_cond_broadcast(&m->locks_changed);
	pthread_mutex_unlock(&m->locks_mutex);
	return r;
}

int mem_lock_test(struct op_context *ctx, struct open_file *open_file, struct file_lock *lock)
{
	struct mem *m = mem_of(open_file->workspace);
	struct mem_file *file = mem_file_of(open_file);
	const struct mem_lock *conflict;

	(void)ctx;
	pthread_mutex_lock(&m->locks_mutex);
	conflict = find_conflict(file->inode, lock, file);
	if (conflict)
		*lock = conflict->lock;
	else
		lock->type = LOCK_NONE;
	pthread_mutex_unlock(&m->locks_mutex);
	return 0;
}

int mem_lock_release_owner(struct op_context *ctx, struct open_file *open_file, uint64_t owner)
{
	struct mem *m = mem_of(open_file->workspace);
	struct file_lock all = {.kind = LOCK_KIND_POSIX, .type = LOCK_NONE, .owner = owner};
	int r;

	(void)ctx;
	pthread_mutex_lock(&m->locks_mutex);
	r = drop_range(m, mem_file_of(open_file)->inode, &all);
	pthread_cond_broadcast(&m->locks_changed);
	pthread_mutex_unlock(&m->locks_mutex);
	return r;
}

void mem_locks_drop_handle(struct mem *m, struct mem_file *file)
{
	pthread_mutex_lock(&m->locks_mutex);
	drop_handle(m, file->inode, file, LOCK_KIND_FLOCK);
	drop_handle(m, file->inode, file, LOCK_KIND_POSIX);
	pthread_cond_broadcast(&m->locks_changed);
	pthread_mutex_unlock(&m->locks_mutex);
}

void mem_locks_free(struct mem *m, struct mem_inode *inode)
{
	while (inode->locks)
		drop_lock(m, &inode->locks);
}
