/* The journal: operations that callers were told are done, but that the workspace has not
 * confirmed.
 *
 * A file of records with checksums.  A record that a crash has cut off at the end was never
 * answered. The layout is that of this program's structs: another version does not read it. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/files.h"
#include "ops/support/log.h"

static const char JOURNAL_NAME[] = "journal";
static const char MAGIC[8] = "isthmwb3";

enum {
	VERSION_AT = 7, /* in the magic; the header is that of all versions */
	IDENTITY_MAX = 4096,
	PAYLOAD_MAX = 64 << 20,
	PIECE_BYTES = 256 << 10,
	LOCK_WAIT_MS = 1000,
	LOCK_POLL_US = 10000,
};

struct header {
	char magic[8];
	uint32_t facts_bytes; /* sizeof(struct operation_facts) */
	uint32_t identity_bytes;
};

struct record {
	uint64_t checksum; /* of what follows */
	uint64_t sequence;
	uint32_t type, unused;
	uint32_t head_bytes, data_bytes;
};

/* ---- Writing --------------------------- */

static uint64_t checksum(const struct record *record, const void *head, const void *data)
{
	XXH64_hash_t hash = XXH64(&record->sequence, sizeof(*record) - sizeof(record->checksum), 0);

	hash = XXH64(head, record->head_bytes, hash);
	return XXH64(data, record->data_bytes, hash);
}

static int write_parts(int fd, struct iovec *parts, int count, uint64_t at)
{
	while (count) {
		ssize_t written = pwritev(fd, parts, count, (off_t)at);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written < 0 ? -errno : -EIO;
		at += (uint64_t)written;
		while (count && (size_t)written >= parts->iov_len) {
			written -= (ssize_t)parts->iov_len;
			parts++;
			count--;
		}
		if (count) {
			parts->iov_base = (char *)parts->iov_base + written;
			parts->iov_len -= (size_t)written;
		}
	}
	return 0;
}

int back_journal_add(struct journal *journal, enum record_type type, uint64_t sequence,
	const void *head, size_t head_size, const void *data, size_t size, uint64_t *ret_at)
{
	struct record record = {.sequence = sequence,
		.type = type,
		.head_bytes = (uint32_t)head_size,
		.data_bytes = (uint32_t)size};
	struct iovec parts[] = {
		{&record, sizeof(record)}, {(void *)head, head_size}, {(void *)data, size}};
	int r;

	record.checksum = checksum(&record, head, data);
	r = write_parts(journal->fd, parts, 3, journal->size);
	if (r < 0) {
		if (!journal->has_failed)
			log_warning("cannot write to the journal of writes (%s); waiting for the "
				    "workspace with every change from now on",
				strerror(-r));
		journal->has_failed = true;
		if (ftruncate(journal->fd, (off_t)journal->size) < 0)
			return -errno;
		return r;
	}
	if (ret_at)
		*ret_at = journal->size + sizeof(record) + head_size;
	journal->size += sizeof(record) + head_size + size;
	return 0;
}

/* Records contain real ids where they are known.  The next mount knows a provisional id only if the
 * journal has the operation that made it. */
static void name_really(struct writeback *b, struct operation_facts *facts)
{
	facts->parent = back_real(b, &facts->parent);
	facts->new_parent = back_real(b, &facts->new_parent);
	facts->shown.id = back_real(b, &facts->shown.id);
	facts->replaced_id = back_real(b, &facts->replaced_id);
}

static void name_as_recovered(struct writeback *b, struct operation_facts *facts)
{
	back_show_id(b, &facts->parent);
	back_show_id(b, &facts->new_parent);
	back_show_id(b, &facts->shown.id);
	back_show_id(b, &facts->replaced_id);
}

int back_journal_operation(struct writeback *b, const struct operation *operation)
{
	struct operation_facts facts = operation->facts;
	size_t length = strlen(operation->path) + 1;
	size_t length2 = operation->path2 ? strlen(operation->path2) + 1 : 0;
	char *paths = malloc(length + length2);
	int r;

	if (!paths)
		return -ENOMEM;
	memcpy(paths, operation->path, length);
	if (length2)
		memcpy(paths + length, operation->path2, length2);
	name_really(b, &facts);
	r = back_journal_add(&b->journal, RECORD_OPERATION, operation->sequence, &facts,
		sizeof(facts), paths, length + length2, NULL);
	free(paths);
	return r;
}

void back_journal_clear(struct writeback *b)
{
	struct journal *journal = &b->journal;

	if (b->count || journal->reading || journal->size == journal->start)
		return;
	if (ftruncate(journal->fd, (off_t)journal->start) < 0)
		return;
	journal->size = journal->start;
	journal->has_failed = false;
}

