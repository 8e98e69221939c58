#include "tools/custom/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/path.h"

enum {
	ENTRIES_MAX = 1000,
	ENTRIES_MAX_BYTES = 4 << 20,
	READ_MAX_BYTES = 8 << 20,
	NAME_MAX_BYTES = 128,
	KEEP_SECONDS = 30 * 86400,
	DRAWN_MAX_BYTES = 64 << 10, /* bound of the arguments and the text for `tool render` */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer unnamed; /* lines of the session without a name; guarded by lock */

char *custom_journal_path(const char *session)
{
	cleanup_free char *name = NULL;

	if (!session || !path_is_name(session) || strlen(session) > NAME_MAX_BYTES)
		return NULL;
	name = string_printf("sessions/%s.jsonl", session);
	return name ? state_path(name) : NULL;
}

/* Appends the whole lines of the file from `*from` on.  If they are more than READ_MAX_BYTES,
 * appends the last ones and sets `*from` to where they begin. */
static int read_file(const char *path, size_t *from, struct buffer *lines)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	size_t size, left;
	ssize_t got = 1;

	if (fd < 0 || fstat(fd, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	size = (size_t)status.st_size;
	if (size < *from)
		*from = 0; /* a shorter file has replaced the former one */
	if (size - *from > READ_MAX_BYTES)
		*from = size - READ_MAX_BYTES;
	left = size - *from;
	if (buffer_reserve(lines, left) < 0)
		return -ENOMEM;
	while (left && got) {
		got = pread(fd, lines->data + lines->size, left, (off_t)(size - left));
		if (got < 0)
			return -errno;
		lines->size += (size_t)got;
		left -= (size_t)got;
	}
	return 0;
}

/* The same for the journal of the session. */
static int read_lines(const char *session, size_t *from, struct buffer *lines)
{
	cleanup_free char *path = custom_journal_path(session);
	int r = 0;

	pthread_mutex_lock(&lock);
	if (path)
		r = read_file(path, from, lines);
	else if (*from < unnamed.size)
		r = buffer_append(lines, unnamed.data + *from, unnamed.size - *from);
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- The branch --------------------------------------------------------------------------- */

/* One line: a result, or a move. */
struct node {
	cJSON *entry;
	ssize_t parent; /* -1: none, this is the first */
	bool on_branch;
};

struct tree {
	struct node *nodes;
	size_t count, capacity;
	ssize_t leaf; /* the session's present position; -1: before the first */
};

static void tree_done(struct tree *tree)
{
	for (size_t i = 0; i < tree->count; i++)
		cJSON_Delete(tree->nodes[i].entry);
	free(tree->nodes);
}

/* The size of the line at `at`, with its line end; 0: the line is incomplete. */
static size_t line_size(const struct buffer *lines, size_t at)
{
	const uint8_t *end =
		at < lines->size ? memchr(lines->data + at, '\n', lines->size - at) : NULL;

	return end ? (size_t)(end - lines->data) + 1 - at : 0;
}

static ssize_t find_node(const struct tree *tree, const char *call)
{
	for (size_t i = tree->count; call && i > 0; i--) {
		const char *name = json_text(tree->nodes[i - 1].entry, "call");

		if (name && strcmp(name, call) == 0)
			return (ssize_t)i - 1;
	}
	return -1;
}

static int add_node(struct tree *tree, cJSON *entry)
{
	if (tree->count == tree->capacity) {
		size_t capacity = tree->capacity ? 2 * tree->capacity : 64;
		struct node *grown = realloc(tree->nodes, capacity * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		tree->nodes = grown;
		tree->capacity = capacity;
	}
	tree->nodes[tree->count] = (struct node){.entry = entry, .parent = tree->leaf};
	tree->leaf = (ssize_t)tree->count++;
	return 0;
}

static void take_line(struct tree *tree, const char *line, size_t size)
{
	cJSON *json = cJSON_ParseWithLength(line, size);
	const char *to = json_text(json, "to");
	ssize_t found;

	if (json_text(json, "call") && add_node(tree, json) == 0)
		return;
	found = find_node(tree, to);
	if (json_text(json, "move") && (found >= 0 || !to))
		tree->leaf = found;
	cJSON_Delete(json);
}

/* Each result follows the line before it, unless a move is between them. */
static int read_tree(const char *session, struct tree *ret_tree)
{
	struct buffer lines cleanup_buffer = {0};
	struct tree tree = {.leaf = -1};
	size_t from = 0, size;
	int r = read_lines(session, &from, &lines);

	if (r < 0)
		return r;
	for (size_t at = 0; (size = line_size(&lines, at)); at += size)
		take_line(&tree, (const char *)lines.data + at, size);
	for (ssize_t i = tree.leaf; i >= 0; i = tree.nodes[i].parent)
		tree.nodes[i].on_branch = true;
	*ret_tree = tree;
	return 0;
}

static bool is_of(const cJSON *entry, const struct custom_source *source)
{
	const char *whose = json_text(entry, "source");

	return whose && strcmp(whose, source->entry.path) == 0;
}

/* Removes the members that only `tool render` and the journal need. */
static void drop_unlisted(cJSON *entry)
{
	static const char *const names[] = {"args", "content", "root", "writer"};

	for (size_t i = 0; i < array_size(names); i++)
		cJSON_DeleteItemFromObjectCaseSensitive(entry, names[i]);
}

static size_t size_of(const cJSON *entry)
{
	cleanup_free char *text = cJSON_PrintUnformatted(entry);

	return text ? strlen(text) : SIZE_MAX;
}

cJSON *custom_journal_entries(const char *session, const struct custom_source *source)
{
	cJSON *entries = cJSON_CreateArray();
	cleanup_with(tree_done) struct tree tree = {0};
	size_t left = ENTRIES_MAX_BYTES;

	if (read_tree(session, &tree) < 0)
		return entries;
	/* From the end: if there are too many, the oldest are left out. */
	for (ssize_t i = tree.leaf; i >= 0 && cJSON_GetArraySize(entries) < ENTRIES_MAX;
		i = tree.nodes[i].parent) {
		struct node *node = &tree.nodes[i];
		size_t size;

		if (!is_of(node->entry, source))
			continue;
		cJSON_DeleteItemFromObjectCaseSensitive(node->entry, "source");
		drop_unlisted(node->entry);
		size = size_of(node->entry);
		if (size > left)
			break;
		left -= size;
		cJSON_InsertItemInArray(entries, 0, node->entry);
		node->entry = NULL;
	}
	return entries;
}

cJSON *custom_journal_list(const char *session)
{
	cJSON *list = cJSON_CreateArray();
	cleanup_with(tree_done) struct tree tree = {0};

	if (read_tree(session, &tree) < 0)
		return list;
	for (size_t i = 0; i < tree.count; i++) {
		cJSON *entry = tree.nodes[i].entry;

		cJSON_DeleteItemFromObjectCaseSensitive(entry, "details");
		drop_unlisted(entry);
		cJSON_AddBoolToObject(entry, "on_branch", tree.nodes[i].on_branch);
		cJSON_AddItemToArray(list, entry);
		tree.nodes[i].entry = NULL;
	}
	return list;
}

static cJSON *find_in(const char *session, const char *call_id)
{
	cleanup_with(tree_done) struct tree tree = {0};
	ssize_t found = read_tree(session, &tree) < 0 ? -1 : find_node(&tree, call_id);

	return found < 0 ? NULL : steal_ptr(&tree.nodes[found].entry);
}

cJSON *custom_journal_find(const char *call_id)
{
	cleanup_free char *path = state_path("sessions");
	cleanup_dir DIR *stream = path ? opendir(path) : NULL;
	cJSON *found = NULL;
	struct dirent *entry;

	while (!found && stream && (entry = readdir(stream))) {
		char *end = strrchr(entry->d_name, '.');

		if (end && strcmp(end, ".jsonl") == 0) {
			*end = '\0';
			found = find_in(entry->d_name, call_id);
		}
	}
	return found;
}

char *custom_journal_place(const char *session)
{
	cleanup_with(tree_done) struct tree tree = {0};

	if (read_tree(session, &tree) < 0 || tree.leaf < 0)
		return NULL;
	return strdup(json_text(tree.nodes[tree.leaf].entry, "call"));
}

/* The event that a line is for a process which knows all lines before it; NULL: none.  Static. */
static const char *reason_of(
	const cJSON *line, const struct custom_source *source, const char *writer)
{
	static const char *const reasons[] = {"shutdown", "start", "branch", "tree"};
	const char *event = json_text(line, "event"), *move = json_text(line, "move"),
		   *whose = json_text(line, "writer");

	for (size_t i = 0; i < array_size(reasons); i++)
		if ((event && strcmp(event, reasons[i]) == 0) ||
			(move && strcmp(move, reasons[i]) == 0))
			return reasons[i];
	return is_of(line, source) && (!whose || strcmp(whose, writer) != 0) ? "tree" : NULL;
}

/* Combines two consecutive events: "shutdown" stays, and results count least. */
static const char *later_reason(const char *before, const char *reason, bool is_result)
{
	if (!reason || (before && (is_result || strcmp(before, "shutdown") == 0)))
		return before;
	return reason;
}

const char *custom_journal_changed(
	const char *session, const struct custom_source *source, const char *writer, size_t *bytes)
{
	struct buffer lines cleanup_buffer = {0};
	size_t from = *bytes, at = 0, size;
	const char *change = NULL;

	if (read_lines(session, &from, &lines) < 0)
		return NULL;
	if (from < *bytes)
		change = "tree";
	for (; (size = line_size(&lines, at)); at += size) {
		cJSON *json = cJSON_ParseWithLength((const char *)lines.data + at, size);

		change = later_reason(
			change, reason_of(json, source, writer), json_text(json, "call") != NULL);
		cJSON_Delete(json);
	}
	*bytes = from + at;
	return change;
}

char *custom_journal_switched(const char *session, size_t *bytes)
{
	static const char begin[] = "{\"event\":\"s"; /* of the relevant lines */
	struct buffer lines cleanup_buffer = {0};
	size_t from = *bytes, at = 0, size;
	char *to = NULL;

	if (read_lines(session, &from, &lines) < 0)
		return NULL;
	for (; (size = line_size(&lines, at)); at += size) {
		const char *line = (const char *)lines.data + at, *event, *next;
		cJSON *json;

		if (size < sizeof(begin) || memcmp(line, begin, sizeof(begin) - 1) != 0)
			continue;
		json = cJSON_ParseWithLength(line, size);
		event = json_text(json, "event");
		next = event && strcmp(event, "start") == 0 ? session : json_text(json, "session");
		if (next) {
			free(to);
			to = strdup(next);
		}
		cJSON_Delete(json);
	}
	*bytes = from + at;
	return to;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static void remove_old(int directory)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	time_t now = time(NULL);
	struct dirent *entry;
	struct stat status;

	while (stream && (entry = readdir(stream)))
		if (fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISREG(status.st_mode) && now - status.st_mtime > KEEP_SECONDS)
			unlinkat(directory, entry->d_name, 0);
}

/* Called with the lock held. */
static int append(const char *session, const struct buffer *line)
{
	cleanup_free char *path = custom_journal_path(session), *parent = NULL;
	cleanup_fd int directory = -1, fd = -1;

	if (!path)
		return buffer_append(&unnamed, line->data, line->size);
	parent = strndup(path, path_parent_length(path));
	directory = parent ? make_directories(parent) : -ENOMEM;
	if (directory < 0)
		return directory;
	fd = openat(directory, path_name(path), O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		remove_old(directory);
		fd = openat(directory, path_name(path), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
			0600);
	}
	return fd < 0 ? -errno : write_all(fd, line->data, line->size);
}

/* Adds a line and deletes `json`. */
static int add_line(const char *session, cJSON *json)
{
	struct buffer line cleanup_buffer = {0};
	cleanup_free char *text = cJSON_PrintUnformatted(json);
	int r = text ? buffer_printf(&line, "%s\n", text) : -ENOMEM;

	cJSON_Delete(json);
	if (r < 0)
		return r;
	pthread_mutex_lock(&lock);
	r = append(session, &line);
	pthread_mutex_unlock(&lock);
	return r;
}

/* Adds a member that only `tool render` needs, unless it is too long. */
static void add_drawn(cJSON *entry, const char *name, cJSON *value)
{
	cleanup_free char *text = value ? cJSON_PrintUnformatted(value) : NULL;

	if (text && strlen(text) <= DRAWN_MAX_BYTES)
		cJSON_AddItemToObject(entry, name, value);
	else
		cJSON_Delete(value);
}

/* The text of the result, without images; of a failure, its message. */
static cJSON *text_blocks(const cJSON *result)
{
	cJSON *blocks = cJSON_CreateArray();
	const cJSON *block, *content = json_member(result, "content");

	if (json_text(result, "message")) {
		cJSON *why = cJSON_CreateObject();

		cJSON_AddStringToObject(why, "text", json_text(result, "message"));
		cJSON_AddItemToArray(blocks, why);
	}
	cJSON_ArrayForEach(block, content)
		if (json_text(block, "text"))
			cJSON_AddItemToArray(blocks, cJSON_Duplicate(block, true));
	return blocks;
}

void custom_journal_add(
	const struct tool_call *call, const cJSON *result, bool is_error, const char *writer)
{
	const cJSON *details = json_member(result, "details");
	const struct custom_tool *tool = custom_tool_of(call);
	cleanup_free char *path = custom_journal_path(tool_conversation(call)); /* NULL: unnamed */
	cJSON *entry = cJSON_CreateObject();
	int r;

	cJSON_AddStringToObject(entry, "source", tool->source->entry.path);
	cJSON_AddStringToObject(entry, "tool", tool->own_name);
	cJSON_AddStringToObject(entry, "call", call->call_id);
	cJSON_AddBoolToObject(entry, "is_error", is_error);
	if (writer)
		cJSON_AddStringToObject(entry, "writer", writer);
	if (details)
		cJSON_AddItemToObject(entry, "details", cJSON_Duplicate(details, true));
	if (path && tool->renders)
		add_drawn(entry, "args", cJSON_Duplicate(call->arguments, true));
	if (path) {
		add_drawn(entry, "content", text_blocks(result));
		cJSON_AddStringToObject(entry, "root", call->session->root.path);
	}
	r = add_line(tool_conversation(call), entry);
	if (r < 0)
		log_warning("cannot keep the result of %s for later calls: %s, going on without",
			call->tool->name, strerror(-r));
}

int custom_journal_move(const char *session, const char *to, const char *how)
{
	cleanup_with(tree_done) struct tree tree = {0};
	cJSON *move;
	int r = read_tree(session, &tree);

	if (r == 0 && to && find_node(&tree, to) < 0)
		r = -ENOENT;
	if (r < 0)
		return r;
	move = cJSON_CreateObject();
	cJSON_AddStringToObject(move, "move", how);
	if (to)
		cJSON_AddStringToObject(move, "to", to);
	return add_line(session, move);
}

int custom_journal_event(const char *session, const char *event, const char *to)
{
	cJSON *line = cJSON_CreateObject();

	cJSON_AddStringToObject(line, "event", event);
	if (to)
		cJSON_AddStringToObject(line, "session", to);
	return add_line(session, line);
}
