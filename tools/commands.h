/* tools/commands.h - the sub-commands of isthmus-tools; each returns the exit code. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "tools/base/tool.h"
#include "tools/custom/custom.h"

int tool_command(int argc, char **argv);
int mcp_command(int argc, char **argv);

/* isthmus tool render: draws the result of a call of a custom tool that a journal has.  Without a
 * root in `options` it is that of the call. */
int render_command(struct custom_options *options, const char *call_id, bool expanded);

/* Opens `directory` as the root, with its permissions: `policy` (may be NULL) beside the
 * user's and the project's files; `yes` allows what no rule denies.  0, or -1 after a message
 * on stderr. */
int open_session(const char *directory, const char *policy, bool yes, struct tool_session *session);
void close_session(struct tool_session *session);

/* For tool_call: a custom tool's questions and notes, on the terminal.  terminal_ui.c */
cJSON *terminal_ask_user(struct tool_call *call, const struct tool_question *question);
void terminal_tell_user(struct tool_call *call, const char *words);

/* Prints text with the escapes for colors and styles that it has, on a terminal, and no others. */
void terminal_print_styled(FILE *out, const char *text);
int terminal_width(void);
