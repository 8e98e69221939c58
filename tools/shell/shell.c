#include "tools/shell/shell.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "ops/support/path.h"
#include "tools/shell/shell_begin.h"
#include "tools/shell/shell_moments.h"
#include "tools/shell/shell_programs.h"

enum { NESTING_MAX = 8, WORDS_MAX = 5000 };

/* A printed line must fit into one argument of execve(2). */
enum { PRINTED_MAX_BYTES = 120000 };

struct analyser {
	struct shell_analysis *result;
	const struct shell_context *context;
	const char *settings;    /* in front of every command */
	struct shell_tree *tree; /* that tokens belong to */
	int nesting;             /* of commands in commands */
	struct shell_moments moments;
	struct shell_moment now; /* of the present command; a pipeline has one time */
	unsigned commands;
	bool in_pipeline;
	bool has_command;
	bool sets_variables; /* an earlier command of the line sets variables */
	bool no_memory;
};

/* A word of a command. */
struct view {
	struct shell_word word;
	struct shell_token *token; /* in the tree that will be printed; NULL: not in a tree */
};

static void must_ask(struct analyser *a, const char *reason)
{
	struct shell_analysis *result = a->result;

	result->must_ask = true;
	if (!*result->reason)
		snprintf(result->reason, sizeof(result->reason), "%s", reason);
}

static char *steal_text(struct analyser *a, struct buffer *text)
{
	char *stolen = buffer_steal_string(text);

	a->no_memory = a->no_memory || !stolen;
	return stolen;
}

/* ---- Words ----------------------------------------- */

/* The value of a word, as far as it is known.  The caller frees its text. */
static int word_value(const struct shell_token *token, struct shell_word *ret_word)
{
	struct shell_word word = {.known = true};
	struct buffer text cleanup_buffer = {0};
	int r = 0;

	for (const struct shell_part *part = token->parts; part; part = part->next)
		word.glob = word.glob || part->type == SHELL_PATTERN;
	for (const struct shell_part *part = token->parts; part && r == 0; part = part->next) {
		if (part->type == SHELL_VARIABLE || part->type == SHELL_OUTPUT) {
			word.known = false;
			word.split = word.split || !part->quoted;
		}
		if (!word.known)
			continue;
		for (const char *at = part->text; *at && r == 0; at++) {
			if (word.glob && part->type == SHELL_LITERAL && strchr("*?[\\", *at))
				r = buffer_append_string(&text, "\\");
			if (r == 0)
				r = buffer_append(&text, at, 1);
		}
	}
	word.text = r < 0 ? NULL : buffer_steal_string(&text);
	if (!word.text)
		return -ENOMEM;
	*ret_word = word;
	return 0;
}

static int print_word(const struct view *view, struct buffer *out)
{
	int r = 0;

	if (view->word.known && !view->word.glob)
		return shell_print_literal(view->word.text, out);
	if (view->token)
		return shell_print_token(view->token, out);
	if (*view->word.text)
		r = shell_print_literal(view->word.text, out);
	return r == 0 ? buffer_append_string(out, "${...}") : r;
}

/* Joins `before` and the words [from, to) with blanks. */
static char *join(
	struct analyser *a, const char *before, const struct view *views, size_t from, size_t to)
{
	struct buffer text cleanup_buffer = {0};
	int r = buffer_append_string(&text, before);

	for (size_t i = from; i < to && r == 0; i++) {
		if (text.size && text.data[text.size - 1] != ' ')
			r = buffer_append_string(&text, " ");
		if (r == 0)
			r = print_word(&views[i], &text);
	}
	a->no_memory = a->no_memory || r < 0;
	return steal_text(a, &text);
}

/* ---- Results ----------------------------------------- */

static struct shell_step *add_step(struct analyser *a)
{
	struct shell_analysis *result = a->result;
	struct shell_step *grown;

	if (result->count >= SHELL_COMMANDS_MAX) {
		must_ask(a, "it runs too many commands");
		return NULL;
	}
	grown = reallocarray(result->steps, result->count + 1, sizeof(*grown));
	if (!grown) {
		a->no_memory = true;
		return NULL;
	}
	result->steps = grown;
	grown[result->count] = (struct shell_step){0};
	return &grown[result->count++];
}

