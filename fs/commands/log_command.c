#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "fs/commands/command_text.h"
#include "fs/commands/commands.h"
#include "fs/commands/log_export.h"
#include "fs/commands/log_reader.h"
#include "fs/commands/log_verify.h"
#include "fs/commands/log_view.h"
#include "fs/mount/mount_point.h"
#include "fs/mount/runtime.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/files.h"
#include "ops/support/glob.h"
#include "ops/support/json.h"
#include "ops/support/log_segment.h"

static const char usage[] =
	"usage: isthmus log [DIR] [OPTION...]\n"
	"\n"
	"Shows the operations on the mount at DIR (default: the current directory), even after it\n"
	"was unmounted.\n"
	"\n"
	"      --op OP,...     only these operations: read, write, rename, exec ...\n"
	"      --path GLOB     only matching paths, and commands that changed such a path;\n"
	"                      '*' also matches '/'\n"
	"      --pid N         only this process\n"
	"      --call ID       only operations of this tool call and its child processes\n"
	"      --expanded      with --call: also what a custom tool draws for the call, in full\n"
	"      --conversation ID  only operations of the calls of this conversation\n"
	"      --slow TIME     only operations that took at least TIME (50ms, 1.5s)\n"
	"      --errors        only failures, except lookups of missing names\n"
	"      --since TIME    only operations that began at TIME or later: 2026-11-23, 10:28,\n"
	"                      '2026-11-23 10:28:12', or with Z for UTC: 2026-11-23T10:28Z\n"
	"      --until TIME    only operations that began before TIME\n"
	"      --last TIME     only operations that began in the last TIME (90s, 10m, 2h, 1d)\n"
	"  -n, --lines N       only the last N records\n"
	"  -f, --follow        show the last 10 records, then new ones\n"
	"      --json          print the lines of the log unchanged, see LOG.md\n"
	"      --export FORMAT csv, or otlp: OpenTelemetry logs as JSON, one batch per line\n"
	"      --summary       print totals by operation, process and call\n"
	"      --verify        verify the log; exit 1 if it was altered, 3 if it is incomplete\n"
	"      --verify-key KEY  verify also with this key; '-' reads it from standard input\n"
	"      --anchor FILE   verify also with the anchor (mount -o log_anchor=)\n"
	"      --tools         show the tool calls outside any mount instead\n"
	"      --setup-keys    seal the log from the next mount on; prints the verification key\n";

enum { FOLLOW_LINES = 10, LINES_MAX = 1000000 };

struct log_options {
	const char *directory;
	struct log_filter filter;
	int64_t lines;                 /* 0: all */
	enum log_export_format format; /* 0: none */
	bool follow, json, summary, verify, setup_keys, tools, expanded;
	struct log_verify_texts texts;
};

/* ---- Where the log is ---------------------------------------------------------------------- */

/* Asks the daemon to write its queued records, and takes the answer.  -ENODATA: it keeps no log.
 * Prints a message for other errors. */
static int flush_log(const char *control_path, struct log_source *source)
{
	cleanup_free char *reply = NULL;
	const char *path;
	cJSON *answer;
	int r = control_call(control_path, "{\"request\":\"log_flush\"}", &reply);

	if (r == -ENOTCONN && reply) { /* the daemon has answered that it keeps no log */
		if (source->directory)
			command_note("log", "the present mount keeps no log: these lines are from "
					    "earlier mounts");
		return -ENODATA;
	}
	if (r < 0) {
		command_error("log",
			r == -EACCES || r == -EPERM
				? "the mount belongs to another user: only that user and root can "
				  "read its log"
				: "the daemon does not answer: the last lines may be missing");
		return r;
	}
	answer = cJSON_Parse(reply);
	path = json_text(answer, "path");
	if (path && strrchr(path, '/')) {
		free(source->directory);
		source->directory = strndup(path, (size_t)(strrchr(path, '/') - path));
		source->lives = true;
		source->last_seq = (uint64_t)json_integer(answer, "last_seq");
		source->lost = (uint64_t)json_integer(answer, "lost");
	}
	cJSON_Delete(answer);
	return source->directory ? 0 : -ENODATA;
}

/* Finds the log by the path of the mount point, without access to it: the mount may be dead,
 * hanging or unmounted. */
