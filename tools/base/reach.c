#include "tools/base/reach.h"

#include <cjson/cJSON.h>
#include <errno.h>
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

char *reach_problem(const char *control_socket)
{
	cleanup_free char *reply = NULL;
	int r = control_call(control_socket, "{\"request\":\"status\"}", &reply);
	cJSON *status = r < 0 ? NULL : cJSON_Parse(reply);
	const cJSON *workspace = cJSON_GetObjectItemCaseSensitive(status, "workspace");
	const char *link = json_text(workspace, "link"), *uri = json_text(status, "uri");
	const char *error = json_text(workspace, "last_error");
	char *words = NULL;

	if (r < 0)
		return daemon_problem(r);
	if (link && strcmp(link, "online") != 0)
		words = string_printf("The link to \"%s\" is %s%s%s.", uri ? uri : "", link,
			error && *error ? ": " : "", error ? error : "");
	cJSON_Delete(status);
	return words;
}

char *reach_problem_at(const char *path)
{
	cleanup_free char *cwd = getcwd(NULL, 0), *socket = NULL;
	cleanup_free char *above = *path == '/' ? strdup(path) : cwd ? path_join(cwd, path) : NULL;
	int r = 0;

	/* What cannot be reached cannot say which mount it is on: a directory above it does. */
	while (above && (r = control_find(above, &socket, NULL, NULL)) < 0 && r != -ENOTCONN &&
		r != -ENODATA && above[1]) {
		size_t length = path_parent_length(above);

		above[length ? length : 1] = '\0';
	}
	if (above && r == -ENOTCONN)
		return daemon_problem(r);
	return socket ? reach_problem(socket) : NULL;
}
