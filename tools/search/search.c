#include "tools/search/search.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/excerpt.h"
#include "tools/search/literal.h"
#include "tools/text/text.h"
#include "tools/web/charset.h"

enum {
	CHUNK_BYTES = 64 << 10,
	SUBJECT_MAX_BYTES = 64 << 20,
	JIT_STACK_BYTES = 1 << 20,
	MATCH_LIMIT = 5000000,
};

struct search_pattern {
	pcre2_code *code;          /* NULL: the pattern is a literal */
	struct literals *literals; /* NULL: none would help */
	bool multiline;
	bool line_by_line; /* text after a line's end could change the match in the line */
};

struct searcher {
	const struct search_pattern *pattern;
	pcre2_match_data *match;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
	struct buffer memory;
};

/* ---- Compiling ---------------------------------------------------------------------------- */

/* Whether the pattern has constructs whose match may depend on text outside the line.  "$" is one,
 * as a CR before the line end does not belong to the line. */
static bool needs_line_by_line(const char *pattern)
{
	static const char *const constructs[] = {"(?=", "(?!", "(?<", "(?>", "(?(", "(*", "\\A",
		"\\z", "\\Z", "\\G", "\\K", "\\X", "\\R", "++", "*+", "?+", "}+", "$"};

	for (size_t i = 0; i < array_size(constructs); i++)
		if (strstr(pattern, constructs[i]))
			return true;
	/* (?-m) and the like switch off a default. */
	for (const char *at = pattern; (at = strstr(at, "(?")); at += 2)
		if (at[2 + strspn(at + 2, "abcdefghijklmnopqrstuvwxyz")] == '-')
			return true;
	return false;
}

static uint32_t compile_flags(const struct search_options *options)
{
	uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE |
			 PCRE2_NEVER_BACKSLASH_C;

	if (options->literal)
		/* PCRE2_LITERAL allows few other flags. */
		flags = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_LITERAL;
	if (options->ignore_case)
		flags |= PCRE2_CASELESS;
	if (options->multiline && !options->literal)
		flags |= PCRE2_DOTALL;
	return flags;
}

/* Without regard to case, [:upper:] and [:lower:] must match letters of both cases; PCRE2 with
 * Unicode classes does not do that. */
static void join_cases(char *pattern)
{
	static const char *const classes[] = {"[:upper:]", "[:lower:]"};

	for (size_t i = 0; i < array_size(classes); i++)
		for (char *at = pattern; (at = strstr(at, classes[i])); at++)
			if (at == pattern || at[-1] != '\\')
				memcpy(at, "[:alpha:]", 9);
}

static int compile_code(const struct search_options *options, struct search_pattern *pattern,
	char *problem, size_t problem_size, size_t *ret_at)
{
	pcre2_compile_context *context;
	cleanup_free char *text = strdup(options->pattern);
	int error;
	PCRE2_SIZE at;

	if (!text)
		return -ENOMEM;
	if (options->ignore_case && !options->literal)
		join_cases(text);
	context = pcre2_compile_context_create(NULL);
	if (!context)
		return -ENOMEM;
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
		compile_flags(options), &error, &at, context);
	pcre2_compile_context_free(context);
	if (!pattern->code) {
		pcre2_get_error_message(error, (PCRE2_UCHAR *)problem, problem_size);
		*ret_at = at;
		return -EINVAL;
	}
	/* A failure is ignored: without JIT the search is only slower. */
	pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
	return 0;
}

/* If most lines have one of the literals, matching the pattern on many lines at once is faster. */
static void drop_common_literals(struct search_pattern *pattern)
{
	if (!pattern->literals || pattern->line_by_line || !literals_are_common(pattern->literals))
		return;
	literals_free(pattern->literals);
	pattern->literals = NULL;
}