static void step_must_ask(struct analyser *a, struct shell_step *step, const char *reason)
{
	if (step)
		step->must_ask = true;
	must_ask(a, reason);
}

static void add_path(struct analyser *a, const char *path, unsigned use, unsigned flags)
{
	shell_paths_add(&a->result->paths, a->context, path, use, flags);
	if (a->result->paths.reason)
		must_ask(a, a->result->paths.reason);
	a->no_memory = a->no_memory || a->result->paths.no_memory;
}

/* ---- Names that change ----------------------------------------- */

static void add_moment(struct analyser *a, bool changes_names, bool uses_paths)
{
	struct shell_moment moment = a->now;

	moment.changes_names = changes_names;
	moment.uses_paths = uses_paths;
	a->no_memory = shell_moments_add(&a->moments, &moment) < 0 || a->no_memory;
}

/* Nothing can replace the working directory itself. */
static bool is_fixed(const struct analyser *a, const struct shell_program_use *use)
{
	return strcmp(use->path, ".") == 0 &&
	       !(use->use & (SHELL_WRITES | SHELL_FOLLOWS | SHELL_FOLLOWS_FILES)) &&
	       !(use->use & SHELL_TREE && a->context->permissions &&
		       permissions_restrict(a->context->permissions, "read"));
}

/* ---- Simple commands ----------------------------------------- */

static void analyse_views(
	struct analyser *a, const char *settings, struct view *views, size_t count);
static void analyse_list(struct analyser *a, const struct shell_command *command);

static void add_uses(
	struct analyser *a, const struct shell_program_answer *answer, bool changes_names)
{
	const unsigned anything = SHELL_READS | SHELL_WRITES | SHELL_TREE;
	bool copies = false, uses_paths = false;

	for (size_t i = 0; i < answer->use_count; i++) {
		uses_paths = uses_paths || !is_fixed(a, &answer->uses[i]);
		copies = copies || (answer->uses[i].use & anything) == SHELL_WRITES ||
			 (answer->uses[i].use & anything) == (SHELL_WRITES | SHELL_TREE);
	}
	add_moment(a, changes_names, uses_paths);
	for (size_t i = 0; i < answer->use_count; i++) {
		const struct shell_program_use *use = &answer->uses[i];

		if (!use->known)
			must_ask(a, "not all paths in it are known before it runs");
		else
			add_path(a, use->path, use->use,
				(use->glob ? SHELL_PATH_PATTERN : 0) |
					(copies ? SHELL_PATH_COPIED : 0));
	}
}

/* Analyses the inner command, with the tokens of its words. */
static void analyse_inner(struct analyser *a, const char *settings,
	const struct shell_program_answer *answer, const struct view *views, size_t count)
{
	cleanup_free struct view *inner = calloc(answer->inner_count, sizeof(*inner));
	size_t at = 0;

	if (!inner) {
		a->no_memory = true;
		return;
	}
	for (size_t i = 0; i < answer->inner_count; i++) {
		size_t found = at;

		inner[i].word = answer->inner[i];
		while (found < count && views[found].word.text != inner[i].word.text)
			found++;
		if (found < count) {
			inner[i].token = views[found].token;
			at = found + 1;
		}
	}
	analyse_views(a, settings, inner, answer->inner_count);
}

/* Parses, analyses and prints the line of `bash -c` in the same way. */
static void analyse_inner_line(
	struct analyser *a, const struct shell_program_answer *answer, const struct view *views)
{
	struct shell_token *token =
		answer->inner_line_word ? views[answer->inner_line_word].token : NULL;
	struct shell_tree tree = {0}, *outer = a->tree;
	struct buffer printed cleanup_buffer = {0};
	const char *problem = NULL;
	int r = shell_parse(answer->inner_line, &tree, &problem);

