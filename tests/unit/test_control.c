#include "fs/control/control.h"
#include "ops/support/control.h"
#include "tests/check.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/open.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/file_limit.h"
#include "ops/workspace.h"
#include "tests/remove_tree.h"

/* ---- Frames: what a hostile peer may send --------------------------------------- */

static void check_received(const void *bytes, size_t size, int want)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;
	int ends[2];

	CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	CHECK_RC(size, send(ends[0], bytes, size, 0));
	close(ends[0]);
	CHECK_RC(want, control_receive(ends[1], &type, &payload));
	CHECK(payload.capacity <= 2 * CONTROL_FRAME_MAX_BYTES);
	close(ends[1]);
}

static void test_frames_that_end_early_are_refused(void)
{
	check_received("", 0, -ECONNRESET);
	check_received("\x05\0\0", 3, -ECONNRESET);
	check_received("\x05\0\0\0J", 5, -ECONNRESET);
	check_received("\x05\0\0\0J1234", 9, -ECONNRESET);
	check_received("\x05\0\0\0J12345", 10, 0);
	check_received("\0\0\0\0D", 5, 0);
}

static void test_frames_that_are_too_long_are_refused(void)
{
	check_received("\x01\0\x10\0J", 5, -EMSGSIZE);
	check_received("\xff\xff\xff\xffJ", 5, -EMSGSIZE);
	check_received("\0\0\0\x80J", 5, -EMSGSIZE);
}

static void *send_longest(void *user)
{
	cleanup_free uint8_t *data = calloc(1, CONTROL_FRAME_MAX_BYTES + 1);

	CHECK_RC(-EMSGSIZE,
		control_send(*(int *)user, CONTROL_STDIN, data, CONTROL_FRAME_MAX_BYTES + 1));
	data[CONTROL_FRAME_MAX_BYTES - 1] = 7;
	CHECK_RC(0, control_send(*(int *)user, CONTROL_STDIN, data, CONTROL_FRAME_MAX_BYTES));
	return NULL;
}

static void test_the_longest_frame_arrives_whole(void)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;
	pthread_t thread;
	int ends[2];

	CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pthread_create(&thread, NULL, send_longest, &ends[0]);
	CHECK_RC(0, control_receive(ends[1], &type, &payload));
	pthread_join(thread, NULL);
	CHECK_RC(CONTROL_STDIN, type);
	CHECK_RC(CONTROL_FRAME_MAX_BYTES, payload.size);
	CHECK_RC(7, payload.data[CONTROL_FRAME_MAX_BYTES - 1]);
	CHECK_RC(0, payload.data[CONTROL_FRAME_MAX_BYTES]);
	close(ends[0]);
	close(ends[1]);
}

