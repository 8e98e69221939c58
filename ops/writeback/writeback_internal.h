/*
 * ops/writeback/writeback_internal.h - shared by the files of the decorator.
 *
 * One lock guards everything.  It is released during calls to the inner workspace.
 * An object has a "shown" id, which callers know, and a "real" id, which the workspace has.  They
 * differ for objects that were made here: these keep a provisional id as long as the mount lives.
 */
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "ops/forward.h"
#include "ops/support/hash_table.h"
#include "ops/writeback/writeback.h"

enum {
	WORKERS = 96,
	KEYS_MAX = 8,
	GROUPS_MAX = 32,
	OPERATIONS_MAX = 20000,
	IDENTITIES_MAX = 16,
	INHERITED_MAX = 1024,
	EXTENTS_MAX = 4096,
	HELD_MS = 1000, /* how long the content of an open file is held back at most */
};

static const uint64_t PENDING_MAX_BYTES = 256 << 20;
static const uint64_t JOURNAL_MAX_BYTES = 1 << 30;
static const uint64_t FILE_MAX_BYTES = 8 << 20; /* larger files are written through */

enum operation_kind {
	OP_MKDIR,
	OP_CREATE, /* with content and attributes */
	OP_SYMLINK,
	OP_CONTENT, /* truncates an existing file and writes its new content */
	OP_SETATTR,
	OP_UNLINK,
	OP_RMDIR,
	OP_RENAME, /* of anything but a directory */
	OP_FENCE,  /* a caller's own turn: it calls the inner workspace itself */
};

/* An operation as it is in the journal, where the path and the second path (or the target of a
 * symbolic link) follow it. */
struct operation_facts {
	uint32_t kind, mask;
	uint32_t mode;
	uint32_t continues; /* of OP_CONTENT: it begins with the content that is pending */
	uint32_t uid, gid;
	int32_t pid;
	uint32_t group_count;
	uint32_t groups[GROUPS_MAX];
	struct object_id parent, new_parent; /* shown */
	struct attributes shown;             /* the object, as it is after the operation */
	struct attributes known;      /* ... as the workspace had it before; mode 0: it had none */
	struct attributes want;       /* of setattr, and of a file's creation */
	struct attributes replaced;   /* what a rename replaces, as `known` ... */
	struct object_id replaced_id; /* ... and its shown id */
};

struct key_ref {
	TAILQ_ENTRY(key_ref) link;
	struct key *key;
	struct operation *operation;
	bool is_exclusive, is_granted;
};
TAILQ_HEAD(key_refs, key_ref);

/* A name or an object; operations that refer to the same one run in order.  (So do operations whose
 * keys have the same hash.) */
struct key {
	struct key *next;
	size_t hash;
	struct key_refs refs;    /* in the order of their operations; the granted ones come first */
	struct key_ref *waiting; /* the first that is not granted; or NULL */
};

struct operation {
	TAILQ_ENTRY(operation) link;  /* of all that wait */
	TAILQ_ENTRY(operation) ready; /* of those that may run, or are to be tried again */
	TAILQ_ENTRY(operation) held;  /* of those that are held */
	struct operation_facts facts;
	uint64_t sequence;
	int64_t taken_ms;
	char *path, *path2;
	struct node *node, *replaced;
	struct node *parents[2]; /* that are known here, or NULL */
	struct key_ref refs[KEYS_MAX];
	unsigned ref_count;
	unsigned blockers; /* references that are not granted, plus 1 if is_held */
	bool is_held;      /* its file is open for writing */
	bool is_ready;     /* in the list of those that may run ... */
	bool is_later;     /* ... or of those to be tried again, at ... */
	int64_t again_ms;
	unsigned attempts;   /* failed ones, all over the same connection ... */
	uint64_t reconnects; /* ... with this number */
	bool is_move;        /* a fence that waits for all operations */
	int refusal;         /* the error for which it is lost; 0: none */
	bool is_unkept;      /* it is lost, but could not be saved yet */
	bool is_started;
	bool may_be_done;         /* an earlier attempt may have succeeded */
	bool is_undone;           /* it was lost, or cancelled before it was sent */
	struct content *data;     /* that it stores; or NULL */
	struct attributes stored; /* of that file when it is done; set when it is started */
	uint64_t position;        /* of the reply */
	struct object_id made;    /* real id of the file that an attempt created; inode 0: none */
};
TAILQ_HEAD(operations, operation);

