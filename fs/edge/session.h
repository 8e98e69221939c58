/*
 * fs/edge/session.h - what the files of the FUSE edge share (session*.c, virtual.c, invalidate.c).
 *
 * Each FUSE request is a `struct request` on its thread's stack: begun, located (paths are
 * computed), carried out by one workspace_*() call, recorded in the mount log, answered.
 * The record is made before the answer: when a system call returns, the log has it.
 */
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <semaphore.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "fs/edge/content_hash.h"
#include "fs/edge/edge.h"
#include "fs/edge/foreign.h"
#include "fs/inode/inode.h"
#include "fs/inode/misses.h"
#include "ops/support/worker_pool.h"

struct announcement;
struct change_observer;
struct dropper;
struct invalidator;

/* Lives as long as the mount serves; userdata of the FUSE session. */
enum { RETRIERS = 256, FOUND_MAX = 16, ATTEMPTS_MAX = 16, FILES_MAX = 16, READS_MAX = 64 };
enum { PAGES_TURNS = 1024, ANNOUNCERS = 4, ANNOUNCE_FLIGHTS = 4096 };

enum { SESSION_REQUEST_MAX_BYTES = 1 << 20 }; /* of data, in a request or its answer */

/* Threads that serve the same source of requests: the device, or one of the kernel's queues. */
struct thread_group {
	struct session *session;
	int queue;         /* its number; -1: the device */
	unsigned usual;    /* up to this number, one is started whenever none is idle */
	atomic_uint total; /* without those that rest */
	atomic_uint idle;
	atomic_uint blocked;        /* wait, perhaps for ever (for a lock) */
	atomic_uint extra_for;      /* so many more requests, one more than usual may be idle */
	struct session_ring *first; /* until it is started */
};

struct session {
	struct mount *mount;
	struct fuse_session *fuse;
	struct invalidator *invalidator;
	struct dropper *dropper;
	struct foreign foreign;
	double watched_ttl, brief_ttl, ttl; /* seconds, by enum lifetime */
	atomic_bool caches_unwatched; /* the kernel got something that it caches by time only, since
				       * the last drain */

	/* Negotiation (session_raw.c); fixed once the first request is served. */
	uint64_t init_unique;
	uint32_t kernel_flags, kernel_flags2;
	bool kills_suid;       /* the daemon clears set-user-ID bits on writes, not the kernel */
	bool may_pass_through; /* with this privilege, and descriptors of the workspace */
	bool passes_through;   /* the kernel reads backing files itself */
	pthread_mutex_t backing_lock;       /* the backing_* fields of files */
	pthread_mutex_t direct_writes_lock; /* and struct inode_file.direct_writes */
	/* The latest reads into the kernel's pages (session_files.c). */
	struct seen_read {
		const struct inode *inode;
		uint64_t unique;
		off_t offset;
		size_t size;
	} reads[READS_MAX]; /* direct_writes_lock */
	unsigned read_next; /* direct_writes_lock */
	bool is_remote;
	bool can_watch, ignores_case;
	bool opens_directories; /* the kernel needs OPENDIR, or must not cache listings */
	bool expires_entries;   /* the kernel can expire an entry without dropping it */

	struct misses misses;

	/* Event helpers, and the observer of changes (fs/edge/announce.h). */
	struct announcer {
		atomic_int pid; /* 0: none */
		pthread_mutex_t lock;
		struct announcement *current; /* lock */
	} announcers[ANNOUNCERS];
	pthread_mutex_t announcing; /* a helper's call is under way, or an expiry of a name */
	atomic_uint expiring;       /* threads that are about to take it for an expiry */
	const struct change_observer *_Atomic observer;
	atomic_bool observes_own;
	atomic_uint flights[ANNOUNCE_FLIGHTS]; /* requests in flight, by node id */

	pthread_mutex_t listings_lock;
	struct listing *listings;     /* session_directories.c; listings_lock */
	atomic_size_t listings_bytes; /* of these, and of those that are being read */

	/* A path that was computed before a rename may be wrong. */
	pthread_mutex_t rename_lock;
	pthread_cond_t rename_done;
	uint32_t renames_active;      /* rename_lock */
	atomic_uint_fast64_t renames; /* finished so far; changed under rename_lock */

