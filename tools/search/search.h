/*
 * tools/search/search.h - finds the lines of a file that match a PCRE2 pattern.
 *
 * Each line is matched on its own, without its line end (LF or CRLF); with `multiline` a match may
 * span lines.  A file with a NUL is binary: the search of it ends there.  Text in UTF-16 with a
 * byte order mark is searched as UTF-8. Threads: any number of threads may share a pattern; a
 * searcher belongs to one thread.
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

/* 0; -ENOMEM; -EINVAL with PCRE2's message in `problem` and the error's offset in `*ret_at`. */
int search_compile(const struct search_options *options, struct search_pattern **ret_pattern,
	char *problem, size_t problem_size, size_t *ret_at);
void search_pattern_free(struct search_pattern *pattern);

/* The strings of literals_of_pattern(), one of which is in every matching line.  May be NULL. */
const struct literals *search_pattern_literals(const struct search_pattern *pattern);

struct search_line {
	uint64_t number;
	const uint8_t *text; /* without its line end */
	size_t size;
	bool is_match; /* false: a line of context */
	size_t match;  /* offset of the first match in `text`; 0 if it began on a line before */
};

struct search_request {
	unsigned context; /* lines before and after each match */

	/* Gets matching and context lines in order; `line` is valid during the call.  A negative
	 * result ends the search, which returns it. */
	int (*line)(void *user, const struct search_line *line);
	void *user;
	bool (*stopped)(void *user); /* optional; polled: true ends the search with -EINTR */
};

enum search_outcome_flags {
	SEARCH_BINARY = 1 << 0,    /* ended at a NUL */
	SEARCH_TOO_HARD = 1 << 1,  /* a line, or with multiline the file, exceeded PCRE2's limits */
	SEARCH_TOO_LARGE = 1 << 2, /* a line, or with multiline the file, exceeds 64 MiB */
};

struct searcher;

/* The pattern must outlive the searcher.  0 or -ENOMEM. */
int searcher_new(const struct search_pattern *pattern, struct searcher **ret_searcher);
void searcher_free(struct searcher *searcher);

/* Searches `fd` up to its end.  0 or -errno; `*ret_flags` (enum search_outcome_flags) says what was
 * not searched. */
int searcher_run(struct searcher *searcher, int fd, const struct search_request *request,
	unsigned *ret_flags);

/* The same for an excerpt of a file (ops/support/excerpt.h), made for search_pattern_literals() and
 * with the context of the request. */
int searcher_run_excerpt(struct searcher *searcher, const uint8_t *excerpt, size_t size,
	const struct search_request *request, unsigned *ret_flags);
