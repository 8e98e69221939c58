/*
 * fs/watchers/event_protocol.h - what the daemon says to an event helper: one message, one answer.
 *
 * The helper has the socket (SOCK_SEQPACKET) as its standard input.  It ends with it.
 */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum event_call {
	EVENT_PROBE,  /* sets the times of the mount's root, and waits for the event of that */
	EVENT_MODIFY, /* opens the file, sets its mtime, closes it */
	EVENT_ATTRIB, /* sets the times */
	EVENT_MKNOD,
	EVENT_MKDIR,
	EVENT_SYMLINK,
	EVENT_UNLINK,
	EVENT_RMDIR,
	EVENT_RENAME,
};

struct event_command {
	enum event_call call;
	mode_t mode; /* MKNOD: the type */
	struct timespec atime, mtime;
	char path[PATH_MAX];     /* relative to the root of the mount */
	char new_path[PATH_MAX]; /* RENAME */
};

/* 0 or -errno. */
struct event_answer {
	int result;
};

/* The helper: `arguments` are MOUNT_POINT DEVICE, the minor number of the mount's device. */
int event_program(int argc, char **argv);

/* What the daemon runs it as. */
#define EVENT_PROGRAM_COMMAND "event-helper"

/* The mount's root, if the daemon has it detached from all mount points; else closed. */
enum { EVENT_ROOT_FD = 3 };
