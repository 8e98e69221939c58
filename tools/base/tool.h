/*
 * tools/base/tool.h - the interface of a tool, and the state of a call.
 *
 * A tool is one file with one `const struct tool` and a row in the table of tools/tools.c.
 * The command line, the MCP server and the tests run it only through tool_run() (tools/run.h),
 * which checks the arguments against the schema, asks for permission, registers the call with the
 * mount (so that the log has its id), executes it and measures its time.
 *
 * Results: a call ends with success, with `data` for programs and `text` for models and people,
 *          each complete on its own, or with one error that says what to do next.
 * Errors:  functions that take a call return 0, or -1 after tool_fail() recorded the error.
 * Threads: one thread at a time uses a call; calls of one session run in parallel.
 *          tool_cancel() may be called by any thread or signal handler.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"
#include "ops/support/log_record.h"
#include "tools/base/files.h"

struct jobs;
struct permission_question;
struct permissions;
struct tool_call;

/* How much a call can do to the workspace, in ascending order. */
enum tool_level { TOOL_READ, TOOL_MODIFY, TOOL_DANGEROUS };

enum tool_error_code {
	TOOL_OK,
	TOOL_NOT_FOUND,
	TOOL_NOT_A_FILE,
	TOOL_NOT_A_DIRECTORY,
	TOOL_ALREADY_EXISTS,
	TOOL_PERMISSION_DENIED,
	TOOL_PATH_OUTSIDE_ROOT,
	TOOL_INVALID_ARGUMENT,
	TOOL_NO_MATCH,
	TOOL_AMBIGUOUS_MATCH,
	TOOL_NO_CHANGE,
	TOOL_CONFLICT,
	TOOL_SYNTAX_ERROR,
	TOOL_TOO_LARGE,
	TOOL_BINARY_FILE,
	TOOL_TIMEOUT,
	TOOL_ABORTED,
	TOOL_NO_SPACE,
	TOOL_IO_ERROR,
	TOOL_NOT_CONNECTED,
	TOOL_UNSUPPORTED,
	TOOL_EXIT_STATUS,
	TOOL_RATE_LIMITED,
};

/* Output limits of every tool; the lower one applies.  Output is cut at line ends only. */
enum { TOOL_OUTPUT_MAX_LINES = 2000, TOOL_OUTPUT_MAX_BYTES = 51200 };

enum tool_hints { /* further MCP annotations */
	TOOL_IS_DESTRUCTIVE = 1 << 0,
	TOOL_IS_IDEMPOTENT = 1 << 1,
	TOOL_IS_OPEN_WORLD = 1 << 2,
	/* MCP results have structuredContent, which several hosts show instead of the text.  For
	 * tools whose results have parts that one text would mix up. */
	TOOL_IS_STRUCTURED = 1 << 3,
};

struct tool {
	const char *name;        /* [a-z_], at most 40 bytes; unique */
	const char *label;       /* for people: "Read file" */
	const char *description; /* for models: when to use the tool, and its limits */
	const char *
		input_schema; /* JSON Schema of the arguments: an object, see tools/base/schema.h */
	const char *data_schema;    /* JSON Schema of the result's data: an object */
	const cJSON *parsed_schema; /* input_schema of a custom tool; else NULL */
	enum tool_level level;      /* of a call, unless `permission` decides */
	unsigned hints;             /* enum tool_hints */
	unsigned uses;              /* enum permission_use of the argument `path`; 0: rules about
				     * this tool match commands, not paths */

	/* Optional: gives arguments that models know by other names, or in other units, those of
	 * the schema, which is checked then. */
	void (*adapt)(cJSON *arguments);

	/* Optional: checks what the schema cannot express, before a permission question.  Calls
	 * that a rule denies have failed before.  With `asks_first`, messages must not reveal
	 * anything about the content of `path`. */
	int (*validate)(struct tool_call *call);

	/* Optional: asks for permission, by one permission_ask() for each action of the call
	 * (tools/permission/permission.h).  NULL: tool_run() asks once, at `level`, about the
	 * argument `path`. */
	int (*permission)(struct tool_call *call);

	/* Required: executes the call, and sets its `data` and `text`. */
	int (*execute)(struct tool_call *call);
};