int search_compile(const struct search_options *options, struct search_pattern **ret_pattern,
	char *problem, size_t problem_size, size_t *ret_at)
{
	struct search_pattern *pattern = calloc(1, sizeof(*pattern));
	const char *text = options->pattern;
	bool plain = options->literal || !strpbrk(text, "\\^$.[]{}?*+|()");
	bool is_all = plain && !options->ignore_case && !options->multiline && !strchr(text, '\n');
	int r = 0;

	if (!pattern)
		return -ENOMEM;
	pattern->multiline = options->multiline;
	pattern->line_by_line = !options->literal && needs_line_by_line(text);
	if (!options->multiline)
		r = literals_of_pattern(text, plain, options->ignore_case, &pattern->literals);
	if (r == 0 && !is_all) {
		drop_common_literals(pattern);
		r = compile_code(options, pattern, problem, problem_size, ret_at);
	}
	if (r < 0) {
		search_pattern_free(pattern);
		return r;
	}
	*ret_pattern = pattern;
	return 0;
}

void search_pattern_free(struct search_pattern *pattern)
{
	if (!pattern)
		return;
	pcre2_code_free(pattern->code);
	literals_free(pattern->literals);
	free(pattern);
}

const struct literals *search_pattern_literals(const struct search_pattern *pattern)
{
	return pattern->literals;
}

int searcher_new(const struct search_pattern *pattern, struct searcher **ret_searcher)
{
	struct searcher *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->pattern = pattern;
	if (pattern->code) {
		s->match = pcre2_match_data_create(1, NULL);
		s->context = pcre2_match_context_create(NULL);
		s->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, NULL);
		if (!s->match || !s->context) {
			searcher_free(s);
			return -ENOMEM;
		}
		pcre2_set_match_limit(s->context, MATCH_LIMIT);
		if (s->stack)
			pcre2_jit_stack_assign(s->context, NULL, s->stack);
	}
	*ret_searcher = s;
	return 0;
}

void searcher_free(struct searcher *s)
{
	if (!s)
		return;
	pcre2_match_data_free(s->match);
	pcre2_match_context_free(s->context);
	pcre2_jit_stack_free(s->stack);
	buffer_done(&s->memory);
	free(s);
}

/* ---- Searching a piece of whole lines ------------------------------------------------------- */

struct run {
	struct searcher *s;
	const struct search_request *request;
	const uint8_t *start; /* of the piece in memory */
	const uint8_t *end;
	const uint8_t *counted; /* line `number` begins here */
	uint64_t number;        /* from 1 */
	const uint8_t *printed; /* lines before this were reported or dropped */
	unsigned after;         /* context lines still to report */
	unsigned flags;
	bool by_line;  /* many lines at once were too costly for PCRE2 */
	bool is_utf16; /* the first chunk of such a file is in memory */
	struct literal_scan scan;
};

static uint64_t count_newlines(const uint8_t *at, const uint8_t *end)
{
	uint64_t lines = 0;

	for (; at < end; at++)
		lines += *at == '\n';
	return lines;
}

static const uint8_t *line_end(const uint8_t *at, const uint8_t *end)
{
	const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));

	return newline ? newline : end;
}

static const uint8_t *line_start(const uint8_t *start, const uint8_t *at)
{
	const uint8_t *newline = memrchr(start, '\n', (size_t)(at - start));

	return newline ? newline + 1 : start;
}

/* `match`: where the match in the line begins; NULL: the line is context. */
static int give(struct run *run, const uint8_t *start, const uint8_t *end, const uint8_t *match)
{
	struct search_line line = {.text = start, .is_match = match != NULL};

	run->number += count_newlines(run->counted, start);
	run->counted = start;
	line.number = run->number;
	line.size = (size_t)(end - start);
	if (line.size && end[-1] == '\r')
		line.size--;
	if (match > start)
		line.match = (size_t)(match - start);
	run->printed = end < run->end ? end + 1 : end;
	return run->request->line(run->request->user, &line);
}

