/*
 * tools/web/web_cache.h - a cache of pages in the memory of the program, for 15 minutes and up to
 * 32 MiB.
 * Threads: any.
 */
#pragma once

#include "tools/web/fetch.h"

/* Copies the cached response for the URL and the Accept header.  The caller frees `*ret_final_url`.
 * 0; -ENOENT; -ENOMEM. */
int web_cache_find(const char *url, const char *accept, struct fetch_response *ret_response,
	char **ret_final_url);

/* Adds a copy, unless the response forbids that (no_store) or there is no memory. */
void web_cache_add(const char *url, const char *accept, const struct fetch_response *response,
	const char *final_url);
