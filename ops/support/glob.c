#include "ops/support/glob.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/path.h"

enum { ALTERNATIVES_MAX = 1000 };

static const struct {
	const char *name;
	int (*test)(int c);
} classes[] = {
	{"alnum", isalnum},
	{"alpha", isalpha},
	{"blank", isblank},
	{"cntrl", iscntrl},
	{"digit", isdigit},
	{"graph", isgraph},
	{"lower", islower},
	{"print", isprint},
	{"punct", ispunct},
	{"space", isspace},
	{"upper", isupper},
	{"xdigit", isxdigit},
};

/* [:name:] at `at`: 1 it matches, 0 it does not, -1 there is no such class. */
static int match_class(const char *at, size_t length, unsigned char c)
{
	for (size_t i = 0; i < array_size(classes); i++)
		if (strlen(classes[i].name) == length && strncmp(at, classes[i].name, length) == 0)
			return classes[i].test(c) != 0;
	return -1;
}

/* One bracket expression that begins after '['.  `*ret_matches` says whether it has `c`.
 * Its end, or NULL when it is not closed. */
static const char *match_bracket(const char *at, unsigned char c, bool *ret_matches)
{
	bool negated = *at == '!' || *at == '^', found = false, first = true;

	at += negated;
	for (;; first = false) {
		unsigned char low = (unsigned char)*at, high;
		const char *end;

		if (!low)
			return NULL;
		if (low == ']' && !first)
			break;
		if (low == '[' && at[1] == ':' && (end = strstr(at + 2, ":]"))) {
			int r = match_class(at + 2, (size_t)(end - at - 2), c);

			if (r < 0)
				return NULL;
			found = found || r;
			at = end + 2;
			continue;
		}
		if (low == '\\' && !(low = (unsigned char)*++at))
			return NULL;
		at++;
		high = low;
		if (at[0] == '-' && at[1] && at[1] != ']') {
			high = (unsigned char)*++at;
			if (high == '\\' && !(high = (unsigned char)*++at))
				return NULL;
			at++;
		}
		found = found || (c >= low && c <= high);
	}
	*ret_matches = found != negated && c != '/';
	return at + 1;
}

/* One pattern character against one byte: the pattern's rest, or NULL. */
static const char *match_one(const char *pattern, unsigned char c)
{
	bool matches;

	if (*pattern == '?')
		return c != '/' ? pattern + 1 : NULL;
	if (*pattern == '[') {
		const char *end = match_bracket(pattern + 1, c, &matches);

		return end && matches ? end : NULL;
	}
	if (*pattern == '\\')
		pattern++;
	return *pattern && (unsigned char)*pattern == c ? pattern + 1 : NULL;
}

/* A `**` that stands between slashes (or the ends). */
static bool is_any_directories(const char *pattern, const char *at)
{
	return at[0] == '*' && at[1] == '*' && (at == pattern || at[-1] == '/') &&
	       (at[2] == '/' || !at[2]);
}

bool glob_match(const char *pattern, const char *path)
{
	const char *start = pattern;
	const char *star = NULL, *star_path = NULL; /* to go back to: one more byte for `*` */
	const char *any = NULL, *any_path = NULL;   /* one more component for `**` */

	for (;;) {
		const char *next;

		if (is_any_directories(start, pattern)) {
			if (!pattern[2])
				return *path != '\0';
			any = pattern += 3;
			any_path = path;
			star = NULL;
			continue;
		}
		if (*pattern == '*') {
			while (*pattern == '*')
				pattern++;
			star = pattern;
			star_path = path;
			continue;
		}
		if (!*pattern && !*path)
			return true;
		next = *path && *pattern ? match_one(pattern, (unsigned char)*path) : NULL;
		if (next) {
			pattern = next;
			path++;
			continue;
		}
		if (star && *star_path && *star_path != '/') {
			pattern = star;
			path = ++star_path;
			continue;
		}
		any_path = any ? strchr(any_path, '/') : NULL;
		if (!any_path)
			return false;
		pattern = any;
		path = ++any_path;
		star = NULL;
	}
}

bool glob_is_special(const char *pattern)
{
	return strpbrk(pattern, "*?[\\") != NULL;
}

