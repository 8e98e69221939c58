/* Checks of words that the rows of some programs cannot express. */
#include <ctype.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/path.h"
#include "tools/shell/shell_programs_internal.h"

static const char *const not_known = "what %.40s runs is not known before it runs";

/* The length of NAME if the text is a shell assignment NAME=...; else 0. */
static size_t assignment_length(const char *text)
{
	size_t length = 0;

	while (isalnum((unsigned char)text[length]) || text[length] == '_')
		length++;
	return text[length] == '=' && !isdigit((unsigned char)text[0]) ? length : 0;
}

static bool is_one_of(const char *word, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(word, list[i]) == 0)
			return true;
	return false;
}

#define IS_ONE_OF(word, ...)                                  \
	is_one_of((word), (const char *const[]){__VA_ARGS__}, \
		array_size(((const char *const[]){__VA_ARGS__})))

/* ---- Programs that run others -------------------------------------------------------------- */

void shell_look_command(struct shell_judge *judge)
{
	if (shell_judge_has_option(judge, "v") || shell_judge_has_option(judge, "V"))
		return;
	if (judge->operand_count)
		shell_judge_inner(judge, judge->operands[0], judge->count, NULL, false);
	judge->answer->transparent = judge->answer->inner != NULL;
}

void shell_look_exec(struct shell_judge *judge)
{
	if (!judge->answer->inner)
		shell_judge_ask(judge, "exec changes the files of the shell");
}

void shell_look_env(struct shell_judge *judge)
{
	size_t at = judge->operand_count ? judge->operands[0] : judge->count;

	for (; at < judge->count; at++) {
		const char *text = judge->words[at].text;
		size_t length = assignment_length(text);

		if (strcmp(text, "-") == 0 && judge->words[at].known)
			continue; /* env - is env -i */
		if (length == 0)
			break;
		if (!shell_variable_is_harmless(text, length))
			shell_judge_ask(
				judge, "the variable %.60s can change how commands run", text);
	}
	if (at >= judge->count) {
		judge->not_proved = true; /* prints all variables, which may contain secrets */
		return;
	}
	shell_judge_inner(judge, at, judge->count, NULL, false);
	judge->answer->transparent = true;
}

/* xargs -I{} CMD {}: the words with {} are unknown.  A later -n or -L makes xargs ignore -I and
 * append its words, so with one of them both are assumed. */
void shell_look_xargs(struct shell_judge *judge)
{
	const char *placeholder = NULL;
	bool appends = false;

	for (size_t i = 0; i < judge->option_count; i++) {
		const struct shell_option *option = &judge->options[i];
		bool replaces = (option->length == 1 && strchr("Ii", option->name[0])) ||
				(option->length >= 3 &&
					strncmp(option->name, "replace", option->length) == 0);

		appends = appends || (option->length == 1 && strchr("nLl", option->name[0])) ||
			  strncmp(option->name, "max-args", option->length) == 0 ||
			  strncmp(option->name, "max-lines", option->length) == 0;
		if (replaces)
			placeholder = option->value_word ? judge->words[option->value_word].text +
								   option->value_offset
							 : "{}";
	}
	if (!judge->operand_count)
		return; /* as echo */
	shell_judge_inner(
		judge, judge->operands[0], judge->count, placeholder, appends || !placeholder);
	judge->answer->transparent = judge->answer->inner != NULL;
	judge->answer->repeats = true;
}

/* Joins words with blanks.  NULL: a word is unknown, or no memory. */
static char *join(const struct shell_judge *judge, size_t from, size_t to)
{
	struct buffer text cleanup_buffer = {0};

	for (size_t i = from; i < to; i++) {
		if (!judge->words[i].known || judge->words[i].glob)
			return NULL;
		if (buffer_printf(&text, "%s%s", i > from ? " " : "", judge->words[i].text) < 0)
			return NULL;
	}
	return buffer_steal_string(&text);
}

