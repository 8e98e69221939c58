/*
 * tools/web/search.h - search engines, each as its published interface has it.
 *
 * The first that is configured is asked: Tavily and Brave by their key, SearXNG by its URL, Exa
 * when it is switched on, else DuckDuckGo.  Keys come from the environment or from
 * ~/.config/isthmus/keys; they go into a header of one request, which follows no redirect.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"
#include "tools/web/fetch.h"

enum { SEARCH_RESULTS_MAX = 20, SEARCH_SNIPPET_MAX_BYTES = 400 };

/* A request; everything in it is its own. */
struct search_ask {
	char *url;
	char *post;       /* NULL: GET */
	char *headers[3]; /* NULL past the last one */
};

struct search_provider {
	const char *name;
	const char *key_name;    /* variable with the key; NULL: it needs none */
	const char *switch_name; /* variable that switches it on; NULL: it needs none */
	const char *url_name;    /* variable with another base URL */
	const char *url;         /* NULL: only where the variable is set */
	const char *user_agent;  /* NULL: our own name */

	/* `key` is "" where none is needed.  0 or -ENOMEM. */
	int (*ask)(struct search_ask *ask, const char *base, const char *key, const char *query,
		int count);

	/* Adds the results of an answer to `sources`.  0; -EPROTO: it has another shape; -EBUSY: it
	 * wants a person; -ENOMEM, -ECANCELED. */
	int (*read)(struct tool_call *call, struct fetch_response *response, cJSON *sources);
};

extern const struct search_provider search_tavily, search_brave, search_searxng, search_exa,
	search_duckduckgo;

/* Asks and reads.  `*ret_provider` is static.  0 or -1 (recorded). */
int search(struct tool_call *call, const char *query, int count, int64_t timeout_ms, cJSON *sources,
	const char **ret_provider);

/* For the providers: adds one, without tags, unless its URL is there; 0 or -ENOMEM. */
int search_add(cJSON *sources, const char *title, const char *url, const char *snippet);
