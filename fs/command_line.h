/*
 * fs/command_line.h - reading a command's options, and saying which word is wrong and what was
 * probably meant.
 */
#pragma once

#include <getopt.h>
#include <stddef.h>

/* The known word that is nearest to a mistyped one. */
struct command_guess {
	const char *word;
	const char *nearest; /* NULL: none is near */
	size_t steps;        /* letters to insert, delete, change or swap */
};

void command_guess_init(struct command_guess *guess, const char *word);
void command_guess_offer(struct command_guess *guess, const char *candidate); /* keeps it */

/* getopt_long(), but what is wrong is said in the words of command_usage_error(), and '?' is all
 * that it returns then.  `letters` begins with ":" (or "+:"). */
int command_getopt(const char *command, int argc, char **argv, const char *letters,
	const struct option *known);
