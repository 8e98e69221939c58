/*
 * ops/writeback/writeback_internal.h - what the files of the decorator share.
 *
 * One lock guards all of it; it is not held while the inner workspace is asked.
 * Ids: the ones that callers know ("shown": of a new object a provisional one, for as long as the
 * mount lives) and the workspace's ("real").
 */
#pragma once

#include <pthread.h>
#include <sys/queue.h>

#include "ops/forward.h"
#include "ops/support/hash_table.h"
#include "ops/writeback/writeback.h"

enum {
	WORKERS = 32,
	KEYS_MAX = 8,
	GROUPS_MAX = 32,
	OPERATIONS_MAX = 20000,
	IDENTITIES_MAX = 16,
	INHERITED_MAX = 1024,
	EXTENTS_MAX = 4096,
	HELD_MS = 1000, /* an open file is sent although it may be written to again */
};

static const uint64_t PENDING_MAX_BYTES = 256 << 20;
static const uint64_t JOURNAL_MAX_BYTES = 1 << 30;
static const uint64_t FILE_MAX_BYTES = 8 << 20; /* what is larger is written through */

enum operation_kind {
	OP_MKDIR,
	OP_CREATE, /* with content and attributes */
	OP_SYMLINK,
	OP_CONTENT, /* of a file that was there: truncated and written anew */
	OP_SETATTR,
	OP_UNLINK,
	OP_RMDIR,
	OP_RENAME, /* of what is no directory */
	OP_FENCE,  /* a caller passes something on itself */
};

/* An operation as the journal has it; path and second path (or a link's target) follow there. */
struct operation_facts {
	uint32_t kind, mask;
	uint32_t mode;
	uint32_t uid, gid;
	int32_t pid;
	uint32_t group_count;
	uint32_t groups[GROUPS_MAX];
	struct object_id parent, new_parent; /* shown */
	struct attributes shown;             /* the object, as it is after the operation */
	struct attributes known;             /* ... as the workspace had it; mode 0: it did not */
	struct attributes want;              /* of setattr, and of a file's creation */
	struct attributes replaced;          /* what a rename replaces, as `known` ... */
	struct object_id replaced_id;        /* ... and its shown id */
};

struct key_ref {
	TAILQ_ENTRY(key_ref) link;
	struct key *key;
	struct operation *operation;
	bool is_exclusive, is_granted;
};
TAILQ_HEAD(key_refs, key_ref);

/* What operations are ordered by: a name or an object.  (Two with one hash are ordered as well.) */
struct key {
	struct key *next;
	size_t hash;
	struct key_refs refs; /* in the order of their operations, those that are granted first */
	struct key_ref *waiting; /* the first that is not granted; or NULL */
};

struct operation {
	TAILQ_ENTRY(operation) link;  /* of all that wait */
	TAILQ_ENTRY(operation) ready; /* of those that may run */
	TAILQ_ENTRY(operation) held;  /* of those that are held */
	struct operation_facts facts;
	uint64_t sequence;
	int64_t taken_ms;
	char *path, *path2;
	struct node *node, *replaced;
	struct node *parents[2]; /* that are known here, or NULL */
	struct key_ref refs[KEYS_MAX];
	unsigned ref_count;
	unsigned blockers;   /* references that are not granted, and is_held */
	bool is_held;        /* its file is open for writing */
	bool is_ready;       /* among those that may run */
	unsigned attempts;   /* that failed while the link was there all the time ... */
	uint64_t reconnects; /* ... since this one */
	bool is_move;        /* a fence of all */
	int refusal;         /* why it is lost */
	bool is_unkept;      /* ... and that could not be kept yet */
	bool is_started;
	bool may_be_done;         /* it was sent, and nobody knows what came of it */
	bool is_undone;           /* it is lost, or was never sent */
	struct attributes stored; /* the file whose content it stores, as it is to be */
	uint64_t position;        /* as of which it was done */
	struct object_id made;    /* the file that it has made at the workspace; inode 0: none */
};
TAILQ_HEAD(operations, operation);

/* A part of a file's content, in the journal. */
struct extent {
	uint64_t offset, size, at;
};

