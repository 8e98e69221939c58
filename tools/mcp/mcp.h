/*
 * tools/mcp/mcp.h - the tools as an MCP server on stdin and stdout (Model Context Protocol).
 *
 * Two eras of the protocol, told apart message by message: the one with a handshake
 * (initialize; 2024-11-05 to 2025-11-25) and the stateless one (2026-07-28), whose requests
 * carry their version in `_meta`.
 *
 * One thread at a time reads messages and answers the quick ones; tool calls run beside each
 * other.
 * stdout carries one message a line and nothing else.  `mcp_server.lock` guards the list of
 * calls and what they wait for; `mcp_server.write_lock` the output.
 */
#pragma once

#include <pthread.h>
#include <signal.h>

#include "ops/support/worker_pool.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"

enum {
	MCP_MESSAGE_MAX_BYTES = 10 << 20,
	MCP_CALLS_MAX = 64,     /* run at once; further ones wait for one to end */
	MCP_WAITING_MAX = 1024, /* further ones are refused with an error */
	MCP_BATCH_MAX = 100,
};

enum mcp_error { /* JSON-RPC 2.0 and MCP */
	MCP_PARSE_ERROR = -32700,
	MCP_INVALID_REQUEST = -32600,
	MCP_METHOD_NOT_FOUND = -32601,
	MCP_INVALID_PARAMS = -32602,
	MCP_INTERNAL_ERROR = -32603,
	MCP_UNSUPPORTED_VERSION = -32022,
};

/* Answers of a batch (2025-03-26) are collected and leave together. */
struct mcp_batch {
	unsigned pending; /* guarded by write_lock */
	struct buffer text;
};

struct mcp_server;

/* A request on its way. */
struct mcp_request {
	struct mcp_server *server;
	struct mcp_request *next;         /* guarded by server->lock */
	struct mcp_request *next_waiting; /* likewise */
	char *id;                         /* raw JSON text; NULL: a notification */
	bool modern;                      /* 2026-07-28 */
	bool can_elicit;
	bool takes_links;                   /* results may have a resource_link: since 2025-06-18 */
	char agent[LOG_NAME_MAX_BYTES + 1]; /* the client's name and version; "": not said */
	struct mcp_batch *batch;

	cJSON *params;        /* owned */
	char *progress_token; /* raw JSON text, or NULL */
	struct tool_call *call;

	bool cancelled; /* guarded by server->lock, like what follows */
	bool answered;
	char *elicitation; /* the id of our own question that it waits for */
	cJSON *elicited;   /* the answer to it */
	pthread_cond_t news;
	char handle[33];               /* while it is parked (mcp_ui.c); "": it is not */
	struct mcp_request *successor; /* its call sent again, with the answer */

	uint64_t started_ns;  /* when it began to run; 0: it has not */
	uint64_t output_ns;   /* when the last output came */
	uint64_t progress_ns; /* when the last progress message was sent */
	uint64_t progress;    /* bytes of output so far, and one for each message without */
	unsigned partials;    /* results so far that a custom tool replaced */
	cJSON *questions;     /* modern: what to ask the client, for the result */
	cJSON *drawn;         /* {call, result}, as a custom tool draws them; NULL: not yet */
};

struct mcp_input {
	struct buffer text;
	bool skipping; /* the rest of a line that is too long */
};

struct mcp_server {
	struct tool_session session;
	pthread_mutex_t lock;
	pthread_mutex_t write_lock;
	pthread_cond_t idle; /* with lock: calls became fewer */
	struct mcp_request *calls;
	unsigned call_count;
	struct mcp_request *waiting; /* for a thread; latest first */
	unsigned waiting_count;
	unsigned threads, idle_threads; /* that run calls or read */
	bool reading;                   /* a thread is at the input */
	bool ended;                     /* there is no more input, or a signal came */
	pthread_cond_t work;            /* with lock: a call waits, no thread reads, or all end */
	struct worker_pool pool;        /* of these threads */
	unsigned next_question;
	struct mcp_input input; /* belongs to the thread that reads, as the next five do */
	bool can_elicit;        /* of the handshake */
	bool takes_links;       /* likewise */
	bool batches;           /* 2025-03-26 was agreed on */
	char agent[LOG_NAME_MAX_BYTES + 1]; /* of the handshake; belongs to the reader, too */
	sigset_t while_waiting;             /* for input: the signals that are not blocked then */
	atomic_bool tells_changes;          /* of the tools: there was a handshake */
	bool has_channel; /* the client takes messages at any time (Claude Code's channels) */
	bool output_lost; /* stdout is gone; guarded by write_lock */
	struct mcp_states *states;
};

