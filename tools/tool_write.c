#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/writing.h"

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"minLength\":1},"
	"\"content\":{\"type\":\"string\",\"description\":\"The whole "
	"content\"}},\"required\":[\"path\",\"content\"],\"additionalProperties\":false}";

static int execute(struct tool_call *call)
{
	return writing_execute(call, 0);
}

const struct tool tool_write = {
	.name = "write",
	.label = "Write file",
	.description = "Write a whole file: creates it with its directories, or replaces its "
		       "content. To change a part of a file use edit.",
	.input_schema = input_schema,
	.data_schema = WRITING_DATA_SCHEMA,
	.level = TOOL_MODIFY,
	.hints = TOOL_IS_DESTRUCTIVE | TOOL_IS_IDEMPOTENT,
	.uses = PERMISSION_WRITES,
	.validate = writing_validate,
	.execute = execute,
};
