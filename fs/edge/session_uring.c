/*
 * Requests by io_uring instead of read(2) and write(2) on the device: one system call hands over
 * an answer and fetches the next request, and a request is served on the processor that it was
 * made on, so that nobody has to be woken on another.  The kernel offers that from 6.14 on,
 * where /sys/module/fuse/parameters/enable_uring says Y (in its sources:
 * Documentation/filesystems/fuse/fuse-io-uring.rst, fs/fuse/dev_uring.c).
 *
 * The kernel has a queue for each processor, and wants an entry in each; an entry holds a request
 * from when it is fetched until it is answered.  Here every thread has a ring with one entry.  The
 * entry that became free last gets the next request, so threads that nobody needs cost memory
 * only.  None ends while the mount serves: a request that was just given to its entry would be
 * lost.
 *
 * What is forgotten, interruptions and notifications still go by the device.
 */
#include "fs/edge/session.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <linux/capability.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/log.h"

/* Of <linux/fuse.h> 7.42; not in the headers of every distribution that isthmus builds on. */
enum {
	COMMAND_REGISTER = 1,
	COMMAND_COMMIT_AND_FETCH = 2,
	HEADER_BYTES = 128,
};

struct entry_header {
	char in_out[HEADER_BYTES];    /* struct fuse_in_header, then struct fuse_out_header */
	char operation[HEADER_BYTES]; /* what comes next in a request, as struct fuse_open_in */
	uint64_t flags;
	uint64_t commit_id;
	uint32_t payload_bytes;
	uint32_t padding;
	uint64_t reserved;
};

struct entry_command {
	uint64_t flags;
	uint64_t commit_id;
	uint16_t queue;
	uint8_t padding[6];
};

enum {
	ENTRY_BYTES = 4096,
	/* Of a request but for what is written: a name, an extended attribute. */
	REQUEST_BYTES = 128 << 10,
	KEPT_BYTES = 128 << 10, /* of a payload, while nobody needs it */
	LOCKED_BYTES = 8 << 20, /* of a thousand rings */
	MAPPING_BYTES = ENTRY_BYTES + REQUEST_BYTES + SESSION_REQUEST_MAX_BYTES,
};

struct session_ring {
	struct io_uring uring;
	unsigned queue;
	bool is_registered;
	bool is_answered; /* and the answer is not handed over */
	bool is_idle;
	size_t used_bytes; /* of the payload, by the last request */
	uint64_t unique;   /* of the request that is served; 0: none */
	struct iovec parts[2];
	/* One mapping: */
	struct entry_header *header;
	char *request; /* in one piece, as libfuse wants it */
	char *payload;
};

static _Thread_local struct session_ring *this_ring;

unsigned session_ring_queues(void)
{
	cleanup_file FILE *file = fopen("/sys/devices/system/cpu/possible", "re");
	unsigned count = 0, first, last;

	while (file && fscanf(file, "%u", &first) == 1) { /* "0-3,8-11" */
		int separator = fgetc(file);

		last = first;
		if (separator == '-') {
			if (fscanf(file, "%u", &last) != 1 || last < first)
				return 0;
			separator = fgetc(file);
		}
		count += last - first + 1;
		if (separator != ',')
			break;
	}
	return count;
}

/* ---- Rings ------------------------------------------------------------------------------ */

/* Most rings are opened while other threads wait, perhaps for a lock: without one more, the unlock
 * would never be served. */
bool session_ring_may_open_many(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
	struct rlimit locked;

	if (syscall(SYS_capget, &header, sets) == 0 &&
		(sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)))
		return true;
	return getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur >= LOCKED_BYTES;
}

struct session_ring *session_ring_open(unsigned queue)
{
	const unsigned flags = IORING_SETUP_SQE128 | IORING_SETUP_R_DISABLED |
			       IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	struct session_ring *ring = calloc(1, sizeof(*ring));
	char *memory;
	int r;

	if (!ring)
		return NULL;
	memory = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	r = memory == MAP_FAILED ? -ENOMEM : io_uring_queue_init(2, &ring->uring, flags);
	if (r < 0) {
		if (memory != MAP_FAILED)
			munmap(memory, MAPPING_BYTES);
		free(ring);
		errno = -r;
		return NULL;
	}
	ring->queue = queue;
	ring->header = (void *)memory;
	ring->request = memory + ENTRY_BYTES;
	ring->payload = ring->request + REQUEST_BYTES;
	return ring;
}

