/*
 * tools/mcp/mcp.h - the tools as an MCP server on stdin and stdout (Model Context Protocol).
 *
 * The server speaks two variants of the protocol and distinguishes them by message: the one with a
 * handshake (initialize; 2024-11-05 to 2025-11-25) and the stateless one (2026-07-28), whose
 * requests have their version in `_meta`.
 *
 * One thread at a time reads messages and answers those that need no tool; tool calls run in
 * parallel.  stdout carries one message per line and nothing else.  `mcp_server.lock` guards the
 * list of calls and their state; `mcp_server.write_lock` guards the output.
 */
#pragma once

#include <pthread.h>
#include <signal.h>

#include "ops/support/worker_pool.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"

enum {
	MCP_MESSAGE_MAX_BYTES = 10 << 20,
	MCP_CALLS_MAX = 64,     /* calls that run at a time; further calls wait */
	MCP_WAITING_MAX = 1024, /* calls that wait; further calls get an error */
	MCP_BATCH_MAX = 100,
	/* Questions to the user that are open at a time, so that calls without one can run. */
	MCP_QUESTIONS_MAX = 32,
};

enum mcp_error { /* JSON-RPC 2.0 and MCP */
	MCP_PARSE_ERROR = -32700,
	MCP_INVALID_REQUEST = -32600,
	MCP_METHOD_NOT_FOUND = -32601,
	MCP_INVALID_PARAMS = -32602,
	MCP_INTERNAL_ERROR = -32603,
	MCP_UNSUPPORTED_VERSION = -32022,
};

/* The answers to a batch (2025-03-26) are collected and sent together. */
struct mcp_batch {
	unsigned pending; /* answers that are missing; guarded by write_lock */
	struct buffer text;
};

struct mcp_server;

/* A request without an answer yet. */
struct mcp_request {
	struct mcp_server *server;
	struct mcp_request *next;         /* guarded by server->lock */
	struct mcp_request *next_waiting; /* likewise */
	char *id;                         /* raw JSON text; NULL: a notification */
	bool modern;                      /* 2026-07-28 */
	bool can_elicit;
	bool takes_links;                   /* results may have a resource_link: since 2025-06-18 */
	char agent[LOG_NAME_MAX_BYTES + 1]; /* the client's name and version; "": not known */
	struct mcp_batch *batch;

	cJSON *params;        /* owned */
	char *progress_token; /* raw JSON text, or NULL */
	struct tool_call *call;

	bool cancelled; /* guarded by server->lock, as are all fields below */
	bool answered;
	char *elicitation; /* id of the server's question that the call waits for */
	cJSON *elicited;   /* the answer to that question */
	pthread_cond_t news;
	char handle[33];               /* of a parked call (mcp_ui.c); "": not parked */
	struct mcp_request *successor; /* the repeated call with the answer, for a parked call */

	uint64_t started_ns;  /* when the call started to run; 0: not yet */
	uint64_t output_ns;   /* when the last output arrived */
	uint64_t progress_ns; /* when the last progress message was sent */
	uint64_t progress;    /* bytes of output so far, plus one per message without output */
	unsigned partials;    /* partial results that a custom tool has sent */
	cJSON *questions;     /* modern: the questions to the client in the result */
	cJSON *drawn;         /* {call, result} as a custom tool draws them; NULL: not yet */
};

struct mcp_input {
	struct buffer text;
	bool skipping; /* inside a line that is too long */
};

struct mcp_server {
	struct tool_session session;
	pthread_mutex_t lock;
	pthread_mutex_t write_lock;
	pthread_cond_t idle; /* with lock: a call has ended */
	struct mcp_request *calls;
	unsigned call_count;
	struct mcp_request *waiting; /* calls that wait for a thread; latest first */
	unsigned waiting_count;
	unsigned threads, idle_threads; /* threads that run calls or read the input */
	bool reading;                   /* a thread reads the input */
	bool ended;                     /* end of input, or a signal */
	pthread_cond_t work;            /* with lock: a call waits, no thread reads, or `ended` */
	struct worker_pool pool;        /* of these threads */
	unsigned next_question;
	unsigned questions;     /* that calls wait for */
	struct mcp_input input; /* used by the reading thread only, as are the next five fields */
	bool can_elicit;        /* from the handshake */
	bool takes_links;       /* from the handshake */
	bool batches;           /* the client speaks 2025-03-26 */
	char agent[LOG_NAME_MAX_BYTES + 1]; /* from the handshake */
	sigset_t while_waiting;             /* the signal mask while waiting for input */
	atomic_bool tells_changes;          /* the client wants to know when the tools change */
	bool has_channel; /* the client takes messages at any time (Claude Code's channels) */
	bool output_lost; /* stdout is closed; guarded by write_lock */
	struct mcp_states *states;
};

