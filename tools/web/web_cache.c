#include "tools/web/web_cache.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "ops/support/clock.h"

enum { KEEP_MS = 15 * 60 * 1000, KEEP_BYTES = 32 << 20 };

struct kept {
	struct kept *next;
	char *url, *accept, *final_url;
	struct fetch_response response;
	int64_t made_ms;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *newest; /* guarded by lock */

static void kept_free(struct kept *kept)
{
	free(kept->url);
	free(kept->accept);
	free(kept->final_url);
	fetch_response_done(&kept->response);
	free(kept);
}

static int copy(const struct fetch_response *from, struct fetch_response *ret_to)
{
	struct fetch_response to cleanup_response = {.status = from->status};

	to.content_type = from->content_type ? strdup(from->content_type) : NULL;
	if ((from->content_type && !to.content_type) ||
		buffer_append(&to.body, from->body.data, from->body.size) < 0)
		return -ENOMEM;
	*ret_to = to;
	to = (struct fetch_response){0};
	return 0;
}

static bool is_for(const struct kept *kept, const char *url, const char *accept)
{
	return strcmp(kept->url, url) == 0 && strcmp(kept->accept, accept) == 0;
}

/* Drops pages that are too old or beyond the bound, and the one for that URL.  Called with the lock
 * held. */
static void drop(const char *url, const char *accept)
{
	struct kept **at = &newest;
	size_t bytes = 0;

	while (*at) {
		struct kept *kept = *at;

		bytes += kept->response.body.size;
		if (bytes <= KEEP_BYTES && clock_now_ms() - kept->made_ms < KEEP_MS &&
			!(url && is_for(kept, url, accept))) {
			at = &kept->next;
			continue;
		}
		*at = kept->next;
		bytes -= kept->response.body.size;
		kept_free(kept);
	}
}

int web_cache_find(const char *url, const char *accept, struct fetch_response *ret_response,
	char **ret_final_url)
{
	char *final_url = NULL;
	int r = -ENOENT;

	pthread_mutex_lock(&lock);
	drop(NULL, NULL);
	for (const struct kept *kept = newest; kept && r == -ENOENT; kept = kept->next) {
		if (!is_for(kept, url, accept))
			continue;
		final_url = strdup(kept->final_url);
		r = final_url ? copy(&kept->response, ret_response) : -ENOMEM;
	}
	pthread_mutex_unlock(&lock);
	if (r < 0)
		free(final_url);
	else
		*ret_final_url = final_url;
	return r;
}

void web_cache_add(const char *url, const char *accept, const struct fetch_response *response,
	const char *final_url)
{
	struct kept *kept = response->no_store ? NULL : calloc(1, sizeof(*kept));

	if (!kept)
		return;
	kept->url = strdup(url);
	kept->accept = strdup(accept);
	kept->final_url = strdup(final_url);
	kept->made_ms = clock_now_ms();
	if (!kept->url || !kept->accept || !kept->final_url ||
		copy(response, &kept->response) < 0) {
		kept_free(kept);
		return;
	}
	pthread_mutex_lock(&lock);
	drop(url, accept);
	kept->next = newest;
	newest = kept;
	drop(NULL, NULL);
	pthread_mutex_unlock(&lock);
}