/* A part of a file's content, in the journal. */
struct extent {
	uint64_t offset, size, at;
};

/* A file's whole content, in the journal. */
struct content {
	unsigned refs; /* by the operation that stores it, and by the node that shows it */
	struct extent *extents;
	size_t extent_count, extent_room;
	uint64_t bytes; /* that were written */
};

/* An object that has pending operations or open handles, or was made here. */
struct node {
	struct node *next, *real_next;
	TAILQ_ENTRY(node) idle;
	struct object_id id, real;
	struct attributes shown;   /* what callers see while operations are pending */
	struct attributes settled; /* at the workspace, after the last acknowledged operation */
	uint64_t settled_at;       /* position of that */
	unsigned pending;          /* operations on it ... */
	unsigned renames;          /* ... those among them that rename it ... */
	unsigned inside;           /* ... and operations on a name in this directory */
	struct operation *last;    /* the latest operation on it; NULL: it has ended */
	unsigned handles, writers; /* that use the content in the journal */
	unsigned inner_handles;    /* that use the inner workspace */
	struct operation *content; /* will store the content; NULL: the workspace has it */
	struct content *data;      /* to be read from; NULL: the workspace is read */
	struct open_file *inner; /* stored the content; older handles reopen the file through it */
	char *target;            /* of a symbolic link that was made here */
	int error;               /* its creation or content was lost for this reason */
	int refused;             /* another change of it was lost; the next fsync reports it */
	bool is_locked;          /* it has or had a lock: closing it may release one */
	bool is_gone;            /* its last name was removed */
	bool is_extended;        /* it may have extended attributes */
	bool is_idle;
};

/* Those that are kept only for their provisional ids, in the order in which they became idle. */
struct idle_nodes {
	TAILQ_HEAD(, node) list;
	size_t count;
};

/* A name with pending operations, or one whose last operation ended a moment ago ("retired"). */
struct name {
	struct name *next;
	LIST_ENTRY(name) in_directory;
	TAILQ_ENTRY(name) retired;
	struct directory *directory;
	struct node *node; /* NULL: nothing is there */
	unsigned pending;
	struct change told; /* latest event of the feed meanwhile; at 0: none */
	/* Moments at which an operation on it ended, done or refused, last; 0: none has. */
	uint64_t done_at, refused_at;
	uint64_t done_position; /* of the reply to the one that was done last; 0: not known */
	/* Of a retired one: */
	uint64_t retired_at; /* 0: it is not retired */
	int64_t retired_ms;
	bool was_left;                /* `left` is set */
	bool is_removed;              /* by the last operation, and nothing was made there since */
	struct attributes left;       /* what the last operation left there; mode 0: nothing ... */
	struct attributes left_there; /* ... and the same as the workspace has it */
	uint64_t position;            /* of the last reply; older events are stale */
	char path[];
};

/* A directory in which such names are. */
struct directory {
	struct directory *next;
	LIST_HEAD(, name) names;
	unsigned pending;        /* names with pending operations */
	struct object_id id;     /* shown; inode 0: not known */
	struct attributes known; /* from the workspace, while names are pending; mode 0: none */
	uint64_t known_at;
	struct timespec changed;
	int links; /* to be added to the link count of the workspace */
	char path[];
};

/* A caller that asks the inner workspace first and looks at the names here afterwards.  Names that
 * retire in between are kept for it. */
struct reader {
	TAILQ_ENTRY(reader) link;
	uint64_t since;
};

