/* Finds entries in all places; of two tools with one name, the one found later counts. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"
#include "tools/custom/internal.h"

enum { NAMES_MAX = 2000 };

struct finder {
	const struct tool_session *session;
	struct custom_entries *entries;
	const char *origin;
	const char *place; /* the directory, in a project; else NULL */
	bool is_pi;        /* the files are scripts for pi, not programs */
};

static void entry_done(struct custom_entry *entry)
{
	free(entry->path);
	free(entry->directory);
	free(entry->place);
	free(entry->prefix);
	free(entry->problem);
	cJSON_Delete(entry->argv);
	cJSON_Delete(entry->manifest);
}

void custom_entries_done(struct custom_entries *entries)
{
	for (size_t i = 0; i < entries->count; i++)
		entry_done(&entries->list[i]);
	for (size_t i = 0; i < entries->place_count; i++)
		free(entries->places[i]);
	free(entries->list);
	*entries = (struct custom_entries){0};
}

static struct custom_entry *add(struct finder *finder, const char *path, bool is_directory)
{
	struct custom_entries *entries = finder->entries;
	struct custom_entry *entry;

	if (entries->count == CUSTOM_ENTRIES_MAX)
		return NULL;
	if (!entries->list)
		entries->list = calloc(CUSTOM_ENTRIES_MAX, sizeof(*entries->list));
	if (!entries->list)
		return NULL;
	entry = &entries->list[entries->count++];
	entry->path = strdup(path);
	entry->directory = is_directory ? strdup(path) : strndup(path, path_parent_length(path));
	entry->origin = finder->origin;
	entry->place = finder->place ? strdup(finder->place) : NULL;
	if (!entry->path || !entry->directory)
		custom_problem(entry, "there is not enough memory");
	return entry;
}

static void take_program(struct custom_entry *entry, const char *program)
{
	entry->argv = cJSON_CreateArray();
	cJSON_AddItemToArray(entry->argv, cJSON_CreateString(program));
}

