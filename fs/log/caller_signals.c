#include "fs/log/caller_signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log/proc.h"

#define SIGNAL(number) ((uint64_t)1 << ((number)-1))

enum { STATUS_MAX_BYTES = 8192 };

static const uint64_t asks_to_end =
	SIGNAL(SIGINT) | SIGNAL(SIGTERM) | SIGNAL(SIGHUP) | SIGNAL(SIGQUIT);

/* Signals whose default action does not end a process. */
static const uint64_t harmless = SIGNAL(SIGCHLD) | SIGNAL(SIGURG) | SIGNAL(SIGWINCH) |
				 SIGNAL(SIGCONT) | SIGNAL(SIGSTOP) | SIGNAL(SIGTSTP) |
				 SIGNAL(SIGTTIN) | SIGNAL(SIGTTOU);

static bool read_set(const char *text, const char *key, uint64_t *ret_set)
{
	const char *line = strstr(text, key);

	if (line)
		*ret_set = strtoull(line + strlen(key), NULL, 16);
	return line;
}

enum caller_wish caller_wish(pid_t tid)
{
	uint64_t own, shared, blocked, ignored, handled, came;
	char text[STATUS_MAX_BYTES];

	/* Reading "status" needs no lock that a caller in execve(2) holds. */
	if (proc_read(tid, "status", text, sizeof(text)) <= 0 ||
		!read_set(text, "\nSigPnd:", &own) || !read_set(text, "\nShdPnd:", &shared) ||
		!read_set(text, "\nSigBlk:", &blocked) || !read_set(text, "\nSigIgn:", &ignored) ||
		!read_set(text, "\nSigCgt:", &handled))
		return CALLER_UNKNOWN;
	came = (own | shared) & ~blocked & ~ignored;
	if (came & ~handled & ~harmless)
		return CALLER_ENDS;
	return came & handled & asks_to_end ? CALLER_ASKED_TO_END : CALLER_WAITS;
}
