/*
 * tools/web/web_visit.h - a page, with its redirects, each asked for and checked as a page of its
 * own. Threads: a visit belongs to one.
 */
#pragma once

#include "tools/base/tool.h"
#include "tools/web/fetch.h"

struct web_visit {
	struct fetch_url url; /* of the page in the end */
	struct fetch_response response;
	const char *accept; /* header "Accept: ..." */
	bool refresh;       /* not what was kept */
	bool cached;
	int64_t timeout_ms; /* of it all */
};

void web_visit_done(struct web_visit *visit);
#define cleanup_visit cleanup_with(web_visit_done)

/* Asks whether the tool may fetch from there, by domain.  0 or -1 (recorded). */
int web_ask(struct tool_call *call, const struct fetch_url *url);

/* Fetches `visit->url`, whatever its status is.  0 or -1 (recorded). */
int web_visit(struct tool_call *call, struct web_visit *visit);
