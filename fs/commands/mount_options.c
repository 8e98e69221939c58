#include "fs/commands/mount_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/open.h"
#include "fs/commands/command_line.h"
#include "fs/commands/commands.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

static const char usage[] =
	"usage: isthmus mount [-f] [-o OPTION,...] [--idmap=user|none] [--size=BYTES]\n"
	"                     [--ttl=SECONDS] [--read-only] URI DIR\n"
	"\n"
	"Mounts the workspace URI on the empty directory DIR, and returns when it can be used.\n"
	"\n"
	"  -f, --foreground     run in the foreground; diagnostics go to stderr\n"
	"  -o OPTION,...        ro, allow_other, allow_root, nonempty, ttl=, idmap=, cache=strict\n"
	"                       (cache nothing that others can change: slower), watch_events=off\n"
	"                       (no inotify events for changes by others), env=login (commands\n"
	"                       have the environment of a login shell), or an option of the\n"
	"                       place: see isthmus(1)\n"
	"  --idmap=user|none    show the workspace owner's files as yours (default if the\n"
	"                       workspace is on another machine), or show numeric ids unchanged\n"
	"  --size=BYTES[kMGT]   capacity of a mem: workspace\n"
	"  --ttl=SECONDS        how long names are cached if changes are not reported (1)\n"
	"  --log=required       fail all operations while the log cannot be written (default:\n"
	"                       best_effort)\n"
	"  --log-anchor=PLACE   also send the digests of the log to a file, fd:N or syslog\n"
	"  -r, --read-only      refuse changes (-o ro)\n";

static void add_place_options(
	struct buffer *text, const struct workspace_scheme_option *option, const char *first)
{
	for (; option && option->name; option++, first = ",")
		buffer_printf(text, "%s%s%s%s", first, option->name, option->value ? "=" : "",
			option->value ? option->value : "");
}

static void add_layers(struct buffer *text, bool far_only)
{
	const struct workspace_layer *layer;

	for (size_t i = 0; (layer = workspace_layer(i)); i++)
		if (layer->far_only == far_only)
			add_place_options(text, layer->options, "\n  -o ");
}

/* Adds the shared options once; schemes that share them are adjacent in the table. */
static void add_shared_options(struct buffer *text)
{
	const struct workspace_scheme *scheme, *next;
	const char *separator = "\n";

	for (size_t i = 0; (scheme = workspace_scheme(i)); i++) {
		next = workspace_scheme(i + 1);
		if (!scheme->shared_options)
			continue;
		buffer_printf(text, "%s%s:", separator, scheme->name);
		separator = ", ";
		if (next && next->shared_options == scheme->shared_options)
			continue;
		add_place_options(text, scheme->shared_options, "\n  -o ");
		add_layers(text, true);
		buffer_append_string(text, "\n");
		separator = "\n";
	}
}

/* Adds the help of all places, from the table of schemes. */
static void add_places(struct buffer *text)
{
	const struct workspace_scheme *scheme;

	buffer_append_string(text, "\nURI, and the options of -o that only it has:\n");
	for (size_t i = 0; (scheme = workspace_scheme(i)); i++) {
		buffer_printf(text, "  %s\n      %s\n", scheme->form, scheme->summary);
		add_place_options(text, scheme->options, "      -o ");
		if (scheme->options)
			buffer_append_string(text, "\n");
	}
	add_shared_options(text);
	buffer_append_string(text,
		"\nEvery workspace (what they hide and protect is not hidden from, "
		"or protected\nagainst, commands of exec):");
	add_layers(text, false);
	buffer_append(text, "\n", 2);
}

/* Options of -o for libfuse or the kernel. */
static const char *const fuse_words[] = {"allow_other", "allow_root", "nodev", "dev", "nosuid",
	"suid", "noexec", "exec", "noatime", "atime", "sync", "async", "dirsync"};

/* Words of fstab lines for mount(8) itself, and options that are always on. */
static const char *const ignored_words[] = {"auto", "noauto", "user", "nouser", "users", "owner",
	"group", "_netdev", "nofail", "defaults", "default_permissions"};

static bool is_one_of(const char *word, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return false;
}

/* Appends a copy of `text` to a NULL-terminated list. */
static int add_pair(const char *const **list, const char *text)
{
	size_t count = 0;
	const char **longer;

	while (*list && (*list)[count])
		count++;
	longer = realloc((void *)*list, (count + 2) * sizeof(*longer));
	if (!longer)
		return -ENOMEM;
	*list = longer;
	longer[count] = strdup(text);
	longer[count + 1] = NULL;
	return longer[count] ? 0 : -ENOMEM;
}

