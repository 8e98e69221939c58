#include <cjson/cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/open.h"
#include "fs/commands/command_line.h"
#include "fs/commands/command_text.h"
#include "fs/commands/commands.h"
#include "fs/mount/mount_point.h"
#include "fs/mount/runtime.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/json.h"
#include "ops/support/visible.h"
#include "ops/writeback/writeback.h"

static const char usage[] =
	"usage: isthmus status [DIR] [--json]\n"
	"\n"
	"Shows the state of the mount that contains DIR (default: the current directory).\n"
	"\n"
	"      --json  print one JSON object: the content of DIR/.isthmus/status and stats\n";

static const cJSON *member(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *text_member(const cJSON *object, const char *name)
{
	const char *text = json_text(object, name);

	return text ? text : "";
}

/* ---- For people ------------------------------------------------------------------------ */

static void print_line(const char *name, const char *text)
{
	printf("%-12s ", name);
	visible_print_name(stdout, text);
	putchar('\n');
}

static void print_link(const cJSON *workspace)
{
	const char *last_error = text_member(workspace, "last_error");
	const cJSON *capability;
	bool ignores_case = false;

	printf("%-12s ", "link");
	visible_print_name(stdout, text_member(workspace, "link"));
	if (*last_error) {
		fputs(", last error: ", stdout);
		visible_print_name(stdout, last_error);
	}
	printf("\n%-12s ", "workspace");
	visible_print_name(stdout, text_member(workspace, "backend"));
	cJSON_ArrayForEach(capability, member(workspace, "capabilities")) {
		const char *name = cJSON_GetStringValue(capability);

		ignores_case = ignores_case || (name && strcmp(name, "ignores-case") == 0);
		fputs(", ", stdout);
		visible_print_name(stdout, name ? name : "");
	}
	putchar('\n');
	if (ignores_case)
		print_line("names", "those that differ in case only lead to one file; nothing is "
				    "cached (as with -o cache=strict)");
}

static void print_root(const char *state)
{
	if (strcmp(state, "moved") == 0)
		print_line("root", "ITS DIRECTORY WAS MOVED, or replaced, at the workspace: the "
				   "mount still shows that one; unmount, and mount again");
	else if (*state)
		print_line("root", "ITS DIRECTORY WAS REMOVED at the workspace: unmount, and mount "
				   "another");
}

static void print_patterns(const char *verb, const cJSON *patterns)
{
	const cJSON *pattern;

	cJSON_ArrayForEach(pattern, patterns) {
		printf("%s ", verb);
		visible_print_name(stdout, cJSON_IsString(pattern) ? pattern->valuestring : "");
		fputs(", ", stdout);
	}
}

static void print_policy(const cJSON *policy)
{
	if (!policy)
		return;
	printf("%-12s ", "policy");
	print_patterns("hides", member(policy, "hide"));
	print_patterns("protects", member(policy, "protect"));
	if (cJSON_IsTrue(member(policy, "agentsignore")))
		fputs("hides what .agentsignore lists, ", stdout);
	puts("but not from commands of exec");
}

/* Prints the directories in which changes by others appear late. */
static void print_on_ttl(const cJSON *on_ttl)
{
	long long count = json_integer(on_ttl, "count"), named = 0;
	const cJSON *path;

	cJSON_ArrayForEach(path, member(on_ttl, "directories"))
		print_line(
			named++ ? "" : "unwatched", cJSON_IsString(path) ? path->valuestring : "");
	if (count > named)
		printf("%-12s and %lld more\n", "", count - named);
}

static void print_traffic(const cJSON *status)
{
	const cJSON *workspace = member(status, "workspace");
	char sent[16], received[16];

	command_format_size((uint64_t)json_integer(workspace, "bytes_sent"), sent);
	command_format_size((uint64_t)json_integer(workspace, "bytes_received"), received);
	if (json_integer(workspace, "round_trips"))
		printf("%-12s %lld round trips, %s sent, %s received, %lld reconnects, "
		       "%lld connections\n",
			"traffic", json_integer(workspace, "round_trips"), sent, received,
			json_integer(workspace, "reconnects"), json_integer(workspace, "channels"));
	printf("%-12s %lld watched, %lld on a time-to-live of %lld ms\n", "directories",
		json_integer(workspace, "watched_directories"),
		json_integer(member(status, "on_ttl"), "count"), json_integer(status, "ttl_ms"));
	print_on_ttl(member(status, "on_ttl"));
}

/* Prints whether programs that wait on inotify get events for changes by others. */
static void print_watch_events(const cJSON *events)
{
	const char *reason = text_member(events, "reason");

	printf("%-12s ", "watch events");
	visible_print_name(stdout, text_member(events, "state"));
	if (*reason) {
		fputs(": ", stdout);
		visible_print_name(stdout, reason);
	} else {
		printf(", %lld directories watched by programs here, %lld changes announced",
			json_integer(events, "directories"), json_integer(events, "announced"));
	}
	if (json_integer(events, "failed"))
		printf(", %lld failed", json_integer(events, "failed"));
	putchar('\n');
}

static void print_cache(const cJSON *cache)
{
	char bytes[16], prefetched[16];

	if (!cache)
		return;
	command_format_size((uint64_t)json_integer(cache, "bytes"), bytes);
	command_format_size((uint64_t)json_integer(cache, "prefetched_bytes"), prefetched);
	printf("%-12s %lld hits, %lld misses, %s in memory, %lld files from disk, %s prefetched\n",
		"cache", json_integer(cache, "hits"), json_integer(cache, "misses"), bytes,
		json_integer(cache, "disk_hits"), prefetched);
	printf("%-12s %lld names known", "", json_integer(cache, "names"));
	if (json_integer(cache, "scans"))
		printf(", %lld scans under way: %lld names so far", json_integer(cache, "scans"),
			json_integer(cache, "scanned_names"));
	putchar('\n');
}

static void print_log(const cJSON *status, const cJSON *log)
{
	const char *path = text_member(status, "log");
	const char *last_error = text_member(log, "last_error");
	const char *anchor_error = text_member(log, "anchor_error");

	print_line("log", *path ? path : "none");
	if (!*path)
		return;
	printf("%-12s %lld lines, %lld errors, %lld reads dropped", "",
		json_integer(log, "records"), json_integer(log, "errors"),
		json_integer(log, "dropped"));
	if (*last_error) {
		fputs(", cannot be written (", stdout);
		visible_print_name(stdout, last_error);
		putchar(')');
	}
	if (json_integer(log, "lost"))
		printf(", %lld LINES LOST", json_integer(log, "lost"));
	putchar('\n');
	if (json_integer(log, "removed"))
		printf("%-12s THE LOG WAS REMOVED while it was written, and begun anew (%lld "
		       "times)\n",
			"", json_integer(log, "removed"));
	if (cJSON_IsTrue(member(log, "refuses")))
		printf("%-12s NOTHING IS SERVED while it cannot be written (-o log=required)\n",
			"");
	if (*anchor_error)
		printf("%-12s THE ANCHOR CANNOT BE WRITTEN (%s)\n", "", anchor_error);
}

/* Prints refused changes before everything else, until they are cleared. */
static void print_lost(const char *uri)
{
	cleanup_free char *identity = workspace_normal_uri(uri);
	cleanup_free char *directory = identity ? writeback_lost_directory(identity) : NULL;
	int count = directory ? writeback_lost_each(directory, NULL, NULL) : 0;

	if (count > 0)
		printf("%-12s %d CHANGES WERE REFUSED by the workspace after they were made: see "
		       "'isthmus lost'\n",
			"lost", count);
}

static void print_writes(const cJSON *writes)
{
	char bytes[16];

	if (!writes)
		return;
	if (!json_integer(writes, "pending")) {
		printf("%-12s back: nothing is on its way\n", "writes");
		return;
	}
	command_format_size((uint64_t)json_integer(writes, "pending_bytes"), bytes);
	printf("%-12s back: %lld changes with %s are on their way, the oldest for %lld ms\n",
		"writes", json_integer(writes, "pending"), bytes,
		json_integer(writes, "oldest_ms"));
}

static void print_status(const cJSON *status, const cJSON *stats)
{
	char resident[16];

	print_lost(text_member(status, "uri"));
	print_line("uri", text_member(status, "uri"));
	print_line("mount point", text_member(status, "mount_point"));
	printf("%-12s ", "daemon");
	visible_print_name(stdout, text_member(status, "version"));
	fputs(" since ", stdout);
	visible_print_name(stdout, text_member(status, "started"));
	printf(", pid %lld%s\n", json_integer(status, "pid"),
		cJSON_IsTrue(member(status, "read_only")) ? ", read-only" : "");
	print_link(member(status, "workspace"));
	print_root(text_member(member(status, "workspace"), "root"));
	print_writes(member(status, "writes"));
	print_policy(member(status, "policy"));
	print_traffic(status);
	if (strcmp(text_member(status, "locks"), "local") == 0)
		print_line("locks", "local: processes elsewhere do not see them");
	print_watch_events(member(status, "watch_events"));
	print_cache(member(member(status, "workspace"), "cache"));
	command_format_size((uint64_t)json_integer(stats, "resident_bytes"), resident);
	printf("%-12s %lld requests%s, %lld commands running, %lld files known, %s of memory\n",
		"use", json_integer(stats, "requests"),
		cJSON_IsTrue(member(stats, "io_uring")) ? " by io_uring" : "",
		json_integer(stats, "commands"), json_integer(stats, "inodes"), resident);
	print_log(status, member(stats, "log"));
}

/* ---- The request ------------------------------------------------------------------------ */

static cJSON *ask(const char *socket_path, const char *request, const char *directory)
{
	cleanup_free char *reply = NULL;
	cJSON *answer;
	int r = control_call(socket_path, request, &reply);

	if (r < 0) {
		command_error("status", "the daemon of \"%s\" does not answer: %s", directory,
			reply ? reply : strerror(-r));
		return NULL;
	}
	answer = cJSON_Parse(reply);
	if (!answer)
		command_error(
			"status", "the answer of the daemon of \"%s\" is not JSON", directory);
	return answer;
}

/* Finds the socket by the path of the mount point, without access to the mount: while the far end
 * is unreachable, uncached paths cannot be looked up. */
static int find_socket(const char *directory, char **ret_socket)
{
	cleanup_with(runtime_mount_done) struct runtime_mount mount = {0};
	cleanup_free char *path = NULL;
	pid_t pid = 0;

	if (mount_point_resolve(directory, &path) == 0 && mount_point_connection(path))
		pid = mount_point_daemon(path);
	if (pid && runtime_is_stopped(pid))
		return -command_error("status",
			"\"%s\": its daemon is stopped; continue it with 'kill -CONT %d'",
			directory, pid);
	if (pid && runtime_mount_init(&mount, path) == 0) {
		*ret_socket = steal_ptr(&mount.control_path);
		return 0;
	}
	return command_find_mount("status", directory, ret_socket, NULL, NULL);
}

static int show(const char *directory, bool json)
{
	cleanup_free char *socket_path = NULL;
	cJSON *status, *stats;
	int code = 0;

	command_limit_wait("status", directory);
	if (find_socket(directory, &socket_path) < 0)
		return 1;
	status = ask(socket_path, "{\"request\":\"status\"}", directory);
	if (!status)
		return 1;
	stats = ask(socket_path, "{\"request\":\"stats\"}", directory);
	if (!stats) {
		cJSON_Delete(status);
		return 1;
	}
	if (json) {
		cJSON_AddItemToObject(status, "stats", stats);
		code = command_print_json("status", status);
	} else {
		print_status(status, stats);
		cJSON_Delete(stats);
	}
	cJSON_Delete(status);
	return code;
}

int status_command(int argc, char **argv)
{
	bool json = false;
	const struct command_option options[] = {{"json", .flag = &json}, {0}};
	const struct command_line line = {
		.command = "status", .usage = usage, .options = options, .arguments_max = 1};
	int code;

	if (!command_parse(&line, argc, argv, &code))
		return code;
	return show(optind < argc ? argv[optind] : ".", json);
}
