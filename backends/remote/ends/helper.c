/* helper:/dir - this machine, through the program that serves others. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/bootstrap.h"
#include "backends/remote/client/end.h"
#include "ops/support/cleanup.h"

static int prepare(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	cleanup_free char *path = NULL;
	cleanup_argv struct argv argv = {0};
	int r;

	(void)options;
	if (*rest != '/') {
		if (asprintf(ret_reason,
			    "\"helper:%s\" needs an absolute directory, as in helper:/srv/app",
			    rest) < 0)
			*ret_reason = NULL;
		return -EINVAL;
	}
	r = bootstrap_find_helper(settings->helper_directory, NULL, &path);
	if (r < 0) {
		*ret_reason = bootstrap_no_helper(settings->helper_directory);
		return r;
	}
	argv_add(&argv, path);
	settings->root = strdup(rest);
	settings->transport.name = strdup("this machine");
	if (!settings->root || !settings->transport.name)
		return -ENOMEM;
	return argv_steal(&argv, &settings->transport.argv);
}

static const struct end helper_end = {.prepare = prepare, .is_here = true};

const struct scheme helper_scheme = {
	.about = {.name = "helper",
		.form = "helper:/dir",
		.summary = "a directory of this machine, through isthmus-helper (for tests)",
		.shared_options = remote_options},
	.open = remote_open,
	.end = &helper_end,
};
