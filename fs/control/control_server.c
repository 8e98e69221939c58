#include "fs/control/control_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/edge/edge.h"
#include "fs/log/callers.h"
#include "ops/support/cleanup.h"
#include "ops/support/json.h"
#include "ops/workspace.h"

enum {
	CONNECTIONS_MAX = 256,
	WAITING_MAX = 2, /* threads that wait for a connection */
	REQUEST_TIMEOUT_S = 10,
	CHECK_WAIT_MS = 3000, /* most that a status request waits for the workspace */
	THREAD_STACK_BYTES = 256 << 10,
};

/* Guards mount.control: the workspace reports changes until it is freed, after the server. */
static pthread_rwlock_t control_lock = PTHREAD_RWLOCK_INITIALIZER;

/* ---- Replies ------------------------------------------------------------------ */

void control_reply_failure(struct connection *connection, int error, const char *format, ...)
{
	cJSON *failure = cJSON_CreateObject();
	const char *name = strerrorname_np(-error);
	cleanup_buffer struct buffer message = {0};
	cleanup_free char *sentence = NULL, *text = NULL;
	va_list arguments;

	va_start(arguments, format);
	buffer_vprintf(&message, format, arguments);
	va_end(arguments);
	sentence = buffer_steal_string(&message);
	cJSON_AddStringToObject(failure, "error", name ? name : "EIO");
	cJSON_AddStringToObject(failure, "message", sentence ? sentence : "");
	text = cJSON_PrintUnformatted(failure);
	cJSON_Delete(failure);
	/* If sending fails, the client is gone. */
	if (text)
		control_send(connection->fd, CONTROL_FAILURE, text, strlen(text));
}

void control_reply_no_reach(struct connection *connection, const char *how)
{
	const struct mount *m = connection->server->mount;
	struct workspace_status status;

	workspace_status(m->workspace, &status);
	control_reply_failure(connection, -EIO, "\"%s\" %s: %s", m->options->uri, how,
		*status.last_error ? status.last_error : "it does not answer");
}

/* Sends the text and frees it; NULL: no memory, sends an error. */
static void reply_text(struct connection *connection, char *text)
{
	if (text)
		control_send(connection->fd, CONTROL_JSON, text, strlen(text));
	else
		control_reply_failure(connection, -ENOMEM, "out of memory");
	free(text);
}

static void reply_object(struct connection *connection, cJSON *object)
{
	reply_text(connection, cJSON_PrintUnformatted(object));
	cJSON_Delete(object);
}

/* Replies with the sequence number of a log record. */
static void reply_number(struct connection *connection, const char *name, uint64_t number)
{
	cJSON *reply = cJSON_CreateObject();

	cJSON_AddNumberToObject(reply, name, (double)number);
	reply_object(connection, reply);
}

/* ---- Requests ----------------------------------------------------------------- */

static void refuse_call(struct connection *connection, const char *id, int error)
{
	control_reply_failure(connection, error, "call \"%s\": %s", id,
		error == -ENOENT  ? "it is not registered"
		: error == -EPERM ? "it is a call of another process tree"
				  : strerror(-error));
}

static void serve_call_begin(struct connection *connection, const cJSON *request)
{
	const cJSON *pid = cJSON_GetObjectItemCaseSensitive(request, "pid");
	const struct call_identity identity = {
		.id = json_text(request, "call_id"),
		.tool = json_text(request, "tool"),
		.agent = json_text(request, "agent"),
		.user = json_text(request, "user"),
		.conversation = json_text(request, "conversation"),
		.pid = cJSON_IsNumber(pid) ? pid->valueint : connection->peer.pid,
		.owner = connection->peer.pid,
	};
	struct mount_log *log = connection->server->mount->log;
	uint64_t first_seq = mount_log_last_seq(log) + 1;
	int r;

	if (!identity.id) {
		control_reply_failure(connection, -EINVAL, "call_begin needs a call_id");
		return;
	}
	r = callers_call_begin(mount_log_callers(log), &identity);
	if (r == -EPERM)
		control_reply_failure(connection, r,
			"call \"%s\": %d is not your process, nor one that you have started",
			identity.id, identity.pid);
	else if (r < 0)
		refuse_call(connection, identity.id, r);
	else
		reply_number(connection, "first_seq", first_seq);
}

