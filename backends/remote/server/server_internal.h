/*
 * backends/remote/server/server_internal.h - shared by the server's files only.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "backends/remote/server/server.h"
#include "ops/support/hash_table.h"
#include "ops/support/worker_pool.h"
#include "ops/workspace_values.h"

enum {
	JOBS_MAX = 1024,
	JOB_BYTES_MAX = 64 << 20,
	WAITING_MAX_BYTES = 16 << 20, /* replies not yet sent; beyond, no bulk request is begun */
	WAITING_SMALL_MAX_BYTES = 64 << 20, /* the same for the others */
	WAITING_POLL_MS = 5,
	FEED_MAX_BYTES = 8 << 20, /* the same, for the change feed */
	LISTING_SHORT_BYTES = 256 << 10,
	HANDLES_MAX = 65536,
	PROCESSES_MAX = 256,
	WORKERS_MAX = 16,
	LONG_IDLE_MAX = 4, /* threads of jobs that may wait, between two of these */
	SERVER_STACK_BYTES = 512 << 10,
	CHANGED_SLOTS = 4096,
	CONTENT_MAX_BYTES = 32 << 20, /* that no request has named yet */
};

/* One connection of the session, of those it may have. */
struct server_channel {
	struct server *server;
	struct lane *lane;
	unsigned index;
};

/* What the WRITE_DETACHED of this id writes. */
struct content {
	struct content *next; /* in server->contents */
	uint32_t id;
	unsigned channel; /* that it came by */
	uint8_t *data;
	size_t size;
};

struct job {
	struct job *next;    /* in the pool's or a handle's queue */
	struct job *in_hash; /* by id */
	uint64_t number;     /* in the order in which they came; under server->lock */
	struct server *server;
	struct lane *lane; /* that it came by: the answer goes back there */
	struct frame_header header;
	uint8_t *payload;
	struct wire_reader in; /* what the handler has not read yet */
	struct op_context ctx;
	struct facts facts; /* of a request that changes something */
	gid_t *groups;
	atomic_bool cancelled;
	int64_t credit;                 /* listings: bytes that may be sent; under server->lock */
	size_t listed_bytes;            /* sent of a listing */
	bool is_guess;                  /* nobody waits for it */
	bool may_last;                  /* its thread may go on after the answer ... */
	struct server_process *started; /* ... with the output of the process that it started */
	struct handle *ordered;  /* runs after the earlier jobs of this handle; a reference */
	struct content *content; /* of WRITE_DETACHED, once it has come; under server->lock ... */
	bool lacks_content;      /* ... and it is the job's turn, but for that */
};

/* An open file of the client. */
struct handle {
	struct handle *next; /* in the table */
	uint64_t id;
	unsigned refs; /* under server->lock, as are the next two */
	bool busy;     /* an ordered job runs */
	struct job *first, **last;
	struct open_file *file;
	struct open_file *unnamed; /* what it was before NAME, while a job may use it; or NULL */
	bool is_named;             /* `file` was opened by the name that NAME gave */
	atomic_bool has_locks;     /* or had some, or waits for one */
	struct object_id object;
};

struct job_queue {
	struct job *first, **last;
};

struct server_process;

struct server {
	struct workspace *workspace;
	struct server_callbacks callbacks;
	void *user;
	struct server_channel channels[CHANNELS_MAX];
	struct lane *lane; /* of the first */

	pthread_mutex_t lock;
	pthread_cond_t work;  /* workers wait here when lanes have no room for answers */
	pthread_cond_t moved; /* credit came, a job ended, the server stops */
	bool stopping;
	struct worker_pool workers;
	struct worker_pool lasting;   /* jobs that may wait; input of processes */
	struct job_queue small, bulk; /* waiting for a worker */
	struct hash_table jobs;       /* by id */
	size_t job_bytes;
	uint64_t job_number;        /* of the last one */
	struct hash_table contents; /* that came before their requests, by id */
	size_t content_bytes;       /* of these */
	struct hash_table handles;  /* by id */
	unsigned closing;           /* CLOSE requests that are not done */
	struct server_process *processes;
	size_t process_count;
	pthread_mutex_t feed_lock; /* changes leave in the order of their positions */
	bool feed_lost;            /* under it, as is the next */
	uint64_t feed_at;          /* position of the latest change, told or lost */
	pthread_mutex_t changed_lock;
	struct object_id changed[CHANGED_SLOTS]; /* objects that the client changed lately */
};

/* ---- server.c ---------------------------------------------------------------- */

/* Sends a chunk of a listing; waits for credit.  -EINTR when the job is cancelled. */
int server_send_data(struct job *job, struct wire_writer *writer);

/* One step of waiting until there is credit, and room in the lane: what was credited without
 * having been read must not grow us.  False: there is.  Under the lock. */
bool server_wait_for_credit(struct server *server, const int64_t *credit);