static void take_line(struct shell_judge *judge, size_t from, size_t to)
{
	judge->answer->prefix = judge->count;
	judge->answer->inner_line = join(judge, from, to);
	if (!judge->answer->inner_line)
		shell_judge_ask(judge, not_known, judge->answer->name);
}

void shell_look_eval(struct shell_judge *judge)
{
	if (!judge->operand_count)
		return;
	take_line(judge, judge->operands[0], judge->count);
	if (judge->operand_count > 1)
		shell_judge_ask(judge, "eval makes a line of several words");
	judge->answer->transparent = judge->answer->inner_line != NULL;
	judge->answer->inner_line_word = judge->operands[0];
}

/* watch passes its words to sh -c. */
void shell_look_watch(struct shell_judge *judge)
{
	if (judge->operand_count)
		take_line(judge, judge->operands[0], judge->count);
	judge->operands_taken = true;
	judge->answer->repeats = true;
}

void shell_look_trap(struct shell_judge *judge)
{
	if (judge->operand_count > 1)
		take_line(judge, judge->operands[0], judge->operands[0] + 1);
	judge->operands_taken = true;
}

/* bash -c LINE, bash FILE, or bash that reads standard input. */
void shell_look_shell(struct shell_judge *judge)
{
	struct shell_program_answer *answer = judge->answer;
	size_t first = judge->operand_count ? judge->operands[0] : 0;

	judge->operands_taken = true;
	/* bash +O NAME -c LINE */
	for (size_t i = 1; i < (first ? first : judge->count); i++)
		if (judge->words[i].text[0] == '+' && strpbrk(judge->words[i].text, "oO"))
			shell_judge_ask(judge, "%.40s %.40s may take a value, and -c after it",
				answer->name, judge->words[i].text);
	if (shell_judge_has_option(judge, "c")) {
		if (first)
			take_line(judge, first, first + 1);
		else
			shell_judge_ask(judge, not_known, answer->name);
		answer->inner_line_word = first;
		answer->transparent = answer->inner_line && strcmp(answer->name, "bash") == 0;
		if (!answer->transparent)
			shell_judge_ask(
				judge, "%.40s may read its line otherwise than bash", answer->name);
		return;
	}
	if (!first || shell_judge_has_option(judge, "s")) {
		if (!shell_judge_has_option(judge, "version") &&
			!shell_judge_has_option(judge, "help"))
			shell_judge_ask(
				judge, "%.40s runs what it reads from its input", answer->name);
		return;
	}
	shell_judge_use(judge, first, 0, SHELL_READS);
	for (size_t i = 1; i < judge->operand_count; i++)
		shell_judge_guess(judge, judge->operands[i]);
}

/* fd -x CMD ..., up to ";" */
void shell_look_fd(struct shell_judge *judge)
{
	for (size_t i = 1; i < judge->count; i++) {
		const char *text = judge->words[i].text;
		size_t end = i + 1;

		if (strcmp(text, "--") == 0)
			break;
		if (!IS_ONE_OF(text, "-x", "-X", "--exec", "--exec-batch"))
			continue;
		while (end < judge->count && strcmp(judge->words[end].text, ";") != 0)
			end++;
		shell_judge_inner(judge, i + 1, end, "{", true);
		judge->not_proved = judge->answer->repeats = true;
		i = end;
	}
}

/* ---- find -------------------------------------------------------------------------------- */

/* The words of find are paths, then an expression. */
static bool begins_expression(const char *text)
{
	return (text[0] == '-' && text[1]) || IS_ONE_OF(text, "(", ")", "!", ",");
}

/* The number of words after this one that are its value. */
static size_t words_value(const struct shell_row *row, const char *text)
{
	const char *marks =
		text[0] == '-' ? shell_row_option(row, text + 1, strlen(text + 1)) : NULL;

	return marks && *marks && strchr(":<>&", *marks) ? 1 : 0;
}

