/* What WRITE_DETACHED requests are to write: it comes as DATA, by any connection, before them or
 * after them. */
#include <errno.h>
#include <stdlib.h>

#include "backends/remote/server/server_internal.h"

enum { CONTENT_COST_BYTES = 512 }; /* of each, beside its bytes */

static size_t hash_of(const void *entry)
{
	return ((const struct content *)entry)->id;
}

static void **link_of(void *entry)
{
	return (void **)&((struct content *)entry)->next;
}

static struct content *find(struct server *server, uint32_t id)
{
	struct content *content = hash_table_bucket(&server->contents, id);

	while (content && content->id != id)
		content = content->next;
	return content;
}

static void take_out(struct server *server, struct content *content)
{
	hash_table_remove(&server->contents, content, hash_of, link_of);
	server->content_bytes -= content->size + CONTENT_COST_BYTES;
}

void server_content_free(struct content *content)
{
	if (content)
		free(content->data);
	free(content);
}

/* Under the lock.  Owns the content on success. */
static int keep(struct server *server, struct content *content)
{
	size_t bytes = content->size + CONTENT_COST_BYTES;

	if (find(server, content->id)) {
		server_content_free(content);
		return 0;
	}
	if (server->content_bytes + bytes > CONTENT_MAX_BYTES)
		return -EPROTO;
	hash_table_insert(&server->contents, content, hash_of, link_of);
	server->content_bytes += bytes;
	return 0;
}

/* Under the lock. */
static void give(struct job *job, struct content *content)
{
	job->content = content;
	job->server->job_bytes += content->size;
}

void server_content_claim(struct job *job)
{
	struct content *content = NULL;

	if (job->header.type == REQUEST_WRITE_DETACHED)
		content = find(job->server, job->header.id);
	if (!content)
		return;
	take_out(job->server, content);
	give(job, content);
}

bool server_content_is_missing(struct job *job)
{
	job->lacks_content = job->header.type == REQUEST_WRITE_DETACHED && !job->content &&
			     !job->cancelled && !job->server->stopping;
	return job->lacks_content;
}

bool server_content_is_due(struct job *job)
{
	bool is_due = job->lacks_content;

	job->lacks_content = false;
	return is_due;
}

/* By the first connection it comes behind its request: without that it has come twice, and the
 * request is done.  Under the lock.  Owns the content on success. */
static int take(struct server_channel *channel, struct content *content, struct job **ret_due)
{
	struct server *server = channel->server;
	struct job *job = server_find_job(server, content->id);

	if (!job && channel->index > 0)
		return keep(server, content);
	if (job && job->header.type != REQUEST_WRITE_DETACHED)
		return -EPROTO;
	if (!job || job->content) {
		server_content_free(content);
		return 0;
	}
	give(job, content);
	if (server_content_is_due(job))
		*ret_due = job;
	return 0;
}

int server_content_take(
	struct server_channel *channel, const struct frame_header *header, uint8_t *payload)
{
	struct server *server = channel->server;
	struct content *content = malloc(sizeof(*content));
	struct job *due = NULL;
	int r;

	if (!content) {
		free(payload);
		return -ENOMEM;
	}
	*content = (struct content){
		.id = header->id, .channel = channel->index, .data = payload, .size = header->size};
	pthread_mutex_lock(&server->lock);
	r = take(channel, content, &due);
	pthread_mutex_unlock(&server->lock);
	if (r < 0)
		server_content_free(content);
	if (due)
		server_submit(due);
	return r;
}

void server_forget_content(struct server *server, unsigned channel)
{
	struct content *content, *next;

	pthread_mutex_lock(&server->lock);
	content = hash_table_next(&server->contents, NULL, hash_of, link_of);
	for (; content; content = next) {
		next = hash_table_next(&server->contents, content, hash_of, link_of);
		if (content->channel != channel)
			continue;
		take_out(server, content);
		server_content_free(content);
	}
	pthread_mutex_unlock(&server->lock);
}
