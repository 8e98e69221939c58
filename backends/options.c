#include "backends/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *workspace_option_next(
	const struct workspace_options *options, const char *key, size_t *next)
{
	size_t length = strlen(key);

	while (options && options->pairs && options->pairs[*next]) {
		const char *pair = options->pairs[(*next)++];

		if (strncmp(pair, key, length) != 0)
			continue;
		if (pair[length] == '=')
			return pair + length + 1;
		if (!pair[length])
			return "";
	}
	return NULL;
}

const char *workspace_option(const struct workspace_options *options, const char *key)
{
	const char *last = NULL, *value;
	size_t next = 0;

	while ((value = workspace_option_next(options, key, &next)))
		last = value;
	return last;
}

static int parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "kmgt";
	const char *unit;
	unsigned long long number;
	unsigned shift = 0;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || end == text || *text < '0' || *text > '9')
		return -EINVAL;
	unit = *end ? strchr(units, *end | 0x20) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*end || number > UINT64_MAX >> shift)
		return -EINVAL;
	*ret_bytes = number << shift;
	return 0;
}

int backend_parse_size(const char *option, const char *text, uint64_t min_bytes,
	uint64_t *ret_bytes, char **ret_reason)
{
	uint64_t bytes;

	if (parse_size(text, &bytes) == 0 && bytes >= min_bytes) {
		*ret_bytes = bytes;
		return 0;
	}
	if (asprintf(ret_reason,
		    "option %s=\"%s\" is not a size; write bytes with k, M, G or T behind "
		    "them (512M), and no less than %llu",
		    option, text, (unsigned long long)min_bytes) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}
