/*
 * tools/shell/shell_programs_internal.h - the rows of the table of programs, and the functions that
 * interpret them.
 *
 * `options` and `operands` are strings in a small language, so that a program is one row:
 *
 *   options   tokens separated by blanks: "-nr" are two flags, "--name" is one.  Marks after the
 *             name say what the option does:
 *               :  takes a value           =  may have an attached value (--color=x)
 *               #  as =, or the next word is the value if it is a number (make -j 4)
 *               <  reads the file that its value names    >  writes it    &  both
 *               @  its value may be @FILE, NAME=@FILE or NAME=<FILE, which it reads
 *               ~  its value is the working directory
 *               +  takes a name before its value (jq --arg NAME VALUE)
 *               ^  replaces the first operand (grep -e)     $  replaces the last one (cp -t)
 *               *  operands include everything below them (grep -r)
 *               !  can run other commands: asks        %  can change what is read or run: asks
 *               /  follows links to any place: asks    ?  does more than read, but need not ask
 *               |  makes links, or replaces names      ;  may name a file: -DX=FILE
 *             A row with options has all that need not ask: any other one asks, and so does an
 *             abbreviation.
 *   operands  the meaning of the words that are not options, by position; "x*": any number of x:
 *               t  text     r  a file that is read     w  written     b  both
 *               R W B  the same, with everything below F  as R, following links
 *               d D  w W; if it is a directory, the other operands are written in it
 *               x  as w, deleted          X  as x, with everything below
 *               g  as r; a recursion follows links to files (busybox grep -r)
 *               v  a revision, a file or REVISION:FILE
 *             NULL: each operand may be a file that is read and written.
 */
#pragma once

#include "tools/shell/shell_programs.h"

enum shell_row_flags {
	/* Without a mark, options and operands only read. */
	SHELL_ROW_ONLY_READS = 1 << 0,
	/* In addition, every option, even of later versions, only changes the output: unknown words
	 * are harmless. */
	SHELL_ROW_ANY_OPTION = 1 << 1,
	SHELL_ROW_PLAIN_WORDS = 1 << 2,    /* no options: every word is an operand (echo) */
	SHELL_ROW_STOPS = 1 << 3,          /* the options end at the first operand */
	SHELL_ROW_WORD_OPTIONS = 1 << 4,   /* -name is one option, not four (find, go, gcc) */
	SHELL_ROW_INNER = 1 << 5,          /* the operands after the first `skip` are a command */
	SHELL_ROW_TRANSPARENT = 1 << 6,    /* only runs the inner command */
	SHELL_ROW_HERE = 1 << 7,           /* reads the working directory if it has no operands */
	SHELL_ROW_TREE = 1 << 8,           /* may read everything below the root: git log -p */
	SHELL_ROW_INHERITS = 1 << 9,       /* sub-command: also takes the options of its program */
	SHELL_ROW_AT_FILES = 1 << 10,      /* @FILE stands for words in a file: asks */
	SHELL_ROW_CHANGES_SHELL = 1 << 11, /* a built-in that changes later commands: asks */
	SHELL_ROW_PLUS_OPTIONS = 1 << 15,  /* +x is an option as well (bash +x, cargo +nightly) */
	SHELL_ROW_SEPARATE_VALUES = 1 << 14, /* values are separate: -oFILE means -o -F -I -L -E */
	SHELL_ROW_RUNS_OTHERS = 1 << 13,     /* runs commands that no row can describe: asks */
	/* Writes, but makes no links, and removes or replaces no names: paths that were resolved
	 * before lead to the same files after it. */
	SHELL_ROW_KEEPS_NAMES = 1 << 12,
};

struct shell_judge;

