#include "backends/open.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/backend.h"
#include "ops/support/cleanup.h"

static const struct {
	const char *scheme;
	backend_open open;
	const char *form;
} backends[] = {
	{"local", local_open, "local:/dir"},
	{"mem", mem_open, "mem:"},
	{"helper", remote_open, "helper:/dir"},
	{"ssh", remote_open, "ssh://[user@]host[:port]/dir"},
};

static void explain_unknown_scheme(const char *uri, char **ret_reason)
{
	char forms[256] = "";
	size_t used = 0;

	for (size_t i = 0; i < array_size(backends); i++)
		used += (size_t)snprintf(forms + used, sizeof(forms) - used, "%s%s", i ? ", " : "",
			backends[i].form);
	if (asprintf(ret_reason,
		    "\"%s\" is not the URI of a workspace; it takes one of these forms: %s", uri,
		    forms) < 0)
		*ret_reason = NULL;
}

int workspace_open(const char *uri, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason)
{
	size_t length = strcspn(uri, ":");

	*ret_reason = NULL;
	for (size_t i = 0; uri[length] && i < array_size(backends); i++)
		if (strlen(backends[i].scheme) == length &&
			strncmp(uri, backends[i].scheme, length) == 0)
			return backends[i].open(backends[i].scheme, uri + length + 1, options,
				ret_workspace, ret_reason);
	explain_unknown_scheme(uri, ret_reason);
	return -EINVAL;
}
