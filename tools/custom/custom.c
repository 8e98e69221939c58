/* Makes tools of the entries, and registers them. */
#include "tools/custom/custom.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/path.h"
#include "ops/support/worker_pool.h"
#include "tools/base/registry.h"
#include "tools/base/schema.h"
#include "tools/custom/bus.h"
#include "tools/custom/hosts.h"
#include "tools/custom/internal.h"
#include "tools/custom/session.h"
#include "tools/permission/permission.h"

enum { THREADS = 8, FINDINGS_MAX = 2 * CUSTOM_ENTRIES_MAX, NAME_MAX_BYTES = 40 };

static const char data_schema[] = "{\"type\":\"object\",\"properties\":{"
				  "\"text\":{\"type\":\"string\"},\"details\":{},"
				  "\"output_file\":{\"type\":\"string\"},"
				  "\"notice\":{\"type\":\"string\"}}}";

/* ---- Permission ------------------------------------------------------------------------------ */

static bool is_trusted_now(struct tool_call *call, const char *place)
{
	cleanup_free char *title = string_printf(
		"The project's tools in \"%s\" have changed since they were trusted. They run on "
		"this machine. Trust them as they are now?",
		place);
	const struct tool_question question = {.kind = TOOL_ASK_CONFIRM, .title = title};
	cJSON *answer = call->ask_user && title ? call->ask_user(call, &question) : NULL;
	bool agreed = cJSON_IsTrue(answer);

	cJSON_Delete(answer);
	return agreed && custom_trust_now(place) == 0;
}

/* Asks for permission.  Rules match the arguments as compact JSON.  The question is worded here, as
 * a tool must not word its own permission. */
static int ask_permission(struct tool_call *call)
{
	const struct custom_entry *entry = &custom_tool_of(call)->source->entry;
	cleanup_free char *arguments = cJSON_PrintUnformatted(call->arguments);
	cleanup_free char *sentence = NULL;

	/* The files may have changed since the search. */
	if (entry->place && custom_trusted(entry->place) != CUSTOM_TRUSTED &&
		!is_trusted_now(call, entry->place))
		return tool_fail(call, TOOL_PERMISSION_DENIED,
			"Ask the user to look at the change and to run isthmus tool trust.",
			"The project's tools in \"%s\" have changed since they were trusted.",
			entry->place);
	if (arguments)
		sentence = string_printf("Run the custom tool %s (%s) with %s", call->tool->name,
			entry->path, arguments);
	if (!sentence)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	return permission_ask(call, call->tool->level, arguments, sentence);
}

/* ---- Making tools ------------------------------------------------------------------------------
 */

static char *make_name(const char *prefix, const char *own)
{
	char *name = string_printf("%s%s", prefix ? prefix : "", own);

	for (char *at = name; at && *at; at++)
		if (*at == '-')
			*at = '_';
	return name;
}

static bool is_good_name(const char *name)
{
	size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

	return islower((unsigned char)*name) && !name[length] && length <= NAME_MAX_BYTES;
}

static bool is_reserved(const char *name)
{
	static const char *const words[] = {"list", "new", "render", "trust"};

	for (size_t i = 0; i < array_size(words); i++)
		if (strcmp(words[i], name) == 0)
			return true;
	return registry_find_built_in(name) != NULL;
}

bool custom_name_fits(const char *name)
{
	return is_good_name(name) && !is_reserved(name);
}

static enum tool_level level_named(const char *name)
{
	static const enum tool_level levels[] = {TOOL_READ, TOOL_MODIFY};

	for (size_t i = 0; name && i < array_size(levels); i++)
		if (strcmp(tool_level_name(levels[i]), name) == 0)
			return levels[i];
	return TOOL_DANGEROUS;
}

/* The level from "levels" in the user's tools.json; the level that a tool claims is not trusted. */
static enum tool_level level_of(const cJSON *settings, const char *name)
{
	return level_named(json_text(cJSON_GetObjectItemCaseSensitive(settings, "levels"), name));
}

static double timeout_of(const struct custom_entry *entry, const cJSON *description)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(entry->manifest, "timeout_s");

	if (!cJSON_IsNumber(item))
		item = cJSON_GetObjectItemCaseSensitive(description, "timeout_s");
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.1))
		return CUSTOM_TIMEOUT_S;
	return item->valuedouble < 86400 ? item->valuedouble : 86400;
}

