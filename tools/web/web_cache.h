/*
 * tools/web/web_cache.h - pages of the last quarter of an hour, 32 MiB of them at most.
 *
 * They live as long as the program.
 * Threads: any.
 */
#pragma once

#include "tools/web/fetch.h"

/* Copies what was kept for the URL and the Accept header.  The final URL is the caller's to free.
 * 0; -ENOENT; -ENOMEM. */
int web_cache_find(const char *url, const char *accept, struct fetch_response *ret_response,
	char **ret_final_url);

/* Keeps a copy; without memory, or room, it does not. */
void web_cache_add(const char *url, const char *accept, const struct fetch_response *response,
	const char *final_url);
