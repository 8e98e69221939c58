/*
 * tools/shell/shell_programs_internal.h - the rows of the table of programs, and what reads them.
 *
 * `options` and `operands` are texts, so that a program is a row:
 *
 *   options   tokens with blanks between: "-nr" are two flags, "--name" is one, and what follows
 *             the name says what the option does:
 *               :  takes a value           =  may have a value, but only attached (--color=x)
 *               #  or the next word is it, if that is a number (make -j 4)
 *               <  reads the file that its value names    >  writes it    &  both
 *               @  its value may be @FILE, NAME=@FILE or NAME=<FILE, which it reads
 *               ~  its value is the directory that it works in
 *               +  takes a name in front of its value (jq --arg NAME VALUE)
 *               ^  takes the place of the first operand (grep -e)     $  of the last (cp -t)
 *               *  makes what is below the operands count as well (grep -r)
 *               !  can run other commands: asks        %  can change what is read or run: asks
 *               /  follows links to any place: asks    ?  not only reads, but needs no question
 *   operands  what the words that are no options are, by place; "x*" is any number of x:
 *               t  text     r  a file that is read     w  written     b  both
 *               R W B  the same and what is below      F  as R, following links
 *               d D  w W, and if it is a directory, the other operands are written in it
 *               v  a revision, a file or REVISION:FILE
 *             NULL: each may be a file that it reads and writes.
 */
#pragma once

#include "tools/shell/shell_programs.h"

enum shell_row_flags {
	/* Each option that it has is in the row, as one that only reads if not marked: what is not
	 * in the row asks. */
	SHELL_ROW_ONLY_READS = 1 << 0,
	/* And no option of it does anything but change its output, those of later versions
	 * included: words that are not known do no harm. */
	SHELL_ROW_ANY_OPTION = 1 << 1,
	SHELL_ROW_PLAIN_WORDS = 1 << 2,  /* it has no options; each word is an operand (echo) */
	SHELL_ROW_STOPS = 1 << 3,        /* its options end at the first operand */
	SHELL_ROW_WORD_OPTIONS = 1 << 4, /* -name is one option, not four (find, go, gcc) */
	SHELL_ROW_INNER = 1 << 5,        /* its operands, after `skip` of them, are a command */
	SHELL_ROW_TRANSPARENT = 1 << 6,  /* and nothing else */
	SHELL_ROW_HERE = 1 << 7,         /* without operands it reads the working directory */
	SHELL_ROW_TREE = 1 << 8,      /* reads the working directory and below, whatever is named */
	SHELL_ROW_INHERITS = 1 << 9,  /* sub-command: takes the options of its program as well */
	SHELL_ROW_AT_FILES = 1 << 10, /* @FILE stands for words in a file: asks */
	SHELL_ROW_CHANGES_SHELL = 1 << 11,   /* a built-in that changes what follows: asks */
	SHELL_ROW_PLUS_OPTIONS = 1 << 15,    /* +x is an option as well (bash +x, cargo +nightly) */
	SHELL_ROW_SEPARATE_VALUES = 1 << 14, /* -o FILE but not -oFILE, which is -o and others */
	SHELL_ROW_RUNS_OTHERS = 1 << 13,     /* runs others in a way that no row can tell: asks */
	SHELL_ROW_UNKNOWN_OPTION_OK = 1 << 12, /* before a sub-command too */
};

struct shell_judge;

struct shell_row {
	const char *names; /* blanks between */
	const char *options;
	const char *operands;
	unsigned flags;
	unsigned skip;   /* operands before the inner command (timeout 5 CMD) */
	unsigned prefix; /* operands that "always" covers */
	/* Looks at what options and operands cannot say, when those are taken.  NULL: nothing. */
	void (*look)(struct shell_judge *judge);
	const struct shell_row *commands; /* sub-commands; the first operand is one */
	size_t command_count;
};

/* shell_programs_git.c, shell_programs_packages.c, shell_programs_table.c */
struct shell_rows {
	const struct shell_row *rows;
	size_t count;
};
extern const struct shell_rows shell_rows_git, shell_rows_packages, shell_rows_other;

/* NULL: no row. */
const struct shell_row *shell_row_find(const char *name);

/* An option in the words. */
struct shell_option {
	const char *name; /* without "-"; borrowed from the word */
	size_t length;
	size_t value_word, value_offset; /* 0: no value */
};

