/*
 * backends/remote/client/client_internal.h - shared by the client's files only.
 *
 * Locks, outer before inner: file->lock, remote->lock; the lane's own is below both.  Handling an
 * answer takes them, so no thread may wait for the far end with one held.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "backends/remote/client/client.h"
#include "backends/remote/client/client_request.h"
#include "backends/remote/client/heartbeat.h"
#include "backends/remote/client/retry.h"
#include "backends/remote/wire/lane.h"
#include "ops/support/clock.h"
#include "ops/support/hash_table.h"
#include "ops/workspace_ops.h"

enum {
	CALLS_MAX = 1000, /* under way at once; the helper reads on up to 1024 */
	CALL_SLOTS =
		1 << 17, /* CALLS_MAX, and a CLOSE for each of 65,536 handles; a power of two */
	WAIT_MS = 50,    /* between two calls of interrupted() */
	CANCEL_GRACE_MS = 90,          /* for a call that may take long: it is cancelled at once */
	INTERRUPT_GRACE_MS = 300,      /* for other calls, whose answers are on their way */
	WRITE_WINDOW_BYTES = 16 << 20, /* writes not yet acknowledged, of the whole workspace */
	WRITE_GENERATIONS = 64,
	FEED_MAX_CHANGES = 65536,
	FEED_MAX_BYTES = 32 << 20,
	REPEATS_MAX = 3, /* of one operation, while each new session ends, too */
	ANSWER_CONDITIONS = 64,
};

struct feed_change {
	struct feed_change *next;
	uint8_t *payload; /* NULL: changes up to `at` were dropped */
	size_t size;
	uint64_t at;
};

struct remote_file;
struct remote_process;
struct prepared_file;

/* A caller that makes files of that mode. */
struct file_maker {
	uint32_t uid, gid, umask, mode;
	int64_t at_ms;
};

/* A connection beside the first, while much is read or written (client_channels.c). */
struct remote_channel {
	struct remote *remote;
	unsigned index;
	struct lane *lane;
	pthread_t thread;
	bool runs; /* under remote->lock, as are the next five */
	bool up;
	struct stream *connecting; /* being made */
	size_t calls;              /* that it, or their content, is under way by */
	int64_t asked_ms;          /* when `calls` last became 1 */
	atomic_bool lost;          /* the lane said so */
};

/*
 * The files of the client know only what is below them, from the bottom: the link (client_link.c,
 * client_channels.c, client_session.c), calls (client_call.c, client_request.c), the operations
 * (client_names.c, client_files.c, ..., client_exec.c, client_feed.c), client.c.  The link hands
 * up by these.
 */
struct link_handlers {
	int (*received)(void *user, const struct frame_header *header, uint8_t *payload);

	/* Under the lock, which it may release meanwhile. */
	void (*session_ended)(struct remote *remote);
	bool (*channel_ended)(struct remote *remote, const struct remote_channel *channel);

	/* Another session has replaced the last one; called before any of its frames. */
	void (*session_is_other)(struct remote *remote);
	void (*session_is_attached)(struct remote *remote);
};

struct remote {
	struct workspace base;
	struct workspace_ops ops; /* those of every far workspace, with the name of the scheme */
	struct remote_settings settings;
	const struct link_handlers *above;
	struct lane *lane;
	uint64_t capabilities;
	uint32_t owner_uid, owner_gid;

	pthread_mutex_t lock;
	pthread_cond_t freed;                       /* a slot is free, write window opened */
	pthread_cond_t manager;                     /* wakes the manager thread */
	pthread_cond_t answered[ANSWER_CONDITIONS]; /* call_answered() */
	struct call *calls[CALL_SLOTS];
	uint32_t call_serial;
	size_t call_count;
	size_t write_bytes;        /* not yet acknowledged */
	int64_t refused_ms;        /* when a quota or disk was last full */
	int64_t little_room_ms;    /* when a write last reported that */
	unsigned write_generation; /* each queued write belongs to a batch ... */
	unsigned generation_writes[WRITE_GENERATIONS]; /* ... and counts here (modulo) */
	struct hash_table files;                       /* by inode */
	struct remote_process *processes;
	uint64_t next_handle;
	uint32_t next_process;
	uint64_t set_back_epoch; /* files of earlier sessions are not opened again */
	uint64_t epoch; /* counts sessions: handles of earlier ones are gone, positions lower */

	struct prepared_file *prepared; /* client_prepared.c */
	unsigned prepared_wanted;
	struct file_maker file_maker; /* who made a file last */

