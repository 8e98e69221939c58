/* Lets the workspace search the files that a tool is about to search. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/control/control_server.h"
#include "fs/edge/edge.h"
#include "fs/log/mount_log.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "ops/support/literals.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

enum { ENTRIES_MAX = 1 << 18, FRAME_BYTES = 64 << 10 };

struct search {
	struct connection *connection;
	const char *path; /* of the directory */
	struct literals *texts;
	struct buffer names; /* of files to be reported, a NUL behind each */
	struct buffer lines; /* those of one file, behind its path */
	unsigned long long reported;
};

static void search_done(struct search *search)
{
	literals_free(search->texts);
	buffer_done(&search->names);
	buffer_done(&search->lines);
}

static int read_texts(const cJSON *request, struct search *search)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(request, "texts"), *item;
	bool ignore_case = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "ignore_case"));
	struct literal_text texts[LITERALS_MAX];
	size_t count = 0;

	if (!list)
		return 0;
	cJSON_ArrayForEach(item, list) {
		if (!cJSON_IsString(item) || count == LITERALS_MAX)
			return -EINVAL;
		texts[count++] = (struct literal_text){
			(const uint8_t *)item->valuestring, strlen(item->valuestring)};
	}
	return literals_new(texts, count, ignore_case, &search->texts);
}

static int send_names(struct search *search)
{
	int r = 0;

	if (search->names.size)
		r = control_send(search->connection->fd, CONTROL_UNMATCHED, search->names.data,
			search->names.size);
	search->names.size = 0;
	return r;
}

static void record(struct search *search, struct log_record *record)
{
	const struct connection *connection = search->connection;

	record->pid = connection->peer.pid;
	record->uid = connection->peer.uid;
	mount_log_record(connection->server->mount->log, record);
}

/* The tool does not open a file whose lines it gets here; this record replaces that of the open. */
static int record_excerpt(struct search *search, const struct dir_entry *entry)
{
	cleanup_free char *path = path_join(search->path, entry->path);

	if (!path)
		return -ENOMEM;
	record(search, &(struct log_record){.op = "excerpt",
			       .flags = LOG_HAS_BYTES,
			       .path = path,
			       .bytes = entry->lines_size,
			       .start_ns = clock_wall_ns()});
	return 0;
}

static int send_lines(struct search *search, const struct dir_entry *entry)
{
	size_t size = strlen(entry->path) + 1;

	if (size + entry->lines_size > CONTROL_FRAME_MAX_BYTES)
		return 0;
	search->lines.size = 0;
	if (buffer_append(&search->lines, entry->path, size) < 0 ||
		buffer_append(&search->lines, entry->lines, entry->lines_size) < 0 ||
		record_excerpt(search, entry) < 0)
		return -ENOMEM;
	return control_send(
		search->connection->fd, CONTROL_EXCERPT, search->lines.data, search->lines.size);
}

/* Leaves out files that are open for writing here: the workspace may not have their content. */
static int take_entry(void *user, const struct dir_entry *entry)
{
	struct search *search = user;
	size_t size = strlen(entry->path) + 1;
	int r = 0;

	if ((!entry->lacks_texts && !entry->lines) || !S_ISREG(entry->attributes.mode) ||
		mount_is_written(search->connection->server->mount, &entry->attributes.id))
		return 0;
	if (entry->lines)
		return send_lines(search, entry);
	if (search->names.size + size > FRAME_BYTES)
		r = send_names(search);
	search->reported++;
	return r < 0 ? r : buffer_append(&search->names, entry->path, size);
}

static bool client_is_gone(struct op_context *ctx)
{
	const struct connection *connection = ctx->interrupted_data;
	struct pollfd one = {.fd = connection->fd, .events = POLLRDHUP};

	return poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void record_search(
	struct search *search, const struct op_context *ctx, uint64_t start_ns, int result)
{
	uint64_t elapsed_us = (clock_wall_ns() - start_ns) / 1000;

	record(search,
		&(struct log_record){.op = "search",
			.flags = ctx->served.from_cache ? LOG_FROM_CACHE : 0,
			.path = search->path,
			.start_ns = start_ns,
			.latency_us = elapsed_us > UINT32_MAX ? UINT32_MAX : (uint32_t)elapsed_us,
			.result = result,
			.round_trips = ctx->served.round_trips});
}

static uint32_t context_of(const cJSON *request)
{
	long long context = json_integer(request, "context");

	if (context < 0)
		return 0;
	return context < SCAN_CONTEXT_MAX ? (uint32_t)context : SCAN_CONTEXT_MAX;
}

/* Only for remote workspaces: the tool searches a local one just as fast itself. */
static bool is_worth_asking(struct workspace *w)
{
	const unsigned wanted = WORKSPACE_IS_REMOTE | WORKSPACE_CAN_SEARCH;
	struct workspace_status status;

	workspace_status(w, &status);
	return (status.capabilities & wanted) == wanted;
}

static int run_search(struct search *search, const cJSON *request)
{
	struct connection *connection = search->connection;
	struct workspace *w = connection->server->mount->workspace;
	const cJSON *context = cJSON_GetObjectItemCaseSensitive(request, "context");
	const struct scan_request scan = {.flags = SCAN_NOT_IGNORED,
		.entries_max = ENTRIES_MAX,
		.texts = search->texts,
		.wants_lines = cJSON_IsNumber(context),
		.context = context_of(request),
		.names = json_text(request, "names")};
	uint64_t start_ns = clock_wall_ns();
	struct op_context ctx;
	int r;

	if (!is_worth_asking(w))
		return 0;
	op_context_init(&ctx);
	ctx.pid = connection->peer.pid;
	ctx.interrupted = client_is_gone;
	ctx.interrupted_data = connection;
	r = workspace_scan(&ctx, w, &OBJECT_AT(search->path), &scan, take_entry, search);
	record_search(search, &ctx, start_ns, r);
	return r < 0 ? r : send_names(search);
}

void control_search(struct connection *connection, const cJSON *request)
{
	cleanup_with(search_done) struct search search = {
		.connection = connection, .path = json_text(request, "path")};
	struct mount_log *log = connection->server->mount->log;
	char reply[64];
	int r = search.path ? read_texts(request, &search) : -EINVAL;

	if (r < 0) {
		control_reply_failure(connection, r,
			"search needs a path, and texts as strings that are not empty");
		return;
	}
	if (mount_log_refuses(log)) {
		control_reply_failure(connection, -EIO,
			"the mount log cannot be written, and the mount requires it: 'isthmus "
			"status' says why");
		return;
	}
	r = run_search(&search, request);
	if (r < 0) {
		control_reply_failure(
			connection, r, "cannot search \"/%s\": %s", search.path, strerror(-r));
		return;
	}
	snprintf(reply, sizeof(reply), "{\"told\":%llu}", search.reported);
	control_send(connection->fd, CONTROL_JSON, reply, strlen(reply));
}
