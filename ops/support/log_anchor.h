/*
 * ops/support/log_anchor.h - a second place that gets the digest of each seal of the mount log,
 * out of reach of those who can write the log: a file, a descriptor, or syslog.
 *
 * One line for a seal: "isthmus-log-anchor 1 LOG RING NUMBER SHA-256", where LOG is the name of
 * the log's directory.
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct log_anchor;

/* `where`: "syslog", "fd:N" (a copy of which is kept), or the path of a file, which is made when
 * missing and only appended to.  -EINVAL: not a descriptor; -errno. */
int log_anchor_open(const char *where, const char *log_name, struct log_anchor **ret_anchor);

/* Delivers what could not be delivered, for at most a second.  NULL is fine. */
void log_anchor_close(struct log_anchor *anchor);

int log_anchor_fd(const struct log_anchor *anchor); /* -1: it has none, or is NULL */

/* Never waits: what a full pipe or socket does not take now is sent with the next seal, or when the
 * anchor is closed, unless a newer seal has replaced it.  0, -errno. */
int log_anchor_note(
	struct log_anchor *anchor, const char *ring, uint64_t last_seq, const uint8_t digest[32]);

/* Tries again what could not be delivered, and waits for room for at most that long.  0, -errno. */
int log_anchor_flush(struct log_anchor *anchor, int wait_ms);

/* ---- Comparing ----------------------------------------------------------------- */

/* The lines of an anchor about one ring of a log, in order, as far as it went when it was opened.
 * Other text in front of a line (of syslog) does not matter. */
struct log_anchor_check {
	FILE *file;
	off_t end;    /* bytes; later lines do not count */
	bool started; /* a seal was looked at */
	const char *log_name, *ring;
	bool has_next; /* `seq` and `digest` are what the log must have next */
	uint64_t seq;
	uint8_t digest[32];
	uint64_t found;      /* seals of the log that the anchor has */
	uint64_t found_seq;  /* the last of them */
	bool has_beyond;     /* the log has seals after that */
	uint64_t beyond_seq; /* ... the last of them */
};

int log_anchor_check_open(
	struct log_anchor_check *check, const char *path, const char *log_name, const char *ring);
void log_anchor_check_close(struct log_anchor_check *check);

/* Looks at the next seal of the log.  `older_gone`: segments before the first were rotated away. */
void log_anchor_check_seal(struct log_anchor_check *check, uint64_t last_seq,
	const uint8_t digest[32], bool older_gone);