/* Takes -exec and its like; returns the index of the word after it. */
static size_t take_find_exec(struct shell_judge *judge, size_t at)
{
	size_t end = at + 1;

	while (end < judge->count && strcmp(judge->words[end].text, ";") != 0 &&
		!(strcmp(judge->words[end].text, "+") == 0 &&
			strcmp(judge->words[end - 1].text, "{}") == 0))
		end++;
	if (end >= judge->count || end == at + 1)
		shell_judge_ask(judge, not_known, "find");
	shell_judge_inner(judge, at + 1, end, "{}", true);
	judge->answer->repeats = true;
	return end + 1;
}

static size_t take_find_primary(struct shell_judge *judge, size_t at, bool *deletes)
{
	const char *text = judge->words[at].text, *marks;
	size_t values;

	if (IS_ONE_OF(text, "(", ")", "!", ","))
		return at + 1;
	if (IS_ONE_OF(text, "-execdir", "-okdir"))
		shell_judge_ask(judge, "find %s runs a command in other directories", text);
	if (IS_ONE_OF(text, "-exec", "-execdir", "-ok", "-okdir"))
		return take_find_exec(judge, at);
	marks = text[0] == '-' ? shell_row_option(judge->row, text + 1, strlen(text + 1)) : NULL;
	if (!marks) {
		shell_judge_ask(judge, "what find %.60s does is not known", text);
		return at + 1;
	}
	*deletes = *deletes || strcmp(text, "-delete") == 0;
	values = words_value(judge->row, text);
	shell_judge_marks(judge, text + 1, strlen(text + 1), marks,
		values && at + 1 < judge->count ? at + 1 : 0, 0);
	if (strcmp(text, "-fprintf") == 0)
		values++;
	return at + 1 + values;
}

static void find_below(struct shell_judge *judge, size_t first, size_t paths, unsigned use)
{
	for (size_t i = first; i < paths; i++)
		shell_judge_use(judge, i, 0, use);
	if (first == paths)
		shell_judge_use_path(judge, ".", use);
}

void shell_look_find(struct shell_judge *judge)
{
	size_t first, at = 1, paths;
	bool deletes = false;

	judge->operands_taken = true;
	while (at < judge->count && IS_ONE_OF(judge->words[at].text, "-H", "-L", "-P")) {
		if (judge->words[at].text[1] != 'P')
			shell_judge_ask(judge, "find %s follows links, wherever they lead",
				judge->words[at].text);
		at++;
	}
	first = at;
	while (at < judge->count && !begins_expression(judge->words[at].text))
		at++;
	paths = at;
	for (size_t i = 1; i < judge->count; i++) {
		const struct shell_word *word = &judge->words[i];
		bool as_path = i < paths && !strchr("*?[-(!,", word->text[0]);
		bool as_value = i > paths && !word->glob && shell_judge_fixed(judge, i - 1) &&
				words_value(judge->row, judge->words[i - 1].text);

		if (!shell_judge_fixed(judge, i) && (word->split || !(as_path || as_value)))
			shell_judge_ask(judge, "a word of find that is not known may run or delete"
					       " something");
	}
	while (at < judge->count)
		at = take_find_primary(judge, at, &deletes);
	find_below(judge, first, paths, SHELL_READS | SHELL_TREE);
	if (deletes)
		find_below(judge, first, paths, SHELL_WRITES | SHELL_TREE | SHELL_DELETES);
}

/* ---- Built-ins --------------------------------------------------------------------------- */

static bool is_file_test(const char *text)
{
	return text[0] == '-' && text[1] && !text[2] && strchr("abcdefghkprsuwxGLNOS", text[1]);
}

static bool is_binary_test(const char *text)
{
	return IS_ONE_OF(text, "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge",
		"-nt", "-ot", "-ef");
}

