/*
 * tools/custom/internal.h - between the files of tools/custom/.
 *
 * places.c finds entries, trust.c says which of a project's may be looked at, describe.c asks each
 * what it is, custom.c makes tools of the answers, toolbox.c and lines_call.c call them; process.c
 * starts and stops what they run, hosts.c has those that outlive a call.
 */
#pragma once

#include <cjson/cJSON.h>
#include <pthread.h>

#include "tools/custom/custom.h"
#include "tools/base/tool.h"

enum {
	CUSTOM_ENTRIES_MAX = 500,
	CUSTOM_DESCRIBE_MS = 5000,
	CUSTOM_DESCRIBE_NODE_MS = 30000, /* a busy machine starts it slowly */
	CUSTOM_DESCRIBE_MAX_BYTES = 65536,
	CUSTOM_LINE_MAX_BYTES = 8 << 20,
	CUSTOM_TIMEOUT_S = 600,
	CUSTOM_STOP_MS = 5000, /* from TERM to KILL, and from cancel to TERM */
};

/* ---- places.c, manifest.c ------------------------------------------------------------ */

/* Where something that is, or should be, a tool was found. */
struct custom_entry {
	char *path;         /* absolute: the executable, or the directory */
	char *directory;    /* absolute: where describe runs */
	const char *origin; /* for people: the place; static */
	char *place;        /* of a project: the directory that was trusted or not; else NULL */
	cJSON *argv;        /* array of strings; NULL with `problem` */
	cJSON *manifest;    /* tool.json; NULL: none */
	bool at_workspace;
	bool is_mcp;   /* a server of the Model Context Protocol */
	char *prefix;  /* of its tools' names: "github_"; NULL: none */
	bool for_node; /* a script for pi, which node-host.mjs runs */
	bool changed;  /* since it was trusted */
	char *problem; /* why it is no tool, and what to do; NULL: none */
};

enum { CUSTOM_PLACES_MAX = 64 };

struct custom_entries {
	struct custom_entry *list;
	size_t count;
	char *places[CUSTOM_PLACES_MAX]; /* the directories that were looked into, or would be */
	size_t place_count;
};

/* The user's settings: tools.json of isthmus-tools(1).  The caller deletes it; NULL: none. */
cJSON *custom_settings(void);

/* $XDG_CONFIG_HOME/isthmus/NAME (or below ~/.config); the caller frees.  NULL: no home. */
char *custom_config_path(const char *name);

/* All entries, in the order in which later ones win.  0 or -errno. */
int custom_find(const struct custom_options *options, const struct tool_session *session,
	const cJSON *settings, struct custom_entries *ret_entries);
void custom_entries_done(struct custom_entries *entries);

/* Reads tool.json in entry->directory, when there is one, into the entry.  True: there is. */
bool custom_manifest(const struct tool_session *session, struct custom_entry *entry);

/* Makes the entry one of "mcpServers" in a tool.json; takes ownership of `server`. */
void custom_manifest_server(
	const struct tool_session *session, struct custom_entry *entry, cJSON *server);