	/* Shared: while content is handed to the kernel; exclusive: while it is told to drop pages.
	 */
	pthread_rwlock_t store_lock;
	/* A counter by inode address, raised before the inode's pages are dropped or may be
	 * written: content that was read before must not be handed to the kernel.  Inodes that
	 * share a counter only cost the kernel a READ. */
	atomic_uint pages_turns[PAGES_TURNS];
	/* Threads of callers that retry after ESTALE (session_request.c), by thread id. */
	struct retrier {
		atomic_int thread; /* 0: nobody */
		atomic_uint_fast64_t until_ns;
		atomic_uint found_count; /* inodes found by name since; the latest are in `found` */
		const struct inode *_Atomic found[FOUND_MAX];
		struct inode *_Atomic kept; /* the last file found, with a reference */
	} retriers[RETRIERS];

	/* The threads that serve (session_loop.c). */
	struct worker_pool readers, ring_threads;
	pthread_mutex_t threads_lock;
	pthread_cond_t threads_changed;
	LIST_HEAD(, session_thread) threads; /* threads_lock */
	atomic_uint threads_serving;         /* these, and those that are about to be */
	struct thread_group device;
	struct thread_group *queues;           /* from the negotiation on: */
	atomic_uint queue_count;               /* 0: all requests come by the device */
	atomic_uint_fast64_t files[FILES_MAX]; /* files that requests were for; session_uring.c */
	atomic_uint file_next;
	pthread_t watcher; /* starts threads when all are busy for long */
	sem_t look;
	atomic_bool is_saturated;
	atomic_bool is_quiet; /* memory has been given back, and no request has come since */
	atomic_bool ending;

	/* Pages of mapped files, which the kernel writes back at any time (session_files.c). */
	atomic_uint pages_under_way;
	atomic_uint_fast64_t pages_seen;
};

/* A change of ours under way that makes, removes or moves this name (invalidate.h). */
struct own_change {
	struct own_change *next;
	struct object_id directory;
	const char *name;
	struct inode *moves_in; /* that directory, if a rename moves the name or something to it */
};

struct request {
	struct session *session;
	struct mount *mount;
	fuse_req_t fuse;
	struct op_context op;
	struct log_record record;
	struct path_string path, path2;
	struct open_handle *handle; /* borrowed for this request (request_locate) */
	struct own_change own[2];
	unsigned own_count;
	uint64_t renames_seen;
	unsigned attempts;
	uint64_t start_ns;                    /* CLOCK_MONOTONIC */
	atomic_uint_fast64_t asked_to_end_ns; /* when the caller was seen to be; 0: not yet */
	atomic_uint_fast64_t looked_ns;       /* when the caller was last checked; 0: not yet */
	bool by_handle;
	bool any_signal_interrupts; /* as POSIX has it for locks */
	bool by_name;               /* serves what has the object's name now: `successor` ... */
	bool is_gone;               /* ... or nothing has it */
	struct object_id successor;
	bool is_announcement; /* an event helper's */
	bool settles;         /* earlier writes have reached the workspace */
	bool is_found;        /* what was to be created existed */
	bool is_step;         /* may be a step of a path walk */
	bool by_path;         /* of an entry: in whichever directory has the path */
	bool path_is_stale;   /* the path leads through a directory that was removed or replaced */
};

/* ---- Requests (session_request.c) ------------------------------------------------ */

/* `op` is static; `flags`: enum log_op_flags. */
void request_begin(struct request *r, fuse_req_t fuse, const char *op, unsigned flags);

/* The request makes, removes or moves the name: reports of the feed about it are handled after
 * request_record(), when the outcome is known here.  At most two per request; `name` must outlive
 * it. */
struct own_change *request_owns_name(
	struct request *r, const struct inode *parent, const char *name);

/* The request is about to change what is at `path` (or NULL), and the object `id` (or NULL):
 * reports of the feed about them are echoes. */
void request_changes(struct request *r, const char *path, const struct object_id *id);

/* Records the outcome and frees; `result`: 0, a count or -errno.  Comes before the answer. */
void request_record(struct request *r, int64_t result);

/* request_record(); true: the result is an error, which has been answered. */
bool request_failed(struct request *r, int64_t result);

/* request_record(), and answers an error (or success without data). */
void request_finish(struct request *r, int result);

/* Locates the object by its path or, when it has no name any more, by any open handle.  -ENOENT:
 * neither. */
int request_locate(struct request *r, struct inode *inode, struct object_ref *ret_object);

/* The same, preferring an open handle, where that saves resolving the path. */
int request_locate_open(struct request *r, struct inode *inode, struct object_ref *ret_object);

