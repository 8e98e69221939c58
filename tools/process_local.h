/*
 * tools/process_local.h - a command on this machine, with a supervisor.
 *
 * The supervisor is a child that adopts every descendant of the command (it is their
 * subreaper).  It ends them all: once the command itself has ended, when told to, and when
 * the process that started it dies.
 */
#pragma once

#include <sys/types.h>

struct local_process {
	int output_fd; /* the command's stdout and stderr, to read; -1 once closed */
	int error_fd;
	int control_fd; /* becomes readable with the outcome */
	pid_t supervisor;
};

struct local_outcome {
	int error;  /* -errno: the program could not be run */
	int status; /* as waitpid(2) */
};

/* Starts `argv` in the directory `cwd_fd` with `environment`.  0 or -errno. */
int local_process_start(
	char *const *argv, char *const *environment, int cwd_fd, struct local_process *ret_process);

/* Asks for the end of everything: TERM, and KILL 3 s later. */
void local_process_end(struct local_process *process);

/* Waits for the outcome.  0 or -errno. */
int local_process_wait(struct local_process *process, struct local_outcome *ret_outcome);

/* Kills what is still running and frees. */
void local_process_done(struct local_process *process);
