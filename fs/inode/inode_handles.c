#define XXH_INLINE_ALL
#include "fs/inode/inode_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <xxhash.h>

#include "ops/support/clock.h"
#include "ops/support/hash_seed.h"
#include "ops/workspace.h"

void handle_close_retry(struct open_handle *handle)
{
	struct op_context op;

	op_context_init(&op);
	workspace_close(&op, handle->file);
	free(handle);
}

/* ---- Numbers ------------------------------------------------------------------------- */

static size_t number_hash(uint64_t number)
{
	return (size_t)XXH3_64bits_withSeed(&number, sizeof(number), hash_seed());
}

static void **number_entry_link(void *entry)
{
	return (void **)&((struct open_handle *)entry)->number_next;
}

static size_t number_entry_hash(const void *entry)
{
	return number_hash(inode_number(((const struct open_handle *)entry)->inode));
}

static void hold_number(struct inode_table *t, struct open_handle *handle)
{
	handle->holds_number = true;
	hash_table_insert(&t->numbers, handle, number_entry_hash, number_entry_link);
}

/* The handle has left its inode; another may hold the number from now on. */
static void release_number(struct inode_table *t, struct open_handle *handle)
{
	if (!handle->holds_number)
		return;
	hash_table_remove(&t->numbers, handle, number_entry_hash, number_entry_link);
	if (inode_file(handle->inode)->handles)
		hold_number(t, inode_file(handle->inode)->handles);
}

bool handle_has_number(const struct inode_table *t, const struct object_id *id)
{
	uint64_t number = inode_table_number_of(t, id);
	const struct open_handle *handle =
		t->numbers.buckets[number_hash(number) & t->numbers.mask];

	for (; handle; handle = handle->number_next)
		if (inode_number(handle->inode) == number && !inode_has_id(handle->inode, id))
			return true;
	return false;
}

/* ---- Spare handles ------------------------------------------------------------------- */

static void leave_retry_handles(struct inode_table *t, struct open_handle *handle)
{
	*handle->retry_link = handle->retry_next;
	if (handle->retry_next)
		handle->retry_next->retry_link = handle->retry_link;
	else
		t->last_retry_handle = handle->retry_link;
}

static void join_retry_handles(struct inode_table *t, struct open_handle *handle)
{
	handle->retry_until_ns = clock_now_ns() + RETRY_HANDLE_NS;
	handle->retry_next = NULL;
	handle->retry_link = t->last_retry_handle;
	*t->last_retry_handle = handle;
	t->last_retry_handle = &handle->retry_next;
}

static void retry_handle_is_used(struct inode_table *t, struct open_handle *handle)
{
	leave_retry_handles(t, handle);
	join_retry_handles(t, handle);
}

static void leave_inode(struct inode_table *t, struct open_handle *handle)
{
	*handle->link = handle->next;
	if (handle->next)
		handle->next->link = handle->link;
	release_number(t, handle);
	if (handle->is_for_retry)
		leave_retry_handles(t, handle);
}

static void take_retry_handle(
	struct inode_table *t, struct open_handle *handle, struct forgotten **list)
{
	struct forgotten *entry = malloc(sizeof(*entry) + 1);

	leave_inode(t, handle);
	if (!entry) {
		handle_close_retry(handle);
		return;
	}
	*entry = (struct forgotten){.next = *list, .retry_handle = handle};
	*list = entry;
}

void handle_take_retry(struct inode_table *t, struct inode *inode, struct forgotten **list)
{
	struct open_handle *handle = inode_file(inode)->handles;

	assert(handle->is_for_retry && handle->references == 1);
	take_retry_handle(t, handle, list);
}

uint64_t inode_table_close_retry_handles(struct inode_table *t)
{
	uint64_t now = clock_now_ns(), next;
	struct forgotten *list = NULL;

	pthread_mutex_lock(&t->lock);
	while (t->retry_handles && t->retry_handles->retry_until_ns <= now)
		if (t->retry_handles->references == 1)
			take_retry_handle(t, t->retry_handles, &list);
		else
			retry_handle_is_used(t, t->retry_handles);
	next = t->retry_handles ? t->retry_handles->retry_until_ns : 0;
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	return next;
}

/* ---- Handles ------------------------------------------------------------------------- */

static bool is_writer(const struct open_handle *handle)
{
	return (handle->flags & O_ACCMODE) != O_RDONLY;
}

static bool is_mapper(const struct open_handle *handle)
{
	return (handle->flags & O_ACCMODE) == O_RDWR;
}

