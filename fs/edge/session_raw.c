/* What the kernel offers and libfuse 3.14 does not know.  Requests are inspected (and one of them
 * is translated) before libfuse gets them.  Two kinds of answers are completed: the first one, the
 * negotiation, and those that open a file which the kernel reads itself. */
#include "fs/edge/session.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ops/support/log.h"

/* Not in the headers of every distribution that isthmus builds on. */
enum {
	OPCODE_TMPFILE = 51,
	OPEN_PASSTHROUGH = 1 << 7,
	/* Bits of flags2. */
	INIT_DIRECT_IO_MMAP = 1 << 4,
	INIT_PASSTHROUGH = 1 << 5,
	INIT_OVER_IO_URING = 1 << 9,
};

struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* The request that this thread serves. */
static _Thread_local struct {
	const struct fuse_in_header *header; /* in the buffer it was read into */
	bool is_unnamed;                     /* O_TMPFILE, translated to create */
	bool kills_sgid; /* setxattr of an access list by somebody outside the group */
	int backing_id;  /* of the file that the answer opens; 0: none */
} current;

/* ---- Negotiation ------------------------------------------------------------------------- */

static void see_init(struct session *s, const struct fuse_in_header *header)
{
	const struct fuse_init_in *init = (const void *)(header + 1);

	s->init_unique = header->unique;
	s->kernel_flags = init->flags;
	s->kernel_flags2 = (init->flags & FUSE_INIT_EXT) ? init->flags2 : 0;
}

static bool offer_io_uring(struct session *s)
{
	bool offered = s->kernel_flags2 & INIT_OVER_IO_URING;
	int r = offered ? session_queues_open(s) : -EOPNOTSUPP;

	if (r < 0)
		log_warning("no requests by io_uring (%s: %s), using /dev/fuse; see isthmus doctor",
			offered ? "this process" : "the kernel", strerror(-r));
	return r == 0;
}

static void extend_init(struct session *s, struct fuse_init_out *out)
{
	out->flags |= s->kernel_flags & (FUSE_HANDLE_KILLPRIV_V2 | FUSE_SETXATTR_EXT);
	s->kills_suid = out->flags & FUSE_HANDLE_KILLPRIV_V2;
	out->flags2 |= s->kernel_flags2 & INIT_DIRECT_IO_MMAP;
	if (s->may_pass_through && (s->kernel_flags2 & INIT_PASSTHROUGH)) {
		out->flags2 |= INIT_PASSTHROUGH;
		out->unused[0] = 1; /* max_stack_depth: this one above a plain file system */
		s->passes_through = true;
	}
	if (s->mount->options->io_uring && offer_io_uring(s))
		out->flags2 |= INIT_OVER_IO_URING;
	if (out->flags2)
		out->flags |= FUSE_INIT_EXT;
}

static ssize_t read_device(int fd, void *data, size_t size, void *user)
{
	const struct fuse_in_header *header = data;
	struct session *s = user;
	ssize_t got = read(fd, data, size);

	if (got >= (ssize_t)sizeof(*header) && header->opcode == FUSE_INIT)
		see_init(s, header);
	return got;
}

static ssize_t answer_init(struct session *s, int fd, const struct iovec *parts)
{
	struct fuse_init_out out;
	ssize_t r;

	memcpy(&out, parts[1].iov_base, sizeof(out));
	extend_init(s, &out);
	s->init_unique = 0;
	r = writev(fd, (struct iovec[]){parts[0], {&out, sizeof(out)}}, 2);
	if (r > 0 && s->queue_count)
		session_queues_start(s);
	return r;
}

/* The end of an answer to open or create.  The kernel refuses other flags, as FOPEN_KEEP_CACHE,
 * together with this one. */
static void add_backing(const struct iovec *answer)
{
	char *end = (char *)answer->iov_base + answer->iov_len;
	int32_t backing_id = current.backing_id;
	struct fuse_open_out out;

	memcpy(&out, end - sizeof(out), sizeof(out));
	out.open_flags = OPEN_PASSTHROUGH | (out.open_flags & (FOPEN_DIRECT_IO | FOPEN_NOFLUSH));
	memcpy(end - sizeof(out), &out, sizeof(out));
	/* The last member: "padding" in older headers. */
	memcpy(end - sizeof(backing_id), &backing_id, sizeof(backing_id));
	current.backing_id = 0;
}