/* Puts the path of the entry `name` in `parent` into r->path (_second: r->path2), and `parent` into
 * r->op as the directory that the call must find there.  A `parent` without a name: -ENOENT, as it
 * is gone; within a second of losing it -ESTALE, so that the kernel looks up again. */
int request_locate_entry(struct request *r, struct inode *parent, const char *name);
int request_locate_second(struct request *r, struct inode *parent, const char *name);

/* After a failed call: true when a rename through this mount made the path wrong meanwhile (or an
 * open handle leads to the object): locate again, and repeat the call. */
bool request_retry(struct request *r, int result, struct inode *inode);

/* The same, for a request for entries of `parent` and `second` (or NULL), which another directory
 * may have replaced: for a caller that means the name, that one will do (r->by_path). */
bool request_retry_entry(struct request *r, int result, struct inode *parent, struct inode *second);

/* The same, for a request that what has replaced the object may serve as well (see
 * request_successor()), once the kernel has looked up again. */
bool request_retry_name(struct request *r, int result, struct inode *inode);

/* The result of a request on an object that the kernel knows.  When the name does not lead to the
 * object any more, -ESTALE makes the kernel look up again: something else may have replaced it, so
 * -ENOENT would be wrong. */
int request_object_result(struct request *r, struct inode *inode, int result);

/* True for a result that would become -ESTALE; r->path is where the object was, or "". */
bool request_is_stale(struct request *r, struct inode *inode, int result);

/* What has replaced `known` at `path`, for a request that means whatever has the name.  -ESTALE: it
 * is of another type or owner, so the kernel might not allow the request; or another error of
 * getattr. */
int request_successor(struct request *r, const char *path, struct inode *known,
	struct attributes *ret_attributes);

/* ---- Answers with attributes -------------------------------------------------------- */

struct inode *session_inode(struct session *s, fuse_ino_t ino);
fuse_ino_t session_ino(struct session *s, const struct inode *inode);

/* Attributes for the kernel, with the ids of this machine.  `inode`: NULL for a mere listing. */
void session_stat(struct session *s, const struct inode *inode, const struct attributes *attributes,
	struct stat *ret_stat);

/* The position of what the request's call found at a name; 0 if it may have looked into another
 * directory than the kernel means. */
uint64_t request_position(const struct request *r);

/* Fills in the kernel's answer that (parent, name) was this object at position `at`.  `changes`:
 * when that is from a listing of `parent` (see inode_table_enter_listed()); else NULL.  Returns 1
 * if the kernel may have cached the name as absent. */
int session_enter(struct session *s, struct inode *parent, const char *name,
	const struct attributes *attributes, uint64_t at, const uint32_t *changes,
	struct fuse_entry_param *ret_entry, struct inode **ret_inode);

/* Before a reply with attributes of a file that is being written to here and may be mapped: if only
 * the times are new, makes the kernel discard them.  Else it would drop the pages because of the
 * new mtime, with a write that is still on its way to the daemon; the page would come back as it
 * was before, and a map be written back over that write.  The program that asked gets the times
 * all the same. */
void session_keep_pages(struct session *s, struct inode *inode, const struct inode_note *note);

/* Makes the kernel discard the attributes that it has or has asked for, none of which need be
 * wrong; but not those of a file that was locked, as the holder of the lock would go by the old
 * size. Waits for nothing, so that requests for pages may do so too. */
void session_discard_attributes(struct session *s, struct inode *inode);

/* Tells the kernel to drop the attributes of the inode, and with `data` its pages too.  -ENOENT:
 * the kernel does not know it (yet). */
int session_drop_inode(struct session *s, struct inode *inode, bool data);

/* Drops pages alone; waits for requests that have them locked.  `size` 0: all from `offset` on. */
void session_drop_range(struct session *s, struct inode *inode, off_t offset, off_t size);

/* Makes the kernel write back what a map has changed in these pages, and drop them, and waits for
 * that: another thread has to serve the writes. */
void session_drop_pages(struct session *s, struct inode *inode, off_t offset, size_t size);

/* Content may be handed to the kernel if this number has not changed since before it was read
 * (s->store_lock). */
unsigned session_pages_turn(struct session *s, const struct inode *inode);

/* Before the caller changes the file, or (`drops`) tells the kernel to drop its pages: content that
 * was read for the kernel earlier has been handed over when this returns, or never will be. */
void session_bar_content(struct session *s, struct inode *inode, bool drops);

/* Whether a lookup is part of a retry after ESTALE: then what it finds is opened at once, as it may
 * be replaced again before the kernel opens it. */
