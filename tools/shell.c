#include "tools/shell.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/path.h"
#include "tools/permission.h"
#include "tools/shell_words.h"

#ifdef HAVE_TREE_SITTER_BASH
#include <tree_sitter/api.h>

enum { NESTING_MAX = 8, DEPTH_MAX = 200, LINE_MAX_BYTES = 100000 };

const TSLanguage *tree_sitter_bash(void);

struct analyser {
	struct shell_analysis *result;
	const char *root;
	const char *directory;
	int nesting;    /* of command lines in command lines */
	bool moves;     /* it changes the directory on its way */
	bool evaluates; /* bash takes the value of a variable as an expression ... */
	bool hides;     /* ... and there may be a command in one: x='a[$(rm y)]'; echo $((x)) */
	bool no_memory;
};

struct parse {
	struct analyser *analyser;
	const char *line;
};

bool shell_can_parse(void)
{
	return true;
}

static void not_understood(struct analyser *a, const char *reason)
{
	if (a->result->understood)
		a->result->reason = reason;
	a->result->understood = false;
}

/* ---- Words ------------------------------------------------------------------------- */

static const char *node_text(const struct parse *p, TSNode node, size_t *ret_size)
{
	uint32_t start = ts_node_start_byte(node);

	*ret_size = ts_node_end_byte(node) - start;
	return p->line + start;
}

static bool is_type(TSNode node, const char *type)
{
	return strcmp(ts_node_type(node), type) == 0;
}

/* A plain word: backslashes quote, an unquoted brace list stands for several words. */
static bool append_word(const char *text, size_t size, struct buffer *out)
{
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\\' && i + 1 < size) {
			if (text[++i] != '\n')
				buffer_append(out, &text[i], 1);
			continue;
		}
		if (text[i] == '{' || text[i] == '}')
			return false;
		buffer_append(out, &text[i], 1);
	}
	return true;
}

static bool append_string(const char *text, size_t size, struct buffer *out)
{
	for (size_t i = 1; i + 1 < size; i++) {
		if (text[i] == '\\' && i + 2 < size && strchr("\"\\$`\n", text[i + 1])) {
			if (text[++i] != '\n')
				buffer_append(out, &text[i], 1);
			continue;
		}
		buffer_append(out, &text[i], 1);
	}
	return true;
}

/* Appends what the word stands for; false when that is not known before it runs. */
static bool append_literal(const struct parse *p, TSNode node, struct buffer *out)
{
	size_t size;
	const char *text = node_text(p, node, &size);
	uint32_t count = ts_node_named_child_count(node);

	if (is_type(node, "word") || is_type(node, "number"))
		return count == 0 && append_word(text, size, out);
	if (is_type(node, "raw_string"))
		return size >= 2 && buffer_append(out, text + 1, size - 2) == 0;
	if (is_type(node, "command_name"))
		return count == 1 && append_literal(p, ts_node_named_child(node, 0), out);
	if (is_type(node, "string")) {
		for (uint32_t i = 0; i < count; i++)
			if (!is_type(ts_node_named_child(node, i), "string_content"))
				return false;
		return size >= 2 && append_string(text, size, out);
	}
	if (is_type(node, "concatenation")) {
		/* Brackets of a pattern are children without a name: take the text between. */
		uint32_t at = ts_node_start_byte(node);

		for (uint32_t i = 0; i < ts_node_child_count(node); i++) {
			TSNode child = ts_node_child(node, i);

			if (ts_node_start_byte(child) != at)
				return false;
			at = ts_node_end_byte(child);
			if (ts_node_is_named(child)
					? !append_literal(p, child, out)
					: !append_word(p->line + ts_node_start_byte(child),
						  at - ts_node_start_byte(child), out))
				return false;
		}
		return at == ts_node_end_byte(node);
	}
	return false;
}

/* ---- Results ------------------------------------------------------------------------- */

static void add_outside(struct analyser *a, const char *path)
{
	struct shell_analysis *result = a->result;
	char **grown;

	if (result->outside_count >= SHELL_COMMANDS_MAX) {
		not_understood(a, "it names too many paths");
		return;
	}
	for (size_t i = 0; i < result->outside_count; i++)
		if (strcmp(result->outside[i], path) == 0)
			return;
	grown = reallocarray(result->outside, result->outside_count + 1, sizeof(*grown));
	if (!grown) {
		a->no_memory = true;
		return;
	}
	result->outside = grown;
	grown[result->outside_count] = strdup(path);
	a->no_memory = a->no_memory || !grown[result->outside_count];
	result->outside_count += grown[result->outside_count] != NULL;
}

