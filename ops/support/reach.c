#include "ops/support/reach.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/json.h"
#include "ops/support/path.h"

static char *daemon_problem(int error)
{
	return string_printf(
		"The daemon of the mount %s.", error == -ETIMEDOUT ? "does not answer" : "is gone");
}

static char *link_problem(const cJSON *status)
{
	const cJSON *workspace = cJSON_GetObjectItemCaseSensitive(status, "workspace");
	const char *link = json_text(workspace, "link"), *uri = json_text(status, "uri");
	const char *error = json_text(workspace, "last_error");

	if (!link || strcmp(link, "online") == 0)
		return NULL;
	return string_printf("The link to \"%s\" is %s%s%s.", uri ? uri : "", link,
		error && *error ? ": " : "", error ? error : "");
}

char *reach_problem(const char *control_socket, unsigned wait_ms)
{
	cleanup_free char *reply = NULL;
	char request[64], *problem;
	cJSON *status;
	int r;

	snprintf(request, sizeof(request), "{\"request\":\"status\",\"wait_ms\":%u}", wait_ms);
	r = control_call(control_socket, request, &reply);
	if (r < 0)
		return daemon_problem(r);
	status = cJSON_Parse(reply);
	problem = link_problem(status);
	cJSON_Delete(status);
	return problem;
}

char *reach_problem_at(const char *path)
{
	cleanup_free char *cwd = getcwd(NULL, 0), *socket = NULL;
	cleanup_free char *above = *path == '/' ? strdup(path) : cwd ? path_join(cwd, path) : NULL;
	int r = 0;

	/* An unreachable path cannot tell its mount; ask the directories above it. */
	while (above && (r = control_find(above, &socket, NULL, NULL)) < 0 && r != -ENOTCONN &&
		r != -ENODATA && above[1]) {
		size_t length = path_parent_length(above);

		above[length ? length : 1] = '\0';
	}
	if (above && r == -ENOTCONN)
		return daemon_problem(r);
	return socket ? reach_problem(socket, REACH_WAIT_MS) : NULL;
}
