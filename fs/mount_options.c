#include "fs/mount_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/command_line.h"
#include "fs/commands.h"
#include "ops/support/cleanup.h"

static const char usage[] =
	"usage: isthmus mount [-f] [-o OPTION,...] [--idmap=user|none] [--size=BYTES]\n"
	"                     [--ttl=SECONDS] [--read-only] URI DIR\n"
	"\n"
	"Mounts the workspace URI on the empty directory DIR and returns when it can be used.\n"
	"\n"
	"  -f, --foreground     stay in front; diagnostics go to stderr\n"
	"  -o OPTION,...        ro, allow_other, allow_root, nonempty, ttl=, idmap=, cache=strict\n"
	"                       (cache nothing that others can change: slower), or an option of\n"
	"                       the place: see isthmus(1)\n"
	"  --idmap=user|none    show the workspace owner's files as yours (default where the\n"
	"                       workspace is on another machine), or ids as they are\n"
	"  --size=BYTES[kMGT]   bound of a mem: workspace\n"
	"  --ttl=SECONDS        how long names are believed where changes are not reported (1)\n"
	"  --log=required       serve nothing while the log cannot be written (default:\n"
	"                       best_effort)\n"
	"  --log-anchor=PLACE   send the digests of the log to a FILE, fd:N or syslog, too\n"
	"  -r, --read-only      refuse changes (-o ro)\n"
	"\n"
	"URI: local:/dir, mem:, helper:/dir, ssh://[user@]host[:port]/dir\n";

/* Options of -o that are neither ours nor the backend's. */
static const char *const fuse_words[] = {"allow_other", "allow_root", "nodev", "dev", "nosuid",
	"suid", "noexec", "exec", "noatime", "atime", "sync", "async", "dirsync"};

/* Words of fstab lines for mount(8) itself, or what always holds. */
static const char *const ignored_words[] = {"auto", "noauto", "user", "nouser", "users", "owner",
	"group", "_netdev", "nofail", "defaults", "default_permissions", "nonempty"};

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

static int set_ttl(struct mount_options *options, const char *text)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0 && seconds <= 86400))
		return command_usage_error(
			"mount", "ttl takes 0 to 86400 seconds, not \"%s\"", text);
	options->ttl_ms = (uint32_t)(seconds * 1000 + 0.5);
	return 0;
}

static int set_idmap(struct mount_options *options, const char *text)
{
	if (strcmp(text, "user") != 0 && strcmp(text, "none") != 0)
		return command_usage_error(
			"mount", "idmap takes \"user\" or \"none\", not \"%s\"", text);
	options->idmap_none = strcmp(text, "none") == 0;
	options->idmap_given = true;
	return 0;
}

static int set_string(char **string, const char *value)
{
	free(*string);
	*string = strdup(value);
	return *string ? 0 : -ENOMEM;
}

static int set_size(const char *key, const char *text, uint64_t *ret_bytes)
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
			"%s takes bytes with k, M, G or T behind them (512M), and no less than 1M, "
			"not \"%s\"",
			key, text);
	*ret_bytes = (uint64_t)bytes;
	return 0;
}

static int set_log(struct mount_options *options, const char *text)
{
	if (strcmp(text, "required") != 0 && strcmp(text, "best_effort") != 0)
		return command_usage_error(
			"mount", "log takes \"required\" or \"best_effort\", not \"%s\"", text);
	options->log_required = strcmp(text, "required") == 0;
	return 0;
}

/* The other caches are the business of the place. */
static int set_cache(struct mount_options *options, const char *word)
{
	options->cache_strict = strcmp(word, "cache=strict") == 0;
	return options->cache_strict ? 0 : add_pair(&options->backend_pairs, word);
}

