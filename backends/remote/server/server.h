/*
 * backends/remote/server/server.h - the far end: a workspace served over a lane.
 *
 * Requests run on a bounded pool of threads; those that may take long (waiting locks,
 * scans, processes) on threads of their own.  What a client can grow is bounded: jobs,
 * their bytes, handles, processes, output not yet sent.
 * Threads: any, except server_free(), which is the last call.
 */
#pragma once

#include "backends/remote/wire/lane.h"

struct server;
struct workspace;

struct server_callbacks {
	/* The connection of the channel is gone; from any thread. */
	void (*lost)(void *user, unsigned channel);
	void (*goodbye)(void *user); /* the client is done for good */
};

/* Takes ownership of the workspace on success. */
int server_new(struct workspace *w, const struct server_callbacks *callbacks, void *user,
	struct server **ret_server);

/* Detaches, cancels and waits for everything, and frees the workspace.  NULL is fine. */
void server_free(struct server *server);

/* To attach connections to.  `channel`: below CHANNELS_MAX; what is neither READ nor DATA ends the
 * connection of all but the first. */
struct lane *server_lane(struct server *server, unsigned channel);

/* A connection of the channel is gone: so is the content that came by it, and that no request has
 * named yet. */
void server_forget_content(struct server *server, unsigned channel);

/* Tells the client about lost change events, once there is room again. */
void server_tick(struct server *server);
