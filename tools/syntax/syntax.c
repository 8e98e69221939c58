#include "tools/syntax/syntax.h"

#include <errno.h>
#include <fnmatch.h>
#include <search.h>
#include <string.h>
#include <yaml.h>

#include "ops/support/clock.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "tools/base/limited_child.h"

enum {
	CHECK_MS = 10000,
	CHECK_OUTPUT_BYTES = 4096,
	CHECK_MEMORY_BYTES = 1 << 30,
	YAML_DEPTH_MAX = 900, /* about PyYAML's limit; libyaml's time is quadratic in the depth */
};

/* ---- YAML ------------------------------------------------------------------------ */

/* State of the checks beyond the grammar: those that yaml.safe_load() makes as well. */
struct yaml_state {
	const uint8_t *content;
	size_t left;
	int64_t end_ms;
	void *anchors; /* names of the document's anchors: a tree of tsearch(3) */
	unsigned depth;
};

/* libyaml may need quadratic time: ends the input when the time is up. */
static int read_yaml(void *user, unsigned char *buffer, size_t size, size_t *ret_size)
{
	struct yaml_state *state = user;

	if (clock_now_ms() > state->end_ms)
		return 0;
	*ret_size = size < state->left ? size : state->left;
	if (*ret_size)
		memcpy(buffer, state->content, *ret_size);
	state->content += *ret_size;
	state->left -= *ret_size;
	return 1;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void forget_anchors(struct yaml_state *state)
{
	tdestroy(state->anchors, free);
	state->anchors = NULL;
}

static int add_anchor(struct yaml_state *state, const char *name)
{
	cleanup_free char *copy = strdup(name);
	char **found = copy ? tsearch(copy, &state->anchors, compare_names) : NULL;

	if (!found)
		return -ENOMEM;
	if (*found == copy)
		steal_ptr(&copy);
	return 0;
}

static bool tag_is_known(const char *tag)
{
	static const char prefix[] = "tag:yaml.org,2002:";
	static const char *const names[] = {"null", "bool", "int", "float", "binary", "timestamp",
		"omap", "pairs", "set", "str", "seq", "map"};

	if (!tag || strcmp(tag, "!") == 0)
		return true;
	if (strncmp(tag, prefix, sizeof(prefix) - 1) != 0)
		return false;
	for (size_t i = 0; i < array_size(names); i++)
		if (strcmp(tag + sizeof(prefix) - 1, names[i]) == 0)
			return true;
	return false;
}

static int refuse_yaml(
	const yaml_event_t *event, const char *what, const char *name, struct syntax_error *error)
{
	error->line = event->start_mark.line + 1;
	error->column = event->start_mark.column + 1;
	if (name)
		snprintf(error->message, sizeof(error->message), "%s \"%s\"", what, name);
	else
		snprintf(error->message, sizeof(error->message), "%s", what);
	return -EINVAL;
}

static int check_node(struct yaml_state *state, const yaml_event_t *event, const char *anchor,
	const char *tag, struct syntax_error *error)
{
	if (!tag_is_known(tag))
		return refuse_yaml(event, "no safe loader knows the tag", tag, error);
	if (event->type != YAML_SCALAR_EVENT && ++state->depth > YAML_DEPTH_MAX)
		return refuse_yaml(event, "it is nested too deeply", NULL, error);
	return anchor ? add_anchor(state, anchor) : 0;
}

static int check_event(
	struct yaml_state *state, const yaml_event_t *event, struct syntax_error *error)
{
	const char *name;

	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		forget_anchors(state);
		return 0;
	case YAML_ALIAS_EVENT:
		name = (const char *)event->data.alias.anchor;
		return tfind(name, &state->anchors, compare_names)
			       ? 0
			       : refuse_yaml(
					 event, "there is no anchor before the alias", name, error);
	case YAML_SCALAR_EVENT:
		return check_node(state, event, (const char *)event->data.scalar.anchor,
			(const char *)event->data.scalar.tag, error);
	case YAML_SEQUENCE_START_EVENT:
		return check_node(state, event, (const char *)event->data.sequence_start.anchor,
			(const char *)event->data.sequence_start.tag, error);
	case YAML_MAPPING_START_EVENT:
		return check_node(state, event, (const char *)event->data.mapping_start.anchor,
			(const char *)event->data.mapping_start.tag, error);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		state->depth--;
		return 0;
	default:
		return 0;
	}
}

