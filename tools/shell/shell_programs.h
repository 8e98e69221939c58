/*
 * tools/shell/shell_programs.h - judges what one simple command does, by its words.
 *
 * A table has a row per program: its options, which of its words are files that it reads or
 * writes, which of them must ask, and where an inner command begins (env, xargs, find -exec).
 * An answer claims only what the row proves.  A program without a row may do anything: each of its
 * words then counts as a path that it may read and write.
 * The caller handles assignments and redirections.  Paths are returned as written: relative to the
 * working directory, with "~", "..", links and patterns unresolved.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A word, as far as it is known before the line runs. */
struct shell_word {
	/* The word after quote removal.  `glob`: a pattern in which quoted * ? [ \ have a \ before
	 * them.  Not `known`: the known prefix, or "". */
	const char *text;
	bool known; /* false: it has an expansion with an unknown value */
	bool glob;  /* bash replaces it by the file names that match, if any */
	bool split; /* unknown and unquoted: may become any number of words */
};

enum shell_use {
	SHELL_READS = 1 << 0,
	SHELL_WRITES = 1 << 1,
	SHELL_TREE = 1 << 2,      /* also everything below it */
	SHELL_FOLLOWS = 1 << 3,   /* in a directory, also the targets of links below it */
	SHELL_FROM_ROOT = 1 << 4, /* the path is below the root: not where the program runs */
	SHELL_DELETES = 1 << 5,
	SHELL_FOLLOWS_FILES = 1 << 6, /* with SHELL_TREE: follows links below it to files only */
};

/* A word, or a part of one (-oFILE, --opt=FILE, @FILE, HEAD:FILE), that is a path. */
struct shell_program_use {
	char *path;
	unsigned use; /* enum shell_use */
	bool known;   /* false: `path` is only the beginning of the path */
	bool glob;    /* `path` is a pattern */
	size_t word;  /* index of the word; 0: no word names it (rg alone reads ".") */
};

struct shell_program_answer {
	/* words[0] after its last "/", which rules compare.  Never NULL. */
	const char *name;

	struct shell_program_use *uses;
	size_t use_count;

	/* The table proves that the command only prints, apart from reading `uses` and running
	 * `inner`.  It is allowed without a rule. */
	bool only_reads;

	/* It may make links, or replace names, so that paths lead elsewhere after it.  Does not
	 * count what `inner` does. */
	bool changes_names;

	/* Not "": why no rule can allow the command ("git -c can run commands"). */
	char reason[160];

	/* The inner command: words of `words`, unknown words for "{}" and for what xargs adds; or a
	 * line for bash (bash -c, eval).  NULL: none.  `inner[i].text` is borrowed. */
	struct shell_word *inner;
	size_t inner_count;
	char *inner_line;
	size_t inner_line_word; /* the word that is the line; 0: the line joins several words */
	bool transparent;       /* only runs the inner command: env, nice, timeout, bash -c */
	bool repeats;           /* may run the inner command several times: xargs, find -exec */

	/* Rules that deny see the name and the words from words[plain_from] on, which leaves out
	 * options before a sub-command ("git -C d push" is "git push").  1: nothing is left out. */
	size_t plain_from;
	size_t prefix; /* words that PERMISSION_ALWAYS covers: "ls" 1, "npm test" 2, "npm run x" 3
			*/
};

/*
 * Judges a command of `count` (1 or more) words; words[0] is the program.  Takes time linear in
 * their length.  0 or -ENOMEM.  The answer borrows strings from `words`.
 */
int shell_program_judge(
	const struct shell_word *words, size_t count, struct shell_program_answer *ret_answer);

/* Frees the members of the answer, which may be all zero. */
void shell_program_answer_done(struct shell_program_answer *answer);

/* Whether setting the variable for a command only changes how its output looks (LC_ALL, TZ,
 * NO_COLOR).  Any other variable may change what some command does or runs. */
bool shell_variable_is_harmless(const char *name, size_t length);
