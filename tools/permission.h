/*
 * tools/permission.h - may this call do that?
 *
 * Rules say allow, ask or deny by tool and pattern; the last that matches wins.  Without one,
 * READ and MODIFY are allowed and DANGEROUS asks.  Rules come from the user (his
 * configuration, --policy) and from the project (.isthmus.json in the root), whose rules can
 * only make the user's stricter.  Who answers a question is the asker's affair: a terminal,
 * MCP elicitation, nobody.
 *
 * In a pattern `*` stands for anything, slashes and blanks too; "git *" matches "git" as well.
 * Threads: any.
 */
#pragma once

#include "tools/tool.h"

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

/* The user's file ($XDG_CONFIG_HOME/isthmus/tools.json), `policy` (may be NULL) and the
 * project's file; those that do not exist are left out, but `policy` must. */
int permissions_load(struct permissions *permissions, const struct files_root *root,
	const char *policy, struct buffer *problem);

/* What the rules, and what was always allowed in this session, say. */
enum permission_action permissions_verdict(struct permissions *permissions, const char *tool,
	enum tool_level level, const char *subject);

/* True when the user's rules allow the tool everything and no other rule is about it. */
bool permissions_allow_all(struct permissions *permissions, const char *tool);

/* Allows what the pattern matches for the rest of the session.  The project's rules, and
 * those that deny, still count. */
void permissions_remember(struct permissions *permissions, const char *tool, const char *pattern);

/* ---- Questions -------------------------------------------------------------------- */

enum permission_answer {
	PERMISSION_ONCE,
	PERMISSION_ALWAYS, /* and for the rest of the session what `remember` says */
	PERMISSION_NO,
	PERMISSION_NOBODY, /* there is nobody to ask */
	PERMISSION_LATER,  /* the question goes out with the answer to this call */
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
};

/* Asks at most one question about all of them.  0, or -1 (recorded): one is denied, or the
 * answer was no. */
int permission_ask_all(struct tool_call *call, enum tool_level level,
	const struct permission_subject *subjects, size_t count, const char *sentence,
	const char *reason);

/* `text` as a pattern that matches nothing else.  The caller frees it; NULL: no memory. */
char *permission_literal(const char *text);

/* The same for one subject, which "always" allows as it is. */
int permission_ask(
	struct tool_call *call, enum tool_level level, const char *subject, const char *sentence);

/* True for what decides what runs with the next "git status", and for the project's rules: to
 * change that is as dangerous as a command. */
bool permission_guards(const char *path);

/* The same for a path below the root.  Rules that ask or deny also look at where its links lead
 * (`follow` false: not the last one's). */
int permission_ask_path(struct tool_call *call, enum tool_level level, const char *path,
	bool follow, const char *sentence);