static void check_path(struct analyser *a, const char *word)
{
	const char *path = shell_path_in_word(word);

	if (path && shell_path_is_outside(path, a->root, a->directory))
		add_outside(a, path);
}

static void add_command(struct analyser *a, const struct shell_words *words, bool unknown)
{
	struct shell_analysis *result = a->result;
	struct shell_command *grown, command = {.unknown = unknown};

	if (result->count >= SHELL_COMMANDS_MAX) {
		not_understood(a, "it runs too many commands");
		return;
	}
	grown = reallocarray(result->commands, result->count + 1, sizeof(*grown));
	if (!grown) {
		a->no_memory = true;
		return;
	}
	result->commands = grown;
	command.text = shell_words_join(words, words->count);
	command.plain = shell_words_plain(words);
	command.remember = shell_words_join(words, shell_words_prefix(words));
	command.open_ended = words->open_ended;
	if (!command.text || !command.plain || !command.remember) {
		free(command.text);
		free(command.plain);
		free(command.remember);
		a->no_memory = true;
		return;
	}
	grown[result->count++] = command;
}

static void analyse_line(struct analyser *a, const char *line);

static void take_words(struct analyser *a, const struct shell_words *words)
{
	struct shell_inner inner = {0};
	struct shell_words rest;
	bool open_ended;

	if (words->count == 0) {
		if (!a->result->reason)
			a->result->reason =
				"the name of a command in it is not known before it runs";
		add_command(a, words, true);
		return;
	}
	for (size_t i = 1; i < words->count; i++)
		check_path(a, words->list[i]);
	if (shell_words_go_home(words))
		add_outside(a, "~");
	a->moves = a->moves || shell_words_move(words);
	a->evaluates = a->evaluates || shell_words_evaluate(words);
	a->hides = a->hides || shell_words_take_input(words);
	shell_words_look_inside(words, &inner);
	if (inner.reason && !a->result->reason)
		a->result->reason = inner.reason;
	open_ended = words->open_ended && !shell_words_only_print(words);
	if (open_ended && !a->result->reason)
		a->result->reason = "not all words in it are known before it runs";
	if (!inner.transparent || inner.unknown)
		add_command(a, words, inner.unknown || open_ended);
	if (a->nesting >= NESTING_MAX && (inner.line || inner.has_command)) {
		not_understood(a, "it is nested too deeply");
		return;
	}
	a->nesting++;
	if (inner.line)
		analyse_line(a, inner.line);
	if (inner.has_command) {
		rest = (struct shell_words){.list = words->list + inner.from,
			.count = inner.to - inner.from,
			.open_ended = inner.open_ended};
		take_words(a, &rest);
	}
	a->nesting--;
	free(inner.line);
}

/* ---- The tree --------------------------------------------------------------------------- */

static void walk(const struct parse *p, TSNode node, int depth);

static void walk_children(const struct parse *p, TSNode node, int depth)
{
	uint32_t count = ts_node_named_child_count(node);

	for (uint32_t i = 0; i < count; i++)
		walk(p, ts_node_named_child(node, i), depth + 1);
}

static void take_command(const struct parse *p, TSNode node)
{
	struct shell_words words = {0};
	uint32_t count = ts_node_child_count(node);

	for (uint32_t i = 0; i < count; i++) {
		TSNode child = ts_node_child(node, i);
		struct buffer word cleanup_buffer = {0};
		size_t size;
		const char *text = node_text(p, child, &size);
		bool known;

		if (is_type(child, "file_redirect") || is_type(child, "herestring_redirect") ||
			is_type(child, "comment"))
			continue;
		/* X=1 in front belongs to the command: it can change what that does. */
		if (is_type(child, "variable_assignment")) {
			known = ts_node_named_child_count(child) < 2 ||
				append_literal(p, ts_node_named_child(child, 1), &word);
			word.size = 0;
			known = known && buffer_append(&word, text, size) == 0;
		} else if (ts_node_is_named(child)) {
			known = append_literal(p, child, &word);
		} else {
			known = append_word(text, size, &word);
		}
		if (!known || words.open_ended || shell_words_add(&words, &word) < 0)
			words.open_ended = true;
	}
	take_words(p->analyser, &words);
	shell_words_done(&words);
}