/* ---- A user's patterns ------------------------------------------------------------ */

static const char *skip_bracket(const char *at)
{
	bool ignored;
	const char *end = match_bracket(at + 1, 0, &ignored);

	return end ? end : at + 1;
}

/* The end of the brace group that begins at `at` ('{'), or NULL; commas are counted. */
static const char *find_close(const char *at, size_t *ret_commas)
{
	int depth = 0;

	*ret_commas = 0;
	for (; *at; at++) {
		if (*at == '\\' && at[1]) {
			at++;
		} else if (*at == '[') {
			at = skip_bracket(at) - 1;
		} else if (*at == '{') {
			depth++;
		} else if (*at == '}' && --depth == 0) {
			return at;
		} else if (*at == ',' && depth == 1) {
			(*ret_commas)++;
		}
	}
	return NULL;
}

static int add_pattern(struct glob *glob, const char *text)
{
	char **grown;

	if (glob->count >= ALTERNATIVES_MAX)
		return -E2BIG;
	grown = reallocarray(glob->patterns, glob->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	glob->patterns = grown;
	glob->patterns[glob->count] = strdup(text);
	return glob->patterns[glob->count++] ? 0 : -ENOMEM;
}

static const char *find_open(const char *text, const char **ret_close)
{
	for (const char *at = text; *at; at++) {
		size_t commas;

		if (*at == '\\' && at[1]) {
			at++;
		} else if (*at == '[') {
			at = skip_bracket(at) - 1;
		} else if (*at == '{') {
			*ret_close = find_close(at, &commas);
			if (*ret_close && commas)
				return at;
		}
	}
	return NULL;
}

static int expand(const char *text, struct glob *glob)
{
	const char *close, *open = find_open(text, &close), *from;
	int depth = 0, r = 0;

	if (!open)
		return add_pattern(glob, text);
	from = open + 1;
	for (const char *at = from; at <= close && r == 0; at++) {
		struct buffer one cleanup_buffer = {0};
		cleanup_free char *pattern = NULL;

		if (*at == '\\' && at < close) {
			at++;
			continue;
		}
		depth += *at == '{';
		depth -= *at == '}' && at < close;
		if (depth || (*at != ',' && at < close))
			continue;
		buffer_append(&one, text, (size_t)(open - text));
		buffer_append(&one, from, (size_t)(at - from));
		buffer_append_string(&one, close + 1);
		pattern = buffer_steal_string(&one);
		r = pattern ? expand(pattern, glob) : -ENOMEM;
		from = at + 1;
	}
	return r;
}

bool glob_is_valid(const char *pattern)
{
	bool ignored;

	for (; *pattern; pattern++) {
		if (*pattern == '\\' && pattern[1]) {
			pattern++;
		} else if (*pattern == '[') {
			pattern = match_bracket(pattern + 1, 0, &ignored);
			if (!pattern)
				return false;
			pattern--;
		}
	}
	return true;
}

bool glob_braces_close(const char *pattern)
{
	size_t commas;

	for (const char *at = pattern; *at; at++) {
		if (*at == '\\' && at[1])
			at++;
		else if (*at == '[')
			at = skip_bracket(at) - 1;
		else if (*at == '{' && !find_close(at, &commas))
			return false;
	}
	return true;
}

int glob_compile(const char *text, struct glob *ret_glob)
{
	struct glob glob = {0};
	int r;

	if (!glob_is_valid(text))
		return -EINVAL;
	while (strncmp(text, "./", 2) == 0)
		text += 2;
	r = expand(text, &glob);
	if (r < 0) {
		glob_done(&glob);
		return r;
	}
	*ret_glob = glob;
	return 0;
}

void glob_done(struct glob *glob)
{
	for (size_t i = 0; i < glob->count; i++)
		free(glob->patterns[i]);
	free(glob->patterns);
	*glob = (struct glob){0};
}

bool glob_matches(const struct glob *glob, const char *path)
{
	const char *name = path_name(path);

	for (size_t i = 0; i < glob->count; i++) {
		const char *pattern = glob->patterns[i];

		if (*pattern == '/' ? glob_match(pattern + 1, path)
				    : glob_match(pattern, strchr(pattern, '/') ? path : name))
			return true;
	}
	return false;
}
