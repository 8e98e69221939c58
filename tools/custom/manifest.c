/* tool.json, and the user's settings. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/json.h"
#include "ops/support/path.h"
#include "tools/base/options.h"
#include "tools/custom/internal.h"

enum { FILE_MAX_BYTES = 1 << 20 };

void custom_problem(struct custom_entry *entry, const char *format, ...)
{
	struct buffer message cleanup_buffer = {0};
	va_list arguments;

	va_start(arguments, format);
	buffer_vprintf(&message, format, arguments);
	va_end(arguments);
	if (!entry->problem)
		entry->problem = buffer_steal_string(&message);
}

char *custom_config_path(const char *name)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (config && *config == '/')
		return string_printf("%s/isthmus/%s", config, name);
	return home && *home == '/' ? string_printf("%s/.config/isthmus/%s", home, name) : NULL;
}

/* NULL: the file cannot be read or is not JSON; `*ret_error` is the -errno. */
static cJSON *read_json(const char *path, int *ret_error)
{
	struct buffer content cleanup_buffer = {0};
	struct stat status;
	cJSON *json;

	*ret_error = stat(path, &status) < 0 ? -errno : 0;
	if (*ret_error == 0 && (!S_ISREG(status.st_mode) || status.st_size > FILE_MAX_BYTES))
		*ret_error = -EFBIG;
	if (*ret_error == 0)
		*ret_error = options_read_file(path, &content);
	if (*ret_error < 0 || buffer_append(&content, "", 1) < 0)
		return NULL;
	json = cJSON_ParseWithOpts((const char *)content.data, NULL, true);
	if (!json)
		*ret_error = -EINVAL;
	return json;
}

cJSON *custom_settings(void)
{
	cleanup_free char *path = custom_config_path("tools.json");
	int error;

	/* permissions_load() reports errors in this file. */
	return path ? read_json(path, &error) : NULL;
}

/* A word of the command.  If it names a file beside the manifest, it becomes the absolute path, so
 * that it is valid in any working directory. */
static cJSON *make_word(
	const struct tool_session *session, const struct custom_entry *entry, const char *word)
{
	cleanup_free char *path = path_join(entry->directory, word), *below = NULL;
	bool is_file = path && *word != '/' && access(path, F_OK) == 0;

	if (!is_file)
		return cJSON_CreateString(word);
	if (!entry->at_workspace || files_resolve(&session->root, path, &below) < 0)
		return cJSON_CreateString(path);
	free(path);
	path = string_printf("./%s", below);
	return cJSON_CreateString(path ? path : word);
}

static int take_command(const struct tool_session *session, struct custom_entry *entry)
{
	const cJSON *command = cJSON_GetObjectItemCaseSensitive(entry->manifest, "command"), *word;

	if (!cJSON_IsArray(command) || !command->child)
		return -EINVAL;
	entry->argv = cJSON_CreateArray();
	cJSON_ArrayForEach(word, command) {
		if (!cJSON_IsString(word))
			return -EINVAL;
		cJSON_AddItemToArray(entry->argv, make_word(session, entry, word->valuestring));
	}
	return 0;
}

static void take_where(const struct tool_session *session, struct custom_entry *entry)
{
	const char *where = json_text(entry->manifest, "where");
	cleanup_free char *below = NULL;

	if (!where || strcmp(where, "here") == 0)
		return;
	if (strcmp(where, "workspace") != 0)
		custom_problem(entry, "\"where\" in its tool.json is \"here\" or \"workspace\"");
	else if (files_resolve(&session->root, entry->directory, &below) < 0)
		custom_problem(entry,
			"its tool.json says \"where\": \"workspace\", but it is not in the "
			"workspace: move it to .isthmus-tools there");
	else
		entry->at_workspace = true;
}

static bool take_protocol(struct custom_entry *entry)
{
	const char *protocol = json_text(entry->manifest, "protocol");

	entry->is_mcp = protocol && strcmp(protocol, "mcp") == 0;
	return !cJSON_GetObjectItemCaseSensitive(entry->manifest, "mcpServers");
}

/* In "mcpServers", "command" is the first word and "args" are the others. */
void custom_manifest_server(
	const struct tool_session *session, struct custom_entry *entry, cJSON *server)
{
	cJSON *command = cJSON_DetachItemFromObjectCaseSensitive(server, "command"), *words, *word;
	const cJSON *args = cJSON_GetObjectItemCaseSensitive(server, "args");

	words = cJSON_CreateArray();
	if (command)
		cJSON_AddItemToArray(words, command);
	cJSON_ArrayForEach(word, args) {
		cJSON_AddItemToArray(words, cJSON_Duplicate(word, true));
	}
	cJSON_AddItemToObject(server, "command", words);
	entry->manifest = server;
	entry->is_mcp = true;
	take_where(session, entry);
	if (take_command(session, entry) < 0)
		custom_problem(entry,
			"a server here needs \"command\", a word, and \"args\", a list "
			"of words; one with \"url\" is for the agent itself");
}

bool custom_manifest(const struct tool_session *session, struct custom_entry *entry)
{
	cleanup_free char *path = path_join(entry->directory, "tool.json");
	int error = -ENOMEM;

	entry->manifest = path ? read_json(path, &error) : NULL;
	if (error == -ENOENT)
		return false;
	if (!cJSON_IsObject(entry->manifest)) {
		custom_problem(entry, "its tool.json %s",
			error == -EINVAL || error == 0 ? "is not a JSON object" : strerror(-error));
		return true;
	}
	if (!take_protocol(entry))
		return true;
	take_where(session, entry);
	if (take_command(session, entry) < 0)
		custom_problem(entry,
			"its tool.json needs \"command\": a list of words, the program first");
	return true;
}
