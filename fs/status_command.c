#include <cjson/cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/command_line.h"
#include "fs/command_text.h"
#include "fs/commands.h"
#include "fs/mount_point.h"
#include "fs/runtime.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"

static const char usage[] =
	"usage: isthmus status [DIR] [--json]\n"
	"\n"
	"Shows how the mount that DIR (default: the current directory) lies on is doing.\n"
	"\n"
	"      --json  one JSON object: what DIR/.isthmus/status and stats hold\n";

static const cJSON *member(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *text_member(const cJSON *object, const char *name)
{
	const char *text = cJSON_GetStringValue(member(object, name));

	return text ? text : "";
}

static uint64_t number_member(const cJSON *object, const char *name)
{
	const cJSON *item = member(object, name);

	return cJSON_IsNumber(item) && item->valuedouble > 0 ? (uint64_t)item->valuedouble : 0;
}

/* ---- For people ------------------------------------------------------------------------ */

static void print_line(const char *name, const char *text)
{
	printf("%-12s ", name);
	command_print_safe(stdout, text);
	putchar('\n');
}

static void print_link(const cJSON *workspace)
{
	const char *last_error = text_member(workspace, "last_error");
	const cJSON *capability;

	printf("%-12s ", "link");
	command_print_safe(stdout, text_member(workspace, "link"));
	if (*last_error) {
		fputs(", last error: ", stdout);
		command_print_safe(stdout, last_error);
	}
	printf("\n%-12s ", "workspace");
	command_print_safe(stdout, text_member(workspace, "backend"));
	cJSON_ArrayForEach(capability, member(workspace, "capabilities"))
	{
		const char *name = cJSON_GetStringValue(capability);

		fputs(", ", stdout);
		command_print_safe(stdout, name ? name : "");
	}
	putchar('\n');
}

/* Which directories show changes by others late. */
static void print_on_ttl(const cJSON *on_ttl)
{
	unsigned long long count = number_member(on_ttl, "count"), named = 0;
	const cJSON *path;

	cJSON_ArrayForEach(path, member(on_ttl, "directories"))
	{
		printf("%-12s ", named++ ? "" : "unwatched");
		command_print_safe(stdout, cJSON_IsString(path) ? path->valuestring : "");
		putchar('\n');
	}
	if (count > named)
		printf("%-12s and %llu more\n", "", count - named);
}

static void print_traffic(const cJSON *status)
{
	const cJSON *workspace = member(status, "workspace");
	char sent[16], received[16];

	command_format_size(number_member(workspace, "bytes_sent"), sent);
	command_format_size(number_member(workspace, "bytes_received"), received);
	if (number_member(workspace, "round_trips"))
		printf("%-12s %llu round trips, %s sent, %s received, %llu reconnects, "
		       "%llu connections\n",
			"traffic", (unsigned long long)number_member(workspace, "round_trips"),
			sent, received, (unsigned long long)number_member(workspace, "reconnects"),
			(unsigned long long)number_member(workspace, "channels"));
	printf("%-12s %llu watched, %llu on a time-to-live of %llu ms\n", "directories",
		(unsigned long long)number_member(workspace, "watched_directories"),
		(unsigned long long)number_member(member(status, "on_ttl"), "count"),
		(unsigned long long)number_member(status, "ttl_ms"));
	print_on_ttl(member(status, "on_ttl"));
}

static void print_cache(const cJSON *cache)
{
	char bytes[16], prefetched[16];

	if (!cache)
		return;
	command_format_size(number_member(cache, "bytes"), bytes);
	command_format_size(number_member(cache, "prefetched_bytes"), prefetched);
	printf("%-12s %llu hits, %llu misses, %s in memory, %llu files from disk, %s prefetched\n",
		"cache", (unsigned long long)number_member(cache, "hits"),
		(unsigned long long)number_member(cache, "misses"), bytes,
		(unsigned long long)number_member(cache, "disk_hits"), prefetched);
}

static void print_log(const cJSON *status, const cJSON *log)
{
	const char *last_error = text_member(log, "last_error");
	const char *anchor_error = text_member(log, "anchor_error");
	unsigned long long lost = (unsigned long long)number_member(log, "lost");

	if (!*text_member(status, "log")) {
		print_line("log", "none");
		return;
	}
	print_line("log", text_member(status, "log"));
	printf("%-12s %llu lines, %llu errors, %llu reads dropped", "",
		(unsigned long long)number_member(log, "records"),
		(unsigned long long)number_member(log, "errors"),
		(unsigned long long)number_member(log, "dropped"));
	if (*last_error) {
		fputs(", cannot be written (", stdout);
		command_print_safe(stdout, last_error);
		putchar(')');
	}
	if (lost)
		printf(", %llu LINES LOST", lost);
	putchar('\n');
	if (number_member(log, "removed") > 0)
		printf("%-12s THE LOG WAS REMOVED while it was written, and begun anew (%.0f "
		       "times)\n",
			"", (double)number_member(log, "removed"));
	if (cJSON_IsTrue(member(log, "refuses")))
		printf("%-12s NOTHING IS SERVED while it cannot be written (-o log=required)\n",
			"");
	if (*anchor_error)
		printf("%-12s THE ANCHOR CANNOT BE WRITTEN (%s)\n", "", anchor_error);
}

static void print_status(const cJSON *status, const cJSON *stats)
{
	char resident[16];

	print_line("uri", text_member(status, "uri"));
	print_line("mount point", text_member(status, "mount_point"));
	printf("%-12s ", "daemon");
	command_print_safe(stdout, text_member(status, "version"));
	fputs(" since ", stdout);
	command_print_safe(stdout, text_member(status, "started"));
	printf(", pid %llu%s\n", (unsigned long long)number_member(status, "pid"),
		cJSON_IsTrue(member(status, "read_only")) ? ", read-only" : "");
	print_link(member(status, "workspace"));
	print_traffic(status);
	print_cache(cJSON_GetObjectItem(member(status, "workspace"), "cache"));
	command_format_size(number_member(stats, "resident_bytes"), resident);
	printf("%-12s %llu requests%s, %llu commands running, %llu files known, %s of memory\n",
		"use", (unsigned long long)number_member(stats, "requests"),
		cJSON_IsTrue(member(stats, "io_uring")) ? " by io_uring" : "",
		(unsigned long long)number_member(stats, "commands"),
		(unsigned long long)number_member(stats, "inodes"), resident);
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
		command_error("status", "the daemon of \"%s\" answers what is not JSON", directory);
	return answer;
}

/* By the mount point, without touching it: what nobody has looked at yet cannot be looked at while
 * the far end is out of reach. */
static int find_socket(const char *directory, char **ret_socket)
{
	cleanup_with(runtime_mount_done) struct runtime_mount mount = {0};
	cleanup_free char *path = NULL;

	if (mount_point_resolve(directory, &path) == 0 && mount_point_connection(path) &&
		mount_point_daemon(path) && runtime_mount_init(&mount, path) == 0) {
		*ret_socket = steal_ptr(&mount.control_path);
		return 0;
	}
	return command_find_mount("status", directory, ret_socket, NULL, NULL);
}

static int show(const char *directory, bool json)
{
	cleanup_free char *socket_path = NULL, *text = NULL;
	cJSON *status, *stats;

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
		text = utf8_repair(cJSON_Print(status));
		visible_print(
			stdout, text ? text : "null", strlen(text ? text : "null"), VISIBLE_JSON);
		putchar('\n');
	} else {
		print_status(status, stats);
		cJSON_Delete(stats);
	}
	cJSON_Delete(status);
	return 0;
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