static int find_by_mount_point(const char *directory, struct log_source *source)
{
	cleanup_with(runtime_mount_done) struct runtime_mount mount = {0};
	cleanup_free char *mount_point = NULL;
	int r;

	r = mount_point_resolve(directory, &mount_point);
	if (r < 0)
		return r;
	r = runtime_mount_init(&mount, mount_point);
	if (r < 0)
		return r;
	if (!mount.log_directory || access(mount.log_directory, R_OK | X_OK) < 0)
		return -ENODATA;
	source->directory = steal_ptr(&mount.log_directory);
	if (mount_point_daemon(mount_point))
		flush_log(mount.control_path, source);
	return 0;
}

static int find_log(const char *directory, struct log_source *source)
{
	cleanup_free char *control_path = NULL;
	int r;

	r = find_by_mount_point(directory, source);
	if (r == 0)
		return 0;
	command_limit_wait("log", directory);
	r = command_find_mount("log", directory, &control_path, NULL, NULL);
	if (r < 0)
		return r;
	r = flush_log(control_path, source);
	if (r == -ENODATA)
		command_error("log",
			"the mount of \"%s\" keeps no log, as it could not be written at the "
			"mount: "
			"make its directory writable, or set XDG_STATE_HOME to another one, and "
			"mount again",
			directory);
	return r;
}

static int find_tools_log(struct log_source *source)
{
	cleanup_free char *file = state_path(LOG_TOOLS_RING ".jsonl");

	source->ring = LOG_TOOLS_RING;
	source->directory = state_path(NULL);
	if (!file || !source->directory)
		return -ENOMEM;
	if (access(file, R_OK) == 0)
		return 0;
	command_error("log",
		errno == ENOENT ? "\"%s\" does not exist: no tool was called outside a mount yet"
				: "\"%s\": %m",
		file);
	return -ENOENT;
}

/* ---- Showing ---------------------------------------------------------------------- */

static void show_line(const struct log_options *options, const char *line, const cJSON *record)
{
	if (options->json)
		puts(line);
	else
		log_view_print(stdout, record, options->filter.glob);
}

/* The search for the first line to show: a number of lines before the end, or a time. */
struct search {
	const struct log_options *options;
	int64_t found;
	int error; /* -ENOMEM: a line could not be judged */
};

static enum log_visit look_for_begin(void *user, const char *line, size_t length)
{
	struct search *search = user;
	cJSON *record;
	int r;

	if (log_filter_is_past(&search->options->filter, line))
		return LOG_BEGIN_AFTER;
	if (!search->options->lines)
		return LOG_GO_BACK;
	r = log_filter_match(&search->options->filter, line, length, &record);
	if (r < 0)
		search->error = r;
	if (r <= 0)
		return r < 0 ? LOG_BEGIN_HERE : LOG_GO_BACK;
	cJSON_Delete(record);
	return ++search->found == search->options->lines ? LOG_BEGIN_HERE : LOG_GO_BACK;
}

/* Shows up to `limit` (0: all) of the present lines. */
static int show_all(struct log_reader *reader, const struct log_options *options, int64_t limit,
	struct log_summary *summary, struct log_export *export)
{
	int64_t shown = 0;
	cJSON *record;
	size_t length;
	char *line;
	int r = 0;

	while ((!limit || shown < limit) && (r = log_reader_next(reader, &line, &length)) > 0) {
		r = log_filter_match(&options->filter, line, length, &record);
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		shown++;
		if (summary)
			log_summary_add(summary, record);
		else if (export)
			log_export_add(export, record);
		else
			show_line(options, line, record);
		cJSON_Delete(record);
	}
	return r < 0 ? r : 0;
}

static int follow(struct log_reader *reader, const struct log_options *options)
{
	int r = 0;

	while (r == 0) {
		r = show_all(reader, options, 0, NULL, NULL);
		if (fflush(stdout) != 0)
			return -errno;
		if (r == 0)
			r = log_reader_wait(reader);
	}
	return r;
}