int syntax_yaml(const void *content, size_t size, struct syntax_error *error)
{
	struct yaml_state state = {
		.content = content, .left = size, .end_ms = clock_now_ms() + CHECK_MS};
	yaml_parser_t parser;
	yaml_event_t event;
	int r = 0;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input(&parser, read_yaml, &state);
	for (bool end = false; !end && r == 0;) {
		if (yaml_parser_parse(&parser, &event)) {
			end = event.type == YAML_STREAM_END_EVENT;
			r = check_event(&state, &event, error);
			yaml_event_delete(&event);
			continue;
		}
		r = parser.error == YAML_MEMORY_ERROR ? -ENOMEM : -EINVAL;
		if (clock_now_ms() > state.end_ms)
			r = -ETIMEDOUT;
		error->line = parser.problem_mark.line + 1;
		error->column = parser.problem_mark.column + 1;
		snprintf(error->message, sizeof(error->message), "%s%s%s",
			parser.problem ? parser.problem : "it cannot be parsed",
			parser.context ? ", " : "", parser.context ? parser.context : "");
	}
	yaml_parser_delete(&parser);
	forget_anchors(&state);
	return r;
}

/* ---- Checkers that are programs ------------------------------------------------------- */

/* Runs a checker with the content as its input.  Returns its exit code, or -errno: it is not
 * installed or did not finish. */
static int run_checker(
	const char *const *argv, const void *content, size_t size, char output[CHECK_OUTPUT_BYTES])
{
	const struct limited_child child = {
		.argv = argv,
		.content = content,
		.size = size,
		.memory_bytes = CHECK_MEMORY_BYTES,
		.cpu_s = 10,
		.timeout_ms = CHECK_MS,
		.output_max_bytes = CHECK_OUTPUT_BYTES - 1,
		.cancel_fd = -1,
	};
	struct buffer printed cleanup_buffer = {0};
	int r = limited_child_run(&child, &printed);

	if (printed.size)
		memcpy(output, printed.data, printed.size);
	output[printed.size] = '\0';
	return r;
}

/* Parses "LINE:COLUMN:message", the output of the scripts below. */
static int take_report(const char *output, struct syntax_error *error)
{
	int used = 0;

	if (sscanf(output, "%zu:%zu:%n", &error->line, &error->column, &used) < 2 || !used)
		return -ENOENT;
	snprintf(error->message, sizeof(error->message), "%.*s", (int)strcspn(output + used, "\n"),
		output + used);
	if (error->line == 0)
		error->line = 1;
	return -EINVAL;
}

static int run_python(
	const char *script, const void *content, size_t size, struct syntax_error *error)
{
	const char *const argv[] = {"env", "python3", "-I", "-S", "-c", script, NULL};
	char output[CHECK_OUTPUT_BYTES];
	int code = run_checker(argv, content, size, output);

	if (code <= 0)
		return code;
	return code == 9 ? take_report(output, error) : -ENOENT;
}

/* As all checks that run a program: -ENOENT if it is not installed. */
static int check_python(const void *content, size_t size, struct syntax_error *error)
{
	static const char script[] =
		"import ast,sys,warnings\n"
		"warnings.simplefilter('ignore')\n"
		"try:\n"
		"  ast.parse(sys.stdin.buffer.read())\n"
		"except SyntaxError as e:\n"
		"  print('%d:%d:%s' % (e.lineno or 1, e.offset or 1, e.msg)); sys.exit(9)\n"
		"except ValueError as e:\n"
		"  print('1:1:%s' % e); sys.exit(9)\n";

	return run_python(script, content, size, error);
}

