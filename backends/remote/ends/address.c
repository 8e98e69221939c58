#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/ends/address.h"
#include "ops/support/cleanup.h"

static int refuse(
	const struct scheme *scheme, const char *rest, const char *what, char **ret_reason)
{
	if (asprintf(ret_reason, "\"%s:%s\": %s; write %s", scheme->about.name, rest, what,
		    scheme->about.form) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}

int end_address_parse(const struct scheme *scheme, const char *rest, struct end_address *address,
	char **ret_reason)
{
	const char *start = rest + 2, *slash, *at;

	if (strncmp(rest, "//", 2) != 0)
		return refuse(scheme, rest, "\"//\" is missing", ret_reason);
	slash = strchrnul(start, '/');
	at = memchr(start, '@', (size_t)(slash - start));
	if (at) {
		address->user = strndup(start, (size_t)(at - start));
		start = at + 1;
	}
	address->name = strndup(start, (size_t)(slash - start));
	address->directory = strdup(*slash ? slash : "");
	if (!address->name || (at && !address->user) || !address->directory)
		return -ENOMEM;
	return *address->name ? 0 : refuse(scheme, rest, "no name is given", ret_reason);
}

void end_address_done(struct end_address *address)
{
	free(address->user);
	free(address->name);
	free(address->directory);
	*address = (struct end_address){0};
}

static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int end_check_name(const char *what, const char *name, const char *more, char **ret_reason)
{
	bool good = !name || is_plain(*name);

	for (const char *c = name; good && c && *c; c++)
		good = is_plain(*c) || strchr(more, *c);
	if (good)
		return 0;
	if (asprintf(ret_reason,
		    "\"%s\" is not the name of a %s: it begins with a letter or a digit, and has "
		    "only these and \"%s\"",
		    name, what, more) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}
