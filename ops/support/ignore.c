#include "ops/support/ignore.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/glob.h"
#include "ops/support/path.h"

struct pattern {
	const char *text; /* into the list's memory */
	size_t length;
	bool negated;
	bool directory_only;
	bool whole_path;    /* has a slash: matched from the list's directory */
	bool plain;         /* no special character */
	const char *suffix; /* "*suffix" with nothing special in it; else NULL */
	size_t suffix_length;
};

struct ignore {
	atomic_uint references;
	struct ignore *next;
	size_t base_length; /* of the directory, with its '/'; 0 at the top */
	struct pattern *patterns;
	size_t count;
	char *memory;
};

struct ignore *ignore_ref(struct ignore *chain)
{
	if (chain)
		atomic_fetch_add(&chain->references, 1);
	return chain;
}

void ignore_unref(struct ignore *chain)
{
	while (chain && atomic_fetch_sub(&chain->references, 1) == 1) {
		struct ignore *next = chain->next;

		free(chain->patterns);
		free(chain->memory);
		free(chain);
		chain = next;
	}
}

/* ---- Parsing (gitignore(5)) ---------------------------------------------------------- */

/* Trailing spaces do not count unless a backslash stands before them. */
static void trim_spaces(char *line)
{
	char *last = NULL;

	for (char *at = line; *at; at++) {
		if (*at == ' ') {
			last = last ? last : at;
			continue;
		}
		last = NULL;
		if (*at == '\\' && !*++at)
			return;
	}
	if (last)
		*last = '\0';
}

/* False for a line that is no pattern. */
static bool parse_line(char *line, struct pattern *ret_pattern)
{
	struct pattern pattern = {0};

	if (*line == '#')
		return false;
	trim_spaces(line);
	if (*line == '!') {
		pattern.negated = true;
		line++;
	} else if (*line == '\\' && (line[1] == '!' || line[1] == '#')) {
		line++;
	}
	pattern.length = strlen(line);
	if (pattern.length && line[pattern.length - 1] == '/') {
		pattern.directory_only = true;
		line[--pattern.length] = '\0';
	}
	if (!pattern.length)
		return false;
	pattern.whole_path = strchr(line, '/') != NULL;
	if (*line == '/') {
		line++;
		pattern.length--;
	}
	pattern.text = line;
	pattern.plain = !glob_is_special(line);
	if (*line == '*' && !pattern.whole_path && !glob_is_special(line + 1)) {
		pattern.suffix = line + 1;
		pattern.suffix_length = pattern.length - 1;
	}
	*ret_pattern = pattern;
	return true;
}

static int parse(struct ignore *list, size_t size)
{
	char *at = list->memory, *end = at + size;
	size_t lines = 1;

	for (const char *c = at; c < end; c++)
		lines += *c == '\n';
	list->patterns = calloc(lines, sizeof(*list->patterns));
	if (!list->patterns)
		return -ENOMEM;
	if (size >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0)
		at += 3;
	while (at < end) {
		char *newline = memchr(at, '\n', (size_t)(end - at)),
		     *stop = newline ? newline : end;

		*stop = '\0';
		if (newline && stop > at && stop[-1] == '\r')
			stop[-1] = '\0';
		if (parse_line(at, &list->patterns[list->count]))
			list->count++;
		at = stop + 1;
	}
	return 0;
}

int ignore_add(struct ignore **chain, const char *base, const char *content, size_t size)
{
	struct ignore *list = calloc(1, sizeof(*list));
	int r = -ENOMEM;

	if (!list)
		return r;
	atomic_init(&list->references, 1);
	list->base_length = strlen(base) + (*base != '\0');
	list->memory = malloc(size + 1);
	if (list->memory) {
		memcpy(list->memory, content, size);
		list->memory[size] = '\0';
		r = parse(list, size);
	}
	if (r < 0 || list->count == 0) {
		ignore_unref(list);
		return r;
	}
	list->next = *chain;
	*chain = list;
	return 1;
}

/* ---- Matching ---------------------------------------------------------------------------- */

static bool matches(const struct pattern *pattern, const char *path, const char *name,
	size_t name_length, bool is_directory)
{
	if (pattern->directory_only && !is_directory)
		return false;
	if (pattern->whole_path)
		return pattern->plain ? strcmp(pattern->text, path) == 0
				      : glob_match(pattern->text, path);
	if (pattern->plain)
		return pattern->length == name_length &&
		       memcmp(pattern->text, name, name_length) == 0;
	if (pattern->suffix)
		return name_length >= pattern->suffix_length &&
		       memcmp(name + name_length - pattern->suffix_length, pattern->suffix,
			       pattern->suffix_length) == 0;
	return glob_match(pattern->text, name);
}

bool ignore_matches(const struct ignore *chain, const char *path, bool is_directory)
{
	const char *name = path_name(path);
	size_t name_length = strlen(name);

	for (; chain; chain = chain->next)
		for (size_t i = chain->count; i-- > 0;)
			if (matches(&chain->patterns[i], path + chain->base_length, name,
				    name_length, is_directory))
				return !chain->patterns[i].negated;
	return false;
}

/* ---- Where patterns name places ------------------------------------------------------------ */

/* True when components of the pattern are left over once those of the path have matched. */
static bool leads_below(const char *pattern, const char *path)
{
	while (*path) {
		size_t pattern_length = strcspn(pattern, "/"), path_length = strcspn(path, "/");
		cleanup_free char *component = strndup(pattern, pattern_length);
		cleanup_free char *name = strndup(path, path_length);

		if (!component || !name || strcmp(component, "**") == 0)
			return true; /* it may */
		if (!pattern[pattern_length] || !glob_match(component, name))
			return false;
		pattern += pattern_length + 1;
		path += path_length + (path[path_length] == '/');
	}
	return true;
}

bool ignore_names_below(const struct ignore *chain, const char *path)
{
	for (; chain; chain = chain->next) {
		if (chain->base_length)
			return true;
		for (size_t i = 0; i < chain->count; i++)
			if (chain->patterns[i].whole_path &&
				leads_below(chain->patterns[i].text, path))
				return true;
	}
	return false;
}
