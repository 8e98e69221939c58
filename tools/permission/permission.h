/*
 * tools/permission/permission.h - permission rules and questions.
 *
 * A rule says allow, ask or deny for a tool and a pattern; the last rule that matches counts.
 * Without a matching rule, READ and MODIFY are allowed and DANGEROUS asks.  Rules come from the
 * user (configuration file, --policy) and from the project (.isthmus.json in the root); a project's
 * rules can only restrict what the user's allow.  The caller decides how a question is asked: on a
 * terminal, by MCP elicitation, or not at all.
 *
 * In a pattern `*` matches any text, including slashes and blanks; "git *" also matches "git".  In
 * a rule about paths that asks or denies, "secret" and "secret/" also match everything in that
 * directory, a leading "**" with its slash also matches the empty text, and "/secret" and its
 * absolute path are relative to the root.  Such a rule also matches a path that leads there by
 * symbolic links.  Rules about `read` apply to every tool that shows names or content, rules about
 * `write` to every tool that changes files, rules about `delete` to what commands delete; for other
 * tools than their own they can only restrict.
 *
 * Threads: any.
 */
#pragma once

#include "tools/permission/guard.h"
#include "tools/base/tool.h"

struct permissions;

enum permission_action { PERMISSION_ALLOW, PERMISSION_ASK, PERMISSION_DENY }; /* ordered */

enum permission_source { PERMISSION_FROM_USER, PERMISSION_FROM_PROJECT };

/* Creates an empty set of rules.  0 or -ENOMEM. */
int permissions_new(struct permissions **ret_permissions);
void permissions_free(struct permissions *permissions);

/* Adds a rule after the others.  `tool` "*" means every tool; the strings are copied.
 * 0, -E2BIG, -ENOMEM. */
int permissions_add(struct permissions *permissions, enum permission_source source,
	const char *tool, const char *pattern, enum permission_action action);

/* Adds the rules of {"permissions": [{"tool", "pattern", "action"}, ...]}.  0, or -errno with a
 * sentence in `problem`; an invalid file must not count as one without rules. */
int permissions_parse(struct permissions *permissions, enum permission_source source,
	const char *json, size_t size, struct buffer *problem);

/* Loads the user's file ($XDG_CONFIG_HOME/isthmus/tools.json), if it exists, and `policy` (may be
 * NULL). */
int permissions_load(struct permissions *permissions, const struct files_root *root,
	const char *policy, struct buffer *problem);

/* Loads the project's file, if it exists.  No other function may use `permissions` before it
 * returns.
 */
int permissions_load_project(
	struct permissions *permissions, const struct files_root *root, struct buffer *problem);

/* The verdict of the rules and of what was allowed for the rest of the session. */
enum permission_action permissions_verdict(struct permissions *permissions, const char *tool,
	enum tool_level level, const char *subject);

enum permission_use {
	PERMISSION_READS = 1 << 0,   /* shows names or content */
	PERMISSION_WRITES = 1 << 1,  /* changes, creates or deletes */
	PERMISSION_DELETES = 1 << 3, /* besides: rules about the tool `delete` restrict it */
	PERMISSION_LINK = 1 << 2,    /* if the last name is a symbolic link, uses the link itself */
};

/* The verdict of the rules on a use of `path`, which is below the root and leads to `real` (NULL:
 * to itself).  `tool` NULL: the path is a word of a command; only the rules about `read` and
 * `write` apply.  Without a matching rule TOOL_DANGEROUS asks.  Ignores what was allowed for the
 * session. */
enum permission_action permissions_path_verdict(const struct permissions *permissions,
	const char *tool, enum tool_level level, unsigned uses, const char *path, const char *real);

/* The verdict on the other hard links of a file, as far as rules that ask or deny name them without
 * wildcards.  `path` is not a symbolic link; NULL: asks whether any rule names a file with several
 * links.  Rules with wildcards are not checked: that would need a search for all links. */
enum permission_action permissions_other_names_verdict(const struct permissions *permissions,
	const struct files_root *root, const char *tool, unsigned uses, const char *path);

/* The verdict of the project's rules alone; -1: none of them matches.  `tool` NULL, and `uses` not
 * 0: the subject is a path in a command. */
int permissions_project_verdict(const struct permissions *permissions, const char *tool,
	unsigned uses, const char *subject);

/* ALLOW if a person has allowed the subject for the rest of the session, else ASK. */
enum permission_action permissions_settled(
	struct permissions *permissions, const char *tool, const char *subject);

/* Whether any rule that asks or denies applies to the tool. */
bool permissions_restrict(const struct permissions *permissions, const char *tool);

/* Whether the user's rules allow everything to the tool and no other rule applies to it. */
bool permissions_allow_all(struct permissions *permissions, const char *tool);

/* Whether the last of the user's rules that matches the subject allows it and names it: the pattern
 * begins with the literal `name`, followed by "/", ":" or the end.  For subjects that are refused
 * unless a rule was written for exactly them. */
bool permissions_name(const struct permissions *permissions, const char *tool, const char *subject,
	const char *name);

