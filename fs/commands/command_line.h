/*
 * fs/commands/command_line.h - reading a command's options, and saying which word is wrong and what
 * was probably meant.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The known word that is nearest to a mistyped one. */
struct command_guess {
	const char *word;
	const char *nearest; /* NULL: none is near */
	size_t steps;        /* letters to insert, delete, change or swap */
};

void command_guess_init(struct command_guess *guess, const char *word);
void command_guess_offer(struct command_guess *guess, const char *candidate); /* keeps it */

/* Puts a value, or a word, into what it is for: 0, the exit code after saying what is wrong, or
 * -errno. */
typedef int (*command_setter)(void *into, const char *value);

/* One option: a flag, a value that is kept as it is, or a value that is read by `set`. */
struct command_option {
	const char *name;   /* --name; NULL: it has a letter only */
	char letter;        /* -l; 0: it has a name only */
	bool *flag;         /* becomes true */
	const char **value; /* becomes the word of argv */
	command_setter set;
	void *into; /* of `set` */
};

enum { COMMAND_OPTIONS_MAX = 32 }; /* of a command */

struct command_line {
	const char *command;
	const char *usage;                    /* what -h and --help print */
	const struct command_option *options; /* beside those two; {0} ends them; or NULL */
	int arguments_max;                    /* may follow the options or stand between them */
	command_setter argument; /* gets each of them; what follows "--" is left.  NULL: all are */
	void *into;              /* of `argument` */
};

/* Reads the options of argv; what is left begins at argv[optind].  False: the command ends with
 * `*ret_code`, as help was asked for or something is wrong, which was said. */
bool command_parse(const struct command_line *line, int argc, char **argv, int *ret_code);