void session_ring_free(struct session_ring *ring)
{
	if (!ring)
		return;
	if (this_ring == ring)
		this_ring = NULL;
	io_uring_queue_exit(&ring->uring);
	munmap(ring->header, MAPPING_BYTES);
	free(ring);
}

/* The user's own affinity, which is the main thread's, is respected.  That of this thread may be
 * the one of another queue's, whose thread started it. */
static void go_to_processor(unsigned number)
{
	cpu_set_t allowed, processor;

	if (sched_getaffinity(getpid(), sizeof(allowed), &allowed) < 0)
		return;
	CPU_ZERO(&processor);
	CPU_SET(number, &processor);
	sched_setaffinity(
		0, sizeof(processor), CPU_ISSET(number, &allowed) ? &processor : &allowed);
}

void session_ring_adopt(struct session_ring *ring)
{
	this_ring = ring;
	go_to_processor(ring->queue);
	io_uring_register((unsigned)ring->uring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

/* ---- Requests and answers --------------------------------------------------------------- */

static int prepare(struct session *s, struct session_ring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
	struct entry_command command = {.queue = (uint16_t)ring->queue};

	if (!sqe) /* it has room for two, and there is never more than one */
		return -EIO;
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fuse_session_fd(s->fuse);
	if (ring->is_registered) {
		sqe->cmd_op = COMMAND_COMMIT_AND_FETCH;
		command.commit_id = ring->header->commit_id;
	} else {
		sqe->cmd_op = COMMAND_REGISTER;
		ring->parts[0] = (struct iovec){ring->header, sizeof(*ring->header)};
		ring->parts[1] = (struct iovec){ring->payload, SESSION_REQUEST_MAX_BYTES};
		sqe->addr = (uintptr_t)ring->parts;
		sqe->len = array_size(ring->parts);
	}
	memcpy(sqe->cmd, &command, sizeof(command));
	ring->is_registered = true;
	ring->is_answered = false;
	ring->unique = 0;
	return 0;
}

/* The kernel gives requests that found no entry to one that is handed over, but not to a new one.
 * So this thread makes a request for the new entry, on its processor: it asks to write back an
 * empty range of a file's pages. */
static int make_request(struct session *s, uint64_t file)
{
	static atomic_uint_fast64_t number = (uint64_t)1 << 63; /* not the kernel's; even */
	struct fuse_notify_retrieve_out retrieve = {
		.nodeid = file, .notify_unique = atomic_fetch_add(&number, 2)};
	struct fuse_out_header out = {
		.len = sizeof(out) + sizeof(retrieve), .error = FUSE_NOTIFY_RETRIEVE};
	struct iovec parts[] = {{&out, sizeof(out)}, {&retrieve, sizeof(retrieve)}};

	return writev(fuse_session_fd(s->fuse), parts, array_size(parts)) < 0 ? -errno : 0;
}

/* It has to be a file that the kernel knows; a lock that is waited for is on one. */
static void remember_file(struct session *s, const struct fuse_in_header *in)
{
	switch (in->opcode) {
	case FUSE_OPEN:
	case FUSE_READ:
	case FUSE_WRITE:
	case FUSE_FLUSH:
	case FUSE_FSYNC:
	case FUSE_SETLK:
	case FUSE_SETLKW:
		s->files[s->file_next++ % FILES_MAX] = in->nodeid;
		break;
	default:
		break;
	}
}

int session_ring_join(struct session *s, struct session_ring *ring)
{
	int r = prepare(s, ring);

	if (r == 0)
		r = io_uring_submit(&ring->uring);
	for (int i = 0; r > 0 && i < FILES_MAX; i++)
		if (s->files[i] && make_request(s, s->files[i]) == 0)
			break;
	return r < 0 ? r : 0;
}

static void answer_made_request(struct session_ring *ring, const struct fuse_in_header *in)
{
	struct fuse_out_header out = {.len = sizeof(out), .unique = in->unique};

	memcpy(ring->header->in_out, &out, sizeof(out));
	ring->header->payload_bytes = 0;
	ring->is_answered = true;
}

/* What is to be written stays where it is; anything else makes room for the answer. */
static int take_request(struct session *s, struct session_ring *ring, struct fuse_buf *ret_request)
{
	size_t payload = ring->header->payload_bytes, operation;
	struct fuse_in_header in;
	char *start = ring->request;

	memcpy(&in, ring->header->in_out, sizeof(in));
	if (in.opcode == FUSE_NOTIFY_REPLY) {
		answer_made_request(ring, &in);
		return -EAGAIN;
	}
	operation = in.len - sizeof(in) - payload;
	if (payload > SESSION_REQUEST_MAX_BYTES || operation > HEADER_BYTES)
		return -EPROTO;
	if (in.len <= REQUEST_BYTES && in.opcode != FUSE_WRITE)
		memcpy(start + sizeof(in) + operation, ring->payload, payload);
	else
		start = ring->payload - operation - sizeof(in);
	memcpy(start, &in, sizeof(in));
	memcpy(start + sizeof(in), ring->header->operation, operation);
	remember_file(s, &in);
	ring->unique = in.unique;
	ring->used_bytes = payload;
	*ret_request = (struct fuse_buf){.mem = start, .size = in.len};
	return 0;
}

/* The kernel may give it a request at once, and then has filled the payload. */
static int hand_over_and_trim(struct session_ring *ring)
{
	int r = io_uring_submit_and_get_events(&ring->uring);

	if (r >= 0 && io_uring_cq_ready(&ring->uring) == 0)
		madvise(ring->payload, SESSION_REQUEST_MAX_BYTES, MADV_DONTNEED);
	return r < 0 ? r : 0;
}

void session_ring_set_idle(struct session_ring *ring, bool idle)
{
	ring->is_idle = idle;
}

int session_ring_receive(struct session *s, struct session_ring *ring, struct fuse_buf *ret_request)
{
	struct io_uring_cqe *cqe;
	int r = 0;

	assert(ring->is_answered || !ring->unique);
	if (ring->is_answered || !ring->is_registered)
		r = prepare(s, ring);
	if (r == 0 && ring->is_idle && ring->used_bytes > KEPT_BYTES)
		r = hand_over_and_trim(ring);
	if (r == 0)
		r = io_uring_submit_and_wait(&ring->uring, 1);
	if (r >= 0)
		r = io_uring_peek_cqe(&ring->uring, &cqe);
	if (r < 0)
		return r;
	r = cqe->res;
	io_uring_cqe_seen(&ring->uring, cqe);
	return r < 0 ? r : take_request(s, ring, ret_request);
}

bool session_ring_has_answer(void)
{
	return this_ring && this_ring->is_answered;
}

bool session_ring_serves(void)
{
	return this_ring;
}

char *session_ring_payload(size_t size)
{
	return this_ring && size <= SESSION_REQUEST_MAX_BYTES ? this_ring->payload : NULL;
}

static int put_payload(struct session_ring *ring, const struct iovec *parts, int count)
{
	size_t size = 0;

	for (int i = 0; i < count; i++) {
		char *to = ring->payload + size;

		if (parts[i].iov_len > SESSION_REQUEST_MAX_BYTES - size)
			return -EMSGSIZE;
		if (parts[i].iov_len && parts[i].iov_base != to)
			memcpy(to, parts[i].iov_base, parts[i].iov_len);
		size += parts[i].iov_len;
	}
	return (int)size;
}

bool session_ring_answer(const struct iovec *parts, int count)
{
	struct session_ring *ring = this_ring;
	struct fuse_out_header out;
	int size;

	memcpy(&out, parts[0].iov_base, sizeof(out));
	if (!ring || ring->is_answered || !ring->unique || out.unique != ring->unique)
		return false;
	size = put_payload(ring, parts + 1, count - 1);
	if (size < 0)
		out.error = size;
	memcpy(ring->header->in_out, &out, sizeof(out));
	ring->header->payload_bytes = size < 0 ? 0 : (uint32_t)size;
	ring->is_answered = true;
	if (size > 0 && (size_t)size > ring->used_bytes)
		ring->used_bytes = (size_t)size;
	return true;
}

void session_ring_flush(struct session *s)
{
	struct session_ring *ring = this_ring;

	if (ring && ring->is_answered && prepare(s, ring) == 0)
		io_uring_submit(&ring->uring);
}