enum tool_phase { TOOL_PHASE_CALL, TOOL_PHASE_PARTIAL, TOOL_PHASE_RESULT };

/* Receives output while a call runs. */
struct tool_sink {
	/* Optional: a piece of output as it arrives.  Never empty; `text` is valid during this call
	 * only. */
	void (*update)(void *user, const char *text, size_t size);

	/* Optional: the result so far, which replaces the one before. */
	void (*partial)(void *user, const char *text, size_t size);

	/* Optional: the drawing by a custom tool of its call, partial result or result, for a
	 * person, with escape sequences for a terminal with `width` columns.  `text` NULL: the tool
	 * cannot draw this phase. */
	void (*drawn)(void *user, enum tool_phase phase, const char *text);
	int width;
	bool expanded; /* the drawing should not be shortened */
	void *user;
};

enum tool_question_kind { TOOL_ASK_SELECT, TOOL_ASK_CONFIRM, TOOL_ASK_INPUT, TOOL_ASK_EDITOR };

/* A question of a custom tool to a person.  All strings except `title` may be NULL. */
struct tool_question {
	enum tool_question_kind kind;
	const char *title, *message, *placeholder, *prefill;
	const cJSON *options; /* select: an array of one or more strings */
	long long timeout_ms; /* 0: none */
};

/* One root directory that calls work in. */
struct tool_session {
	struct files_root root;
	char *control_socket;            /* of the mount of the root; NULL: not on a mount */
	char *mount_point;               /* set with control_socket */
	char *workspace_path;            /* path of the root in the workspace of that mount */
	struct permissions *permissions; /* whoever set it frees it; NULL: all is allowed */
	atomic_bool lacks_project_rules; /* they were unreachable; no call runs without them */
	char *problem;                   /* why the root cannot be used; NULL: it can */
	const char *user, *conversation; /* for the log; NULL: not known */
	atomic_bool no_bash;             /* no bash where commands run: use sh */
	struct jobs *jobs;               /* commands in the background */
	bool keeps_jobs;                 /* more calls follow, so background jobs are possible */
};

/* Opens `directory` as the root.  0 or -errno. */
int tool_session_open(const char *directory, struct tool_session *ret_session);
void tool_session_close(struct tool_session *session);

struct tool_image {      /* a picture in the result, beside the text */
	char *mime_type; /* NULL: none */
	struct buffer bytes;
};

/* One call of a tool: created by tool_call_new(); results are valid after tool_run(). */
struct tool_call {
	const struct tool *tool;
	struct tool_session *session;
	cJSON *arguments; /* an object; the check adds the schema's defaults */
	char call_id[64];
	char agent[LOG_NAME_MAX_BYTES + 1]; /* the client program, for the log; "": not known */
	char *conversation;                 /* NULL: that of the session */
	char *user;                         /* NULL: that of the session */
	int queued;                         /* messages of the user that wait for the agent */
	struct tool_sink sink;
	/* Returns names that resemble that of a missing path, for the caller to free, or NULL.  Set
	 * by tool_run(). */
	char *(*near_names)(const struct tool_call *call, const char *path);
	void *state; /* private data of the tool, from validate to execute */
	void (*state_free)(void *state);

	/* Asks a permission question and returns an enum permission_answer
	 * (tools/permission/permission.h).  NULL: there is no person to ask. */
	int (*ask_permission)(struct tool_call *call, const struct permission_question *question);
	/* Asks a person, and waits.  Returns a string (TOOL_ASK_CONFIRM: a boolean) that the caller
	 * deletes; NULL: no answer.  The pointer is NULL if there is no person to ask. */
	cJSON *(*ask_user)(struct tool_call *call, const struct tool_question *question);
	void (*tell_user)(struct tool_call *call, const char *message); /* may be NULL */
	void *asker;     /* data of the three functions above */
	bool deferred;   /* ended in order to ask: the client repeats the call with the answer */
	bool asks_first; /* a rule asks about `path`: show nothing of it before the answer */
	bool approved;   /* a person allowed it, for this call or for the session */

	cJSON *data;         /* an object; on failure the output so far, or NULL */
	struct buffer text;  /* UTF-8 without NUL */
	struct buffer notes; /* from a custom tool, for the user only */
	char *remark;        /* for models, beside `text`; NULL: none */
	struct tool_image image;

