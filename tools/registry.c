#include "tools/registry.h"

#include <pthread.h>
#include <string.h>

static const struct tool *const tools[] = {
	&tool_read,
	&tool_write,
	&tool_create_file,
	&tool_edit,
	&tool_edit_file,
	&tool_delete,
	&tool_ls,
	&tool_find,
	&tool_glob,
	&tool_grep,
	&tool_bash,
	&tool_launch_app,
	&tool_webfetch,
	&tool_websearch,
};

static cJSON *schemas[array_size(tools)]; /* guarded by schemas_lock */
static pthread_mutex_t schemas_lock = PTHREAD_MUTEX_INITIALIZER;

const cJSON *registry_input_schema(const struct tool *tool)
{
	const cJSON *schema = NULL;

	pthread_mutex_lock(&schemas_lock);
	for (size_t i = 0; i < array_size(tools); i++) {
		if (tools[i] != tool)
			continue;
		if (!schemas[i])
			schemas[i] = cJSON_Parse(tool->input_schema);
		schema = schemas[i];
	}
	pthread_mutex_unlock(&schemas_lock);
	return schema;
}

const struct tool *registry_at(size_t index)
{
	return index < array_size(tools) ? tools[index] : NULL;
}

const struct tool *registry_find(const char *name)
{
	for (size_t i = 0; i < array_size(tools); i++)
		if (strcmp(tools[i]->name, name) == 0)
			return tools[i];
	return NULL;
}