	/* the link; under the lock */
	pthread_t manager_thread;
	bool manager_runs, stopping;
	struct stream stream;
	struct stream *connecting; /* being made by the manager */
	struct heartbeat heartbeat;
	char last_error[WORKSPACE_ERROR_BYTES];
	uint8_t session[TOKEN_BYTES], token[TOKEN_BYTES];
	struct identity_question
		*question; /* client_identity.c; the manager's thread only, like the next */
	char *engine_identity, *helper_identity; /* NULL: not known */
	atomic_bool is_stopped; /* another machine or container has the name: do not reconnect */
	int session_fd;         /* where these are kept for the next daemon; -1: nowhere */
	bool ends_session;      /* of a daemon that was killed; or was_set_back */
	bool was_set_back;      /* the far end is in an earlier state than before (a snapshot) */

	/* more connections, for read-ahead and writes; under the lock */
	struct remote_channel channels[CHANNELS_MAX]; /* [0] is not used */
	pthread_cond_t channels_moved;
	unsigned channels_max;      /* the first included */
	unsigned next_channel;      /* takes turns */
	bool channels_work;         /* a connection was made that could ask nothing */
	int64_t channels_until_ms;  /* they are wanted until then ... */
	int64_t channels_rest_ms;   /* ... but after a failure not for so long, */
	int64_t channels_rested_ms; /* that is, until then */
	struct streamed {
		int64_t since_ms;
		size_t bytes;
	} streamed_in, streamed_out; /* what was read ahead, and written */

	/* the change feed; under the lock */
	change_sink sink;
	void *sink_user;
	pthread_t feed_thread;
	bool feed_runs;
	pthread_cond_t feed_moved;
	struct feed_change *feed_first, **feed_last;
	size_t feed_count, feed_bytes;
	bool feed_lost;        /* all watches ended: to be reported before the queue ... */
	uint64_t feed_lost_at; /* ... those that began up to this position */
	uint64_t feed_received, feed_delivered;
	struct hash_table watched; /* directories whose changes the session reports, by path */

	atomic_bool lost;                 /* the lane said so */
	atomic_bool is_wanted;            /* a call was made since the manager began to pause */
	atomic_int_fast64_t bad_since_ms; /* 0: the link is up */
	atomic_uint_fast64_t round_trips, reconnects, unwatched;
	atomic_size_t chunk_bytes;        /* of all files, read ahead or requested */
	atomic_uint_fast64_t changes;     /* of content that is known ... */
	atomic_uint_fast64_t own_changes; /* ... that were made here */
	atomic_uint_fast64_t feed_at;     /* position of the last one that the feed told */
};

/* Positions of the far end start anew with each session.  They are mapped so that those of a later
 * session are higher than all of earlier ones, some of which may still be on their way to a caller.
 */
enum { SESSION_POSITION_BITS = 42 };

static inline bool remote_position_is_good(uint64_t position)
{
	return position >> SESSION_POSITION_BITS == 0;
}

/* Under the lock. */
static inline uint64_t remote_base(const struct remote *remote)
{
	return remote->epoch << SESSION_POSITION_BITS;
}

static inline struct remote *remote_of(struct workspace *w)
{
	return (struct remote *)w;
}

/* ---- client.c ---------------------------------------------------------------------- */

/* Without a connection yet; `settings` is copied as it is. */
int remote_new(const struct remote_settings *settings, struct remote **ret_remote);
void remote_release(struct remote *remote);

/* Every frame that the link hands up, from the reader thread.  Owns the payload. */
int remote_received(void *user, const struct frame_header *header, uint8_t *payload);

/* ---- client_link.c: the connection ---------------------------------------------------- */

int remote_connect(struct remote *remote, bool first, char **ret_reason);
int remote_manager_start(struct remote *remote);
void remote_manager_stop(struct remote *remote);
void remote_lost(void *user, int error);

/* ---- client_reason.c: what people are told of an attempt that failed --------------------- */

/* All that came from there: the stream's stderr (may be NULL), and what it sent that was no frame,
 * as docker(1) reports some failures there.  The caller frees; NULL: no memory. */
char *remote_all_stderr(const char *stderr_text, const struct buffer *noise);

/* Gathers what is known of a failed attempt and picks the best errno.  `*ret_reason`, if there is
 * one, is part of the sentence. */
int remote_explain(const struct remote *remote, const char *stderr_text, const char *all, int error,
	const struct buffer *noise, char **ret_reason);

/* The sentence, from its parts; "" or NULL: there is none. */
void remote_write_reason(const struct remote *remote, int error, const char *detail,
	const char *stderr_text, const char *line, const char *advice, char **ret_reason);

