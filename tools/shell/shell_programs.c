#include "tools/shell/shell_programs.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "tools/shell/shell_programs_internal.h"

void shell_judge_ask(struct shell_judge *judge, const char *format, ...)
{
	struct shell_program_answer *answer = judge->answer;
	va_list arguments;

	judge->not_proved = true;
	if (answer->reason[0])
		return;
	va_start(arguments, format);
	vsnprintf(answer->reason, sizeof(answer->reason), format, arguments);
	va_end(arguments);
}

/* ---- Uses -------------------------------------------------------------------------------- */

/* The list has room up to the next power of two, so it grows at powers of two only. */
void *shell_judge_grow(void *list, size_t count, size_t size)
{
	if (count & (count - 1))
		return list;
	return reallocarray(list, count ? 2 * count : 1, size);
}

/* Takes ownership of `path`. */
static void add_use(
	struct shell_judge *judge, char *path, unsigned use, bool known, bool glob, size_t word)
{
	struct shell_program_answer *answer = judge->answer;
	struct shell_program_use *grown =
		shell_judge_grow(answer->uses, answer->use_count, sizeof(*grown));

	if (!grown || !path) {
		free(path);
		answer->uses = grown ? grown : answer->uses;
		judge->no_memory = true;
		return;
	}
	answer->uses = grown;
	if (use & SHELL_WRITES)
		judge->not_proved = true;
	if (use & SHELL_DELETES)
		judge->changes_names = true;
	grown[answer->use_count++] = (struct shell_program_use){
		.path = path, .use = use, .known = known, .glob = glob, .word = word};
}

void shell_judge_use(struct shell_judge *judge, size_t word, size_t offset, unsigned use)
{
	const struct shell_word *w = &judge->words[word];
	const char *path = w->text + offset;

	if (strcmp(path, "-") == 0 && use == SHELL_READS && w->known)
		return; /* the standard input */
	add_use(judge, strdup(path), use, w->known, w->glob, word);
}

void shell_judge_use_path(struct shell_judge *judge, const char *path, unsigned use)
{
	add_use(judge, strdup(path), use, true, false, 0);
}

void shell_judge_use_below(
	struct shell_judge *judge, size_t word, size_t offset, const char *name, unsigned use)
{
	const struct shell_word *w = &judge->words[word];
	char *path = NULL;

	if (asprintf(&path, "%s/%s", w->text + offset, name) < 0)
		path = NULL;
	add_use(judge, path, use, w->known, w->glob, word);
}

enum { PARTS_MAX = 8 };

static void guess_use(struct shell_judge *judge, size_t word, size_t offset)
{
	const struct shell_word *w = &judge->words[word];

	if (w->text[offset] || !w->known)
		shell_judge_use(judge, word, offset, SHELL_READS | SHELL_WRITES | SHELL_TREE);
}

/* The offset after the first of `characters`; 0: there is none. */
static size_t behind(const char *text, const char *characters)
{
	size_t length = strcspn(text, characters);

	return text[length] ? length + 1 : 0;
}

/* Whether a path that may lead out of the root begins at `at` after other characters: x,/y, A=-I/x.
 */
static bool begins_path(const char *text, size_t at)
{
	char before = text[at - 1];

	if (text[at] != '/' && text[at] != '~' && strncmp(text + at, "..", 2) != 0)
		return false;
	if (isalnum((unsigned char)before))
		return at > 2 && text[at - 2] == '-' && !isalnum((unsigned char)text[at - 3]) &&
		       !strchr("_./-", text[at - 3]);
	return !strchr("_./~-", before);
}

void shell_judge_guess(struct shell_judge *judge, size_t word)
{
	const char *text = judge->words[word].text;
	size_t equals = behind(text, "="), colon = behind(text, ":"), at = behind(text, "@");
	unsigned parts = 0;

	if (text[0] == '-' && text[1] != '-' && text[1] && text[2])
		guess_use(judge, word, 2);
	else if (text[0] != '-')
		guess_use(judge, word, 0);
	if (equals)
		guess_use(judge, word, equals);
	if (colon)
		guess_use(judge, word, colon);
	if (at)
		guess_use(judge, word, at);
	for (size_t i = 1; text[0] && text[i]; i++) {
		if (i == equals || i == colon || i == at || !begins_path(text, i))
			continue;
		if (++parts > PARTS_MAX)
			shell_judge_ask(judge, "%.40s may name too many files", judge->label);
		else
			guess_use(judge, word, i);
	}
}

