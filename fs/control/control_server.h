/*
 * fs/control/control_server.h - shared by the files of the control server.
 *
 * control_server.c accepts connections and answers short requests; control_exec.c runs commands at
 * the workspace, control_stream.c forwards its network connections, control_search.c searches its
 * files.
 */
#pragma once

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "fs/control/control.h"
#include "ops/support/control.h"
#include "ops/support/worker_pool.h"

struct control_server {
	struct mount *mount;
	int listener;
	struct stat socket; /* of the socket file */
	atomic_bool stopping;

	pthread_mutex_t lock;
	struct connection *connections;           /* guarded by lock */
	struct exec_run *commands;                /* guarded by lock */
	uint32_t connection_count, command_count; /* guarded by lock */
	unsigned waiting; /* threads that wait for a connection; guarded by lock */
	struct worker_pool pool;
};

struct connection {
	struct connection *next;
	struct control_server *server;
	int fd;
	bool is_idle;  /* has sent no request yet; guarded by the server's lock */
	bool has_slot; /* in connection_count; likewise */
	struct ucred peer;
};

/* Sends CONTROL_FAILURE: `error` is -errno, the message is for people. */
void control_reply_failure(struct connection *connection, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for -EIO of a workspace that cannot be reached: its URI, `how` ("is out of reach"), and
 * the reason. */
void control_reply_no_reach(struct connection *connection, const char *how);

/* Serves an "exec" request until the command has ended. */
void control_exec(struct connection *connection, const cJSON *request);

/* Serve requests for network connections of the workspace's machine until these have ended. */
void control_connect_to(struct connection *connection, const cJSON *request);
void control_accept_from(struct connection *connection, const cJSON *request);
void control_listen_at(struct connection *connection, const cJSON *request);
void control_forward(struct connection *connection, const cJSON *request);

/* Serves a "search" request. */
void control_search(struct connection *connection, const cJSON *request);

/* Adds the path (NULL: unknown paths, which sets `truncated`) to the changed paths of every running
 * command.  As mount_note_change(). */
bool control_exec_note_change(
	struct control_server *server, const char *path, uint32_t own_age_ms, uint64_t at);