/* ---- Opening --------------------------- */

static int write_header(struct journal *journal, const char *identity)
{
	struct header header = {.facts_bytes = sizeof(struct operation_facts),
		.identity_bytes = (uint32_t)strlen(identity)};
	struct iovec parts[] = {
		{&header, sizeof(header)}, {(void *)identity, header.identity_bytes}};
	int r;

	memcpy(header.magic, MAGIC, sizeof(header.magic));
	if (header.identity_bytes > IDENTITY_MAX)
		return -ENAMETOOLONG;
	r = write_parts(journal->fd, parts, 2, 0);
	journal->start = journal->size = sizeof(header) + header.identity_bytes;
	return r;
}

/* 1: it has records, perhaps; 0: it is new. */
static int read_header(struct journal *journal)
{
	struct header header;
	struct stat st;

	if (fstat(journal->fd, &st) < 0)
		return -errno;
	journal->start = journal->size = sizeof(header);
	if (st.st_size < (off_t)sizeof(header))
		return 0;
	if (pread(journal->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		return -EIO;
	if (memcmp(header.magic, MAGIC, VERSION_AT) != 0 || header.identity_bytes > IDENTITY_MAX)
		return -EBADMSG;
	journal->start = sizeof(header) + header.identity_bytes;
	journal->size = (uint64_t)st.st_size;
	if (journal->size <= journal->start)
		return 0; /* whose version ever */
	return header.magic[VERSION_AT] == MAGIC[VERSION_AT] &&
			       header.facts_bytes == sizeof(struct operation_facts)
		       ? 1
		       : -EBADMSG;
}

/* Another process may have the journal locked for a moment to count its operations. */
static int lock_journal(int fd, int how)
{
	int64_t until_ms = clock_now_ms() + (how == LOCK_EX ? LOCK_WAIT_MS : 0);

	while (flock(fd, how | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (clock_now_ms() >= until_ms)
			return -EBUSY;
		usleep(LOCK_POLL_US);
	}
	return 0;
}

static int open_locked(struct journal *journal, int flags, int how)
{
	int r;

	journal->fd = openat(journal->directory, JOURNAL_NAME, flags | O_CLOEXEC, 0600);
	if (journal->fd < 0)
		return -errno;
	r = lock_journal(journal->fd, how);
	return r < 0 ? r : read_header(journal);
}

static void explain(int r, const char *state, char **ret_reason)
{
	if (r == -EBUSY)
		*ret_reason = string_printf("another mount of this workspace writes back already; "
					    "unmount that one, or leave out -o writes=back");
	else if (r == -EBADMSG)
		*ret_reason = string_printf("the journal in \"%s\" was written by another version "
					    "of isthmus; mount with that one, or move it away",
			state);
	else
		*ret_reason = string_printf("cannot read and write the journal in \"%s\": %s; "
					    "make it writable, or set XDG_STATE_HOME",
			state, strerror(-r));
}

int back_journal_open(
	struct writeback *b, const struct writeback_options *options, char **ret_reason)
{
	struct journal *journal = &b->journal;
	int r;

	journal->directory = make_directories(options->state);
	r = journal->directory < 0 ? journal->directory
				   : open_locked(journal, O_RDWR | O_CREAT, LOCK_EX);
	if (r == 0)
		r = write_header(journal, options->identity);
	if (r < 0)
		explain(r, options->state, ret_reason);
	return r < 0 ? r : 0;
}

void back_journal_close(struct journal *journal)
{
	if (journal->fd >= 0)
		close(journal->fd);
	if (journal->directory >= 0)
		close(journal->directory);
}

/* ---- Reading --------------------------- */

static int read_all(int fd, void *data, size_t size, uint64_t at)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pread(fd, (char *)data + done, size - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -ENODATA;
		done += (size_t)got;
	}
	return 0;
}

/* The record at `*at`, which moves behind it; `*ret_payload` is the caller's.  1: there is one; 0:
 * there is none, or it is damaged or cut off; -errno: it cannot be read. */
static int next_record(
	struct journal *journal, uint64_t *at, struct record *record, char **ret_payload)
{
	cleanup_free char *payload = NULL;
	size_t size;
	int r = read_all(journal->fd, record, sizeof(*record), *at);

	if (r < 0)
		return r == -ENODATA ? 0 : r;
	if (record->head_bytes > PAYLOAD_MAX || record->data_bytes > PAYLOAD_MAX)
		return 0;
	size = (size_t)record->head_bytes + record->data_bytes;
	payload = malloc(size + 1);
	if (!payload)
		return -ENOMEM;
	r = read_all(journal->fd, payload, size, *at + sizeof(*record));
	if (r < 0)
		return r == -ENODATA ? 0 : r;
	if (checksum(record, payload, payload + record->head_bytes) != record->checksum)
		return 0;
	payload[size] = '\0';
	*at += sizeof(*record) + size;
	*ret_payload = steal_ptr(&payload);
	return 1;
}

static struct operation *find_operation(struct writeback *b, uint64_t sequence)
{
	struct operation *operation;

	TAILQ_FOREACH(operation, &b->operations, link)
		if (operation->sequence >= sequence)
			break;
	return operation && operation->sequence == sequence ? operation : NULL;
}

static int recover_operation(struct writeback *b, const struct record *record, const char *payload)
{
	const struct operation_facts *facts = (const void *)payload;
	const char *path = payload + sizeof(*facts);
	const char *path2 = path + strlen(path) + 1;
	struct op_context ctx;
	struct operation *operation;
	int r;

	op_context_init(&ctx);
	if (record->head_bytes != sizeof(*facts))
		return -EBADMSG;
	operation = back_operation_new(&ctx, facts->kind, path,
		path2 < payload + record->head_bytes + record->data_bytes ? path2 : NULL);
	if (!operation)
		return -ENOMEM;
	operation->facts = *facts;
	name_as_recovered(b, &operation->facts);
	operation->sequence = record->sequence;
	if (record->sequence > b->sequence)
		b->sequence = record->sequence;
	back_is_made(b, &facts->shown.id);
	r = back_enter(b, operation, true);
	if (r < 0)
		back_operation_free(operation);
	return r;
}

static int recover_data(
	struct writeback *b, const struct record *record, const char *payload, uint64_t at)
{
	const struct data_record *data = (const void *)payload;
	struct object_id id = data->id;
	struct node *node;

	if (record->head_bytes != sizeof(*data))
		return -EBADMSG;
	back_show_id(b, &id);
	node = back_node(b, &id);
	if (!node || !node->content)
		return 0;
	back_content_written(node, data->offset + record->data_bytes, &data->mtime);
	return back_content_write(b, node->data, at + sizeof(*record) + sizeof(*data),
		record->data_bytes, data->offset);
}

static int recover_merge(struct writeback *b, const struct record *record, const char *payload)
{
	const struct merge_record *merge = (const void *)payload;
	struct object_id id = merge->id;
	struct node *node;

	if (record->head_bytes != sizeof(*merge))
		return -EBADMSG;
	back_show_id(b, &id);
	node = back_node(b, &id);
	if (!node || !node->content)
		return 0;
	node->content->facts.mask |= merge->mask;
	node->content->facts.want = merge->want;
	if (merge->shown.size_bytes < node->shown.size_bytes)
		back_content_cut(node->data, merge->shown.size_bytes);
	node->shown = merge->shown;
	node->shown.blocks = back_content_blocks(node->data, node->shown.size_bytes);
	node->shown.id = node->id;
	return 0;
}

static bool makes(const struct operation *operation)
{
	enum operation_kind kind = operation->facts.kind;

	return kind == OP_MKDIR || kind == OP_CREATE || kind == OP_SYMLINK;
}

static void recover_done(struct writeback *b, const struct record *record, const char *payload)
{
	struct operation *operation = find_operation(b, record->sequence);
	struct node *node = operation ? operation->node : NULL;
	struct attributes settled;

	if (!operation || record->head_bytes != sizeof(settled))
		return;
	memcpy(&settled, payload, sizeof(settled));
	if (settled.id.inode && back_is_provisional(&node->id) && makes(operation))
		back_node_made(b, node, &settled.id);
	node->settled = settled;
	if (record->type == RECORD_UNDONE)
		back_undo(b, operation, -ENOENT);
	else if (node->content == operation)
		node->content = NULL; /* the data stays: a later operation may continue it */
	back_forget(b, operation);
}

/* Data that nothing continued.  The workspace has it, and no handle is left to it. */
static void drop_stored(struct writeback *b)
{
	struct operation *operation;

	TAILQ_FOREACH(operation, &b->operations, link)
		if (!operation->node->content)
			back_content_drop(b, operation->node);
}

static void recover_made(struct writeback *b, const struct record *record, const char *payload)
{
	const struct made_record *made = (const void *)payload;
	struct node *node = record->head_bytes == sizeof(*made) ? back_node(b, &made->id) : NULL;

	if (node)
		back_node_made(b, node, &made->real);
}

static void recover_created(struct writeback *b, const struct record *record, const char *payload)
{
	const struct made_record *made = (const void *)payload;
	struct operation *operation = find_operation(b, record->sequence);

	if (operation && record->head_bytes == sizeof(*made))
		operation->made = made->real;
}

static int recover_record(
	struct writeback *b, const struct record *record, const char *payload, uint64_t at)
{
	struct operation *operation;

	switch (record->type) {
	case RECORD_OPERATION:
		return recover_operation(b, record, payload);
	case RECORD_DATA:
		return recover_data(b, record, payload, at);
	case RECORD_MERGE:
		return recover_merge(b, record, payload);
	case RECORD_STARTED:
		operation = find_operation(b, record->sequence);
		if (operation) {
			back_start(operation);
			operation->may_be_done = true;
		}
		return 0;
	case RECORD_MADE:
		recover_made(b, record, payload);
		return 0;
	case RECORD_CREATED:
		recover_created(b, record, payload);
		return 0;
	case RECORD_DONE:
	case RECORD_UNDONE:
		recover_done(b, record, payload);
		return 0;
	default:
		return -EBADMSG;
	}
}

static int copy_rest(int from, int to, uint64_t at, uint64_t end)
{
	cleanup_free char *piece = malloc(PIECE_BYTES);
	int r = piece ? 0 : -ENOMEM;

	for (size_t size; at < end && r == 0; at += size) {
		size = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
		r = read_all(from, piece, size, at);
		if (r == 0)
			r = write_all(to, piece, size);
	}
	if (r == 0 && fsync(to) < 0)
		r = -errno;
	return r;
}

/* Cuts off what follows the last valid record, after saving it in a file beside the journal.  It
 * may be a record that was being written when the daemon was killed, or more if the disk is
 * damaged. */
static int cut_damaged(struct journal *journal, uint64_t at)
{
	uint64_t end = journal->size;
	char name[64];
	cleanup_fd int fd = -1;
	int r;

	if (at < end) {
		snprintf(name, sizeof(name), "journal.damaged-%llu",
			(unsigned long long)(clock_wall_ns() / 1000000));
		fd = openat(
			journal->directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		r = fd < 0 ? -errno : copy_rest(journal->fd, fd, at, end);
		if (r < 0)
			return r;
		log_warning("the journal of writes ends in a record that is damaged or cut off: "
			    "what is before it is sent; its last %llu bytes are kept beside it in "
			    "the file \"%s\"",
			(unsigned long long)(end - at), name);
	}
	journal->size = at;
	return ftruncate(journal->fd, (off_t)at) < 0 ? -errno : 0;
}

static int recover_all(struct writeback *b, uint64_t *ret_end)
{
	struct journal *journal = &b->journal;
	uint64_t at = journal->start, before;
	struct record record;
	char *payload;
	int r;

	for (;;) {
		*ret_end = before = at;
		r = next_record(journal, &at, &record, &payload);
		if (r <= 0)
			return r;
		r = recover_record(b, &record, payload, before);
		free(payload);
		if (r < 0)
			return r;
	}
}

int back_journal_recover(
	struct writeback *b, const struct writeback_options *options, char **ret_reason)
{
	uint64_t end;
	int r;

	b->journal.reading++; /* it is not cleared meanwhile */
	r = recover_all(b, &end);
	drop_stored(b);
	b->journal.reading--;
	if (r == 0)
		r = cut_damaged(&b->journal, end);
	if (r < 0)
		explain(r, options->state, ret_reason);
	else
		back_journal_clear(b);
	return r;
}

/* ---- Without a mount --------------------------- */

static int count_waiting(struct journal *journal, uint64_t *ret_operations)
{
	uint64_t at = journal->start;
	struct record record;
	char *payload;
	int r;

	while ((r = next_record(journal, &at, &record, &payload)) > 0) {
		*ret_operations += record.type == RECORD_OPERATION;
		*ret_operations -= record.type == RECORD_DONE || record.type == RECORD_UNDONE;
		free(payload);
	}
	return r;
}

static char *read_identity(const struct journal *journal)
{
	size_t size = journal->start - sizeof(struct header);
	char *identity = calloc(1, size + 1);

	if (identity && read_all(journal->fd, identity, size, sizeof(struct header)) < 0)
		*identity = '\0';
	return identity;
}

int writeback_waiting(const char *state, uint64_t *ret_operations, char **ret_identity)
{
	struct journal journal = {
		.fd = -1, .directory = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC)};
	uint64_t operations = 0;
	int r = journal.directory < 0 ? -errno : open_locked(&journal, O_RDONLY, LOCK_SH);

	if (r > 0)
		r = count_waiting(&journal, &operations);
	if (r == 0)
		*ret_operations = operations;
	if ((r == 0 || r == -EBADMSG) && ret_identity)
		*ret_identity = read_identity(&journal);
	back_journal_close(&journal);
	return r;
}