/* Credit never passes what there was at the start.  `bytes` is below 2^32.  Under the lock. */
void server_add_credit(int64_t *credit, uint64_t bytes, int64_t max);

/* A CLOSE is not waited for by the client, and yet what comes after it must find the file
 * closed: no lock in the way, no "text file busy". */
void server_wait_for_closes(struct job *job);

/* Nor are writes: who gets a lock that the client has released, or made shared, must find what it
 * wrote before, to any file.  Only by a job with a thread of its own.  -EINTR: cancelled. */
int server_wait_for_writes(struct job *job);

/* It is a CLOSE that drops locks. */
static inline bool server_close_frees_locks(const struct job *job)
{
	return job->header.type == REQUEST_CLOSE && job->ordered && job->ordered->has_locks;
}

/* Lets the next job of the handle run that this one followed, and drops the reference to it. */
int server_leave_order(struct job *job);

/* NULL: there is none of this id.  Under the lock. */
struct job *server_find_job(struct server *server, uint32_t id);

/* Has a worker run the job, whose turn it is. */
void server_submit(struct job *job);

/* ---- server_content.c -------------------------------------------------------- */

/* A DATA frame.  Owns the payload. */
int server_content_take(
	struct server_channel *channel, const struct frame_header *header, uint8_t *payload);

/* The job gets its content, if that has come already.  Under the lock, as are the next two. */
void server_content_claim(struct job *job);

/* It is the job's turn: whether it has to wait for content. */
bool server_content_is_missing(struct job *job);

/* Whether it has waited for that until now: then it is to be submitted. */
bool server_content_is_due(struct job *job);
void server_content_free(struct content *content); /* NULL is fine */

/* ---- server_handles.c -------------------------------------------------------- */

/* NULL when there is no such handle.  Under the lock. */
struct handle *server_handle_find(struct server *server, uint64_t id);

/* A reference, or NULL when there is no such handle. */
struct handle *server_handle_get(struct server *server, uint64_t id);

/* The last reference closes the file and returns what close said; else 0.  When no job uses the
 * handle, the file as it was before NAME is closed. */
int server_handle_put(struct server *server, struct handle *handle);

/* Takes ownership of the file on success.  -EMFILE, -EBADF (the id is in use), -ENOMEM. */
int server_handle_add(
	struct server *server, uint64_t id, struct open_file *file, const struct object_id *object);

/* The file of the handle has a name now, and was opened by that.  Takes ownership on success.
 * -EBADF: it had one already. */
int server_handle_named(struct server *server, struct handle *handle, struct open_file *file,
	const struct object_id *object);

/* Takes the handle out of the table; its reference goes to the caller.  NULL: unknown. */
struct handle *server_handle_remove(struct server *server, uint64_t id);

/* All that the client left open.  Nothing else uses them. */
void server_handles_close(struct server *server);

/* ---- server_feed.c ------------------------------------------------------------ */

/* The client changes the object: changes of a file are told with a hash of its content from now
 * on, so that the client knows whether it is what it wrote, or had before. */
void server_note_changed(struct server *server, const struct object_id *id);

/* ---- server_files.c ------------------------------------------------------------ */

/* Prepares a file with that handle in a directory that was just made (PREPARE). */
int server_prepare_in(struct job *job, const char *path, const struct object_id *directory,
	uint32_t mode, uint64_t id, struct attributes *ret_attributes);

/* ---- server_names.c, server_files.c, server_exec.c, server_feed.c ---------------- */

/* Reads its arguments from job->in and appends the answer to `out` (nothing counts when the
 * result is an error).  Returns what the REPLY says. */
typedef int64_t (*request_handler)(struct job *job, struct wire_writer *out);

/* NULL: there is no such request.  (server_requests.c) */
request_handler server_request_handler(unsigned type);

/* handle_getattr() and so on. */
#define REQUEST(NAME, name, flags) int64_t handle_##name(struct job *job, struct wire_writer *out);
#include "backends/remote/wire/requests.def"
#undef REQUEST

/* An object of a request, with the handle it may go through. */
struct server_object {
	struct object_ref ref;
	struct handle *handle;
	struct server *server;
};

/* 0, -EBADF, -EPROTO.  Always ends with server_object_done(). */
int server_object_read(struct job *job, struct server_object *object);
void server_object_done(struct server_object *object);

#define cleanup_server_object cleanup_with(server_object_done)

/* What watches may be quicker than the request that asks for the feed. */
int server_begin_feed(struct server *server);

/* If changes were lost, tells so now, however much waits to be sent: ahead of an answer that comes
 * after all changes until then. */
void server_tell_loss(struct server *server);

/* Sends the output of a process, which handle_exec() started, to its end. */
void server_process_run(struct server_process *process);

/* INPUT, OUTPUT_CREDIT and KILL frames.  Owns the payload. */
int server_process_frame(
	struct server *server, const struct frame_header *header, uint8_t *payload);

/* Asks every process to end; they count in process_count until they have. */
void server_processes_stop(struct server *server);