static int set_option(struct mount_options *options, const char *word)
{
	if (!*word || strncmp(word, "x-", 2) == 0 || strncmp(word, "comment=", 8) == 0 ||
		is_one_of(word, ignored_words, array_size(ignored_words))) {
		options->nonempty |= strcmp(word, "nonempty") == 0;
		return 0;
	}
	if (strcmp(word, "ro") == 0 || strcmp(word, "rw") == 0) {
		options->read_only = strcmp(word, "ro") == 0;
		return 0;
	}
	if (strcmp(word, "log_reads") == 0) {
		options->log_reads = true;
		return 0;
	}
	if (strcmp(word, "log_secrets") == 0) {
		options->log_secrets = true;
		return 0;
	}
	if (strcmp(word, "io_uring") == 0) {
		options->io_uring = true;
		return 0;
	}
	if (strcmp(word, "remount") == 0) {
		options->remount = true;
		return 0;
	}
	if (strcmp(word, "noatime") == 0 || strcmp(word, "atime") == 0)
		options->no_atime = strcmp(word, "noatime") == 0;
	if (strncmp(word, "log=", 4) == 0)
		return set_log(options, word + 4);
	if (strncmp(word, "log_size=", 9) == 0)
		return set_size("log_size", word + 9, &options->log_size);
	if (strncmp(word, "log_keep=", 9) == 0)
		return set_size("log_keep", word + 9, &options->log_keep);
	if (strncmp(word, "log_anchor=", 11) == 0)
		return set_string(&options->log_anchor, word + 11);
	if (strncmp(word, "ttl=", 4) == 0)
		return set_ttl(options, word + 4);
	if (strncmp(word, "idmap=", 6) == 0)
		return set_idmap(options, word + 6);
	if (strncmp(word, "cache=", 6) == 0)
		return set_cache(options, word);
	if (is_one_of(word, fuse_words, array_size(fuse_words)))
		return add_pair(&options->fuse_pairs, word);
	return add_pair(&options->backend_pairs, word);
}

/* "a,b\,c,d": a backslash keeps a comma inside a value. */
static int set_options(struct mount_options *options, const char *list)
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
			r = set_option(options, word);
			if (!*c)
				break;
		}
	}
	return r;
}

static int set_long(struct mount_options *options, const char *key, const char *value)
{
	cleanup_free char *word = NULL;

	if (asprintf(&word, "%s=%s", key, value) < 0)
		return -ENOMEM;
	return set_option(options, word);
}

static int parse_one(struct mount_options *options, int letter)
{
	switch (letter) {
	case 'f':
		options->foreground = true;
		return 0;
	case 'r':
		options->read_only = true;
		return 0;
	case 'o':
		return set_options(options, optarg);
	case 'i':
		return set_idmap(options, optarg);
	case 't':
		return set_ttl(options, optarg);
	case 's':
		return set_long(options, "size", optarg);
	case 'L':
		return set_log(options, optarg);
	case 'A':
		return set_string(&options->log_anchor, optarg);
	case 'n': /* mount(8): do not write /etc/mtab */
	case 'v':
		return 0;
	case 'h':
		fputs(usage, stdout);
		return 1;
	default:
		return EXIT_USAGE;
	}
}

int mount_options_parse(int argc, char **argv, struct mount_options *ret_options)
{
	static const struct option longs[] = {{"foreground", no_argument, NULL, 'f'},
		{"read-only", no_argument, NULL, 'r'}, {"idmap", required_argument, NULL, 'i'},
		{"ttl", required_argument, NULL, 't'}, {"size", required_argument, NULL, 's'},
		{"log-anchor", required_argument, NULL, 'A'}, {"log", required_argument, NULL, 'L'},
		{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	int letter, r = 0;

	*ret_options = (struct mount_options){.ttl_ms = 1000};
	optind = 0;
	while (r == 0 && (letter = command_getopt("mount", argc, argv, ":frnvo:h", longs)) >= 0)
		r = parse_one(ret_options, letter);
	if (r == 0 && argc - optind != 2)
		r = command_usage_error("mount", "it takes a URI and a directory");
	if (r == 0) {
		ret_options->uri = argv[optind];
		ret_options->mount_point = argv[optind + 1];
	}
	if (r < 0)
		command_error("mount", "%s", strerror(-r));
	return r;
}

static void offer(struct command_guess *guess, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		command_guess_offer(guess, words[i]);
}

void mount_options_guess(const char *unknown)
{
	static const char *const own[] = {
		"ro", "ttl", "idmap", "log", "log_anchor", "log_keep", "log_reads", "log_size"};
	cleanup_free char *word = strndup(unknown, strcspn(unknown, "="));
	struct command_guess guess;

	command_guess_init(&guess, word ? word : "");
	offer(&guess, own, array_size(own));
	offer(&guess, fuse_words, array_size(fuse_words));
	offer(&guess, ignored_words, array_size(ignored_words));
	if (guess.nearest)
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
}