/* -v and -R evaluate a subscript, so an unknown word must not become one of them. */
void shell_look_test(struct shell_judge *judge)
{
	const struct shell_word *words = judge->words;
	size_t count = judge->count, from = 1;

	judge->operands_taken = true;
	if (strcmp(judge->answer->name, "[") == 0 && count > 1)
		count--;
	if (count > from && strcmp(words[from].text, "!") == 0 && words[from].known)
		from++;
	for (size_t i = from; i < count; i++) {
		bool only_value = (count - from == 2 && i == from + 1 && words[from].known &&
					  words[from].text[0] == '-') ||
				  (count - from == 3 && i != from + 1 && words[from + 1].known &&
					  is_binary_test(words[from + 1].text)) ||
				  count - from == 1;

		if (words[i].glob || (!words[i].known && (words[i].split || !only_value)))
			shell_judge_ask(judge, "a word of %s that is not known may be an operator",
				judge->answer->name);
		if (words[i].known && IS_ONE_OF(words[i].text, "-v", "-R"))
			shell_judge_ask(judge, "%s %s can run a command in a subscript",
				judge->answer->name, words[i].text);
		if (i > from && words[i - 1].known && is_file_test(words[i - 1].text))
			shell_judge_use(judge, i, 0, SHELL_READS);
		if (words[i].known && IS_ONE_OF(words[i].text, "-nt", "-ot", "-ef") && i > from &&
			i + 1 < count) {
			shell_judge_use(judge, i - 1, 0, SHELL_READS);
			shell_judge_use(judge, i + 1, 0, SHELL_READS);
		}
	}
}

/* set -e and the like only change when the shell stops. */
void shell_look_set(struct shell_judge *judge)
{
	size_t at = 1;

	judge->operands_taken = true;
	for (; shell_judge_fixed(judge, at); at++) {
		const char *text = shell_judge_fixed(judge, at);
		const char *value = shell_judge_fixed(judge, at + 1);

		if (IS_ONE_OF(text, "-e", "-u", "-eu", "-ue"))
			continue;
		if (!IS_ONE_OF(text, "-o", "-eo", "-uo", "-euo", "-ueo") || !value ||
			!IS_ONE_OF(value, "errexit", "nounset", "pipefail"))
			break;
		at++;
	}
	if (at < judge->count || at == 1)
		shell_judge_ask(judge, "set changes how what follows it runs");
}

/* ---- Others -----------------------------------------------------------------------------------
 */

/* With an operand these programs change something. */
void shell_look_only_options(struct shell_judge *judge)
{
	judge->not_proved = judge->not_proved || judge->operand_count;
}

void shell_look_date(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++)
		if (judge->words[judge->operands[i]].text[0] != '+')
			shell_judge_ask(judge, "date without a \"+\" may set the clock");
}

void shell_look_dd(struct shell_judge *judge)
{
	judge->operands_taken = true;
	for (size_t i = 0; i < judge->operand_count; i++) {
		size_t word = judge->operands[i];
		const char *text = judge->words[word].text;

		if (strncmp(text, "if=", 3) == 0)
			shell_judge_use(judge, word, 3, SHELL_READS);
		else if (strncmp(text, "of=", 3) == 0)
			shell_judge_use(judge, word, 3, SHELL_WRITES);
		else if (!judge->words[word].known && !strchr(text, '='))
			shell_judge_ask(judge, "a word of dd is not known before it runs");
	}
}

size_t shell_plain_length(const char *text, const char *others)
{
	size_t length = 0;

	while (text[length] &&
		(isalnum((unsigned char)text[length]) || strchr(others, text[length])))
		length++;
	return length;
}

/* Targets and VAR=value of plain letters.  SHELL and others name a program, != and ::= run or
 * expand their value. */