/* Reports the context after the last match, up to `stop`. */
static int give_after(struct run *run, const uint8_t *stop)
{
	while (run->after && run->printed < stop) {
		const uint8_t *start = run->printed, *end = line_end(start, run->end);
		int r = give(run, start, end, NULL);

		run->after--;
		if (r < 0)
			return r;
	}
	return 0;
}

static int give_before(struct run *run, const uint8_t *start)
{
	const uint8_t *first = start;

	for (unsigned i = 0; i < run->request->context && first > run->printed; i++)
		first = line_start(run->printed, first - 1);
	while (first < start) {
		const uint8_t *end = line_end(first, run->end);
		int r = give(run, first, end, NULL);

		if (r < 0)
			return r;
		first = end + 1;
	}
	return 0;
}

static int give_match(
	struct run *run, const uint8_t *start, const uint8_t *end, const uint8_t *match)
{
	int r = give_after(run, start);

	if (r == 0)
		r = give_before(run, start);
	if (r == 0)
		r = give(run, start, end, match);
	run->after = run->request->context;
	return r;
}

/* Runs PCRE2 on [start, end), beginning at `from`.  1: a match; 0: none; -EOVERFLOW: too costly. */
static int match_in(struct run *run, const uint8_t *start, const uint8_t *end, const uint8_t *from,
	const uint8_t **ret_start, const uint8_t **ret_end)
{
	struct searcher *s = run->s;
	PCRE2_SIZE *where;
	int r = pcre2_match(s->pattern->code, start, (size_t)(end - start), (size_t)(from - start),
		0, s->match, s->context);

	if (r == PCRE2_ERROR_NOMATCH)
		return 0;
	if (r < 0)
		return -EOVERFLOW;
	where = pcre2_get_ovector_pointer(s->match);
	*ret_start = start + where[0];
	*ret_end = start + where[1];
	return 1;
}

/* Where the match in a line begins; NULL: there is none. */
static const uint8_t *match_in_line(struct run *run, const uint8_t *start, const uint8_t *end)
{
	const uint8_t *from, *to;
	int r;

	if (end > start && end[-1] == '\r')
		end--;
	r = match_in(run, start, end, start, &from, &to);
	if (r < 0)
		run->flags |= SEARCH_TOO_HARD;
	return r > 0 ? from : NULL;
}

/* A position in the first line that can have the next match; NULL: no line can. */
static const uint8_t *next_candidate(struct run *run, const uint8_t *at)
{
	const struct search_pattern *pattern = run->s->pattern;
	const uint8_t *from, *to;
	int r;

	if (pattern->literals)
		return literals_find(pattern->literals, &run->scan, at, run->end);
	if (pattern->line_by_line || run->by_line)
		return at;
	r = match_in(run, at, run->end, at, &from, &to);
	/* One line may be the reason: the others are still searched. */
	run->by_line = r < 0;
	return r < 0 ? at : r > 0 ? from : NULL;
}

static int search_lines(struct run *run)
{
	const uint8_t *at = run->start;
	int r = 0;

	run->scan = (struct literal_scan){0};
	while (at < run->end && r == 0) {
		const uint8_t *match = next_candidate(run, at), *start, *end;

		if (!match || match >= run->end)
			break;
		start = line_start(at, match);
		end = line_end(match, run->end);
		if (run->s->pattern->code)
			match = match_in_line(run, start, end);
		if (match)
			r = give_match(run, start, end, match);
		at = end + 1;
		if (r == 0 && (run->s->pattern->line_by_line || run->by_line) &&
			run->request->stopped && run->request->stopped(run->request->user))
			r = -EINTR;
	}
	return r < 0 ? r : give_after(run, run->end);
}

