/* isthmus tool render: lets a custom tool draw a call that has ended. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/json.h"
#include "ops/support/visible.h"
#include "tools/base/registry.h"
#include "tools/commands.h"
#include "tools/custom/journal.h"
#include "tools/custom/render.h"

enum { START_MS = 30000 }; /* Node.js starts slowly on a busy machine */

struct drawing {
	const cJSON *entry; /* of the journal */
	bool has_call, has_result;
};

static void print_text(const char *text)
{
	if (!text)
		return;
	visible_print(stdout, text, strlen(text), VISIBLE_LINES);
	if (*text && text[strlen(text) - 1] != '\n')
		putchar('\n');
}

static void show_call(struct drawing *drawing, const char *text)
{
	if (text)
		terminal_print_styled(stdout, text);
	else
		print_text(json_text(drawing->entry, "tool"));
	drawing->has_call = true;
}

static void show_result(struct drawing *drawing, const char *text)
{
	const cJSON *block;

	if (text)
		terminal_print_styled(stdout, text);
	else
		cJSON_ArrayForEach(block, json_member(drawing->entry, "content"))
			print_text(json_text(block, "text"));
	drawing->has_result = true;
}

static void draw(void *user, enum tool_phase phase, const char *text)
{
	if (phase == TOOL_PHASE_CALL)
		show_call(user, text);
	else if (phase == TOOL_PHASE_RESULT)
		show_result(user, text);
}

/* The tool that produced the entry; NULL: it no longer exists, or is not trusted. */
static const struct tool *find_tool(const cJSON *entry)
{
	const char *source = json_text(entry, "source"), *name = json_text(entry, "tool");
	const struct tool *tool;

	for (size_t i = 0; source && name && (tool = registry_at(i)); i++) {
		const struct custom_tool *custom = (const struct custom_tool *)tool;

		if (tool->execute == custom_lines_execute && custom->renders &&
			strcmp(custom->own_name, name) == 0 &&
			strcmp(custom->source->entry.path, source) == 0)
			return tool;
	}
	return NULL;
}

/* Lets the tool draw the call and the result, as far as it can. */
static void ask_tool(struct tool_call *call, const struct drawing *drawing)
{
	const struct custom_source *source = custom_tool_of(call)->source;
	struct custom_channel channel = {0};
	struct custom_lines *lines;

	if (custom_lines_start(call->session, source, call, &lines) < 0)
		return;
	custom_channel_open(lines, &channel, call->call_id);
	custom_render_ask(lines, call, TOOL_PHASE_CALL, NULL);
	custom_render_result(lines, &channel, call, drawing->entry, START_MS);
	custom_channel_close(lines, &channel);
	custom_lines_stop(lines, 0);
}

static int draw_entry(struct tool_session *session, const cJSON *entry, bool expanded)
{
	struct drawing drawing = {.entry = entry};
	const struct tool *tool = find_tool(entry);
	struct tool_call *call = tool ? tool_call_new(session, tool,
						cJSON_Duplicate(json_member(entry, "args"), true),
						json_text(entry, "call"))
				      : NULL;

	if (call) {
		call->sink = (struct tool_sink){.drawn = draw,
			.width = terminal_width(),
			.expanded = expanded,
			.user = &drawing};
		ask_tool(call, &drawing);
		tool_call_free(call);
	}
	if (!drawing.has_call)
		show_call(&drawing, NULL);
	if (!drawing.has_result)
		show_result(&drawing, NULL);
	return fflush(stdout) == 0 ? 0 : 1;
}

/* The root of the call, if it still exists, as a project may have its own tools. */
static const char *root_of(const cJSON *entry)
{
	const char *root = json_text(entry, "root");

	return root && access(root, F_OK) == 0 ? root : ".";
}

int render_command(struct custom_options *options, const char *call_id, bool expanded)
{
	cJSON *entry = custom_journal_find(call_id);
	struct tool_session session;
	int code = 1;

	if (!entry) {
		fputs("isthmus tool: no result of a custom tool is kept of the call \"", stderr);
		visible_print_name(stderr, call_id);
		fputs("\": those of a conversation that has a name (--conversation) are, for 30 "
		      "days\n",
			stderr);
		return 1;
	}
	if (!options->root)
		options->root = root_of(entry);
	custom_use(options);
	if (open_session(options->root, NULL, false, &session) == 0) {
		code = draw_entry(&session, entry, expanded);
		custom_end();
		close_session(&session);
	}
	cJSON_Delete(entry);
	return code;
}
