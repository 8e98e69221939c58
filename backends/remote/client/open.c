#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/client/bootstrap.h"
#include "backends/remote/client/end.h"
#include "backends/remote/wire/protocol.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum {
	TIMEOUT_DEFAULT_SECONDS = 30,
	TIMEOUT_MAX_SECONDS = 86400,
	LINGER_DEFAULT_SECONDS = 600,
	LINGER_MAX_SECONDS = 7 * 86400,
};

const struct workspace_scheme_option remote_options[] = {
	{"timeout", "SECONDS|forever"},
	{"linger", "SECONDS"},
	{"channels", "NUMBER"},
	{"helper_dir", "DIR"},
	{"keep", "yes|no"},
	{"restart", "follow|stop"},
	{"compress", "auto|yes|no"},
	{0},
};

struct number {
	const char *key, *unit;
	uint32_t preset, min, max;
};

static int number_option(const struct workspace_options *options, const struct number *kind,
	uint32_t *ret_number, char **ret_reason)
{
	const char *text = workspace_option(options, kind->key);
	unsigned long number;
	char *end;

	*ret_number = kind->preset;
	if (!text)
		return 0;
	number = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || number < kind->min || number > kind->max) {
		if (asprintf(ret_reason, "option %s=\"%s\" is not a number of %s from %u to %u",
			    kind->key, text, kind->unit, kind->min, kind->max) < 0)
			*ret_reason = NULL;
		return -EINVAL;
	}
	*ret_number = (uint32_t)number;
	return 0;
}

