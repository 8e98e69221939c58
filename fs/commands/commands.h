/*
 * fs/commands/commands.h - the sub-commands of the program isthmus.
 *
 * Each takes its own name as argv[0] and returns the exit code: 0; 1 when it failed, having
 * said why on stderr; 2 for a wrong command line; exec and log --verify have their own
 * (isthmus(1)).
 */
#pragma once

#include <stdbool.h>

struct cJSON;

int mount_command(int argc, char **argv);
int umount_command(int argc, char **argv);
int list_command(int argc, char **argv);
int status_command(int argc, char **argv);
int log_command(int argc, char **argv);
int exec_command(int argc, char **argv);
int forward_command(int argc, char **argv);
int run_command(int argc, char **argv);
int doctor_command(int argc, char **argv);
int sync_command(int argc, char **argv);
int lost_command(int argc, char **argv);
int version_command(int argc, char **argv);

/* `--complete BEGIN`, for fs/isthmus.bash: prints the URIs that may begin so, a line each. */
int complete_command(int argc, char **argv);

enum { EXIT_USAGE = 2 };

/* "isthmus COMMAND: ..." on stderr, then a hint at --help; returns EXIT_USAGE. */
int command_usage_error(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* "isthmus COMMAND: ..." on stderr, with what cannot be seen as its bytes and further lines
 * indented; returns 1. */
int command_error(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same for what is no failure. */
void command_note(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints JSON that may have text of unknown origin; returns the exit code. */
int command_print_json(const char *command, const struct cJSON *json);

/* For a command that had rather fail than wait for a far end or a daemon that hangs: bounds the
 * next command_find_mount(). */
void command_limit_wait(const char *command, const char *path);

/* control_find() for a command: on failure says why and what to do, and returns -errno. */
int command_find_mount(const char *command, const char *path, char **ret_socket,
	char **ret_mount_point, char **ret_workspace_path);

/* True for a word that begins with a scheme: letters, digits, '+', '-', '.', then ':'. */
bool command_is_uri(const char *text);

/* Path of a program of ours: beside this one, in libexec, or in the build tree; the caller
 * frees it.  NULL: not there. */
char *command_find_program(const char *name);
