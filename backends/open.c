#include "backends/open.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/backend.h"
#include "ops/cache/cached.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

/* What nobody watches is believed here in addition to the kernel's own time-to-live, so
 * only as long as it takes to make use of what one scan brought. */
enum { DISK_CACHE_MIN_BYTES = 1 << 20, UNWATCHED_TTL_MS = 250 };

static const uint64_t disk_cache_default_bytes = 2ull << 30;

/* A plain path, or HOST:/dir as scp(1) has it.  NULL: no idea. */
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
	cleanup_buffer struct buffer words = {0};
	const struct workspace_scheme *scheme;

	buffer_printf(
		&words, "\"%s\" is not the URI of a workspace; it takes one of these forms: ", uri);
	for (size_t i = 0; (scheme = workspace_scheme(i)); i++)
		buffer_printf(&words, "%s%s", i ? ", " : "", scheme->form);
	if (meant)
		buffer_printf(&words, "; did you mean \"%s\"?", meant);
	*ret_reason = buffer_steal_string(&words);
}

static int read_cache_options(const char *uri, const struct workspace_options *options,
	struct cached_options *ret_options, bool *ret_off, char **ret_reason)
{
	const char *cache = workspace_option(options, "cache");
	const char *size = workspace_option(options, "cache_size");

	*ret_options = (struct cached_options){.identity = uri,
		.disk_bytes = disk_cache_default_bytes,
		.ttl_ms = UNWATCHED_TTL_MS};
	*ret_off = cache && strcmp(cache, "off") == 0;
	if (cache && !*ret_off && strcmp(cache, "memory") == 0)
		ret_options->disk_bytes = 0;
	else if (cache && !*ret_off && strcmp(cache, "on") != 0) {
		if (asprintf(ret_reason, "option cache=\"%s\": write on, memory, off or strict",
			    cache) < 0)
			*ret_reason = NULL;
		return -EINVAL;
	}
	if (!size)
		return 0;
	return backend_parse_size(
		"cache_size", size, DISK_CACHE_MIN_BYTES, &ret_options->disk_bytes, ret_reason);
}

/* A far workspace is cached here; what is near needs no more than the kernel's caches. */
static int wrap(const char *uri, const struct workspace_options *options,
	struct workspace **workspace, char **ret_reason)
{
	struct cached_options cached_options;
	struct workspace_status status;
	bool off;
	int r;

	workspace_status(*workspace, &status);
	if (!(status.capabilities & WORKSPACE_IS_REMOTE))
		return 0;
	r = read_cache_options(uri, options, &cached_options, &off, ret_reason);
	if (r == 0 && !off && !options->strict)
		r = cached_new(*workspace, &cached_options, workspace);
	if (r < 0) {
		workspace_free(*workspace);
		*workspace = NULL;
	}
	return r;
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
	r = scheme_open(scheme->about.name, strchr(uri, ':') + 1, options, &workspace, ret_reason);
	if (r == 0)
		r = wrap(uri, options, &workspace, ret_reason);
	if (r < 0)
		return r;
	*ret_workspace = workspace;
	return 0;
}