/* Searches with matches that may span lines; reports every line that a match touches. */
static int search_whole(struct run *run)
{
	const uint8_t *at = run->start, *from, *to;
	int r = 0, matched = 0;

	while (at <= run->end && r == 0 &&
		(matched = match_in(run, run->start, run->end, at, &from, &to)) > 0) {
		const uint8_t *start = line_start(run->start, from);

		if (from == run->end && (from == run->start || from[-1] == '\n'))
			break; /* an empty match after the last line does not count */
		do {
			const uint8_t *end = line_end(start, run->end);

			if (start >= run->printed)
				r = give_match(run, start, end, from);
			start = end + 1;
		} while (r == 0 && start < to);
		at = to > from ? to : to + 1;
		/* Continue at the beginning of a character. */
		while (at < run->end && (*at & 0xc0) == 0x80)
			at++;
		if (r == 0 && run->request->stopped && run->request->stopped(run->request->user))
			r = -EINTR;
	}
	if (matched < 0)
		run->flags |= SEARCH_TOO_HARD;
	return r < 0 ? r : give_after(run, run->end);
}

/* ---- Searching a file ---------------------------------------------------------------------- */

/* The byte order mark of UTF-8 is not a part of the first line. */
static const char utf8_mark[] = "\xef\xbb\xbf";

/* Reads the next chunk.  1; 0: end of the file; -errno. */
static int read_chunk(struct searcher *s, int fd, struct run *run)
{
	uint8_t *at;
	ssize_t got;

	if (buffer_reserve(&s->memory, CHUNK_BYTES) < 0)
		return -ENOMEM;
	at = s->memory.data + s->memory.size;
	do
		got = read(fd, at, CHUNK_BYTES);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got < 0 ? -errno : 0;
	if (at == s->memory.data && text_is_utf16(at, (size_t)got)) {
		s->memory.size = (size_t)got;
		run->is_utf16 = true;
		return 0;
	}
	if (at == s->memory.data && got >= 3 && memcmp(at, utf8_mark, 3) == 0) {
		got -= 3;
		memmove(at, at + 3, (size_t)got);
	}
	if (memchr(at, 0, (size_t)got)) {
		run->flags |= SEARCH_BINARY;
		return 0;
	}
	s->memory.size += (size_t)got;
	return 1;
}

/* The beginning of the context lines before `at`, which must stay in memory. */
static const uint8_t *keep_from(const struct run *run, const uint8_t *at)
{
	for (unsigned i = 0; i < run->request->context && at > run->start; i++)
		at = line_start(run->start, at - 1);
	return at;
}

/* Drops the searched part except its last lines, which may be context, and makes the rest the next
 * piece. */
static void roll(struct run *run, const uint8_t *rest)
{
	struct buffer *memory = &run->s->memory;
	const uint8_t *keep = keep_from(run, rest);
	size_t dropped = (size_t)(keep - memory->data);

	if (run->printed > keep)
		keep = run->printed, dropped = (size_t)(keep - memory->data);
	run->number += keep > run->counted ? count_newlines(run->counted, keep) : 0;
	if (run->counted < keep)
		run->counted = keep;
	memory->size -= dropped;
	memmove(memory->data, keep, memory->size);
	run->counted = memory->data + (run->counted - keep);
	run->printed = memory->data;
	run->start = memory->data + (rest - keep);
}

static int run_whole(struct searcher *s, int fd, struct run *run)
{
	int r;

	while ((r = read_chunk(s, fd, run)) > 0)
		if (s->memory.size > SUBJECT_MAX_BYTES) {
			run->flags |= SEARCH_TOO_LARGE;
			return 0;
		}
	if (r < 0 || run->is_utf16 || (run->flags & SEARCH_BINARY))
		return r;
	run->start = run->counted = run->printed = s->memory.data;
	run->end = s->memory.data + s->memory.size;
	return search_whole(run);
}

