#include "tools/registry.h"

#include <string.h>

static const struct tool *const tools[] = {
	&tool_read,
	&tool_write,
	&tool_edit,
	&tool_ls,
	&tool_bash,
};

const struct tool *tool_at(size_t index)
{
	return index < array_size(tools) ? tools[index] : NULL;
}

const struct tool *tool_find(const char *name)
{
	for (size_t i = 0; i < array_size(tools); i++)
		if (strcmp(tools[i]->name, name) == 0)
			return tools[i];
	return NULL;
}
