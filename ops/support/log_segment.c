#include "ops/support/log_segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/files.h"
#include "ops/support/rename.h"

enum {
	SEGMENTS_WANTED = 8, /* the limit divided by this is the size of one */
	SEGMENT_MIN_BYTES = 4096,
	LOCK_TRIES = 400, /* 5 ms apart: an old daemon may be on its way out */
	NAME_TRIES = 1000,
};

struct log_segments {
	struct log_directory *directory;
	const char *ring;
	char current[LOG_NAME_BYTES]; /* the name of `file` */
	int file;
	uint64_t size_bytes;
	uint64_t limit_bytes, segment_bytes;
	uint32_t number;
	uint32_t oldest;    /* the first segment that we have not dropped */
	bool has_begun;     /* the first line of this daemon is written */
	uint8_t digest[32]; /* of the last seal */
	uint64_t last_seq;  /* ... and its number */
	uint64_t records;   /* in `file`, that this daemon wrote */
	bool removed;       /* ... a former one, with so many: */
	uint64_t removed_records;
	struct log_seal next_seal;
	struct log_anchor *anchor;
	int anchor_error;
	struct log_clock clock;
};

/* ---- Writing ---------------------------------------------------------------- */

/* Appends the seal to the lines, and both to the file. */
static int write_sealed(struct log_segments *s, struct buffer *lines, uint64_t last_seq)
{
	size_t start = lines->size;
	uint8_t digest[32];
	int r;

	log_digest(s->digest, lines->data, start, digest);
	r = log_format_seal(lines, last_seq, digest);
	if (r == 0)
		r = log_seal_finish(&s->next_seal, lines, start);
	if (r < 0)
		return r;
	r = write_all(s->file, lines->data, lines->size);
	if (r < 0) {
		/* Half a batch would look like tampering. */
		if (ftruncate(s->file, (off_t)s->size_bytes) < 0)
			return -errno;
		return r;
	}
	s->size_bytes += lines->size;
	memcpy(s->digest, digest, sizeof(digest));
	s->last_seq = last_seq;
	if (s->anchor)
		s->anchor_error = log_anchor_note(s->anchor, s->ring, last_seq, digest);
	log_seal_next(&s->next_seal);
	return 0;
}