/* ---- client_link.c again ------------------------------------------------------------------ */

/* Says hello for the channel (0: the first).  -errno. */
int remote_exchange_hello(struct remote *remote, struct stream *stream, unsigned channel,
	int64_t deadline_ms, struct buffer *body, struct buffer *noise,
	struct welcome *ret_welcome);

/* What the option and the helper's answer say of the lane. */
void remote_agree_on_compression(
	struct lane *lane, const struct remote *remote, const struct welcome *welcome);

/* ---- client_identity.c: whether the far end is the same ------------------------------------- */

void remote_identity_forget(struct remote *remote);

/* The far end is this one from now on: `identity` is from its helper; that of its engine is asked
 * for in the background.  -ENOMEM. */
int remote_identity_take(struct remote *remote, const char *identity);

/* A new session: whether the far end is known to be another one.  May wait for the engine's answer.
 */
bool remote_identity_differs(struct remote *remote, const char *identity);

/* The far end is another one: every open file is lost (-ESTALE).  To be called before the requests
 * of the last session fail.  Returns a sentence about what was lost, allocated, or NULL. */
char *remote_identity_lose(struct remote *remote);

/* ---- client_channels.c: more connections for what is read ahead, or written --------------- */

int remote_channels_new(struct remote *remote);
void remote_channels_free(struct remote *remote);

/* All of them end.  From the thread that frees the workspace. */
void remote_channels_stop(struct remote *remote);

/* The session is another one: their requests are lost.  Under the lock. */
void remote_channels_drop(struct remote *remote);

/* The channel whose turn it is, which the call then counts in; NULL: the first.  Under the lock. */
struct remote_channel *remote_channel_take(struct remote *remote);
void remote_channel_put(struct remote_channel *channel); /* the call is over; under the lock */

/* The one with the least to send, if the first has much, for the content of a write.  Without
 * counting a call; NULL: the first.  Under the lock. */
struct remote_channel *remote_channel_to_write(struct remote *remote);
void remote_channel_enter(struct remote_channel *channel); /* counts a call; under the lock */

/* This much read-ahead data came in; the quickest answer took `quickest_ms`. */
void remote_note_streamed(struct remote *remote, size_t bytes, int64_t quickest_ms);
void remote_note_written(struct remote *remote, size_t bytes); /* the same of writes */

/* The number of connections that carry data now. */
unsigned remote_channel_count(struct remote *remote);
void remote_channels_add_traffic(struct remote *remote, struct lane_counters *counters);

/* ---- client_session.c ------------------------------------------------------------------ */

/* Before the first connection: reads the sessions that a killed daemon of this mount left, in order
 * to end them. */
void remote_session_recall(struct remote *remote);
void remote_session_note(struct remote *remote);   /* there is a new session; under the lock */
void remote_session_forget(struct remote *remote); /* it was told to end */

/* ---- client_feed.c ----------------------------------------------------------------------- */

int remote_feed_start(struct remote *remote, change_sink sink, void *user);
int remote_feed_take(struct remote *remote, uint8_t *payload, size_t size);

/* A new session: the watches of earlier ones have ended; requests its feed.  By the manager's
 * thread, which must not wait, as it alone notices that the link is lost again. */
void remote_feed_lost(struct remote *remote);
void remote_feed_again(struct remote *remote);

void remote_feed_stop(struct remote *remote);

/* Waits until those that were received when `received` was remote->feed_received have been
 * delivered.  Not for the far end, so nothing interrupts it. */
void remote_feed_await(struct remote *remote, uint64_t received);
/* `since` 0: it could not be watched. */
void remote_note_watched(
	struct remote *remote, const char *path, const struct object_id *id, uint64_t since);
size_t remote_watched_count(struct remote *remote);

/* ---- The operations, as in ops/workspace.h -------------------------------------------------- */

WORKSPACE_DECLARE_OPERATIONS(remote)

/* ---- Open files: client_files.c, client_read.c, client_write.c
 * ------------------------------------- */

/* File content that came in, or was requested, ahead of its read. */
struct chunk {
	struct chunk *next;
	struct remote_file *file;
	off_t offset;
	size_t size; /* requested; if less came: end of file */
	size_t got;  /* once it is done */
	bool done;
	bool dropped; /* out of the list; freed when it is done */
	int error;
	uint64_t epoch; /* the session that was asked */
	size_t used;    /* bytes handed out */
	bool is_ahead;  /* requested ahead of any reader */
	uint64_t at;    /* it was read then or later; 0: not known */
	int64_t sent_ms, done_ms;
	uint8_t *payload; /* owns `data` */
	const uint8_t *data;
};