/* For a program that changes its directory: adds its paths relative to that directory, in addition
 * to those relative to the one where it starts (tar takes -f from there). */
static void add_uses_elsewhere(struct shell_judge *judge)
{
	size_t count = judge->answer->use_count;

	for (size_t i = 0; judge->directory && i < count; i++) {
		struct shell_program_use *use = &judge->answer->uses[i];
		char *path = NULL;

		if (use->path[0] == '/' || use->path[0] == '~' || use->use & SHELL_FROM_ROOT)
			continue;
		if (asprintf(&path, "%s/%s", judge->directory, use->path) < 0)
			path = NULL;
		add_use(judge, path, use->use, use->known && judge->directory_known, use->glob,
			use->word);
	}
	if (judge->directory)
		add_use(judge, strdup(judge->directory), SHELL_READS, judge->directory_known,
			judge->words[judge->directory_word].glob, judge->directory_word);
}

/* Several such options follow each other, like cd. */
void shell_judge_go_to(struct shell_judge *judge, size_t word, size_t offset)
{
	const struct shell_word *w = &judge->words[word];
	const char *path = w->text + offset;
	char *directory = NULL;

	if (asprintf(&directory, "%s%s%s", judge->directory && *path != '/' ? judge->directory : "",
		    judge->directory && *path != '/' ? "/" : "", path) < 0)
		directory = NULL;
	judge->no_memory = judge->no_memory || !directory;
	judge->directory_known =
		w->known && !w->glob && (judge->directory_known || !judge->directory);
	free(judge->directory);
	judge->directory = directory;
}

/* ---- Unknown words --------------------------------------------------------------------------- */

/* An unquoted expansion may become "-o x", and a pattern may match a file named "-o". */
static bool may_be_option(const struct shell_word *word)
{
	if (!word->known)
		return word->split || !word->text[0] || strcmp(word->text, "-") == 0;
	return word->glob && strchr("*?[-", word->text[0]);
}

static void check_unknown(struct shell_judge *judge, size_t word)
{
	const struct shell_word *w = &judge->words[word];

	if (judge->row->flags & (SHELL_ROW_ANY_OPTION | SHELL_ROW_PLAIN_WORDS) || !may_be_option(w))
		return;
	if (w->known)
		shell_judge_ask(judge,
			"a file name that matches %.40s may begin with \"-\" and be an option of "
			"%.40s:"
			" write ./%.20s",
			w->text, judge->answer->name, w->text);
	else
		shell_judge_ask(judge,
			"a word of %.40s that is not known before it runs may be an option",
			judge->answer->name);
}

/* Asks if a word is @FILE, even as the value of an option. */
static void check_at_files(struct shell_judge *judge)
{
	for (size_t i = 1; i < judge->count; i++)
		if (judge->words[i].text[0] == '@')
			shell_judge_ask(judge, "%s takes more words from the file %.60s",
				judge->label, judge->words[i].text);
}

/* Splits the words from `at` on into options and operands. */
static void take_words(struct shell_judge *judge, size_t at)
{
	unsigned flags = judge->row->flags;
	bool ended = flags & SHELL_ROW_PLAIN_WORDS;

	for (; at < judge->count; at++) {
		const struct shell_word *word = &judge->words[at];
		const char *text = word->text;

		if (!ended && flags & SHELL_ROW_PLUS_OPTIONS && text[0] == '+')
			continue;
		if (!ended && strcmp(text, "--") == 0 && word->known &&
			!(flags & SHELL_ROW_WORD_OPTIONS)) {
			ended = true;
			continue;
		}
		if (!ended)
			check_unknown(judge, at);
		if (!ended && text[0] == '-' && text[1]) {
			bool is_long = text[1] == '-';

			if (is_long || flags & SHELL_ROW_WORD_OPTIONS)
				at = shell_judge_take_long(judge, at, is_long ? 2 : 1);
			else
				at = shell_judge_take_short(judge, at);
			ended = flags & SHELL_ROW_STOPS && judge->first_taken; /* python -m */
			continue;
		}
		judge->operands[judge->operand_count++] = at;
		ended = ended || flags & SHELL_ROW_STOPS || judge->row->commands;
	}
}