static void serve_call_join(struct connection *connection, const cJSON *request)
{
	struct callers *callers = mount_log_callers(connection->server->mount->log);
	const cJSON *pid = cJSON_GetObjectItemCaseSensitive(request, "pid");
	const char *call_id = json_text(request, "call_id");
	int r;

	if (!call_id || !cJSON_IsNumber(pid)) {
		control_reply_failure(connection, -EINVAL, "call_join needs a call_id and a pid");
		return;
	}
	r = callers_call_join(callers, call_id, pid->valueint, connection->peer.pid);
	if (r < 0)
		refuse_call(connection, call_id, r);
	else
		reply_object(connection, cJSON_CreateObject());
}

static void serve_call_end(struct connection *connection, const cJSON *request)
{
	struct callers *callers = mount_log_callers(connection->server->mount->log);
	const char *call_id = json_text(request, "call_id");
	struct tool_call *call;
	int r;

	if (!call_id) {
		control_reply_failure(connection, -EINVAL, "call_end needs a call_id");
		return;
	}
	r = callers_call_end(callers, call_id, connection->peer.pid, &call);
	if (r < 0) {
		refuse_call(connection, call_id, r);
		return;
	}
	reply_number(connection, "last_seq", atomic_load(&call->last_seq));
	tool_call_unref(call);
}

static void serve_log_flush(struct connection *connection, const cJSON *request)
{
	struct mount_log *log = connection->server->mount->log;
	uint64_t last_seq =
		mount_log_last_seq(log); /* before the flush: later records may not be written */
	cJSON *reply = cJSON_CreateObject();
	struct mount_log_stats stats;

	(void)request;
	mount_log_flush(log);
	mount_log_stats(log, &stats);
	cJSON_AddNumberToObject(reply, "last_seq", (double)last_seq);
	cJSON_AddNumberToObject(reply, "lost", (double)stats.lost);
	cJSON_AddStringToObject(reply, "path", mount_log_path(log));
	reply_object(connection, reply);
}

static void serve_status(struct connection *connection, const cJSON *request)
{
	const cJSON *wait_ms = cJSON_GetObjectItemCaseSensitive(request, "wait_ms");
	struct mount *m = connection->server->mount;
	int check = mount_check(m, cJSON_IsNumber(wait_ms) ? wait_ms->valueint : CHECK_WAIT_MS);

	reply_text(connection, mount_status_json(m, check));
}

static char *stop(struct mount *m)
{
	mount_stop(m);
	return strdup("{}");
}

static const struct {
	const char *name;
	char *(*text)(struct mount *m); /* the whole reply; NULL: `serve` */
	void (*serve)(struct connection *connection, const cJSON *request);
	bool needs_log;
} requests[] = {
	{"status", .serve = serve_status},
	{"stats", .text = mount_stats_json},
	{"unmount", .text = stop},
	{"call_begin", .serve = serve_call_begin, .needs_log = true},
	{"call_join", .serve = serve_call_join, .needs_log = true},
	{"call_end", .serve = serve_call_end, .needs_log = true},
	{"log_flush", .serve = serve_log_flush, .needs_log = true},
	{"exec", .serve = control_exec},
	{"connect", .serve = control_connect_to},
	{"accept", .serve = control_accept_from},
	{"listen", .serve = control_listen_at},
	{"forward", .serve = control_forward},
	{"search", .serve = control_search},
};

static void serve(struct connection *connection, const cJSON *request)
{
	const char *name = json_text(request, "request");
	struct mount *m = connection->server->mount;
	size_t i = 0;

	while (i < array_size(requests) && strcmp(requests[i].name, name ? name : "") != 0)
		i++;
	if (i == array_size(requests))
		control_reply_failure(
			connection, -EINVAL, "there is no request \"%s\"", name ? name : "");
	else if (requests[i].needs_log && !m->log)
		control_reply_failure(connection, -ENOTCONN, "this mount keeps no log");
	else if (requests[i].text)
		reply_text(connection, requests[i].text(m));
	else
		requests[i].serve(connection, request);
}

/* ---- Connections --------------------------------------------------------------- */