static bool is_program(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* The path of node-host.mjs: installed, or beside this program in a build directory.  The caller
 * frees it. */
static char *node_host(void)
{
	static const char *const places[] = {"../share/isthmus", "."};
	cleanup_free char *self = realpath("/proc/self/exe", NULL);
	size_t length = self ? path_parent_length(self) : 0;

	for (size_t i = 0; self && i < array_size(places); i++) {
		char *path = string_printf("%.*s/%s/node-host.mjs", (int)length, self, places[i]);

		if (path && access(path, R_OK) == 0)
			return path;
		free(path);
	}
	return NULL;
}

/* Fills in the entry for a TypeScript or JavaScript file for pi. */
static void take_node(struct custom_entry *entry, const char *file)
{
	cleanup_free char *host = node_host();

	entry->for_node = true;
	entry->argv = cJSON_CreateArray();
	cJSON_AddItemToArray(entry->argv, cJSON_CreateString("node"));
	cJSON_AddItemToArray(entry->argv, cJSON_CreateString(host ? host : ""));
	cJSON_AddItemToArray(entry->argv, cJSON_CreateString(file));
	if (!host)
		custom_problem(
			entry, "share/isthmus/node-host.mjs of this installation is missing");
}

static bool is_script(const char *name)
{
	static const char *const ends[] = {".ts", ".mts", ".js", ".mjs"};
	size_t length = strlen(name);

	for (size_t i = 0; i < array_size(ends); i++)
		if (length > strlen(ends[i]) &&
			strcmp(name + length - strlen(ends[i]), ends[i]) == 0)
			return true;
	return false;
}

/* The index file of a directory; the caller frees it.  NULL: none. */
static char *find_index(const char *directory)
{
	static const char *const names[] = {"index.ts", "index.mts", "index.js", "index.mjs"};

	for (size_t i = 0; i < array_size(names); i++) {
		char *path = path_join(directory, names[i]);

		if (path && access(path, R_OK) == 0)
			return path;
		free(path);
	}
	return NULL;
}

/* Replaces the last entry by one entry for each of its "mcpServers", which has the format of all
 * clients. */
static void take_servers(struct finder *finder, struct custom_entry *entry)
{
	cJSON *servers = cJSON_DetachItemFromObjectCaseSensitive(entry->manifest, "mcpServers");
	struct custom_entry all = *entry;
	cJSON *server;

	if (!servers)
		return;
	finder->entries->count--;
	*entry = (struct custom_entry){0};
	while ((server = cJSON_DetachItemFromArray(servers, 0))) {
		cleanup_free char *path = string_printf("%s#%s", all.path, server->string);
		struct custom_entry *one = path ? add(finder, path, false) : NULL;

		if (!one) {
			cJSON_Delete(server);
			continue;
		}
		free(one->directory);
		one->directory = strdup(all.directory);
		one->prefix = string_printf("%s_", server->string);
		custom_manifest_server(finder->session, one, server);
	}
	cJSON_Delete(servers);
	entry_done(&all);
}

static void take_directory(struct finder *finder, const char *path)
{
	cleanup_free char *program = path_join(path, path_name(path)), *index = find_index(path);
	struct custom_entry *entry = add(finder, path, true);

	if (!entry || entry->problem)
		return;
	if (custom_manifest(finder->session, entry)) {
		take_servers(finder, entry);
		return;
	}
	if (index)
		take_node(entry, index);
	else if (program && is_program(program))
		take_program(entry, program);
	else
		custom_problem(entry, "there is no tool.json, index.ts or executable \"%s\" in it",
			path_name(path));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Reads the names in sorted order, so that the choice between two tools with one name does not
 * depend on the file system. */
static size_t read_names(const char *path, char **names)
{
	cleanup_dir DIR *stream = opendir(path);
	struct dirent *entry;
	size_t count = 0;

	while (stream && count < NAMES_MAX && (entry = readdir(stream)))
		if (entry->d_name[0] != '.' && (names[count] = strdup(entry->d_name)))
			count++;
	qsort(names, count, sizeof(*names), by_name);
	return count;
}

static void take_file(struct finder *finder, const char *path)
{
	struct custom_entry *entry = NULL;

	if (finder->is_pi && is_script(path)) {
		entry = add(finder, path, false);
		if (entry)
			take_node(entry, path);
	} else if (!finder->is_pi && is_program(path)) {
		entry = add(finder, path, false);
		if (entry)
			take_program(entry, path);
	}
}

/* Adds every directory and executable in a place (for pi: directories with an index, and scripts);
 * ignores other files. */
static void take_place(struct finder *finder, const char *path)
{
	cleanup_free char **names = calloc(NAMES_MAX, sizeof(*names));
	size_t count = names ? read_names(path, names) : 0;
	struct custom_entries *entries = finder->entries;

	if (entries->place_count < CUSTOM_PLACES_MAX &&
		(entries->places[entries->place_count] = strdup(path)))
		entries->place_count++;
	for (size_t i = 0; i < count; i++) {
		cleanup_free char *name = names[i], *whole = path_join(path, name);
		struct stat status;

		if (!whole || stat(whole, &status) < 0)
			continue;
		if (!S_ISDIR(status.st_mode)) {
			take_file(finder, whole);
		} else {
			cleanup_free char *index = find_index(whole);

			if (index || !finder->is_pi)
				take_directory(finder, whole);
		}
	}
}

/* Adds a path that the user has named; if it is wrong, `tool list` says so. */
static void take_named(struct finder *finder, const char *given)
{
	const char *home = getenv("HOME");
	cleanup_free char *whole =
		strncmp(given, "~/", 2) == 0 && home ? path_join(home, given + 2) : strdup(given);
	cleanup_free char *path = whole ? realpath(whole, NULL) : NULL;
	struct custom_entry *entry;
	struct stat status;

	if (path && stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
		take_directory(finder, path);
		return;
	}
	entry = add(finder, path ? path : given, false);
	if (!entry)
		return;
	if (!path)
		custom_problem(entry, "%s", strerror(errno));
	else if (is_script(path))
		take_node(entry, path);
	else if (is_program(path))
		take_program(entry, path);
	else
		custom_problem(entry, "it is not executable: chmod +x it");
}

static void take_below(
	struct finder *finder, const char *origin, const char *base, const char *name)
{
	cleanup_free char *path = base ? path_join(base, name) : NULL;

	finder->origin = origin;
	if (path)
		take_place(finder, path);
}

/* Adds Amp's tools: those in $AMP_TOOLBOX (directories separated by colons), else in its default
 * directory. */
static void take_amp(struct finder *finder, const char *home)
{
	const char *toolbox = getenv("AMP_TOOLBOX");

	if (!toolbox) {
		take_below(finder, "~/.config/amp/tools", home, ".config/amp/tools");
		return;
	}
	finder->origin = "$AMP_TOOLBOX";
	while (*toolbox) {
		size_t length = strcspn(toolbox, ":");
		cleanup_free char *path = strndup(toolbox, length);

		if (path && *path == '/')
			take_place(finder, path);
		toolbox += length + (toolbox[length] == ':');
	}
}

static void take_pi(struct finder *finder, const char *home)
{
	finder->is_pi = true;
	take_below(finder, "~/.pi/agent/tools", home, ".pi/agent/tools");
	take_below(finder, "~/.pi/agent/extensions", home, ".pi/agent/extensions");
	finder->is_pi = false;
}

static void take_project(struct finder *finder)
{
	static const struct {
		const char *name;
		bool is_pi;
	} places[] = {{".pi/tools", true}, {".pi/extensions", true}, {".agents/tools", false},
		{".isthmus-tools", false}};

	for (size_t i = 0; i < array_size(places); i++) {
		cleanup_free char *path = path_join(finder->session->root.path, places[i].name);
		cleanup_free char *real = path ? realpath(path, NULL) : NULL;

		if (!real)
			continue;
		finder->place = real;
		finder->origin = places[i].name;
		finder->is_pi = places[i].is_pi;
		take_place(finder, real);
		finder->place = NULL;
		finder->is_pi = false;
	}
}

/* Whether the settings allow it: "compat" is missing, or lists it. */
static bool wants(const cJSON *settings, const char *whose)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(settings, "compat"), *item;

	if (!cJSON_IsArray(list))
		return true;
	cJSON_ArrayForEach(item, list) {
		if (cJSON_IsString(item) && strcmp(item->valuestring, whose) == 0)
			return true;
	}
	return false;
}

int custom_find(const struct custom_options *options, const struct tool_session *session,
	const cJSON *settings, struct custom_entries *ret_entries)
{
	struct finder finder = {.session = session, .entries = ret_entries};
	cleanup_free char *own = custom_config_path("tools");
	const char *home = getenv("HOME");
	const cJSON *item;

	*ret_entries = (struct custom_entries){0};
	if (wants(settings, "pi"))
		take_pi(&finder, home);
	if (wants(settings, "amp"))
		take_amp(&finder, home);
	finder.origin = "~/.config/isthmus/tools";
	if (own)
		take_place(&finder, own);
	take_project(&finder);
	finder.origin = "\"tools\" in tools.json";
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(settings, "tools")) {
		if (cJSON_IsString(item))
			take_named(&finder, item->valuestring);
	}
	finder.origin = "--tool";
	for (size_t i = 0; i < options->path_count; i++)
		take_named(&finder, options->paths[i]);
	return 0;
}