/* An object that operations are pending for, that is open, or that was made here. */
struct node {
	struct node *next, *real_next;
	TAILQ_ENTRY(node) idle; /* made here, and nothing else is to be known of it */
	struct object_id id, real;
	struct attributes shown;   /* while operations are pending, and from then on its times */
	struct attributes settled; /* at the workspace, as last acknowledged */
	uint64_t settled_at;       /* position */
	unsigned pending;          /* operations ... */
	unsigned renames;          /* ... that rename it ... */
	unsigned inside;           /* ... and those that are about a name in it */
	struct operation *last;    /* the latest that is about it; NULL: it has ended */
	unsigned handles, writers; /* that read and write the content here */
	unsigned inner_handles;    /* handles of the inner workspace */
	struct operation *content; /* that is to store the content; NULL: it is the workspace's */
	struct extent *extents;
	size_t extent_count, extent_room;
	uint64_t bytes;          /* in the journal */
	bool is_whole;           /* the content is here to be read */
	struct open_file *inner; /* which handles from before open the file through */
	char *target;            /* of a link that was made here */
	int error;               /* of what is lost */
	int refused;             /* the error of a lost change of it, for the next fsync */
	bool is_locked;          /* it has or had a lock: closing it may give one up */
	bool is_gone;            /* it has no name any more */
	bool is_extended;        /* it has extended attributes, perhaps */
	bool is_idle;
};

/* A name that operations are pending for, or were until a moment ago. */
struct name {
	struct name *next;
	LIST_ENTRY(name) in_directory;
	TAILQ_ENTRY(name) retired;
	struct directory *directory;
	struct node *node; /* NULL: nothing is there */
	unsigned pending;
	struct change told; /* of what the feed says meanwhile, the latest; at 0: nothing */
	/* Of a retired one: */
	uint64_t retired_at; /* 0: it is not */
	int64_t retired_ms;
	bool was_left;          /* it is or was one ... */
	struct attributes left; /* ... that led to this; mode 0: to nothing */
	uint64_t position;      /* as of which the workspace has it: older news are none */
	char path[];
};

/* A directory in which such names are. */
struct directory {
	struct directory *next;
	LIST_HEAD(, name) names;
	unsigned pending;        /* of them */
	struct object_id id;     /* shown; inode 0: not known */
	struct attributes known; /* as the workspace told while names were pending; mode 0: not */
	uint64_t known_at;
	struct timespec changed;
	int links; /* more than the workspace tells */
	char path[];
};

/* Who is between two looks, one at the inner workspace and one at the names here. */
struct reader {
	TAILQ_ENTRY(reader) link;
	uint64_t since;
};

struct journal {
	int fd, directory;
	uint64_t size, start; /* bytes; of its first record */
	unsigned reading;     /* threads that read from it */
	bool has_failed;      /* no room: nothing is deferred until nothing is pending */
};

struct identity {
	uid_t uid, makes_uid;
	gid_t gid, makes_gid;
};

/* Whether a directory has a default access list. */
struct inherited {
	struct object_id directory;
	bool has_list;
};

struct writeback {
	struct forward base;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an operation ended, or may run that a caller runs */
	pthread_cond_t work;    /* one may run that is a worker's */
	struct journal journal;
	char *lost_directory;

	struct hash_table nodes, real_nodes, names, directories, keys;
	TAILQ_HEAD(, node) idle;
	size_t idle_count;
	struct operations operations, ready;
	struct operations held; /* the longest first */
	TAILQ_HEAD(, name) retired;
	size_t retired_count;
	TAILQ_HEAD(, reader) readers;
	uint64_t moment; /* counts names that were retired */
	uint64_t moves;  /* counts changes of what is below paths */
	unsigned moving; /* such changes that wait or are passing */
	uint64_t sequence, inode;
	uint64_t count, bytes;    /* of what is pending */
	uint64_t position;        /* the highest that was told */
	uint64_t lost;            /* operations, since the start */
	int64_t failing_since_ms; /* the workspace is out of reach; 0: it is not */
	int unreported;           /* the error of a loss that no barrier has answered */

	struct identity identities[IDENTITIES_MAX];
	unsigned identity_count;
	struct inherited inherited[INHERITED_MAX];
	bool knows_clock;
	int64_t clock_ns; /* the workspace's, less ours */

	change_sink sink;
	void *sink_user;

	pthread_t workers[WORKERS];
	unsigned worker_count;
	bool drains, is_ending, is_abandoned;
};

