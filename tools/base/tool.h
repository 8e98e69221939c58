/*
 * tools/base/tool.h - what every tool of the agent edge has in common.
 *
 * A tool is one file with one `const struct tool`, with a row in the table of tools/tools.c.
 * The command line, the MCP server and the tests reach it through tool_run() (tools/run.h) only,
 * which checks the arguments against the schema, asks for permission, registers the call with the
 * mount (so that the log carries its id), runs it and times it.
 *
 * Results: a call ends in success with `data` (for programs) and `text` (for models and
 *          people, complete on its own), or in one error that says what to do next.
 * Errors:  functions that take a call return 0, or -1 after tool_fail() recorded why.
 * Threads: a call belongs to one thread at a time; calls of one session run side by side.
 *          tool_cancel() may come from any thread or signal handler.
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

/* What a call can do to the workspace; ordered. */
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

/* Output limits of every tool: whichever comes first, whole lines only. */
enum { TOOL_OUTPUT_MAX_LINES = 2000, TOOL_OUTPUT_MAX_BYTES = 51200 };

enum tool_hints { /* MCP annotations beyond the level */
	TOOL_IS_DESTRUCTIVE = 1 << 0,
	TOOL_IS_IDEMPOTENT = 1 << 1,
	TOOL_IS_OPEN_WORLD = 1 << 2,
	/* Over MCP its results have structuredContent, which several hosts then show instead of the
	 * text: for results whose parts a text would mix up. */
	TOOL_IS_STRUCTURED = 1 << 3,
};

struct tool {
	const char *name;        /* [a-z_], at most 40 bytes; unique */
	const char *label;       /* for people: "Read file" */
	const char *description; /* for models: when to use it, limits */
	const char *
		input_schema; /* JSON Schema of the arguments: an object, see tools/base/schema.h */
	const char *data_schema;    /* JSON Schema of the result's data: an object */
	const cJSON *parsed_schema; /* input_schema of a tool found at run time; else NULL */
	enum tool_level level;      /* the highest that `permission` leaves out; see there */
	unsigned hints;             /* enum tool_hints */
	unsigned uses;              /* what is done to the argument `path`: enum permission_use; 0:
				     * rules about this tool match commands, not paths */

	/* Optional: checks what the schema cannot say, before anybody is asked.  What rules deny
	 * has failed already; with `asks_first` it must not show what `path` holds. */
	int (*validate)(struct tool_call *call);

	/* Optional: asks for what the call is about to do, by permission_ask() once per thing
	 * (tools/permission/permission.h).  NULL: asked once at `level`, about the argument `path`.
	 */
	int (*permission)(struct tool_call *call);

	/* Required.  Does it: fills in `data` and `text`. */
	int (*execute)(struct tool_call *call);
};

enum tool_phase { TOOL_PHASE_CALL, TOOL_PHASE_PARTIAL, TOOL_PHASE_RESULT };

/* Where output goes while a call runs. */
struct tool_sink {
	/* Optional.  A piece of output, as it comes; never empty, valid during the call only. */
	void (*update)(void *user, const char *text, size_t size);

	/* Optional.  What the call has so far, each instead of the one before. */
	void (*partial)(void *user, const char *text, size_t size);

	/* Optional, of a custom tool that draws: what a person is to see of the call, of what it
	 * has so far, and of its result, with the escapes of a terminal that has `width` columns.
	 * NULL: it cannot draw that. */
	void (*drawn)(void *user, enum tool_phase phase, const char *text);
	int width;
	bool expanded; /* all of it is wanted */
	void *user;
};

enum tool_question_kind { TOOL_ASK_SELECT, TOOL_ASK_CONFIRM, TOOL_ASK_INPUT, TOOL_ASK_EDITOR };

/* What a custom tool asks a person.  Strings may be NULL, but for `title`. */
struct tool_question {
	enum tool_question_kind kind;
	const char *title, *message, *placeholder, *prefill;
	const cJSON *options; /* select: strings, one at least */
	long long timeout_ms; /* 0: none */
};

/* One root directory that calls work in. */
struct tool_session {
	struct files_root root;
	char *control_socket;            /* of the mount that the root is on; NULL: none */
	char *mount_point;               /* set with control_socket */
	char *workspace_path;            /* of the root, on that mount */
	struct permissions *permissions; /* freed by its setter; NULL: everything is allowed */
	atomic_bool lacks_project_rules; /* they could not be reached: no call runs without */
	char *problem;                   /* why there is no root to work in; NULL: there is */
	const char *user, *conversation; /* on whose behalf, for the log; NULL: not said */
	atomic_bool no_bash;             /* there is none where commands run: sh does */
	struct jobs *jobs;               /* commands in the background */
	bool keeps_jobs;                 /* further calls come, so that one can run on */
};

/* Opens `directory` as the root.  0 or -errno. */
int tool_session_open(const char *directory, struct tool_session *ret_session);
void tool_session_close(struct tool_session *session);

struct tool_image {      /* a picture that stands beside the text */
	char *mime_type; /* NULL: none */
	struct buffer bytes;
};

