#include "backends/open.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/backend.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

/* The length of [USER@]HOST, where a colon and no "//" follows; 0: there is none.  An IPv6 address
 * is in brackets. */
static size_t host_length(const char *word)
{
	size_t length = strcspn(word, "/:[");

	if (word[length] == '[')
		length += strcspn(word + length, "]") + 1;
	if (length >= strlen(word) || word[length] != ':' ||
		strncmp(word + length + 1, "//", 2) == 0)
		return 0;
	return length;
}

/* "SSH:" is a scheme, too: misspelt. */
static bool is_scheme(const char *name, size_t length)
{
	const struct workspace_scheme *scheme;

	for (size_t i = 0; (scheme = workspace_scheme(i)); i++)
		if (strlen(scheme->name) == length && strncasecmp(scheme->name, name, length) == 0)
			return true;
	return false;
}

static char *ssh_uri(const char *word, size_t host)
{
	const char *path = word + host + 1;
	const char *begin = *path == '/' || !*path ? "" : *path == '~' ? "/" : "/~/";

	return string_printf("ssh://%.*s%s%s", (int)host, word, begin, path);
}

char *workspace_uri(const char *word)
{
	size_t host = host_length(word);

	if (*word == '/')
		return string_printf("local:%s", word);
	if (host < 2 || is_scheme(word, host) || isdigit((unsigned char)word[host + 1]))
		return strdup(word);
	return ssh_uri(word, host);
}

/* Suggests a URI for what workspace_uri() does not take.  NULL: no suggestion. */
static char *guess_uri(const char *word)
{
	cleanup_free char *directory = NULL;
	size_t host = host_length(word), scheme = strcspn(word, ":");
	const char *rest = word + scheme;

	if (host && isdigit((unsigned char)word[host + 1]))
		return string_printf("ssh://%s", word);
	if (host == 1)
		return ssh_uri(word, host);
	if (*rest && is_scheme(word, scheme)) {
		directory = strndup(word, scheme);
		for (char *c = directory; c && *c; c++)
			*c = (char)tolower((unsigned char)*c);
		return directory ? string_printf("%s%s", directory, rest) : NULL;
	}
	directory = realpath(word, NULL);
	return directory ? string_printf("local:%s", directory) : NULL;
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
		buffer_printf(&message, "; write \"%s\"", meant);
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
