#include "tools/custom/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/path.h"
#include "tools/base/options.h"

enum { ENTRIES_MAX = 1000, ENTRIES_MAX_BYTES = 4 << 20, NAME_MAX_BYTES = 128 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer unnamed; /* lines of the session without a name; guarded by lock */

/* NULL: the session has no name that can be a file's. */
static char *session_path(const struct tool_session *session)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const char *name = session->conversation;

	if (!name || !path_is_name(name) || strlen(name) > NAME_MAX_BYTES)
		return NULL;
	if (state && *state == '/')
		return string_printf("%s/isthmus/sessions/%s.jsonl", state, name);
	return home && *home == '/'
		       ? string_printf("%s/.local/state/isthmus/sessions/%s.jsonl", home, name)
		       : NULL;
}

/* With the lock held.  NUL-terminated. */
static int read_lines(const struct tool_session *session, struct buffer *lines)
{
	cleanup_free char *path = session_path(session);
	int r = path ? options_read_file(path, lines)
		     : buffer_append(lines, unnamed.data, unnamed.size);

	if (r == -ENOENT)
		r = 0;
	return r < 0 ? r : buffer_append(lines, "", 1);
}

/* The entry that a line of that source has, without what is ours; NULL: another's. */
static cJSON *read_entry(const char *line, size_t size, const char *source)
{
	cJSON *entry = cJSON_ParseWithLength(line, size);
	const char *whose = json_text(entry, "source");

	if (!whose || strcmp(whose, source) != 0) {
		cJSON_Delete(entry);
		return NULL;
	}
	cJSON_DeleteItemFromObjectCaseSensitive(entry, "source");
	return entry;
}

cJSON *custom_journal_entries(
	const struct tool_session *session, const struct custom_source *source)
{
	struct buffer lines cleanup_buffer = {0};
	cJSON *entries = cJSON_CreateArray();
	size_t left = ENTRIES_MAX_BYTES;
	const char *start, *end;
	int r;

	pthread_mutex_lock(&lock);
	r = read_lines(session, &lines);
	pthread_mutex_unlock(&lock);
	if (r < 0)
		return entries;
	/* From the end: what is too much is old. */
	start = (const char *)lines.data;
	end = start + lines.size - 1;
	while (end > start && cJSON_GetArraySize(entries) < ENTRIES_MAX) {
		const char *line = memrchr(start, '\n', (size_t)(end - 1 - start));
		cJSON *entry;

		line = line ? line + 1 : start;
		entry = read_entry(line, (size_t)(end - line), source->entry.path);
		if (entry && (size_t)(end - line) > left) {
			cJSON_Delete(entry);
			break;
		}
		if (entry) {
			left -= (size_t)(end - line);
			cJSON_InsertItemInArray(entries, 0, entry);
		}
		end = line;
	}
	return entries;
}

static int append(const struct tool_session *session, const struct buffer *line)
{
	cleanup_free char *path = session_path(session), *parent = NULL;
	cleanup_fd int directory = -1, fd = -1;

	if (!path)
		return buffer_append(&unnamed, line->data, line->size);
	parent = strndup(path, path_parent_length(path));
	directory = parent ? make_directories(parent) : -ENOMEM;
	if (directory < 0)
		return directory;
	fd = openat(directory, path_name(path), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : write_all(fd, line->data, line->size);
}

void custom_journal_add(const struct tool_call *call, const cJSON *details, bool is_error)
{
	const struct custom_tool *tool = custom_tool_of(call);
	cJSON *entry = cJSON_CreateObject();
	struct buffer line cleanup_buffer = {0};
	cleanup_free char *text = NULL;
	int r = -ENOMEM;

	cJSON_AddStringToObject(entry, "source", tool->source->entry.path);
	cJSON_AddStringToObject(entry, "tool", tool->own_name);
	cJSON_AddStringToObject(entry, "call", call->call_id);
	cJSON_AddBoolToObject(entry, "is_error", is_error);
	if (details)
		cJSON_AddItemToObject(entry, "details", cJSON_Duplicate(details, true));
	text = cJSON_PrintUnformatted(entry);
	cJSON_Delete(entry);
	pthread_mutex_lock(&lock);
	if (text && buffer_printf(&line, "%s\n", text) == 0)
		r = append(call->session, &line);
	pthread_mutex_unlock(&lock);
	if (r < 0)
		log_warning("cannot keep the result of %s for later calls: %s, going on without",
			call->tool->name, strerror(-r));
}