static int show(const struct log_options *options, const struct log_source *source)
{
	struct log_summary *summary = options->summary ? log_summary_new() : NULL;
	struct log_export *export =
		options->format ? log_export_new(stdout, options->format) : NULL;
	struct search search = {.options = options};
	struct log_reader *reader = NULL;
	int r;

	r = log_reader_open(source->directory, source->ring ? source->ring : LOG_ALL_RING, &reader);
	if (r == 0 && ((options->summary && !summary) || (options->format && !export)))
		r = -ENOMEM;
	if (r == 0) {
		if (options->lines || *options->filter.since)
			r = log_reader_go_back(reader, look_for_begin, &search);
		if (r == 0)
			r = search.error;
		/* More lines may have come since it went back. */
		if (r == 0 && (!options->lines || search.found))
			r = show_all(reader, options, search.found, summary, export);
		if (summary)
			log_summary_print(stdout, summary);
		if (r == 0 && options->follow)
			r = follow(reader, options);
	}
	log_reader_close(reader);
	log_export_end(export);
	log_summary_free(summary);
	if (r < 0)
		return command_error("log", "\"%s\": %s", source->directory, strerror(-r));
	return 0;
}

/* ---- Keys ----------------------------------------------------------------------------------- */

static int setup_keys(const char *directory)
{
	cleanup_with(runtime_mount_done) struct runtime_mount mount = {0};
	cleanup_free char *mount_point = NULL;
	int r;

	r = mount_point_resolve(directory, &mount_point);
	if (r == 0)
		r = runtime_mount_init(&mount, mount_point);
	if (r == 0 && !mount.log_directory)
		r = -ENOTDIR;
	if (r < 0)
		return command_error(
			"log", "cannot find the log of \"%s\": %s", directory, strerror(-r));
	return log_setup_keys(mount.log_directory);
}

/* ---- A call of a custom tool ------------------------------------------------------------------
 */

/* Lets the tool draw the call. */
static int draw_call(const struct log_options *options)
{
	cleanup_free char *program = command_find_program("isthmus-tools");

	if (fflush(stdout) != 0)
		return command_error("log", "cannot write: %s", strerror(errno));
	if (!program)
		return command_error("log", "the program \"isthmus-tools\" was not found beside "
					    "isthmus: install isthmus "
					    "again");
	execl(program, "isthmus-tools", "tool", "render", options->filter.call, "--expanded",
		(char *)NULL);
	return command_error("log", "\"%s\": %s", program, strerror(errno));
}

/* ---- The command line ---- */

static bool parse_count(const char *text, int64_t max, int64_t *ret_number)
{
	char *end;
	int64_t number = strtoll(text, &end, 10);

	if (end == text || *end || number <= 0 || number > max)
		return false;
	*ret_number = number;
	return true;
}

/* All operations in LOG.md. */
static const char *const operations[] = {"lookup", "getattr", "access", "readlink", "readdir",
	"statfs", "getxattr", "listxattr", "hash", "open", "create", "read", "write", "flush",
	"fsync", "close", "fallocate", "copy_range", "seek", "lock", "lock_test", "mkdir", "mknod",
	"symlink", "link", "unlink", "rmdir", "rename", "chmod", "chown", "truncate", "utimens",
	"setxattr", "removexattr", "exec", "tool_call", "connect", "forward", "search", "excerpt",
	"foreign", "connection", "dropped", "lost", "removed"};

static int set_operations(void *into, const char *list)
{
	*(const char **)into = list;
	do {
		size_t length = strcspn(list, ",");
		cleanup_free char *word = strndup(list, length);
		struct command_guess guess;

		command_guess_init(&guess, word ? word : "");
		guess.steps = length + 1;
		for (size_t i = 0; i < array_size(operations); i++)
			command_guess_offer(&guess, operations[i]);
		if (guess.steps > 0 && !guess.nearest)
			return command_usage_error(
				"log", "unknown operation \"%s\": LOG.md lists all", guess.word);
		if (guess.steps > 0)
			return command_usage_error("log",
				"unknown operation \"%s\"; did you mean \"%s\"? LOG.md lists all",
				guess.word, guess.nearest);
		list += length + (list[length] == ',');
	} while (*list);
	return 0;
}

static int set_glob(void *into, const char *text)
{
	*(const char **)into = text;
	if (glob_is_valid(text))
		return 0;
	return command_usage_error("log",
		"--path \"%s\" can match nothing: a bracket in it does not close; write \\[ for "
		"the "
		"character itself",
		text);
}

