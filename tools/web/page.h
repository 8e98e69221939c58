/*
 * tools/web/page.h - converts a server's response to text for a model.
 *
 * HTML becomes Markdown or plain text of its main part, with absolute links.  Feeds become lists of
 * their items, JSON is indented, other text stays unchanged.
 * PAGE_RESULTS is the result page of a search engine (tools/web/page_results.h).
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"

enum page_kind { PAGE_HTML, PAGE_FEED, PAGE_JSON, PAGE_RESULTS, PAGE_TEXT };
enum page_format { PAGE_MARKDOWN, PAGE_PLAIN, PAGE_SOURCE };

struct page_request {
	const char *text; /* UTF-8 without NUL, and NUL-terminated */
	size_t size;
	enum page_kind kind;
	enum page_format format;
	const char *base; /* URL that links are relative to */
	bool whole;       /* convert all of the page, not only the main part */
};

/* Appends the text to `out`.  The caller frees `*ret_title`; NULL: no title.  0; -ENOMEM;
 * -EMSGSIZE: the result would be disproportionately large. */
int page_convert(const struct page_request *request, struct buffer *out, char **ret_title);

/* The enum page_kind of a response; -1: it is not text.  If the Content-Type is missing or generic,
 * `bytes` decide. */
int page_kind_of(const char *content_type, const void *bytes, size_t size);

/* ---- In a limited child --------------------------------------------------------------- */

struct page_result {
	struct buffer text;
	char *title;   /* NULL: none */
	char *charset; /* of the response */
};

void page_result_done(struct page_result *result);
#define cleanup_page cleanup_with(page_result_done)

/* Determines the charset and converts, in a process without access to files or the network.  0;
 * -ECANCELED; -ETIMEDOUT or -ENOENT: it exceeded its time or its memory. */
int page_convert_apart(const struct page_request *request, const char *content_type, int cancel_fd,
	struct page_result *ret_result);

/* The main() of that process, `isthmus-tools page ...`.  Returns the exit status. */
int page_command(int argc, char **argv);
