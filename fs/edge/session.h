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

/* Threads that take each other's place: all that read the device, or serve one of the kernel's
 * queues. */
struct thread_group {
	struct session *session;
	int queue;         /* its number; -1: the device */
	unsigned usual;    /* so many are started as soon as nobody is idle */
	atomic_uint total; /* but for those that rest */
	atomic_uint idle;
	atomic_uint blocked;        /* wait for a lock */
	struct session_ring *first; /* until it is started */
};

struct session {
	struct mount *mount;
	struct fuse_session *fuse;
	struct invalidator *invalidator;
	struct dropper *dropper;
	struct foreign foreign;
	double watched_ttl, brief_ttl, ttl; /* seconds, by enum lifetime */
	atomic_bool caches_unwatched;       /* the kernel does, since the last drain */

	/* Negotiation (session_raw.c); fixed once the first request is served. */
	uint64_t init_unique;
	uint32_t kernel_flags, kernel_flags2;
	bool kills_suid;       /* clearing set-user-ID bits on writes is our task */
	bool may_pass_through; /* this process has the right, the workspace the descriptors */
	bool passes_through;   /* the kernel reads backing files by itself */
	pthread_mutex_t backing_lock; /* the backing_* fields of files */
	pthread_mutex_t
		direct_writes_lock; /* and what files have of writes that go past the pages */
	/* The last reads into the kernel's pages that came by io_uring (session_files.c). */
	struct seen_read {
		const struct inode *inode;
		uint64_t unique;
		off_t offset;
		size_t size;
	} reads[READS_MAX]; /* direct_writes_lock */
	unsigned read_next; /* direct_writes_lock */
	bool is_remote;
	bool can_watch;
	bool opens_directories; /* the kernel cannot do without, or must not cache them */
	bool expires_entries;   /* the kernel can look a name up again without dropping it first */

	struct misses misses;

	/* Event helpers, and who is told of changes (fs/edge/announce.h). */
	struct announcer {
		atomic_int pid; /* 0: none */
		pthread_mutex_t lock;
		struct announcement *current; /* lock */
	} announcers[ANNOUNCERS];
	pthread_mutex_t announcing; /* a helper's call is under way, or an expiry of a name */
	atomic_uint expiring;       /* who is about to take that for an expiry */
	const struct change_observer *_Atomic observer;
	atomic_bool observes_own;
	atomic_uint flights[ANNOUNCE_FLIGHTS]; /* requests in flight, by the node they are for */

	pthread_mutex_t listings_lock;
	struct listing *listings; /* session_directories.c; listings_lock */

	/* A path computed before a rename took place may be wrong. */
	pthread_mutex_t rename_lock;
	pthread_cond_t rename_done;
	uint32_t renames_active;      /* rename_lock */
	atomic_uint_fast64_t renames; /* that took place; changed under rename_lock */

	/* Shared: content is handed to the kernel; alone: it is told to forget. */
	pthread_rwlock_t store_lock;
	/* Raised before an inode's pages are dropped, or may be written; by its address.  Where two
	 * inodes have the same one, the kernel reads what could have been handed to it. */
	atomic_uint pages_turns[PAGES_TURNS];
	/* Threads of callers that look again (session_request.c), by their numbers. */
	struct retrier {
		atomic_int thread; /* 0: nobody */
		atomic_uint_fast64_t until_ns;
		atomic_uint found_count; /* by names, since; the last ones are kept: */
		const struct inode *_Atomic found[FOUND_MAX];
		struct inode *_Atomic kept; /* with a reference: the last file found */
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
	atomic_uint_fast64_t files[FILES_MAX]; /* that requests were for; session_uring.c */
	atomic_uint file_next;
	pthread_t watcher; /* of the threads, when all are at work */
	sem_t look;
	atomic_bool is_saturated;
	atomic_bool ending;

