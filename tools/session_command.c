/* What the sub-commands share: opening the root with its permissions. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/visible.h"
#include "tools/commands.h"
#include "tools/permission/permission.h"

static int complain(const struct buffer *problem)
{
	fputs("isthmus-tools: ", stderr);
	visible_print(stderr, problem->data, problem->size, VISIBLE_INDENT);
	fputc('\n', stderr);
	return -1;
}

int open_session(const char *directory, const char *policy, bool yes, struct tool_session *session)
{
	struct buffer problem cleanup_buffer = {0};
	int r = tool_session_open(directory, session);

	if (r < 0) {
		buffer_printf(&problem, "cannot work in \"%s\": %s", directory,
			r == -ENOTCONN ? "it is a mount whose daemon is gone; see isthmus list"
				       : strerror(-r));
		return complain(&problem);
	}
	r = permissions_new(&session->permissions);
	/* First, so that every rule that denies comes later and wins. */
	if (r == 0 && yes)
		r = permissions_add(
			session->permissions, PERMISSION_FROM_USER, "*", "*", PERMISSION_ALLOW);
	if (r == 0)
		r = permissions_load(session->permissions, &session->root, policy, &problem);
	if (r == 0)
		return 0;
	if (!problem.size)
		buffer_append_string(&problem, strerror(-r));
	tool_session_close(session);
	return complain(&problem);
}