static struct open_handle *first_handle(const struct inode *inode)
{
	const struct inode_file *file = inode_file(inode);

	return file ? file->handles : NULL;
}

static struct open_handle *retry_handle_of(const struct inode *inode)
{
	struct open_handle *handle = first_handle(inode);

	while (handle && !handle->is_for_retry)
		handle = handle->next;
	return handle;
}

/* With the lock held. */
static void join_file(struct inode_table *t, struct inode_file *file, struct open_handle *handle)
{
	if (!file->handles)
		hold_number(t, handle);
	handle->references = 1;
	handle->next = file->handles;
	handle->link = &file->handles;
	if (handle->next)
		handle->next->link = &handle->next;
	file->handles = handle;
	if (handle->is_for_retry)
		join_retry_handles(t, handle);
	handle->inode->references += !handle->is_for_retry;
	if (is_writer(handle))
		file->is_mixed = ++file->writers > 1;
	file->mappers += is_mapper(handle);
}

int inode_table_handle_add(struct inode_table *t, struct open_handle *handle)
{
	struct inode_file *file;
	int r = 0;

	if (handle->inode->is_directory)
		return -EISDIR;
	pthread_mutex_lock(&t->lock);
	file = inode_make_file(t, handle->inode);
	if (!file)
		r = -ENOMEM;
	else if (handle->is_for_retry && retry_handle_of(handle->inode))
		r = -EEXIST;
	else
		join_file(t, file, handle);
	pthread_mutex_unlock(&t->lock);
	return r;
}

bool inode_table_is_kept(struct inode_table *t, const struct object_id *id)
{
	struct open_handle *retry_handle;
	const struct inode *inode;

	pthread_mutex_lock(&t->lock);
	inode = inode_find(t, id);
	retry_handle = inode ? retry_handle_of(inode) : NULL;
	if (retry_handle)
		retry_handle_is_used(t, retry_handle);
	pthread_mutex_unlock(&t->lock);
	return retry_handle;
}

struct open_handle *inode_table_handle_any(
	struct inode_table *t, struct inode *inode, bool for_retry)
{
	struct open_handle *handle;

	pthread_mutex_lock(&t->lock);
	handle = first_handle(inode);
	while (handle && !is_writer(handle) && handle->next)
		handle = handle->next;
	/* A retry handle was opened for the object, so it certainly leads there. */
	if (handle && !is_writer(handle) && retry_handle_of(inode))
		handle = retry_handle_of(inode);
	if (handle && !for_retry && handle->is_for_retry && !first_handle(inode)->next)
		handle = NULL;
	if (handle)
		handle->references++;
	if (handle && handle->is_for_retry)
		retry_handle_is_used(t, handle);
	pthread_mutex_unlock(&t->lock);
	return handle;
}

static void handle_free(struct open_handle *handle)
{
	if (handle->release)
		handle->release(handle);
	free(handle);
}

int inode_table_handle_put(
	struct inode_table *t, struct op_context *ctx, struct open_handle *handle)
{
	struct forgotten *list = NULL;
	bool last;
	int r;

	pthread_mutex_lock(&t->lock);
	last = --handle->references == 0;
	if (last) {
		leave_inode(t, handle);
		inode_file(handle->inode)->writers -= is_writer(handle);
		inode_file(handle->inode)->mappers -= is_mapper(handle);
		inode_unref(t, handle->inode, &list);
	}
	pthread_mutex_unlock(&t->lock);
	inode_report_forgotten(t, list);
	if (!last)
		return 0;
	r = workspace_close(ctx, handle->file);
	handle_free(handle);
	return r;
}

/* Takes all handles of all inodes, linked by `next`. */
static struct open_handle *take_handles(struct inode_table *t)
{
	struct open_handle *all = NULL;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i <= t->inodes.mask; i++)
		for (struct inode *inode = slab_at(t->inodes.buckets[i]); inode;
			inode = slab_at(inode->next)) {
			struct open_handle *handle;

			while ((handle = first_handle(inode))) {
				inode_file(inode)->handles = handle->next;
				handle->next = all;
				all = handle;
			}
		}
	pthread_mutex_unlock(&t->lock);
	return all;
}

void inode_table_close_all(struct inode_table *t, struct op_context *ctx)
{
	struct open_handle *handle = take_handles(t);

	while (handle) {
		struct open_handle *next = handle->next;

		workspace_close(ctx, handle->file);
		handle_free(handle);
		handle = next;
	}
}
