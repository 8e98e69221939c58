/* Locks of files, and the content that comes with them. */
#include "backends/remote/client/client_internal.h"

/* A lock that was asked for, with the first bytes of the file. */
struct grant {
	struct remote_file *file;
	const struct file_lock *lock;
	size_t wanted;
	uint64_t changes; /* made here before */
};

/* What was read ahead, or came with the open, is from before.  What comes with the lock does not
 * count if the file was changed here meanwhile, or a change is told that came after the lock. */
static int64_t take_grant(void *user, struct remote_request *request, int64_t result)
{
	const struct grant *grant = user;
	struct remote_file *file = grant->file;
	struct remote *remote = file->remote;
	struct call *call = request->call;
	const uint64_t at = call->position;
	size_t got = 0;
	const uint8_t *data = wire_get_bytes(&call->body, &got);

	result = remote_request_finish(request, result);
	if (result < 0 || grant->lock->type == LOCK_NONE)
		return result;
	/* What others changed before they released it was told before this reply; but for what is
	 * not watched. */
	remote_feed_await(remote, call->changes);
	if (remote->unwatched || !remote->sink)
		remote_object_changed(remote, NULL, at);
	file->has_locks = true; /* until it is closed */
	if (grant->lock->type == LOCK_EXCLUSIVE)
		file->has_exclusive = true;
	remote_file_changed(file);
	remote_file_locked(file, grant->lock, at, steal_ptr(&call->payload), data,
		got <= grant->wanted ? got : 0, grant->wanted);
	if (remote->own_changes != grant->changes + 1 || remote->feed_at > at)
		remote_file_drop_prefill(file);
	return result;
}

/* Through any handle.  Every close(2) comes by here: without locks it costs nothing. */
static bool object_has_locks(struct remote_file *file, bool exclusive)
{
	struct remote *remote = file->remote;
	bool found = false;

	pthread_mutex_lock(&remote->lock);
	for (struct remote_file *f = remote_files_of(remote, &file->id); f && !found; f = f->next)
		found = (exclusive ? f->has_exclusive : f->has_locks) &&
			object_id_equal(&f->id, &file->id);
	pthread_mutex_unlock(&remote->lock);
	return found;
}

int remote_lock(struct op_context *ctx, struct open_file *open_file, const struct file_lock *lock,
	bool wait)
{
	cleanup_remote_request struct remote_request request =
		remote_request_on(ctx, open_file, REQUEST_LOCK);
	struct remote_file *file = request.file;
	struct grant grant = {file, lock, 0, file->remote->own_changes};

	if (lock->type != LOCK_NONE)
		grant.wanted = remote_file_wanted_with(file, lock);
	wire_put_lock(&request.arguments, lock);
	wire_put_number(&request.arguments, wait);
	wire_put_number(&request.arguments, grant.wanted);
	if (lock->type == LOCK_NONE)
		remote_file_unlocked(file, lock);
	request.is_behind_writes = lock->type == LOCK_NONE ||
				   (lock->type == LOCK_SHARED && object_has_locks(file, true));
	request.gives_back = lock->type == LOCK_NONE;
	request.makes = file->handle;
	request.lock = *lock;
	if (lock->type == LOCK_NONE && remote_queue_unlock(&request))
		return 0;
	return (int)remote_request_run(&request, take_grant, &grant);
}

static int64_t take_lock(void *ret_lock, struct remote_request *request, int64_t result)
{
	struct file_lock found = {0};

	wire_get_lock(&request->call->body, &found);
	result = remote_request_finish(request, result);
	if (result >= 0)
		*(struct file_lock *)ret_lock = found;
	return result;
}

int remote_lock_test(struct op_context *ctx, struct open_file *file, struct file_lock *lock)
{
	cleanup_remote_request struct remote_request request =
		remote_request_on(ctx, file, REQUEST_LOCK_TEST);

	wire_put_lock(&request.arguments, lock);
	return (int)remote_request_run(&request, take_lock, lock);
}

int remote_lock_release_owner(struct op_context *ctx, struct open_file *file, uint64_t owner)
{
	cleanup_remote_request struct remote_request request =
		remote_request_on(ctx, file, REQUEST_LOCK_RELEASE_OWNER);

	if (!object_has_locks(request.file, false))
		return 0;
	request.is_behind_writes = true; /* to all files: the next holder is to find them */
	request.gives_back = true;
	wire_put_number(&request.arguments, owner);
	return (int)remote_request_run(&request, NULL, NULL);
}
