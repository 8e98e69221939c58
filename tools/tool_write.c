#include <errno.h>
#include <string.h>

#include "tools/registry.h"
#include "tools/text.h"

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{"
	"\"path\":{\"type\":\"string\",\"minLength\":1,\"description\":\"File to write; missing "
	"directories are made\"},"
	"\"content\":{\"type\":\"string\",\"description\":\"The whole new content\"}},"
	"\"required\":[\"path\",\"content\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
	"\"created\":{\"type\":\"boolean\"},\"size_bytes\":{\"type\":\"integer\"},"
	"\"lines\":{\"type\":\"integer\"},\"hash\":{\"type\":\"string\"}},"
	"\"required\":[\"path\",\"created\",\"size_bytes\",\"hash\"]}";

static bool call_interrupted(void *user)
{
	return tool_cancelled(user);
}

static int execute(struct tool_call *call)
{
	const char *content = tool_string(call, "content");
	size_t size = strlen(content), lines = 0;
	cleanup_free char *path = NULL;
	cleanup_fd int lock = -1;
	char hash[33], words[32];
	struct stat status;
	bool created;
	int r;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	lock = files_lock(&call->session->root, path, call_interrupted, call);
	if (lock < 0)
		return tool_fail_errno(call, lock, "write", path);
	created = files_stat(&call->session->root, path, &status) == -ENOENT;
	r = files_write(&call->session->root, path, content, size, 0, NULL);
	if (r < 0)
		return tool_fail_errno(call, r, "write", path);
	for (const char *at = content; (at = strchr(at, '\n')); at++)
		lines++;
	lines += size && content[size - 1] != '\n';
	files_hash(content, size, hash);
	cJSON_AddStringToObject(call->data, "path", path);
	cJSON_AddBoolToObject(call->data, "created", created);
	cJSON_AddNumberToObject(call->data, "size_bytes", (double)size);
	cJSON_AddNumberToObject(call->data, "lines", (double)lines);
	cJSON_AddStringToObject(call->data, "hash", hash);
	return tool_text(call, "%s %s (%s, %zu line%s).", created ? "Created" : "Wrote", path,
		text_size(size, words), lines, lines == 1 ? "" : "s");
}

const struct tool tool_write = {
	.name = "write",
	.label = "Write file",
	.description =
		"Write a whole file: creates it with its directories, or replaces its content. "
		"To change a part of an existing file use edit.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_MODIFY,
	.hints = TOOL_IS_DESTRUCTIVE | TOOL_IS_IDEMPOTENT,
	.execute = execute,
};
