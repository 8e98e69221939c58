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
	char *directory;     /* that was asked about, below the root */
	struct buffer paths; /* from there on, a NUL behind each */
	const char **sorted; /* they point into it */
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
	const struct literals *texts, const char *names)
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
	}
	/* There it is about names alone. */
	if (names && !strchr(names, '/'))
		cJSON_AddStringToObject(json, "names", names);
	text = cJSON_PrintUnformatted(json);
	cJSON_Delete(json);
	return text;
}

/* ---- The answer ----------------------------------------------------------------------------- */

/* True when a frame is there; false: nobody waits for it any more. */
static bool await_frame(struct tool_call *call, int fd, uint64_t deadline_ns)
{
	struct pollfd fds[2] = {
		{.fd = fd, .events = POLLIN}, {.fd = call->cancel_fd, .events = POLLIN}};

	while (!tool_cancelled(call) && clock_now_ns() < deadline_ns)
		if (poll(fds, 2, STEP_MS) > 0 && fds[0].revents)
			return true;
	return false;
}

static void take_frames(struct tool_call *call, int fd, uint64_t deadline_ns, struct ahead *ahead)
{
	struct buffer payload cleanup_buffer = {0};
	enum control_frame_type type;

	while (await_frame(call, fd, deadline_ns) && control_receive(fd, &type, &payload) == 0 &&
		type == CONTROL_STDOUT && ahead->paths.size < TOLD_MAX_BYTES)
		if (buffer_append(&ahead->paths, payload.data, payload.size) < 0)
			break;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int sort_paths(struct ahead *ahead)
{
	const char *at = (const char *)ahead->paths.data, *end = at + ahead->paths.size;

	for (const char *each = at; each < end; each += strlen(each) + 1)
		ahead->count++;
	ahead->sorted = calloc(ahead->count + 1, sizeof(*ahead->sorted));
	if (!ahead->sorted)
		return -ENOMEM;
	for (size_t i = 0; i < ahead->count; i++, at += strlen(at) + 1)
		ahead->sorted[i] = at;
	qsort(ahead->sorted, ahead->count, sizeof(*ahead->sorted), by_path);
	return 0;
}

static int ask(struct tool_call *call, const char *path, const struct literals *texts,
	const char *names, uint64_t deadline_ns, struct ahead *ahead)
{
	cleanup_fd int fd = control_connect(call->session->control_socket);
	cleanup_free char *request = request_json(call, path, texts, names);
	struct stat root;

	if (fd < 0 || !request || fstat(call->session->root.fd, &root) < 0)
		return -EIO;
	ahead->device = root.st_dev;
	ahead->directory = strdup(path);
	if (!ahead->directory || control_send(fd, CONTROL_JSON, request, strlen(request)) < 0)
		return -EIO;
	take_frames(call, fd, deadline_ns, ahead);
	if (!ahead->paths.size || ahead->paths.data[ahead->paths.size - 1] != '\0')
		return -ENODATA;
	return sort_paths(ahead);
}

struct ahead *ahead_ask(struct tool_call *call, const char *path, const struct literals *texts,
	const char *names, uint64_t deadline_ns)
{
	struct ahead *ahead;

	if (!call->session->control_socket)
		return NULL;
	ahead = calloc(1, sizeof(*ahead));
	if (ahead && ask(call, path, texts, names, deadline_ns, ahead) == 0)
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
	free(ahead);
}

/* Something else may be mounted below the mount. */
static bool is_on_mount(const struct ahead *ahead, int directory)
{
	struct statx status;

	return statx(directory, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &status) == 0 &&
	       makedev(status.stx_dev_major, status.stx_dev_minor) == ahead->device;
}

bool ahead_lacks_texts(const struct ahead *ahead, const struct walk_entry *entry)
{
	const char *path;

	if (!ahead)
		return false;
	path = entry->path + strlen(ahead->directory);
	path += *ahead->directory && *path == '/';
	return bsearch(&path, ahead->sorted, ahead->count, sizeof(*ahead->sorted), by_path) &&
	       is_on_mount(ahead, entry->directory);
}
