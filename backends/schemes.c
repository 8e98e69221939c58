/* Lookups in the table of schemes: usage texts, errors, completion and the check of the manual come
 * from it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/backend.h"
#include "ops/support/buffer.h"

#define ROW(name) &name##_scheme,
static const struct scheme *const schemes[] = {SCHEMES(ROW)};

const struct workspace_scheme *workspace_scheme(size_t index)
{
	return index < array_size(schemes) ? &schemes[index]->about : NULL;
}

const struct scheme *scheme_find(const char *uri)
{
	size_t length = strcspn(uri, ":");

	for (size_t i = 0; i < array_size(schemes); i++)
		if (strlen(schemes[i]->about.name) == length &&
			strncmp(uri, schemes[i]->about.name, length) == 0)
			return schemes[i];
	return NULL;
}

static bool has_option(const struct workspace_scheme_option *list, const char *pair)
{
	size_t length = strcspn(pair, "=");

	for (; list && list->name; list++)
		if (strncmp(list->name, pair, length) == 0 && !list->name[length])
			return true;
	return false;
}

static bool has_layer(const struct scheme *scheme, const struct workspace_layer *layer)
{
	return !layer->far_only || scheme->about.shared_options;
}

static bool scheme_has(const struct scheme *scheme, const char *pair, bool with_layers)
{
	const struct workspace_layer *layer;

	for (size_t i = 0; with_layers && (layer = workspace_layer(i)); i++)
		if (has_layer(scheme, layer) && has_option(layer->options, pair))
			return true;
	return has_option(scheme->about.options, pair) ||
	       has_option(scheme->about.shared_options, pair);
}

static void list_options(struct buffer *message, const struct workspace_scheme_option *list)
{
	for (; list && list->name; list++)
		buffer_printf(message, "%s, ", list->name);
}

/* The schemes that have the option, if any has. */
static void list_owners(struct buffer *message, const char *pair)
{
	for (size_t i = 0; i < array_size(schemes); i++)
		if (scheme_has(schemes[i], pair, true))
			buffer_printf(message, "%s%s:", message->size ? ", " : "",
				schemes[i]->about.name);
	if (message->size)
		buffer_append(message, "", 1);
}

static void list_all(struct buffer *message, const struct scheme *scheme)
{
	const struct workspace_layer *layer;

	list_options(message, scheme->about.options);
	list_options(message, scheme->about.shared_options);
	for (size_t i = 0; (layer = workspace_layer(i)); i++)
		if (has_layer(scheme, layer))
			list_options(message, layer->options);
}

static void explain_unknown(const struct scheme *scheme, const char *pair, char **ret_reason)
{
	cleanup_buffer struct buffer owners = {0}, message = {0};
	int length = (int)strcspn(pair, "=");

	list_owners(&owners, pair);
	buffer_printf(&message, "\"%s:\" has no option \"%.*s\"", scheme->about.name, length, pair);
	if (owners.size)
		buffer_printf(&message, ", which is for %s", (const char *)owners.data);
	buffer_append_string(&message, "; it has ");
	list_all(&message, scheme);
	buffer_append_string(&message, "and see isthmus(1) for those of every mount");
	*ret_reason = buffer_steal_string(&message);
}

int scheme_check_options(const struct scheme *scheme, const struct workspace_options *options,
	bool with_layers, char **ret_reason)
{
	for (const char *const *pair = options ? options->pairs : NULL; pair && *pair; pair++) {
		if (scheme_has(scheme, *pair, with_layers))
			continue;
		explain_unknown(scheme, *pair, ret_reason);
		if (options->ret_unknown)
			*options->ret_unknown = *pair;
		return -EINVAL;
	}
	return 0;
}

int scheme_open(const char *name, const char *rest, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason)
{
	const struct scheme *scheme = scheme_find(name);
	int r = scheme ? scheme_check_options(scheme, options, true, ret_reason) : -EINVAL;

	return r < 0 ? r : scheme->open(scheme, rest, options, ret_workspace, ret_reason);
}