struct back_file {
	struct forward_file base; /* .inner NULL: the content is the node's */
	struct node *node;
	int flags;
	bool shares;    /* .inner is the node's */
	bool is_here;   /* among the node's handles ... */
	bool is_writer; /* ... and writers */
};

static inline struct writeback *writeback_of(struct workspace *w)
{
	return (struct writeback *)w;
}

static inline struct back_file *back_file_of(struct open_file *file)
{
	return (struct back_file *)file;
}

static inline void writeback_lock(struct writeback *b)
{
	pthread_mutex_lock(&b->lock);
}

static inline void writeback_unlock(struct writeback *b)
{
	pthread_mutex_unlock(&b->lock);
}

static inline uint64_t writeback_moves(struct writeback *b) /* without the lock, too */
{
	return __atomic_load_n(&b->moves, __ATOMIC_RELAXED);
}

/* Below here: under the lock, unless it says otherwise. */

/* ---- back_nodes.c: objects, names and what is shown of them --------------------------- */

int back_tables_init(struct writeback *b);
void back_tables_done(struct writeback *b);

struct object_id back_new_id(struct writeback *b);
bool back_is_provisional(const struct object_id *id);
struct node *back_node(struct writeback *b, const struct object_id *id);
struct node *back_real_node(struct writeback *b, const struct object_id *real);
/* NULL: no memory. */
struct node *back_node_add(
	struct writeback *b, const struct object_id *id, const struct attributes *known);
void back_node_hold(
	struct writeback *b, struct node *node); /* an operation is about a name in it */
bool back_is_as_shown(const struct node *node, const struct attributes *known);
void back_node_made(struct writeback *b, struct node *node, const struct object_id *real);
void back_node_release(struct writeback *b, struct node *node); /* when nothing needs it */

/* The workspace's id of what callers know by this one. */
struct object_id back_real(struct writeback *b, const struct object_id *id);
void back_show_id(struct writeback *b, struct object_id *id);
/* The workspace told of a directory: that answers while names in it are pending. */
void back_keep_directory(
	struct writeback *b, const char *path, const struct attributes *told, uint64_t at);
bool back_directory_known(
	struct writeback *b, const struct object_ref *object, struct attributes *ret_attributes);
/* What callers are told of an object at `path` (NULL: not known) of which the workspace told this.
 */
void back_show(struct writeback *b, const char *path, struct attributes *attributes);
struct attributes back_node_shown(struct writeback *b, const struct node *node, const char *path);

struct name *back_name(struct writeback *b, const char *path, const struct reader *reader);
struct name *back_any_name(struct writeback *b, const char *path); /* retired or not */
int back_name_add(struct writeback *b, const char *path, struct name **ret_name);
/* One operation less, of which the workspace told as of `position`.  The last one tells what others
 * have done since (`*ret_told`, with `at` 0: nothing). */
void back_name_done(
	struct writeback *b, struct name *name, uint64_t position, struct change *ret_told);
/* What a name that operations are pending for leads to; mode 0: to nothing. */
struct attributes back_name_shown(struct writeback *b, const struct name *name);
/* An operation of which nothing came. */
void back_name_not_entered(struct writeback *b, struct name *name);
struct directory *back_directory(struct writeback *b, const char *path, size_t length);

/* 1: `*ret_node` is there; 0: nothing here says; -ENOENT, -ENOTDIR, -ELOOP: pending operations
 * say that. */
int back_resolve(struct writeback *b, const char *path, struct node **ret_node);

/* Operations of the path, or of a directory on its way, ended since the reader began. */
bool back_was_pending(struct writeback *b, const char *path, const struct reader *reader);
void back_reader_begin(struct writeback *b, struct reader *reader);
void back_reader_end(struct writeback *b, struct reader *reader);

struct timespec back_now(struct writeback *b);
void back_learn_clock(struct writeback *b, const struct timespec *there);
const struct identity *back_identity(struct writeback *b, const struct op_context *ctx);
void back_learn_identity(
	struct writeback *b, const struct op_context *ctx, const struct attributes *made);
void back_saw(struct writeback *b, uint64_t position);

/* ---- back_keys.c: what operations are ordered by --------------------------- */