static int add_setting(const char *const **list, const char *key, const char *value)
{
	cleanup_free char *word = string_printf("%s=%s", key, value);

	return word ? add_pair(list, word) : -ENOMEM;
}

static int set_ttl(void *into, const char *text)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0 && seconds <= 86400))
		return command_usage_error(
			"mount", "ttl takes 0 to 86400 seconds, not \"%s\"", text);
	*(uint32_t *)into = (uint32_t)(seconds * 1000 + 0.5);
	return 0;
}

static int set_idmap(void *into, const char *text)
{
	struct mount_options *options = into;

	if (strcmp(text, "user") != 0 && strcmp(text, "none") != 0)
		return command_usage_error(
			"mount", "idmap takes \"user\" or \"none\", not \"%s\"", text);
	options->idmap_none = strcmp(text, "none") == 0;
	options->idmap_given = true;
	return 0;
}

static int set_string(void *into, const char *text)
{
	char **string = into;

	free(*string);
	*string = strdup(text);
	return *string ? 0 : -ENOMEM;
}

static int set_bytes(void *into, const char *text)
{
	static const char units[] = "kMGT";
	char *end;
	double bytes = strtod(text, &end);
	const char *unit = *end ? strchr(units, *end) : NULL;

	for (const char *u = units; unit && u <= unit; u++)
		bytes *= 1024;
	end += unit != NULL;
	if (end == text || *end || !(bytes >= 1 << 20 && bytes <= (double)(1ULL << 50)))
		return command_usage_error("mount",
			"log_size and log_keep take bytes with k, M, G or T behind them (512M), "
			"and no less than 1M, not \"%s\"",
			text);
	*(uint64_t *)into = (uint64_t)bytes;
	return 0;
}

/* Sets a flag if the text is `yes`. */
static int set_word(
	bool *into, const char *text, const char *option, const char *yes, const char *no)
{
	if (strcmp(text, yes) != 0 && strcmp(text, no) != 0)
		return command_usage_error(
			"mount", "%s takes \"%s\" or \"%s\", not \"%s\"", option, yes, no, text);
	*into = strcmp(text, yes) == 0;
	return 0;
}

static int set_log(void *into, const char *text)
{
	return set_word(into, text, "log", "required", "best_effort");
}

static int set_watch_events(void *into, const char *text)
{
	return set_word(into, text, "watch_events", "off", "on");
}

static int set_env(void *into, const char *text)
{
	return set_word(into, text, "env", "login", "session");
}

static int set_locks(void *into, const char *text)
{
	return set_word(into, text, "locks", "local", "workspace");
}

/* cache=strict is an option of every mount; the place handles other values. */
static int set_cache(void *into, const char *text)
{
	struct mount_options *options = into;

	options->cache_strict = strcmp(text, "strict") == 0;
	return options->cache_strict ? 0 : add_setting(&options->backend_pairs, "cache", text);
}

static int set_size(void *into, const char *text)
{
	return add_setting(into, "size", text);
}

#define FIELD(name) offsetof(struct mount_options, name)

/* The mount's own options of -o: those with `set` take a value, the others are flags. */
static const struct {
	const char *word;
	size_t field;
	command_setter set;
	bool flag;
} own[] = {
	{"ro", FIELD(read_only), .flag = true},
	{"rw", FIELD(read_only), .flag = false},
	{"ttl", FIELD(ttl_ms), set_ttl},
	{"idmap", 0, set_idmap},
	{"cache", 0, set_cache},
	{"log", FIELD(log_required), set_log},
	{"log_anchor", FIELD(log_anchor), set_string},
	{"log_keep", FIELD(log_keep), set_bytes},
	{"log_size", FIELD(log_size), set_bytes},
	{"log_reads", FIELD(log_reads), .flag = true},
	{"log_secrets", FIELD(log_secrets), .flag = true},
	{"io_uring", FIELD(io_uring), .flag = true},
	{"env", FIELD(env_login), set_env},
	{"locks", FIELD(locks_local), set_locks},
	{"nonempty", FIELD(nonempty), .flag = true},
	{"remount", FIELD(remount), .flag = true},
	{"watch_events", FIELD(watch_events_off), set_watch_events},
};

