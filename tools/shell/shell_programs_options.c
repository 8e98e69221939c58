/* Judges the options among the words by the row. */
#include <stdio.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "tools/shell/shell_programs_internal.h"

#define MARKS ":=#<>&@~+^$*!%/?|;"

static bool has_mark(const char *marks, char mark)
{
	size_t length = strcspn(marks, " ");

	return memchr(marks, mark, length) != NULL;
}

static bool is_group(const struct shell_row *row, const char *token, size_t length)
{
	return token[0] == '-' && token[1] != '-' &&
	       (!(row->flags & SHELL_ROW_WORD_OPTIONS) || length == 2);
}

/* The next option in a row's `options`: its name has `*ret_length` bytes, then come its marks. */
static const char *next_token(const char *at, size_t *ret_length)
{
	at += strspn(at, " ");
	*ret_length = strcspn(at, MARKS " ");
	return *at ? at : NULL;
}

const char *shell_row_option(const struct shell_row *row, const char *name, size_t length)
{
	const char *token = row->options ? row->options : "";
	size_t size;

	for (; (token = next_token(token, &size)); token += strcspn(token, " ")) {
		size_t dashes = strspn(token, "-");

		if (length == 1 && is_group(row, token, size)) {
			if (memchr(token + 1, name[0], size - 1))
				return token + size;
		} else if (length == size - dashes && memcmp(token + dashes, name, length) == 0 &&
			   !is_group(row, token, size)) {
			return token + size;
		}
	}
	return NULL;
}

static bool takes_value(const char *marks)
{
	size_t length = strcspn(marks, " ");

	for (size_t i = 0; i < length; i++)
		if (strchr(":<>&@~;", marks[i]))
			return !has_mark(marks, '=');
	return false;
}

static void note_option(
	struct shell_judge *judge, const char *name, size_t length, size_t word, size_t offset)
{
	struct shell_option *grown =
		shell_judge_grow(judge->options, judge->option_count, sizeof(*grown));

	if (!grown) {
		judge->no_memory = true;
		return;
	}
	judge->options = grown;
	grown[judge->option_count++] = (struct shell_option){
		.name = name, .length = length, .value_word = word, .value_offset = offset};
}

/* The value may name a file: -d @FILE, -F name=@FILE, -F name=<FILE. */
static void use_at_file(struct shell_judge *judge, size_t word, size_t offset)
{
	const char *value = judge->words[word].text + offset;

	for (size_t i = 0; value[i]; i++)
		if (value[i] == '@' || value[i] == '<')
			shell_judge_use(judge, word, offset + i + 1, SHELL_READS);
}

void shell_judge_marks(struct shell_judge *judge, const char *option, size_t length,
	const char *marks, size_t word, size_t offset)
{
	const char *name = judge->label, *dashes = length > 1 ? "--" : "-";
	int size = (int)(length < 40 ? length : 40);
	unsigned tree = has_mark(marks, '*') ? SHELL_TREE : 0;

	if (judge->row->flags & SHELL_ROW_WORD_OPTIONS)
		dashes = "-";
	if (has_mark(marks, '!'))
		shell_judge_ask(
			judge, "%s %s%.*s can run other commands", name, dashes, size, option);
	if (has_mark(marks, '%'))
		shell_judge_ask(judge, "%s %s%.*s can change what is read, written or run", name,
			dashes, size, option);
	if (has_mark(marks, '/'))
		shell_judge_ask(judge, "%s %s%.*s follows links, wherever they lead", name, dashes,
			size, option);
	judge->not_proved = judge->not_proved || has_mark(marks, '?');
	judge->changes_names = judge->changes_names || has_mark(marks, '|');
	judge->first_taken = judge->first_taken || has_mark(marks, '^');
	judge->last_taken = judge->last_taken || has_mark(marks, '$');
	judge->tree = judge->tree || tree;
	if (!word)
		return;
	if (has_mark(marks, '$')) {
		judge->target_word = word;
		judge->target_offset = offset;
	}
	if (has_mark(marks, '<'))
		shell_judge_use(judge, word, offset, SHELL_READS | tree);
	if (has_mark(marks, '>'))
		shell_judge_use(judge, word, offset, SHELL_WRITES | tree);
	if (has_mark(marks, '&'))
		shell_judge_use(judge, word, offset, SHELL_READS | SHELL_WRITES | tree);
	if (has_mark(marks, '@'))
		use_at_file(judge, word, offset);
	if (has_mark(marks, ';'))
		shell_judge_guess(judge, word);
	if (has_mark(marks, '~'))
		shell_judge_go_to(judge, word, offset);
}

bool shell_judge_has_option(const struct shell_judge *judge, const char *name)
{
	for (size_t i = 0; i < judge->option_count; i++)
		if (strlen(name) == judge->options[i].length &&
			memcmp(name, judge->options[i].name, judge->options[i].length) == 0)
			return true;
	return false;
}

const char *shell_judge_fixed(const struct shell_judge *judge, size_t index)
{
	const struct shell_word *word = index < judge->count ? &judge->words[index] : NULL;

	return word && word->known && !word->glob ? word->text : NULL;
}

const char *shell_judge_operand(const struct shell_judge *judge, size_t index)
{
	return index < judge->operand_count ? shell_judge_fixed(judge, judge->operands[index])
					    : NULL;
}

/* Whether the row has all options that need not ask. */
static bool is_strict(const struct shell_judge *judge)
{
	return !(judge->row->flags & SHELL_ROW_ANY_OPTION) &&
	       (judge->row->options ||
		       judge->row->flags & (SHELL_ROW_ONLY_READS | SHELL_ROW_INHERITS));
}