/* export, declare, local, readonly, unset: commands whose words the grammar knows. */
static void take_declaration(const struct parse *p, TSNode node)
{
	struct shell_words words = {0};
	struct buffer word cleanup_buffer = {0};
	size_t size;
	const char *text = node_text(p, node, &size);

	buffer_append(&word, text, strcspn(text, " \t\n;&|"));
	if (word.size > size)
		word.size = size;
	if (shell_words_add(&words, &word) < 0)
		p->analyser->no_memory = true;
	words.open_ended = ts_node_child_count(node) > 1;
	take_words(p->analyser, &words);
	shell_words_done(&words);
}

static void take_redirect(const struct parse *p, TSNode node)
{
	uint32_t count = ts_node_named_child_count(node);
	size_t size;
	const char *text = node_text(p, node, &size);
	bool writes = memchr(text, '>', size);

	for (uint32_t i = 0; i < count; i++) {
		TSNode child = ts_node_named_child(node, i);
		struct buffer word cleanup_buffer = {0};

		if (is_type(child, "file_descriptor") || is_type(child, "process_substitution"))
			continue;
		if (append_literal(p, child, &word) && buffer_append(&word, "", 1) == 0) {
			check_path(p->analyser, (const char *)word.data);
			if (writes && permission_guards((const char *)word.data))
				not_understood(p->analyser,
					"it changes what git runs, or the rules of this project");
		} else {
			not_understood(p->analyser,
				"the file that it writes or reads is not known before it runs");
		}
	}
}

/* The grammar does not look for `commands` in a here-document. */
static void check_heredoc(const struct parse *p, TSNode node)
{
	size_t size;
	const char *text = node_text(p, node, &size);
	size_t first_line = strcspn(text, "\n");

	if (first_line < size && memchr(text, '`', size) && !memchr(text, '\'', first_line) &&
		!memchr(text, '"', first_line) && !memchr(text, '\\', first_line))
		not_understood(p->analyser, "a here-document in it runs a command");
}

/* A variable that changes what other commands are or do. */
static void take_assignment(const struct parse *p, TSNode node)
{
	size_t size;
	const char *text = node_text(p, node, &size);

	if (shell_variable_is_special(text, strcspn(text, "=+[")))
		not_understood(p->analyser, "it sets a variable that changes how commands run");
}

static bool has_name(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (isalpha((unsigned char)text[i]) || text[i] == '_' || text[i] == '$')
			return true;
	return false;
}

/* ${!x}, ${x@P}, ${x:y}, ${x[y]} */
static bool expansion_evaluates(const char *text, size_t size)
{
	const char *colon = memchr(text, ':', size), *bracket = memchr(text, '[', size);
	const char *end = text + size;

	if (size > 2 && text[2] == '!')
		return true;
	if (memmem(text, size, "@P", 2))
		return true;
	if (colon && colon + 1 < end && !strchr("-=?+", colon[1]) &&
		has_name(colon, (size_t)(end - colon)))
		return true;
	return bracket && has_name(bracket, (size_t)(end - bracket));
}

static bool test_evaluates(const char *text, size_t size)
{
	static const char *const operators[] = {
		"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R", "(("};

	for (size_t i = 0; i < array_size(operators); i++)
		if (memmem(text, size, operators[i], strlen(operators[i])))
			return has_name(text, size);
	return false;
}

/* Bash looks at what a variable holds as at an expression, and runs a $( ) in a subscript there. */
static void note_evaluation(const struct parse *p, TSNode node)
{
	size_t size;
	const char *text = node_text(p, node, &size);
	struct analyser *a = p->analyser;

	if (is_type(node, "arithmetic_expansion") || is_type(node, "subscript") ||
		is_type(node, "c_style_for_statement") || (size > 2 && memcmp(text, "((", 2) == 0))
		a->evaluates = a->evaluates || has_name(text, size);
	else if (is_type(node, "expansion"))
		a->evaluates = a->evaluates || expansion_evaluates(text, size);
	else if (is_type(node, "test_command"))
		a->evaluates = a->evaluates || test_evaluates(text, size);
}

/* A "$" that is only a "$" yet, or a "`": what is put together of such may be a command. */
static bool has_quoted_dollar(const char *text, size_t size, bool is_string)
{
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\\' && i + 1 < size) {
			i++;
			if (text[i] == '$' || text[i] == '`')
				return true;
		} else if (text[i] == '$' && i + 1 + is_string >= size) {
			return true;
		} else if (text[i] == '$' && !isalnum((unsigned char)text[i + 1]) &&
			   !strchr("_{([*@#?!-$'\"", text[i + 1])) {
			return true;
		}
	}
	return false;
}