static int set_option(struct mount_options *options, const char *word)
{
	size_t length = strcspn(word, "=");

	if (!*word || strncmp(word, "x-", 2) == 0 || strncmp(word, "comment=", 8) == 0 ||
		is_one_of(word, ignored_words, array_size(ignored_words)))
		return 0;
	for (size_t i = 0; i < array_size(own); i++) {
		char *into = (char *)options + own[i].field;

		if (strncmp(word, own[i].word, length) != 0 || own[i].word[length])
			continue;
		if (own[i].set && word[length])
			return own[i].set(into, word + length + 1);
		if (own[i].set || word[length])
			return command_usage_error("mount", "option \"-o %s\" %s", own[i].word,
				own[i].set ? "needs a value" : "takes no value");
		*(bool *)into = own[i].flag;
		return 0;
	}
	if (strcmp(word, "noatime") == 0 || strcmp(word, "atime") == 0)
		options->no_atime = strcmp(word, "noatime") == 0;
	if (is_one_of(word, fuse_words, array_size(fuse_words)))
		return add_pair(&options->fuse_pairs, word);
	return add_pair(&options->backend_pairs, word);
}

/* "a,b\,c,d": a backslash keeps a comma inside a value. */
int mount_options_set(void *into, const char *list)
{
	cleanup_free char *word = malloc(strlen(list) + 1);
	size_t length = 0;
	int r = word ? 0 : -ENOMEM;

	for (const char *c = list; r == 0; c++) {
		if (*c == '\\' && c[1] == ',') {
			word[length++] = *++c;
		} else if (*c && *c != ',') {
			word[length++] = *c;
		} else {
			word[length] = '\0';
			length = 0;
			r = set_option(into, word);
			if (!*c)
				break;
		}
	}
	return r;
}

bool mount_options_parse(int argc, char **argv, struct mount_options *ret_options, int *ret_code)
{
	bool unused;
	struct mount_options *o = ret_options;
	const struct command_option known[] = {
		{"foreground", 'f', .flag = &o->foreground},
		{"read-only", 'r', .flag = &o->read_only},
		{NULL, 'o', .set = mount_options_set, .into = o},
		{"idmap", .set = set_idmap, .into = o},
		{"ttl", .set = set_ttl, .into = &o->ttl_ms},
		{"size", .set = set_size, .into = &o->backend_pairs},
		{"log", .set = set_log, .into = &o->log_required},
		{"log-anchor", .set = set_string, .into = &o->log_anchor},
		{NULL, 'n', .flag = &unused}, /* mount(8): do not write /etc/mtab */
		{NULL, 'v', .flag = &unused},
		{0},
	};
	cleanup_buffer struct buffer text = {0};
	struct command_line line = {.command = "mount", .options = known, .arguments_max = 2};

	*ret_options = (struct mount_options){.ttl_ms = 1000};
	buffer_append_string(&text, usage);
	add_places(&text);
	line.usage = text.data ? (const char *)text.data : usage;
	if (!command_parse(&line, argc, argv, ret_code))
		return false;
	if (argc - optind != 2) {
		*ret_code = command_usage_error("mount", "it takes a URI and a directory");
		return false;
	}
	if (strchr(argv[optind + 1], ':') && !strchr(argv[optind], ':')) {
		*ret_code = command_usage_error("mount", "the URI comes first: isthmus mount %s %s",
			argv[optind + 1], argv[optind]);
		return false;
	}
	ret_options->uri = workspace_uri(argv[optind]);
	if (!ret_options->uri) {
		*ret_code = command_error("mount", "out of memory");
		return false;
	}
	ret_options->mount_point = argv[optind + 1];
	return true;
}

void mount_options_guess(const char *unknown)
{
	cleanup_free char *word = strndup(unknown, strcspn(unknown, "="));
	struct command_guess guess;

	command_guess_init(&guess, word ? word : "");
	for (size_t i = 0; i < array_size(own); i++)
		command_guess_offer(&guess, own[i].word);
	for (size_t i = 0; i < array_size(fuse_words); i++)
		command_guess_offer(&guess, fuse_words[i]);
	for (size_t i = 0; i < array_size(ignored_words); i++)
		command_guess_offer(&guess, ignored_words[i]);
	if (guess.nearest && guess.steps > 0)
		fprintf(stderr, "Did you mean -o %s?\n", guess.nearest);
}

static void free_pairs(const char *const *pairs)
{
	for (const char *const *pair = pairs; pair && *pair; pair++)
		free((void *)*pair);
	free((void *)pairs);
}

void mount_options_done(struct mount_options *options)
{
	free_pairs(options->backend_pairs);
	free_pairs(options->fuse_pairs);
	free(options->log_anchor);
	free((void *)(uintptr_t)options->uri);
}
