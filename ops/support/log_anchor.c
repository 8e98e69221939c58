#include "ops/support/log_anchor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "ops/support/hex.h"

#define LINE_START "isthmus-log-anchor 1 "

enum {
	LINE_BYTES = 512, /* PIPE_BUF is more: a pipe takes a line whole or not at all */
	NAME_MAX_BYTES = 255,
	CLOSE_WAIT_MS = 1000,
	RINGS_MAX = 2,
};

struct log_anchor {
	char *log_name;
	int fd; /* -1: syslog */
	bool is_socket, is_file;
	struct {
		const char *ring;
		char line[LINE_BYTES]; /* the newest that was not taken; "": none */
	} pending[RINGS_MAX];
};

/* ---- Opening -------------------------------------------------------------------- */

static int open_target(const char *where, int *ret_fd)
{
	int number, end = 0;

	*ret_fd = -1;
	if (strcmp(where, "syslog") == 0)
		return 0;
	if (strncmp(where, "fd:", 3) != 0) {
		*ret_fd = open(where,
			O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
		return *ret_fd < 0 ? -errno : 0;
	}
	if (sscanf(where, "fd:%d%n", &number, &end) != 1 || where[end] || number < 0)
		return -EINVAL;
	*ret_fd = fcntl(number, F_DUPFD_CLOEXEC, 3);
	return *ret_fd < 0 ? -errno : 0;
}

int log_anchor_open(const char *where, const char *log_name, struct log_anchor **ret_anchor)
{
	struct log_anchor *anchor = calloc(1, sizeof(*anchor));
	struct stat attributes;
	int r;

	if (!anchor)
		return -ENOMEM;
	anchor->log_name = strndup(log_name, NAME_MAX_BYTES);
	r = open_target(where, &anchor->fd);
	if (r == 0 && !anchor->log_name)
		r = -ENOMEM;
	if (r == 0 && anchor->fd >= 0 && fstat(anchor->fd, &attributes) < 0)
		r = -errno;
	if (r < 0) {
		log_anchor_close(anchor);
		return r;
	}
	anchor->is_socket = anchor->fd >= 0 && S_ISSOCK(attributes.st_mode);
	anchor->is_file = anchor->fd >= 0 && S_ISREG(attributes.st_mode);
	*ret_anchor = anchor;
	return 0;
}

int log_anchor_fd(const struct log_anchor *anchor)
{
	return anchor ? anchor->fd : -1;
}

/* ---- Delivering ------------------------------------------------------------------- */

/* All of the line, or -EAGAIN, or -errno. */
static int deliver(struct log_anchor *anchor, const char *line, int wait_ms)
{
	struct pollfd room = {.fd = anchor->fd, .events = POLLOUT};
	size_t length = strlen(line);
	struct stat attributes;
	ssize_t done;

	if (anchor->fd < 0) {
		syslog(LOG_AUTHPRIV | LOG_NOTICE, "%.*s", (int)length - 1, line);
		return 0;
	}
	if (anchor->is_file && fstat(anchor->fd, &attributes) == 0 && attributes.st_nlink == 0)
		return -ESTALE;
	if (!anchor->is_file && poll(&room, 1, wait_ms) <= 0)
		return -EAGAIN;
	done = anchor->is_socket ? send(anchor->fd, line, length, MSG_NOSIGNAL | MSG_DONTWAIT)
				 : write(anchor->fd, line, length);
	if (done < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	return (size_t)done == length ? 0 : -EIO;
}

int log_anchor_flush(struct log_anchor *anchor, int wait_ms)
{
	for (unsigned i = 0; i < RINGS_MAX; i++) {
		char *line = anchor->pending[i].line;
		int r = *line ? deliver(anchor, line, wait_ms) : 0;

		if (r == 0)
			*line = '\0';
		else if (r != -EAGAIN)
			return r;
	}
	return 0;
}

int log_anchor_note(
	struct log_anchor *anchor, const char *ring, uint64_t last_seq, const uint8_t digest[32])
{
	char hex[65], *line;
	unsigned slot = 0;

	while (anchor->pending[slot].ring && strcmp(anchor->pending[slot].ring, ring) != 0 &&
		slot < RINGS_MAX - 1)
		slot++;
	anchor->pending[slot].ring = ring;
	line = anchor->pending[slot].line;

	hex_write(digest, 32, hex);
	snprintf(line, LINE_BYTES, LINE_START "%s %s %" PRIu64 " %s\n", anchor->log_name, ring,
		last_seq, hex);
	return log_anchor_flush(anchor, 0);
}

void log_anchor_close(struct log_anchor *anchor)
{
	if (!anchor)
		return;
	log_anchor_flush(anchor, CLOSE_WAIT_MS / RINGS_MAX);
	if (anchor->fd >= 0)
		close(anchor->fd);
	free(anchor->log_name);
	free(anchor);
}

/* ---- Comparing ---------------------------------------------------------------------- */

/* True for a line about this ring of this log. */
static bool parse_line(struct log_anchor_check *check, const char *line)
{
	char name[NAME_MAX_BYTES + 1], ring[32], hex[65];
	const char *start = strstr(line, LINE_START);

	return start &&
	       sscanf(start, LINE_START "%255s %31s %" SCNu64 " %64[0-9a-f]", name, ring,
		       &check->seq, hex) == 4 &&
	       strcmp(name, check->log_name) == 0 && strcmp(ring, check->ring) == 0 &&
	       hex_read(hex, check->digest, sizeof(check->digest));
}

static void advance(struct log_anchor_check *check)
{
	char line[4096];

	check->has_next = false;
	while (!check->has_next && fgets(line, sizeof(line), check->file) &&
		ftello(check->file) <= check->end)
		check->has_next = parse_line(check, line);
}

int log_anchor_check_open(
	struct log_anchor_check *check, const char *path, const char *log_name, const char *ring)
{
	struct stat attributes;

	*check = (struct log_anchor_check){.log_name = log_name, .ring = ring};
	check->file = fopen(path, "re");
	if (!check->file)
		return -errno;
	if (fstat(fileno(check->file), &attributes) < 0)
		return -errno;
	check->end = attributes.st_size;
	advance(check);
	return 0;
}

void log_anchor_check_close(struct log_anchor_check *check)
{
	if (check->file)
		fclose(check->file);
	check->file = NULL;
}

static bool is_next(
	const struct log_anchor_check *check, uint64_t last_seq, const uint8_t digest[32])
{
	return check->has_next && check->seq == last_seq &&
	       memcmp(check->digest, digest, sizeof(check->digest)) == 0;
}

void log_anchor_check_seal(struct log_anchor_check *check, uint64_t last_seq,
	const uint8_t digest[32], bool older_gone)
{
	while (older_gone && !check->started && check->has_next && check->seq <= last_seq &&
		!is_next(check, last_seq, digest))
		advance(check);
	check->started = true;
	if (!is_next(check, last_seq, digest)) {
		check->beyond_seq = last_seq;
		check->has_beyond = true;
		return;
	}
	check->found++;
	check->found_seq = last_seq;
	check->has_beyond = false;
	advance(check);
}
