#include "backends/open.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/backend.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

/* Suggests a URI for a plain path, or for HOST:/dir as in scp(1).  NULL: no suggestion. */
static char *guess_uri(const char *uri)
{
	const char *colon = strchr(uri, ':');
	char *meant = NULL;
	int r = -1;

	if (*uri == '/')
		r = asprintf(&meant, "local:%s", uri);
	else if (colon && colon > uri && colon[1] == '/' && colon[2] != '/')
		r = asprintf(&meant, "ssh://%.*s%s", (int)(colon - uri), uri, colon + 1);
	return r < 0 ? NULL : meant;
}

static void explain_unknown_scheme(const char *uri, char **ret_reason)
{
	cleanup_free char *meant = guess_uri(uri);
	cleanup_buffer struct buffer message = {0};
	const struct workspace_scheme *scheme;

	buffer_printf(&message,
		"\"%s\" is not the URI of a workspace; it takes one of these forms: ", uri);
	for (size_t i = 0; (scheme = workspace_scheme(i)); i++)
		buffer_printf(&message, "%s%s", i ? ", " : "", scheme->form);
	if (meant)
		buffer_printf(&message, "; did you mean \"%s\"?", meant);
	*ret_reason = buffer_steal_string(&message);
}

char *workspace_normal_uri(const char *uri)
{
	const struct scheme *scheme = strchr(uri, ':') ? scheme_find(uri) : NULL;
	cleanup_free char *rest = NULL;

	if (!scheme || !scheme->end)
		return strdup(uri);
	rest = remote_normal(scheme, strchr(uri, ':') + 1);
	return rest ? string_printf("%s:%s", scheme->about.name, rest) : NULL;
}

int workspace_open(const char *uri, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason)
{
	const struct scheme *scheme = strchr(uri, ':') ? scheme_find(uri) : NULL;
	struct workspace *workspace = NULL;
	int r;

	*ret_reason = NULL;
	if (!scheme) {
		explain_unknown_scheme(uri, ret_reason);
		return -EINVAL;
	}
	r = scheme_check_options(scheme, options, true, ret_reason);
	if (r == 0)
		r = layers_check(uri, options, ret_reason);
	if (r < 0)
		return r;
	r = scheme_open(scheme->about.name, strchr(uri, ':') + 1, options, &workspace, ret_reason);
	if (r == 0)
		r = layers_add(uri, options, workspace, ret_workspace, ret_reason);
	return r;
}
