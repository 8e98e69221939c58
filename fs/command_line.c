#include "fs/command_line.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/commands.h"
#include "ops/support/cleanup.h"

enum { WORD_MAX = 32 };

/* ---- What was meant -------------------------------------------------------------------- */

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Letters to insert, delete, change or swap with their neighbour to make one of the other. */
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

static void complain_long(const char *command, const char *word, const struct option *known)
{
	cleanup_free char *name = strndup(word + 2, strcspn(word + 2, "="));
	struct command_guess guess;

	command_guess_init(&guess, name ? name : "");
	for (const struct option *option = known; option->name; option++)
		command_guess_offer(&guess, option->name);
	if (guess.nearest && guess.steps == 0)
		command_usage_error(command, "\"--%s\" takes no value", guess.nearest);
	else if (guess.nearest)
		command_usage_error(command, "there is no option \"--%s\"; did you mean \"--%s\"?",
			guess.word, guess.nearest);
	else
		command_usage_error(command, "there is no option \"--%s\"", guess.word);
}

/* Also of "--name=value" where the option takes none: then optopt is set, too. */
static bool is_long(const char *word)
{
	return strncmp(word, "--", 2) == 0 && (!optopt || strchr(word, '='));
}

int command_getopt(
	const char *command, int argc, char **argv, const char *letters, const struct option *known)
{
	int option;

	opterr = 0;
	optopt = 0;
	option = getopt_long(argc, argv, letters, known, NULL);
	if (option == ':')
		command_usage_error(command, "option \"%s\" needs a value", argv[optind - 1]);
	else if (option == '?' && is_long(argv[optind - 1]))
		complain_long(command, argv[optind - 1], known);
	else if (option == '?')
		command_usage_error(command, "there is no option \"-%c\"", optopt);
	return option == ':' ? '?' : option;
}