/* Refers to the paths (NULL: none), the directories that they are in, and the object; `all`: to
 * whatever there is.  -ENOMEM: to nothing. */
int back_refs_add(struct writeback *b, struct operation *operation, const char *path,
	const char *path2, const struct object_id *id, bool all);
void back_refs_drop(struct writeback *b, struct operation *operation);
void back_refs_hurry(struct writeback *b, struct operation *operation); /* it waits: no holds */
bool back_is_alone(struct writeback *b, const char *directory, const struct operation *operation);

/* ---- back_queue.c: what waits for what --------------------------- */

struct operation *back_operation_new(const struct op_context *ctx, enum operation_kind kind,
	const char *path, const char *path2);
void back_operation_free(struct operation *operation);

/* Enters it: names and objects are from now on as it leaves them.  Takes it over on success.
 * `is_recovered`: the journal has it already. */
int back_enter(struct writeback *b, struct operation *operation, bool is_recovered);
void back_hold(struct writeback *b, struct operation *operation); /* not started yet */
void back_release_hold(struct writeback *b, struct operation *operation);
void back_cancel(struct writeback *b, struct operation *operation);
void back_end(struct writeback *b, struct operation *operation);    /* tells the journal, and ... */
void back_drop(struct writeback *b, struct operation *operation);   /* frees it, at the end */
void back_forget(struct writeback *b, struct operation *operation); /* ... frees it */

/* Waits for what came before with these paths (NULL: none) and object; what comes after waits until
 * back_fence_end().  `all`: whatever it is about.  -EINTR. */
int back_fence_begin(struct writeback *b, struct op_context *ctx, struct operation *fence,
	const char *path, const char *path2, const struct object_id *id, bool all);
void back_fence_end(struct writeback *b, struct operation *fence);
int back_settle(struct writeback *b, struct op_context *ctx, const struct object_id *id);

/* Waits for everything that came before.  -EINTR, -EIO. */
int back_barrier(struct writeback *b, struct op_context *ctx);

/* Waits for room; the other one without the lock.  -EINTR, -EIO. */
int back_find_room(struct writeback *b, struct op_context *ctx);
int back_await_room(struct writeback *b, struct op_context *ctx);

int back_wait(struct writeback *b, struct op_context *ctx); /* for any change; -EINTR */
void back_put_ready(struct writeback *b, struct operation *operation);
void back_unblock(struct writeback *b, struct operation *operation); /* by one reference, or hold */
void back_take_ready(struct writeback *b, struct operation *operation);
void back_release_holds(struct writeback *b, int64_t taken_before_ms);
/* `moves`: b->moves before the caller looked at paths. */
bool back_defers(struct writeback *b, struct op_context *ctx, uint64_t moves);

/* ---- back_workers.c --------------------------- */

void back_workers_stop(struct writeback *b);
int back_start_worker(struct writeback *b);
/* It is not done, and will not be: what depends on it gets the error. */
void back_undo(struct writeback *b, struct operation *operation, int error);

/* ---- back_apply.c: at the inner workspace; without the lock --------------------------- */

/* 0, or why it is lost; -EAGAIN: the workspace is out of reach. */
int back_apply(struct writeback *b, struct operation *operation);

/* ---- back_names.c --------------------------- */

/* As getattr by the path, for our own questions; without the lock. */
int back_look(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *id, struct attributes *ret_attributes);
void back_answered(struct writeback *b, struct op_context *ctx);

/* Makes something here: 0, -EEXIST and so on; 1: it is to be passed on.  A file has a handle that
 * writes. */
int back_make(struct op_context *ctx, struct workspace *w, enum operation_kind kind,
	const char *path, const char *target, uint32_t mode, struct attributes *ret_attributes);

/* 0: nothing here says of the object, and `*ret_inner` is it as the inner workspace knows it; 1:
 * `*ret_node` is it, and has operations pending; -ENOENT, -ESTALE and so on. */
int back_find(struct writeback *b, const struct object_ref *object, struct object_ref *ret_inner,
	struct node **ret_node);
bool back_is_simple(struct writeback *b, const struct attributes *there);
void back_expect(struct writeback *b, const struct attributes *there, struct attributes *ret_known);
bool back_may_set(const struct op_context *ctx, const struct attributes *there, unsigned mask,
	const struct attributes *want);