	enum tool_error_code code; /* TOOL_OK: no failure so far */
	char *message;             /* for people: what failed, on what, why */
	char *ai_message;          /* for models: `message` and the next step */
	bool recoverable;

	int exit_code; /* of `isthmus tool`; 0: success ends with 0, a failure with 1 */
	double latency_ms;
	pid_t thread;       /* that runs it; set on a mount */
	char *search_path;  /* PATH at the workspace, where a command was not found; NULL: not known
			     */
	bool mount_ended;   /* the mount knows that it has ended, and said `last_seq` */
	uint64_t first_seq; /* of the mount's log, or of that of tools; 0: none */
	uint64_t last_seq;

	atomic_bool cancelled;
	int cancel_fd; /* eventfd; readable once the call is cancelled */
};

/* Takes ownership of `arguments` (NULL: none).  `call_id` NULL: generates one.
 * NULL: no memory, or no descriptor left. */
struct tool_call *tool_call_new(struct tool_session *session, const struct tool *tool,
	cJSON *arguments, const char *call_id);
void tool_call_free(struct tool_call *call);

/* ---- For tools ------------------------------------------------------------ */

/* Makes the call end soon with ABORTED, and stops the command that it runs. */
void tool_cancel(struct tool_call *call);
static inline bool tool_cancelled(struct tool_call *call)
{
	return atomic_load_explicit(&call->cancelled, memory_order_relaxed);
}

/* NULL: not known. */
static inline const char *tool_conversation(const struct tool_call *call)
{
	return call->conversation ? call->conversation : call->session->conversation;
}

/* Records a failure; the first one of a call counts.  `next_step`: what the model should do next;
 * NULL: the text of tool_error_info().  Always returns -1. */
int tool_fail(struct tool_call *call, enum tool_error_code code, const char *next_step,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Records a failed system call: `Cannot ACTION "PATH": why`.  For a missing path, the next step
 * lists similar names.  `error` is -errno.  Always returns -1. */
int tool_fail_errno(struct tool_call *call, int error, const char *action, const char *path);

/* Adds a sentence to the failure that was recorded. */
void tool_fail_more(struct tool_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Called after a search that `found` something or nothing.  If the mount knows that its link is
 * down: -1 with NOT_CONNECTED recorded if nothing was found, else 0 with a sentence in
 * `*ret_notice`, which the caller shows and frees.  0 if the link is up, or there is no link. */
int tool_check_search(struct tool_call *call, const char *path, bool found, char **ret_notice);

/* Registers the calling thread with the mount as one that works for the call. */
void tool_join_thread(struct tool_call *call);

/* Called by tool_run() around a call on a mount: the log records the operations of the calling
 * thread under the call's id. */
void tool_mount_begin(struct tool_call *call);
void tool_mount_end(struct tool_call *call);

/* Passes output to the sink, if there is one; does not add it to `text`. */
void tool_update(struct tool_call *call, const char *text, size_t size);

/* Appends to `text`.  0, or -1: no memory (recorded). */
int tool_text(struct tool_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Adds a line for models beside the text. */
void tool_remark(struct tool_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Arguments, after the check by the schema.  NULL or `fallback`: the argument is absent. */
const char *tool_string(const struct tool_call *call, const char *name);
int64_t tool_integer(const struct tool_call *call, const char *name, int64_t fallback);
double tool_number(const struct tool_call *call, const char *name, double fallback);
bool tool_flag(const struct tool_call *call, const char *name);

/* The argument `name` as a path below the root ("" is the root, and the value of an absent
 * argument).  The caller frees it.  0, or -1 with PATH_OUTSIDE_ROOT or the like recorded. */
int tool_path(struct tool_call *call, const char *name, char **ret_path);

/* ---- Texts for codes and levels ------------------------------------------- */

struct tool_error_info {
	const char *name;      /* "NOT_FOUND" */
	const char *next_step; /* for models, one or two sentences */
	bool recoverable;      /* a call with other arguments may succeed */
};

/* Never NULL. */
const struct tool_error_info *tool_error_info(enum tool_error_code code);

/* The code for an errno, and its text for people.  `error` is -errno. */
enum tool_error_code tool_error_from_errno(int error, const char **ret_reason);

const char *tool_level_name(enum tool_level level); /* "READ" */