static void test_sending_to_nobody_is_an_error_not_a_signal(void)
{
	int ends[2];

	CHECK_RC(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	close(ends[1]);
	CHECK_RC(-EPIPE, control_send(ends[0], CONTROL_STDIN, "x", 1));
	close(ends[0]);
}

static void check_failure(const char *json, int want, const char *want_message)
{
	cleanup_buffer struct buffer payload = {0};
	cleanup_free char *message = NULL;

	buffer_append_string(&payload, json);
	CHECK_RC(want, control_failure(&payload, &message));
	if (want_message)
		CHECK_STRING(want_message, message);
	else
		CHECK(message == NULL);
}

static void test_failures_name_an_errno(void)
{
	check_failure("{\"error\":\"ENOENT\",\"message\":\"gone\"}", -ENOENT, "gone");
	check_failure("{\"error\":\"EWHATEVER\"}", -EPROTO, NULL);
	check_failure("{\"error\":7,\"message\":[]}", -EPROTO, NULL);
	check_failure("[", -EPROTO, NULL);
	check_failure("", -EPROTO, NULL);
}

static void test_what_is_on_no_mount_is_not_found(void)
{
	char *socket_path = NULL;

	CHECK_RC(-ENODATA, control_find("/proc", &socket_path, NULL, NULL));
	CHECK_RC(-ENODATA, control_find(".", &socket_path, NULL, NULL));
	CHECK_RC(-ENOENT, control_find("/does/not/exist", &socket_path, NULL, NULL));
	CHECK(socket_path == NULL);
}

static void test_a_daemon_that_hangs_is_there(void)
{
	char path[] = "/tmp/isthmus-test-hang-XXXXXX";
	int listener;

	close(mkstemp(path));
	CHECK(!control_is_served(path));
	listener = control_listen(path);
	/* Nobody accepts: the backlog is full long before. */
	for (int i = 0; i < 200; i++)
		CHECK(control_is_served(path));
	close(listener);
	CHECK(!control_is_served(path));
	unlink(path);
	CHECK(!control_is_served(path));
}

/* Runs as somebody else; what `run` returns comes back. */
static int run_as(uid_t uid, int (*run)(const char *path), const char *path)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(setuid(uid) == 0 ? -run(path) : 255);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

static int listen_for_all(const char *path)
{
	int fd = control_listen(path);

	if (fd < 0 || chmod(path, 0666) < 0)
		return -errno;
	if (fork() == 0)
		_exit((int)sleep(5)); /* nobody accepts */
	return 0;
}

static int connect_only(const char *path)
{
	int fd = control_connect(path);

	return fd < 0 ? fd : 0;
}

static void test_the_daemon_of_another_user_is_not_trusted(void)
{
	char path[] = "/tmp/isthmus-test-other-XXXXXX", socket_path[64];

	if (geteuid() != 0)
		return; /* needs two other users */
	CHECK(mkdtemp(path) != NULL);
	CHECK_RC(0, chmod(path, 0777));
	snprintf(socket_path, sizeof(socket_path), "%s/s", path);
	CHECK_RC(0, run_as(64001, listen_for_all, socket_path));
	CHECK_RC(0, run_as(64001, connect_only, socket_path));
	CHECK_RC(-EPERM, run_as(64002, connect_only, socket_path));
	CHECK_RC(0, connect_only(socket_path));
	unlink(socket_path);
	rmdir(path);
}

/* ---- A server, without a mount --------------------------------------------------- */

static char directory[64];
static struct mount mount_;
static struct mount_options options;
static struct control_server *server;

static void start_server(void)
{
	char *socket_path, *log_path, uri[96], *reason = NULL;

	strcpy(directory, "/tmp/isthmus-test-control-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	snprintf(uri, sizeof(uri), "local:%s", directory);
	CHECK(asprintf(&socket_path, "%s/s", directory) > 0);
	CHECK(asprintf(&log_path, "%s/log", directory) > 0);
	options = (struct mount_options){.uri = strdup(uri), .mount_point = "/nowhere"};
	mount_ = (struct mount){.options = &options, .control_path = socket_path};
	CHECK_RC(0, workspace_open(uri, NULL, &mount_.workspace, &reason));
	CHECK_RC(0, mount_log_open(log_path, NULL, &mount_.log));
	CHECK_RC(0, control_server_start(&mount_, &server));
	free(log_path);
	free(reason);
}

static void stop_server(void)
{
	control_server_stop(server);
	CHECK(access(mount_.control_path, F_OK) < 0);
	workspace_free(mount_.workspace);
	mount_log_close(mount_.log);
	free(mount_.control_path);
	free((char *)(uintptr_t)options.uri);
	remove_tree(directory);
}

static void check_answer(const char *request, int want, const char *want_text)
{
	cleanup_free char *reply = NULL;

	CHECK_RC(want, control_call(mount_.control_path, request, &reply));
	if (!CHECK(reply && strstr(reply, want_text)))
		fprintf(stderr, "%s: %s\n", request, reply ? reply : "(nothing)");
}

static void test_the_socket_is_for_its_owner_only(void)
{
	struct stat attributes;

	start_server();
	CHECK_RC(0, stat(mount_.control_path, &attributes));
	CHECK_RC(0600, attributes.st_mode & 0777);
	stop_server();
}

static void test_requests_that_are_none_are_refused(void)
{
	cleanup_free char *deep = malloc(100001);
	struct mount_log *log;

	start_server();
	log = mount_.log;
	memset(deep, '[', 100000);
	deep[100000] = '\0';
	check_answer("", -EINVAL, "not a JSON object");
	check_answer("{", -EINVAL, "not a JSON object");
	check_answer("[]", -EINVAL, "not a JSON object");
	check_answer(deep, -EINVAL, "not a JSON object");
	check_answer("{}", -EINVAL, "no request");
	check_answer("{\"request\":7}", -EINVAL, "no request");
	check_answer("{\"request\":\"dance\"}", -EINVAL, "\"dance\"");
	check_answer("{\"request\":\"exec\"}", -EINVAL, "argv or command");
	check_answer("{\"request\":\"exec\",\"argv\":[]}", -EINVAL, "argv or command");
	check_answer("{\"request\":\"exec\",\"argv\":[1]}", -EINVAL, "argv or command");
	check_answer("{\"request\":\"exec\",\"command\":\"true\",\"env\":{\"A=B\":\"\"}}", -EINVAL,
		"env as names");
	check_answer("{\"request\":\"exec\",\"command\":\"true\",\"env\":{\"A\":1}}", -EINVAL,
		"env as names");
	check_answer("{\"request\":\"exec\",\"command\":\"true\",\"env\":[\"A\"]}", -EINVAL,
		"env as names");
	check_answer("{\"request\":\"exec\",\"command\":\"true\",\"cwd\":\"../..\"}", -ENOTDIR,
		"directory");
	check_answer("{\"request\":\"exec\",\"argv\":[\"no-such-program\"]}", -ENOENT,
		"no such command");
	check_answer("{\"request\":\"call_end\",\"call_id\":\"x\"}", -ENOENT, "not registered");
	check_answer("{\"request\":\"call_begin\"}", -EINVAL, "call_id");
	check_answer("{\"request\":\"call_begin\",\"call_id\":\"x\",\"pid\":-1}", -EINVAL, "x");
	mount_.log = NULL;
	check_answer("{\"request\":\"call_begin\",\"call_id\":\"x\"}", -ENOTCONN, "no log");
	check_answer("{\"request\":\"call_end\",\"call_id\":\"x\"}", -ENOTCONN, "no log");
	check_answer("{\"request\":\"log_flush\"}", -ENOTCONN, "no log");
	mount_.log = log;
	check_answer("{\"request\":\"status\"}", 0, "local:");
	check_answer("{\"request\":\"stats\"}", 0, "requests");
	check_answer("{\"request\":\"log_flush\"}", 0, "log.jsonl");
	stop_server();
}

static int ask(const char *request)
{
	cleanup_free char *reply = NULL;

	return control_call(mount_.control_path, request, &reply);
}

/* In a process of its own, which stays until it is killed. */
static pid_t ask_as_child(const char *request, int *ret_answer)
{
	int ends[2], answer = -EIO;
	pid_t pid;

	CHECK_RC(0, pipe(ends));
	pid = fork();
	if (pid == 0) {
		answer = ask(request);
		if (write(ends[1], &answer, sizeof(answer)) == sizeof(answer))
			pause();
		_exit(1);
	}
	CHECK_RC(sizeof(answer), read(ends[0], &answer, sizeof(answer)));
	close(ends[0]);
	close(ends[1]);
	*ret_answer = answer;
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_a_call_is_of_the_process_tree_that_began_it(void)
{
	static const char begin[] =
		"{\"request\":\"call_begin\",\"call_id\":\"c\",\"tool\":\"bash\"}";
	static const char end[] = "{\"request\":\"call_end\",\"call_id\":\"c\"}";
	char other[96], join[96];
	pid_t owner, stranger;
	int answer;

	start_server();
	snprintf(other, sizeof(other), "{\"request\":\"call_begin\",\"call_id\":\"o\",\"pid\":%d}",
		(int)getppid());
	check_answer(other, -EPERM, "not your process");
	owner = ask_as_child(begin, &answer);
	CHECK_RC(0, answer);
	stranger = ask_as_child(end, &answer);
	CHECK_RC(-EPERM, answer);
	end_child(stranger);
	snprintf(join, sizeof(join), "{\"request\":\"call_join\",\"call_id\":\"c\",\"pid\":%d}",
		(int)owner);
	stranger = ask_as_child(join, &answer);
	CHECK_RC(-EPERM, answer);
	end_child(stranger);
	stranger = ask_as_child(
		"{\"request\":\"exec\",\"command\":\"true\",\"call_id\":\"c\"}", &answer);
	CHECK_RC(-EPERM, answer);
	end_child(stranger);
	CHECK_RC(0, ask(join));
	CHECK_RC(0, ask(end)); /* we have started its owner */
	end_child(owner);
	stop_server();
}

static void test_calls_of_processes_that_ended_make_room(void)
{
	char request[96];
	pid_t owner;
	int answer;

	start_server();
	owner = ask_as_child("{\"request\":\"call_begin\",\"call_id\":\"lost\"}", &answer);
	CHECK_RC(0, answer);
	end_child(owner);
	for (int i = 0; i < 4096; i++) {
		snprintf(request, sizeof(request),
			"{\"request\":\"call_begin\",\"call_id\":\"c%d\"}", i);
		if (!CHECK_RC(0, ask(request)))
			break;
	}
	CHECK_RC(-ENOSPC, ask("{\"request\":\"call_begin\",\"call_id\":\"more\"}"));
	stop_server();
}

static void test_each_line_of_a_call_says_on_whose_behalf(void)
{
	const struct log_record record = {.op = "mkdir", .path = "d", .pid = getpid()};
	cleanup_free char *path = NULL, *text = NULL;
	cleanup_file FILE *file = NULL;
	size_t size = 0;

	start_server();
	check_answer("{\"request\":\"call_begin\",\"call_id\":\"c\",\"tool\":\"write\","
		     "\"agent\":\"pi 2.1\",\"user\":\"alice\",\"conversation\":\"c-9\"}",
		0, "first_seq");
	CHECK(mount_log_record(mount_.log, &record) > 0);
	mount_log_flush(mount_.log);
	file = fopen(mount_log_path(mount_.log), "re");
	CHECK(file && getdelim(&text, &size, '\0', file) > 0);
	CHECK(text && strstr(text, "\"call\":\"c\",\"tool\":\"write\",\"agent\":\"pi 2.1\","
				   "\"user\":\"alice\",\"conversation\":\"c-9\""));
	stop_server();
}

static void test_a_first_frame_that_is_no_request_is_refused(void)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;
	int fd;

	start_server();
	fd = control_connect(mount_.control_path);
	CHECK_RC(0, control_send(fd, CONTROL_STDIN, "x", 1));
	CHECK_RC(0, control_receive(fd, &type, &payload));
	CHECK_RC(CONTROL_FAILURE, type);
	close(fd);
	fd = control_connect(mount_.control_path);
	CHECK_RC(5, send(fd, "\xff\xff\xff\xffJ", 5, MSG_NOSIGNAL));
	CHECK_RC(0, control_receive(fd, &type, &payload));
	CHECK_RC(CONTROL_FAILURE, type);
	close(fd);
	stop_server();
}

/* A client that connects and sends nothing, or half a request. */
static void test_idle_connections_keep_no_request_out(void)
{
	int fds[600];

	start_server();
	for (size_t i = 0; i < array_size(fds); i++) {
		fds[i] = control_connect(mount_.control_path);
		CHECK(fds[i] >= 0);
		/* Fails where the connection has been ended already. */
		if (i % 2)
			send(fds[i], "\xff", 1, MSG_NOSIGNAL);
		if (i % 100 == 99)
			check_answer("{\"request\":\"status\"}", 0, "local:");
	}
	for (size_t i = 0; i < array_size(fds); i++)
		close(fds[i]);
	stop_server();
}

static int start_forward(void)
{
	static const char request[] = "{\"request\":\"forward\",\"text\":\"x\"}";
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type = 0;
	int fd = control_connect(mount_.control_path);

	CHECK_RC(0, control_send(fd, CONTROL_JSON, request, strlen(request)));
	CHECK_RC(0, control_receive(fd, &type, &payload));
	CHECK_RC(CONTROL_JSON, type);
	return fd;
}

/* They are told to try again when the place is taken by one that has not ended yet. */
static bool answers_soon(const char *request)
{
	int64_t until_ms = clock_now_ms() + 5000;
	int r;

	do {
		cleanup_free char *reply = NULL;

		r = control_call(mount_.control_path, request, &reply);
	} while (r < 0 && clock_now_ms() < until_ms);
	return r == 0;
}

/* With one place that is not in use, for several that come at once. */
static void test_connections_that_come_at_once_make_room_each(void)
{
	int busy[255], idle[3];
	time_t started = time(NULL);

	start_server();
	for (size_t i = 0; i < array_size(busy); i++)
		busy[i] = start_forward();
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < array_size(idle); i++)
			idle[i] = control_connect(mount_.control_path);
		CHECK(answers_soon("{\"request\":\"status\"}"));
		for (size_t i = 0; i < array_size(idle); i++)
			close(idle[i]);
	}
	CHECK(time(NULL) - started < 20);
	for (size_t i = 0; i < array_size(busy); i++)
		close(busy[i]);
	stop_server();
}

