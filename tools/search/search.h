/*
 * tools/search/search.h - finds the lines of a file that match a PCRE2 pattern.
 *
 * A line is matched by itself, without its line end (LF or CRLF), unless `multiline` says
 * that the pattern may span lines.  A file is binary, and left, once a NUL is read from it.
 * Threads: a pattern is shared; a searcher belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct search_options {
	const char *pattern;
	bool literal;
	bool ignore_case;
	bool multiline;
};

struct literals;
struct search_pattern;

/* 0; -EINVAL with PCRE2's words in `problem` and the byte where it is in `*ret_at`; -ENOMEM. */
int search_compile(const struct search_options *options, struct search_pattern **ret_pattern,
	char *problem, size_t problem_size, size_t *ret_at);
void search_pattern_free(struct search_pattern *pattern);

/* Strings one of which every line that matches has in it.  NULL: none would help. */
const struct literals *search_pattern_literals(const struct search_pattern *pattern);

struct search_line {
	uint64_t number;
	const uint8_t *text; /* without its line end */
	size_t size;
	bool is_match; /* else context */
};

struct search_request {
	unsigned context; /* lines before and after each match */

	/* Lines in order; valid during the call.  A negative result ends the search and is
	 * returned from it. */
	int (*line)(void *user, const struct search_line *line);
	void *user;
	bool (*stopped)(void *user); /* optional; asked now and then: true ends with -EINTR */
};

enum search_outcome_flags {
	SEARCH_BINARY = 1 << 0,    /* left at a NUL */
	SEARCH_TOO_HARD = 1 << 1,  /* PCRE2 gave up on a line (its match limit) */
	SEARCH_TOO_LARGE = 1 << 2, /* a line, or with multiline the file, is beyond 64 MiB */
};

struct searcher;

/* The pattern has to outlive it.  -ENOMEM. */
int searcher_new(const struct search_pattern *pattern, struct searcher **ret_searcher);
void searcher_free(struct searcher *searcher);

/* Searches what can be read from `fd`.  0 or -errno; `*ret_flags` says what was left out. */
int searcher_run(struct searcher *searcher, int fd, const struct search_request *request,
	unsigned *ret_flags);

/* The same of an excerpt (ops/support/excerpt.h) of a file that was made for
 * search_pattern_literals() with the context of the request. */
int searcher_run_excerpt(struct searcher *searcher, const uint8_t *excerpt, size_t size,
	const struct search_request *request, unsigned *ret_flags);