/* ---- Operands ------------------------------------------------------------------------------ */

static unsigned use_of_kind(char kind)
{
	switch (kind) {
	case 'r':
		return SHELL_READS;
	case 'g':
		return SHELL_READS | SHELL_FOLLOWS_FILES;
	case 'w':
	case 'd':
		return SHELL_WRITES;
	case 'x':
		return SHELL_WRITES | SHELL_DELETES;
	case 'X':
		return SHELL_WRITES | SHELL_DELETES | SHELL_TREE;
	case 'b':
		return SHELL_READS | SHELL_WRITES;
	case 'R':
	case 'v':
		return SHELL_READS | SHELL_TREE;
	case 'F':
		return SHELL_READS | SHELL_TREE | SHELL_FOLLOWS;
	case 'W':
	case 'D':
		return SHELL_WRITES | SHELL_TREE;
	case 'B':
		return SHELL_READS | SHELL_WRITES | SHELL_TREE;
	default:
		return 0;
	}
}

/* The letter in `kinds` ("tr*", "r*w", "rw") for operand `index` of `count`. */
static char kind_at(const char *kinds, size_t index, size_t count)
{
	size_t length = strlen(kinds), star = strcspn(kinds, "*"), before, after;

	if (!kinds[star])
		return index < length ? kinds[index] : 'B';
	before = star - 1;
	after = length - star - 1;
	if (index < before)
		return kinds[index];
	if (count - index <= after)
		return kinds[length - (count - index)];
	return kinds[star - 1];
}

static void take_operand(struct shell_judge *judge, size_t word, char kind, unsigned all)
{
	unsigned use = use_of_kind(kind) | all;
	size_t colon;

	if (use)
		shell_judge_use(judge, word, 0, use | (judge->tree ? SHELL_TREE : 0));
	colon = kind == 'v' ? behind(judge->words[word].text, ":") : 0;
	if (colon)
		shell_judge_use(judge, word, colon, SHELL_READS);
}

static void take_operands(struct shell_judge *judge)
{
	const char *kinds = judge->row->operands;
	size_t count = judge->operand_count, shift = 0;
	bool multiple = false; /* a word may become several: positions are unknown */
	unsigned all = 0;
	char shortened[16];

	for (size_t i = 0; i < count; i++) {
		if (!kinds)
			shell_judge_guess(judge, judge->operands[i]);
		else if (shell_judge_is_multiple(&judge->words[judge->operands[i]]))
			multiple = true;
	}
	if (!kinds)
		return;
	if (judge->first_taken)
		shift = 1;
	snprintf(shortened, sizeof(shortened), "%s", kinds + shift);
	if (judge->last_taken && shortened[0])
		shortened[strlen(shortened) - 1] = '\0';
	for (size_t i = 0; multiple && shortened[i]; i++)
		all |= use_of_kind(shortened[i]);
	for (size_t i = 0; i < count; i++)
		take_operand(judge, judge->operands[i],
			shortened[0] ? kind_at(shortened, i, count) : 'B', all);
}

/* For `cp a b/c d`: adds d, and d/a and d/c in case d is a directory. */
static void take_target(struct shell_judge *judge)
{
	const char *kinds = judge->row->operands;
	size_t count = judge->operand_count, word = judge->target_word;
	unsigned use = SHELL_WRITES;

	if (!kinds || !strpbrk(kinds, "dD"))
		return;
	if (!word && count)
		word = judge->operands[--count];
	/* cp -r writes through links that are in the target; mv does not. */
	if (judge->tree || strchr(kinds, 'D'))
		use |= SHELL_TREE | (strchr(kinds, 'B') ? 0 : SHELL_FOLLOWS);
	for (size_t i = 0; i < count; i++) {
		const char *text = judge->words[judge->operands[i]].text;
		size_t length = strlen(text);
		cleanup_free char *name = NULL;

		while (length > 1 && text[length - 1] == '/')
			length--;
		name = strndup(text, length);
		if (name)
			shell_judge_use_below(
				judge, word, judge->target_offset, path_name(name), use);
		else
			judge->no_memory = true;
	}
}

