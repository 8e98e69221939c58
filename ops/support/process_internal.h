/*
 * ops/support/process_internal.h - what the parts of the exec engine share.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Everything that the supervisor needs, made before the fork: after it only
 * async-signal-safe calls are allowed. */
struct launch {
	char **argv;
	char **programs; /* files to try, in this order */
	char **environment;
	int cwd_fd;
	int stdio[3];  /* the command's ends */
	int status_fd; /* takes the errno (an int) of a command that could not be started */
	int control_fd;
	bool terminal; /* stdio[1] becomes its controlling terminal */
	bool kill_leftovers;
	uint32_t timeout_ms;
	int umask; /* -1: the one that this program was started with */
};

/* From the supervisor, once: the command has ended. */
struct end_report {
	int32_t wait_status;
	int32_t timed_out;
};

/* To the supervisor: a signal number for the whole tree.  End of file: kill it. */
typedef uint8_t supervisor_order;

/* Life of the supervisor. */
_Noreturn void process_supervise(const struct launch *launch);

/* Sends `signal` to all descendants of this process; returns how many there are.  Where there is no
 * /proc to find them, to the process group of its child `command`.
 * Async-signal-safe, single-threaded. */
size_t process_signal_descendants(int signal, pid_t command);

/* The environment of a command, NULL-terminated; one block that the caller frees.  `login`: that of
 * a login shell instead of the one that process_inherit() is about; NULL: none. */
int process_environment(const char *const *wanted, char *const *login, char ***ret_environment);

/* The environment of the account's login shell, which is read once, by a command in the directory
 * open as `cwd_fd`.  It stays valid.  -EBADMSG: the shell gives none.  Threads: any. */
int process_login_environment(int cwd_fd, char *const **ret_environment);

/* The value of `name` in an environment, or NULL. */
const char *process_environment_get(char *const *environment, const char *name);
