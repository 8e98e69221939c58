#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/open.h"
#include "fs/inode/inode.h"
#include "fs/mount/mount.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/workspace.h"

enum { ON_TTL_NAMES = 100 };

static void add_time(cJSON *object, const char *name, const struct timespec *time)
{
	struct tm parts;
	char text[32] = "";

	gmtime_r(&time->tv_sec, &parts);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
	cJSON_AddStringToObject(object, name, text);
}

static void add_counter(cJSON *object, const char *name, uint64_t value)
{
	cJSON_AddNumberToObject(object, name, (double)value);
}

static char *print_and_delete(cJSON *object)
{
	char *text = cJSON_Print(object);

	cJSON_Delete(object);
	return text;
}

/* ---- Status: what it is, and whether it works ------------------------------------- */

static void add_capabilities(cJSON *object, unsigned capabilities)
{
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {
		{WORKSPACE_CAN_EXEC, "exec"},
		{WORKSPACE_CAN_WATCH, "watch"},
		{WORKSPACE_IS_REMOTE, "remote"},
		{WORKSPACE_READ_ONLY, "read-only"},
		{WORKSPACE_CAN_STREAM, "ports"},
		{WORKSPACE_IGNORES_CASE, "ignores-case"},
	};
	cJSON *list = cJSON_AddArrayToObject(object, "capabilities");

	for (size_t i = 0; i < array_size(names); i++)
		if (capabilities & names[i].bit)
			cJSON_AddItemToArray(list, cJSON_CreateString(names[i].name));
}

static void add_cache(cJSON *object, const struct workspace_status *status)
{
	cJSON *cache = cJSON_AddObjectToObject(object, "cache");

	add_counter(cache, "hits", status->cache_hits);
	add_counter(cache, "misses", status->cache_misses);
	add_counter(cache, "bytes", status->cache_bytes);
	add_counter(cache, "disk_hits", status->cache_disk_hits);
	add_counter(cache, "prefetched_bytes", status->prefetched_bytes);
	add_counter(cache, "names", status->cache_names);
	add_counter(cache, "scans", status->scans);
	add_counter(cache, "scanned_names", status->scanned_names);
}

static bool has_waited(struct op_context *ctx)
{
	const int64_t *end_ms = ctx->interrupted_data;

	return clock_now_ms() >= *end_ms;
}

int mount_check(struct mount *m, int64_t wait_ms)
{
	int64_t end_ms = clock_now_ms() + wait_ms;
	struct workspace_status status;
	struct op_context ctx;

	workspace_status(m->workspace, &status);
	if (status.link != LINK_ONLINE || wait_ms == 0)
		return 0;
	op_context_init(&ctx);
	ctx.interrupted = has_waited;
	ctx.interrupted_data = &end_ms;
	return workspace_check(&ctx, m->workspace);
}

static const char *root_state(int check)
{
	return check == -ESTALE ? "moved" : check == -ENOENT ? "removed" : "";
}

/* The heartbeat may not have noticed it yet. */
static void note_silence(struct workspace_status *status)
{
	if (status->link == LINK_ONLINE)
		status->link = LINK_DEGRADED;
	snprintf(status->last_error, sizeof(status->last_error), "the workspace does not answer");
}

static void add_workspace(cJSON *object, const struct mount *m,
	const struct workspace_status *status, const char *root)
{
	static const char *const links[] = {
		[LINK_ONLINE] = "online",
		[LINK_DEGRADED] = "degraded",
		[LINK_OFFLINE] = "offline",
	};
	cJSON *workspace = cJSON_AddObjectToObject(object, "workspace");

	cJSON_AddStringToObject(workspace, "backend", workspace_name(m->workspace));
	add_capabilities(workspace, status->capabilities);
	cJSON_AddStringToObject(workspace, "link", links[status->link]);
	cJSON_AddStringToObject(workspace, "last_error", status->last_error);
	cJSON_AddStringToObject(workspace, "root", root);
	add_counter(workspace, "round_trips", status->round_trips);
	add_counter(workspace, "bytes_sent", status->bytes_sent);
	add_counter(workspace, "bytes_received", status->bytes_received);
	add_counter(workspace, "reconnects", status->reconnects);
	add_counter(workspace, "channels", status->channels);
	add_counter(workspace, "watched_directories", status->watched_directories);
	add_counter(workspace, "unwatched_directories", status->unwatched_directories);
	if (status->cache_hits || status->cache_misses)
		add_cache(workspace, status);
	add_counter(workspace, "owner_uid", status->owner_uid);
	add_counter(workspace, "owner_gid", status->owner_gid);
}