void shell_look_make(struct shell_judge *judge)
{
	static const char letters[] = "_-./+,@%";

	judge->operands_taken = true;
	for (size_t i = 0; i < judge->option_count; i++) {
		const struct shell_option *option = &judge->options[i];
		const char *value = judge->words[option->value_word].text + option->value_offset;

		if (option->value_word &&
			(strcmp(value, "-") == 0 || strncmp(value, "/dev/", 5) == 0))
			shell_judge_ask(judge, "make runs what it reads from its input");
	}
	for (size_t i = 0; i < judge->operand_count; i++) {
		const char *text = shell_judge_operand(judge, i);
		size_t length = text ? assignment_length(text) : 0;

		if (!text ||
			text[length + (length > 0) +
				shell_plain_length(text + length + (length > 0), letters)] ||
			(length && (strncmp(text, "MAKE", 4) == 0 ||
					   memmem(text, length, "SHELL", 5))))
			shell_judge_ask(judge, "make %.60s can run other commands",
				judge->words[judge->operands[i]].text);
		else
			shell_judge_guess(judge, judge->operands[i]);
	}
}

/* Words after "--" are options of the program that cmake runs. */
void shell_look_cmake(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++) {
		const char *text = judge->words[judge->operands[i]].text;

		if (i > 0 || *text == '-' || text[shell_plain_length(text, "_-./+")])
			shell_judge_ask(judge, "cmake may pass %.60s to another program", text);
	}
}

/* -Wl,X and the like pass options to other programs. */
void shell_look_gcc(struct shell_judge *judge)
{
	for (size_t i = 1; i < judge->count; i++) {
		const char *text = judge->words[i].text;

		if (strncmp(text, "-W", 2) == 0 && text[2 + shell_plain_length(text + 2, "_-=+")])
			shell_judge_ask(judge, "%.40s passes options to another program", text);
	}
}

/* ssh HOST -oProxyCommand=LINE: options may also follow the host. */
void shell_look_ssh(struct shell_judge *judge)
{
	size_t next = judge->operand_count ? judge->operands[0] + 1 : judge->count;
	const char *text = shell_judge_fixed(judge, next);

	if (next < judge->count && (!text || *text == '-') && !(text && strcmp(text, "--") == 0))
		shell_judge_ask(judge, "%.60s after the host may be an option of ssh",
			judge->words[next].text);
}

/* "tar xzf FILE" means "tar -x -z -f FILE"; for an archive "host:file" tar runs rsh. */
void shell_look_tar(struct shell_judge *judge)
{
	const char *first = judge->count > 1 ? judge->words[1].text : "";
	bool old_style = first[0] && first[0] != '-', extracts = old_style && strchr(first, 'x');

	if (old_style && first[strspn(first, "ctxzjJvfmk")])
		shell_judge_ask(judge, "what tar %.40s does is not known", first);
	for (size_t i = 1; i < judge->count; i++) {
		const char *text = judge->words[i].text;
		bool is_long = strncmp(text, "--", 2) == 0;

		if (strchr(text, ':'))
			shell_judge_ask(judge, "tar %.60s may name another machine", text);
		extracts = extracts || (text[0] == '-' && !is_long && strchr(text, 'x')) ||
			   (is_long && (text[2] == 'e' || text[2] == 'g'));
	}
	if (extracts)
		shell_judge_use_path(judge, ".", SHELL_WRITES | SHELL_TREE | SHELL_FOLLOWS);
}

/* gunzip writes X for X.gz, X-gz and X_z. */
void shell_look_gzip(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++) {
		const char *text = shell_judge_operand(judge, i);
		size_t length = text ? strlen(text) : 0;
		cleanup_free char *name = NULL;

		while (length && !strchr(".-_", text[length - 1]))
			length--;
		if (!text)
			shell_judge_ask(
				judge, "which files %.40s writes is not known", judge->label);
		if (length < 2)
			continue;
		name = strndup(text, length - 1);
		if (name)
			shell_judge_use_path(judge, name, SHELL_WRITES);
		judge->no_memory = judge->no_memory || !name;
	}
}

