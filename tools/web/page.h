/*
 * tools/web/page.h - what a server sent, as text for a model.
 *
 * HTML becomes Markdown or plain text: its main part, links made absolute.  Feeds become lists of
 * their items, JSON is indented, other text stays as it is.
 * PAGE_RESULTS is a page of a search engine (tools/web/page_results.h).
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
	bool whole;       /* not the main part only */
};

/* Appends to `out`; `*ret_title` is the caller's to free, NULL: none.  0, -ENOMEM; -EMSGSIZE: the
 * result is out of all proportion. */
int page_convert(const struct page_request *request, struct buffer *out, char **ret_title);

/* What the type that a server states means; -1: it is not text.  `bytes` decide where it states
 * none, or one that says nothing. */
int page_kind_of(const char *content_type, const void *bytes, size_t size);

/* ---- In a limited child --------------------------------------------------------------- */

struct page_result {
	struct buffer text;
	char *title;   /* NULL: none */
	char *charset; /* what the bytes were read as */
};

void page_result_done(struct page_result *result);
#define cleanup_page cleanup_with(page_result_done)

/* Finds the charset and converts, in a process without files, network or other powers.  0;
 * -ECANCELED; -ETIMEDOUT or -ENOENT: it took more than its time or memory. */
int page_convert_apart(const struct page_request *request, const char *content_type, int cancel_fd,
	struct page_result *ret_result);

/* That process: `isthmus-tools page ...`.  Its exit code. */
int page_command(int argc, char **argv);