struct journal {
	int fd, directory;
	uint64_t size, start; /* bytes; of its first record */
	unsigned reading;     /* threads that read from it */
	bool has_failed;      /* no room: defer nothing until it is empty */
};

struct identity {
	uid_t uid, makes_uid;
	gid_t gid, makes_gid;
};

/* A file without a name that a worker is to make in a directory, as this caller. */
struct probe {
	char *directory; /* NULL: none */
	bool runs;
	pid_t pid;
	uid_t uid;
	gid_t gid, groups[GROUPS_MAX];
	size_t group_count;
};

struct probed {
	uid_t uid;
	gid_t gid;
	unsigned attempts;
};

/* Whether a directory has a default access list. */
struct inherited {
	struct object_id directory;
	bool has_list;
};

struct writeback {
	struct forward base;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an operation ended, or a fence has its turn */
	pthread_cond_t work;    /* a worker has something to run */
	struct journal journal;
	char *lost_directory;

	struct hash_table nodes, real_nodes, names, directories, keys;
	struct idle_nodes idle_files, idle_directories;
	struct operations operations, ready;
	struct operations held;  /* held longest first */
	struct operations later; /* to be tried again, the next one first */
	unsigned later_count;
	TAILQ_HEAD(, name) retired;
	size_t retired_count;
	TAILQ_HEAD(, reader) readers;
	uint64_t moment; /* counts operations that ended, and names that were retired */
	uint64_t moves;  /* counts changes that may put another object at a path (renames of
			  * directories) */
	unsigned moving; /* such changes that wait or are under way */
	uint64_t sequence;
	uint64_t made; /* counts provisional ids, from a number that each mount has for itself */
	uint64_t count, bytes;    /* of what is pending */
	uint64_t position;        /* the highest in any reply */
	uint64_t lost;            /* operations, since the mount */
	int64_t failing_since_ms; /* the workspace is out of reach since then; 0: it is not */
	bool is_away;             /* the link was broken when it was looked at last */
	int unreported;           /* error of a loss; the next barrier reports it */

	struct identity identities[IDENTITIES_MAX];
	unsigned identity_count;
	struct probe probe;
	struct probed probed[IDENTITIES_MAX];
	unsigned probed_count;
	struct inherited inherited[INHERITED_MAX];
	atomic_bool changes_modes; /* new files have another mode than was asked for */
	bool knows_clock;
	int64_t clock_ns; /* the workspace's clock minus ours */

	change_sink sink;
	void *sink_user;

	pthread_t workers[WORKERS];
	unsigned worker_count;
	bool drains, is_abandoned;
	atomic_bool is_ending;
};

struct back_file {
	struct forward_file base; /* .inner NULL: the content is the node's */
	struct node *node;
	int flags;
	bool shares;    /* .inner belongs to the node */
	bool is_here;   /* counted in node->handles ... */
	bool is_writer; /* ... and in node->writers */
};

static inline struct writeback *writeback_of(struct workspace *w)
{
	return (struct writeback *)w;
}

static inline struct back_file *back_file_of(struct open_file *file)
{
	return (struct back_file *)file;
}

