#include "tools/search/ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "ops/support/clock.h"
#include "ops/support/control.h"
#include "ops/support/path.h"

enum { TOLD_MAX_BYTES = 64 << 20, STEP_MS = 200 };

struct ahead {
	dev_t device;        /* of the mount */
	char *directory;     /* the searched directory, below the root */
	struct buffer paths; /* of files without the texts, relative to it, each with its NUL */
	struct buffer lines; /* frames of files with lines, each after its size */
	struct ahead_file *sorted; /* by path; they point into the buffers */
	size_t count;
};

/* ---- The question ------------------------------------------------------------------------- */

static cJSON *texts_json(const struct literals *texts)
{
	cJSON *list = cJSON_CreateArray();

	for (size_t i = 0; i < literals_count(texts); i++) {
		struct literal_text text = literals_text(texts, i);
		cleanup_free char *copy = strndup((const char *)text.bytes, text.size);

		cJSON_AddItemToArray(list, cJSON_CreateString(copy ? copy : ""));
	}
	return list;
}

static char *request_json(const struct tool_call *call, const char *path,
	const struct literals *texts, const char *names, unsigned context)
{
	cleanup_free char *there = path_join(call->session->workspace_path, path);
	cJSON *json;
	char *text;

	if (!there)
		return NULL;
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "request", "search");
	cJSON_AddStringToObject(json, "path", there);
	if (texts) {
		cJSON_AddItemToObject(json, "texts", texts_json(texts));
		cJSON_AddBoolToObject(json, "ignore_case", literals_ignore_case(texts));
		cJSON_AddNumberToObject(json, "context", context);
	}
	/* The request has a glob for names only, not for paths. */
	if (names && !strchr(names, '/'))
		cJSON_AddStringToObject(json, "names", names);
	text = cJSON_PrintUnformatted(json);
	cJSON_Delete(json);
	return text;
}

/* ---- The answer ----------------------------------------------------------------------------- */

/* Waits for a frame.  False: the call was cancelled, or the time is up. */
static bool await_frame(struct tool_call *call, int fd, uint64_t deadline_ns)
{
	struct pollfd fds[2] = {
		{.fd = fd, .events = POLLIN}, {.fd = call->cancel_fd, .events = POLLIN}};

	while (!tool_cancelled(call) && clock_now_ns() < deadline_ns)
		if (poll(fds, 2, STEP_MS) > 0 && fds[0].revents)
			return true;
	return false;
}

static int take_frame(struct ahead *ahead, enum control_frame_type type, struct buffer *payload)
{
	if (ahead->paths.size + ahead->lines.size > TOLD_MAX_BYTES)
		return -E2BIG;
	if (type == CONTROL_UNMATCHED)
		return buffer_append(&ahead->paths, payload->data, payload->size);
	if (type != CONTROL_EXCERPT || !memchr(payload->data, '\0', payload->size))
		return -ENODATA;
	/* Reserve both first: a size without its frame would make the list unreadable. */
	if (buffer_reserve(&ahead->lines, sizeof(payload->size) + payload->size) < 0)
		return -ENOMEM;
	buffer_append(&ahead->lines, &payload->size, sizeof(payload->size));
	return buffer_append(&ahead->lines, payload->data, payload->size);
}

static void take_frames(struct tool_call *call, int fd, uint64_t deadline_ns, struct ahead *ahead)
{
	struct buffer payload cleanup_buffer = {0};
	enum control_frame_type type;

	while (await_frame(call, fd, deadline_ns) && control_receive(fd, &type, &payload) == 0)
		if (take_frame(ahead, type, &payload) < 0)
			break;
}

static int by_path(const void *a, const void *b)
{
	const struct ahead_file *left = a, *right = b;

	return strcmp(left->path, right->path);
}

/* Adds the files of `paths`, then those of `lines`, to `sorted`; if that is NULL, only counts. */
static void note_files(struct ahead *ahead)
{
	const uint8_t *at = ahead->paths.data, *end = at + ahead->paths.size;
	size_t size;

	ahead->count = 0;
	for (; at < end; at += strlen((const char *)at) + 1, ahead->count++)
		if (ahead->sorted)
			ahead->sorted[ahead->count] = (struct ahead_file){.path = (const char *)at};
	at = ahead->lines.data;
	end = at + ahead->lines.size;
	for (; at < end; at += size, ahead->count++) {
		size_t path_size;

		memcpy(&size, at, sizeof(size));
		at += sizeof(size);
		path_size = strlen((const char *)at) + 1;
		if (ahead->sorted)
			ahead->sorted[ahead->count] = (struct ahead_file){
				(const char *)at, at + path_size, size - path_size};
	}
}

static int sort_files(struct ahead *ahead)
{
	note_files(ahead);
	ahead->sorted = calloc(ahead->count + 1, sizeof(*ahead->sorted));
	if (!ahead->sorted)
		return -ENOMEM;
	note_files(ahead);
	qsort(ahead->sorted, ahead->count, sizeof(*ahead->sorted), by_path);
	return 0;
}

static int ask(struct tool_call *call, const char *path, const char *request, uint64_t deadline_ns,
	struct ahead *ahead)
{
	cleanup_fd int fd = control_connect(call->session->control_socket);
	struct stat root;

	if (fd < 0 || !request || fstat(call->session->root.fd, &root) < 0)
		return -EIO;
	ahead->device = root.st_dev;
	ahead->directory = strdup(path);
	if (!ahead->directory || control_send(fd, CONTROL_JSON, request, strlen(request)) < 0)
		return -EIO;
	take_frames(call, fd, deadline_ns, ahead);
	if (ahead->paths.size && ahead->paths.data[ahead->paths.size - 1] != '\0')
		return -ENODATA;
	return ahead->paths.size || ahead->lines.size ? sort_files(ahead) : -ENODATA;
}

struct ahead *ahead_ask(struct tool_call *call, const char *path, const struct literals *texts,
	const char *names, unsigned context, uint64_t deadline_ns)
{
	cleanup_free char *request = NULL;
	struct ahead *ahead;

	if (!call->session->control_socket)
		return NULL;
	request = request_json(call, path, texts, names, context);
	ahead = calloc(1, sizeof(*ahead));
	if (ahead && ask(call, path, request, deadline_ns, ahead) == 0)
		return ahead;
	ahead_free(ahead);
	return NULL;
}

void ahead_free(struct ahead *ahead)
{
	if (!ahead)
		return;
	free(ahead->directory);
	free(ahead->sorted);
	buffer_done(&ahead->paths);
	buffer_done(&ahead->lines);
	free(ahead);
}

/* False if another file system is mounted at the directory. */
static bool is_on_mount(const struct ahead *ahead, int directory)
{
	struct statx status;

	return statx(directory, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &status) == 0 &&
	       makedev(status.stx_dev_major, status.stx_dev_minor) == ahead->device;
}

const struct ahead_file *ahead_find(const struct ahead *ahead, const struct walk_entry *entry)
{
	const struct ahead_file *found;
	struct ahead_file wanted;

	if (!ahead)
		return NULL;
	wanted.path = entry->path + strlen(ahead->directory);
	wanted.path += *ahead->directory && *wanted.path == '/';
	found = bsearch(&wanted, ahead->sorted, ahead->count, sizeof(*ahead->sorted), by_path);
	return found && is_on_mount(ahead, entry->directory) ? found : NULL;
}
