#include "backends/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/buffer.h"

const char *workspace_option(const struct workspace_options *options, const char *key)
{
	size_t length = strlen(key);
	const char *value = NULL;

	for (const char *const *pair = options ? options->pairs : NULL; pair && *pair; pair++) {
		if (strncmp(*pair, key, length) != 0)
			continue;
		if ((*pair)[length] == '=')
			value = *pair + length + 1;
		else if (!(*pair)[length])
			value = "";
	}
	return value;
}

static bool is_listed(const char *const *names, const char *pair)
{
	size_t length = strcspn(pair, "=");

	while (*names && (strncmp(*names, pair, length) != 0 || (*names)[length]))
		names++;
	return *names;
}

static void explain_unknown(
	const char *scheme, const char *pair, const char *const *known, char **ret_reason)
{
	cleanup_buffer struct buffer words = {0};

	while (*known)
		buffer_printf(&words, "%s, ", *known++);
	if (asprintf(ret_reason,
		    "\"%s:\" has no option \"%.*s\"; it has %.*sand see isthmus(1) for those of "
		    "every mount",
		    scheme, (int)strcspn(pair, "="), pair, (int)words.size,
		    words.size ? (const char *)words.data : "") < 0)
		*ret_reason = NULL;
}

int backend_check_options(const char *scheme, const struct workspace_options *options,
	const char *const *known, char **ret_reason)
{
	for (const char *const *pair = options ? options->pairs : NULL; pair && *pair; pair++) {
		if (is_listed(known, *pair))
			continue;
		explain_unknown(scheme, *pair, known, ret_reason);
		if (options->ret_unknown)
			*options->ret_unknown = *pair;
		return -EINVAL;
	}
	return 0;
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