/* The input schema; NULL with a reason: it is not the schema of an object. */
static cJSON *schema_of(const cJSON *description, struct buffer *reason)
{
	const cJSON *given = cJSON_GetObjectItemCaseSensitive(description, "parameters");
	cJSON *schema = given ? cJSON_Duplicate(given, true) : cJSON_CreateObject();
	struct buffer problem cleanup_buffer = {0};
	const char *type;

	if (!cJSON_GetObjectItemCaseSensitive(schema, "type"))
		cJSON_AddStringToObject(schema, "type", "object");
	type = json_text(schema, "type");
	if (!type || strcmp(type, "object") != 0)
		buffer_append_string(&problem, "it is not about an object");
	else if (schema_check_form(schema, &problem) == 0)
		return schema;
	buffer_printf(reason, "its schema of parameters is not valid: %.*s", (int)problem.size,
		(const char *)problem.data);
	cJSON_Delete(schema);
	return NULL;
}

static char *text_or(const cJSON *object, const char *name, const char *fallback)
{
	const char *text = json_text(object, name);

	return strdup(text && *text ? text : fallback);
}

/* The tool; NULL with a reason: the description is not valid. */
static struct custom_tool *make_tool(struct custom_source *source, const cJSON *description,
	const cJSON *settings, struct buffer *reason)
{
	struct custom_tool *tool = calloc(1, sizeof(*tool));
	const char *own = json_text(description, "name"),
		   *keep = json_text(description, "truncate");
	char *name = make_name(source->entry.prefix, own ? own : "");
	cJSON *schema = NULL;

	if (!tool || !name)
		buffer_append_string(reason, "there is not enough memory");
	else if (!is_good_name(name))
		buffer_append_string(
			reason, "a name is a letter and up to 39 more of a-z, 0-9 and _");
	else
		schema = schema_of(description, reason);
	if (!schema) {
		free(tool);
		free(name);
		return NULL;
	}
	tool->tool = (struct tool){
		.name = name,
		.label = text_or(description, "label", own),
		.description = text_or(description, "description", "A custom tool."),
		.input_schema = cJSON_PrintUnformatted(schema),
		.parsed_schema = schema,
		.data_schema = data_schema,
		.level = level_of(settings, name),
		.hints = TOOL_IS_DESTRUCTIVE | TOOL_IS_OPEN_WORLD,
		.permission = ask_permission,
		.execute = source->entry.is_mcp ? custom_mcp_execute
			   : source->has_lines  ? custom_lines_execute
						: custom_toolbox_execute,
	};
	tool->source = source;
	tool->own_name = strdup(own);
	tool->keep_tail = keep && strcmp(keep, "tail") == 0;
	tool->renders = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(description, "renders"));
	tool->timeout_s = timeout_of(&source->entry, description);
	return tool;
}

/* ---- Describing, several at a time ----------------------------------------------------------- */

struct work {
	const struct tool_session *session;
	struct custom_source *sources;
	cJSON **descriptions;
	size_t count;
	atomic_size_t next;
};

static void check_trust(struct custom_entry *entry)
{
	switch (custom_trusted(entry->place)) {
	case CUSTOM_TRUSTED:
		return;
	case CUSTOM_NEW:
		custom_problem(entry, "the project brings it, and it is not trusted: look at it, "
				      "then run isthmus tool trust");
		return;
	case CUSTOM_CHANGED:
		entry->changed = true;
		custom_problem(entry, "it, or a file beside it, has changed since it was trusted: "
				      "look at the change, then run isthmus tool trust");
		return;
	case CUSTOM_UNREADABLE:
		custom_problem(entry, "not all files beside it can be read, or they are more than "
				      "10,000 or 256 MiB, so it cannot be trusted");
	}
}

static void describe_some(void *user)
{
	struct work *work = user;
	size_t at;

	while ((at = atomic_fetch_add(&work->next, 1)) < work->count) {
		struct custom_entry *entry = &work->sources[at].entry;

		if (!entry->problem && entry->place)
			check_trust(entry);
		if (!entry->problem)
			work->descriptions[at] = custom_describe(work->session, entry);
	}
}