static void note_hiding(const struct parse *p, TSNode node)
{
	size_t size;
	const char *text = node_text(p, node, &size);
	bool hides = is_type(node, "command_substitution") || is_type(node, "ansi_c_string");

	if (is_type(node, "raw_string"))
		hides = memchr(text, '$', size) || memchr(text, '`', size);
	else if (is_type(node, "string"))
		hides = has_quoted_dollar(text, size, true);
	else if (is_type(node, "word") || is_type(node, "brace_expression") ||
		 is_type(node, "concatenation"))
		hides = has_quoted_dollar(text, size, false) ||
			(memmem(text, size, "..", 2) && memchr(text, '{', size) &&
				has_name(text, size)); /* {Z..a} has a "`" */
	p->analyser->hides = p->analyser->hides || hides;
}

/* Arithmetic evaluates text: a quoted $( ) in it runs. */
static void check_arithmetic(const struct parse *p, TSNode node)
{
	size_t size;
	const char *text = node_text(p, node, &size);

	if (memchr(text, '[', size) &&
		(memmem(text, size, "\\$", 2) ||
			(memchr(text, '\'', size) && memchr(text, '$', size))))
		not_understood(p->analyser, "it hides a command in an expression");
}

/* Paths in places that are no arguments: X=/etc/x, for f in /etc/x. */
static void check_word(const struct parse *p, TSNode node)
{
	struct buffer word cleanup_buffer = {0};
	TSNode parent = ts_node_parent(node);

	if ((!ts_node_is_null(parent) && is_type(parent, "command_name")) ||
		!append_literal(p, node, &word) || buffer_append(&word, "", 1) < 0)
		return;
	if (!is_type(node, "command_name"))
		check_path(p->analyser, (const char *)word.data);
}

enum node_use {
	NODE_STRUCTURE, /* look at its children */
	NODE_COMMAND,   /* a simple command; its children may have more */
	NODE_DECLARATION,
	NODE_REDIRECT,
	NODE_ASSIGNMENT,
	NODE_EXPRESSION,
	NODE_HEREDOC,
};

static const struct {
	const char *type;
	enum node_use use;
} node_types[] = {
	{"program", NODE_STRUCTURE},
	{"list", NODE_STRUCTURE},
	{"pipeline", NODE_STRUCTURE},
	{"redirected_statement", NODE_STRUCTURE},
	{"subshell", NODE_STRUCTURE},
	{"compound_statement", NODE_STRUCTURE},
	{"if_statement", NODE_STRUCTURE},
	{"elif_clause", NODE_STRUCTURE},
	{"else_clause", NODE_STRUCTURE},
	{"while_statement", NODE_STRUCTURE},
	{"for_statement", NODE_STRUCTURE},
	{"c_style_for_statement", NODE_EXPRESSION},
	{"do_group", NODE_STRUCTURE},
	{"case_statement", NODE_STRUCTURE},
	{"case_item", NODE_STRUCTURE},
	{"function_definition", NODE_STRUCTURE},
	{"negated_command", NODE_STRUCTURE},
	{"command_substitution", NODE_STRUCTURE},
	{"process_substitution", NODE_STRUCTURE},
	{"command", NODE_COMMAND},
	{"command_name", NODE_STRUCTURE},
	{"declaration_command", NODE_DECLARATION},
	{"unset_command", NODE_DECLARATION},
	{"variable_assignments", NODE_STRUCTURE},
	{"variable_assignment", NODE_ASSIGNMENT},
	{"array", NODE_STRUCTURE},
	{"file_redirect", NODE_REDIRECT},
	{"herestring_redirect", NODE_STRUCTURE},
	{"heredoc_redirect", NODE_HEREDOC},
	{"heredoc_start", NODE_STRUCTURE},
	{"heredoc_body", NODE_STRUCTURE},
	{"heredoc_content", NODE_STRUCTURE},
	{"heredoc_end", NODE_STRUCTURE},
	{"test_command", NODE_EXPRESSION},
	{"arithmetic_expansion", NODE_EXPRESSION},
	{"binary_expression", NODE_STRUCTURE},
	{"unary_expression", NODE_STRUCTURE},
	{"postfix_expression", NODE_STRUCTURE},
	{"ternary_expression", NODE_STRUCTURE},
	{"parenthesized_expression", NODE_STRUCTURE},
	{"test_operator", NODE_STRUCTURE},
	{"regex", NODE_STRUCTURE},
	{"extglob_pattern", NODE_STRUCTURE},
	{"word", NODE_STRUCTURE},
	{"number", NODE_STRUCTURE},
	{"string", NODE_STRUCTURE},
	{"string_content", NODE_STRUCTURE},
	{"raw_string", NODE_STRUCTURE},
	{"ansi_c_string", NODE_STRUCTURE},
	{"translated_string", NODE_STRUCTURE},
	{"concatenation", NODE_STRUCTURE},
	{"brace_expression", NODE_STRUCTURE},
	{"expansion", NODE_EXPRESSION},
	{"simple_expansion", NODE_STRUCTURE},
	{"subscript", NODE_EXPRESSION},
	{"variable_name", NODE_STRUCTURE},
	{"special_variable_name", NODE_STRUCTURE},
	{"file_descriptor", NODE_STRUCTURE},
	{"comment", NODE_STRUCTURE},
};