static inline bool back_is_writing(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* The handle of the inner workspace; NULL: the content is the node's. */
static inline struct open_file *back_file_inner(struct back_file *file)
{
	return __atomic_load_n(&file->base.inner, __ATOMIC_ACQUIRE);
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

/* The functions below are called with the lock held, unless stated otherwise. */

/* ---- back_nodes.c: objects, names and what is shown of them --------------------------- */

int back_tables_init(struct writeback *b);
void back_tables_done(struct writeback *b);

struct object_id back_new_id(struct writeback *b);
void back_is_made(struct writeback *b, const struct object_id *id); /* never to be made again */
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
/* Keeps the workspace's attributes of a directory, as the answer while names in it are pending. */
void back_keep_directory(
	struct writeback *b, const char *path, const struct attributes *told, uint64_t at);
/* The directory that `path` is in was so before the first operation in it was entered, which just
 * was, with so many names in it: a look at the workspace now might wait for that operation. */
void back_remember_parent(
	struct writeback *b, const char *path, const struct attributes *parent, unsigned names);
bool back_directory_known(
	struct writeback *b, const struct object_ref *object, struct attributes *ret_attributes);
/* Turns the workspace's attributes of the object at `path` (NULL: not known) into those that
 * callers see. */
void back_show(struct writeback *b, const char *path, struct attributes *attributes);
struct attributes back_node_shown(struct writeback *b, const struct node *node, const char *path);

struct name *back_name(struct writeback *b, const char *path, const struct reader *reader);
struct name *back_any_name(struct writeback *b, const char *path); /* retired or not */
int back_name_add(struct writeback *b, const char *path, struct name **ret_name);
/* The operation on the name has ended.  After the last one `*ret_told` is the newest event that is
 * later than it (`at` 0: there is none). */
void back_name_done(struct writeback *b, struct name *name, const struct operation *operation,
	struct change *ret_told);
/* The attributes of what a name with pending operations leads to; mode 0: nothing is there. */
struct attributes back_name_shown(struct writeback *b, const struct name *name);
/* Undoes back_name_add(): the operation could not be entered. */
void back_name_not_entered(struct writeback *b, struct name *name);
struct directory *back_directory(struct writeback *b, const char *path, size_t length);

/* What pending operations make of the path.  1: `*ret_node` is there; 0: they do not concern it;
 * -ENOENT, -ENOTDIR, -ELOOP. */
int back_resolve(struct writeback *b, const char *path, struct node **ret_node);

/* True when operations on the path, or on a directory above it, ended since the reader began. */
bool back_was_pending(struct writeback *b, const char *path, const struct reader *reader);
void back_reader_begin(struct writeback *b, struct reader *reader);
void back_reader_end(struct writeback *b, struct reader *reader);

struct timespec back_now(struct writeback *b);
void back_learn_clock(struct writeback *b, const struct timespec *there);
const struct identity *back_identity(struct writeback *b, const struct op_context *ctx);
void back_learn_identity(
	struct writeback *b, const struct op_context *ctx, const struct attributes *made);
void back_saw(struct writeback *b, uint64_t position);
/* The event tells of what the last operation on the retired name left there. */
bool back_is_left(const struct name *name, const struct change *change);

/* ---- back_keys.c: what operations are ordered by --------------------------- */

/* Refers to the paths (NULL: none), the directories that they are in, and the object; `all`: to
 * whatever there is.  -ENOMEM: to nothing. */
int back_refs_add(struct writeback *b, struct operation *operation, const char *path,
	const char *path2, const struct object_id *id, bool all);
void back_refs_drop(struct writeback *b, struct operation *operation);
/* Ends the holds of the operations that this one waits for. */
void back_refs_hurry(struct writeback *b, struct operation *operation);
bool back_is_alone(struct writeback *b, const char *directory, const struct operation *operation);

/* ---- back_queue.c: what waits for what --------------------------- */

struct operation *back_operation_new(const struct op_context *ctx, enum operation_kind kind,
	const char *path, const char *path2);
void back_operation_free(struct operation *operation);

/* Adds it to the journal and to the queue; callers see its effect from now on.  Takes ownership on
 * success.  `is_recovered`: it comes from the journal. */
int back_enter(struct writeback *b, struct operation *operation, bool is_recovered);
void back_hold(struct writeback *b, struct operation *operation); /* not started yet */
void back_release_hold(struct writeback *b, struct operation *operation);
void back_cancel(struct writeback *b, struct operation *operation);
void back_end(struct writeback *b, struct operation *operation);    /* tells the journal, and ... */
void back_drop(struct writeback *b, struct operation *operation);   /* frees it, at the end */
void back_forget(struct writeback *b, struct operation *operation); /* ... frees it */

/* Waits for earlier operations on these paths (NULL: none) and on the object; later ones wait until
 * back_fence_end().  `all`: waits for, and holds up, all operations.  -EINTR. */
int back_fence_begin(struct writeback *b, struct op_context *ctx, struct operation *fence,
	const char *path, const char *path2, const struct object_id *id, bool all);
/* The same; once the journal could not be written, it also waits until nothing is pending. */
int back_turn_begin(struct writeback *b, struct op_context *ctx, struct operation *fence,
	const char *path, const char *path2, const struct object_id *id, bool all);
void back_fence_end(struct writeback *b, struct operation *fence);
int back_settle(struct writeback *b, struct op_context *ctx, const struct object_id *id);
/* Something is at the path (may be NULL) or may be made there: a removal that is reported later is
 * not the one that was made here. */
void back_forget_removal(struct writeback *b, const char *path);
/* Waits until nothing is pending on the object, or the link is away: true. */
bool back_await_away(struct writeback *b, struct op_context *ctx, const struct object_id *id);
bool back_is_away(struct writeback *b); /* releases the lock meanwhile */

/* Waits for all operations entered so far.  -EINTR; -EIO: the workspace is out of reach. */
int back_barrier(struct writeback *b, struct op_context *ctx);

/* Wait until the bounds allow another operation; back_find_room() is called without the lock.
 * -EINTR, -EIO. */
int back_find_room(struct writeback *b, struct op_context *ctx);
int back_await_room(struct writeback *b, struct op_context *ctx);

int back_wait(struct writeback *b, struct op_context *ctx); /* for any change; -EINTR */
void back_put_ready(struct writeback *b, struct operation *operation);
void back_unblock(struct writeback *b, struct operation *operation); /* by one reference, or hold */
void back_take_ready(struct writeback *b, struct operation *operation);
void back_start(struct operation *operation); /* its content is not changed any more */
void back_put_later(struct writeback *b, struct operation *operation, int64_t again_ms);
void back_release_holds(struct writeback *b, int64_t taken_before_ms);
/* Whether a change may be deferred now.  `moves`: b->moves before the caller resolved any path. */
bool back_defers(struct writeback *b, struct op_context *ctx, uint64_t moves);

/* ---- back_workers.c --------------------------- */

void back_workers_stop(struct writeback *b);
int back_start_worker(struct writeback *b);
/* The operation is lost or cancelled: operations that depend on it fail with `error`. */
void back_undo(struct writeback *b, struct operation *operation, int error);

/* ---- back_predict.c: what new objects will be like --------------------------- */

/* The caller has looked at this directory of the workspace. */
void back_meet(struct writeback *b, const struct op_context *ctx, const char *path,
	const struct attributes *directory);
void back_probe(struct writeback *b); /* by a worker; there is one that does not run yet */

/* Whether the directory of the path has a default access list; called without the lock. */
bool back_inherits(struct op_context *ctx, struct workspace *w, const char *path,
	const struct attributes *parent);

/* ---- back_apply.c: at the inner workspace; without the lock --------------------------- */

/* 0; -EAGAIN: the workspace is out of reach, try again; -errno: the operation is lost. */
int back_apply(struct writeback *b, struct operation *operation);

/* ---- back_names.c --------------------------- */

/* getattr by path for the decorator's own use; called without the lock. */
int back_look(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *id, struct attributes *ret_attributes);
void back_answered(struct writeback *b, struct op_context *ctx);

/* Defers the creation of an object.  0; -EEXIST and the like; 1: it cannot be deferred.  A new file
 * is counted as having one handle that writes. */
int back_make(struct op_context *ctx, struct workspace *w, enum operation_kind kind,
	const char *path, const char *target, uint32_t mode, struct attributes *ret_attributes);

/* 1: the object has pending operations, and is `*ret_node`; 0: it has none, and `*ret_inner` refers
 * to it at the inner workspace; -ENOENT, -ESTALE and the like. */
int back_find(struct writeback *b, const struct object_ref *object, struct object_ref *ret_inner,
	struct node **ret_node);
bool back_is_simple(struct writeback *b, const struct attributes *there);
void back_expect(struct writeback *b, const struct attributes *there, struct attributes *ret_known);
bool back_may_set(const struct op_context *ctx, const struct attributes *there, unsigned mask,
	const struct attributes *want);
void back_learn_time(
	struct writeback *b, const struct op_context *ctx, const struct attributes *changed);
void back_learn(struct writeback *b, const struct op_context *ctx, int r, struct attributes *made);

/* Translate the ids in the caller's context for a call of the inner workspace, and back. */
struct passage {
	struct object_id parent, new_parent;
};

void back_pass_begin(struct writeback *b, struct op_context *ctx, struct passage *passage);
void back_pass_end(struct writeback *b, struct op_context *ctx, const struct passage *passage);
struct object_ref back_pass_object(struct writeback *b, const struct object_ref *object);

/* Runs `prepare` with the lock held and `call` without it. */
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

/* The same for a change that is not deferred: it waits for earlier operations on the same names and
 * object.  If the journal could not be written, it waits for all: the journal is empty then, and
 * the next mount cannot repeat an operation that was not recorded as done over this change. */
#define PASS_IN_TURN(b, ctx, r, path, path2, id, all, prepare, call)                      \
	do {                                                                              \
		struct operation fence_;                                                  \
		(r) = back_turn_begin((b), (ctx), &fence_, (path), (path2), (id), (all)); \
		if ((r) == 0) {                                                           \
			PASS((b), (ctx), (r), prepare, call);                             \
			back_fence_end((b), &fence_);                                     \
		}                                                                         \
	} while (0)

#define NOTHING (void)0

/* ---- back_content.c, back_open.c, back_files.c --------------------------- */

/* Begins with what `former` has (NULL: with nothing), and is referred to once.  NULL: no memory. */
struct content *back_content_new(struct writeback *b, const struct content *former);
void back_content_unref(struct writeback *b, struct content *content);
/* Without the lock.  What is shown now (-EAGAIN: the workspace is to be read), or what the
 * operation stores. */
ssize_t back_content_read(
	struct writeback *b, struct node *node, void *data, size_t size, uint64_t offset);
ssize_t back_stored_read(struct writeback *b, const struct operation *operation, void *data,
	size_t size, uint64_t offset);
int back_content_write(
	struct writeback *b, struct content *content, uint64_t at, size_t size, uint64_t offset);
/* lseek(2) with SEEK_HOLE or SEEK_DATA in a file of that size: its end where no data follows. */
uint64_t back_content_seek(
	const struct content *content, uint64_t end_of_file, uint64_t offset, bool hole);
uint64_t back_content_blocks(
	const struct content *content, uint64_t end_of_file); /* of 512 bytes */
void back_content_cut(struct content *content, uint64_t size);
/* The file of `node->content` was written to up to `end`. */
void back_content_written(struct node *node, uint64_t end, const struct timespec *mtime);
void back_content_drop(struct writeback *b, struct node *node);
/* Has a pending operation that takes further changes of the file's content; which is a new one when
 * that of the content so far has started.  False: the changes have to wait. */
bool back_content_take(
	struct writeback *b, struct op_context *ctx, struct node *node, bool is_truncated);
/* Waits for the pending operations on the file, and opens it at the inner workspace. */
int back_inner_open(struct op_context *ctx, struct back_file *file);
int back_file_getattr(
	struct op_context *ctx, struct back_file *file, struct attributes *ret_attributes);
/* Adds attribute changes to the pending operation that will store the file's content. */
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
	RECORD_UNDONE,        /* the same; the operation was lost or cancelled */
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

/* Saves what the operation would have stored, and syncs it to disk.  Called without the lock.
 * -errno: nothing is saved. */
int back_keep_lost(struct writeback *b, struct operation *operation);

WORKSPACE_DECLARE_OPERATIONS(back)
