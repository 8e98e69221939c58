/*
 * tools/shell/shell_begin.h - the commands in front of a line that only say how the others run:
 * "cd DIR &&" and "export A=b".
 * Threads: any.
 */
#pragma once

#include "tools/shell/shell_parse.h"

/* Whether the and-or list that the command is in ends in "&". */
bool shell_is_in_background(const struct shell_command *command);

/* DIR, if the command is "cd DIR &&" with a plain path; else NULL.  Borrowed from the command. */
const char *shell_begin_cd(const struct shell_command *command);

/* If the command is "export A=b" with plain values, appends those assignments that can change what
 * a command does, with a blank behind each.  0; -ENOENT: it is no such command; -ENOMEM. */
int shell_begin_export(const struct shell_command *command, struct buffer *settings);