static bool is_allowed(struct connection *connection)
{
	socklen_t size = sizeof(connection->peer);

	if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &connection->peer, &size) < 0)
		return false;
	return connection->peer.uid == geteuid() || connection->peer.uid == 0;
}

/* Under the lock. */
static void release_slot(struct connection *connection)
{
	connection->server->connection_count -= connection->has_slot;
	connection->has_slot = false;
}

static void converse(struct connection *connection)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;
	cJSON *request;
	bool made_room;
	int r;

	control_set_timeout(connection->fd, SO_RCVTIMEO, REQUEST_TIMEOUT_S);
	r = control_receive(connection->fd, &type, &payload);
	pthread_mutex_lock(&connection->server->lock);
	made_room = !connection->is_idle;
	connection->is_idle = false;
	if (r == -ECONNRESET)
		release_slot(connection);
	pthread_mutex_unlock(&connection->server->lock);
	if (r == -ECONNRESET || made_room)
		return;
	if (r < 0 || type != CONTROL_JSON) {
		control_reply_failure(connection, r < 0 ? r : -EPROTO,
			"the first frame of a connection is a request in JSON");
		return;
	}
	control_set_timeout(connection->fd, SO_RCVTIMEO, 0);
	request = cJSON_ParseWithLength((const char *)payload.data, payload.size);
	if (cJSON_IsObject(request))
		serve(connection, request);
	else
		control_reply_failure(connection, -EINVAL, "the request is not a JSON object");
	cJSON_Delete(request);
}

static void forget_connection(struct connection *connection)
{
	struct control_server *server = connection->server;
	struct connection **at = &server->connections;

	pthread_mutex_lock(&server->lock);
	while (*at != connection)
		at = &(*at)->next;
	*at = connection->next;
	release_slot(connection);
	close(connection->fd);
	free(connection);
	pthread_mutex_unlock(&server->lock);
}

