/*
 * tools/permission/permission.h - may this call do that?
 *
 * Rules say allow, ask or deny by tool and pattern; the last that matches wins.  Without one,
 * READ and MODIFY are allowed and DANGEROUS asks.  Rules come from the user (his
 * configuration, --policy) and from the project (.isthmus.json in the root), whose rules can
 * only make the user's stricter.  The caller decides how questions are answered: on a terminal,
 * by MCP elicitation, or not at all.
 *
 * In a pattern `*` stands for anything, slashes and blanks too; "git *" matches "git" as well.
 * Where a rule that asks or denies is about paths, "secret" and "secret/" hold for all that is in
 * that directory, a leading "**" and slash also match nothing, and "/secret" counts from the root,
 * as does its whole path.  It also holds when links lead there.  Rules about `read` hold for every
 * tool that shows names or content, rules about `write` for every tool that changes files: there
 * they can only make its own rules stricter.
 *
 * Threads: any.
 */
#pragma once

#include "tools/permission/guard.h"
#include "tools/base/tool.h"

struct permissions;

enum permission_action { PERMISSION_ALLOW, PERMISSION_ASK, PERMISSION_DENY }; /* ordered */

enum permission_source { PERMISSION_FROM_USER, PERMISSION_FROM_PROJECT };

/* Without a rule.  -ENOMEM. */
int permissions_new(struct permissions **ret_permissions);
void permissions_free(struct permissions *permissions);

/* One rule, the last so far.  `tool` "*" is every tool; the strings are copied.
 * -E2BIG, -ENOMEM. */
int permissions_add(struct permissions *permissions, enum permission_source source,
	const char *tool, const char *pattern, enum permission_action action);

/* The rules of {"permissions": [{"tool", "pattern", "action"}, ...]}.  0, or -errno with a
 * sentence in `problem`: a file that is there but wrong must not be taken for no rules. */
int permissions_parse(struct permissions *permissions, enum permission_source source,
	const char *json, size_t size, struct buffer *problem);

/* The user's file ($XDG_CONFIG_HOME/isthmus/tools.json) and `policy` (may be NULL); the former may
 * be missing. */
int permissions_load(struct permissions *permissions, const struct files_root *root,
	const char *policy, struct buffer *problem);

/* Loads the project's file, which may be missing.  No verdict may be asked for before or meanwhile.
 */
int permissions_load_project(
	struct permissions *permissions, const struct files_root *root, struct buffer *problem);

/* What the rules, and what was always allowed in this session, say. */
enum permission_action permissions_verdict(struct permissions *permissions, const char *tool,
	enum tool_level level, const char *subject);

enum permission_use {
	PERMISSION_READS = 1 << 0,  /* names or content are shown */
	PERMISSION_WRITES = 1 << 1, /* it is changed, made or deleted */
	PERMISSION_LINK = 1 << 2,   /* a link as the last name is meant itself */
};

/* What the rules say about a use of `path`, which is below the root and leads to `real` (NULL: to
 * itself).  `tool` NULL: the path is a word of a command, and only the rules about `read` and
 * `write` count.  TOOL_DANGEROUS asks without a rule.  What was settled does not count. */
enum permission_action permissions_path_verdict(const struct permissions *permissions,
	const char *tool, enum tool_level level, unsigned uses, const char *path, const char *real);

/* Judges the other names of a file, its hard links: those that a rule which asks or denies names,
 * without wildcards.  `path` is a name that is not a link; NULL: whether there are any such names.
 * What other rules say of those is not known without looking for all of them. */
enum permission_action permissions_other_names_verdict(const struct permissions *permissions,
	const struct files_root *root, const char *tool, unsigned uses, const char *path);

/* What was allowed for the rest of the session of what the rules ask about: ALLOW or ASK. */
enum permission_action permissions_settled(
	struct permissions *permissions, const char *tool, const char *subject);

/* True when a rule that asks or denies is about the tool. */
bool permissions_restrict(const struct permissions *permissions, const char *tool);

/* True when the user's rules allow the tool everything and no other rule is about it. */
bool permissions_allow_all(struct permissions *permissions, const char *tool);

/* True when the last of the user's rules that is about the subject allows it and names it: its
 * pattern begins with `name` literally, followed by "/", ":" or nothing.  For what is refused
 * unless a rule means exactly that. */
bool permissions_name(const struct permissions *permissions, const char *tool, const char *subject,
	const char *name);

