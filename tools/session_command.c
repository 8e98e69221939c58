/* What the sub-commands share: opening the root with its permissions. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/permission.h"

int open_session(const char *directory, const char *policy, bool yes, struct tool_session *session)
{
	struct buffer problem cleanup_buffer = {0};
	int r = tool_session_open(directory, session);

	if (r < 0) {
		fprintf(stderr, "isthmus-tools: cannot work in \"%s\": %s\n", directory,
			r == -ENOTCONN ? "it is a mount whose daemon is gone; see isthmus list"
				       : strerror(-r));
		return -1;
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
	fprintf(stderr, "isthmus-tools: %.*s\n",
		problem.size ? (int)problem.size : (int)strlen(strerror(-r)),
		problem.size ? (const char *)problem.data : strerror(-r));
	tool_session_close(session);
	return -1;
}
