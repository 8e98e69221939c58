/* The table of decorators on top of what a scheme opens, from the bottom up. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/backend.h"
#include "ops/cache/cached.h"
#include "ops/policy.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/glob.h"
#include "ops/support/ignore.h"
#include "ops/support/log.h"
#include "ops/workspace.h"
#include "ops/writeback/writeback.h"

/* Unwatched facts are cached here in addition to the kernel's own time-to-live, so only as long as
 * it takes to use the result of one scan. */
enum { DISK_CACHE_MIN_BYTES = 1 << 20, MEMORY_MIN_BYTES = 1 << 20, UNWATCHED_TTL_MS = 250 };

static const uint64_t disk_cache_default_bytes = 2ull << 30;

/* Puts the layer on `inner`, which it owns on success; `*ret_workspace` is `inner` itself when the
 * options do not want the layer.  Errors as workspace_open(). */
struct layer {
	struct workspace_layer about; /* first */

	/* Refuses values of its options, with a reason: before anything is connected to. */
	int (*check)(const char *uri, const struct workspace_options *options, char **ret_reason);
	int (*add)(const char *uri, const struct workspace_options *options,
		struct workspace *inner, struct workspace **ret_workspace, char **ret_reason);
};

/* ---- The cache ------------------------------------------------------------------- */

static const struct workspace_scheme_option cache_options[] = {
	{"cache", "on|memory|off|strict"},
	{"cache_size", "BYTES"},
	{"memory", "BYTES"},
	{0},
};

static int read_cache_options(const char *uri, const struct workspace_options *options,
	struct cached_options *ret_options, bool *ret_off, char **ret_reason)
{
	const char *cache = workspace_option(options, "cache");
	const char *size = workspace_option(options, "cache_size");
	const char *memory = workspace_option(options, "memory");
	int r = 0;

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
	if (size)
		r = backend_parse_size("cache_size", size, DISK_CACHE_MIN_BYTES,
			&ret_options->disk_bytes, ret_reason);
	if (memory && r == 0)
		r = backend_parse_size(
			"memory", memory, MEMORY_MIN_BYTES, &ret_options->memory_bytes, ret_reason);
	return r;
}

static int check_cache(const char *uri, const struct workspace_options *options, char **ret_reason)
{
	struct cached_options cached_options;
	bool off;

	return read_cache_options(uri, options, &cached_options, &off, ret_reason);
}

/* A workspace on this machine needs no cache but the kernel's.  One that ignores case has none, as
 * a change of one name says nothing about the others that lead to the object. */
static int add_cache(const char *uri, const struct workspace_options *options,
	struct workspace *inner, struct workspace **ret_workspace, char **ret_reason)
{
	struct cached_options cached_options;
	struct workspace_status status;
	bool off;
	int r;

	workspace_status(inner, &status);
	*ret_workspace = inner;
	if (!(status.capabilities & WORKSPACE_IS_REMOTE))
		return 0;
	r = read_cache_options(uri, options, &cached_options, &off, ret_reason);
	off = off || (options && options->strict) || (status.capabilities & WORKSPACE_IGNORES_CASE);
	if (r == 0 && !off)
		r = cached_new(inner, &cached_options, ret_workspace);
	return r;
}

/* ---- Writes that do not wait ----------------------------------------------------- */

static const struct workspace_scheme_option writeback_layer_options[] = {
	{"writes", "through|back"},
	{0},
};

static bool has_waiting(const char *uri, const char *state)
{
	uint64_t waiting;
	int r = state ? writeback_waiting(state, &waiting, NULL) : -ENOENT;

	if (r == -EBADMSG)
		log_warning("another version of isthmus has left changes that were made at \"%s\" "
			    "in \"%s\", and this one cannot send them: mount it with that version "
			    "and -o writes=back, or move that directory away",
			uri, state);
	return r == 0 && waiting > 0;
}

static bool writes_through(const struct workspace_options *options)
{
	const char *writes = workspace_option(options, "writes");

	return !writes || strcmp(writes, "through") == 0;
}

static int check_writeback(
	const char *uri, const struct workspace_options *options, char **ret_reason)
{
	const char *writes = workspace_option(options, "writes");

	(void)uri;
	if (writes_through(options) || strcmp(writes, "back") == 0)
		return 0;
	*ret_reason = string_printf("option writes=\"%s\": write through or back", writes);
	return -EINVAL;
}

/* Without the option, what an earlier mount has left is sent all the same. */
static int add_writeback(const char *uri, const struct workspace_options *options,
	struct workspace *inner, struct workspace **ret_workspace, char **ret_reason)
{
	cleanup_free char *identity = workspace_normal_uri(uri), *state = NULL, *lost = NULL;
	struct writeback_options writeback_options = {.identity = identity};
	struct workspace_status status;

