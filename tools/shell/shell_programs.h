/*
 * tools/shell/shell_programs.h - what one simple command does, as far as its words say.
 *
 * A table has a row per program: its options, which of its words are files that it reads or
 * writes, what must be asked, and where a command inside it begins (env, xargs, find -exec).
 * It only vouches for what a row proves.  A program without a row may do anything: each of its
 * words is then taken as a path that it may read and write.
 * Assignments and redirections are the caller's.  Paths are as written: relative to the working
 * directory, with "~", "..", links and patterns unresolved.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* One word, as far as it is known before the line runs. */
struct shell_word {
	/* After quote removal.  When `glob`, a pattern: what was quoted of * ? [ \ has a \ before
	 * it.  When not `known`, the known beginning ("" if none). */
	const char *text;
	bool known; /* false: an expansion in it has a value that is not known */
	bool glob;  /* becomes the file names that match, if any do */
	bool split; /* not known, and not quoted: becomes any number of any words */
};

enum shell_use {
	SHELL_READS = 1 << 0,
	SHELL_WRITES = 1 << 1,
	SHELL_TREE = 1 << 2,    /* and what is below it */
	SHELL_FOLLOWS = 1 << 3, /* and, if it is a directory, what links below it lead to */
};

/* A word, or a part of one (-oFILE, --opt=FILE, @FILE, HEAD:FILE), that is a path. */
struct shell_program_use {
	char *path;
	unsigned use; /* of enum shell_use */
	bool known;   /* false: only the beginning of the path is known */
	bool glob;    /* `path` is a pattern */
	size_t word;  /* in which word; 0 when no word names it (rg alone reads ".") */
};

struct shell_program_answer {
	/* In words[0], after its last "/": what rules compare.  Never NULL. */
	const char *name;

	struct shell_program_use *uses;
	size_t use_count;

	/* Proved by the table: with these words it only prints, besides reading `uses` and what
	 * `inner` does.  Allowed without a rule. */
	bool only_reads;

	/* Not "": no rule may allow it, and why ("git -c can run commands"). */
	char reason[160];

	/* A command that it runs (words of `words`, or unknown ones for "{}" and for what xargs
	 * adds), or a line for bash (bash -c, eval).  NULL: none.  `inner[i].text` borrows. */
	struct shell_word *inner;
	size_t inner_count;
	char *inner_line;
	size_t inner_line_word; /* the word that is the line; 0: it is joined of several */
	bool transparent;       /* it does nothing but run that: env, nice, timeout, bash -c */

	/* words[plain_from] and on are what deny rules see behind the name: past the options
	 * before a sub-command ("git -C d push" is "git push").  1 when there are none. */
	size_t plain_from;
	size_t prefix; /* words that "always" covers: 1 for ls, 2 for "npm test", 3 for "npm run x"
			*/
};

/*
 * Judges `count` (1 or more) words; words[0] is the program.  Time is linear in their length.
 * 0 or -ENOMEM.  The answer borrows from `words`.
 */
int shell_program_judge(
	const struct shell_word *words, size_t count, struct shell_program_answer *ret_answer);

/* Frees what the answer holds; all zero is fine. */
void shell_program_answer_done(struct shell_program_answer *answer);

/* True for a variable that, set for a command, changes nothing but how its output looks (LC_ALL,
 * TZ, NO_COLOR).  Any other can change what some command does or runs. */
bool shell_variable_is_harmless(const char *name, size_t length);