static void describe_all(struct work *work)
{
	struct worker_pool pool;

	worker_pool_init(
		&pool, &(struct worker_limits){.name = "describe", .threads_max = THREADS});
	for (size_t i = 1; i < work->count && i <= THREADS; i++)
		worker_pool_submit(&pool, describe_some, work);
	describe_some(work);
	worker_pool_done(&pool);
}

/* ---- Findings
 * ------------------------------------------------------------------------------------ */

static struct custom_finding *add(struct custom_findings *findings, enum custom_state state,
	const struct custom_entry *entry, const char *name, char *reason)
{
	struct custom_finding *finding;

	if (findings->count == FINDINGS_MAX) {
		free(reason);
		return NULL;
	}
	finding = &findings->list[findings->count++];
	*finding = (struct custom_finding){
		.state = state, .entry = entry, .name = name, .reason = reason};
	return finding;
}

static void shadow_earlier(struct custom_findings *findings, const struct custom_tool *tool)
{
	for (size_t i = 0; i < findings->count; i++) {
		struct custom_finding *earlier = &findings->list[i];

		if (earlier->state != CUSTOM_READY || strcmp(earlier->name, tool->tool.name) != 0)
			continue;
		earlier->state = CUSTOM_SHADOWED;
		earlier->reason = string_printf(
			"\"%s\" has a tool of the same name", tool->source->entry.path);
		log_warning(
			"Tool name \"%s\" conflicts with existing tool: \"%s\" wins over \"%s\"",
			tool->tool.name, tool->source->entry.path, earlier->entry->path);
	}
}

static void take_tool(struct custom_findings *findings, struct custom_source *source,
	const cJSON *description, const cJSON *settings)
{
	struct buffer reason cleanup_buffer = {0};
	const char *own = json_text(description, "name");
	struct custom_tool *tool = make_tool(source, description, settings, &reason);
	const struct custom_entry *entry = &source->entry;
	struct custom_finding *finding;

	if (!tool) {
		add(findings, CUSTOM_REFUSED, entry, own ? strdup(own) : path_name(entry->path),
			buffer_steal_string(&reason));
	} else if (is_reserved(tool->tool.name)) {
		add(findings, CUSTOM_REFUSED, entry, tool->tool.name,
			string_printf("Tool name \"%s\" is reserved", tool->tool.name));
		log_warning("Tool name \"%s\" is reserved, ignoring the one in \"%s\"",
			tool->tool.name, entry->path);
	} else {
		shadow_earlier(findings, tool);
		finding = add(findings, CUSTOM_READY, entry, tool->tool.name, NULL);
		if (finding)
			finding->tool = tool;
	}
}

static void take_source(struct custom_findings *findings, struct custom_source *source,
	const cJSON *description, const cJSON *settings)
{
	const char *protocol = json_text(description, "protocol");
	const char *lifetime = json_text(description, "lifetime");
	const char *exec = json_text(settings, "exec");
	const cJSON *tool;

	source->has_lines = protocol && strcmp(protocol, "isthmus-tool/1") == 0;
	source->lives = source->has_lines && lifetime && strcmp(lifetime, "session") == 0;
	source->channels =
		cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(description, "subscribe"), true);
	source->execs_here = exec && strcmp(exec, "here") == 0;
	source->stamp = custom_stamp(&source->entry);
	source->text_form = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(description, "text"));
	if (protocol && !source->has_lines && !source->entry.is_mcp &&
		strcmp(protocol, "toolbox") != 0)
		custom_problem(&source->entry,
			"it speaks the protocol \"%s\", which is not known here", protocol);
	if (source->entry.problem) {
		add(findings, CUSTOM_UNAVAILABLE, &source->entry, path_name(source->entry.path),
			strdup(source->entry.problem));
		return;
	}
	cJSON_ArrayForEach(tool, cJSON_GetObjectItemCaseSensitive(description, "tools")) {
		take_tool(findings, source, tool, settings);
	}
}