/* ---- Commands ---------------------------------------------------------------------- */

static int start_request(const char *text)
{
	int fd = control_connect(mount_.control_path);

	CHECK_RC(0, control_send(fd, CONTROL_JSON, text, strlen(text)));
	return fd;
}

static int start_command(const char *command)
{
	cleanup_free char *text = NULL;

	CHECK(asprintf(&text, "{\"request\":\"exec\",\"command\":\"%s\"}", command) > 0);
	return start_request(text);
}

/* Frames until the last one, whose payload is kept; the bytes of stdout are counted. */
static enum control_frame_type read_to_end(int fd, struct buffer *payload, size_t *ret_output)
{
	enum control_frame_type type = 0;

	*ret_output = 0;
	while (control_receive(fd, &type, payload) == 0 && type == CONTROL_STDOUT)
		*ret_output += payload->size;
	return type;
}

static void check_exit(int fd, const char *want, size_t want_output)
{
	cleanup_buffer struct buffer payload = {0};
	size_t output;

	CHECK_RC(CONTROL_EXIT, read_to_end(fd, &payload, &output));
	if (!CHECK(strstr((const char *)payload.data, want) != NULL))
		fprintf(stderr, "%s\n", (const char *)payload.data);
	CHECK_RC(want_output, output);
	close(fd);
}