/* One of `words` (which end with NULL); the first without the option. */
static int word_option(const struct workspace_options *options, const char *key,
	const char *const *words, unsigned *ret_index, char **ret_reason)
{
	const char *text = workspace_option(options, key);

	*ret_index = 0;
	for (unsigned i = 0; text && words[i]; i++)
		if (strcmp(text, words[i]) == 0) {
			*ret_index = i;
			return 0;
		}
	if (!text)
		return 0;
	if (asprintf(ret_reason, "option %s=\"%s\": write %s%s%s or %s", key, text, words[0],
		    words[2] ? ", " : "", words[2] ? words[1] : "",
		    words[2] ? words[2] : words[1]) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}

/* ---- Opening ------------------------------------------------------------------------------ */

static int read_options(const struct workspace_options *options, struct remote_settings *settings,
	char **ret_reason)
{
	static const struct number timeout = {
		"timeout", "seconds", TIMEOUT_DEFAULT_SECONDS, 1, TIMEOUT_MAX_SECONDS};
	static const struct number linger = {
		"linger", "seconds", LINGER_DEFAULT_SECONDS, 0, LINGER_MAX_SECONDS};
	static const struct number channels = {
		"channels", "connections", CHANNELS_MAX, 1, CHANNELS_MAX};
	static const char *const keep_words[] = {"yes", "no", NULL};
	static const char *const restart_words[] = {"follow", "stop", NULL};
	static const char *const compress_words[] = {"auto", "yes", "no", NULL};
	static const enum compression compressions[] = {
		COMPRESSION_AS_NEEDED, COMPRESSION_ALWAYS, COMPRESSION_NONE};
	const char *directory = workspace_option(options, "helper_dir");
	unsigned keep = 0, restart = 0, compress = 0;
	const char *text = workspace_option(options, timeout.key);
	bool is_forever = text && strcmp(text, "forever") == 0;
	uint32_t timeout_seconds = 0;
	int r = is_forever ? 0 : number_option(options, &timeout, &timeout_seconds, ret_reason);

	if (r == 0)
		r = number_option(options, &linger, &settings->linger_seconds, ret_reason);
	if (r == 0)
		r = number_option(options, &channels, &settings->channels, ret_reason);
	if (r == 0)
		r = word_option(options, "keep", keep_words, &keep, ret_reason);
	if (r == 0)
		r = word_option(options, "restart", restart_words, &restart, ret_reason);
	if (r == 0)
		r = word_option(options, "compress", compress_words, &compress, ret_reason);
	if (r < 0)
		return r;
	settings->compression = compress || !settings->scheme->end->is_here ? compressions[compress]
									    : COMPRESSION_NONE;
	settings->stops_when_replaced = restart == 1;
	settings->forgets_helper = keep == 1;
	settings->timeout_ms = is_forever ? REMOTE_WAITS_FOREVER : timeout_seconds * 1000;
	settings->link_changed = options->link_changed;
	settings->replaced = options->replaced;
	settings->link_user = options->link_user;
	if (options->session_path) {
		settings->session_path = strdup(options->session_path);
		if (!settings->session_path)
			return -ENOMEM;
	}
	if (directory) {
		settings->helper_directory = strdup(directory);
		if (!settings->helper_directory)
			return -ENOMEM;
	}
	return 0;
}

/* ---- Parameters of the URI ------------------------------------------------------------------ */

static bool is_word(const char *text, size_t length)
{
	return length > 0 && strspn(text, "abcdefghijklmnopqrstuvwxyz_") >= length;
}

/* A "?" that is not followed by "word=" belongs to the directory. */
static char *find_parameters(char *rest)
{
	char *mark = strrchr(rest, '?');
	size_t length = mark ? strcspn(mark + 1, "=") : 0;

	return mark && mark[1 + length] && is_word(mark + 1, length) ? mark : NULL;
}

/* Cuts them off `rest` and adds them to the pairs. */
static int take_parameters(
	const struct scheme *scheme, char *rest, struct argv *pairs, char **ret_reason)
{
	char *mark = scheme->end->takes_parameters ? find_parameters(rest) : NULL;
	char *parameters = mark ? mark + 1 : NULL, *pair;
	struct workspace_options options = {0};

	if (!mark)
		return 0;
	*mark = '\0';
	while ((pair = strsep(&parameters, "&")))
		argv_add(pairs, pair);
	options.pairs = (const char *const *)pairs->words;
	return pairs->failed ? -ENOMEM : scheme_check_options(scheme, &options, false, ret_reason);
}

/* Where the directory begins in "//host/dir", "COMMAND !/dir" or "/dir"; the end where there is
 * none. */
static char *find_directory(char *rest)
{
	char *mark = rest, *next;

	if (strncmp(rest, "//", 2) == 0)
		return rest + 2 + strcspn(rest + 2, "/");
	while ((next = strstr(mark, "!/")))
		mark = next + 1;
	return *mark == '/' ? mark : rest + strlen(rest);
}

/* Without empty and "." components, in its place. */
static void clean_directory(char *directory)
{
	char *rest = directory, *out = directory, *component;

	if (!*directory)
		return;
	while ((component = strsep(&rest, "/"))) {
		size_t length = strlen(component);

		if (!length || strcmp(component, ".") == 0)
			continue;
		*out++ = '/';
		memmove(out, component, length);
		out += length;
	}
	if (out == directory)
		*out++ = '/';
	*out = '\0';
}

char *remote_normal(const struct scheme *scheme, const char *rest)
{
	cleanup_free char *bare = strdup(rest), *parameters = NULL, *real = NULL;
	char *mark = bare && scheme->end->takes_parameters ? find_parameters(bare) : NULL;
	char *directory;

	if (!bare || (mark && !(parameters = strdup(mark))))
		return NULL;
	if (mark)
		*mark = '\0';
	directory = find_directory(bare);
	if (scheme->end->is_here && *directory)
		real = realpath(directory, NULL);
	if (real)
		*directory = '\0';
	else
		clean_directory(directory);
	return string_printf("%s%s%s", bare, real ? real : "", parameters ? parameters : "");
}

int remote_open(const struct scheme *scheme, const char *rest,
	const struct workspace_options *options, struct workspace **ret_workspace,
	char **ret_reason)
{
	struct workspace_options all = options ? *options : (struct workspace_options){0};
	struct remote_settings settings = {.scheme = scheme};
	cleanup_free char *bare = strdup(rest);
	cleanup_argv struct argv pairs = {0};
	int64_t begun_ms = clock_now_ms();
	int r = bare ? 0 : -ENOMEM;

	argv_add_list(&pairs, (char *const *)(uintptr_t)all.pairs);
	if (r == 0)
		r = take_parameters(scheme, bare, &pairs, ret_reason);
	all.pairs = (const char *const *)pairs.words;
	if (r == 0)
		r = read_options(&all, &settings, ret_reason);
	if (r == 0)
		r = scheme->end->prepare(bare, &all, &settings, ret_reason);
	settings.prepare_ms = (int)(clock_now_ms() - begun_ms);
	if (r == 0 && scheme->end->stream)
		r = remote_start_at_shell(&settings);
	if (r == 0)
		r = remote_workspace_new(&settings, ret_workspace, ret_reason);
	if (r < 0)
		remote_settings_done(&settings);
	return r;
}
