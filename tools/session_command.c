/* Opens the root with its permission rules, for all sub-commands. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/reach.h"
#include "ops/support/visible.h"
#include "tools/base/jobs.h"
#include "tools/commands.h"
#include "tools/permission/permission.h"

static int complain(const struct buffer *problem)
{
	fputs("isthmus-tools: ", stderr);
	visible_print(stderr, problem->data, problem->size, VISIBLE_INDENT);
	fputc('\n', stderr);
	return -1;
}

/* If the workspace is unreachable, opens a session in which every call fails with that reason. */
static int open_root(const char *directory, struct tool_session *session, struct buffer *problem)
{
	int r = tool_session_open(directory, session);
	cleanup_free char *reason = r < 0 ? reach_problem_at(directory) : NULL;

	if (r == 0)
		return 0;
	if (!reason) {
		buffer_printf(problem, "cannot work in \"%s\": %s", directory, strerror(-r));
		return r;
	}
	*session = (struct tool_session){.root = {.fd = -1, .path = strdup(directory)},
		.problem = steal_ptr(&reason),
		.jobs = jobs_new()};
	return session->root.path && session->jobs ? 0 : -ENOMEM;
}

/* Loads the project's rules.  If the mount is unreachable, no call runs until they are loaded. */
static int load_project(struct tool_session *session, struct buffer *problem)
{
	cleanup_free char *reason = NULL;
	int r = permissions_load_project(session->permissions, &session->root, problem);

	if (r < 0 && session->control_socket)
		reason = reach_problem(session->control_socket, REACH_WAIT_MS);
	if (!reason)
		return r;
	problem->size = 0;
	session->lacks_project_rules = true;
	return 0;
}

static int load(struct tool_session *session, const char *policy, bool yes, struct buffer *problem)
{
	int r = permissions_new(&session->permissions);

	/* Added first: rules that deny come later, so that they count. */
	if (r == 0 && yes)
		r = permissions_add(
			session->permissions, PERMISSION_FROM_USER, "*", "*", PERMISSION_ALLOW);
	if (r == 0)
		r = permissions_load(session->permissions, &session->root, policy, problem);
	return r == 0 && !session->problem ? load_project(session, problem) : r;
}

void close_session(struct tool_session *session)
{
	tool_session_close(session);
	permissions_free(session->permissions);
}

int open_session(const char *directory, const char *policy, bool yes, struct tool_session *session)
{
	struct buffer problem cleanup_buffer = {0};
	int r = open_root(directory, session, &problem);

	if (r == 0) {
		r = load(session, policy, yes, &problem);
		if (r < 0)
			close_session(session);
	}
	if (r == 0)
		return 0;
	if (!problem.size)
		buffer_append_string(&problem, strerror(-r));
	return complain(&problem);
}
