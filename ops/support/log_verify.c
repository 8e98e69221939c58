#include "ops/support/log_segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/hex.h"
#include "ops/support/json.h"
#include "ops/support/path.h"

enum { LINE_MAX_BYTES = 1024 }; /* of a segment's first line, and of a seal */

/* ---- Names ------------------------------------------------------------------ */

static bool is_segment(const char *name, const char *ring, uint32_t *ret_number)
{
	size_t length = strlen(ring);

	*ret_number = LOG_CURRENT;
	if (strncmp(name, ring, length) != 0)
		return false;
	name += length;
	if (*name == '-' && strspn(name + 1, "0123456789") == 8) {
		*ret_number = (uint32_t)strtoul(name + 1, NULL, 10);
		name += 9;
	}
	return strcmp(name, ".jsonl") == 0;
}

static int by_number(const void *a, const void *b)
{
	const struct log_segment_name *first = a, *second = b;

	return (first->number > second->number) - (first->number < second->number);
}

int log_segment_names(int directory_fd, const char *ring, struct log_segment_name **ret_names)
{
	cleanup_fd int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	cleanup_free struct log_segment_name *names = NULL;
	const struct dirent *entry;
	uint32_t number;
	int count = 0;

	if (!stream)
		return -errno;
	steal_fd(&fd);
	while ((entry = readdir(stream))) {
		struct log_segment_name *longer;

		if (!is_segment(entry->d_name, ring, &number))
			continue;
		longer = reallocarray(names, (size_t)count + 1, sizeof(*names));
		if (!longer)
			return -ENOMEM;
		names = longer;
		names[count].number = number;
		strcpy(names[count++].name, entry->d_name);
	}
	if (count)
		qsort(names, (size_t)count, sizeof(*names), by_number);
	*ret_names = steal_ptr(&names);
	return count;
}

