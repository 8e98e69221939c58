#include "tools/base/registry.h"

#include <pthread.h>
#include <string.h>

static cJSON *schemas[REGISTRY_BUILT_IN_MAX]; /* guarded by schemas_lock */
static pthread_mutex_t schemas_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct tool *found[REGISTRY_FOUND_MAX]; /* guarded by found_lock, as is found_count */
static size_t found_count;
static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	void (*load)(void *user);
	void *user;
	pthread_mutex_t lock; /* held while it loads */
} loader = {.lock = PTHREAD_MUTEX_INITIALIZER};

void registry_set_loader(void (*load)(void *user), void *user)
{
	loader.load = load;
	loader.user = user;
}

static void load_found(void)
{
	void (*load)(void *user);

	pthread_mutex_lock(&loader.lock);
	load = loader.load;
	loader.load = NULL;
	if (load)
		load(loader.user);
	pthread_mutex_unlock(&loader.lock);
}

void registry_set_found(const struct tool *const *list, size_t count)
{
	if (count > REGISTRY_FOUND_MAX)
		count = REGISTRY_FOUND_MAX;
	pthread_mutex_lock(&found_lock);
	for (size_t i = 0; i < count; i++)
		found[i] = list[i];
	found_count = count;
	pthread_mutex_unlock(&found_lock);
}

const cJSON *registry_input_schema(const struct tool *tool)
{
	const cJSON *schema = NULL;

	if (tool->parsed_schema)
		return tool->parsed_schema;
	pthread_mutex_lock(&schemas_lock);
	for (size_t i = 0; registry_built_in[i]; i++) {
		if (registry_built_in[i] != tool)
			continue;
		if (!schemas[i])
			schemas[i] = cJSON_Parse(tool->input_schema);
		schema = schemas[i];
	}
	pthread_mutex_unlock(&schemas_lock);
	return schema;
}

static size_t built_in_count(void)
{
	size_t count = 0;

	while (registry_built_in[count])
		count++;
	return count;
}

const struct tool *registry_at(size_t index)
{
	const struct tool *tool;

	if (index < built_in_count())
		return registry_built_in[index];
	load_found();
	index -= built_in_count();
	pthread_mutex_lock(&found_lock);
	tool = index < found_count ? found[index] : NULL;
	pthread_mutex_unlock(&found_lock);
	return tool;
}

const struct tool *registry_find_built_in(const char *name)
{
	for (size_t i = 0; registry_built_in[i]; i++)
		if (strcmp(registry_built_in[i]->name, name) == 0)
			return registry_built_in[i];
	return NULL;
}

const struct tool *registry_find(const char *name)
{
	const struct tool *tool = registry_find_built_in(name);

	if (tool)
		return tool;
	/* Another thread may replace the list by a shorter one meanwhile. */
	for (size_t i = built_in_count(); (tool = registry_at(i)); i++)
		if (strcmp(tool->name, name) == 0)
			return tool;
	return NULL;
}