	/* Pages of mapped files, which the kernel writes when it likes (session_files.c). */
	atomic_uint pages_under_way;
	atomic_uint_fast64_t pages_seen;
};

/* A change of ours under way that makes, removes or moves this name (invalidate.h). */
struct own_change {
	struct own_change *next;
	struct object_id directory;
	const char *name;
	struct inode
		*moves_in; /* that directory, if the name is moved or replaced by one that is */
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
	atomic_uint_fast64_t looked_ns; /* when the caller was looked at, untold; 0: not yet */
	bool by_handle;
	bool any_signal_interrupts; /* as POSIX has it for locks */
	bool by_name;               /* what has the object's name now: `successor` ... */
	bool is_gone;               /* ... but nothing has */
	struct object_id successor;
	bool is_announcement; /* an event helper's */
	bool settles;         /* what was written before has arrived */
	bool is_found;        /* what was to be created was there */
	bool is_step;         /* perhaps on the way along a path */
	bool by_path;         /* of an entry: in whatever directory has the name */
	bool path_is_stale;   /* the path leads through a directory that is not there any more */
};

/* ---- Requests (session_request.c) ------------------------------------------------ */

/* `op` is static; `flags`: enum log_op_flags. */
void request_begin(struct request *r, fuse_req_t fuse, const char *op, unsigned flags);

/* The request makes, removes or moves the name: what the feed tells of that is handled when its
 * outcome is known here, after request_record().  At most two of them; `name` stays. */
struct own_change *request_owns_name(
	struct request *r, const struct inode *parent, const char *name);

/* The request is about to change what is at `path` (NULL: nothing), the object `id` (or NULL): what
 * the feed tells of it is our own doing. */
void request_changes(struct request *r, const char *path, const struct object_id *id);

/* Records the outcome and frees; `result`: 0, a count or -errno.  Comes before the answer. */
void request_record(struct request *r, int64_t result);

/* request_record(); true: the result is an error, which has been answered. */
bool request_failed(struct request *r, int64_t result);

/* request_record(), and answers an error (or success without data). */
void request_finish(struct request *r, int result);

/* The object: by its path, or, when it has no name any more, by a handle somebody has.
 * -ENOENT: neither. */
int request_locate(struct request *r, struct inode *inode, struct object_ref *ret_object);

/* The same; a handle that somebody has open is taken where that saves resolving the path. */
int request_locate_open(struct request *r, struct inode *inode, struct object_ref *ret_object);

/* The path of the entry `name` in `parent`, in r->path (or r->path2), for a call that is told to
 * find `parent` there (r->op).  When that has no name any more: -ENOENT, as it is gone; or for a
 * second -ESTALE, upon which the kernel looks again. */
int request_locate_entry(struct request *r, struct inode *parent, const char *name);
int request_locate_second(struct request *r, struct inode *parent, const char *name);

/* After a failed call: true when a rename by us made the path wrong meanwhile (or, for an
 * object, when an open handle leads to it): locate again, and repeat the call. */
bool request_retry(struct request *r, int result, struct inode *inode);

/* The same, for a request for entries of `parent` and (or NULL) `second`, of which another may have
 * taken the place: that will do for who means the name (r->by_path). */
bool request_retry_entry(struct request *r, int result, struct inode *parent, struct inode *second);

/* The same, for a request that may as well be served by what has taken the object's place (see
 * request_successor()) after the kernel has looked again. */
bool request_retry_name(struct request *r, int result, struct inode *inode);

/* For a request on an object that the kernel knows: when its name does not lead there any
 * more, the kernel has to look again (-ESTALE) rather than believe that there is none;
 * somebody may just have put another one in its place. */
int request_object_result(struct request *r, struct inode *inode, int result);

/* True for a result that would become -ESTALE; r->path is where the object was, or "". */
bool request_is_stale(struct request *r, struct inode *inode, int result);

/* What is at `path` now in place of `known`, for a request that means whatever has the name.
 * -ESTALE: the kernel may not allow for it what it allowed for `known`, being of another type or
 * owner; or another error of getattr. */
int request_successor(struct request *r, const char *path, struct inode *known,
	struct attributes *ret_attributes);

/* ---- Answers with attributes -------------------------------------------------------- */

struct inode *session_inode(struct session *s, fuse_ino_t ino);
fuse_ino_t session_ino(struct session *s, const struct inode *inode);

/* As the kernel wants them: ids of this machine.  `inode`: NULL where only a listing told. */
void session_stat(struct session *s, const struct inode *inode, const struct attributes *attributes,
	struct stat *ret_stat);

/* The position of what a call of the request has told of a name; 0 if it may have looked into
 * another directory than the kernel means. */
uint64_t request_position(const struct request *r);

/* The kernel is told that (parent, name) was this object at position `at`.  `changes`: of a listing
 * of `parent` that says so (see inode_table_enter_listed()); NULL: none does.  Returns 1 if it may
 * believe that nothing is there. */
int session_enter(struct session *s, struct inode *parent, const char *name,
	const struct attributes *attributes, uint64_t at, const uint32_t *changes,
	struct fuse_entry_param *ret_entry, struct inode **ret_inode);

/* Tells the kernel to forget the attributes of the inode, and with `data` its pages too.
 * -ENOENT: the kernel does not know it (yet). */
int session_drop_inode(struct session *s, struct inode *inode, bool data);

/* Of the pages alone, without regard to who has them locked; `size` 0: all from `offset` on. */
void session_drop_range(struct session *s, struct inode *inode, off_t offset, off_t size);

/* Tells it to write back what a map has changed in these pages, and to forget them, and waits for
 * that: another thread has to serve the writes. */
void session_drop_pages(struct session *s, struct inode *inode, off_t offset, size_t size);

/* Content that was read since this was the number may be handed to the kernel (s->store_lock). */
unsigned session_pages_turn(struct session *s, const struct inode *inode);

/* The caller may change the file from now on, or with `drops` tells the kernel to forget its pages:
 * content that was read for the kernel before is in them when this returns, or never will be. */
void session_bar_content(struct session *s, struct inode *inode, bool drops);

/* Whether the lookup at r->path comes for what was stale: it is to be had at once, or it may be
 * replaced once more before it is opened. */
bool request_is_retry(const struct request *r);

/* A lookup led to the inode: perhaps as something on the way was stale. */
void request_found(struct request *r, struct inode *inode);

/* Who asks has found the inode by its name since he was told that something is stale, and will do
 * with whatever has that name. */
bool request_means_name(const struct request *r, const struct inode *inode);

/* The directory, or one above it, was removed (or moved to where nobody watches) so long ago that
 * only those come who work in it or have it open; nobody is on his way to what is there now. */
bool request_is_removed(struct request *r, const struct inode *directory);

/* How long what is told now may be cached, in seconds. */
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

/* Its number: of two requests the one that was made later has the larger. */
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

/* A write by somebody without the right to keep them (session_raw_kills_suid()) clears
 * set-user-ID, and set-group-ID where the group may execute or the writer is not in it:
 * whether that changes the permissions, and doing it. */
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
/* Until the kernel has no more pages of mapped files to write, after a sync; 30 s at most. */
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

/* Before names in the directory (or attributes of the object) are looked at: what is found is to be
 * true until the feed says otherwise, where that can be. */
void session_watch(struct request *r, struct inode *directory);
void session_watch_directory(struct mount *m, struct op_context *op, struct inode *directory);
void session_watch_around(struct request *r, struct inode *inode);

/* Nobody serves requests any more. */
void session_directories_done(struct session *s);

/* One buffer a thread, as large as its largest request so far; NULL: no memory. */
char *session_thread_buffer(size_t size);
void session_thread_buffer_free(void);

/* The same, for data that is nothing but the answer to a read. */
char *session_answer_buffer(size_t size);

/* ---- The threads (session_loop.c) -------------------------------------------------------- */

int session_loop_start(struct session *s);

/* Returns once the file system is unmounted, or after session_loop_end(). */
void session_loop_wait(struct session *s);
void session_loop_end(struct session *s);

/* This thread is about to wait for a far end. */
void session_thread_waits(struct session *s);

/* Around a wait that may last for ever (a lock): another thread may take the place. */
void session_thread_block(void);
void session_thread_unblock(void);

/* Opens a ring for each queue of the kernel.  -errno: requests go on to come by the device. */
int session_queues_open(struct session *s);

/* Serves them, once the kernel has been told.  Until then it holds all requests back. */
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
