/*
 * backends/remote/client/end.h - how one kind of far end is reached: what its row in the table of
 * schemes has besides.  One small file for each kind.
 */
#pragma once

#include "backends/backend.h"
#include "backends/remote/client/client.h"
#include "ops/support/argv.h"

/* What a failure means, recognised by words that the stream's command prints. */
struct end_advice {
	const char *words;  /* part of its stderr, or of a socket's error; NULL ends the list */
	int error;          /* -errno */
	const char *advice; /* what to do, %s being the name there; "" if the words say it */
};

struct end {
	/* Required.  Reads the URI (`rest` of it) and the options, and fills in the settings:
	 * `root`, `transport.name`, and `target` or, unless `stream` is set, `transport.argv`.
	 * Names are checked before they get into a command line, so that none can be an option.
	 * -EINVAL with a reason; -ENOMEM. */
	int (*prepare)(const char *rest, const struct workspace_options *options,
		struct remote_settings *settings, char **ret_reason);

	/* Optional: adds the command that runs the words there with the daemon's stdin and stdout.
	 * NULL: `prepare` sets `transport.argv`. */
	void (*stream)(const struct end_target *target, char *const *words, struct argv *argv);

	/* Optional: adds the command whose output differs after a restart, and between two machines
	 * or containers of the same name.  NULL: the helper's own identity has to do. */
	void (*identity)(const struct end_target *target, struct argv *argv);

	/* Optional: adds the command that copies a file of this machine there.  NULL: an end
	 * without a shell cannot be served. */
	void (*copy)(const struct end_target *target, const char *file, const char *path,
		struct argv *argv);

	/* On this machine, where a new connection leads to the same helper and a path means the
	 * same as here (so not a container or a chroot). */
	bool is_here;

	/* "?key=value&..." at the end of the URI is the same as -o key=value,... */
	bool takes_parameters;

	/* Optional: true for a line of its stderr that says nothing to people. */
	bool (*is_noise)(const char *line);

	const struct end_advice *advice; /* NULL: none */
	const char *silent_advice;       /* likewise, for an end that says nothing; NULL: none */
};
