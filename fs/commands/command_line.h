/*
 * fs/commands/command_line.h - parses the options of a command, and suggests the nearest known word
 * for a mistyped one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* A search for the known word that is nearest to a mistyped one. */
struct command_guess {
	const char *word;
	const char *nearest; /* NULL: none is near */
	size_t steps;        /* distance: letters to insert, delete, change or swap */
};

void command_guess_init(struct command_guess *guess, const char *word);
void command_guess_offer(struct command_guess *guess, const char *candidate); /* keeps it */

/* Parses the value of an option, or an argument, and stores it in `into`.  0; the exit status,
 * after a message; or -errno. */
typedef int (*command_setter)(void *into, const char *value);

/* An option: a flag, a value that is stored as it is, or a value that `set` parses. */
struct command_option {
	const char *name;   /* --name; NULL: only a letter */
	char letter;        /* -l; 0: only a name */
	bool *flag;         /* set to true */
	const char **value; /* set to the word in argv */
	command_setter set;
	void *into; /* of `set` */
};

enum { COMMAND_OPTIONS_MAX = 32 }; /* per command */

struct command_line {
	const char *command;
	const char *usage;                    /* printed by -h and --help */
	const struct command_option *options; /* besides -h and --help; {0} ends them; or NULL */
	int arguments_max;       /* arguments, which may be after or between the options */
	command_setter argument; /* parses each, up to "--"; NULL: all arguments stay in argv */
	void *into;              /* of `argument` */
};

/* Adds "NAME=VALUE", or NAME with the value that it has here (none: nothing), to an object.  0; the
 * exit status, after a message; -ENOMEM. */
int command_add_variable(const char *command, struct cJSON *environment, const char *text);

/* Parses argv; the remaining words begin at argv[optind].  False: the command must end with the
 * exit status `*ret_code`, after printing the help or an error. */
bool command_parse(const struct command_line *line, int argc, char **argv, int *ret_code);