static int begin_segment(struct log_segments *s, uint32_t oldest, uint64_t first_seq)
{
	const struct log_segment_header first_line = {.number = s->number + 1,
		.oldest = oldest,
		.first_seq = first_seq,
		.previous = s->digest,
		.now_ns = clock_wall_ns()};
	cleanup_buffer struct buffer header = {0};
	cleanup_fd int file = openat(s->directory->fd, s->current,
		O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct log_seal seal_before = s->next_seal;
	uint64_t old_size_bytes = s->size_bytes;
	int old, r;

	if (file < 0)
		return -errno;
	r = log_format_segment(&header, &first_line, &s->clock);
	if (r < 0) {
		log_seal_erase(&seal_before, sizeof(seal_before));
		return r;
	}
	old = s->file;
	s->file = file;
	s->size_bytes = 0;
	r = log_seal_to_segment(&s->next_seal, first_line.number);
	if (r == 0)
		r = write_sealed(s, &header, first_seq - 1);
	if (r < 0) {
		s->file = old;
		s->size_bytes = old_size_bytes;
		s->next_seal = seal_before;
		unlinkat(s->directory->fd, s->current, 0);
	}
	log_seal_erase(&seal_before, sizeof(seal_before));
	if (r < 0)
		return r;
	file = old;
	s->number++;
	s->oldest = oldest;
	s->records = 0;
	return 0;
}

/* Renames the current segment by its number; `name` gets the result.  A file that has the
 * name is not ours: it stays, and --verify finds it. */
static int retire_current(struct log_segments *s, char name[LOG_NAME_BYTES])
{
	int r = -EEXIST;

	for (int i = 0; r == -EEXIST && i < NAME_TRIES; i++) {
		s->number += i > 0;
		snprintf(name, LOG_NAME_BYTES, "%s-%08u.jsonl", s->ring, s->number);
		r = rename_to_free_name(s->directory->fd, s->current, name);
	}
	return r;
}

/* The oldest segment that stays when one more begins. */
static uint32_t oldest_to_keep(
	const struct log_segments *s, const struct log_segment_name *names, int count)
{
	uint64_t total = s->segment_bytes;
	uint32_t oldest = s->number + 1;

	while (count-- > 0) {
		struct stat attributes;

		if (names[count].number == LOG_CURRENT ||
			fstatat(s->directory->fd, names[count].name, &attributes,
				AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		total += (uint64_t)attributes.st_size;
		if (total > s->limit_bytes)
			return oldest;
		oldest = names[count].number;
	}
	return s->oldest;
}

/* The new segment says which is the oldest before the others go: --verify knows them from
 * those that somebody else deletes. */
static void rotate(struct log_segments *s, uint64_t first_seq)
{
	cleanup_free struct log_segment_name *names = NULL;
	char name[LOG_NAME_BYTES];
	uint32_t oldest;
	int count;

	if (retire_current(s, name) < 0)
		return;
	count = log_segment_names(s->directory->fd, s->ring, &names);
	oldest = count < 0 ? 0 : oldest_to_keep(s, names, count);
	if (count < 0 || begin_segment(s, oldest, first_seq) < 0) {
		rename_to_free_name(s->directory->fd, name, s->current);
		return;
	}
	for (int i = 0; i < count; i++)
		if (names[i].number < oldest)
			unlinkat(s->directory->fd, names[i].name, 0);
}

/* The first line of a daemon: one that was killed before is known by it. */
static int write_begin(struct log_segments *s)
{
	cleanup_buffer struct buffer line = {0};
	int r = log_format_begin(&line, clock_wall_ns(), &s->clock);

	if (r == 0)
		r = write_sealed(s, &line, s->last_seq);
	s->has_begun = r == 0;
	return r;
}

/* ---- Removed while it is written ---------------------------------------------- */

static int reopen_directory(struct log_directory *directory)
{
	struct log_directory fresh;
	struct stat attributes, lock;
	int r;

	if (fstat(directory->fd, &attributes) == 0 && attributes.st_nlink > 0 &&
		fstat(directory->lock, &lock) == 0 && lock.st_nlink > 0)
		return 0;
	r = log_directory_open(&fresh, directory->path, directory->lock_name);
	if (r < 0)
		return r;
	log_directory_close(directory);
	*directory = fresh;
	return 0;
}

/* A file in the place of ours is kept under a name that is no segment's. */
static int move_aside(const struct log_segments *s)
{
	char name[LOG_NAME_BYTES];
	int r;

	snprintf(name, sizeof(name), "foreign-%s-%08u.jsonl", s->ring, s->number);
	r = rename_to_free_name(s->directory->fd, s->current, name);
	if (r == -EEXIST)
		return unlinkat(s->directory->fd, s->current, 0) < 0 ? -errno : 0;
	return r == -ENOENT ? 0 : r;
}

int log_segments_look(struct log_segments *s)
{
	uint64_t records = s->records;
	int r;

	if (s->anchor)
		s->anchor_error = log_anchor_flush(s->anchor, 0);
	if (log_segment_is_at(s->directory->fd, s->current, s->file))
		return 0;
	r = reopen_directory(s->directory);
	if (r == 0)
		r = move_aside(s);
	if (r == 0)
		r = begin_segment(s, s->oldest, s->last_seq + 1);
	if (r < 0)
		return r;
	s->removed_records = records + (s->removed ? s->removed_records : 0);
	s->removed = true;
	return 0;
}

int log_segments_check_room(const struct log_segments *s, size_t bytes)
{
	if (fallocate(s->file, FALLOC_FL_KEEP_SIZE, (off_t)s->size_bytes, (off_t)bytes) == 0 ||
		errno == EOPNOTSUPP || errno == EINTR)
		return 0;
	return -errno;
}

bool log_segments_take_removed(struct log_segments *s, uint64_t *ret_count)
{
	bool removed = s->removed;

	*ret_count = s->removed_records;
	s->removed = false;
	return removed;
}

/* ---- Appending ----------------------------------------------------------------- */

int log_segments_append(
	struct log_segments *s, struct buffer *lines, uint64_t first_seq, uint64_t last_seq)
{
	/* When there is no new segment to be had, the old one goes on.  A full disk drops nothing
	 * old: whoever can fill it could else remove what he did. */
	int r = log_segments_look(s);

	if (r == 0 && s->size_bytes >= s->segment_bytes)
		rotate(s, first_seq);
	if (r == 0 && !s->has_begun)
		r = write_begin(s);
	if (r == 0)
		r = write_sealed(s, lines, last_seq);
	if (r == 0)
		s->records += last_seq + 1 - first_seq;
	return r;
}

int log_segments_anchor_error(const struct log_segments *s)
{
	return s->anchor_error;
}

void log_segments_end(struct log_segments *s)
{
	cleanup_buffer struct buffer line = {0};

	/* Without it, --verify says that the daemon was killed: no more can be done here. */
	if (log_segments_look(s) == 0 && buffer_append_string(&line, LOG_END_LINE) == 0)
		write_sealed(s, &line, s->last_seq);
}

/* ---- Opening ---------------------------------------------------------------- */

static int take_lock(struct log_directory *directory)
{
	directory->lock = openat(directory->fd, directory->lock_name,
		O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (directory->lock < 0)
		return -errno;
	for (int i = 0; flock(directory->lock, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (i == LOCK_TRIES)
			return -EBUSY;
		usleep(5000);
	}
	return 0;
}

int log_directory_open(struct log_directory *directory, const char *path, const char *lock_name)
{
	int r;

	*directory = (struct log_directory){.path = strdup(path),
		.lock_name = lock_name,
		.fd = make_directories(path),
		.lock = -1};
	r = directory->path ? directory->fd : -ENOMEM;
	if (r >= 0)
		r = take_lock(directory);
	if (r < 0)
		log_directory_close(directory);
	return r;
}

void log_directory_close(struct log_directory *directory)
{
	if (directory->lock >= 0)
		close(directory->lock);
	if (directory->fd >= 0)
		close(directory->fd);
	free(directory->path);
	*directory = (struct log_directory){.fd = -1, .lock = -1};
}

/* The renamed segment that is the newest; `*ret_oldest`: the number of the oldest.  -ENOENT: there
 * is none. */
static int find_newest_old(
	const struct log_segments *s, struct log_segment_name *ret_newest, uint32_t *ret_oldest)
{
	cleanup_free struct log_segment_name *names = NULL;
	int count = log_segment_names(s->directory->fd, s->ring, &names);

	if (count > 0 && names[count - 1].number == LOG_CURRENT)
		count--;
	if (count <= 0)
		return count < 0 ? count : -ENOENT;
	*ret_newest = names[count - 1];
	*ret_oldest = names[0].number;
	return 0;
}

/* Where no current one says how the log goes on, the newest of the others does. */
static int continue_after(
	struct log_segments *s, const struct log_segment_name *newest, uint32_t oldest)
{
	struct log_segment_report report;
	cleanup_fd int file =
		openat(s->directory->fd, newest->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int r = file < 0 ? -errno : log_segment_scan(file, NULL, &report);

	if (r < 0)
		return r;
	memcpy(s->digest, report.digest, sizeof(s->digest));
	s->number = newest->number;
	s->oldest = report.oldest ? report.oldest : oldest;
	s->last_seq = report.last_seq;
	return 0;
}

/* A daemon was killed in the middle of a batch, or is of another version, or somebody wrote there:
 * a new segment goes on after what it holds. */
static int replace_current(struct log_segments *s, const struct log_segment_report *current)
{
	char name[LOG_NAME_BYTES];
	int r;

	memcpy(s->digest, current->digest, sizeof(s->digest));
	if (current->oldest)
		s->oldest = current->oldest;
	else if (current->has_header && s->number == 0) /* of schema 1, and alone */
		s->oldest = current->number;
	if (current->last_seq > s->last_seq)
		s->last_seq = current->last_seq;
	if (current->has_header && current->number > s->number)
		s->number = current->number;
	else
		s->number++;
	r = retire_current(s, name);
	return r < 0 ? r : begin_segment(s, s->oldest, s->last_seq + 1);
}

static bool is_whole(const struct log_segment_report *segment)
{
	return segment->has_header && segment->schema == LOG_SCHEMA && !segment->problem &&
	       segment->unsealed_lines == 0;
}

static int continue_log(struct log_segments *s)
{
	struct log_segment_report current = {0};
	struct log_segment_name newest = {0};
	uint32_t oldest = 0;
	int r = find_newest_old(s, &newest, &oldest);

	if (r < 0 && r != -ENOENT)
		return r;
	s->oldest = 1;
	s->file = openat(s->directory->fd, s->current, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	if (s->file < 0 && errno != ENOENT)
		return -errno;
	r = s->file < 0    ? 0
	    : s->has_begun ? log_segment_ends(s->file, &current)
			   : log_segment_scan(s->file, NULL, &current);
	if (r == -ENODATA)
		r = log_segment_scan(s->file, NULL, &current);
	if (r < 0)
		return r;
	if (is_whole(&current) && current.number > newest.number) {
		memcpy(s->digest, current.digest, sizeof(s->digest));
		s->number = current.number;
		s->oldest = current.oldest;
		s->last_seq = current.last_seq;
		s->size_bytes = current.size_bytes;
		return log_seal_to_segment(&s->next_seal, s->number);
	}
	r = newest.number ? continue_after(s, &newest, oldest) : 0;
	if (r < 0)
		return r;
	return s->file < 0 ? begin_segment(s, s->oldest, s->last_seq + 1)
			   : replace_current(s, &current);
}

int log_segments_open(struct log_directory *directory, const struct log_segments_options *options,
	struct log_segments **ret_segments, uint64_t *ret_last_seq)
{
	struct log_segments *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->directory = directory;
	s->ring = options->ring;
	snprintf(s->current, sizeof(s->current), "%s.jsonl", s->ring);
	s->file = -1;
	s->anchor = options->anchor;
	s->limit_bytes = options->limit_bytes;
	s->segment_bytes = s->limit_bytes / SEGMENTS_WANTED;
	if (s->segment_bytes < SEGMENT_MIN_BYTES)
		s->segment_bytes = SEGMENT_MIN_BYTES;
	if (options->generation)
		log_seal_init(&s->next_seal, options->generation, s->ring);
	s->has_begun = options->is_shared;
	r = continue_log(s);
	if (r < 0) {
		log_segments_close(s);
		return r;
	}
	if (!s->has_begun)
		write_begin(s); /* when it fails, with the first batch */
	*ret_last_seq = s->last_seq;
	*ret_segments = s;
	return 0;
}

void log_segments_close(struct log_segments *s)
{
	if (!s)
		return;
	if (s->file >= 0)
		close(s->file);
	log_seal_erase(&s->next_seal, sizeof(s->next_seal));
	free(s);
}