	a->tree = &tree;
	if (r == -EINVAL)
		must_ask(a, problem);
	else if (r == 0)
		analyse_list(a, tree.commands);
	a->tree = outer;
	if (r == 0 && !token)
		must_ask(a, "it makes a command line of words");
	else if (r == 0)
		r = shell_print(tree.commands, &printed);
	if (r == 0 && token &&
		(buffer_append(&printed, "", 1) < 0 ||
			shell_tree_replace(outer, token, (const char *)printed.data) < 0))
		r = -ENOMEM;
	a->no_memory = a->no_memory || r == -ENOMEM;
	shell_tree_done(&tree);
}

static const char *name_problem(const struct shell_word *name)
{
	if (!name->known || name->glob)
		return "the name of a command in it is not known before it runs";
	return shell_name_is_plain(name->text)
		       ? NULL
		       : "the name of a command in it has unusual characters";
}

/* Adds a step for "before WORD" that needs no rule: see struct shell_step. */
static void add_implied(struct analyser *a, const char *before, const char *word)
{
	struct shell_step *step = add_step(a);
	struct buffer text cleanup_buffer = {0};

	if (!step)
		return;
	if (buffer_printf(&text, "%s ", before) < 0 || shell_print_literal(word, &text) < 0)
		a->no_memory = true;
	step->implied = true;
	step->text = steal_text(a, &text);
	step->plain = step->text ? strdup(step->text) : NULL;
	step->remember = strdup(before);
	a->no_memory = a->no_memory || !step->plain || !step->remember;
}

/* What a command deletes by an option is also judged as if rm did it. */
static void add_deletions(struct analyser *a, const struct shell_program_answer *answer)
{
	if (strcmp(answer->name, "rm") == 0 || strcmp(answer->name, "rmdir") == 0)
		return;
	for (size_t i = 0; i < answer->use_count; i++) {
		const struct shell_program_use *use = &answer->uses[i];

		if (!(use->use & SHELL_DELETES))
			continue;
		add_implied(a, "rm", use->path);
		if (use->use & SHELL_TREE) {
			add_implied(a, "rm -r", use->path);
			add_implied(a, "rm -rf", use->path);
		}
	}
}

static void take_answer(struct analyser *a, const char *settings,
	const struct shell_program_answer *answer, const struct view *views, size_t count)
{
	const char *outer_settings = a->settings;
	/* A path may lead to any program. */
	bool by_name = !strchr(views[0].word.text, '/') &&
		       !shell_program_is_inside(a->context, answer->name);
	bool is_inner = answer->transparent && by_name && (answer->inner || answer->inner_line);
	bool repeats = a->now.repeats;
	struct shell_step *step = is_inner && !*answer->reason ? NULL : add_step(a);

	if (step) {
		step->text = join(a, settings, views, 0, count);
		/* For rules that deny: see struct shell_step. */
		step->plain = join(a, answer->name, views, answer->plain_from, count);
		step->remember = join(a, settings, views, 0, answer->prefix);
		step->only_reads = answer->only_reads && by_name && !*settings;
		if (*answer->reason)
			step_must_ask(a, step, answer->reason);
	}
	add_uses(a, answer, answer->changes_names || !by_name);
	add_deletions(a, answer);
	a->now.repeats = a->now.repeats || answer->repeats;
	if (answer->inner)
		analyse_inner(a, is_inner ? settings : "", answer, views, count);
	if (is_inner)
		a->settings = settings;
	if (answer->inner_line)
		analyse_inner_line(a, answer, views);
	a->settings = outer_settings;
	a->now.repeats = repeats;
}

static void analyse_views(
	struct analyser *a, const char *settings, struct view *views, size_t count)
{
	struct shell_program_answer answer = {0};
	cleanup_free struct shell_word *words = calloc(count, sizeof(*words));
	const char *problem = name_problem(&views[0].word);

