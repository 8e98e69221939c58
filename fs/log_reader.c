#include "fs/log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/mount_log_segment.h"
#include "ops/support/cleanup.h"

enum {
	CHUNK_BYTES = 256 << 10,
	LINE_MAX_BYTES = 4 << 20, /* the longest that is written is far below */
};

struct log_reader {
	int directory;
	int changes;  /* inotify of the directory; -1: not yet */
	char **names; /* of the older segments, while they are being read */
	size_t next_name;
	int file;
	uint32_t number; /* of the segment in `file`; 0: its first line was not read yet */
	struct buffer text;
	size_t at; /* what of `text` has been given out */
};

static int open_segment(struct log_reader *reader, const char *name)
{
	int file = openat(reader->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (file < 0)
		return -errno;
	if (reader->file >= 0)
		close(reader->file);
	reader->file = file;
	reader->number = 0;
	reader->text.size = reader->at = 0;
	return 0;
}

/* The segment after one that was renamed: itself renamed meanwhile, or the current one.  When
 * rotation has deleted it, the oldest that is left. */
static int open_following(struct log_reader *reader)
{
	char **names;
	uint32_t number;
	int r;

	r = log_segment_names(reader->directory, &names);
	if (r < 0)
		return r;
	r = -ENOENT;
	for (size_t i = 0; names[i] && r == -ENOENT; i++)
		if (sscanf(names[i], "log-%u", &number) != 1 || number > reader->number)
			r = open_segment(reader, names[i]);
	log_names_free(names);
	return r;
}

static bool is_current(const struct log_reader *reader)
{
	struct stat mine, current;

	return fstat(reader->file, &mine) == 0 &&
	       fstatat(reader->directory, LOG_CURRENT_NAME, &current, AT_SYMLINK_NOFOLLOW) == 0 &&
	       mine.st_ino == current.st_ino && mine.st_dev == current.st_dev;
}

/* 1: there is more text; 0: the end of the segment for now. */
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
	if (reader->number == 0)
		sscanf(start, "{\"op\":\"segment\",\"schema\":%*u,\"segment\":%u,",
			&reader->number);
	return true;
}

/* At the end of a segment: 1 when another one follows. */
static int advance(struct log_reader *reader)
{
	int r = -ENOENT;

	while (r == -ENOENT && reader->names && reader->names[reader->next_name])
		r = open_segment(reader, reader->names[reader->next_name++]);
	if (r != -ENOENT)
		return r < 0 ? r : 1;
	if (is_current(reader))
		return 0;
	/* Lines may have come between the last read and the rename. */
	r = fill(reader);
	if (r != 0)
		return r;
	r = open_following(reader);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

int log_reader_next(struct log_reader *reader, char **ret_line, size_t *ret_length)
{
	int r;

	for (;;) {
		if (take_line(reader, ret_line, ret_length))
			return 1;
		if (reader->text.size - reader->at > LINE_MAX_BYTES)
			return -EBADMSG;
		r = fill(reader);
		if (r == 0)
			r = advance(reader);
		if (r <= 0)
			return r;
	}
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
		return 0; /* what came before the watch is read first */
	}
	return read(reader->changes, events, sizeof(events)) < 0 ? -errno : 0;
}

int log_reader_open(const char *directory, struct log_reader **ret_reader)
{
	struct log_reader *reader = calloc(1, sizeof(*reader));
	int r;

	if (!reader)
		return -ENOMEM;
	reader->changes = reader->file = -1;
	reader->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = reader->directory < 0 ? -errno : 0;
	if (r == 0)
		r = log_segment_names(reader->directory, &reader->names);
	/* One that rotation deletes meanwhile is no error while a later one is there. */
	if (r == 0) {
		r = -ENOENT;
		while (r == -ENOENT && reader->names[reader->next_name])
			r = open_segment(reader, reader->names[reader->next_name++]);
	}
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
	log_names_free(reader->names);
	buffer_done(&reader->text);
	free(reader);
}