/* ---- mcp.c ---------------------------------------------------------------------- */

/* Handles one line of input. */
void mcp_take_line(struct mcp_server *server, const char *text, size_t size);

/* ---- mcp_serve.c: threads --------------------------------------------------------- */

/* Serves until the end of the input or a signal.  0 or -errno. */
int mcp_serve(struct mcp_server *server);

/* Called by the reading thread.  0; -EAGAIN: MCP_WAITING_MAX calls wait. */
int mcp_queue_call(struct mcp_request *request);

/* ---- mcp_output.c: answers ------------------------------------------------------ */

/* Each takes ownership of the JSON that it gets.  Threads: any. */
void mcp_answer(struct mcp_request *request, cJSON *result);
void mcp_fail(struct mcp_request *request, enum mcp_error code, const char *message, cJSON *data);
void mcp_notify(struct mcp_server *server, const char *method, cJSON *params);

/* Sends an error for a raw id, or for no request (`id` NULL). */
void mcp_fail_raw(struct mcp_server *server, struct mcp_batch *batch, const char *id,
	enum mcp_error code, const char *message, cJSON *data);

/* Sends a request of the server with a string id; protocol with a handshake only. */
void mcp_ask(struct mcp_server *server, const char *id, const char *method, cJSON *params);

/* One answer of the batch is complete; sends the batch after the last one. */
void mcp_batch_done(struct mcp_server *server, struct mcp_batch *batch);

/* ---- mcp_message.c: raw JSON ------------------------------------------------------- */

/* The value of the member `name` of the object in `text` (valid JSON), as raw text that the caller
 * frees; NULL: there is none. */
char *mcp_raw_member(const char *text, size_t size, const char *name);

/* Whether raw text is the id of a request: a string or a number. */
bool mcp_is_id(const char *id);

/* The id of a request in `text`, which is not valid JSON or not all of it, as raw text that the
 * caller frees.  NULL: it cannot be told with certainty, or it is no request. */
char *mcp_broken_id(const char *text, size_t size);

/* ---- mcp_tools.c: tools/list and tools/call ------------------------------------------- */

void mcp_list_tools(struct mcp_request *request);

/* Takes ownership of the request. */
void mcp_call_tool(struct mcp_request *request);

/* Sends progress messages for calls that run without output.  Called about once a second, with the
 * lock held. */
void mcp_send_heartbeats(struct mcp_server *server);

/* Runs a queued call and answers it. */
void mcp_run_call(struct mcp_request *request);

void mcp_request_free(struct mcp_request *request);

/* Stops a call, which then gets no answer.  Called with the lock held. */
void mcp_cancel(struct mcp_request *request);

/* ---- mcp_ask.c: questions ---------------------------------------------------------------- */

/* tool_call.ask_permission, by elicitation in the client's variant of the protocol. */
int mcp_ask_permission(struct tool_call *call, const struct permission_question *question);

/* 2026-07-28: takes the client's answers to earlier questions of the same call.  0; -1: the state
 * is not from this server, or of another call. */
int mcp_states_take(struct mcp_request *request);

/* Whether both are calls of the same tool with the same arguments. */
bool mcp_same_call(const struct mcp_request *a, const struct mcp_request *b);

/* Protocol with a handshake: asks the client by a request of the server, and waits for its result,
 * which the caller deletes; NULL: the call was cancelled, or `until_ns` (CLOCK_MONOTONIC) has
 * passed.  Takes ownership of `params`.  0; -EBUSY: MCP_QUESTIONS_MAX questions are open. */
int mcp_elicit(struct mcp_request *request, cJSON *params, uint64_t until_ns, cJSON **ret_result);

/* 2026-07-28: the result with the questions to the client; NULL: no memory. */
cJSON *mcp_states_question(struct mcp_request *request);

/* ---- mcp_ui.c: questions of custom tools -------------------------------------------------- */

/* tool_call.ask_user and tell_user. */
cJSON *mcp_ask_user(struct tool_call *call, const struct tool_question *question);
void mcp_tell_user(struct tool_call *call, const char *message);

/* Resumes the parked call for which `request` brings the answer, and takes ownership of `request`.
 * False: no parked call waits for it. */
bool mcp_ui_resume(struct mcp_request *request);

/* Sets the sink of the call, which sends progress to the client.  mcp_tools.c */
void mcp_set_sink(struct mcp_request *request);

/* The questions that wait for the client to repeat the call.  NULL: no memory. */
struct mcp_states *mcp_states_new(void);
void mcp_states_free(struct mcp_states *states); /* NULL is fine */
