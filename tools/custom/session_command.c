/* isthmus tool session: what a session has, and moving within it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/log.h"
#include "ops/support/visible.h"
#include "tools/custom/journal.h"

void custom_session_at(const char *session, const char *parent)
{
	cleanup_free char *place = custom_journal_place(session);
	int r;

	if (place && strcmp(place, parent) == 0)
		return;
	r = custom_journal_move(session, parent, "tree");
	/* Clients name results of any tool; those of custom tools count. */
	if (r < 0 && r != -ENOENT)
		log_warning("cannot go back to the call \"%s\": %s, going on from the last one",
			parent, strerror(-r));
}

static int show(const char *session)
{
	cJSON *list = custom_journal_list(session);
	const cJSON *entry;

	cJSON_ArrayForEach(entry, list)
	{
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

static int complain(const char *words, const char *name)
{
	fputs("isthmus tool: ", stderr);
	fputs(words, stderr);
	if (name) {
		fputc(' ', stderr);
		visible_print_name(stderr, name);
	}
	fputc('\n', stderr);
	return 2;
}

int custom_session_command(const char *session, int argc, char **argv)
{
	bool branches = argc == 2 && strcmp(argv[0], "branch") == 0;
	cleanup_free char *path = custom_journal_path(session);
	int r;

	if (!path)
		return complain("a session has a name that can be a file's: give "
				"--conversation ID",
			NULL);
	if (argc == 0)
		return show(session);
	if (!branches && !(argc == 2 && strcmp(argv[0], "tree") == 0))
		return complain("usage: isthmus tool session --conversation ID [branch CALL | "
				"tree CALL]",
			NULL);
	r = custom_journal_move(session, argv[1], argv[0]);
	if (r == -ENOENT)
		return complain("the session has no result of a custom tool from the call; "
				"isthmus tool session shows them:",
			argv[1]);
	return r < 0 ? complain(strerror(-r), path) : 0;
}