	a->has_command = true;
	if (!words) {
		a->no_memory = true;
		return;
	}
	if (++a->nesting > NESTING_MAX || count > WORDS_MAX) {
		must_ask(a, count > WORDS_MAX ? "a command in it has too many words"
					      : "it is nested too deeply");
		a->nesting--;
		return;
	}
	for (size_t i = 0; i < count; i++)
		words[i] = views[i].word;
	if (problem) {
		struct shell_step *step = add_step(a);

		if (step) {
			step->text = join(a, settings, views, 0, count);
			step->plain = join(a, "", views, 0, count);
			step->remember = join(a, settings, views, 0, 1);
		}
		step_must_ask(a, step, problem);
	} else if (shell_program_judge(words, count, &answer) < 0) {
		a->no_memory = true;
	} else {
		take_answer(a, settings, &answer, views, count);
		shell_program_answer_done(&answer);
	}
	a->nesting--;
}

/* ---- The tree ----------------------------------------- */

/* Analyses the commands of $( ) in words. */
static void analyse_outputs(struct analyser *a, const struct shell_token *token)
{
	unsigned command = a->now.command;

	for (; token; token = token->next)
		for (const struct shell_part *part = token->parts; part; part = part->next)
			if (part->type == SHELL_OUTPUT)
				analyse_list(a, part->commands);
	a->now.command = command;
}

static void analyse_redirection(struct analyser *a, const struct shell_redirection *redirection)
{
	enum shell_redirection_type type = redirection->type;
	struct shell_word word;

	if (!redirection->target)
		return;
	analyse_outputs(a, redirection->target);
	if (type == SHELL_READ_TEXT)
		return;
	if (word_value(redirection->target, &word) < 0) {
		a->no_memory = true;
		return;
	}
	add_moment(a, false, !shell_path_is_harmless(word.text));
	if (word.known && *word.text)
		add_path(a, word.text, type == SHELL_READ_FILE ? SHELL_READS : SHELL_WRITES, 0);
	else
		must_ask(a, "a file that it reads or writes is not known before it runs");
	free((char *)word.text);
}

static bool is_harmless(const struct shell_token *token)
{
	const struct shell_part *part = token->parts;

	if (part && (part->type != SHELL_LITERAL || part->next))
		return false;
	return shell_setting_is_harmless(token->name, strlen(token->name), part ? part->text : "");
}

/* The assignments before the words, followed by those for every command.  NULL: no memory. */
static char *analyse_settings(struct analyser *a, const struct shell_command *command)
{
	struct buffer text cleanup_buffer = {0};
	int r = buffer_append_string(&text, a->settings);

	for (const struct shell_token *token = command->settings; token; token = token->next) {
		size_t length = strlen(token->name);

		if (shell_variable_is_special(token->name, length))
			must_ask(a, "it sets a variable that changes how commands run");
		if (command->words && is_harmless(token))
			continue;
		if (!command->words && shell_variable_is_private(token->name))
			continue;
		if (r == 0)
			r = shell_print_token(token, &text);
		if (r == 0)
			r = buffer_append_string(&text, " ");
	}
	if (r < 0)
		a->no_memory = true;
	return steal_text(a, &text);
}

static void analyse_setting_alone(struct analyser *a, char *settings)
{
	struct shell_step *step;

	if (strlen(settings) == strlen(a->settings))
		return;
	settings[strlen(settings) - 1] = '\0';
	step = add_step(a);
	if (!step)
		return;
	step->text = strdup(settings);
	step->plain = strdup(settings);
	step->remember = strdup(settings);
	a->no_memory = a->no_memory || !step->text || !step->plain || !step->remember;
}

/* grep --include=*.c: a pattern that looks like an option and matches no file is that option.
 * Prints it quoted, so that bash cannot expand it later. */
static int settle_option(struct analyser *a, struct view *view)
{
	char *text = (char *)view->word.text;

	if (!view->word.glob || !view->word.known || *text != '-' ||
		shell_pattern_matches(a->context, text))
		return 0;
	shell_pattern_unescape(text);
	view->word.glob = false;
	return shell_tree_replace(a->tree, view->token, text);
}