static void test_a_command_may_end_its_call(void)
{
	static const char request[] = "{\"request\":\"exec\",\"command\":\"exit 3\","
				      "\"call_id\":\"c\",\"ends_call\":true}";
	static const char end[] = "{\"request\":\"call_end\",\"call_id\":\"c\"}";
	int fd;

	start_server();
	CHECK_RC(0, ask("{\"request\":\"call_begin\",\"call_id\":\"c\"}"));
	fd = start_request(request);
	check_exit(fd,
		"\"exit_code\":3,\"signal\":0,\"timed_out\":false,\"changed\":[],"
		"\"changed_truncated\":false,\"first_seq\":1,\"last_seq\":1,\"call_ended\":true}",
		0);
	CHECK_RC(-ENOENT, ask(end));

	/* One that does not start leaves the call to its tool. */
	CHECK_RC(0, ask("{\"request\":\"call_begin\",\"call_id\":\"c\"}"));
	CHECK_RC(-ENOTDIR,
		ask("{\"request\":\"exec\",\"command\":\"true\",\"cwd\":\"no\",\"call_id\":\"c\","
		    "\"ends_call\":true}"));
	CHECK_RC(0, ask(end));
	stop_server();
}

static void test_a_command_gets_its_stdin_and_its_signals(void)
{
	static const char big[300000];
	int fd;

	start_server();
	fd = start_command("cat");
	CHECK_RC(0, control_send(fd, CONTROL_STDIN, "hello", 5));
	CHECK_RC(0, control_send(fd, CONTROL_STDIN_EOF, NULL, 0));
	check_exit(fd, "\"exit_code\":0", 5);

	/* It does not read: the signal must not wait behind what it has not read. */
	fd = start_command("exec sleep 30");
	CHECK_RC(0, control_send(fd, CONTROL_STDIN, big, 200000));
	usleep(200000);
	CHECK_RC(0, control_send(fd, CONTROL_SIGNAL, "\x0f\0\0\0", 4));
	check_exit(fd, "\"signal\":15", 0);

	/* It ended without reading: the client may go on. */
	fd = start_command("exec <&-; sleep 0.2; exit 3");
	CHECK_RC(0, control_send(fd, CONTROL_STDIN, big, sizeof(big)));
	check_exit(fd, "\"exit_code\":3", 0);
	stop_server();
}

