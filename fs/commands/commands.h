/*
 * fs/commands/commands.h - the sub-commands of the program isthmus.
 *
 * Each gets its own name as argv[0] and returns the exit status: 0; 1 after an error message on
 * stderr; 2 for a wrong command line.  exec and log --verify have further ones (isthmus(1)).
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

/* `--complete BEGIN`, for fs/isthmus.bash: prints the URIs with that beginning, one per line. */
int complete_command(int argc, char **argv);

enum { EXIT_USAGE = 2 };

/* Prints "isthmus COMMAND: ..." and a hint at --help on stderr; returns EXIT_USAGE. */
int command_usage_error(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints "isthmus COMMAND: ..." on stderr, with invisible characters as escapes and further lines
 * indented; returns 1. */
int command_error(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same for a note that is no error. */
void command_note(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints JSON that may contain untrusted text; returns the exit status. */
int command_print_json(const char *command, const struct cJSON *json);

/* Sets a timeout for the next command_find_mount(), for commands that must not wait for an
 * unreachable far end or a hanging daemon. */
void command_limit_wait(const char *command, const char *path);

/* control_find() for a command: on failure prints the reason and what to do, and returns -errno. */
int command_find_mount(const char *command, const char *path, char **ret_socket,
	char **ret_mount_point, char **ret_workspace_path);

/* Whether the word is a URI, or HOST:DIR, and not a path: its first component has a colon. */
bool command_is_uri(const char *text);

/* The path of a program of isthmus: beside this one, in libexec, or in the build tree.  The caller
 * frees it.  NULL: not found. */
char *command_find_program(const char *name);