/* One call of shell_program_judge(), while it runs. */
struct shell_judge {
	const struct shell_word *words;
	size_t count;
	const struct shell_row *row;    /* of the program, then of its sub-command */
	const struct shell_row *parent; /* of the program, in a sub-command */
	struct shell_program_answer *answer;
	size_t *operands; /* indexes into words */
	size_t operand_count;
	struct shell_option *options;
	size_t option_count;
	char label[48];  /* for sentences: "git rebase" */
	char *directory; /* that ~ options lead to; NULL: none */
	size_t directory_word;
	bool directory_known;
	bool first_taken, last_taken;      /* ^, $ */
	size_t target_word, target_offset; /* the value of $ */
	bool operands_taken;               /* by `look` */
	bool deletes;                      /* find -delete */
	bool tree;                         /* * */
	bool not_proved;                   /* not only reads */
	bool no_memory;
};

/* The answer asks; the first reason stays. */
void shell_judge_ask(struct shell_judge *judge, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* words[word].text + offset is a path. */
void shell_judge_use(struct shell_judge *judge, size_t word, size_t offset, unsigned use);

/* A path that no word names. */
void shell_judge_use_path(struct shell_judge *judge, const char *path, unsigned use);

/* A path that is made of what a word names and a name below it. */
void shell_judge_use_below(
	struct shell_judge *judge, size_t word, size_t offset, const char *name, unsigned use);

/* What may be a path in a word of which nothing is known. */
void shell_judge_guess(struct shell_judge *judge, size_t word);

/* words[from, to) are a command; adds an unknown number of words when `open`.  Words that hold
 * `placeholder` (NULL: none) are not known. */
void shell_judge_inner(
	struct shell_judge *judge, size_t from, size_t to, const char *placeholder, bool open);

/* Room for one more entry in a list that doubles as it fills; NULL: no memory. */
void *shell_judge_grow(void *list, size_t count, size_t size);

/* The program works in the directory that words[word].text + offset is. */
void shell_judge_go_to(struct shell_judge *judge, size_t word, size_t offset);

/* shell_programs_options.c: the options of one word, "--long" (after so many dashes) or "-xyz"; the
 * last word that they take. */
size_t shell_judge_take_long(struct shell_judge *judge, size_t word, size_t dashes);
size_t shell_judge_take_short(struct shell_judge *judge, size_t word);

/* True for a word that may become several. */
bool shell_judge_is_multiple(const struct shell_word *word);

/* The marks of an option in the row (up to a blank), or NULL: it is not there. */
const char *shell_row_option(const struct shell_row *row, const char *name, size_t length);

/* Does what the marks of an option say; its value is words[word].text + offset. */
void shell_judge_marks(struct shell_judge *judge, const char *option, size_t length,
	const char *marks, size_t word, size_t offset);

/* True when one of the options is there. */
bool shell_judge_has_option(const struct shell_judge *judge, const char *name);

/* words[index], or NULL when there is none or it is not one word that is known. */
const char *shell_judge_fixed(const struct shell_judge *judge, size_t index);

/* Operand `index`, or NULL when there is none or it is not one word that is known. */
const char *shell_judge_operand(const struct shell_judge *judge, size_t index);

/* shell_programs_looks.c */
void shell_look_command(struct shell_judge *judge);
void shell_look_curl(struct shell_judge *judge);
void shell_look_date(struct shell_judge *judge);
void shell_look_dd(struct shell_judge *judge);
void shell_look_env(struct shell_judge *judge);
void shell_look_eval(struct shell_judge *judge);
void shell_look_exec(struct shell_judge *judge);
void shell_look_only_options(struct shell_judge *judge);
void shell_look_find(struct shell_judge *judge);
void shell_look_fd(struct shell_judge *judge);
void shell_look_git_init(struct shell_judge *judge);
void shell_look_git_remote(struct shell_judge *judge);
void shell_look_git_branch(struct shell_judge *judge);
void shell_look_git_config(struct shell_judge *judge);
void shell_look_git_transport(struct shell_judge *judge);
void shell_look_less(struct shell_judge *judge);
void shell_look_make(struct shell_judge *judge);
void shell_look_set(struct shell_judge *judge);
void shell_look_shell(struct shell_judge *judge);
void shell_look_tar(struct shell_judge *judge);
void shell_look_test(struct shell_judge *judge);
void shell_look_trap(struct shell_judge *judge);
void shell_look_unzip(struct shell_judge *judge);
void shell_look_watch(struct shell_judge *judge);
void shell_look_wget(struct shell_judge *judge);
void shell_look_xargs(struct shell_judge *judge);

/* shell_programs_scripts.c: programs in a language of their own. */
void shell_look_awk(struct shell_judge *judge);
void shell_look_jq(struct shell_judge *judge);
void shell_look_printf(struct shell_judge *judge);
void shell_look_sed(struct shell_judge *judge);
bool shell_sed_only_prints(const char *script);
bool shell_awk_only_prints(const char *program);