enum { LOCK_HABITS = 8 };

/* What is read of a file behind such a lock comes with the next one. */
struct lock_habit {
	enum lock_kind kind;
	enum lock_type type;
	uint64_t offset;
	size_t bytes;    /* from the start of the file */
	unsigned unread; /* locks in a row behind which nothing was */
};

struct remote_file {
	struct open_file base;
	struct remote *remote;
	struct remote_file *next;  /* in remote->files; under remote->lock, as are the next ten */
	unsigned refs;             /* the owner, and requests under way */
	unsigned writes;           /* not yet acknowledged */
	int write_error;           /* -errno that no flush or fsync has returned; 0 */
	bool write_reported;       /* write has returned it */
	uint64_t written_at;       /* the highest position of its writes' replies, and ... */
	struct attributes written; /* ... the file's attributes in it */
	bool closed;
	bool little_room;  /* as of the last answer: each write waits for its answer */
	bool is_new;       /* made through this handle */
	bool may_be_other; /* created without O_EXCL: another process's file will do, too */
	bool is_naming;    /* its name was requested (client_prepared.c); then the outcome: */
	int name_error;    /* why it has none: the result of every operation ... */
	uint64_t named_at; /* ... or position, attributes and facts of the reply */
	struct attributes named;
	struct facts named_facts;
	bool has_xattrs; /* is_new: some were set since */

	uint64_t handle;
	uint64_t epoch;
	bool is_reopening; /* a thread opens it again; under remote->lock, as is lost_error */
	int flags;
	char *path; /* at the time of the open, or to where it was renamed here; under
		     * remote->lock */
	struct object_id id;
	atomic_bool has_locks;
	atomic_bool has_exclusive; /* one of these, until it is closed */
	int lost_error; /* 0, or why it cannot be opened again: -EIO (its locks are lost), -ESTALE
			 * (it is gone, or the far end is another one) */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct chunk *chunks;
	atomic_bool has_chunks; /* a hint, read without the lock */
	off_t next_offset;      /* where a sequential reader continues */
	off_t ahead_offset;     /* everything up to here was requested */
	size_t ahead_bytes;   /* how far to read ahead; grows while the reader still has to wait */
	off_t grown_offset;   /* end of what was requested before ahead_bytes last grew */
	int64_t quickest_ms;  /* of the answers to its reads */
	bool ahead_is_enough; /* more read-ahead would only delay the answers */
	off_t size_hint;      /* at the time of the open */
	struct lock_habit lock_habits[LOCK_HABITS];
	unsigned lock_last; /* of these, that of the last lock that was granted */
};

static inline size_t remote_file_hash(const struct object_id *id)
{
	return (size_t)(id->inode * 0x9e3779b97f4a7c15U >> 32);
}

/* The first of the files of an object, and of some others (`next`).  Under remote->lock. */
static inline struct remote_file *remote_files_of(
	const struct remote *remote, const struct object_id *id)
{
	return hash_table_bucket(&remote->files, remote_file_hash(id));
}

/* The one after `file` (NULL: the first) of all, in no order.  Under remote->lock. */
struct remote_file *remote_file_next(const struct remote *remote, struct remote_file *file);

static inline struct remote_file *remote_file_of(struct open_file *file)
{
	return (struct remote_file *)file;
}

/* The handle for a request; opens the file again in a new session.  0, -EIO. */
int remote_file_ready(struct op_context *ctx, struct remote_file *file);

/* The path is kept up to date, so that files can be opened again in a new session. */
void remote_files_renamed(struct remote *remote, const char *from, const char *to, bool swapped);

/* The handle after whose queued writes a request about `object` must be ordered (0: none; only one
 * handle of an object has any).  Waits for all writes when the object is not known. */
int remote_order(struct op_context *ctx, struct remote *remote, const struct object_ref *object,
	uint64_t *ret_order);
uint64_t remote_order_locked(struct remote *remote, const struct object_id *id);

/* True for an object that was created through a handle that is still open, and has no extended
 * attributes; `now_set`: it gets one now. */
bool remote_has_no_xattrs(struct remote *remote, const struct object_ref *object, bool now_set);

/* Waits until no write is under way that was queued before the call.  -EINTR, -EIO. */
int remote_settle(struct op_context *ctx, struct remote *remote);

/* client_read.c.  `payload` holds `got` bytes at `data`, the start of the file. */
void remote_file_prefill(
	struct remote_file *file, uint8_t *payload, const uint8_t *data, size_t got, size_t wanted);
void remote_file_drop_chunks(struct remote_file *file); /* all; under file->lock */

