/*
 * tools/custom/internal.h - shared by the files of tools/custom/.
 *
 * places.c finds entries, trust.c decides which of a project's entries may be used, describe.c asks
 * each entry to describe itself, custom.c makes tools of the answers, toolbox.c and lines_call.c
 * call them; process.c starts and stops their processes, hosts.c keeps those that outlive a call.
 */
#pragma once

#include <cjson/cJSON.h>
#include <pthread.h>

#include "tools/custom/custom.h"
#include "tools/base/tool.h"

enum {
	CUSTOM_ENTRIES_MAX = 500,
	CUSTOM_DESCRIBE_MS = 5000,
	CUSTOM_DESCRIBE_NODE_MS = 30000, /* Node.js starts slowly on a busy machine */
	CUSTOM_DESCRIBE_MAX_BYTES = 65536,
	CUSTOM_LINE_MAX_BYTES = 8 << 20,
	CUSTOM_TIMEOUT_S = 600,
	CUSTOM_STOP_MS = 5000, /* from cancel to SIGTERM, and from SIGTERM to SIGKILL */
};

/* ---- places.c, manifest.c ------------------------------------------------------------ */

/* A file or directory that is, or should be, a tool. */
struct custom_entry {
	char *path;         /* absolute: the executable, or the directory */
	char *directory;    /* absolute: working directory of describe */
	const char *origin; /* for people: where it was found; static */
	char *place;        /* in a project: the directory that needs trust; else NULL */
	cJSON *argv;        /* array of strings; NULL with `problem` */
	cJSON *manifest;    /* tool.json; NULL: none */
	bool at_workspace;
	bool is_mcp;   /* a server of the Model Context Protocol */
	char *prefix;  /* of the names of its tools: "github_"; NULL: none */
	bool for_node; /* a script for pi, which node-host.mjs runs */
	bool changed;  /* since it was trusted */
	char *problem; /* why it cannot be used, and what to do; NULL: it can */
};

enum { CUSTOM_PLACES_MAX = 64 };

struct custom_entries {
	struct custom_entry *list;
	size_t count;
	char *places[CUSTOM_PLACES_MAX]; /* all directories for tools, even if they do not exist */
	size_t place_count;
};

/* The user's settings: tools.json, see isthmus-custom-tools(7).  The caller deletes it; NULL: none.
 */
cJSON *custom_settings(void);

/* $XDG_CONFIG_HOME/isthmus/NAME, or below ~/.config; the caller frees it.  NULL: no home. */
char *custom_config_path(const char *name);

/* Finds all entries; of those with the same name the last one counts.  0 or -errno. */
int custom_find(const struct custom_options *options, const struct tool_session *session,
	const cJSON *settings, struct custom_entries *ret_entries);
void custom_entries_done(struct custom_entries *entries);

/* Reads tool.json in entry->directory into the entry.  False: there is none. */
bool custom_manifest(const struct tool_session *session, struct custom_entry *entry);

/* Fills in the entry for one of "mcpServers" in a tool.json.  Takes ownership of `server`. */
void custom_manifest_server(
	const struct tool_session *session, struct custom_entry *entry, cJSON *server);

