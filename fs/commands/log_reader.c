#include "fs/commands/log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/log_segment.h"

/* The first line of each segment. */
#define SEGMENT_LINE "{\"op\":\"segment\",\"schema\":%*u,\"segment\":%u,"

enum {
	CHUNK_BYTES = 256 << 10,
	LINE_MAX_BYTES = 4 << 20, /* far above the longest line that is written */
};

struct log_reader {
	int directory;
	const char *all;    /* the ring of all records; static */
	const char *ring;   /* the ring being read: first the changes older than the ring `all` */
	uint64_t until_seq; /* first number in the ring `all` */
	int changes;        /* inotify descriptor of the directory; -1: not open yet */
	int file;
	uint32_t number; /* of the segment in `file`, from its first line once that was read */
	struct buffer text;
	size_t at; /* offset in `text` of the next line */
};

/* `number`: used if the first line of the segment has none. */
static int open_segment(struct log_reader *reader, const char *name, uint32_t number)
{
	int file = openat(reader->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (file < 0)
		return -errno;
	if (reader->file >= 0)
		close(reader->file);
	reader->file = file;
	reader->number = number;
	reader->text.size = reader->at = 0;
	return 0;
}

/* Opens the segment after the present one, which rotation may have renamed meanwhile.  If rotation
 * has deleted it, opens the oldest one that is left. */
static int open_following(struct log_reader *reader)
{
	cleanup_free struct log_segment_name *names = NULL;
	int count = log_segment_names(reader->directory, reader->ring, &names);

	for (int i = 0; i < count; i++) {
		uint32_t number = names[i].number;

		if (number == LOG_CURRENT)
			number = reader->number + 1;
		if (number > reader->number)
			return open_segment(reader, names[i].name, number);
	}
	return count < 0 ? count : -ENOENT;
}

static void current_name(const struct log_reader *reader, char name[LOG_NAME_BYTES])
{
	snprintf(name, LOG_NAME_BYTES, "%s.jsonl", reader->ring);
}

/* A number in the first line of the present segment; 0: unknown. */
static uint64_t header_number(const struct log_reader *reader, const char *key)
{
	char line[256] = "";
	const char *member;

	if (pread(reader->file, line, sizeof(line) - 1, 0) <= 0)
		return 0;
	member = strstr(line, key);
	return member ? strtoull(member + strlen(key), NULL, 10) : 0;
}

static int enter_ring(struct log_reader *reader, const char *ring)
{
	reader->ring = ring;
	reader->number = 0;
	return open_following(reader);
}

/* Opens the oldest segment; changes are kept longer than other records. */
static int open_oldest(struct log_reader *reader)
{
	int r = enter_ring(reader, reader->all);

	if (r < 0)
		return r;
	reader->until_seq = header_number(reader, ",\"first_seq\":");
	if (reader->until_seq <= 1 || strcmp(reader->all, LOG_ALL_RING) != 0)
		return 0;
	r = enter_ring(reader, LOG_CHANGES_RING);
	return r == -ENOENT ? enter_ring(reader, reader->all) : r;
}

/* Whether a line of the changes is also in the ring of all records. */
static bool is_copy(const struct log_reader *reader, const char *line)
{
	uint64_t seq;

	return strcmp(reader->ring, LOG_CHANGES_RING) == 0 &&
	       sscanf(line, "{\"seq\":%" SCNu64 ",", &seq) == 1 && seq >= reader->until_seq;
}

static bool is_current(const struct log_reader *reader)
{
	char name[LOG_NAME_BYTES];

	current_name(reader, name);
	return log_segment_is_at(reader->directory, name, reader->file);
}

/* Reads more text.  1: there was some; 0: the present end of the segment. */
static int fill(struct log_reader *reader)
{
	ssize_t got;
	int r;

	buffer_consume(&reader->text, reader->at);
	reader->at = 0;
	r = buffer_reserve(&reader->text, CHUNK_BYTES + 1);
	if (r < 0)
		return r;
	got = read(reader->file, reader->text.data + reader->text.size, CHUNK_BYTES);
	if (got < 0)
		return -errno;
	reader->text.size += (size_t)got;
	return got > 0;
}

static bool take_line(struct log_reader *reader, char **ret_line, size_t *ret_length)
{
	char *start, *end;
	uint32_t number;

	if (reader->at >= reader->text.size)
		return false;
	start = (char *)reader->text.data + reader->at;
	end = memchr(start, '\n', reader->text.size - reader->at);
	if (!end)
		return false;
	*end = '\0';
	*ret_line = start;
	*ret_length = (size_t)(end - start);
	reader->at += *ret_length + 1;
	if (strncmp(start, "{\"op\":", strlen("{\"op\":")) == 0 &&
		sscanf(start, SEGMENT_LINE, &number) == 1 && number > reader->number)
		reader->number = number;
	return true;
}

/* Goes on to the next segment.  1: there is one; 0: there is none at present. */
static int advance(struct log_reader *reader)
{
	int r;

	if (is_current(reader) && strcmp(reader->ring, reader->all) == 0)
		return 0;
	/* Lines may have been written between the last read and the rename. */
	r = fill(reader);
	if (r != 0)
		return r;
	r = is_current(reader) ? -ENOENT : open_following(reader);
	if (r == -ENOENT && strcmp(reader->ring, LOG_CHANGES_RING) == 0)
		r = enter_ring(reader, reader->all);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

int log_reader_next(struct log_reader *reader, char **ret_line, size_t *ret_length)
{
	int r;

	for (;;) {
		if (take_line(reader, ret_line, ret_length)) {
			if (!is_copy(reader, *ret_line))
				return 1;
			r = enter_ring(reader, reader->all);
			if (r < 0)
				return r;
			continue;
		}
		if (reader->text.size - reader->at > LINE_MAX_BYTES)
			return -EBADMSG;
		r = fill(reader);
		if (r == 0)
			r = advance(reader);
		if (r <= 0)
			return r;
	}
}

/* ---- Backwards ----------------------------------------------------------------------- */

typedef enum log_visit (*visitor)(void *user, const char *line, size_t length);

/* Visits the lines of a text, the last one first.  Text before the first newline may be part of a
 * line and stays in `text`, unless it is the beginning of the file (`is_begin`). */
static enum log_visit visit_lines(const struct log_reader *reader, struct buffer *text,
	bool is_begin, visitor visit, void *user)
{
	enum log_visit wish = LOG_GO_BACK;
	char *data = (char *)text->data;

	while (wish == LOG_GO_BACK && text->size > 0) {
		size_t end = text->size - 1; /* the newline of the line */
		char *before = memrchr(data, '\n', end);
		size_t start = before ? (size_t)(before + 1 - data) : 0;

		if (!before && !is_begin)
			break;
		data[end] = '\0';
		if (!is_copy(reader, data + start))
			wish = visit(user, data + start, end - start);
		data[end] = '\n';
		text->size = wish == LOG_BEGIN_AFTER ? end + 1 : start;
	}
	return wish;
}

/* Reads the bytes before `*offset`, and inserts them before the text. */
static int read_before(int file, off_t *offset, struct buffer *text)
{
	size_t size = *offset < CHUNK_BYTES ? (size_t)*offset : CHUNK_BYTES, done = 0;
	int r = buffer_reserve(text, size + 1);

	if (r < 0)
		return r;
	memmove(text->data + size, text->data, text->size);
	text->size += size;
	*offset -= (off_t)size;
	while (done < size) {
		ssize_t got = pread(file, text->data + done, size - done, *offset + (off_t)done);

		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		done += (size_t)got;
	}
	return 0;
}

/* Visits the lines of the present segment, and sets the position for log_reader_next(). */
static int go_back_in_segment(
	struct log_reader *reader, visitor visit, void *user, enum log_visit *ret_wish)
{
	cleanup_buffer struct buffer text = {0};
	enum log_visit wish = LOG_GO_BACK;
	off_t offset = lseek(reader->file, 0, SEEK_END);
	bool at_end = true;
	int r = offset < 0 ? -errno : 0;

	while (r == 0 && wish == LOG_GO_BACK && offset > 0) {
		r = read_before(reader->file, &offset, &text);
		/* The last line may not be complete yet. */
		while (r == 0 && at_end && text.size && text.data[text.size - 1] != '\n')
			text.size--;
		at_end = at_end && text.size == 0;
		if (r == 0 && text.size > LINE_MAX_BYTES)
			r = -EBADMSG;
		if (r == 0 && text.size)
			wish = visit_lines(reader, &text, offset == 0, visit, user);
	}
	if (r == 0 && lseek(reader->file, offset + (off_t)text.size, SEEK_SET) < 0)
		r = -errno;
	reader->text.size = reader->at = 0;
	*ret_wish = wish;
	return r;
}

/* Opens the segment before the present one.  -ENOENT: there is none. */
static int open_preceding(struct log_reader *reader)
{
	cleanup_free struct log_segment_name *names = NULL;
	int i = log_segment_names(reader->directory, reader->ring, &names);

	if (i < 0)
		return i;
	while (i > 0 && names[i - 1].number >= reader->number)
		i--;
	return i > 0 ? open_segment(reader, names[i - 1].name, names[i - 1].number) : -ENOENT;
}

/* Opens the newest segment of the ring. */
static int open_newest(struct log_reader *reader, const char *ring)
{
	char name[LOG_NAME_BYTES];
	uint64_t number;
	int r;

	reader->ring = ring;
	current_name(reader, name);
	r = open_segment(reader, name, LOG_CURRENT);
	reader->number = LOG_CURRENT;
	if (r == -ENOENT) /* during a rotation: only older segments exist */
		return open_preceding(reader);
	number = r < 0 ? 0 : header_number(reader, ",\"segment\":");
	if (number)
		reader->number = (uint32_t)number;
	return r;
}

static int go_back_in_ring(
	struct log_reader *reader, visitor visit, void *user, enum log_visit *ret_wish)
{
	int r = 0;

	while (r == 0) {
		r = go_back_in_segment(reader, visit, user, ret_wish);
		if (r < 0 || *ret_wish != LOG_GO_BACK)
			return r;
		r = open_preceding(reader);
	}
	/* -ENOENT: the reader is at the beginning of the oldest segment. */
	return r == -ENOENT ? 0 : r;
}

int log_reader_go_back(struct log_reader *reader, visitor visit, void *user)
{
	enum log_visit wish = LOG_GO_BACK;
	int r = open_newest(reader, reader->all);

	if (r == 0)
		r = go_back_in_ring(reader, visit, user, &wish);
	if (r < 0 || wish != LOG_GO_BACK)
		return r == -ENOENT ? 0 : r;
	reader->until_seq = header_number(reader, ",\"first_seq\":");
	if (reader->until_seq <= 1 || strcmp(reader->all, LOG_ALL_RING) != 0)
		return 0;
	r = open_newest(reader, LOG_CHANGES_RING);
	if (r == 0)
		r = go_back_in_ring(reader, visit, user, &wish);
	return r == -ENOENT ? enter_ring(reader, reader->all) : r;
}

int log_reader_wait(struct log_reader *reader)
{
	char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	char path[48];

	if (reader->changes < 0) {
		reader->changes = inotify_init1(IN_CLOEXEC);
		if (reader->changes < 0)
			return -errno;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", reader->directory);
		if (inotify_add_watch(reader->changes, path, IN_MODIFY | IN_CREATE | IN_MOVED_TO) <
			0)
			return -errno;
		return 0; /* first read the lines from before the watch */
	}
	return read(reader->changes, events, sizeof(events)) < 0 ? -errno : 0;
}

int log_reader_open(const char *directory, const char *ring, struct log_reader **ret_reader)
{
	struct log_reader *reader = calloc(1, sizeof(*reader));
	int r;

	if (!reader)
		return -ENOMEM;
	reader->changes = reader->file = -1;
	reader->all = reader->ring = ring;
	reader->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = reader->directory < 0 ? -errno : 0;
	if (r == 0)
		r = open_oldest(reader);
	if (r < 0) {
		log_reader_close(reader);
		return r;
	}
	*ret_reader = reader;
	return 0;
}

void log_reader_close(struct log_reader *reader)
{
	if (!reader)
		return;
	if (reader->file >= 0)
		close(reader->file);
	if (reader->changes >= 0)
		close(reader->changes);
	if (reader->directory >= 0)
		close(reader->directory);
	buffer_done(&reader->text);
	free(reader);
}