void back_learn_time(
	struct writeback *b, const struct op_context *ctx, const struct attributes *changed);
void back_learn(struct writeback *b, const struct op_context *ctx, int r, struct attributes *made);

/* The caller's context as the inner workspace knows it, and back. */
struct passage {
	struct object_id parent, new_parent;
};

void back_pass_begin(struct writeback *b, struct op_context *ctx, struct passage *passage);
void back_pass_end(struct writeback *b, struct op_context *ctx, const struct passage *passage);
struct object_ref back_pass_object(struct writeback *b, const struct object_ref *object);

/* The lock is held before and after, not between. */
#define PASS(b, ctx, r, prepare, call)                  \
	do {                                            \
		struct passage passage_;                \
		back_pass_begin((b), (ctx), &passage_); \
		prepare;                                \
		writeback_unlock(b);                    \
		(r) = (call);                           \
		writeback_lock(b);                      \
		back_pass_end((b), (ctx), &passage_);   \
	} while (0)

/* A change that the caller waits for: all that came before and touches the same names and object is
 * acknowledged first. */
#define PASS_IN_TURN(b, ctx, r, path, path2, id, all, prepare, call)                       \
	do {                                                                               \
		struct operation fence_;                                                   \
		(r) = back_fence_begin((b), (ctx), &fence_, (path), (path2), (id), (all)); \
		if ((r) == 0) {                                                            \
			PASS((b), (ctx), (r), prepare, call);                              \
			back_fence_end((b), &fence_);                                      \
		}                                                                          \
	} while (0)

#define NOTHING (void)0

/* ---- back_content.c, back_files.c --------------------------- */

ssize_t back_content_read(
	struct writeback *b, struct node *node, void *data, size_t size, uint64_t offset);
int back_content_write(
	struct writeback *b, struct node *node, uint64_t at, size_t size, uint64_t offset);
void back_content_cut(struct node *node, uint64_t size);
/* The file of `node->content` was written to up to `end`. */
void back_content_written(struct node *node, uint64_t end, const struct timespec *mtime);
void back_content_drop(struct writeback *b, struct node *node);
/* The handle of the inner workspace, when all that is pending of the file is acknowledged. */
int back_inner_open(struct op_context *ctx, struct back_file *file);
int back_file_getattr(
	struct op_context *ctx, struct back_file *file, struct attributes *ret_attributes);
/* Changes a file whose content is to be sent with them. */
int back_merge(
	struct writeback *b, struct node *node, unsigned mask, const struct attributes *want);

/* ---- back_journal.c --------------------------- */

enum record_type {
	RECORD_OPERATION = 1, /* struct operation_facts, the paths */
	RECORD_DATA,          /* struct data_record, the content */
	RECORD_MERGE,         /* struct merge_record */
	RECORD_STARTED,       /* nothing */
	RECORD_MADE,          /* struct made_record: records from now on have the real id */
	RECORD_DONE,          /* struct attributes, as they are at the workspace */
	RECORD_UNDONE,        /* the same, of what is lost or was never sent */
	RECORD_CREATED,       /* struct made_record: a file that is not complete yet */
};

struct made_record {
	struct object_id id, real;
};

struct data_record {
	struct object_id id;
	uint64_t offset;
	struct timespec mtime;
};

struct merge_record {
	struct object_id id;
	uint32_t mask, unused;
	struct attributes want, shown;
};

int back_journal_open(
	struct writeback *b, const struct writeback_options *options, char **ret_reason);
void back_journal_close(struct journal *journal);

/* Appends a record; `*ret_at`: where the second part is.  -errno: nothing is written. */
int back_journal_add(struct journal *journal, enum record_type type, uint64_t sequence,
	const void *head, size_t head_size, const void *data, size_t size, uint64_t *ret_at);
int back_journal_operation(struct writeback *b, const struct operation *operation);
void back_journal_clear(struct writeback *b); /* when nothing is pending */
int back_journal_recover(
	struct writeback *b, const struct writeback_options *options, char **ret_reason);

/* ---- back_lost.c --------------------------- */

/* Keeps what the operation would have stored, on the disk when it returns; without the lock.
 * -errno: nothing is kept. */
int back_keep_lost(struct writeback *b, struct operation *operation);

WORKSPACE_DECLARE_OPERATIONS(back)