/* The same, without the lock: what came along with an open or a lock. */
void remote_file_drop_prefill(struct remote_file *file);

/* A request about the handle. */
struct remote_request remote_request_on(
	struct op_context *ctx, struct open_file *open_file, enum frame_type type);

/* How much of the file's start is to come with the lock; and that it was granted, with that, at the
 * position of the reply.  `payload` holds `got` of the `wanted` bytes at `data`, and is freed. */
size_t remote_file_wanted_with(struct remote_file *file, const struct file_lock *lock);
void remote_file_locked(struct remote_file *file, const struct file_lock *lock, uint64_t at,
	uint8_t *payload, const uint8_t *data, size_t got, size_t wanted);

/* Drops what came with the last lock if that is released: others may write from here on. */
void remote_file_unlocked(struct remote_file *file, const struct file_lock *lock);

/* Drops what was read ahead of the object; NULL: of all.  `at`: the feed tells of a change that was
 * looked at then, so that what is known to be newer stays; 0: the change was made here. */
void remote_object_changed(struct remote *remote, const struct object_id *id, uint64_t at);

/* Drops what was read ahead a second ago and has not been read: it would be asked for anew. */
void remote_drop_stale_chunks(struct remote *remote);
void remote_file_changed(struct remote_file *file);

/* The same for a write through this handle: what came with a lock has it then. */
void remote_file_written(struct remote_file *file, const uint8_t *data, size_t size, off_t offset);

/* The name that it was created at leads to another file, which it is from now on.  Under
 * remote->lock. */
void remote_file_is_other(struct remote_file *file, const struct attributes *attributes);
void remote_file_unref(struct remote_file *file);

/* ---- client_prepared.c: files that are prepared, to be given a name ------------------------- */

/* One for what is to be made in ctx->parent, with the attributes that it will have.  -EAGAIN: there
 * is none, or it will not do. */
struct prepared_taken {
	uint64_t handle, epoch;
	struct attributes attributes; /* that the file will have when it has its name */
};

int remote_prepared_take(struct op_context *ctx, struct remote *remote, int flags, uint32_t mode,
	struct prepared_taken *ret_taken);

/* One of any kind on that file system, for its handle: what is known of the room there holds. */
int remote_prepared_take_any(struct op_context *ctx, struct remote *remote, uint64_t device,
	struct prepared_taken *ret_taken);
void remote_prepared_return(struct remote *remote, const struct prepared_taken *taken);

/* Has one prepared for the next file beside `path`, if there is none.  `makes`: `path` is a new
 * file, so that the caller may make one in a new directory, too. */
void remote_prepared_want(struct op_context *ctx, struct remote *remote, const char *path,
	int flags, uint32_t mode, bool makes);

/* A file to be prepared in a directory that is being made, where the caller has made files lately:
 * the mode that its next one is likely to have, and a handle.  NULL: none.  It becomes ready if the
 * helper has prepared it, and then the next file there takes it; or it ends with _done(). */
struct prepared_file *remote_prepared_new(
	struct op_context *ctx, struct remote *remote, uint32_t *ret_mode, uint64_t *ret_handle);
void remote_prepared_is_ready(struct prepared_file *file, const struct object_id *directory,
	uint64_t epoch, const struct attributes *attributes);
void remote_prepared_done(struct prepared_file *file);

/* Gives back what has been there for long. */
void remote_prepared_tidy(struct remote *remote);
void remote_prepared_free(struct remote *remote);

/* Has the file of the prepared handle get its name (`makes`), or the handle lead to the file there,
 * behind which its writes come; not waited for.  RESULT_AGAIN: the handle is gone with its session.
 */
int remote_queue_name(struct op_context *ctx, struct remote_file *file, int flags, bool makes);

/* ---- client_write.c: what is queued beside writes ------------------------------------------- */

/* Queues that the file gets this size.  flush returns its error, or a later write. */
int remote_queue_size(struct op_context *ctx, struct remote_file *file, uint64_t size_bytes);

/* Queues the request, a LOCK with type none, behind all writes.  flush returns its error.  False:
 * it cannot be queued, as another handle of the file has something queued, say. */
bool remote_queue_unlock(const struct remote_request *request);

/* ---- client_exec.c ------------------------------------------------------------------- */

int remote_process_new(struct remote *remote, struct remote_process **ret_process);

/* OUTPUT, EXIT and INPUT_CREDIT frames.  Owns the payload. */
int remote_process_frame(
	struct remote *remote, const struct frame_header *header, uint8_t *payload);

/* A new session: all commands are lost.  Under remote->lock. */
void remote_processes_lost(struct remote *remote);
