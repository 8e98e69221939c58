#include "tools/search/pattern.h"

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
