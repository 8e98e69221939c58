#include "fs/commands/command_line.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/commands/commands.h"
#include "ops/support/cleanup.h"

enum { WORD_MAX = 32 };

/* ---- Suggestions ----------------------------------------------------------------------- */

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The edit distance: letters to insert, delete, change or swap with their neighbour. */
static size_t distance(const char *from, const char *to)
{
	size_t rows[3][WORD_MAX + 1], length = strlen(to);

	if (length > WORD_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= length; j++)
		rows[0][j] = j;
	for (size_t i = 1; from[i - 1]; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= length; j++) {
			row[j] = above[j - 1] + (from[i - 1] != to[j - 1]);
			row[j] = smaller(row[j], smaller(row[j - 1], above[j]) + 1);
			if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
				row[j] = smaller(row[j], second[j - 2] + 1);
		}
		if (!from[i])
			return row[length];
	}
	return length;
}

void command_guess_init(struct command_guess *guess, const char *word)
{
	*guess = (struct command_guess){.word = word, .steps = strlen(word) / 2 + 1};
}

void command_guess_offer(struct command_guess *guess, const char *candidate)
{
	size_t steps = distance(guess->word, candidate);

	if (steps >= guess->steps)
		return;
	guess->steps = steps;
	guess->nearest = candidate;
}

/* ---- Options ----------------------------------------------------------------------------- */

/* Results of getopt_long() other than letters. */
enum {
	IS_ARGUMENT = 1,
	BY_NAME = 256, /* plus the index of an option that was given by its name */
};

static int complain_long(const char *command, const char *word, const struct option *known)
{
	cleanup_free char *name = strndup(word + 2, strcspn(word + 2, "="));
	struct command_guess guess;

	command_guess_init(&guess, name ? name : "");
	for (const struct option *option = known; option->name; option++)
		command_guess_offer(&guess, option->name);
	if (guess.nearest && guess.steps == 0)
		return command_usage_error(command, "\"--%s\" takes no value", guess.nearest);
	if (guess.nearest)
		return command_usage_error(command,
			"unknown option \"--%s\"; did you mean \"--%s\"?", guess.word,
			guess.nearest);
	return command_usage_error(command, "unknown option \"--%s\"", guess.word);
}

/* Whether the option was given by its name.  For "--name=value" of an option without a value,
 * optopt is set as well. */
static bool is_long(const char *word)
{
	return strncmp(word, "--", 2) == 0 && (!optopt || strchr(word, '='));
}

/* Handles the result `option` of getopt_long().  Returns as a command_setter does. */
static int take(
	const struct command_line *line, int option, const char *word, const struct option *names)
{
	const struct command_option *known = line->options;

	if (option == ':')
		return command_usage_error(line->command, "option \"%s\" needs a value", word);
	if (option == '?' && is_long(word))
		return complain_long(line->command, word, names);
	if (option == '?')
		return command_usage_error(line->command, "unknown option \"-%c\"", optopt);
	if (option == IS_ARGUMENT)
		return line->argument(line->into, optarg);
	if (option >= BY_NAME)
		known += option - BY_NAME;
	else
		while (known->letter != option)
			known++;
	if (known->set)
		return known->set(known->into, optarg);
	if (known->flag)
		*known->flag = true;
	else
		*known->value = optarg;
	return 0;
}

bool command_parse(const struct command_line *line, int argc, char **argv, int *ret_code)
{
	struct option names[COMMAND_OPTIONS_MAX + 2] = {{"help", no_argument, NULL, 'h'}};
	char letters[2 * COMMAND_OPTIONS_MAX + 4], *letter = letters;
	int option, name_count = 1, r = 0;

	letter = stpcpy(letter, line->argument ? "-:h" : ":h");
	for (const struct command_option *known = line->options;
		known && (known->name || known->letter); known++) {
		int has_value = known->flag ? no_argument : required_argument;

		if (known->name)
			names[name_count++] = (struct option){known->name, has_value, NULL,
				BY_NAME + (int)(known - line->options)};
		if (known->letter)
			letter += sprintf(letter, "%c%s", known->letter, known->flag ? "" : ":");
	}
	opterr = optind = 0;
	while (r == 0) {
		optopt = 0;
		option = getopt_long(argc, argv, letters, names, NULL);
		if (option < 0)
			break;
		if (option == 'h') {
			fputs(line->usage, stdout);
			*ret_code = 0;
			return false;
		}
		r = take(line, option, argv[optind - 1], names);
	}
	if (r == 0 && !line->argument && argc - optind > line->arguments_max)
		r = command_usage_error(line->command, "unexpected argument \"%s\"",
			argv[optind + line->arguments_max]);
	*ret_code = r < 0 ? command_error(line->command, "%s", strerror(-r)) : r;
	return r == 0;
}

static bool is_variable(const char *name)
{
	static const char characters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

	return *name && !name[strspn(name, characters)] && !(*name >= '0' && *name <= '9');
}

int command_add_variable(const char *command, cJSON *environment, const char *text)
{
	const char *equals = strchr(text, '=');
	cleanup_free char *name = strndup(text, equals ? (size_t)(equals - text) : strlen(text));
	const char *value = equals ? equals + 1 : getenv(text);

	if (!name)
		return -ENOMEM;
	if (!is_variable(name))
		return command_usage_error(command,
			"\"%s\" is not NAME=VALUE, with a NAME of letters, digits and _", text);
	cJSON_DeleteItemFromObjectCaseSensitive(environment, name);
	return !value || cJSON_AddStringToObject(environment, name, value) ? 0 : -ENOMEM;
}