static int set_pid(void *into, const char *text)
{
	if (parse_count(text, INT32_MAX, into))
		return 0;
	return command_usage_error("log", "\"%s\" is not a pid", text);
}

static int set_lines(void *into, const char *text)
{
	if (parse_count(text, LINES_MAX, into))
		return 0;
	return command_usage_error("log", "\"%s\" is not a number of lines", text);
}

static int set_slow(void *into, const char *text)
{
	if (command_parse_time(text, into))
		return 0;
	return command_usage_error("log", "\"%s\" is not a time such as 50ms or 1.5s", text);
}

static int set_time(void *into, const char *text)
{
	if (log_parse_time(text, into))
		return 0;
	return command_usage_error("log",
		"\"%s\" is not a time such as 2026-11-23, 10:28 or 2026-11-23T10:28:12Z", text);
}

static int set_last(void *into, const char *text)
{
	uint64_t last_us;

	if (!command_parse_time(text, &last_us))
		return command_usage_error(
			"log", "\"%s\" is not a time such as 90s, 10m or 2h", text);
	log_format_time(time(NULL) - (time_t)(last_us / 1000000), into);
	return 0;
}

static int set_export(void *into, const char *text)
{
	enum log_export_format *format = into;

	*format = log_export_format(text);
	if (*format)
		return 0;
	return command_usage_error("log", "--export takes csv or otlp, not \"%s\"", text);
}

int log_command(int argc, char **argv)
{
	struct log_options options = {.directory = "."};
	struct log_filter *filter = &options.filter;
	const struct command_option known[] = {
		{"op", .set = set_operations, .into = &filter->ops},
		{"path", .set = set_glob, .into = &filter->glob},
		{"pid", .set = set_pid, .into = &filter->pid},
		{"call", .value = &filter->call},
		{"conversation", .value = &filter->conversation},
		{"slow", .set = set_slow, .into = &filter->slow_us},
		{"errors", .flag = &filter->errors},
		{"since", .set = set_time, .into = filter->since},
		{"until", .set = set_time, .into = filter->until},
		{"last", .set = set_last, .into = filter->since},
		{"export", .set = set_export, .into = &options.format},
		{"lines", 'n', .set = set_lines, .into = &options.lines},
		{"follow", 'f', .flag = &options.follow},
		{"json", .flag = &options.json},
		{"summary", .flag = &options.summary},
		{"verify", .flag = &options.verify},
		{"verify-key", .value = &options.texts.key},
		{"anchor", .value = &options.texts.anchor},
		{"setup-keys", .flag = &options.setup_keys},
		{"tools", .flag = &options.tools},
		{"expanded", .flag = &options.expanded},
		{0},
	};
	const struct command_line line = {
		.command = "log", .usage = usage, .options = known, .arguments_max = 1};
	struct log_source source = {0};
	int result;

	if (!command_parse(&line, argc, argv, &result))
		return result;
	options.verify |= options.texts.key || options.texts.anchor;
	if (optind < argc)
		options.directory = argv[optind];
	if (options.json && (options.summary || options.verify))
		return command_usage_error(
			"log", "--json cannot be used with --summary or --verify");
	if (options.format && (options.json || options.summary || options.verify || options.follow))
		return command_usage_error("log",
			"--export cannot be used with --json, --summary, --verify or --follow");
	if (options.follow && (options.summary || options.verify))
		return command_usage_error(
			"log", "--follow cannot be used with --summary or --verify");
	if (options.tools &&
		(optind < argc || options.setup_keys || options.texts.key || options.texts.anchor))
		return command_usage_error("log",
			"--tools cannot be used with a directory (use --path), keys or an anchor");
	if (options.expanded && (!filter->call || options.verify || options.follow ||
					options.json || options.format || options.summary))
		return command_usage_error(
			"log", "--expanded needs --call, and no option for another form of output");
	if (options.follow && !options.lines)
		options.lines = FOLLOW_LINES;
	if (options.setup_keys)
		return setup_keys(options.directory);
	if ((options.tools ? find_tools_log(&source) : find_log(options.directory, &source)) < 0)
		return 1;
	result = options.verify ? log_verify_source(&source, &options.texts)
				: show(&options, &source);
	free(source.directory);
	return result == 0 && options.expanded ? draw_call(&options) : result;
}