int custom_look(const struct custom_options *options, struct custom_findings *ret_findings)
{
	struct tool_session session;
	struct custom_entries entries = {0};
	struct work work = {.session = &session};
	cJSON *settings = custom_settings();
	int r = tool_session_open(options->root, &session);

	if (r == 0) {
		r = custom_find(options, &session, settings, &entries);
		*ret_findings = (struct custom_findings){
			.list = calloc(FINDINGS_MAX, sizeof(*ret_findings->list)),
			.sources = calloc(entries.count + 1, sizeof(*ret_findings->sources)),
			.source_count = entries.count};
		work.sources = ret_findings->sources;
		work.descriptions = calloc(entries.count + 1, sizeof(*work.descriptions));
		if (!ret_findings->list || !work.sources || !work.descriptions)
			r = -ENOMEM;
		work.count = r == 0 ? entries.count : 0;
		for (size_t i = 0; i < work.count; i++)
			work.sources[i].entry = entries.list[i];
		entries.count = 0; /* the sources own them now */
		custom_entries_done(&entries);
		describe_all(&work);
		for (size_t i = 0; i < work.count; i++) {
			take_source(ret_findings, &work.sources[i], work.descriptions[i], settings);
			cJSON_Delete(work.descriptions[i]);
		}
		free(work.descriptions);
		tool_session_close(&session);
	}
	cJSON_Delete(settings);
	return r;
}

/* ---- The registry
 * -------------------------------------------------------------------------------- */

/* The former tool of an entry that was changed since it was trusted.  It stays in the list, as
 * agents know it; a call then asks whether to trust it. */
static const struct custom_tool *known_tool(
	const struct custom_findings *before, const struct custom_entry *entry, size_t nth)
{
	for (size_t i = 0; before && entry->changed && i < before->count; i++)
		if (before->list[i].tool && before->list[i].state == CUSTOM_READY &&
			strcmp(before->list[i].entry->path, entry->path) == 0 && nth-- == 0)
			return before->list[i].tool;
	return NULL;
}

static size_t take_ready(const struct custom_findings *findings,
	const struct custom_findings *before, const struct tool **ready)
{
	const struct custom_tool *kept;
	size_t count = 0;

	for (size_t i = 0; i < findings->count; i++) {
		const struct custom_finding *finding = &findings->list[i];

		if (finding->state == CUSTOM_READY && count < REGISTRY_FOUND_MAX)
			ready[count++] = &finding->tool->tool;
		for (size_t nth = 0; count < REGISTRY_FOUND_MAX &&
				     (kept = known_tool(before, finding->entry, nth));
			nth++)
			ready[count++] = &kept->tool;
	}
	return count;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct custom_findings *last; /* guarded by lock */

/* Searches and registers the tools.  Former findings are never freed, as calls may use them. */
static void look(const struct custom_options *options)
{
	struct custom_findings *findings = calloc(1, sizeof(*findings));
	const struct tool *ready[REGISTRY_FOUND_MAX];

	pthread_mutex_lock(&lock);
	if (findings && custom_look(options, findings) == 0) {
		registry_set_found(ready, take_ready(findings, last, ready));
		custom_hosts_know(findings->sources, findings->source_count);
		last = findings;
	} else {
		free(findings);
	}
	pthread_mutex_unlock(&lock);
}

static void look_again(const struct custom_options *options)
{
	look(options);
	options->changed();
}

static void load(void *user)
{
	const struct custom_options *options = user;

	/* Watch before the search, so that no change is missed. */
	if (options->changed)
		custom_watch(options, look_again);
	look(options);
}

bool custom_explain_missing(const char *name, struct buffer *reasons)
{
	size_t before = reasons->size, length = strlen(name);

	pthread_mutex_lock(&lock);
	for (size_t i = 0; last && i < last->count; i++) {
		const struct custom_finding *finding = &last->list[i];
		const char *file = path_name(finding->entry->path);

		if (!finding->reason || finding->state == CUSTOM_SHADOWED)
			continue;
		/* What the user has named, and what has the name of the tool. */
		if (strcmp(finding->entry->origin, "--tool") == 0 ||
			strcmp(finding->name, name) == 0 ||
			(strncmp(file, name, length) == 0 && strchr(".", file[length])))
			buffer_printf(reasons, "%s\"%s\" cannot be used: %s",
				reasons->size > before ? "; " : "", finding->entry->path,
				finding->reason);
	}
	pthread_mutex_unlock(&lock);
	return reasons->size > before;
}

void custom_end(void)
{
	custom_hosts_stop();
	custom_bus_end();
}

void custom_use(const struct custom_options *options)
{
	/* "tools" of the settings file are guarded when its rules are read. */
	for (size_t i = 0; i < options->path_count; i++)
		guard_add(options->paths[i]);
	custom_session_begin(options->session);
	registry_set_loader(load, (void *)options);
}