/* An unknown unquoted value may contain a pattern, which may match names outside the root. */
static void check_split(struct analyser *a, const struct view *view)
{
	if (view->word.glob && !view->word.known)
		must_ask(a, "what a pattern in it matches is not known before it runs");
	for (const struct shell_part *part = view->token->parts; part; part = part->next) {
		if (part->quoted)
			continue;
		if (part->type == SHELL_OUTPUT)
			must_ask(a, "what $( ) prints may become any words: write \"$( )\"");
		if (part->type == SHELL_VARIABLE && a->sets_variables)
			must_ask(a, "a variable that it sets may become any words: write \"$x\"");
	}
}

/* A pattern reads the names of its directory, whatever the program does with them. */
static void add_pattern(struct analyser *a, const struct shell_word *word)
{
	const char *slash = strrchr(word->text, '/');
	cleanup_free char *above = NULL;

	if (!word->glob || !word->known || !slash)
		return;
	add_moment(a, false, true);
	above = strndup(word->text, (size_t)(slash - word->text) + (slash == word->text));
	if (above)
		add_path(a, above, SHELL_READS, SHELL_PATH_PATTERN);
	else
		a->no_memory = true;
}

static void analyse_simple(struct analyser *a, const struct shell_command *command)
{
	cleanup_free char *settings = analyse_settings(a, command);
	cleanup_free struct view *views = NULL;
	size_t count = 0, used = 0;

	analyse_outputs(a, command->settings);
	analyse_outputs(a, command->words);
	a->sets_variables = a->sets_variables || (command->settings && !command->words);
	for (const struct shell_token *token = command->words; token; token = token->next)
		count++;
	views = calloc(count + 1, sizeof(*views));
	if (!settings || !views) {
		a->no_memory = true;
		return;
	}
	for (struct shell_token *token = command->words; token; token = token->next) {
		views[used].token = token;
		if (word_value(token, &views[used].word) < 0)
			break;
		if (settle_option(a, &views[used++]) < 0)
			a->no_memory = true;
		check_split(a, &views[used - 1]);
		add_pattern(a, &views[used - 1].word);
	}
	if (used < count)
		a->no_memory = true;
	else if (count)
		analyse_views(a, settings, views, count);
	else
		analyse_setting_alone(a, settings);
	for (size_t i = 0; i < used; i++)
		free((char *)views[i].word.text);
}

static void analyse_list(struct analyser *a, const struct shell_command *command)
{
	bool in_pipeline = a->in_pipeline, background = a->now.background, piped = false;

	for (; command && !a->no_memory; command = command->next) {
		bool pipes = command->join == SHELL_PIPE || command->join == SHELL_PIPE_BOTH;

		a->now.background = background || shell_is_in_background(command);
		a->in_pipeline = in_pipeline || pipes || piped;
		a->now.command = ++a->commands;
		for (const struct shell_redirection *redirection = command->redirections;
			redirection; redirection = redirection->next)
			analyse_redirection(a, redirection);
		if (command->type == SHELL_SIMPLE)
			analyse_simple(a, command);
		else
			analyse_list(a, command->body);
		if (!in_pipeline && !pipes)
			a->now.time++;
		piped = pipes;
	}
	a->in_pipeline = in_pipeline;
	a->now.background = background;
}

static int finish(struct analyser *a, struct shell_analysis *ret_analysis)
{
	if (shell_paths_make_repository(&a->result->paths))
		must_ask(a, "it makes a directory from which git reads settings");
	if (shell_moments_conflict(&a->moments))
		must_ask(a, "a command in it can replace what paths lead to that another one uses: "
			    "run them in separate calls");
	free(a->moments.list);
	if (a->no_memory) {
		shell_analysis_done(a->result);
		return -ENOMEM;
	}
	*ret_analysis = *a->result;
	return 0;
}

/* ---- What a line begins with ----------------------------------------- */

/* "cd DIR &&" with a directory in the root means the same as `workdir`.  0; -ENOENT: it is no such
 * command; -ENOMEM. */
