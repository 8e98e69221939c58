/* isthmus session: lists a session's results, and records its events. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/visible.h"
#include "tools/custom/custom.h"
#include "tools/custom/journal.h"
#include "tools/custom/session.h"

static const char usage[] =
	"usage: isthmus session [--conversation ID] [EVENT]\n"
	"\n"
	"Shows the results of custom tools in a session, with a \"*\" for those on the current\n"
	"branch.  With EVENT, records an event of the session; a running server (isthmus mcp)\n"
	"notifies the tools that live in the session:\n"
	"\n"
	"  start         the session begins, or is resumed\n"
	"  switch ID     all users of this session use the session ID instead, until start\n"
	"  branch CALL   the session continues after the result of that call, on a new branch\n"
	"  tree CALL     the session moves to the result of that call\n"
	"  shutdown      the session ends, and so do the tools that live in it\n"
	"\n"
	"  --conversation ID   the session; default: ISTHMUS_SESSION, or CLAUDE_CODE_SESSION_ID,\n"
	"                      which Claude Code sets for its hooks\n";

static int show(void)
{
	cleanup_free char *session = custom_session_current();
	cJSON *list = custom_journal_list(session);
	const cJSON *entry;

	cJSON_ArrayForEach(entry, list) {
		bool counts = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "on_branch"));

		fputs(counts ? "* " : "  ", stdout);
		visible_print_name(stdout, json_text(entry, "call"));
		putchar(' ');
		visible_print_name(stdout, json_text(entry, "tool"));
		puts(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "is_error")) ? " (failed)"
										       : "");
	}
	cJSON_Delete(list);
	return fflush(stdout) == 0 ? 0 : 1;
}

static int complain(const char *message, const char *name)
{
	fputs("isthmus session: ", stderr);
	fputs(message, stderr);
	if (name) {
		fputs(" \"", stderr);
		visible_print_name(stderr, name);
		fputc('"', stderr);
	}
	fputc('\n', stderr);
	return 2;
}

static bool is_session(const char *name)
{
	cleanup_free char *path = name ? custom_journal_path(name) : NULL;

	return path != NULL;
}

static int end(int r, const char *session)
{
	cleanup_free char *path = custom_journal_path(session);

	if (r == 0)
		return 0;
	complain(strerror(-r), path);
	return 1;
}

/* Records an event.  `argument` is NULL for events without one. */
static int tell(const char *name, const char *event, const char *argument)
{
	cleanup_free char *session = custom_session_current();
	int r;

	if (!session)
		return end(-ENOMEM, name);
	if (!argument && strcmp(event, "start") == 0)
		return end(custom_journal_event(name, event, NULL), name);
	if (!argument && strcmp(event, "shutdown") == 0)
		return end(custom_journal_event(session, event, NULL), session);
	if (argument && strcmp(event, "switch") == 0)
		return is_session(argument)
			       ? end(custom_journal_event(name, event, argument), name)
			       : complain("a session has a name that can be a file's, not",
					 argument);
	if (!argument || (strcmp(event, "branch") != 0 && strcmp(event, "tree") != 0)) {
		fputs(usage, stderr);
		return 2;
	}
	r = custom_journal_move(session, argument, event);
	if (r == -ENOENT)
		return complain("the session has no result of a custom tool from this call; "
				"isthmus session shows those that it has:",
			argument);
	return end(r, session);
}

int custom_session_command(int argc, char **argv)
{
	const char *given = NULL, *words[2] = {NULL, NULL}, *session;
	size_t count = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			return 0;
		}
		if (strcmp(argv[i], "--conversation") == 0 && i + 1 < argc)
			given = argv[++i];
		else if (argv[i][0] != '-' && count < array_size(words))
			words[count++] = argv[i];
		else
			return complain("what is this:", argv[i]);
	}
	session = custom_session_name(given);
	if (!session)
		return complain("which session? Give --conversation ID, with which isthmus mcp or "
				"isthmus tool was started",
			NULL);
	if (!is_session(session))
		return complain("a session has a name that can be a file's, not", session);
	custom_session_begin(session);
	return words[0] ? tell(session, words[0], words[1]) : show();
}