static int check_toml(const void *content, size_t size, struct syntax_error *error)
{
	static const char script[] =
		"import sys,tomllib,re\n"
		"try:\n"
		"  tomllib.loads(sys.stdin.buffer.read().decode())\n"
		"except UnicodeDecodeError as e:\n"
		"  print('%d:1:it is not UTF-8' % (e.object[:e.start].count(b'\\n') + 1)); "
		"sys.exit(9)\n"
		"except tomllib.TOMLDecodeError as e:\n"
		"  m = re.search(r'\\(at line (\\d+), column (\\d+)\\)', str(e))\n"
		"  print('%s:%s:%s' % (m[1] if m else 1, m[2] if m else 1, e)); sys.exit(9)\n";

	return run_python(script, content, size, error);
}

static int check_shell(const void *content, size_t size, struct syntax_error *error)
{
	static const char *const argv[] = {"env", "bash", "-n", NULL};
	char output[CHECK_OUTPUT_BYTES];
	int code = run_checker(argv, content, size, output), used = 0;

	if (code <= 0)
		return code;
	if (sscanf(output, "bash: line %zu: %n", &error->line, &used) < 1 || !used)
		return -ENOENT;
	snprintf(error->message, sizeof(error->message), "%.*s", (int)strcspn(output + used, "\n"),
		output + used);
	return -EINVAL;
}

/* ---- The checker of a path ----------------------------------------------------------------- */

static int strict_json(const void *content, size_t size, struct syntax_error *error)
{
	return syntax_json(content, size, 0, error);
}

static int json_with_comments(const void *content, size_t size, struct syntax_error *error)
{
	return syntax_json(content, size, SYNTAX_JSON_COMMENTS, error);
}

static const struct {
	const char *pattern; /* matches the path; without a slash, the name */
	const char *language;
	int (*check)(const void *content, size_t size, struct syntax_error *error);
} checkers[] = {
	{"*.jsonc", "JSON with comments", json_with_comments},
	{"tsconfig*.json", "JSON with comments", json_with_comments},
	{"*.vscode/*.json", "JSON with comments", json_with_comments},
	{"*.json", "JSON", strict_json},
	{"*.yaml", "YAML", syntax_yaml},
	{"*.yml", "YAML", syntax_yaml},
	{"*.py", "Python", check_python},
	{"*.toml", "TOML", check_toml},
	{"*.sh", "shell", check_shell},
};

static int report(struct tool_call *call, const char *path, const char *language,
	const struct syntax_error *error)
{
	char column[32] = "";

	if (error->column)
		snprintf(column, sizeof(column), ", column %zu", error->column);
	cJSON_AddNumberToObject(call->data, "line", (double)error->line);
	if (error->column)
		cJSON_AddNumberToObject(call->data, "column", (double)error->column);
	return tool_fail(call, TOOL_SYNTAX_ERROR, NULL,
		"The new content of \"%s\" is not valid %s: line %zu%s: %s.", path, language,
		error->line, column, error->message);
}

int syntax_check(struct tool_call *call, const char *path, const void *content, size_t size)
{
	for (size_t i = 0; i < array_size(checkers); i++) {
		const char *pattern = checkers[i].pattern;
		struct syntax_error error = {0};
		int r;

		if (fnmatch(pattern, strchr(pattern, '/') ? path : path_name(path), FNM_CASEFOLD) !=
			0)
			continue;
		r = checkers[i].check(content, size, &error);
		if (r == -EINVAL)
			return report(call, path, checkers[i].language, &error);
		if (r < 0 && !json_member(call->data, "syntax_warning")) {
			char warning[160];

			snprintf(warning, sizeof(warning),
				"The %s syntax was not checked: its checker is not installed or "
				"gave no answer.",
				checkers[i].language);
			cJSON_AddStringToObject(call->data, "syntax_warning", warning);
		}
		return 0;
	}
	return 0;
}
