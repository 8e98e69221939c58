#include "fs/run/wrapper.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

void shell_plan_done(struct shell_plan *plan)
{
	free(plan->script);
	free(plan->report_file);
	*plan = (struct shell_plan){0};
}

/* ---- argv ------------------------------------------------------------------------------ */

/* The index of the text after -c, however that is written (-c, -lc, -l -c, -c -l); 0: there is
 * none, as bash is to run a file, to read its standard input, or to talk to a person. */
static int find_script(char *const argv[])
{
	bool runs_text = false;
	int i = argv[0] ? 1 : 0;

	for (; argv[i] && (argv[i][0] == '-' || argv[i][0] == '+') && argv[i][1]; i++) {
		if (strcmp(argv[i], "--") == 0)
			return runs_text && argv[i + 1] ? i + 1 : 0;
		if (argv[i][1] == '-')
			continue;
		runs_text = runs_text || (argv[i][0] == '-' && strchr(argv[i], 'c'));
		/* Their value is a word of its own. */
		if (strchr(argv[i], 'o') || strchr(argv[i], 'O'))
			i += argv[i + 1] != NULL;
	}
	return runs_text && argv[i] ? i : 0;
}

/* ---- Claude Code ------------------------------------------------------------------------- */

/* "source SNAPSHOT ... && eval 'COMMAND' < /dev/null && pwd -P >| FILE" */
static const char claude_command[] = " && eval ";
static const char claude_end[] = " && pwd -P >| ";

static char *find_last(char *text, const char *wanted)
{
	char *found = NULL;

	for (char *at = strstr(text, wanted); at; at = strstr(at + 1, wanted))
		found = at;
	return found;
}

/* A word of a shell that is plain, or in single quotes without any inside.  NULL: another one. */
static char *plain_word(const char *text)
{
	size_t length = strlen(text);
	bool quoted = length >= 2 && text[0] == '\'' && text[length - 1] == '\'';

	if (quoted) {
		text++;
		length -= 2;
	}
	if (length == 0 || memchr(text, '\'', length) || memchr(text, '\n', length) ||
		(!quoted && strcspn(text, " \t\"$`;&|<>()\\") != length))
		return NULL;
	return strndup(text, length);
}

static int plan_claude(
	const char *script, const struct report_marks *marks, struct shell_plan *plan)
{
	cleanup_free char *text = strdup(script);
	char *command = text ? strstr(text, claude_command) : NULL;
	char *end = command ? find_last(command + 1, claude_end) : NULL;

	if (!text)
		return -ENOMEM;
	plan->report_file = end ? plain_word(end + strlen(claude_end)) : NULL;
	if (!plan->report_file) {
		plan->where = SHELL_REFUSED;
		return 0;
	}
	*end = '\0';
	plan->report_needs_success = true;
	plan->script = string_printf("%s && printf '%%s%%s%%s' %s \"$(pwd -P)\" %s",
		command + strlen(" && "), marks->begin, marks->end);
	return plan->script ? 0 : -ENOMEM;
}

/* ---- Gemini CLI ------------------------------------------------------------------------- */

/*
 *     shopt -u ...; _bgpids_file=FILE
 *     (
 *       trap 'jobs -p > "$_bgpids_file"' EXIT
 *     COMMAND
 *     )
 *     __code=$?
 *     exit $__code
 */
static const char gemini_file[] = "_bgpids_file=";
static const char gemini_trap[] = "\n(\n  trap 'jobs -p > \"$_bgpids_file\"' EXIT\n";
static const char gemini_end[] = "\n)\n__code=$?\nexit $__code";

/* Descriptor 9 is the standard output of before the command changed it. */
static int plan_gemini(
	const char *script, const struct report_marks *marks, struct shell_plan *plan)
{
	cleanup_free char *text = strdup(script);
	char *file = text ? strstr(text, gemini_file) : NULL;
	char *trap = file ? strstr(file, gemini_trap) : NULL;
	char *end = trap ? find_last(trap, gemini_end) : NULL;

	if (!text)
		return -ENOMEM;
	if (trap)
		*trap = '\0';
	plan->report_file = end ? plain_word(file + strlen(gemini_file)) : NULL;
	if (!plan->report_file || end[strlen(gemini_end)]) {
		plan->where = SHELL_REFUSED;
		return 0;
	}
	*file = '\0';
	plan->script = string_printf(
		"%s\nexec 9>&1\n(\n  trap 'printf \"%%s%%s%%s\" %s \"$(jobs -p)\" %s >&9' EXIT\n%s",
		text, marks->begin, marks->end, trap + strlen(gemini_trap));
	return plan->script ? 0 : -ENOMEM;
}

/* ---- Which form ------------------------------------------------------------------------- */

static bool begins(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What an agent asks of the user's shell, not of the workspace. */
static bool is_about_here(enum agent_kind agent, const char *script)
{
	switch (agent) {
	case AGENT_CLAUDE:
		return strcmp(script, "env") == 0 || begins(script, "SNAPSHOT_FILE=");
	case AGENT_CODEX:
		/* The wrapper sources a snapshot, and executes the shell with the command alone. */
		return strstr(script, "__CODEX_SNAPSHOT_") || strstr(script, "# Snapshot file") ||
		       (begins(script, "set -e; . ") && strstr(script, "shell_snapshots/"));
	default:
		return false;
	}
}

static bool is_claude_wrapper(const char *script)
{
	return strstr(script, "pwd -P >|") || strstr(script, "/shell-snapshots/");
}

int shell_plan_make(enum agent_kind agent, char *const argv[], const struct report_marks *marks,
	struct shell_plan *ret_plan)
{
	struct shell_plan plan = {.script_index = find_script(argv)};
	const char *script = argv[plan.script_index];
	int r = 0;

	if (plan.script_index == 0 || is_about_here(agent, script)) {
		*ret_plan = plan;
		return 0;
	}
	plan.where = SHELL_THERE;
	if (agent == AGENT_CLAUDE && is_claude_wrapper(script))
		r = plan_claude(script, marks, &plan);
	else if (agent == AGENT_GEMINI && strstr(script, gemini_file))
		r = plan_gemini(script, marks, &plan);
	else if (!(plan.script = strdup(script)))
		r = -ENOMEM;
	if (r < 0)
		shell_plan_done(&plan);
	else
		*ret_plan = plan;
	return r;
}

/* ---- Paths ------------------------------------------------------------------------------- */

static bool is_part_of_name(char byte)
{
	return isalnum((unsigned char)byte) || (byte && strchr("._-+@%~", byte)) ||
	       (unsigned char)byte >= 0x80;
}

char *shell_map_paths(const char *text, const char *from, const char *to)
{
	cleanup_buffer struct buffer out = {0};
	size_t length = strlen(from);
	const char *at = text, *found;

	while ((found = strstr(at, from))) {
		bool is_path =
			(found == text || (!is_part_of_name(found[-1]) && found[-1] != '/')) &&
			!is_part_of_name(found[length]);

		if (buffer_append(&out, at, (size_t)(found - at)) < 0 ||
			buffer_append_string(&out, is_path ? to : from) < 0)
			return NULL;
		at = found + length;
	}
	return buffer_append_string(&out, at) < 0 ? NULL : buffer_steal_string(&out);
}