static void check_broken_off(const void *frame, size_t size)
{
	cleanup_buffer struct buffer payload = {0};
	int fd = start_command("exec sleep 30");
	size_t output;

	CHECK_RC(size, send(fd, frame, size, MSG_NOSIGNAL));
	CHECK(read_to_end(fd, &payload, &output) != CONTROL_EXIT);
	close(fd);
}

static void test_frames_that_do_not_belong_end_the_command(void)
{
	time_t started = time(NULL);

	start_server();
	check_broken_off("\x01\0\0\0S\x0f", 6);
	check_broken_off("\x04\0\0\0S\xff\0\0\0", 9);
	check_broken_off("\x04\0\0\0S\0\0\0\0", 9);
	check_broken_off("\x03\0\0\0Wabc", 8);
	check_broken_off("\x02\0\0\0J{}", 7);
	check_broken_off("\xff\xff\xff\xffI", 5);
	check_broken_off("\0\0\0\0?", 5);
	stop_server();
	CHECK(time(NULL) - started < 20);
}

static long resident_kb(void)
{
	cleanup_file FILE *file = fopen("/proc/self/statm", "re");
	long pages = 0;

	CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
	return pages * 4;
}

static void test_a_client_that_does_not_read_holds_the_command_up(void)
{
	long before;
	int fd;

	start_server();
	before = resident_kb();
	fd = start_command("exec yes");
	usleep(700000);
	CHECK(resident_kb() - before < 8 << 10);
	close(fd);
	stop_server();
}

