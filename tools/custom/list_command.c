/* isthmus tool list (or --list) and isthmus tool trust. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/visible.h"
#include "tools/base/registry.h"
#include "tools/custom/internal.h"

static const char *const state_names[] = {[CUSTOM_READY] = "ready",
	[CUSTOM_SHADOWED] = "shadowed",
	[CUSTOM_REFUSED] = "refused",
	[CUSTOM_UNAVAILABLE] = "unavailable"};

static void print_row(const char *name, const char *state, const char *detail)
{
	visible_print_name(stdout, name);
	printf("%*s %-11s ", strlen(name) < 16 ? (int)(16 - strlen(name)) : 0, "", state);
	visible_print(stdout, detail, strlen(detail), VISIBLE_INDENT);
	putchar('\n');
}

static void print_finding(const struct custom_finding *finding)
{
	cleanup_free char *detail =
		string_printf("%s (%s)%s%s", finding->entry->path, finding->entry->origin,
			finding->reason ? ": " : "", finding->reason ? finding->reason : "");

	print_row(finding->name, state_names[finding->state], detail ? detail : "");
}

/* `tool`: NULL if it cannot be used. */
static void add_row(cJSON *list, const char *name, const char *state, const struct tool *tool)
{
	cJSON *item = cJSON_CreateObject();

	cJSON_AddStringToObject(item, "name", name);
	cJSON_AddStringToObject(item, "state", state);
	if (tool) {
		cJSON_AddStringToObject(item, "level", tool_level_name(tool->level));
		cJSON_AddStringToObject(item, "label", tool->label);
		cJSON_AddStringToObject(item, "description", tool->description);
		cJSON_AddItemToObject(item, "input_schema", cJSON_Parse(tool->input_schema));
		if (tool->data_schema)
			cJSON_AddItemToObject(item, "data_schema", cJSON_Parse(tool->data_schema));
	}
	cJSON_AddItemToArray(list, item);
}

static void add_finding(cJSON *list, const struct custom_finding *finding)
{
	cJSON *item;

	add_row(list, finding->name, state_names[finding->state],
		finding->tool ? &finding->tool->tool : NULL);
	item = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
	cJSON_AddStringToObject(item, "path", finding->entry->path);
	cJSON_AddStringToObject(item, "origin", finding->entry->origin);
	if (finding->reason)
		cJSON_AddStringToObject(item, "reason", finding->reason);
}

static const struct tool *built_in_at(size_t index)
{
	const struct tool *tool = registry_at(index);

	return tool && registry_find_built_in(tool->name) == tool ? tool : NULL;
}

static int print_json(cJSON *list)
{
	cleanup_free char *text = cJSON_Print(list);

	cJSON_Delete(list);
	if (!text)
		return 1;
	visible_print(stdout, text, strlen(text), VISIBLE_JSON);
	putchar('\n');
	return fflush(stdout) == 0 ? 0 : 1;
}

static int complain(int error, const char *root)
{
	fprintf(stderr, "isthmus tool: cannot look for tools in ");
	visible_print_name(stderr, root);
	fprintf(stderr, ": %s\n", strerror(-error));
	return 1;
}

int custom_list_command(const struct custom_options *options, bool as_json)
{
	struct custom_findings findings;
	cJSON *list = as_json ? cJSON_CreateArray() : NULL;
	int r = custom_look(options, &findings);

	if (r < 0)
		return complain(r, options->root);
	for (size_t i = 0; built_in_at(i); i++) {
		const struct tool *tool = built_in_at(i);

		if (as_json)
			add_row(list, tool->name, "built-in", tool);
		else
			print_row(tool->name, "built-in", tool->label);
	}
	for (size_t i = 0; i < findings.count; i++) {
		if (as_json)
			add_finding(list, &findings.list[i]);
		else
			print_finding(&findings.list[i]);
	}
	if (as_json)
		return print_json(list);
	return fflush(stdout) == 0 ? 0 : 1;
}

/* ---- Trust ------------------------------------------------------------------------------------
 */

static int trust_place(const char *place)
{
	int r = custom_trust_now(place);

	if (r < 0) {
		fputs("isthmus tool: cannot trust ", stderr);
		visible_print_name(stderr, place);
		fprintf(stderr, ": %s\n",
			r == -EFBIG ? "there are more than 10,000 files or 256 MiB in it"
				    : strerror(-r));
		return 1;
	}
	fputs("trusted as it is now: ", stderr);
	visible_print_name(stderr, place);
	fputc('\n', stderr);
	return 0;
}

static bool agrees(void)
{
	char line[16] = "";

	fputs("These programs run on this machine. Trust them as they are now? [y]es, [n]o: ",
		stderr);
	return fgets(line, sizeof(line), stdin) && (line[0] == 'y' || line[0] == 'Y');
}

static bool is_new_place(const struct custom_entries *entries, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (entries->list[i].place &&
			strcmp(entries->list[i].place, entries->list[index].place) == 0)
			return false;
	return true;
}

/* Shows the project's programs that are new or changed since they were trusted; `all`: all of them.
 * Returns their number. */
static size_t show_entries(const struct custom_entries *entries, bool all, FILE *out)
{
	size_t count = 0;

	for (size_t i = 0; i < entries->count; i++) {
		const struct custom_entry *entry = &entries->list[i];

		if (!entry->place || (!all && custom_trusted(entry->place) == CUSTOM_TRUSTED))
			continue;
		visible_print_name(out, entry->path);
		fputc('\n', out);
		count++;
	}
	fflush(out);
	return count;
}

static int trust_all(const struct custom_entries *entries)
{
	int code = 0;

	for (size_t i = 0; code == 0 && i < entries->count; i++)
		if (entries->list[i].place && is_new_place(entries, i))
			code = trust_place(entries->list[i].place);
	return code;
}

bool custom_trust_ask(const struct custom_options *options)
{
	struct tool_session session;
	struct custom_entries entries;
	bool trusted;

	if (tool_session_open(options->root, &session) < 0)
		return false;
	custom_find(options, &session, NULL, &entries);
	trusted = show_entries(&entries, false, stderr) && agrees() && trust_all(&entries) == 0;
	custom_entries_done(&entries);
	tool_session_close(&session);
	if (trusted)
		custom_use(options);
	return trusted;
}

int custom_trust_command(const struct custom_options *options, bool yes)
{
	struct tool_session session;
	struct custom_entries entries;
	int r = tool_session_open(options->root, &session), code = 0;

	if (r < 0)
		return complain(r, options->root);
	custom_find(options, &session, NULL, &entries);
	if (!show_entries(&entries, true, stdout)) {
		fputs("isthmus tool: this project brings no tools (.agents/tools, "
		      ".isthmus-tools)\n",
			stderr);
		code = 1;
	} else if (!yes && !(isatty(STDIN_FILENO) && agrees())) {
		fputs("isthmus tool: nothing was trusted; look at these files, then say yes, or "
		      "give --yes\n",
			stderr);
		code = 1;
	}
	if (code == 0)
		code = trust_all(&entries);
	custom_entries_done(&entries);
	tool_session_close(&session);
	return code;
}