/* Allows what the pattern matches for the rest of the session.  The project's rules, and rules that
 * deny, still apply. */
void permissions_remember(struct permissions *permissions, const char *tool, const char *pattern);

/* ---- Questions -------------------------------------------------------------------- */

enum permission_answer {
	PERMISSION_ONCE,
	PERMISSION_ALWAYS, /* also allow the `remember` patterns for the rest of the session */
	PERMISSION_NO,
	PERMISSION_UNANSWERED, /* the client closed the question, or the time ran out */
	PERMISSION_NOBODY,     /* there is no person to ask */
	PERMISSION_BUSY,       /* too many other questions wait for an answer */
	PERMISSION_LATER,      /* the result of this call will carry the question */
};

struct permission_question {
	enum tool_level level;
	const char *sentence;        /* for people: "Edit file: src/a.c" */
	const char *reason;          /* for people, or NULL: "it leaves the root: /etc" */
	const char *const *remember; /* patterns that PERMISSION_ALWAYS would allow */
	size_t remember_count;       /* 0: PERMISSION_ALWAYS is not offered */
};

/* Appends the question in a form that cannot deceive: characters that move the cursor, change the
 * writing direction or are invisible are escaped, long runs of blanks are replaced by their count,
 * further lines are indented.  0 or -errno. */
int permission_question_text(const struct permission_question *question, struct buffer *out);

/* One action of a call. */
struct permission_subject {
	const char *text;     /* what rules match: "src/a.c", "git push" */
	const char *plain;    /* rules that ask or deny match this as well; or NULL */
	const char *remember; /* pattern for PERMISSION_ALWAYS; NULL: not offered */
	bool must_ask;        /* its effect is unknown: no rule can allow it */
	bool asks;            /* asks unless a rule allows it, at every level */
	bool only_reads;      /* a command of level TOOL_READ, whatever the level of the call */
	unsigned uses;        /* enum permission_use; not 0: `text` is a path below the root */
};

/* Asks at most one question about all actions.  0, or -1 (recorded): a rule denies one, or the
 * answer was no.  A path is judged by its own name and by where its links lead; a change of a
 * guarded file (tools/permission/guard.h) is TOOL_DANGEROUS.  The path need not exist.  For paths
 * `remember` and `plain` are ignored: PERMISSION_ALWAYS covers the path that the links lead to, and
 * is not offered for paths in a command. */
int permission_ask_all(struct tool_call *call, enum tool_level level,
	const struct permission_subject *subjects, size_t count, const char *sentence,
	const char *reason);

/* A pattern that matches exactly `text`.  The caller frees it; NULL: no memory. */
char *permission_literal(const char *text);

/* permission_ask_all() for one subject; PERMISSION_ALWAYS allows exactly that subject. */
int permission_ask(
	struct tool_call *call, enum tool_level level, const char *subject, const char *sentence);

/* The same for one path and `uses` (enum permission_use). */
int permission_ask_path(struct tool_call *call, enum tool_level level, unsigned uses,
	const char *path, const char *sentence);

/* If the argument `path` of a tool that shows content names nothing, and one name that the rules do
 * not hide looks the same: replaces the argument, and says so in the call's remark. */
void permission_take_look_alike(struct tool_call *call);

/* Called before the call reads anything: fails if the rules deny the tool's use of the argument
 * `path`; sets `asks_first` if they ask. */
int permission_deny_early(struct tool_call *call);

/* The same for a path that the tool passes, if the call has several. */
int permission_deny_path_early(struct tool_call *call, unsigned uses, const char *path);

/* ---- Entries of directories ---------------------------------------------------------- */

/* Decides which entries below a directory a call may show.  It asks no questions: an entry for
 * which the rules ask is left out, unless a person has allowed the call.
 * Threads: any, between init and done. */
struct permission_filter {
	const struct tool_call *call;
	unsigned uses;      /* enum permission_use of the entries */
	size_t base_length; /* of the directory's path */
	char *real_base;    /* the path with links followed; NULL: the same */
	bool has_names;     /* a file that a rule names has other hard links */
	bool lacks_memory;  /* real_base is unknown: nothing is shown */
	atomic_ullong left_out;
};

/* `path`: the directory. */
void permission_filter_init(struct permission_filter *filter, const struct tool_call *call,
	unsigned uses, const char *path);
void permission_filter_done(struct permission_filter *filter);

/* The verdict on an entry with this path below the root. */
enum permission_action permission_filter_verdict(
	const struct permission_filter *filter, enum tool_level level, const char *path);

/* False if the call must neither show nor open the entry; counts it in `left_out`. */
bool permission_filter_shows(struct permission_filter *filter, const char *path);

/* Adds the number of entries that were left out, if any, to the call's text and data. */
void permission_filter_report(const struct permission_filter *filter, struct tool_call *call);

#define cleanup_filter cleanup_with(permission_filter_done)

/* tool_call.near_names: leaves out names that the rules hide from the call. */
char *permission_near_names(const struct tool_call *call, const char *path);