bool request_is_retry(const struct request *r);

/* A lookup, perhaps of a retry after ESTALE, found the inode. */
void request_found(struct request *r, struct inode *inode);

/* The caller has found the inode by name since its ESTALE, so it means whatever has that name. */
bool request_means_name(const struct request *r, const struct inode *inode);

/* The directory, or one above it, was removed (or moved to where nothing is watched) so long ago
 * that a request can only come from a process that works in it or has it open, not from a path
 * walk. */
bool request_is_removed(struct request *r, const struct inode *directory);

/* How long the kernel may cache this, in seconds. */
double session_ttl(struct session *s, enum lifetime lifetime);

/* ---- Beyond libfuse (session_raw.c) --------------------------------------------------- */

/* Between mounting and the first request.  -errno. */
int session_raw_attach(struct session *s);

/* Looks at a request before libfuse does. */
void session_raw_begin(const struct session *s, struct fuse_buf *buffer);

/* True: the request was answered with EIO, as the log that the mount requires cannot be written. */
bool session_raw_refuses(struct session *s, const struct fuse_buf *buffer);

/* Of the request that this thread serves: create is O_TMPFILE; the write, truncation or open
 * has to clear set-user-ID and set-group-ID bits; setxattr the latter. */
bool session_raw_is_unnamed(void);
bool session_raw_kills_suid(void);
bool session_raw_kills_sgid(void);

/* The number of the request that this thread serves: of two requests the later has the larger. */
uint64_t session_raw_unique(void);

/* Registers a descriptor for the kernel to read; returns its id.  -errno. */
int session_raw_backing_open(struct session *s, int fd);
void session_raw_backing_close(struct session *s, int id);

/* The request that this thread serves opens a file that the kernel shall read by itself: libfuse's
 * answer will say so. */
void session_raw_answer_backed(int id);

/* ---- The operations, by file ---------------------------------------------------------- */

