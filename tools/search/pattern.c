#include "tools/search/pattern.h"

#include <string.h>

const char *pattern_below_root(const char *pattern, const char *root)
{
	size_t length = strlen(root);

	if (*pattern != '/' || strncmp(pattern, root, length) != 0)
		return NULL;
	/* The root may be "/" itself. */
	if (length > 1 && pattern[length] != '/')
		return NULL;
	pattern += length > 1 ? length : 0;
	return pattern + strspn(pattern, "/") - 1;
}
