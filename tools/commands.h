/* tools/commands.h - the sub-commands of isthmus-tools; each returns the exit status. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "tools/base/tool.h"
#include "tools/custom/custom.h"

int tool_command(int argc, char **argv);
int mcp_command(int argc, char **argv);

/* isthmus tool render: draws a custom tool's result that is in a journal.  If `options` has no
 * root, uses the root of the recorded call. */
int render_command(struct custom_options *options, const char *call_id, bool expanded);

/* Opens `directory` as the root and loads the permission rules: the user's, the project's, and
 * those in the file `policy` (may be NULL).  `yes`: allow whatever no rule denies.  0, or -1 after
 * a message on stderr. */
int open_session(const char *directory, const char *policy, bool yes, struct tool_session *session);
void close_session(struct tool_session *session);

/* tool_call.ask_user and tell_user on the terminal.  terminal_ui.c */
cJSON *terminal_ask_user(struct tool_call *call, const struct tool_question *question);
void terminal_tell_user(struct tool_call *call, const char *message);

/* Prints text.  Of its escape sequences only those for colours and styles are kept, and those only
 * on a terminal. */
void terminal_print_styled(FILE *out, const char *text);
int terminal_width(void);
