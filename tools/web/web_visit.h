/*
 * tools/web/web_visit.h - fetches a page and follows its redirects, each with its own permission
 * and address check.
 * Threads: a visit belongs to one thread.
 */
#pragma once

#include "tools/base/tool.h"
#include "tools/web/fetch.h"

struct web_visit {
	struct fetch_url url; /* the URL to fetch; afterwards the one after all redirects */
	struct fetch_response response;
	const char *accept; /* header "Accept: ..." */
	bool refresh;       /* do not use the cache */
	bool cached;        /* the response is from the cache */
	int64_t timeout_ms; /* for the page with all redirects */
};

void web_visit_done(struct web_visit *visit);
#define cleanup_visit cleanup_with(web_visit_done)

/* Asks for permission to fetch from the domain of the URL.  0 or -1 (recorded). */
int web_ask(struct tool_call *call, const struct fetch_url *url);

/* Fetches `visit->url`.  0 with any HTTP status, or -1 (recorded). */
int web_visit(struct tool_call *call, struct web_visit *visit);
