/*
 * tools/shell.h - which simple commands a command line runs, as far as that can be known.
 *
 * The line is parsed with tree-sitter-bash.  Every command in it counts by itself: in
 * pipelines, lists, functions, $( ), <( ), and in what `bash -c`, `eval`, `env`, `xargs`,
 * `find -exec` and the like run.  What cannot be known is said to be so.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { SHELL_COMMANDS_MAX = 500 };

struct shell_command {
	char *text;      /* its words, with one blank between; without what is not known */
	char *plain;     /* the same without what may stand around a name that a rule denies: "git
			  * push" for "X=1 /usr/bin/git -C d push" */
	char *remember;  /* the beginning that "always" should cover: "npm run", "ls" */
	bool open_ended; /* more words follow, which are not known before it runs */
	bool unknown;    /* what it does is not known: its name, words that may be paths, or
			  * that it runs something which is not in the line */
};

struct shell_analysis {
	struct shell_command *commands;
	size_t count;
	char **outside; /* paths outside the root that are named, as they are written */
	size_t outside_count;
	bool understood;    /* false: it could not be parsed, or has too much in it */
	const char *reason; /* why not, or why something in it is unknown; static; or NULL */
};

/* `root` is the absolute path of the root where the command runs (NULL: unknown) and
 * `directory` the one below it that it runs in ("": the root).  0 or -ENOMEM. */
int shell_analyse(const char *line, const char *root, const char *directory,
	struct shell_analysis *ret_analysis);
void shell_analysis_done(struct shell_analysis *analysis);

/* False where the parser is not built in: then nothing is understood. */
bool shell_can_parse(void);