/* One use of a tool.  Made by tool_call_new(), read after tool_run(). */
struct tool_call {
	const struct tool *tool;
	struct tool_session *session;
	cJSON *arguments; /* an object; with the schema's defaults once checked */
	char call_id[64];
	char agent[LOG_NAME_MAX_BYTES + 1]; /* the client program, for the log; "": not said */
	char *conversation;                 /* when it is another one than the session's */
	char *user;                         /* on whose behalf; NULL: the session's */
	int queued;                         /* messages of the user that wait for the agent */
	struct tool_sink sink;
	/* Names like that of a missing path, which the caller frees; or NULL.  Set by tool_run().
	 */
	char *(*near_names)(const struct tool_call *call, const char *path);
	void *state; /* the tool's own, from validate to execute */
	void (*state_free)(void *state);

	/* Answers a question with an enum permission_answer (tools/permission/permission.h); NULL:
	 * there is nobody to ask. */
	int (*ask_permission)(struct tool_call *call, const struct permission_question *question);
	/* Asks a person while the tool waits.  Returns a string, for TOOL_ASK_CONFIRM a boolean,
	 * that the caller deletes; NULL: no answer.  NULL itself: there is nobody to ask. */
	cJSON *(*ask_user)(struct tool_call *call, const struct tool_question *question);
	void (*tell_user)(struct tool_call *call, const char *words); /* may be NULL */
	void *asker;                                                  /* whose these are */
	bool deferred;   /* ended only to ask: it will be called again with the answer */
	bool asks_first; /* rules ask about `path`: nothing of it may be shown before the answer */
	bool approved;   /* a person agreed, in this call or for the session */

	cJSON *data;         /* success: an object.  A failure may have it too (output so far) */
	struct buffer text;  /* UTF-8 without NUL */
	struct buffer notes; /* for the user only, of a custom tool */
	char *remark;        /* for models, apart from `text`; NULL: none */
	struct tool_image image;

	enum tool_error_code code; /* TOOL_OK: no failure so far */
	char *message;             /* for people: what failed, on what, why */
	char *ai_message;          /* message and the next step */
	bool recoverable;

	int exit_code; /* of the command line; a failure with 0 here ends with 1 */
	double latency_ms;
	pid_t thread;       /* that runs it; set on a mount */
	bool mount_ended;   /* the mount knows that it has ended, and said `last_seq` */
	uint64_t first_seq; /* of the mount's log, or of that of tools; 0: none */
	uint64_t last_seq;

	atomic_bool cancelled;
	int cancel_fd; /* eventfd that is readable once cancelled */
};

/* Takes ownership of `arguments` (NULL: none).  `call_id` NULL: makes one.
 * NULL when there is no memory or no descriptor left. */
struct tool_call *tool_call_new(struct tool_session *session, const struct tool *tool,
	cJSON *arguments, const char *call_id);
void tool_call_free(struct tool_call *call);

/* ---- For the tools themselves -------------------------------------------- */

/* Ends the call soon with ABORTED; what it runs is stopped. */
void tool_cancel(struct tool_call *call);
static inline bool tool_cancelled(struct tool_call *call)
{
	return atomic_load_explicit(&call->cancelled, memory_order_relaxed);
}

/* NULL: not said. */
static inline const char *tool_conversation(const struct tool_call *call)
{
	return call->conversation ? call->conversation : call->session->conversation;
}

/* Records the failure.  `next_step` says what the model should do now; NULL: the table's
 * words for the code.  The first failure stays.  Always -1. */
int tool_fail(struct tool_call *call, enum tool_error_code code, const char *next_step,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Records a failed system call: `Cannot ACTION "PATH": why`.  Names near a missing path are
 * in the next step.  `error` is -errno.  Always -1. */
int tool_fail_errno(struct tool_call *call, int error, const char *action, const char *path);

/* After a search, which `found` something or not.  Where the link of the mount is known to be away:
 * -1 with NOT_CONNECTED when nothing was found; else 0, with a sentence in `*ret_notice` that the
 * caller shows and frees.  0 where the link is there, or there is none. */
int tool_check_search(struct tool_call *call, const char *path, bool found, char **ret_notice);

/* Says to the mount that the calling thread works for the call too. */
void tool_join_thread(struct tool_call *call);

/* Around a call on a mount, by tool_run(): what its thread does there is logged under its id. */
void tool_mount_begin(struct tool_call *call);
void tool_mount_end(struct tool_call *call);

/* Output for the sink (when there is one); not part of `text`. */
void tool_update(struct tool_call *call, const char *text, size_t size);

/* Appends to `text`.  0, or -1 (no memory). */
int tool_text(struct tool_call *call, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Arguments that the schema has checked: NULL or `fallback` when absent. */
const char *tool_string(const struct tool_call *call, const char *name);
int64_t tool_integer(const struct tool_call *call, const char *name, int64_t fallback);
double tool_number(const struct tool_call *call, const char *name, double fallback);
bool tool_flag(const struct tool_call *call, const char *name);

/* The path argument `name`, as a path below the root ("" is the root itself; also when it is
 * absent).  The caller frees it.  Records PATH_OUTSIDE_ROOT and the like. */
int tool_path(struct tool_call *call, const char *name, char **ret_path);

/* ---- Words for codes and levels ------------------------------------------- */

struct tool_error_info {
	const char *name;      /* "NOT_FOUND" */
	const char *next_step; /* for models, one sentence or two */
	bool recoverable;      /* another call with other arguments can succeed */
};

/* Never NULL. */
const struct tool_error_info *tool_error_info(enum tool_error_code code);

/* The code for an errno, and words for people.  `error` is -errno. */
enum tool_error_code tool_error_from_errno(int error, const char **ret_reason);

const char *tool_level_name(enum tool_level level); /* "READ" */
