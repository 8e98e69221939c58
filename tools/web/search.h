/*
 * tools/web/search.h - asks a search engine by its public interface.
 *
 * The first configured one is used: Tavily and Brave if there is a key, SearXNG if there is a URL,
 * Exa if it is switched on, else DuckDuckGo.  Keys come from the environment or from
 * ~/.config/isthmus/keys; a key is sent in a header of one request, which follows no redirect.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"
#include "tools/web/fetch.h"

enum { SEARCH_RESULTS_MAX = 20, SEARCH_SNIPPET_MAX_BYTES = 400 };

/* A request, which owns its strings. */
struct search_ask {
	char *url;
	char *post;       /* NULL: GET */
	char *headers[3]; /* NULL past the last one */
};

struct search_provider {
	const char *name;
	const char *key_name;    /* variable with the key; NULL: needs no key */
	const char *switch_name; /* variable that switches it on; NULL: always on */
	const char *url_name;    /* variable with another base URL */
	const char *url;         /* default base URL; NULL: used only if the variable is set */
	const char *user_agent;  /* NULL: that of isthmus */

	/* Builds the request.  `key`: "" if none is needed.  0 or -ENOMEM. */
	int (*ask)(struct search_ask *ask, const char *base, const char *key, const char *query,
		int count);

	/* Adds the results in the response to `sources`.  0; -EPROTO: unexpected format; -EBUSY:
	 * the engine asks for a person; -ENOMEM, -ECANCELED. */
	int (*read)(struct tool_call *call, struct fetch_response *response, cJSON *sources);
};

extern const struct search_provider search_tavily, search_brave, search_searxng, search_exa,
	search_duckduckgo;

/* Searches.  `*ret_provider`: the name of the engine, static.  0 or -1 (recorded). */
int search(struct tool_call *call, const char *query, int count, int64_t timeout_ms, cJSON *sources,
	const char **ret_provider);

/* For the providers: adds a result without its HTML tags, unless `sources` has its URL.  0 or
 * -ENOMEM. */
int search_add(cJSON *sources, const char *title, const char *url, const char *snippet);