	workspace_status(inner, &status);
	*ret_workspace = inner;
	writeback_options.drains = writes_through(options);
	if (status.capabilities & WORKSPACE_READ_ONLY)
		return 0;
	if (!identity)
		return -ENOMEM;
	writeback_options.state = state = writeback_state_directory(identity);
	writeback_options.lost = lost = writeback_lost_directory(identity);
	if (writeback_options.drains && !has_waiting(uri, state))
		return 0;
	if (!writeback_options.drains && (status.capabilities & WORKSPACE_IGNORES_CASE)) {
		*ret_reason =
			string_printf("option writes=back does not work in \"%s\", where names "
				      "that differ in case only lead to one file: use "
				      "writes=through",
				uri);
		return -EINVAL;
	}
	if (!state || !lost) {
		*ret_reason = strdup("option writes=back needs a directory for its journal: set "
				     "XDG_STATE_HOME or HOME");
		return -EINVAL;
	}
	return writeback_new(inner, &writeback_options, ret_workspace, ret_reason);
}

/* ---- The policy ------------------------------------------------------------------ */

static const struct workspace_scheme_option policy_options[] = {
	{"hide", "PATTERN"},
	{"protect", "PATTERN"},
	{"agentsignore", NULL},
	{0},
};

/* A rule that cannot match anything would only seem to protect. */
static bool is_pattern(const char *text)
{
	struct glob glob;

	if (strchr(text, '\n') || glob_compile(text, &glob) < 0)
		return false;
	glob_done(&glob);
	return true;
}

/* Each value is put in front: the last one that matches decides. */
static int read_rules(const struct workspace_options *options, const char *key, bool ignores_case,
	struct ignore **rules, char **ret_reason)
{
	const char *pattern;
	size_t next = 0;

	while ((pattern = workspace_option_next(options, key, &next))) {
		cleanup_free char *compared = strdup(pattern);
		int r = compared ? 0 : -ENOMEM;

		if (compared && ignores_case)
			policy_fold(compared, strlen(compared));
		if (compared && is_pattern(pattern))
			r = ignore_add(rules, "", compared, strlen(compared));
		if (r > 0)
			continue;
		if (r == 0 && asprintf(ret_reason,
				      "option %s=\"%s\" is no pattern as in gitignore(5); write a "
				      "name (.env), a glob (*.pem) or a path from the root "
				      "(/deploy/keys)",
				      key, pattern) < 0)
			*ret_reason = NULL;
		return r < 0 ? r : -EINVAL;
	}
	return 0;
}

static int read_policy(const struct workspace_options *options, bool ignores_case,
	struct policy_rules *rules, char **ret_reason)
{
	const char *agentsignore = workspace_option(options, "agentsignore");
	int r = read_rules(options, "hide", ignores_case, &rules->hidden, ret_reason);

	if (r == 0)
		r = read_rules(options, "protect", ignores_case, &rules->protected, ret_reason);
	if (r == 0 && agentsignore && *agentsignore) {
		*ret_reason = strdup("option agentsignore takes no value");
		r = -EINVAL;
	}
	rules->agentsignore = agentsignore;
	return r;
}

static int check_policy(const char *uri, const struct workspace_options *options, char **ret_reason)
{
	struct policy_rules rules = {0};
	int r = read_policy(options, false, &rules, ret_reason);

	(void)uri;
	ignore_unref(rules.hidden);
	ignore_unref(rules.protected);
	return r;
}

static int add_policy(const char *uri, const struct workspace_options *options,
	struct workspace *inner, struct workspace **ret_workspace, char **ret_reason)
{
	struct policy_rules rules = {0};
	struct workspace_status status;
	int r;

	(void)uri;
	workspace_status(inner, &status);
	r = read_policy(options, status.capabilities & WORKSPACE_IGNORES_CASE, &rules, ret_reason);
	*ret_workspace = inner;
	if (r == 0 && (rules.hidden || rules.protected || rules.agentsignore)) {
		r = policy_new(inner, &rules, ret_workspace);
		if (r == 0)
			return 0;
	}
	ignore_unref(rules.hidden);
	ignore_unref(rules.protected);
	return r;
}

/* ---- The stack ------------------------------------------------------------------- */

static const struct layer layers[] = {
	{{"cache", cache_options, .far_only = true}, check_cache, add_cache},
	{{"writes", writeback_layer_options, .far_only = true}, check_writeback, add_writeback},
	/* Above: nothing hidden is shown from a cache. */
	{{"policy", policy_options}, check_policy, add_policy},
};

const struct workspace_layer *workspace_layer(size_t index)
{
	return index < array_size(layers) ? &layers[index].about : NULL;
}

int layers_check(const char *uri, const struct workspace_options *options, char **ret_reason)
{
	int r = 0;

	for (size_t i = 0; i < array_size(layers) && r == 0; i++)
		r = layers[i].check(uri, options, ret_reason);
	return r;
}

int layers_add(const char *uri, const struct workspace_options *options,
	struct workspace *workspace, struct workspace **ret_workspace, char **ret_reason)
{
	for (size_t i = 0; i < array_size(layers); i++) {
		int r = layers[i].add(uri, options, workspace, &workspace, ret_reason);

		if (r < 0) {
			workspace_free(workspace);
			return r;
		}
	}
	*ret_workspace = workspace;
	return 0;
}