struct shell_row {
	const char *names; /* separated by blanks */
	const char *options;
	const char *operands;
	unsigned flags;
	unsigned skip;   /* operands before the inner command (timeout 5 CMD) */
	unsigned prefix; /* operands that PERMISSION_ALWAYS covers */
	/* Called after options and operands were judged, for what those cannot express.  May be
	 * NULL. */
	void (*look)(struct shell_judge *judge);
	const struct shell_row *commands; /* sub-commands, named by the first operand */
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

/* An option among the words. */
struct shell_option {
	const char *name; /* without "-"; borrowed from the word */
	size_t length;
	size_t value_word, value_offset; /* where its value begins; 0: no value */
};

/* The state of one shell_program_judge(). */
struct shell_judge {
	const struct shell_word *words;
	size_t count;
	const struct shell_row *row;    /* of the program, later of its sub-command */
	const struct shell_row *parent; /* with a sub-command: the row of the program */
	struct shell_program_answer *answer;
	size_t *operands; /* indexes into words */
	size_t operand_count;
	struct shell_option *options;
	size_t option_count;
	char label[48];  /* for messages: "git rebase" */
	char *directory; /* working directory set by options with ~; NULL: none */
	size_t directory_word;
	bool directory_known;
	bool first_taken, last_taken;      /* an option with ^, $ was seen */
	size_t target_word, target_offset; /* the value of the option with $ */
	bool operands_taken;               /* `look` has judged the operands */
	bool tree;                         /* an option with * was seen */
	bool not_proved;                   /* not proved to only read */
	bool changes_names;                /* an option with | was seen */
	bool no_memory;
};

/* The command must ask, for this reason; the first reason counts. */
void shell_judge_ask(struct shell_judge *judge, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Adds the path words[word].text + offset. */
void shell_judge_use(struct shell_judge *judge, size_t word, size_t offset, unsigned use);

/* Adds a path that no word names. */
void shell_judge_use_path(struct shell_judge *judge, const char *path, unsigned use);

/* Adds the path of `name` below the directory words[word].text + offset. */
void shell_judge_use_below(
	struct shell_judge *judge, size_t word, size_t offset, const char *name, unsigned use);

/* Adds the paths that a word without a known meaning may contain. */
void shell_judge_guess(struct shell_judge *judge, size_t word);

/* words[from, to) are the inner command.  `open`: an unknown number of words follows.  Words that
 * contain `placeholder` (NULL: none) are unknown. */
void shell_judge_inner(
	struct shell_judge *judge, size_t from, size_t to, const char *placeholder, bool open);

/* Makes room for one more entry in a list whose size doubles; NULL: no memory. */
void *shell_judge_grow(void *list, size_t count, size_t size);

/* Sets the program's working directory to words[word].text + offset. */
void shell_judge_go_to(struct shell_judge *judge, size_t word, size_t offset);

/* shell_programs_options.c: judge the options in one word, "--long" (after `dashes` dashes) or
 * "-xyz".  Return the index of the last word that they use. */
size_t shell_judge_take_long(struct shell_judge *judge, size_t word, size_t dashes);
size_t shell_judge_take_short(struct shell_judge *judge, size_t word);

/* Whether bash may expand the word to several words. */
bool shell_judge_is_multiple(const struct shell_word *word);

/* The marks of an option in the row, which end at a blank; NULL: the row does not have it. */
const char *shell_row_option(const struct shell_row *row, const char *name, size_t length);

/* Applies the marks of an option whose value is words[word].text + offset. */
void shell_judge_marks(struct shell_judge *judge, const char *option, size_t length,
	const char *marks, size_t word, size_t offset);

/* Whether the words have that option. */
bool shell_judge_has_option(const struct shell_judge *judge, const char *name);

/* words[index]; NULL: there is none, or it is not a single known word. */
const char *shell_judge_fixed(const struct shell_judge *judge, size_t index);

/* Operand `index`; NULL: there is none, or it is not a single known word. */
const char *shell_judge_operand(const struct shell_judge *judge, size_t index);

/* How many of the first characters are ASCII letters, digits or in `others`. */
size_t shell_plain_length(const char *text, const char *others);

/* shell_programs_looks.c, shell_programs_network.c */
void shell_look_cmake(struct shell_judge *judge);
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
void shell_look_gcc(struct shell_judge *judge);
void shell_look_git(struct shell_judge *judge);
void shell_look_git_clean(struct shell_judge *judge);
void shell_look_git_init(struct shell_judge *judge);
void shell_look_git_remote(struct shell_judge *judge);
void shell_look_git_branch(struct shell_judge *judge);
void shell_look_git_config(struct shell_judge *judge);
void shell_look_git_transport(struct shell_judge *judge);
void shell_look_gzip(struct shell_judge *judge);
void shell_look_less(struct shell_judge *judge);
void shell_look_make(struct shell_judge *judge);
void shell_look_set(struct shell_judge *judge);
void shell_look_shell(struct shell_judge *judge);
void shell_look_ssh(struct shell_judge *judge);
void shell_look_tar(struct shell_judge *judge);
void shell_look_test(struct shell_judge *judge);
void shell_look_trap(struct shell_judge *judge);
void shell_look_unzip(struct shell_judge *judge);
void shell_look_watch(struct shell_judge *judge);
void shell_look_wget(struct shell_judge *judge);
void shell_look_xargs(struct shell_judge *judge);

/* shell_programs_scripts.c: programs that run scripts in their own language. */
void shell_look_awk(struct shell_judge *judge);
void shell_look_jq(struct shell_judge *judge);
void shell_look_printf(struct shell_judge *judge);
void shell_look_sed(struct shell_judge *judge);
bool shell_sed_only_prints(const char *script);
bool shell_awk_only_prints(const char *program);
bool shell_jq_only_prints(const char *program);
