/*
 * backends/remote/client/client_request.h - requests to the far end, and their answers.
 *
 * An operation fills in a `struct remote_request` on its stack, and runs it, or submits it.  A
 * `struct call` is one time that it is sent.  They are two because they end at different times:
 * a request may take several calls (a new session answers none of the last one's), and a call
 * whose caller was interrupted stays in the table until the far end has answered, so that what it
 * has made there can be undone.
 */
#pragma once

#include <pthread.h>

#include "backends/remote/wire/lane.h"
#include "ops/workspace_ops.h"

struct remote;
struct remote_file;
struct remote_channel;

/* Results beside those of the contract, for the client's own loops. */
enum {
	RESULT_AGAIN = -10001, /* the session is a new one and the request had no effect */
	RESULT_BUSY = -10002,  /* no slot is free */
	RESULT_LOST = -10003,  /* its channel is gone: send it by the first */
};

struct remote_request {
	struct op_context *ctx;
	struct remote *remote;
	enum frame_type type;
	const struct object_ref *object; /* the first argument; NULL: none, or `file` is */
	struct remote_file *file;        /* likewise, as its handle */
	struct wire_writer arguments;    /* that follow */
	const void *data;                /* NULL, or the last argument, which is not copied twice */
	size_t data_bytes;
	bool is_detached; /* the data goes by a further connection: RESULT_LOST without one */

	bool only_once; /* it has an effect at the far end, although others of its type have not */
	/* It releases a lock or a handle: it is sent in spite of bounds and a broken link, also
	 * when its caller has given up.  (The threads of the reader and the manager, which must not
	 * wait, may send such requests, too.) */
	bool gives_back;
	bool at_once;    /* made under file->lock: RESULT_BUSY rather than wait for a slot */
	bool may_spread; /* any channel will do */

	/* The handle whose earlier requests the far end finishes first; 0: none.  Such a request
	 * leaves behind bulk data that is queued, unless it `is_urgent`.  remote_request_run()
	 * finds the handle that has writes queued for `object` or `file`. */
	uint64_t order;
	bool is_urgent;
	bool is_behind_writes; /* leaves behind the writes that are queued, to any file */

	/* A file, beside `file`, whose handle is among the arguments.  A request with a file of an
	 * earlier session is not sent: RESULT_AGAIN.  remote_request_run() opens it again. */
	struct remote_file *uses;
	uint64_t makes; /* the handle or process, which is undone when the call is abandoned ... */
	struct file_lock lock; /* ... or the lock, of that handle */

	/* Takes a part of a streamed answer, with what its positions count from
	 * (remote_request_run()).  A negative result ends the request. */
	int (*take_part)(void *user, struct wire_reader *part, uint64_t base);

	struct call *call; /* the last one, while its answer is taken */
};

/* A part of a streamed answer. */
struct call_data {
	struct call_data *next;
	uint8_t *payload;
	size_t size;
	uint64_t base; /* as call->base */
};

struct call {
	struct remote *remote;
	uint32_t id;
	enum frame_type type;
	bool gives_back; /* these are of the request */
	uint64_t makes;
	struct file_lock lock;
	bool repeatable; /* has no effect at the far end */
	bool done, abandoned;
	bool withdrawn;                 /* it was not sent, and its session is gone */
	uint64_t epoch;                 /* remote->epoch when it was made */
	struct remote_channel *channel; /* that it, or its content, was sent by; NULL: the first */
	struct wire_writer content;     /* of WRITE_DETACHED: a frame's, kept until the reply */
	int64_t result;
	uint64_t position; /* of the reply; 0: none */
	uint64_t changes;  /* remote->feed_received when the reply came */
	uint64_t base;     /* what positions of the session that it came in are added to */
	uint8_t *payload;  /* of the reply */
	struct wire_reader body;
	struct call_data *first, **last;
	size_t data_bytes;     /* of the frames in that list */
	size_t consumed_bytes; /* of them since the last credit; the waiting thread's */