static void test_the_death_of_the_client_ends_the_command(void)
{
	char path[128];
	int fd;

	start_server();
	snprintf(path, sizeof(path), "%s/alive", directory);
	fd = start_command("while :; do date >>alive; sleep 0.05; done");
	for (int i = 0; i < 100 && access(path, F_OK) < 0; i++)
		usleep(20000);
	CHECK(access(path, F_OK) == 0);
	close(fd);
	for (int i = 0; i < 100; i++) {
		uint32_t connections, commands;

		mount_.control_calls->usage(&mount_, &connections, &commands);
		if (commands == 0)
			break;
		usleep(20000);
	}
	CHECK_RC(0, unlink(path));
	usleep(300000);
	CHECK(access(path, F_OK) < 0);
	stop_server();
}

static void test_the_exit_tells_what_changed_and_where_it_stands_in_the_log(void)
{
	cleanup_buffer struct buffer payload = {0};
	size_t output;
	cJSON *end;
	int fd;

	start_server();
	fd = start_command("echo ready; read line; exit 7");
	usleep(300000);
	mount_note_change(&mount_, "a/b", UINT32_MAX, UINT64_MAX);
	mount_note_change(&mount_, "a/b", UINT32_MAX, UINT64_MAX);
	mount_note_change(
		&mount_, "c", 600000, UINT64_MAX); /* this mount had, before the command began */
	mount_note_change(&mount_, "by-another-process-here", 0, UINT64_MAX);
	CHECK_RC(0, control_send(fd, CONTROL_STDIN, "\n", 1));
	CHECK_RC(CONTROL_EXIT, read_to_end(fd, &payload, &output));
	end = cJSON_ParseWithLength((const char *)payload.data, payload.size);
	CHECK_RC(7, cJSON_GetNumberValue(cJSON_GetObjectItem(end, "exit_code")));
	CHECK_RC(2, cJSON_GetArraySize(cJSON_GetObjectItem(end, "changed")));
	CHECK_RC(1, cJSON_GetNumberValue(cJSON_GetObjectItem(end, "first_seq")));
	CHECK_RC(1, cJSON_GetNumberValue(cJSON_GetObjectItem(end, "last_seq")));
	cJSON_Delete(end);
	close(fd);
	stop_server();
}

/* The changes of a command whose output has begun, as its EXIT frame lists them. */
static cJSON *changed_in_reply(int fd, bool *ret_truncated)
{
	cleanup_buffer struct buffer payload = {0};
	cJSON *end, *changed;
	size_t output;

	CHECK_RC(0, control_send(fd, CONTROL_STDIN, "\n", 1));
	CHECK_RC(CONTROL_EXIT, read_to_end(fd, &payload, &output));
	end = cJSON_ParseWithLength((const char *)payload.data, payload.size);
	*ret_truncated = cJSON_IsTrue(cJSON_GetObjectItem(end, "changed_truncated"));
	changed = cJSON_DetachItemFromObject(end, "changed");
	cJSON_Delete(end);
	return changed;
}

static void wait_for_command(void)
{
	uint32_t connections, commands = 0;

	while (commands == 0) {
		usleep(1000);
		mount_.control_calls->usage(&mount_, &connections, &commands);
	}
}