/* The row does not have the option. */
static void unknown_option(struct shell_judge *judge, size_t word)
{
	if (judge->row->flags & SHELL_ROW_ANY_OPTION) {
		if (strchr(judge->words[word].text, '/'))
			shell_judge_guess(judge, word);
		return;
	}
	judge->not_proved = true;
	if (is_strict(judge))
		shell_judge_ask(judge, "what %.40s %.60s does is not known", judge->label,
			judge->words[word].text);
	shell_judge_guess(judge, word);
}

static const char *find_option(struct shell_judge *judge, const char *name, size_t length)
{
	const char *marks = shell_row_option(judge->row, name, length);

	if (!marks && judge->parent && judge->row->flags & SHELL_ROW_INHERITS)
		marks = shell_row_option(judge->parent, name, length);
	return marks;
}

/* Such a word may also become an option. */
bool shell_judge_is_multiple(const struct shell_word *word)
{
	return word->glob || (!word->known && word->split);
}

/* Takes the next word as the value; returns the index of the last word that was taken. */
static size_t value_in_next(
	struct shell_judge *judge, const char *name, size_t length, const char *marks, size_t word)
{
	size_t value = word + 1 + (has_mark(marks, '+') ? 1 : 0);

	if (value >= judge->count) {
		if (is_strict(judge))
			shell_judge_ask(judge, "%s %.60s has no value", judge->label,
				judge->words[word].text);
		shell_judge_marks(judge, name, length, marks, 0, 0);
		note_option(judge, name, length, 0, 0);
		return judge->count - 1;
	}
	for (size_t i = word + 1; i <= value; i++) {
		const char *text = judge->words[i].text;

		if (shell_judge_is_multiple(&judge->words[i]))
			shell_judge_ask(judge, "the value of %s %.60s may be several words",
				judge->label, judge->words[word].text);
		/* Not all programs take a value from the next word (git log --format). */
		if (is_strict(judge) && !has_mark(marks, '^') && text[0] == '-' && text[1])
			shell_judge_ask(judge, "the value of %s %.60s may be an option: %.60s",
				judge->label, judge->words[word].text, text);
	}
	shell_judge_marks(judge, name, length, marks, value, 0);
	note_option(judge, name, length, value, 0);
	return value;
}

/* make -j 4 */
static size_t number_in_next(struct shell_judge *judge, const char *marks, size_t word)
{
	const char *next = shell_judge_fixed(judge, word + 1);

	return has_mark(marks, '#') && next && *next && !next[strspn(next, "0123456789.")]
		       ? word + 1
		       : word;
}

/* "--name", "--name=value", or "-name" with SHELL_ROW_WORD_OPTIONS. */
size_t shell_judge_take_long(struct shell_judge *judge, size_t word, size_t dashes)
{
	const struct shell_word *w = &judge->words[word];
	const char *name = w->text + dashes;
	size_t length = strcspn(name, "=");
	const char *marks = find_option(judge, name, length);

	if (!w->known && !name[length] && !(judge->row->flags & SHELL_ROW_ANY_OPTION))
		shell_judge_ask(judge, "an option of %s is not known before it runs", judge->label);
	if (!marks && dashes == 1 && length > 1) { /* -Ipath */
		marks = shell_row_option(judge->row, name, 1);
		if (marks && takes_value(marks)) {
			shell_judge_marks(judge, name, 1, marks, word, dashes + 1);
			note_option(judge, name, 1, word, dashes + 1);
			return word;
		}
		marks = NULL;
	}
	if (!marks) {
		unknown_option(judge, word);
		note_option(judge, name, length, 0, 0);
		return word;
	}
	if (name[length] == '=') {
		shell_judge_marks(judge, name, length, marks, word, dashes + length + 1);
		note_option(judge, name, length, word, dashes + length + 1);
		return word;
	}
	if (takes_value(marks))
		return value_in_next(judge, name, length, marks, word);
	shell_judge_marks(judge, name, length, marks, 0, 0);
	note_option(judge, name, length, 0, 0);
	return number_in_next(judge, marks, word);
}

/* "-abc", "-ofile", "-o file" */
size_t shell_judge_take_short(struct shell_judge *judge, size_t word)
{
	const struct shell_word *w = &judge->words[word];
	bool unknown = false, open = !w->known;
	size_t last = word;

	for (size_t i = 1; w->text[i]; i++) {
		const char *option = w->text + i, *marks = find_option(judge, option, 1);

		if (!marks) {
			unknown = true;
			continue;
		}
		if (takes_value(marks) && !option[1] && w->known) {
			last = value_in_next(judge, option, 1, marks, word);
			break;
		}
		if (takes_value(marks) || has_mark(marks, '=')) {
			size_t value = option[1] || open ? word : 0;

			shell_judge_marks(judge, option, 1, marks, value, i + 1);
			note_option(judge, option, 1, value, i + 1);
			open = open && !option[1]; /* -o"$X": an empty X takes the next word */
			if (value && judge->row->flags & SHELL_ROW_SEPARATE_VALUES)
				unknown = true;
			if (!value)
				last = number_in_next(judge, marks, word);
			break;
		}
		shell_judge_marks(judge, option, 1, marks, 0, 0);
		note_option(judge, option, 1, 0, 0);
	}
	if (open && !(judge->row->flags & SHELL_ROW_ANY_OPTION))
		shell_judge_ask(judge, "an option of %s is not known before it runs", judge->label);
	if (unknown)
		unknown_option(judge, word);
	return last;
}
