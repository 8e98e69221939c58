/*
 * tools/shell/shell.h - analyses what a command line does, before it runs.
 *
 * The line is parsed (tools/shell/shell_parse.h).  Each simple command, including those in ( ), $(
 * ) and those that env, xargs, bash -c and the like run, is looked up in a table
 * (tools/shell/shell_programs.h).  Links in each path are followed (tools/shell/shell_paths.h),
 * before the line runs: if a command may replace names, commands that use paths after it ask.
 * Threads: any.
 */
#pragma once

#include "tools/shell/shell_paths.h"

enum { SHELL_COMMANDS_MAX = 500 };

/* A simple command.  Words that are not plain letters are quoted, so that different commands have
 * different texts; "${...}" stands for an unknown value. */
struct shell_step {
	char *text;      /* assignments and words, separated by one blank */
	char *plain;     /* without assignments, directory and options before a sub-command, for
			  * rules that deny: "git push" for "X=1 /usr/bin/git -C d push" */
	char *remember;  /* the prefix that PERMISSION_ALWAYS covers: "npm run x", "ls" */
	bool only_reads; /* the table proves that it only reads: needs no rule */
	bool implied;    /* what another command does too, such as "rm -r ." for "find -delete":
			  * needs no rule, but rules can ask or deny */
	bool must_ask;   /* no rule can allow it */
};

struct shell_analysis {
	struct shell_step *steps;
	size_t count;
	struct shell_paths paths;
	char *line;       /* the parsed line, printed again; this is run if rules allow it.  NULL:
			   * the line could not be parsed, see `reason` */
	char *directory;  /* where `line` runs, below the root, if it began with "cd DIR &&"; else
			   * NULL */
	bool must_ask;    /* no rule can allow the line */
	char reason[200]; /* why the line or a step must ask: "it ..."; "": none must */
};

/* `settings`: assignments that apply to every command, such as "A=1 B=2 "; "": none.
 * 0 or -ENOMEM. */
int shell_analyse(const struct shell_context *context, const char *settings, const char *line,
	struct shell_analysis *ret_analysis);

/* The same for one program and its arguments, without a shell; `line` stays NULL. */
int shell_analyse_words(const struct shell_context *context, const char *const *argv,
	struct shell_analysis *ret_analysis);

void shell_analysis_done(struct shell_analysis *analysis);

/* Whether the assignment only changes how output looks, and its value is no path. */
bool shell_setting_is_harmless(const char *name, size_t length, const char *value);

/* Whether the variable changes what a command name means or does (PATH, LD_PRELOAD, IFS and
 * others): no rule can allow setting it. */
bool shell_variable_is_special(const char *name, size_t length);

/* Variables that programs read have upper-case names by convention; one with lower-case letters is
 * used by the line only. */
bool shell_variable_is_private(const char *name);

/* False for names of commands with unusual characters, which might look like another name, and for
 * those that a program in front of them takes for its option: flock FILE -c LINE. */
bool shell_name_is_plain(const char *name);
