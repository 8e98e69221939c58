/*
 * tools/shell/shell.h - what a command line does, as far as that can be known before it runs.
 *
 * The line is parsed (tools/shell/shell_parse.h), each simple command in it is looked up in a table
 * (tools/shell/shell_programs.h), also in ( ), $( ), and in what env, xargs, bash -c and the like
 * run, and each path is followed to where it leads (tools/shell/shell_paths.h). Threads: any.
 */
#pragma once

#include "tools/shell/shell_paths.h"

enum { SHELL_COMMANDS_MAX = 500 };

/* A simple command.  Words have quotes where they are not plain letters, so that no two different
 * commands have the same text; "${...}" stands for what is not known. */
struct shell_step {
	char *text;      /* settings and words, with one blank between */
	char *plain;     /* without what may stand around a name that a rule denies: "git push" for
			  * "X=1 /usr/bin/git -C d push" */
	char *remember;  /* the beginning that "always" should cover: "npm run x", "ls" */
	bool only_reads; /* proved: it needs no rule */
	bool must_ask;   /* no rule may allow it */
};

struct shell_analysis {
	struct shell_step *steps;
	size_t count;
	struct shell_paths paths;
	char *line;       /* to run when rules allow it: the line as it was parsed, printed again.
			   * NULL: nothing of it is known but `reason` */
	bool must_ask;    /* no rule may allow the line */
	char reason[200]; /* why that, or why a step must ask: "it ..."; "" */
};

/* `settings` are what stands in front of every command, as "A=1 B=2 "; "" for none.
 * 0 or -ENOMEM. */
int shell_analyse(const struct shell_context *context, const char *settings, const char *line,
	struct shell_analysis *ret_analysis);

/* The same for one program and its arguments, without a shell; `line` stays NULL. */
int shell_analyse_words(const struct shell_context *context, const char *const *argv,
	struct shell_analysis *ret_analysis);

void shell_analysis_done(struct shell_analysis *analysis);

/* True for a setting that only changes how output looks, and names no path. */
bool shell_setting_is_harmless(const char *name, size_t length, const char *value);

/* True for PATH, LD_PRELOAD, IFS and others that change what a command name means or does: no rule
 * may allow to set one. */
bool shell_variable_is_special(const char *name, size_t length);