static void test_more_changes_than_are_kept_are_marked(void)
{
	bool truncated = false;
	cJSON *changed;
	char path[32];
	int fd;

	start_server();
	fd = start_command("read line");
	wait_for_command();
	for (int i = 0; i < 2 * 8193; i++) {
		snprintf(path, sizeof(path), "directory/%d", i / 2);
		mount_note_change(&mount_, path, UINT32_MAX, UINT64_MAX);
	}
	changed = changed_in_reply(fd, &truncated);
	CHECK_RC(8192, cJSON_GetArraySize(changed));
	CHECK_STRING("directory/0", cJSON_GetStringValue(cJSON_GetArrayItem(changed, 0)));
	CHECK_STRING("directory/8191", cJSON_GetStringValue(cJSON_GetArrayItem(changed, 8191)));
	CHECK(truncated);
	cJSON_Delete(changed);
	close(fd);
	stop_server();
}

static void test_changes_that_were_missed_are_marked(void)
{
	bool truncated = false;
	cJSON *changed;
	int fd;

	start_server();
	fd = start_command("read line");
	wait_for_command();
	mount_note_change(&mount_, NULL, UINT32_MAX, UINT64_MAX);
	changed = changed_in_reply(fd, &truncated);
	CHECK_RC(0, cJSON_GetArraySize(changed));
	CHECK(truncated);
	cJSON_Delete(changed);
	close(fd);
	stop_server();
}

/* A frame has 1 MiB, and each byte may need six. */
static void test_the_exit_arrives_whatever_changed(void)
{
	bool truncated = false;
	cJSON *changed;
	char path[4001];
	int fd;

	start_server();
	fd = start_command("read line");
	wait_for_command();
	memset(path, 1, 4000);
	path[4000] = '\0';
	for (int i = 0; i < 100; i++) {
		path[0] = (char)('a' + i % 26);
		path[1] = (char)('a' + i / 26);
		mount_note_change(&mount_, path, UINT32_MAX, UINT64_MAX);
	}
	changed = changed_in_reply(fd, &truncated);
	CHECK(cJSON_GetArraySize(changed) > 16);
	CHECK(truncated);
	cJSON_Delete(changed);
	close(fd);
	stop_server();
}

static void test_stopping_the_server_ends_its_commands(void)
{
	time_t started = time(NULL);
	int fd;

	start_server();
	fd = start_command("trap '' TERM INT HUP; sleep 60");
	usleep(200000);
	stop_server();
	CHECK(time(NULL) - started < 5);
	close(fd);
}

int main(void)
{
	static const struct test_case cases[] = {
		TEST(test_frames_that_end_early_are_refused),
		TEST(test_frames_that_are_too_long_are_refused),
		TEST(test_the_longest_frame_arrives_whole),
		TEST(test_sending_to_nobody_is_an_error_not_a_signal),
		TEST(test_failures_name_an_errno),
		TEST(test_what_is_on_no_mount_is_not_found),
		TEST(test_a_daemon_that_hangs_is_there),
		TEST(test_the_daemon_of_another_user_is_not_trusted),
		TEST(test_the_socket_is_for_its_owner_only),
		TEST(test_requests_that_are_none_are_refused),
		TEST(test_a_call_is_of_the_process_tree_that_began_it),
		TEST(test_a_command_may_end_its_call),
		TEST(test_calls_of_processes_that_ended_make_room),
		TEST(test_each_line_of_a_call_says_on_whose_behalf),
		TEST(test_a_first_frame_that_is_no_request_is_refused),
		TEST(test_idle_connections_keep_no_request_out),
		TEST(test_connections_that_come_at_once_make_room_each),
		TEST(test_a_command_gets_its_stdin_and_its_signals),
		TEST(test_frames_that_do_not_belong_end_the_command),
		TEST(test_a_client_that_does_not_read_holds_the_command_up),
		TEST(test_the_death_of_the_client_ends_the_command),
		TEST(test_the_exit_tells_what_changed_and_where_it_stands_in_the_log),
		TEST(test_more_changes_than_are_kept_are_marked),
		TEST(test_changes_that_were_missed_are_marked),
		TEST(test_the_exit_arrives_whatever_changed),
		TEST(test_stopping_the_server_ends_its_commands),
	};

	signal(SIGPIPE, SIG_IGN);
	file_limit_raise();
	return test_run("control", cases, array_size(cases));
}