static bool has_kind(const struct shell_row *row, char kind)
{
	return row->operands && strchr(row->operands, kind);
}

static void take_here(struct shell_judge *judge)
{
	const struct shell_row *row = judge->row;
	size_t texts = row->operands && !judge->first_taken ? strspn(row->operands, "t") : 0;

	if (row->operands && row->operands[texts] == '*')
		texts = 0;
	if (row->flags & SHELL_ROW_TREE)
		shell_judge_use_path(judge, ".", SHELL_READS | SHELL_TREE | SHELL_FROM_ROOT);
	else if (judge->operand_count <= texts && (row->flags & SHELL_ROW_HERE || judge->tree))
		shell_judge_use_path(judge, ".",
			SHELL_READS | (judge->tree || has_kind(row, 'R') ? SHELL_TREE : 0) |
				(has_kind(row, 'g') ? SHELL_FOLLOWS_FILES : 0));
}

/* ---- Inner commands ------------------------------------------------------------------------- */

void shell_judge_inner(
	struct shell_judge *judge, size_t from, size_t to, const char *placeholder, bool open)
{
	struct shell_program_answer *answer = judge->answer;
	size_t count = to - from;

	if (from >= to)
		return;
	if (answer->inner) {
		shell_judge_ask(judge, "%.40s runs more than one command", answer->name);
		return;
	}
	answer->inner = calloc(count + 1, sizeof(*answer->inner));
	if (!answer->inner) {
		judge->no_memory = true;
		return;
	}
	for (size_t i = 0; i < count; i++) {
		answer->inner[i] = judge->words[from + i];
		if (placeholder && strstr(answer->inner[i].text, placeholder))
			answer->inner[i] = (struct shell_word){.text = ""};
	}
	if (open)
		answer->inner[count++] = (struct shell_word){.text = "", .split = true};
	answer->inner_count = count;
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

static bool is_name_in(const char *names, const char *name)
{
	size_t length = strlen(name);

	while (*names) {
		size_t size = strcspn(names, " ");

		if (size == length && memcmp(names, name, length) == 0)
			return true;
		names += size + strspn(names + size, " ");
	}
	return false;
}

static const struct shell_row *find_row(
	const struct shell_row *rows, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (is_name_in(rows[i].names, name))
			return &rows[i];
	return NULL;
}

const struct shell_row *shell_row_find(const char *name)
{
	static const struct shell_rows *const groups[] = {
		&shell_rows_git, &shell_rows_packages, &shell_rows_other};
	const struct shell_row *row = NULL;

	for (size_t i = 0; i < array_size(groups) && !row; i++)
		row = find_row(groups[i]->rows, groups[i]->count, name);
	return row;
}

/* Sets `plain_from` and `prefix`: where the sub-command is, and the words that PERMISSION_ALWAYS
 * covers. */
static void note_prefix(struct shell_judge *judge, size_t operands)
{
	struct shell_program_answer *answer = judge->answer;
	size_t value = judge->option_count ? judge->options[judge->option_count - 1].value_word : 0;

	if (operands && judge->first_taken && value) { /* python -m MODULE */
		answer->prefix = answer->plain_from = value + 1;
		return;
	}
	for (size_t i = 0; i < operands && shell_judge_operand(judge, i); i++) {
		if (answer->prefix <= 1)
			answer->plain_from = judge->operands[i];
		answer->prefix = judge->operands[i] + 1;
	}
}

static void judge_row(struct shell_judge *judge, const struct shell_row *row, size_t at)
{
	static const struct shell_row unknown = {.names = ""};
	const char *name;

	judge->row = row;
	judge->operand_count = 0;
	if (row->flags & SHELL_ROW_AT_FILES)
		check_at_files(judge);
	take_words(judge, at);
	if (row->commands && judge->operand_count) {
		note_prefix(judge, 1);
		name = shell_judge_operand(judge, 0);
		judge->parent = row;
		if (name)
			snprintf(judge->label + strlen(judge->label),
				sizeof(judge->label) - strlen(judge->label), " %s", name);
		if (!name)
			shell_judge_ask(judge, "what %.40s does is not known before it runs",
				judge->answer->name);
		row = name ? find_row(row->commands, row->command_count, name) : NULL;
		judge_row(judge, row ? row : &unknown, judge->operands[0] + 1);
		return;
	}
	note_prefix(judge, row->prefix);
	if (!(row->flags & SHELL_ROW_ONLY_READS))
		judge->not_proved = true;
	if (!(row->flags & (SHELL_ROW_ONLY_READS | SHELL_ROW_KEEPS_NAMES)))
		judge->changes_names = true;
	if (row->flags & SHELL_ROW_CHANGES_SHELL)
		shell_judge_ask(judge, "%s changes how what follows it runs%s", judge->label,
			strcmp(judge->label, "cd") == 0
				? ": begin with \"cd DIR &&\", or give the directory as workdir"
				: "");
	if (row->flags & SHELL_ROW_RUNS_OTHERS)
		shell_judge_ask(
			judge, "%s can run other commands, or set what is run", judge->label);
	if (row->flags & SHELL_ROW_INNER) {
		if (judge->operand_count > row->skip)
			shell_judge_inner(
				judge, judge->operands[row->skip], judge->count, NULL, false);
		judge->answer->transparent =
			row->flags & SHELL_ROW_TRANSPARENT && judge->answer->inner;
		if (!(row->flags & SHELL_ROW_TRANSPARENT))
			judge->answer->prefix = judge->count;
	}
	if (judge->parent && judge->parent->look)
		judge->parent->look(judge);
	if (row->look)
		row->look(judge);
	if (!(row->flags & SHELL_ROW_INNER) && !judge->operands_taken)
		take_operands(judge);
	take_target(judge);
	take_here(judge);
}

/* Whether the path is a system directory; elsewhere the program may be another one of that name. */
static bool is_system_path(const char *path)
{
	static const char *const folders[] = {"/bin/", "/usr/bin/", "/usr/local/bin/"};

	for (size_t i = 0; i < array_size(folders); i++)
		if (strncmp(path, folders[i], strlen(folders[i])) == 0 &&
			!strchr(path + strlen(folders[i]), '/'))
			return true;
	return !strchr(path, '/');
}

static void judge_program(struct shell_judge *judge)
{
	static const struct shell_row unknown = {.names = ""};
	const struct shell_word *word = &judge->words[0];
	const struct shell_row *row = shell_row_find(judge->answer->name);

	snprintf(judge->label, sizeof(judge->label), "%.30s", judge->answer->name);
	if (!word->known || word->glob) {
		shell_judge_ask(judge, "which program it runs is not known before it runs");
		row = NULL;
	}
	judge_row(judge, row ? row : &unknown, 1);
	if (!is_system_path(word->text)) {
		shell_judge_use(judge, 0, 0, SHELL_READS);
		judge->not_proved = judge->changes_names = true;
		judge->answer->transparent = false;
	}
	add_uses_elsewhere(judge);
}

int shell_program_judge(
	const struct shell_word *words, size_t count, struct shell_program_answer *ret_answer)
{
	struct shell_program_answer answer = {
		.name = path_name(words[0].text), .plain_from = 1, .prefix = 1};
	struct shell_judge judge = {.words = words,
		.count = count,
		.answer = &answer,
		.operands = calloc(count, sizeof(*judge.operands))};

	if (judge.operands)
		judge_program(&judge);
	if (!judge.operands || judge.no_memory) {
		shell_program_answer_done(&answer);
	} else {
		answer.only_reads = !judge.not_proved && !answer.reason[0];
		answer.changes_names = judge.changes_names;
		*ret_answer = answer;
	}
	free(judge.operands);
	free(judge.options);
	free(judge.directory);
	return judge.no_memory || !judge.operands ? -ENOMEM : 0;
}

void shell_program_answer_done(struct shell_program_answer *answer)
{
	for (size_t i = 0; i < answer->use_count; i++)
		free(answer->uses[i].path);
	free(answer->uses);
	free(answer->inner);
	free(answer->inner_line);
	*answer = (struct shell_program_answer){0};
}
