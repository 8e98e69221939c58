/*
 * backends/remote/client/client.h - a workspace at a far end, behind a transport.
 *
 * Requests are submitted with an id and completed by the connection's reader thread; the
 * operations wait for that, interruptibly and with a bound when the link is down.  The
 * session at the far end outlives connections: open files, locks and commands go on.
 */
#pragma once

#include "backends/remote/client/transport.h"
#include "backends/remote/wire/protocol.h"

struct end;
struct scheme;
struct workspace;

/* What a URI names at an end, for the functions of struct end (backends/remote/client/end.h). */
struct end_target {
	char **engine;   /* the command that reaches it, with its options; NULL: none is used */
	char *user;      /* NULL: the command's default */
	char *name;      /* of the container, pod, machine */
	char *container; /* of the pod; NULL: its only one */
};

static const uint32_t REMOTE_WAITS_FOREVER = UINT32_MAX;

struct remote_settings {
	const struct scheme *scheme;
	const struct end *inside;   /* of the container at that machine, `target`; NULL: none */
	struct end_target target;   /* taken over on success */
	struct transport transport; /* taken over on success */
	char *root;                 /* absolute, at the far end; taken over on success */
	char *helper_directory;     /* or NULL; taken over on success */
	char *session_path;         /* as in struct workspace_options; taken over on success */
	void (*link_changed)(void *user, bool is_back, const char *reason); /* or NULL: as in ... */
	void (*replaced)(void *user, const char *what);                     /* likewise */
	void *link_user;         /* ... struct workspace_options */
	int prepare_ms;          /* what `prepare` took of the time for the first connection */
	uint32_t timeout_ms;     /* after so long without a link calls fail with -EIO; or
				  * REMOTE_WAITS_FOREVER */
	uint32_t linger_seconds; /* how long the session waits for a reconnect */
	uint32_t channels;       /* connections at most, 1 to CHANNELS_MAX */
	enum compression compression;
	bool stops_when_replaced; /* do not reconnect when another machine or container has the name
				   */
	bool forgets_helper;      /* remove the helper's file there as soon as it runs */
};

/* Connects.  The process ignores SIGPIPE from then on.  Errors and `*ret_reason` as
 * workspace_open(). */
int remote_workspace_new(const struct remote_settings *settings, struct workspace **ret_workspace,
	char **ret_reason);

/* Frees what the settings own. */
void remote_settings_done(struct remote_settings *settings);