/* Of a mount with writes=back. */
static void add_writes(cJSON *object, const struct mount *m, const struct workspace_status *status)
{
	const struct workspace_options options = {.pairs = m->options->backend_pairs};
	const char *mode = workspace_option(&options, "writes");
	cJSON *writes;

	if (!mode || strcmp(mode, "back") != 0)
		return;
	writes = cJSON_AddObjectToObject(object, "writes");
	add_counter(writes, "pending", status->pending_operations);
	add_counter(writes, "pending_bytes", status->pending_bytes);
	add_counter(writes, "oldest_ms", status->pending_ms);
	add_counter(writes, "lost", status->lost_operations);
}

static void add_values(cJSON *object, const struct workspace_options *options, const char *key)
{
	cJSON *list = cJSON_AddArrayToObject(object, key);
	const char *value;
	size_t next = 0;

	while ((value = workspace_option_next(options, key, &next)))
		cJSON_AddItemToArray(list, cJSON_CreateString(value));
}

/* What is hidden and protected, by the options of the mount; only where something is. */
static void add_policy(cJSON *object, const struct mount *m)
{
	const struct workspace_options options = {.pairs = m->options->backend_pairs};
	bool agentsignore = workspace_option(&options, "agentsignore");
	cJSON *policy;

	if (!agentsignore && !workspace_option(&options, "hide") &&
		!workspace_option(&options, "protect"))
		return;
	policy = cJSON_AddObjectToObject(object, "policy");
	add_values(policy, &options, "hide");
	add_values(policy, &options, "protect");
	cJSON_AddBoolToObject(policy, "agentsignore", agentsignore);
	cJSON_AddBoolToObject(policy, "binds_exec", false);
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Directories in which changes by others show late.  Not said where nothing is watched. */
static void add_on_ttl(cJSON *object, const struct mount *m, const struct workspace_status *status)
{
	cJSON *on_ttl = cJSON_AddObjectToObject(object, "on_ttl"), *list;
	char *paths[ON_TTL_NAMES];
	uint64_t total = 0;
	size_t count = 0;

	if (m->inodes && (status->capabilities & WORKSPACE_CAN_WATCH))
		total = inode_table_on_ttl(m->inodes, paths, ON_TTL_NAMES, &count);
	qsort(paths, count, sizeof(paths[0]), compare_paths);
	add_counter(on_ttl, "count", total);
	list = cJSON_AddArrayToObject(on_ttl, "directories");
	for (size_t i = 0; i < count; i++) {
		cJSON_AddItemToArray(list, cJSON_CreateString(*paths[i] ? paths[i] : "."));
		free(paths[i]);
	}
}

static void add_watch_events(cJSON *object, const struct mount *m)
{
	static const char *const states[] = {
		[WATCH_EVENTS_OFF] = "off",
		[WATCH_EVENTS_STARTING] = "starting",
		[WATCH_EVENTS_ON] = "on",
	};
	cJSON *events = cJSON_AddObjectToObject(object, "watch_events");
	const char *reason = m->watch_events.reason;

	cJSON_AddStringToObject(events, "state", states[m->watch_events.state]);
	cJSON_AddStringToObject(events, "reason",
		m->watch_events.state == WATCH_EVENTS_OFF && reason ? reason : "");
	add_counter(events, "directories", m->watch_events.directories);
	add_counter(events, "undecided", m->watch_events.undecided);
	add_counter(events, "announced", m->watch_events.announced);
	add_counter(events, "failed", m->watch_events.failed);
}

char *mount_status_json(struct mount *m, int check)
{
	cJSON *object = cJSON_CreateObject();
	struct workspace_status status = {0};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	workspace_status(m->workspace, &status);
	if (check == -EINTR)
		note_silence(&status);
	cJSON_AddStringToObject(object, "uri", m->options->uri);
	cJSON_AddStringToObject(object, "mount_point", m->options->mount_point);
	cJSON_AddStringToObject(object, "version", ISTHMUS_VERSION);
	cJSON_AddNumberToObject(object, "pid", getpid());
	add_time(object, "started", &m->started);
	cJSON_AddNumberToObject(object, "uptime_s", (double)(now.tv_sec - m->started.tv_sec));
	cJSON_AddBoolToObject(object, "read_only", m->options->read_only);
	cJSON_AddStringToObject(object, "idmap", m->options->idmap_none ? "none" : "user");
	cJSON_AddNumberToObject(object, "ttl_ms", m->options->ttl_ms);
	cJSON_AddStringToObject(object, "locks", m->options->locks_local ? "local" : "workspace");
	cJSON_AddStringToObject(object, "control", m->control_path ? m->control_path : "");
	cJSON_AddStringToObject(object, "log", mount_log_path(m->log));
	add_workspace(object, m, &status, root_state(check));
	add_writes(object, m, &status);
	add_policy(object, m);
	add_on_ttl(object, m, &status);
	add_watch_events(object, m);
	return print_and_delete(object);
}

/* ---- Statistics -------------------------------------------------------------------- */

static void add_log(cJSON *object, struct mount *m)
{
	cJSON *log = cJSON_AddObjectToObject(object, "log");
	struct mount_log_stats stats;

	mount_log_stats(m->log, &stats);
	add_counter(log, "last_seq", mount_log_last_seq(m->log));
	add_counter(log, "records", stats.records);
	add_counter(log, "dropped", stats.dropped);
	add_counter(log, "lost", stats.lost);
	add_counter(log, "errors", stats.errors);
	add_counter(log, "bytes_written", stats.bytes_written);
	add_counter(log, "removed", stats.removed);
	cJSON_AddBoolToObject(log, "refuses", mount_log_refuses(m->log));
	cJSON_AddBoolToObject(log, "sealed", stats.is_sealed);
	cJSON_AddStringToObject(
		log, "anchor", m->options->log_anchor ? m->options->log_anchor : "");
	cJSON_AddStringToObject(
		log, "anchor_error", stats.anchor_error ? strerror(-stats.anchor_error) : "");
	cJSON_AddStringToObject(
		log, "last_error", stats.last_error ? strerror(-stats.last_error) : "");
}

static uint64_t resident_bytes(void)
{
	cleanup_file FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long pages = 0;

	if (!file || fscanf(file, "%*u %llu", &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

char *mount_stats_json(struct mount *m)
{
	cJSON *object = cJSON_CreateObject();
	uint64_t inodes = 0, inode_bytes = 0;
	uint32_t connections = 0, commands = 0;

	if (m->control_calls)
		m->control_calls->usage(m, &connections, &commands);
	if (m->inodes)
		inode_table_usage(m->inodes, &inodes, &inode_bytes);
	add_counter(object, "requests", m->requests);
	cJSON_AddBoolToObject(object, "io_uring", m->uses_io_uring);
	add_counter(object, "inodes", inodes);
	add_counter(object, "inode_bytes", inode_bytes);
	add_counter(object, "bytes_per_inode", inodes ? inode_bytes / inodes : 0);
	add_counter(object, "connections", connections);
	add_counter(object, "commands", commands);
	add_counter(object, "resident_bytes", resident_bytes());
	add_log(object, m);
	return print_and_delete(object);
}