/* Whether a request has arrived that no thread has read yet. */
static bool has_request(const struct connection *connection)
{
	char first;

	return recv(connection->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* If CONNECTIONS_MAX are in use, ends the one that has been idle for longest and frees its place,
 * so that clients which send nothing cannot block others.  Called with the lock held.  False: none
 * is idle. */
static bool make_room(struct control_server *server)
{
	struct connection *oldest = NULL;

	if (server->connection_count < CONNECTIONS_MAX)
		return true;
	for (struct connection *at = server->connections; at; at = at->next)
		if (at->is_idle && !has_request(at))
			oldest = at;
	if (!oldest)
		return false;
	oldest->is_idle = false;
	release_slot(oldest);
	shutdown(oldest->fd, SHUT_RDWR);
	return true;
}

/* Takes ownership of `fd`.  NULL: no memory, or the peer is another user and got an error reply. */
static struct connection *connection_new(struct control_server *server, int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (!connection) {
		close(fd);
		return NULL;
	}
	*connection = (struct connection){.server = server, .fd = fd};
	if (is_allowed(connection))
		return connection;
	control_reply_failure(connection, -EPERM, "this mount belongs to another user");
	close(fd);
	free(connection);
	return NULL;
}

static void work(void *user);

/* Starts a thread that waits for a connection.  Called with the lock held: the thread decrements
 * `waiting` when it has one. */
static bool start_worker(struct control_server *server)
{
	if (!worker_pool_submit(&server->pool, work, server))
		return false;
	server->waiting++;
	return true;
}

/* Serves the connection, and makes sure that another thread waits for the next one. */
static void serve_connection(struct connection *connection)
{
	struct control_server *server = connection->server;
	bool room;

	pthread_mutex_lock(&server->lock);
	server->waiting--;
	room = (server->waiting || start_worker(server)) && make_room(server) && !server->stopping;
	connection->is_idle = connection->has_slot = room;
	connection->next = server->connections;
	server->connections = connection;
	server->connection_count += room;
	pthread_mutex_unlock(&server->lock);
	if (room)
		converse(connection);
	else
		control_reply_failure(connection, -EAGAIN, "too many connections: try again later");
	forget_connection(connection);
}

/* Accepts the next connection.  -1: the server stops. */
static int await_connection(struct control_server *server)
{
	while (!server->stopping) {
		int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			return fd;
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			usleep(100000);
		else if (errno != EINTR && errno != ECONNABORTED)
			break;
	}
	return -1;
}

static bool enough_wait(struct control_server *server)
{
	bool enough;

	pthread_mutex_lock(&server->lock);
	enough = server->waiting >= WAITING_MAX;
	server->waiting += !enough;
	pthread_mutex_unlock(&server->lock);
	return enough;
}

/* The thread that accepts a connection also serves it, so that a request wakes only one thread. */
static void work(void *user)
{
	struct control_server *server = user;
	struct connection *connection;
	int fd;

	while ((fd = await_connection(server)) >= 0) {
		connection = connection_new(server, fd);
		if (!connection)
			continue;
		serve_connection(connection);
		if (enough_wait(server))
			break;
	}
}

/* ---- For the rest of the daemon -------------------------------------------------- */

static bool note_change(struct mount *m, const char *path, uint32_t own_age_ms, uint64_t at)
{
	bool taken;

	pthread_rwlock_rdlock(&control_lock);
	taken = m->control && control_exec_note_change(m->control, path, own_age_ms, at);
	pthread_rwlock_unlock(&control_lock);
	return taken;
}

static void usage(struct mount *m, uint32_t *ret_connections, uint32_t *ret_commands)
{
	*ret_connections = *ret_commands = 0;
	pthread_rwlock_rdlock(&control_lock);
	if (m->control) {
		pthread_mutex_lock(&m->control->lock);
		*ret_connections = m->control->connection_count;
		*ret_commands = m->control->command_count;
		pthread_mutex_unlock(&m->control->lock);
	}
	pthread_rwlock_unlock(&control_lock);
}

static const struct mount_control calls = {.note_change = note_change, .usage = usage};

/* ---- Life ---------------------------------------------------------------------- */

static void set_control(struct mount *m, struct control_server *server)
{
	pthread_rwlock_wrlock(&control_lock);
	m->control = server;
	pthread_rwlock_unlock(&control_lock);
}

/* More threads than connections: an ending thread, or one whose connection was ended to make room,
 * still counts.  No queue: if all threads ran commands, none would wait for connections. */
static const struct worker_limits limits = {
	.name = "control", .stack_bytes = THREAD_STACK_BYTES, .threads_max = 2 * CONNECTIONS_MAX};

/* Starts the first waiting thread.  0 or -errno. */
static int start_waiting(struct control_server *server)
{
	bool started;

	pthread_mutex_lock(&server->lock);
	started = start_worker(server);
	pthread_mutex_unlock(&server->lock);
	return started ? 0 : -EAGAIN;
}

int control_server_start(struct mount *m, struct control_server **ret_server)
{
	struct control_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return -ENOMEM;
	server->mount = m;
	m->control_calls = &calls;
	pthread_mutex_init(&server->lock, NULL);
	worker_pool_init(&server->pool, &limits);
	server->listener = control_listen(m->control_path);
	r = server->listener < 0 ? server->listener : start_waiting(server);
	if (r < 0) {
		if (server->listener >= 0) {
			close(server->listener);
			unlink(m->control_path);
		}
		pthread_mutex_destroy(&server->lock);
		free(server);
		return r;
	}
	lstat(m->control_path, &server->socket); /* on failure the file is not removed at the end */
	set_control(m, server);
	*ret_server = server;
	return 0;
}

/* Removes the socket file, unless a later daemon of the mount point has replaced it. */
static void remove_socket(const struct control_server *server)
{
	const char *path = server->mount->control_path;
	struct stat now;

	if (lstat(path, &now) == 0 && now.st_dev == server->socket.st_dev &&
		now.st_ino == server->socket.st_ino)
		unlink(path);
}

void control_server_stop(struct control_server *server)
{
	if (!server)
		return;
	server->stopping = true;
	shutdown(server->listener, SHUT_RDWR);
	remove_socket(server);
	pthread_mutex_lock(&server->lock);
	for (struct connection *at = server->connections; at; at = at->next)
		shutdown(at->fd, SHUT_RDWR);
	pthread_mutex_unlock(&server->lock);
	worker_pool_done(&server->pool);
	close(server->listener);
	set_control(server->mount, NULL);
	pthread_mutex_destroy(&server->lock);
	free(server);
}