static ssize_t write_device(int fd, struct iovec *parts, int count, void *user)
{
	const struct fuse_out_header *header = parts[0].iov_base;
	struct session *s = user;

	if (current.backing_id && header->unique == current.header->unique && count == 2)
		add_backing(&parts[1]);
	if (session_ring_answer(parts, count))
		return header->len;
	session_ring_flush(s);
	if (s->init_unique && header->unique == s->init_unique && count == 2 &&
		parts[1].iov_len == sizeof(struct fuse_init_out))
		return answer_init(s, fd, parts);
	return writev(fd, parts, count);
}

int session_raw_attach(struct session *s)
{
	static const struct fuse_custom_io io = {.read = read_device, .writev = write_device};

	return fuse_session_custom_io(s->fuse, &io, fuse_session_fd(s->fuse));
}

/* ---- Requests ------------------------------------------------------------------------------ */

/* libfuse knows the short form only. */
static void shorten_setxattr(struct fuse_buf *buffer, struct fuse_in_header *header)
{
	struct fuse_setxattr_in *in = (void *)(header + 1);
	size_t excess = sizeof(*in) - FUSE_COMPAT_SETXATTR_IN_SIZE;

	current.kills_sgid = in->setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID;
	memmove((char *)(in + 1) - excess, in + 1, buffer->size - sizeof(*header) - sizeof(*in));
	buffer->size -= excess;
	header->len -= (uint32_t)excess;
}

void session_raw_begin(const struct session *s, struct fuse_buf *buffer)
{
	struct fuse_in_header *header = buffer->mem;

	current.header = header;
	current.backing_id = 0;
	current.kills_sgid = false;
	if (header->opcode == FUSE_SETXATTR && (s->kernel_flags & FUSE_SETXATTR_EXT))
		shorten_setxattr(buffer, header);
	current.is_unnamed = header->opcode == OPCODE_TMPFILE;
	if (current.is_unnamed)
		header->opcode = FUSE_CREATE; /* of the same form */
}

/* Requests that end or undo something are served, and so are those without an effect. */
static bool needs_log(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_INIT:
	case FUSE_DESTROY:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_NOTIFY_REPLY:
		return false;
	default:
		return true;
	}
}

bool session_raw_refuses(struct session *s, const struct fuse_buf *buffer)
{
	const struct fuse_in_header *header = buffer->mem;
	struct fuse_out_header out = {.len = sizeof(out), .error = -EIO, .unique = header->unique};
	struct iovec part = {&out, sizeof(out)};

	if (!mount_log_refuses(s->mount->log) || !needs_log(header->opcode))
		return false;
	write_device(fuse_session_fd(s->fuse), &part, 1, s);
	return true;
}

bool session_raw_is_unnamed(void)
{
	return current.is_unnamed;
}

uint64_t session_raw_unique(void)
{
	return current.header->unique;
}

bool session_raw_kills_sgid(void)
{
	return current.kills_sgid;
}

bool session_raw_kills_suid(void)
{
	const void *body = current.header + 1;

	switch (current.header->opcode) {
	case FUSE_WRITE:
		return ((const struct fuse_write_in *)body)->write_flags & FUSE_WRITE_KILL_SUIDGID;
	case FUSE_SETATTR:
		return ((const struct fuse_setattr_in *)body)->valid & FATTR_KILL_SUIDGID;
	case FUSE_OPEN:
		return ((const struct fuse_open_in *)body)->open_flags & FUSE_OPEN_KILL_SUIDGID;
	case FUSE_CREATE:
		return ((const struct fuse_create_in *)body)->open_flags & FUSE_OPEN_KILL_SUIDGID;
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE: /* the kernel does not say */
		return current.header->uid != 0;
	default:
		return false;
	}
}

/* ---- Answers with a file that the kernel reads by itself ------------------------------------- */

int session_raw_backing_open(struct session *s, int fd)
{
	int id = ioctl(fuse_session_fd(s->fuse), BACKING_OPEN, &(struct backing_map){.fd = fd});

	return id < 0 ? -errno : id;
}

void session_raw_backing_close(struct session *s, int id)
{
	uint32_t number = (uint32_t)id;

	ioctl(fuse_session_fd(s->fuse), BACKING_CLOSE, &number);
}

void session_raw_answer_backed(int id)
{
	current.backing_id = id;
}