/* Allows what the pattern matches for the rest of the session.  The project's rules, and
 * those that deny, still count. */
void permissions_remember(struct permissions *permissions, const char *tool, const char *pattern);

/* ---- Questions -------------------------------------------------------------------- */

enum permission_answer {
	PERMISSION_ONCE,
	PERMISSION_ALWAYS, /* and for the rest of the session what `remember` says */
	PERMISSION_NO,
	PERMISSION_UNANSWERED, /* the client closed the question, or nobody came to it */
	PERMISSION_NOBODY,     /* there is nobody to ask */
	PERMISSION_LATER,      /* the question goes out with the answer to this call */
};

struct permission_question {
	enum tool_level level;
	const char *sentence; /* for people: "Edit file: src/a.c" */
	const char *reason;   /* more words for people, or NULL: "it leaves the root: /etc" */
	const char *const *remember; /* patterns that "always" would allow */
	size_t remember_count;       /* 0: "always" is not offered */
};

/* Appends the question as a person should see it: nothing in it moves the cursor, changes the
 * direction or hides, long runs of blanks are counted, further lines are indented.  0 or -errno. */
int permission_question_text(const struct permission_question *question, struct buffer *out);

/* One thing that a call is about to do. */
struct permission_subject {
	const char *text;     /* what rules match: "src/a.c", "git push" */
	const char *plain;    /* what rules that ask or deny match, too; or NULL */
	const char *remember; /* pattern for "always"; NULL: not offered */
	bool must_ask;        /* no rule allows it: it is not known what it does */
	bool asks;            /* asks without a rule, whatever the level */
	bool only_reads;      /* a command that is TOOL_READ, whatever the others are */
	unsigned uses;        /* enum permission_use: `text` is a path below the root; see below */
};

/* Asks at most one question about all of them.  0, or -1 (recorded): one is denied, or the
 * answer was no.  Paths are judged where their links lead, too; a change of a guarded file
 * (tools/permission/guard.h) is TOOL_DANGEROUS.  What `text` names need not exist.  `remember` and
 * `plain` of a path are ignored: "always" holds for where it leads, and is not offered within a
 * command. */
int permission_ask_all(struct tool_call *call, enum tool_level level,
	const struct permission_subject *subjects, size_t count, const char *sentence,
	const char *reason);

/* `text` as a pattern that matches nothing else.  The caller frees it; NULL: no memory. */
char *permission_literal(const char *text);

/* The same for one subject, which "always" allows as it is. */
int permission_ask(
	struct tool_call *call, enum tool_level level, const char *subject, const char *sentence);

/* The same for one path and `uses` (enum permission_use). */
int permission_ask_path(struct tool_call *call, enum tool_level level, unsigned uses,
	const char *path, const char *sentence);

/* Before anything is read: fails when the rules deny what the tool does to the argument `path`.
 * Sets `asks_first` when they ask. */
int permission_deny_early(struct tool_call *call);

/* The same for one of several paths, which the tool names itself. */
int permission_deny_path_early(struct tool_call *call, unsigned uses, const char *path);

/* ---- Entries of directories ---------------------------------------------------------- */

/* Judges entries below a directory for a call.  No question is asked for an entry: one about which
 * the rules ask is left out, unless the call's own question was answered with yes.
 * Threads: any, between init and done. */
struct permission_filter {
	const struct tool_call *call;
	unsigned uses;      /* enum permission_use, of the entries */
	size_t base_length; /* of the directory's path */
	char *real_base;    /* where that leads; NULL: to itself */
	bool has_names;     /* a file that a rule names has other names, too */
	atomic_ullong left_out;
};

/* `path`: the directory. */
void permission_filter_init(struct permission_filter *filter, const struct tool_call *call,
	unsigned uses, const char *path);
void permission_filter_done(struct permission_filter *filter);

/* Of one entry, by its path below the root. */
enum permission_action permission_filter_verdict(
	const struct permission_filter *filter, enum tool_level level, const char *path);

/* False (and counted) for an entry that the call must not show, nor look into. */
bool permission_filter_shows(struct permission_filter *filter, const char *path);

/* Tells the call's text and data how many were left out; nothing when there were none. */
void permission_filter_report(const struct permission_filter *filter, struct tool_call *call);

#define cleanup_filter cleanup_with(permission_filter_done)

/* For call->near_names: without those that rules keep from the call. */
char *permission_near_names(const struct tool_call *call, const char *path);