	/* For a call that is not waited for; called by the reader thread without locks, and frees
	 * the call. */
	void (*complete)(struct call *call);
	void *user;
};

/* ---- client_request.c ------------------------------------------------------------------ */

/* Frees the arguments. */
void remote_request_done(struct remote_request *request);

#define cleanup_remote_request cleanup_with(remote_request_done)

/* Sends it and waits, again in a new session where it had no effect (not too often: -EIO).
 * `take` (may be NULL) reads the answer of a success, request->call->body, and returns the result.
 * -EIO, -EINTR, errors of the far end. */
int64_t remote_request_run(struct remote_request *request,
	int64_t (*take)(void *user, struct remote_request *request, int64_t result), void *user);

/* For `take`, behind what it has read: takes the facts of a change, and checks that the answer ends
 * there.  `result`, or -EIO for a malformed one. */
int64_t remote_request_finish(struct remote_request *request, int64_t result);

/* Sends it; `complete` gets the answer.  The files are open in this session, and `order` is set.
 * On failure nothing was sent: -EIO, -EINTR, RESULT_AGAIN, RESULT_BUSY. */
int remote_request_submit(
	const struct remote_request *request, void (*complete)(struct call *call), void *user);

/* For one that gives something back: sends it, and waits for no answer. */
void remote_request_give_back(struct remote_request *request);

/* Whether an operation is to repeat its request in a new session: `*result` was RESULT_AGAIN, and
 * not too often (then it becomes -EIO). */
bool remote_again(struct op_context *ctx, int64_t *result);

/* Waits on `condition` under remote->lock or file->lock for at most WAIT_MS.
 * 0, -EINTR, -EIO (the link has been down for too long). */
int remote_wait(struct remote *remote, struct op_context *ctx, pthread_cond_t *condition,
	pthread_mutex_t *lock);

/* True when the link has been down for longer than calls may wait. */
bool remote_is_offline(struct remote *remote);

void remote_count_round_trip(struct remote *remote, struct op_context *ctx);

/* ---- client_call.c: the table of calls ---------------------------------------------------- */

/* Enters one for the request, and sends the frame, whose payload is `out`.  From here on a call
 * with `complete` may be answered, and gone, at any time.  On failure nothing was sent, and the
 * call is still the caller's. */
int call_new(const struct remote_request *request, struct call **ret_call);
int call_send(struct call *call, const struct remote_request *request, struct wire_writer *out);

/* Signalled when a part or the end of the answer has come; without remote->lock, and for a call of
 * this id or of another one. */
pthread_cond_t *call_answered(struct remote *remote, uint32_t id);

/* Asks the far end not to go on with it. */
void call_cancel(struct call *call);

/* Nobody waits any more.  True: it belongs to the table until its reply comes.  False: it has not
 * left this machine, or has its reply, and is still the caller's.  Under the lock. */
bool call_abandon(struct call *call);

/* Takes it out of the table, and frees it.  NULL is fine. */
void call_drop(struct call *call);
void call_free(struct call *call);

/* Waits for a slot, without taking it: for requests that must be made `at_once`.  Under no lock.
 * -EINTR, -EIO. */
int remote_wait_for_slot(struct remote *remote, struct op_context *ctx);

/* REPLY and DATA, from the reader thread. */
int remote_take_answer(struct remote *remote, const struct frame_header *header, uint8_t *payload);

/* A new epoch begins: fails the calls of earlier ones.  Under the lock, which it releases
 * meanwhile. */
void remote_fail_calls(struct remote *remote);

/* The same for calls that were sent by the channel; of those whose content was, sends that again by
 * the first connection, whose lane the caller pushes then.  False: there was no memory for all.
 * Under the lock, which it releases meanwhile. */
bool remote_fail_calls_of(struct remote *remote, const struct remote_channel *channel);
