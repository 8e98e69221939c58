#include "tools/search/pattern.h"

#include <errno.h>
#include <string.h>

const char *pattern_below_root(const char *pattern, const char *root)
{
	size_t length = strlen(root);

	if (*pattern != '/' || strncmp(pattern, root, length) != 0)
		return NULL;
	/* The root may be "/". */
	if (length > 1 && pattern[length] != '/')
		return NULL;
	pattern += length > 1 ? length : 0;
	return pattern + strspn(pattern, "/") - 1;
}

int pattern_compile(
	struct tool_call *call, const char *what, const char *pattern, struct glob *ret_glob)
{
	/* A brace alone would be searched for as it is, and hardly anything has one in its name. */
	int r = glob_braces_close(pattern) ? glob_compile(pattern, ret_glob) : -EINVAL;

	if (r == -EINVAL)
		return tool_fail(call, TOOL_INVALID_ARGUMENT,
			"Correct it, or write \\[ or \\{ for the character itself.",
			"%s: \"%s\" is not a valid glob: a bracket or brace does not close.", what,
			pattern);
	if (r == -E2BIG)
		return tool_fail(call, TOOL_INVALID_ARGUMENT, NULL,
			"%s: \"%s\" has too many alternatives.", what, pattern);
	return r < 0 ? tool_fail_errno(call, r, "use the pattern", NULL) : 0;
}

bool pattern_leads_out(const char *pattern)
{
	if (*pattern == '/')
		return true;
	for (; *pattern; pattern += strcspn(pattern, "/"), pattern += *pattern == '/')
		if (strncmp(pattern, "..", 2) == 0 && (pattern[2] == '/' || !pattern[2]))
			return true;
	return false;
}

bool pattern_has_line_end(const char *pattern, bool is_literal)
{
	for (; *pattern; pattern++) {
		if (*pattern == '\n' || (!is_literal && strncmp(pattern, "\\n", 2) == 0))
			return true;
		if (!is_literal && *pattern == '\\' && pattern[1])
			pattern++;
	}
	return false;
}