/* ---- mcp.c ---------------------------------------------------------------------- */

/* One line of input. */
void mcp_take_line(struct mcp_server *server, const char *text, size_t size);

/* ---- mcp_serve.c: threads --------------------------------------------------------- */

/* Serves until the end of the input, or a signal.  0 or -errno. */
int mcp_serve(struct mcp_server *server);

/* From the thread that reads.  0; -EAGAIN when too many wait. */
int mcp_queue_call(struct mcp_request *request);

/* ---- mcp_output.c: answering ---------------------------------------------------- */

/* Each takes ownership of the JSON it is given, and may be called from any thread. */
void mcp_answer(struct mcp_request *request, cJSON *result);
void mcp_fail(struct mcp_request *request, enum mcp_error code, const char *message, cJSON *data);
void mcp_notify(struct mcp_server *server, const char *method, cJSON *params);

/* An error that belongs to no request (`id` NULL) or to a raw id. */
void mcp_fail_raw(struct mcp_server *server, struct mcp_batch *batch, const char *id,
	enum mcp_error code, const char *message, cJSON *data);

/* Our own request, with a string id; legacy era only. */
void mcp_ask(struct mcp_server *server, const char *id, const char *method, cJSON *params);

/* Takes one pending answer off the batch, and sends it when it was the last. */
void mcp_batch_done(struct mcp_server *server, struct mcp_batch *batch);

/* ---- mcp_message.c: raw JSON ------------------------------------------------------- */

/* Finds the value of the member `name` of the object in `text` (valid JSON), as raw text that
 * the caller frees; NULL: there is none. */
char *mcp_raw_member(const char *text, size_t size, const char *name);

/* ---- mcp_tools.c: tools/list and tools/call ------------------------------------------- */

void mcp_list_tools(struct mcp_request *request);

/* Takes ownership of the request. */
void mcp_call_tool(struct mcp_request *request);

/* Tells clients of calls that run without output that they do.  With lock held, about once a
 * second. */
void mcp_send_heartbeats(struct mcp_server *server);

/* Runs a call that was queued, to its answer. */
void mcp_run_call(struct mcp_request *request);

void mcp_request_free(struct mcp_request *request);

/* Stops a call: it is never answered. */
void mcp_cancel(struct mcp_request *request); /* with lock held */

/* ---- mcp_ask.c: questions ---------------------------------------------------------------- */

/* For tool_call.ask_permission: by elicitation, as the client's era has it. */
int mcp_ask_permission(struct tool_call *call, const struct permission_question *question);

/* 2026-07-28: what the client said to earlier questions of this very call.  0, or -1 when the
 * state is not one of ours, or for another call. */
int mcp_states_take(struct mcp_request *request);

/* True when both are calls of the same tool with the same arguments. */
bool mcp_same_call(const struct mcp_request *a, const struct mcp_request *b);

/* Asks by a request of ours (the era with a handshake): its result, which the caller deletes, or
 * NULL once the call is cancelled or the time is over.  Takes ownership of `params`. */
cJSON *mcp_elicit(struct mcp_request *request, cJSON *params, uint64_t until_ns);

/* The result that asks the client; NULL: no memory. */
cJSON *mcp_states_question(struct mcp_request *request);

/* ---- mcp_ui.c: a custom tool's questions; for tool_call ------------------------------------ */

cJSON *mcp_ask_user(struct tool_call *call, const struct tool_question *question);
void mcp_tell_user(struct tool_call *call, const char *words);

/* Has a parked call go on for `request`, which is that call with the answer, and takes ownership of
 * it.  False: none waits for it. */
bool mcp_ui_resume(struct mcp_request *request);

/* Has progress of the request's call go to its client.  mcp_tools.c */
void mcp_set_sink(struct mcp_request *request);

/* What was asked and waits for its call to come again.  NULL: no memory. */
struct mcp_states *mcp_states_new(void);
void mcp_states_free(struct mcp_states *states); /* NULL is fine */