/* Sets `problem` (once). */
void custom_problem(struct custom_entry *entry, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- trust.c --------------------------------------------------------------------------- */

enum custom_trust { CUSTOM_TRUSTED, CUSTOM_NEW, CUSTOM_CHANGED, CUSTOM_UNREADABLE };

/* Whether the content of `place`, a directory that a project brings, is what was trusted. */
enum custom_trust custom_trusted(const char *place);

/* Trusts it as it is.  0; -EFBIG: more than can be judged; -errno. */
int custom_trust_now(const char *place);

/* ---- describe.c ----------------------------------------------------------------------------- */

/* Asks the entry what it is: {"protocol": "toolbox" or "isthmus-tool/1", "text": bool,
 * "lifetime": .., "tools": [{name, label, description, parameters, level, truncate}]}; NULL after
 * custom_problem().  Remembers the answer until the entry's files change. */
cJSON *custom_describe(const struct tool_session *session, struct custom_entry *entry);

/* What changes when the files of the entry do; the caller frees it.  NULL: no memory. */
char *custom_stamp(const struct custom_entry *entry);

/* The same of a server of MCP, with "protocol": "mcp".  mcp_client.c */
cJSON *custom_mcp_describe(const struct tool_session *session, struct custom_entry *entry);

/* What a toolbox printed, in the form above; NULL with a sentence.  toolbox_text.c */
cJSON *custom_toolbox_description(const char *text, size_t size, struct buffer *problem);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* Has `reload` called, from a thread of its own and with `options`, each time that what
 * custom_look() would find may be different from now. */
void custom_watch(
	const struct custom_options *options, void (*reload)(const struct custom_options *));

/* ---- errors.c ----------------------------------------------------------------------------------
 */

/* What a process writes to stderr: each line is for the log, the end of it for the model, when the
 * tool ends without an answer or with a failure. */
struct custom_errors {
	const char *path; /* of the tool */
	struct buffer tail, line;
};

void custom_errors_take(struct custom_errors *errors, const void *data, size_t size);

/* Appends `before` and the end of it, if there is any. */
void custom_errors_say(
	const struct custom_errors *errors, const char *before, struct buffer *words);
void custom_errors_done(struct custom_errors *errors);

/* ---- process.c ---------------------------------------------------------------------------------
 */

struct custom_process;

struct custom_events {
	/* From the process's own thread, the end last. */
	void (*output)(void *user, const void *data, size_t size);
	void (*ended)(void *user, int exit_code, int signal);
	void *user;
	struct custom_errors *errors; /* belongs to that thread until the end */
};

/* Starts the entry's command with TOOLBOX_ACTION=`action`, at the root or (describe) in its own
 * directory.  `call` may be NULL.  0 or -errno; ENOENT and EACCES are of the program. */
int custom_process_start(const struct tool_session *session, const struct custom_entry *entry,
	const char *action, const struct tool_call *call, const struct custom_events *events,
	struct custom_process **ret_process);

/* Writes all of it; gives up once `call` is cancelled, after 30 s (NULL: 1 s), or when the process
 * is ended.  0 or -errno. */
int custom_process_write(
	struct custom_process *process, struct tool_call *call, const void *data, size_t size);
void custom_process_close_input(struct custom_process *process);

/* Has writers give up: it is about to be ended. */
void custom_process_give_up(struct custom_process *process);

/* Ends it: with its input closed it has `grace_ms`, then TERM, CUSTOM_STOP_MS later KILL.  Its
 * whole tree is gone afterwards, and no event comes any more.  NULL is fine. */
void custom_process_stop(struct custom_process *process, int grace_ms);

/* ---- interpreter.c --------------------------------------------------------------------------- */

/* The program that the entry needs to be started and that is not here: its own, or what its first
 * line ("#!") names.  The caller frees it; NULL: nothing is missing. */
char *custom_missing_program(const struct custom_entry *entry, int cwd);

/* Why the entry could not be started (-errno), and what to do; the caller frees it.  NULL: no
 * memory. */
char *custom_unstarted(const struct custom_entry *entry, int error);

/* Records that.  -ECANCELED: the call was.  Always -1. */
int custom_fail_unstarted(struct tool_call *call, int error);

/* ---- custom.c -------------------------------------------------------------------------------- */

struct custom_lines; /* the process of a tool that speaks isthmus-tool/1: lines.h */

/* An entry with what it says of itself. */
struct custom_source {
	struct custom_entry entry;
	bool text_form;  /* toolbox: key: value on its input */
	bool has_lines;  /* isthmus-tool/1 */
	bool lives;      /* one process for the session, not one for each call */
	bool execs_here; /* its commands run on this machine */
	cJSON *channels; /* of events that it waits for: strings; may be NULL */
	char *stamp;     /* changes when its files do; NULL: it has a problem */
};

struct custom_tool {
	struct tool tool; /* first: a call has this */
	struct custom_source *source;
	char *own_name; /* as the tool calls itself: "run-tests" */
	bool keep_tail; /* of a long result */
	bool renders;   /* its calls and results for the eyes of a person */
	double timeout_s;
};

static inline const struct custom_tool *custom_tool_of(const struct tool_call *call)
{
	return (const struct custom_tool *)call->tool;
}

/* Each is a struct tool's execute. */
int custom_toolbox_execute(struct tool_call *call);
int custom_lines_execute(struct tool_call *call);
int custom_mcp_execute(struct tool_call *call);

/* What a model should do when a tool failed. */
#define CUSTOM_NEXT_STEP                                                                           \
	"Change the arguments if they are the reason; else go on without this tool, and tell the " \
	"user what it said."

/* Text and structure of a result {content: [..], details}, the text cut to what an answer may have.
 * 0 or -1 (recorded).  result.c */
int custom_take_result(struct tool_call *call, const cJSON *result);

/* ---- custom.c: what was found ----------------------------------------------------------- */

enum custom_state { CUSTOM_READY, CUSTOM_SHADOWED, CUSTOM_REFUSED, CUSTOM_UNAVAILABLE };

/* One line of isthmus tool list: a tool, or an entry that is none. */
struct custom_finding {
	enum custom_state state;
	const char *name; /* of the tool; else of the entry's file */
	const struct custom_entry *entry;
	const struct custom_tool *tool; /* NULL: none */
	char *reason;                   /* NULL: it is ready */
};

struct custom_findings {
	struct custom_finding *list;
	size_t count;
	struct custom_source *sources;
	size_t source_count;
};

/* True for a name that a custom tool may have. */
bool custom_name_fits(const char *name);

/* Finds and describes everything.  What is in `ret_findings` lives as long as the program.
 * 0 or -errno. */
int custom_look(const struct custom_options *options, struct custom_findings *ret_findings);