bool log_segment_is_at(int directory_fd, const char *name, int file)
{
	struct stat mine, named;

	return fstat(file, &mine) == 0 &&
	       fstatat(directory_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

/* ---- One segment ------------------------------------------------------------ */

static void complain(struct log_segment_report *report, const char *problem)
{
	if (report->problem)
		return;
	report->problem = problem;
	report->problem_line = report->lines;
}

static void read_header(struct log_segment_report *report, const char *line, size_t length)
{
	cJSON *header = cJSON_ParseWithLength(line, length);
	long long schema = json_integer(header, "schema"), number = json_integer(header, "segment");
	long long first_seq = json_integer(header, "first_seq");
	const char *previous = json_text(header, "previous");

	report->unsealed_lines++;
	if (schema >= 1 && schema <= LOG_SCHEMA && number >= 1 && first_seq >= 1 && previous &&
		hex_read(previous, report->previous, sizeof(report->previous))) {
		report->has_header = true;
		report->schema = (unsigned)schema;
		report->number = (uint32_t)number;
		report->oldest = (uint32_t)json_integer(header, "oldest");
		report->first_seq = (uint64_t)first_seq;
		report->last_seq = report->first_seq - 1;
		memcpy(report->digest, report->previous, sizeof(report->digest));
	} else {
		complain(report, "is not the first line of a segment that this version knows");
	}
	cJSON_Delete(header);
}

/* Each keeps the first only. */

__attribute__((format(printf, 2, 3))) static void note_gap(
	struct log_verify_report *report, const char *format, ...)
{
	va_list arguments;

	if (report->gap_count++ > 0)
		return;
	va_start(arguments, format);
	vsnprintf(report->gap, sizeof(report->gap), format, arguments);
	va_end(arguments);
}

__attribute__((format(printf, 2, 3))) static void note_problem(
	struct log_verify_report *report, const char *format, ...)
{
	va_list arguments;

	if (report->problem[0])
		return;
	va_start(arguments, format);
	vsnprintf(report->problem, sizeof(report->problem), format, arguments);
	va_end(arguments);
}

/* `start`: the bytes of the line that are right already. */
static void check_key(struct log_scan *scan, struct log_segment_report *report, const char *line,
	size_t length, size_t start, const uint8_t digest[32])
{
	const char *problem = NULL;

	switch (log_seal_check_line(&scan->seals, report->number, scan->report->segments == 0, line,
		length, start, &problem)) {
	case LOG_SEAL_ALTERED:
		complain(report, problem);
		break;
	case LOG_SEAL_MISSING:
		note_gap(scan->report, "at number %" PRIu64 ": %s", report->last_seq, problem);
		break;
	case LOG_SEAL_GOOD:
		break;
	}
	if (scan->anchor)
		log_anchor_check_seal(scan->anchor, report->last_seq, digest,
			scan->report->segments == 0 && report->number > 1);
}

static void check_seal(struct log_scan *scan, struct log_segment_report *report, const char *line,
	size_t length, const struct buffer *batch)
{
	cleanup_buffer struct buffer seal = {0};
	uint8_t digest[32];

	log_digest(report->digest, batch->data, batch->size, digest);
	if (log_format_seal(&seal, report->last_seq, digest) < 0)
		return;
	if (seal.size >= length || memcmp(seal.data, line, seal.size) != 0 ||
		(strcmp(line + seal.size, "}\n") != 0 &&
			strncmp(line + seal.size, ",\"key\":", strlen(",\"key\":")) != 0))
		complain(report, "seals other lines than those before it: they were changed");
	else if (scan)
		check_key(scan, report, line, length, seal.size, digest);
	memcpy(report->digest, digest, sizeof(digest));
	report->unsealed_lines = 0;
}

static void check_record(struct log_segment_report *report, const char *line, size_t length)
{
	uint64_t seq = 0;

	if (line[length - 1] != '\n' || sscanf(line, "{\"seq\":%" SCNu64 ",", &seq) != 1) {
		report->unsealed_lines++;
		return;
	}
	if (seq <= report->last_seq)
		complain(report, "is out of order");
	else
		report->last_seq = seq;
	report->unsealed_lines++;
}

/* Quotes inside of strings are escaped: this is the member, or nothing. */
static void note_lost(
	struct log_scan *scan, const struct log_segment_report *report, const char *line)
{
	const char *count = strstr(line, ",\"op\":\"lost\",") ? strstr(line, ",\"count\":") : NULL;
	uint64_t lost;

	if (!count || sscanf(count, ",\"count\":%" SCNu64, &lost) != 1)
		return;
	scan->report->lost += lost;
	note_gap(scan->report,
		"%" PRIu64 " records from number %" PRIu64 " on could not be written", lost,
		report->last_seq);
}

/* Where each daemon begins and ends. */
static void follow_session(
	struct log_scan *scan, const struct log_segment_report *report, const char *line)
{
	bool begins = strncmp(line, LOG_BEGIN_START, strlen(LOG_BEGIN_START)) == 0;

	if (begins && scan->session_is_open)
		note_gap(scan->report,
			"the daemon that wrote number %" PRIu64
			" was killed, or the end of what it wrote was cut off",
			report->last_seq);
	scan->session_is_open = strcmp(line, LOG_END_LINE) != 0;
	note_lost(scan, report, line);
}

static int scan_lines(FILE *file, struct log_scan *scan, struct log_segment_report *report)
{
	cleanup_buffer struct buffer batch = {0};
	cleanup_free char *line = NULL;
	size_t capacity = 0;
	ssize_t length;
	int r;

	while ((length = getline(&line, &capacity, file)) > 0) {
		report->lines++;
		report->size_bytes += (size_t)length;
		if (strncmp(line, "{\"op\":\"seal\"", strlen("{\"op\":\"seal\"")) == 0) {
			check_seal(scan, report, line, (size_t)length, &batch);
			batch.size = 0;
			continue;
		}
		report->ended = strcmp(line, LOG_END_LINE) == 0;
		if (report->lines == 1)
			read_header(report, line, (size_t)length);
		else
			check_record(report, line, (size_t)length);
		if (scan && report->lines > 1)
			follow_session(scan, report, line);
		r = buffer_append(&batch, line, (size_t)length);
		if (r < 0)
			return r;
	}
	if (ferror(file))
		return -EIO;
	if (batch.size > 0)
		log_digest(report->digest, batch.data, batch.size, report->digest);
	return 0;
}

int log_segment_scan(int fd, struct log_scan *scan, struct log_segment_report *ret_report)
{
	cleanup_fd int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	cleanup_file FILE *file = NULL;

	memset(ret_report, 0, sizeof(*ret_report));
	if (copy < 0)
		return -errno;
	if (lseek(copy, 0, SEEK_SET) < 0)
		return -errno;
	file = fdopen(copy, "r");
	if (!file)
		return -errno;
	steal_fd(&copy);
	return scan_lines(file, scan, ret_report);
}

/* The line that ends before `size`; the text ends there, too.  NULL: a part of it is missing. */
static char *last_line(char *text, size_t size, bool is_whole)
{
	char *before;

	if (size == 0 || text[size - 1] != '\n')
		return NULL;
	text[size - 1] = '\0';
	before = memrchr(text, '\n', size - 1);
	return before ? before + 1 : is_whole ? text : NULL;
}

static bool read_seal(const char *line, struct log_segment_report *report)
{
	char hex[65] = "";
	int end = 0;

	return sscanf(line,
		       "{\"op\":\"seal\",\"last_seq\":%" SCNu64 ",\"sha256\":\"%64[0-9a-f]\"%n",
		       &report->last_seq, hex, &end) == 2 &&
	       end > 0 && hex_read(hex, report->digest, sizeof(report->digest));
}

int log_segment_ends(int fd, struct log_segment_report *ret_report)
{
	char text[LINE_MAX_BYTES + 1], *end;
	off_t size = lseek(fd, 0, SEEK_END);
	ssize_t got = pread(fd, text, LINE_MAX_BYTES, 0);

	memset(ret_report, 0, sizeof(*ret_report));
	end = got > 0 ? memchr(text, '\n', (size_t)got) : NULL;
	if (size < 0 || !end)
		return -ENODATA;
	ret_report->lines = 1;
	read_header(ret_report, text, (size_t)(end + 1 - text));
	got = pread(fd, text, LINE_MAX_BYTES, size > LINE_MAX_BYTES ? size - LINE_MAX_BYTES : 0);
	end = got > 0 ? last_line(text, (size_t)got, size <= LINE_MAX_BYTES) : NULL;
	if (!ret_report->has_header || !end || !read_seal(end, ret_report))
		return -ENODATA;
	ret_report->unsealed_lines = 0;
	ret_report->size_bytes = (uint64_t)size;
	return 0;
}

/* ---- The whole log ---------------------------------------------------------- */

/* `report`: of the segments before it. */
static void check_links(struct log_verify_report *report, const char *name,
	const struct log_segment_report *segment)
{
	if (segment->problem)
		note_problem(report, "\"%s\": line %" PRIu64 " %s", name, segment->problem_line,
			segment->problem);
	else if (!segment->has_header)
		note_problem(report, "\"%s\" has no first line", name);
	else if (report->segments == 0)
		return;
	else if (segment->number != report->number + 1)
		note_problem(report,
			"\"%s\" is segment %u, but segment %u should follow %u: a segment was "
			"deleted or replaced",
			name, segment->number, report->number + 1, report->number);
	else if (memcmp(segment->previous, report->digest, sizeof(report->digest)) != 0)
		note_problem(report,
			"\"%s\" does not continue the segment before it: one of them was changed, "
			"cut or replaced",
			name);
	else if (segment->first_seq <= report->last_seq)
		note_problem(report,
			"\"%s\" begins with number %" PRIu64 ", but %" PRIu64 " is before it", name,
			segment->first_seq, report->last_seq);
}

static void add_segment(struct log_verify_report *report, const struct log_segment_report *segment)
{
	if (report->segments == 0) {
		report->oldest_gone = segment->number > 1;
		report->first_number = segment->number;
		report->first_seq = segment->first_seq;
	}
	report->segments++;
	report->schema = segment->schema;
	report->number = segment->number;
	report->oldest = segment->oldest;
	report->lines += segment->lines;
	report->last_seq = segment->last_seq;
	report->unsealed_lines = segment->unsealed_lines;
	report->ended = segment->ended;
	memcpy(report->digest, segment->digest, sizeof(report->digest));
}

/* Rotation names the oldest segment that it leaves. */
static void check_oldest(struct log_verify_report *report)
{
	if (report->oldest && report->first_number > report->oldest)
		note_problem(report,
			"the log begins with segment %u, but the daemon has deleted those before "
			"%u only: somebody else deleted segments",
			report->first_number, report->oldest);
}

static int verify_segment(int directory, const char *name, struct log_scan *scan)
{
	cleanup_fd int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct log_verify_report *report = scan->report;
	struct log_segment_report segment;
	int r;

	if (report->unsealed_lines) {
		note_gap(report,
			"%" PRIu64 " lines at the end of segment %u have no seal: the daemon was "
			"killed while it wrote them, or somebody added or altered them",
			report->unsealed_lines, report->number);
		scan->session_is_open = false;
	}
	r = file < 0 ? -errno : log_segment_scan(file, scan, &segment);
	if (r < 0)
		return r;
	check_links(report, name, &segment);
	add_segment(report, &segment);
	return 0;
}

/* What the key file says of the end. */
static void check_key_file(struct log_scan *scan, int directory)
{
	const char *problem = NULL;
	enum log_seal_verdict verdict = log_seal_check_file(&scan->seals, directory, &problem);

	if (verdict == LOG_SEAL_MISSING)
		note_gap(scan->report, "%s", problem);
	else if (verdict == LOG_SEAL_ALTERED)
		note_problem(scan->report, "%s", problem);
}

/* What the anchor says of the end. */
static void check_anchor(const struct log_anchor_check *anchor,
	const struct log_verify_means *means, struct log_verify_report *report)
{
	report->anchored = anchor->found > 0;
	report->anchored_seq = anchor->found_seq;
	if (anchor->has_next && !report->problem[0])
		note_problem(report,
			"the anchor has a seal of number %" PRIu64
			" that the log has not: it was altered, cut off or replaced before that",
			anchor->seq);
	else if (!anchor->found)
		note_gap(report, "the anchor has nothing of this log");
	else if (anchor->has_beyond &&
		 (!means->known_seq || anchor->beyond_seq <= means->known_seq))
		note_gap(report, "the anchor has nothing after number %" PRIu64, anchor->found_seq);
}

static int verify_ring(int directory, const char *ring, struct log_anchor_check *anchor,
	const struct log_verify_means *means, struct log_verify_report *report)
{
	cleanup_free struct log_segment_name *names = NULL;
	struct log_scan scan = {.report = report, .anchor = means->anchor ? anchor : NULL};
	int r, count;

	log_seal_check_init(&scan.seals, means->key, ring);
	r = count = log_segment_names(directory, ring, &names);
	for (int i = 0; r >= 0 && i < count && !report->problem[0]; i++)
		r = verify_segment(directory, names[i].name, &scan);
	check_oldest(report);
	if (r >= 0 && means->key && !report->problem[0])
		check_key_file(&scan, directory);
	if (r >= 0 && means->anchor)
		check_anchor(anchor, means, report);
	report->is_keyed = scan.seals.saw_keyed;
	log_seal_erase(&scan.seals, sizeof(scan.seals));
	return r < 0 ? r : 0;
}

/* What is wrong with the changes is wrong with the log. */
static void add_changes(struct log_verify_report *report, const struct log_verify_report *changes)
{
	report->changes_first_seq = changes->first_seq;
	if (changes->segments == 0 && report->schema >= 2)
		note_problem(report, "\"" LOG_CHANGES_RING ".jsonl\" was deleted");
	if (changes->problem[0])
		note_problem(report, "%s", changes->problem);
	if (report->gap_count == 0)
		strcpy(report->gap, changes->gap);
	report->gap_count =
		report->gap_count > changes->gap_count ? report->gap_count : changes->gap_count;
	/* The daemon's last line is in both. */
	if (changes->segments && report->ended && !changes->ended)
		note_gap(report, "the end of \"" LOG_CHANGES_RING ".jsonl\" was cut off");
}

int log_verify(const char *directory, const struct log_verify_means *means,
	struct log_verify_report *ret_report)
{
	const char *const rings[] = {means->ring ? means->ring : LOG_ALL_RING, LOG_CHANGES_RING};
	const size_t count = means->ring ? 1 : array_size(rings);
	cleanup_fd int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct log_anchor_check anchors[array_size(rings)] = {0};
	struct log_verify_report reports[array_size(rings)] = {0};
	int r = fd < 0 ? -errno : 0;

	/* First, as the daemon may write more to both meanwhile. */
	for (size_t i = 0; r == 0 && i < count && means->anchor; i++)
		r = log_anchor_check_open(
			&anchors[i], means->anchor, path_name(directory), rings[i]);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = verify_ring(fd, rings[i], &anchors[i], means, &reports[i]);
	for (size_t i = 0; i < count; i++)
		log_anchor_check_close(&anchors[i]);
	*ret_report = reports[0];
	if (r == 0 && reports[0].segments > 0 && !means->ring)
		add_changes(ret_report, &reports[1]);
	return r;
}
