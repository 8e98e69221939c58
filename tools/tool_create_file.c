#include <errno.h>

#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/writing.h"

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"minLength\":1},"
	"\"content\":{\"type\":\"string\"},\"overwrite\":{\"type\":\"boolean\",\"default\":false},"
	"\"validate_syntax\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Checks json, "
	"yaml, toml, py, "
	"sh\"}},\"required\":[\"path\",\"content\"],\"additionalProperties\":false}";

static int validate(struct tool_call *call)
{
	cleanup_free char *path = NULL;
	struct stat status;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (tool_flag(call, "overwrite") || files_lstat(&call->session->root, path, &status) < 0)
		return writing_validate(call);
	if (S_ISDIR(status.st_mode))
		return tool_fail(call, TOOL_NOT_A_FILE, "Give the path of a file in it.",
			"\"%s\" is a directory.", *path ? path : ".");
	return tool_fail(call, TOOL_ALREADY_EXISTS,
		"Use edit to change it, set overwrite to replace it, or choose another path.",
		"\"%s\" exists already.", path);
}

static int execute(struct tool_call *call)
{
	return writing_execute(call, tool_flag(call, "overwrite") ? 0 : FILES_MUST_CREATE);
}

const struct tool tool_create_file = {
	.name = "create_file",
	.label = "Create file",
	.description = "Create a new file with its directories. Fails when it exists, unless "
		       "overwrite is set.",
	.input_schema = input_schema,
	.data_schema = WRITING_DATA_SCHEMA,
	.level = TOOL_MODIFY,
	.hints = TOOL_IS_IDEMPOTENT,
	.uses = PERMISSION_WRITES,
	.validate = validate,
	.execute = execute,
};