/* less +!CMD and less "+&/x" run commands of less. */
void shell_look_less(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++)
		if (judge->words[judge->operands[i]].text[0] == '+')
			shell_judge_ask(judge, "%.40s %.60s can run other commands",
				judge->answer->name, judge->words[judge->operands[i]].text);
}

void shell_look_unzip(struct shell_judge *judge)
{
	static const char *const prints[] = {"l", "p", "t", "v", "Z", "d"};

	for (size_t i = 1; i < judge->count; i++)
		if (judge->words[i].text[0] == '-' && strchr(judge->words[i].text, ':'))
			shell_judge_ask(judge, "unzip -: follows .. in names");
	for (size_t i = 0; i < array_size(prints); i++)
		if (shell_judge_has_option(judge, prints[i]))
			return;
	shell_judge_use_path(judge, ".", SHELL_WRITES | SHELL_TREE | SHELL_FOLLOWS);
}

/* ---- git ----------------------------------------------------------------------------------- */

/* These forms of --format run gpg. */
void shell_look_git(struct shell_judge *judge)
{
	for (size_t i = 1; i < judge->count; i++)
		if (strstr(judge->words[i].text, "%G") ||
			strstr(judge->words[i].text, "%(signature"))
			shell_judge_ask(judge, "git %.60s can run gpg", judge->words[i].text);
}

/* "git branch NAME" creates a branch; with --list and the like the names are patterns. */
void shell_look_git_branch(struct shell_judge *judge)
{
	static const char *const lists[] = {
		"list", "l", "contains", "no-contains", "merged", "no-merged", "points-at", "n"};

	for (size_t i = 0; i < array_size(lists); i++)
		if (shell_judge_has_option(judge, lists[i]))
			return;
	judge->not_proved = judge->not_proved || judge->operand_count;
}

/* Without paths it deletes below the working directory. */
void shell_look_git_clean(struct shell_judge *judge)
{
	if (!judge->operand_count)
		shell_judge_use_path(judge, ".", SHELL_WRITES | SHELL_DELETES | SHELL_TREE);
}

/* A setting may name a program that git runs, so writing one asks. */
void shell_look_git_config(struct shell_judge *judge)
{
	static const char *const reads[] = {"get", "get-all", "get-regexp", "get-urlmatch", "list",
		"l", "get-color", "get-colorbool"};
	const char *first = shell_judge_operand(judge, 0);

	for (size_t i = 0; i < array_size(reads); i++)
		if (shell_judge_has_option(judge, reads[i]))
			return;
	if (judge->operand_count == 1 && first && strchr(first, '.'))
		return;
	if (judge->operand_count && first && IS_ONE_OF(first, "get", "list"))
		return;
	shell_judge_ask(judge, "git config can change which commands git runs");
}

/* git init creates a .git with hooks from a template. */
void shell_look_git_init(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++)
		shell_judge_use_below(judge, judge->operands[i], 0, ".git", SHELL_WRITES);
	if (!judge->operand_count)
		shell_judge_use_path(judge, ".git", SHELL_WRITES);
}

void shell_look_git_remote(struct shell_judge *judge)
{
	if (judge->operand_count)
		shell_look_git_transport(judge);
	judge->not_proved = judge->not_proved || judge->operand_count;
}

/* An address such as "ext::sh -c ..." is a command; one may also be a directory. */
void shell_look_git_transport(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++) {
		const char *text = judge->words[judge->operands[i]].text;

		if (strstr(text, "::") || strstr(text, "://-"))
			shell_judge_ask(judge, "git %.60s can run other commands", text);
		if (strncasecmp(text, "file:", 5) == 0)
			shell_judge_ask(judge, "git %.60s reads files of this machine", text);
		if (*text && strchr("/.~", *text))
			shell_judge_guess(judge, judge->operands[i]);
	}
}
