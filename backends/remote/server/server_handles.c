#include "backends/remote/server/server_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "ops/workspace.h"

static size_t hash_of(const void *entry)
{
	return ((const struct handle *)entry)->id;
}

static void **link_of(void *entry)
{
	return (void **)&((struct handle *)entry)->next;
}

struct handle *server_handle_find(struct server *server, uint64_t id)
{
	struct handle *handle = hash_table_bucket(&server->handles, (size_t)id);

	while (handle && handle->id != id)
		handle = handle->next;
	return handle;
}

struct handle *server_handle_get(struct server *server, uint64_t id)
{
	struct handle *handle;

	pthread_mutex_lock(&server->lock);
	handle = server_handle_find(server, id);
	if (handle)
		handle->refs++;
	pthread_mutex_unlock(&server->lock);
	return handle;
}

int server_handle_put(struct server *server, struct handle *handle)
{
	struct open_file *unnamed = NULL;
	struct op_context ctx;
	bool last, is_idle;
	int r = 0;

	pthread_mutex_lock(&server->lock);
	last = --handle->refs == 0;
	is_idle = handle->unnamed && handle->refs == 1 &&
		  server_handle_find(server, handle->id) == handle;
	if (last || is_idle)
		unnamed = steal_ptr(&handle->unnamed);
	pthread_mutex_unlock(&server->lock);
	op_context_init(&ctx);
	workspace_close(&ctx, unnamed);
	if (!last)
		return 0;
	r = workspace_close(&ctx, handle->file);
	free(handle);
	return r;
}

int server_handle_named(struct server *server, struct handle *handle, struct open_file *file,
	const struct object_id *object)
{
	int r = -EBADF;

	pthread_mutex_lock(&server->lock);
	if (!handle->is_named) {
		handle->is_named = true;
		handle->unnamed = handle->file; /* others may be using it */
		handle->file = file;
		handle->object = *object;
		r = 0;
	}
	pthread_mutex_unlock(&server->lock);
	return r;
}

int server_handle_add(
	struct server *server, uint64_t id, struct open_file *file, const struct object_id *object)
{
	struct handle *handle = calloc(1, sizeof(*handle));
	int r = 0;

	if (!handle)
		return -ENOMEM;
	handle->id = id;
	handle->refs = 1;
	handle->file = file;
	handle->object = *object;
	handle->last = &handle->first;
	pthread_mutex_lock(&server->lock);
	if (server_handle_find(server, id) || id == 0)
		r = -EBADF;
	else if (server->handles.count >= HANDLES_MAX)
		r = -EMFILE;
	if (r == 0)
		hash_table_insert(&server->handles, handle, hash_of, link_of);
	pthread_mutex_unlock(&server->lock);
	if (r < 0)
		free(handle);
	return r;
}

struct handle *server_handle_remove(struct server *server, uint64_t id)
{
	struct handle *handle;

	pthread_mutex_lock(&server->lock);
	handle = server_handle_find(server, id);
	if (handle)
		hash_table_remove(&server->handles, handle, hash_of, link_of);
	pthread_mutex_unlock(&server->lock);
	return handle;
}

void server_handles_close(struct server *server)
{
	struct handle *next, *handle = hash_table_next(&server->handles, NULL, hash_of, link_of);

	for (; handle; handle = next) {
		next = hash_table_next(&server->handles, handle, hash_of, link_of);
		server_handle_put(server, handle);
	}
}