/* Sets `problem`; the first one counts. */
void custom_problem(struct custom_entry *entry, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- trust.c --------------------------------------------------------------------------- */

enum custom_trust { CUSTOM_TRUSTED, CUSTOM_NEW, CUSTOM_CHANGED, CUSTOM_UNREADABLE };

/* Whether the content of `place`, a directory in a project, is the content that was trusted. */
enum custom_trust custom_trusted(const char *place);

/* Trusts its present content.  0; -EFBIG: too large to be hashed; -errno. */
int custom_trust_now(const char *place);

/* ---- describe.c ----------------------------------------------------------------------------- */

/* Asks the entry to describe itself: {"protocol": "toolbox" or "isthmus-tool/1", "text": bool,
 * "lifetime": .., "tools": [{name, label, description, parameters, level, truncate}]}; NULL after
 * custom_problem().  Caches the answer until the entry's files change. */
cJSON *custom_describe(const struct tool_session *session, struct custom_entry *entry);

/* A string that changes when the files of the entry do; the caller frees it.  NULL: no memory. */
char *custom_stamp(const struct custom_entry *entry);

/* custom_describe() for an MCP server, with "protocol": "mcp".  mcp_client.c */
cJSON *custom_mcp_describe(const struct tool_session *session, struct custom_entry *entry);

/* Converts the output of a toolbox to that form; NULL: invalid, `problem` gets a sentence.
 * toolbox_text.c */
cJSON *custom_toolbox_description(const char *text, size_t size, struct buffer *problem);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Starts a thread that calls `reload` with `options` each time when the result of custom_look() may
 * have changed. */
void custom_watch(
	const struct custom_options *options, void (*reload)(const struct custom_options *));

/* ---- errors.c ----------------------------------------------------------------------------------
 */

/* The stderr of a process: each line goes to the log; the model gets the end of it if the tool
 * fails or ends without an answer. */
struct custom_errors {
	const char *path; /* of the tool */
	struct buffer tail, line;
};

void custom_errors_take(struct custom_errors *errors, const void *data, size_t size);

/* Appends `before` and the end of the stderr, if there is any. */
void custom_errors_say(
	const struct custom_errors *errors, const char *before, struct buffer *message);
void custom_errors_done(struct custom_errors *errors);

/* ---- process.c ---------------------------------------------------------------------------------
 */

struct custom_process;

struct custom_events {
	/* Called by the thread of the process; `ended` is the last call. */
	void (*output)(void *user, const void *data, size_t size);
	void (*ended)(void *user, int exit_code, int signal);
	void *user;
	struct custom_errors *errors; /* used by that thread until `ended` */
};

/* Starts the entry's command with TOOLBOX_ACTION=`action`, in the root or, to describe, in its own
 * directory.  `call` may be NULL.  0 or -errno; -ENOENT and -EACCES refer to the program. */
int custom_process_start(const struct tool_session *session, const struct custom_entry *entry,
	const char *action, const struct tool_call *call, const struct custom_events *events,
	struct custom_process **ret_process);

/* Writes all of `data`.  Gives up when `call` is cancelled, after 30 s (`call` NULL: 1 s), or when
 * the process is stopped.  0 or -errno. */
int custom_process_write(
	struct custom_process *process, struct tool_call *call, const void *data, size_t size);
void custom_process_close_input(struct custom_process *process);

/* Makes writers give up before the process is stopped. */
void custom_process_give_up(struct custom_process *process);

/* Stops the process: closes its input, sends SIGTERM after `grace_ms`, and SIGKILL CUSTOM_STOP_MS
 * later.  Afterwards all its descendants are gone, and no event follows.  NULL is fine. */
void custom_process_stop(struct custom_process *process, int grace_ms);

/* ---- interpreter.c --------------------------------------------------------------------------- */

/* The program that the entry needs and that is not installed: its own, or the interpreter in its
 * first line ("#!").  The caller frees it; NULL: nothing is missing. */
char *custom_missing_program(const struct custom_entry *entry, int cwd);

/* Why the entry could not be started (-errno), and what to do; the caller frees it.  NULL: no
 * memory. */
char *custom_unstarted(const struct custom_entry *entry, int error);

/* Records that failure in the call; -ECANCELED: records that the call was cancelled.  Always
 * returns -1. */
int custom_fail_unstarted(struct tool_call *call, int error);

/* ---- custom.c -------------------------------------------------------------------------------- */

struct custom_lines; /* the process of a tool that speaks isthmus-tool/1: lines.h */

/* An entry with its description. */
struct custom_source {
	struct custom_entry entry;
	bool text_form;  /* toolbox: its input is "key: value" lines, not JSON */
	bool has_lines;  /* speaks isthmus-tool/1 */
	bool lives;      /* "lifetime": "session": one process per session, not one per call */
	bool execs_here; /* commands that it requests run on this machine */
	cJSON *channels; /* names of the events that it waits for; may be NULL */
	char *stamp;     /* custom_stamp(); NULL: the entry has a problem */
};

struct custom_tool {
	struct tool tool; /* first member: tool_call.tool points to it */
	struct custom_source *source;
	char *own_name; /* the tool's own name for itself: "run-tests" */
	bool keep_tail; /* of a long result, keep the end rather than the beginning */
	bool renders;   /* can draw its calls and results for a person */
	double timeout_s;
};

static inline const struct custom_tool *custom_tool_of(const struct tool_call *call)
{
	return (const struct custom_tool *)call->tool;
}

/* Implementations of struct tool's execute(). */
int custom_toolbox_execute(struct tool_call *call);
int custom_lines_execute(struct tool_call *call);
int custom_mcp_execute(struct tool_call *call);

/* What a model should do when a tool failed. */
#define CUSTOM_NEXT_STEP                                                                           \
	"Change the arguments if they are the reason; else go on without this tool, and tell the " \
	"user what it said."

/* Sets the call's text and data from a result {content: [..], details}; cuts the text to the limits
 * of an answer.  0 or -1 (recorded).  result.c */
int custom_take_result(struct tool_call *call, const cJSON *result);

/* ---- custom.c: the search --------------------------------------------------------------- */

enum custom_state { CUSTOM_READY, CUSTOM_SHADOWED, CUSTOM_REFUSED, CUSTOM_UNAVAILABLE };

/* One line of isthmus tool list: a tool, or an entry that cannot be used. */
struct custom_finding {
	enum custom_state state;
	const char *name; /* of the tool; without a tool: of the entry's file */
	const struct custom_entry *entry;
	const struct custom_tool *tool; /* NULL: none */
	char *reason;                   /* why it is not ready; NULL: it is */
};

struct custom_findings {
	struct custom_finding *list;
	size_t count;
	struct custom_source *sources;
	size_t source_count;
};

/* Whether a custom tool may have this name. */
bool custom_name_fits(const char *name);

/* Finds and describes all custom tools.  The findings live as long as the program.  0 or -errno. */
int custom_look(const struct custom_options *options, struct custom_findings *ret_findings);