/* Puts the file into memory as UTF-8, from the first chunk, which is there. */
static int convert_utf16(struct searcher *s, int fd, struct run *run)
{
	struct buffer text cleanup_buffer = {0};
	struct charset charset;
	ssize_t got;
	int r;

	do {
		if (buffer_reserve(&s->memory, CHUNK_BYTES) < 0)
			return -ENOMEM;
		got = read(fd, s->memory.data + s->memory.size, CHUNK_BYTES);
		if (got < 0 && errno != EINTR)
			return -errno;
		if (run->request->stopped && run->request->stopped(run->request->user))
			return -EINTR;
		s->memory.size += got > 0 ? (size_t)got : 0;
		if (s->memory.size > SUBJECT_MAX_BYTES) {
			run->flags |= SEARCH_TOO_LARGE;
			return 0;
		}
	} while (got != 0);
	r = charset_open(NULL, false, s->memory.data, s->memory.size, &charset);
	if (r < 0)
		return r;
	r = charset_convert(&charset, s->memory.data, s->memory.size, &text);
	charset_close(&charset);
	s->memory.size = 0;
	return r < 0 ? r : buffer_append(&s->memory, text.data, text.size);
}

static int run_utf16(struct searcher *s, int fd, struct run *run)
{
	int r = convert_utf16(s, fd, run);

	if (r < 0 || (run->flags & SEARCH_TOO_LARGE))
		return r;
	run->start = run->counted = run->printed = s->memory.data;
	run->end = s->memory.data + s->memory.size;
	return s->pattern->multiline ? search_whole(run) : search_lines(run);
}

static int run_lines(struct searcher *s, int fd, struct run *run)
{
	size_t searched = 0, counted = 0, printed = 0; /* offsets: the memory may move */

	for (;;) {
		int r = read_chunk(s, fd, run);
		bool last = r == 0;
		const uint8_t *stop;

		if (r < 0 || run->is_utf16 || (run->flags & SEARCH_BINARY))
			return r;
		run->start = s->memory.data + searched;
		run->counted = s->memory.data + counted;
		run->printed = s->memory.data + printed;
		run->end = s->memory.data + s->memory.size;
		stop = last ? run->end : line_start(run->start, run->end);
		if (stop > run->start) {
			run->end = stop;
			r = search_lines(run);
			run->start = s->memory.data;
			if (r < 0 || last)
				return r;
			roll(run, stop);
			searched = (size_t)(run->start - s->memory.data);
			counted = (size_t)(run->counted - s->memory.data);
			printed = 0;
		} else if (last) {
			return 0;
		} else if (s->memory.size > SUBJECT_MAX_BYTES) {
			run->flags |= SEARCH_TOO_LARGE;
			return 0;
		}
		if (run->request->stopped && run->request->stopped(run->request->user))
			return -EINTR;
	}
}

int searcher_run(
	struct searcher *s, int fd, const struct search_request *request, unsigned *ret_flags)
{
	struct run run = {.s = s, .request = request, .number = 1};
	int r;

	s->memory.size = 0;
	r = s->pattern->multiline ? run_whole(s, fd, &run) : run_lines(s, fd, &run);
	if (run.is_utf16)
		r = run_utf16(s, fd, &run);
	*ret_flags = run.flags;
	return r;
}

int searcher_run_excerpt(struct searcher *s, const uint8_t *excerpt, size_t size,
	const struct search_request *request, unsigned *ret_flags)
{
	const uint8_t *end = excerpt + size;
	struct excerpt_block block;
	unsigned flags = 0;
	int r = 0;

	while (r == 0 && excerpt_next(&excerpt, end, &block)) {
		struct run run = {.s = s,
			.request = request,
			.start = block.bytes,
			.end = block.bytes + block.size,
			.counted = block.bytes,
			.number = block.line,
			.printed = block.bytes};

		if (block.line == 1 && block.size >= 3 && memcmp(block.bytes, utf8_mark, 3) == 0)
			run.start = run.counted = run.printed = block.bytes + 3;
		r = search_lines(&run);
		flags |= run.flags;
		if (r == 0 && request->stopped && request->stopped(request->user))
			r = -EINTR;
	}
	*ret_flags = flags;
	return r;
}