static int take_cd(struct analyser *a, const struct shell_command *command)
{
	const char *word = shell_begin_cd(command), *given = a->context->directory;
	cleanup_free char *joined = NULL, *directory = NULL;
	struct stat status;
	int r;

	if (!word || (*word == '/' && a->context->root_unknown))
		return -ENOENT;
	joined = *word == '/' || !*given ? strdup(word) : path_join(given, word);
	if (!joined)
		return -ENOMEM;
	r = files_resolve(a->context->root, joined, &directory);
	if (r < 0 || files_stat(a->context->root, directory, &status) < 0 ||
		!S_ISDIR(status.st_mode))
		return r == -ENOMEM ? r : -ENOENT;
	add_implied(a, "cd", word);
	free(a->result->directory);
	a->result->directory = steal_ptr(&directory);
	return 0;
}

/* Analyses the line, but for "cd DIR &&" and "export A=b" in front.  Returns the commands to print:
 * those after "cd DIR &&".  NULL: none, or no memory. */
static const struct shell_command *analyse_line(
	struct analyser *a, const struct shell_command *command)
{
	struct shell_context context = *a->context;
	struct buffer settings cleanup_buffer = {0};
	cleanup_free char *text = NULL;
	const struct shell_command *first;
	int r = buffer_append_string(&settings, a->settings);

	a->context = &context;
	while (command && r == 0 && (r = take_cd(a, command)) == 0) {
		context.directory = a->result->directory;
		command = command->next;
	}
	first = command;
	r = r == -ENOENT ? 0 : r;
	while (command && r == 0 && (r = shell_begin_export(command, &settings)) == 0) {
		for (const struct shell_token *token = command->words->next; token;
			token = token->next)
			add_implied(a, "export", token->parts->text);
		command = command->next;
	}
	a->settings = text = steal_text(a, &settings);
	a->no_memory = a->no_memory || r == -ENOMEM;
	if (shell_directory_is_guarded(&context))
		must_ask(a, "it runs in a directory with files that make something run");
	if (!a->no_memory)
		analyse_list(a, command);
	return a->no_memory ? NULL : first;
}

int shell_analyse(const struct shell_context *context, const char *settings, const char *line,
	struct shell_analysis *ret_analysis)
{
	struct shell_analysis result = {0};
	struct shell_tree tree = {0};
	struct analyser a = {
		.result = &result, .context = context, .settings = settings, .tree = &tree};
	struct buffer printed = {0};
	const char *problem = NULL;
	int r = shell_parse(line, &tree, &problem);

	if (r == -EINVAL) {
		must_ask(&a, problem);
	} else if (r == 0) {
		const struct shell_command *commands = analyse_line(&a, tree.commands);

		if (!a.has_command)
			must_ask(&a, "there is no command in it");
		r = shell_print(commands, &printed);
		if (printed.size > PRINTED_MAX_BYTES)
			must_ask(&a, "it is too long");
		result.line = steal_text(&a, &printed);
	}
	a.no_memory = a.no_memory || r == -ENOMEM;
	shell_tree_done(&tree);
	return finish(&a, ret_analysis);
}

int shell_analyse_words(const struct shell_context *context, const char *const *argv,
	struct shell_analysis *ret_analysis)
{
	struct shell_analysis result = {0};
	struct analyser a = {.result = &result, .context = context, .settings = ""};
	cleanup_free struct view *views = NULL;
	size_t count = 0;

	while (argv[count])
		count++;
	views = calloc(count, sizeof(*views));
	if (!views)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		views[i].word = (struct shell_word){.text = argv[i], .known = true};
	analyse_views(&a, "", views, count);
	for (size_t i = 0; i < result.count; i++)
		result.steps[i].only_reads = false; /* the table assumes that bash runs it */
	return finish(&a, ret_analysis);
}

void shell_analysis_done(struct shell_analysis *analysis)
{
	for (size_t i = 0; i < analysis->count; i++) {
		free(analysis->steps[i].text);
		free(analysis->steps[i].plain);
		free(analysis->steps[i].remember);
	}
	free(analysis->steps);
	shell_paths_done(&analysis->paths);
	free(analysis->line);
	free(analysis->directory);
	*analysis = (struct shell_analysis){0};
}