static void walk(const struct parse *p, TSNode node, int depth)
{
	const char *type = ts_node_type(node);

	if (depth > DEPTH_MAX) {
		not_understood(p->analyser, "it is nested too deeply");
		return;
	}
	check_word(p, node);
	note_evaluation(p, node);
	note_hiding(p, node);
	for (size_t i = 0; i < array_size(node_types); i++) {
		if (strcmp(node_types[i].type, type) != 0)
			continue;
		if (node_types[i].use == NODE_COMMAND)
			take_command(p, node);
		else if (node_types[i].use == NODE_DECLARATION)
			take_declaration(p, node);
		else if (node_types[i].use == NODE_REDIRECT)
			take_redirect(p, node);
		else if (node_types[i].use == NODE_ASSIGNMENT)
			take_assignment(p, node);
		else if (node_types[i].use == NODE_EXPRESSION)
			check_arithmetic(p, node);
		else if (node_types[i].use == NODE_HEREDOC)
			check_heredoc(p, node);
		walk_children(p, node, depth);
		return;
	}
	not_understood(p->analyser, "it has something in it that is not known here");
}

static void analyse_line(struct analyser *a, const char *line)
{
	struct parse p = {.analyser = a, .line = line};
	TSParser *parser = ts_parser_new();
	TSTree *tree = NULL;

	if (strlen(line) > LINE_MAX_BYTES) {
		not_understood(a, "it is too long");
	} else if (ts_parser_set_language(parser, tree_sitter_bash())) {
		ts_parser_set_timeout_micros(parser, 500000);
		tree = ts_parser_parse_string(parser, NULL, line, (uint32_t)strlen(line));
	}
	if (!tree)
		not_understood(a, "it could not be parsed");
	else if (ts_node_has_error(ts_tree_root_node(tree)))
		not_understood(a, "it could not be parsed as a bash command");
	else
		walk(&p, ts_tree_root_node(tree), 0);
	ts_tree_delete(tree);
	ts_parser_delete(parser);
}

int shell_analyse(const char *line, const char *root, const char *directory,
	struct shell_analysis *ret_analysis)
{
	struct shell_analysis result = {.understood = true};
	struct analyser a = {.result = &result, .root = root, .directory = directory};

	analyse_line(&a, line);
	/* After a "cd .." less is below it: then seen from the root, as high as it may get. */
	if (a.moves && *directory && !a.no_memory) {
		shell_analysis_done(&result);
		return shell_analyse(line, root, "", ret_analysis);
	}
	if (a.evaluates && a.hides)
		not_understood(&a, "it computes with a value that may hide a command");
	if (a.no_memory) {
		shell_analysis_done(&result);
		return -ENOMEM;
	}
	*ret_analysis = result;
	return 0;
}

#else

bool shell_can_parse(void)
{
	return false;
}

int shell_analyse(const char *line, const char *root, const char *directory,
	struct shell_analysis *ret_analysis)
{
	(void)line, (void)root, (void)directory;
	*ret_analysis = (struct shell_analysis){
		.reason = "this build has no parser for commands (./dev setup needs npm for it)"};
	return 0;
}

#endif

void shell_analysis_done(struct shell_analysis *analysis)
{
	for (size_t i = 0; i < analysis->count; i++) {
		free(analysis->commands[i].text);
		free(analysis->commands[i].plain);
		free(analysis->commands[i].remember);
	}
	free(analysis->commands);
	for (size_t i = 0; i < analysis->outside_count; i++)
		free(analysis->outside[i]);
	free(analysis->outside);
	*analysis = (struct shell_analysis){0};
}