/* session_names.c */
void session_lookup(fuse_req_t fuse, fuse_ino_t parent, const char *name);
void session_forget(fuse_req_t fuse, fuse_ino_t ino, uint64_t count);
void session_forget_multi(fuse_req_t fuse, size_t count, struct fuse_forget_data *forgets);
void session_readlink(fuse_req_t fuse, fuse_ino_t ino);
void session_mknod(fuse_req_t fuse, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void session_mkdir(fuse_req_t fuse, fuse_ino_t parent, const char *name, mode_t mode);
void session_symlink(fuse_req_t fuse, const char *target, fuse_ino_t parent, const char *name);
void session_link(fuse_req_t fuse, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void session_unlink(fuse_req_t fuse, fuse_ino_t parent, const char *name);
void session_rmdir(fuse_req_t fuse, fuse_ino_t parent, const char *name);
void session_rename(fuse_req_t fuse, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned flags);

/* session_attributes.c */
void session_getattr(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi);
void session_access(fuse_req_t fuse, fuse_ino_t ino, int mask);
void session_setattr(
	fuse_req_t fuse, fuse_ino_t ino, struct stat *stat, int mask, struct fuse_file_info *fi);
void session_statfs(fuse_req_t fuse, fuse_ino_t ino);

/* session_xattr.c */
void session_getxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, size_t size);
void session_listxattr(fuse_req_t fuse, fuse_ino_t ino, size_t size);
void session_setxattr(fuse_req_t fuse, fuse_ino_t ino, const char *name, const char *value,
	size_t size, int flags);
void session_removexattr(fuse_req_t fuse, fuse_ino_t ino, const char *name);

/* session_open.c */
struct open_handle *session_handle(const struct fuse_file_info *fi);

/* Begins a request on an open file: its path is for the log only. */
struct open_handle *session_begin_on_handle(struct request *r, fuse_req_t fuse, const char *op,
	unsigned flags, const struct fuse_file_info *fi);

/* A write by a process without the right to keep them (session_raw_kills_suid()) clears
 * set-user-ID, and set-group-ID where the group may execute or the writer is not in it.  Whether
 * that would change the permissions; and doing it. */
bool session_clears_suid(const struct request *r, struct inode *inode, uint32_t *ret_permissions);
void session_clear_suid(struct request *r, struct open_handle *handle);

void session_open(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi);
void session_create(fuse_req_t fuse, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *fi);
void session_release(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi);

/* session_files.c */
void session_read(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void session_write(fuse_req_t fuse, fuse_ino_t ino, const char *data, size_t size, off_t offset,
	struct fuse_file_info *fi);
/* After a sync: waits until the kernel has no more pages of mapped files to write; 30 s at most. */
void session_wait_for_pages(struct session *s);

/* The far end does not answer. */
bool session_link_is_silent(const struct session *s);
void session_flush(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi);
void session_fsync(fuse_req_t fuse, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);
void session_fallocate(fuse_req_t fuse, fuse_ino_t ino, int mode, off_t offset, off_t length,
	struct fuse_file_info *fi);
void session_copy_file_range(fuse_req_t fuse, fuse_ino_t from, off_t from_offset,
	struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
	struct fuse_file_info *to_fi, size_t size, int flags);
void session_lseek(
	fuse_req_t fuse, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi);
void session_getlk(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
void session_setlk(
	fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int wait);
void session_flock(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi, int op);

/* session_directories.c */
void session_opendir(fuse_req_t fuse, fuse_ino_t ino, struct fuse_file_info *fi);
void session_readdir(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void session_readdirplus(
	fuse_req_t fuse, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void session_fsyncdir(fuse_req_t fuse, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);

/* Before a look at names in the directory (or attributes of the object): watches it, where
 * possible, so that the answer stays valid until the feed reports a change. */
void session_watch(struct request *r, struct inode *directory);
void session_watch_directory(struct mount *m, struct op_context *op, struct inode *directory);
void session_watch_around(struct request *r, struct inode *inode);

/* Once no request is served any more. */
void session_directories_done(struct session *s);

/* One buffer a thread, as large as its largest request so far; NULL: no memory. */
char *session_thread_buffer(size_t size);
void session_thread_buffer_free(void);

/* The same, for data that is nothing but the answer to a read. */
char *session_answer_buffer(size_t size);

/* ---- The threads (session_loop.c) -------------------------------------------------------- */

int session_loop_start(struct session *s);

/* Once nothing is served any more: programs that use the file system, and threads of the daemon
 * that wait in the kernel for them, get an error.  Does nothing where FUSE's control file system is
 * not mounted. */
void session_abort_connection(struct session *s);

/* Returns once the file system is unmounted, or after session_loop_end(). */
void session_loop_wait(struct session *s);
void session_loop_end(struct session *s);

/* This thread is about to wait for a far end. */
void session_thread_waits(struct session *s);

/* Around a wait that may last for ever (for a lock): another thread may be started meanwhile. */
void session_thread_block(void);
void session_thread_unblock(void);

/* Opens a ring for each queue of the kernel.  -errno: requests continue to come by the device. */
int session_queues_open(struct session *s);

/* Starts to serve them, after the negotiation; until then the kernel holds all requests back. */
void session_queues_start(struct session *s);

/* ---- Requests by io_uring (session_uring.c) ------------------------------------------------ */

struct session_ring;

/* How many queues the kernel has for a mount; 0: not known. */
unsigned session_ring_queues(void);

/* This process may have as many rings as there may be threads. */
bool session_ring_may_open_many(void);

/* A ring for one thread, to fetch requests of the queue `queue`.  NULL: this machine does not allow
 * it, or no memory; errno says which. */
struct session_ring *session_ring_open(unsigned queue);
void session_ring_free(struct session_ring *ring);

/* This thread serves it from now on. */
void session_ring_adopt(struct session_ring *ring);

/* After session_ring_adopt(), for a ring that comes when the mount serves already.  -errno. */
int session_ring_join(struct session *s, struct session_ring *ring);

/* Hands the answer over if there is one, and waits for a request, which stays in memory of the
 * ring. 0; -EINTR, -EAGAIN: not yet; anything else: it is over. */
int session_ring_receive(
	struct session *s, struct session_ring *ring, struct fuse_buf *ret_request);

/* Takes an answer if it is to the request that this thread has from its ring.  It is handed over
 * with the next session_ring_receive(); or with session_ring_flush(), before this thread tells the
 * kernel something else.  A request must not wait for anything after its answer. */
bool session_ring_answer(const struct iovec *parts, int count);
void session_ring_flush(struct session *s);
bool session_ring_has_answer(void);

/* Others wait for the next request: an idle ring keeps no memory for data meanwhile. */
void session_ring_set_idle(struct session_ring *ring, bool idle);

/* The request that this thread serves came by a ring. */
bool session_ring_serves(void);

/* Where the data of an answer may be put, so that it need not be copied; NULL: not on this thread,
 * or too much. */
char *session_ring_payload(size_t size);
