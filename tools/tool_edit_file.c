#include <errno.h>

#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/writing.h"

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"minLength\":1},"
	"\"content\":{\"type\":\"string\"},\"create_backup\":{\"type\":\"boolean\",\"default\":"
	"true,\"description\":\"Keep the old file as "
	"FILE.bak\"},\"validate_syntax\":{\"type\":\"boolean\",\"default\":true,\"description\":"
	"\"Checks json, yaml, toml, py, "
	"sh\"}},\"required\":[\"path\",\"content\"],\"additionalProperties\":false}";

static int validate(struct tool_call *call)
{
	cleanup_free char *path = NULL;
	struct stat status;
	int r;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	r = files_stat(&call->session->root, path, &status);
	if (r == 0 && S_ISDIR(status.st_mode))
		return tool_fail(call, TOOL_NOT_A_FILE, "Give the path of a file in it.",
			"\"%s\" is a directory.", *path ? path : ".");
	return r < 0 ? tool_fail_errno(call, r, "edit", path) : writing_validate(call);
}

static int permission(struct tool_call *call)
{
	cleanup_free char *path = NULL;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	return writing_permission(call, call->tool->uses, path);
}

static int execute(struct tool_call *call)
{
	return writing_execute(call, FILES_MUST_REPLACE);
}

const struct tool tool_edit_file = {
	.name = "edit_file",
	.label = "Replace file content",
	.description = "Replace the whole content of an existing file, keeping the old one as a "
		       "backup. To change parts use edit.",
	.input_schema = input_schema,
	.data_schema = WRITING_DATA_SCHEMA,
	.level = TOOL_MODIFY,
	.hints = TOOL_IS_DESTRUCTIVE,
	.uses = PERMISSION_WRITES,
	.validate = validate,
	.permission = permission,
	.execute = execute,
};
