/*
 * test_session - the helper alone, spoken to byte by byte: whose is a session, and what
 * does it do with a client that is not one of ours.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/remote/wire/protocol.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"

struct peer {
	pid_t pid;
	int in_fd, out_fd; /* from and to the helper */
};

static char dir[64];

static struct peer start_helper(void)
{
	struct peer peer = {.pid = -1};
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		return peer;
	peer.pid = fork();
	if (peer.pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl(HELPER, HELPER, NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	peer.in_fd = from[0];
	peer.out_fd = to[1];
	return peer;
}

static void end_helper(struct peer *peer)
{
	close(peer->in_fd);
	close(peer->out_fd);
	waitpid(peer->pid, NULL, 0);
}

static int say(struct peer *peer, const void *data, size_t size)
{
	return write(peer->out_fd, data, size) == (ssize_t)size ? 0 : -errno;
}

static int greet(struct peer *peer, const struct hello *hello, struct buffer *body,
	struct welcome *ret_welcome)
{
	cleanup_wire_writer struct wire_writer writer = {0};
	cleanup_buffer struct buffer noise = {0};
	uint8_t nonce[NONCE_BYTES];
	int r;

	hello_encode(&writer, hello);
	r = say(peer, writer.buffer.data, writer.buffer.size);
	if (r == 0)
		r = hello_receive(peer->in_fd, true, hello->nonce, 5000, nonce, body, &noise);
	return r < 0 ? r : welcome_decode(nonce, body->data, body->size, ret_welcome);
}

static struct hello hello_for(const char *root)
{
	return (struct hello){
		.nonce = "nonce", .version = PROTOCOL_VERSION, .linger_seconds = 5, .root = root};
}

static int send_frame(
	struct peer *peer, enum frame_type type, uint32_t id, const struct wire_writer *payload)
{
	struct frame_header header = {.size = payload ? (uint32_t)payload->buffer.size : 0,
		.type = (uint8_t)type,
		.id = id};
	uint8_t bytes[FRAME_HEADER_BYTES];
	int r;

	frame_header_encode(&header, bytes);
	r = say(peer, bytes, sizeof(bytes));
	return r < 0 || !payload ? r : say(peer, payload->buffer.data, payload->buffer.size);
}

static void say_goodbye(struct peer *peer)
{
	send_frame(peer, FRAME_BYE, 0, NULL);
}

/* True once the helper has hung up. */
static bool has_hung_up(struct peer *peer)
{
	uint8_t byte;

	return read(peer->in_fd, &byte, 1) == 0;
}

static void put_caller(struct wire_writer *w)
{
	for (int i = 0; i < 4; i++)
		wire_put_number(w, 0); /* uid, gid, no groups, no order */
}

static void test_only_the_token_opens_a_session(void)
{
	cleanup_buffer struct buffer body = {0}, other = {0};
	struct hello hello = hello_for(dir);
	struct peer first = start_helper(), thief = start_helper(), owner = start_helper();
	struct welcome mine, his;

	CHECK_RC(0, greet(&first, &hello, &body, &mine));
	CHECK_RC(0, mine.error);
	CHECK(!mine.resumed);
	memcpy(hello.session, mine.session, TOKEN_BYTES);
	memcpy(hello.token, mine.token, TOKEN_BYTES);
	hello.token[TOKEN_BYTES - 1] ^= 1;
	CHECK_RC(0, greet(&thief, &hello, &other, &his));
	CHECK_RC(-EACCES, his.error);
	hello.token[TOKEN_BYTES - 1] ^= 1;
	CHECK_RC(0, greet(&owner, &hello, &other, &his));
	CHECK_RC(0, his.error);
	CHECK(his.resumed);
	CHECK(has_hung_up(&first)); /* the new connection replaced it */
	say_goodbye(&owner);
	CHECK(has_hung_up(&owner));
	end_helper(&thief);
	end_helper(&first);
	end_helper(&owner);
}

static void test_another_version_is_refused(void)
{
	cleanup_buffer struct buffer body = {0};
	struct hello hello = hello_for(dir);
	struct peer peer = start_helper();
	struct welcome welcome;

	hello.version = PROTOCOL_VERSION + 1;
	CHECK_RC(0, greet(&peer, &hello, &body, &welcome));
	CHECK(welcome.error != 0);
	CHECK(has_hung_up(&peer));
	end_helper(&peer);
}

static void test_garbage_ends_the_connection_and_not_the_session(void)
{
	cleanup_buffer struct buffer body = {0}, again = {0};
	struct hello hello = hello_for(dir);
	struct peer peer = start_helper(), next = start_helper();
	struct welcome welcome;

	CHECK_RC(0, greet(&peer, &hello, &body, &welcome));
	CHECK_RC(0, say(&peer, "GET / HTTP/1.1\r\nHost: box\r\n\r\n", 29));
	CHECK(has_hung_up(&peer));
	memcpy(hello.session, welcome.session, TOKEN_BYTES);
	memcpy(hello.token, welcome.token, TOKEN_BYTES);
	CHECK_RC(0, greet(&next, &hello, &again, &welcome));
	CHECK(welcome.resumed);
	say_goodbye(&next);
	CHECK(has_hung_up(&next));
	end_helper(&peer);
	end_helper(&next);
}

static void ask_for(const char *path)
{
	cleanup_wire_writer struct wire_writer writer = {0};
	cleanup_buffer struct buffer body = {0};
	static const struct object_id any;
	struct hello hello = hello_for(dir);
	struct peer peer = start_helper();
	struct frame_header header;
	struct welcome welcome;
	struct wire_reader reader;
	uint8_t bytes[FRAME_HEADER_BYTES + WIRE_RESULT_BYTES];
	uint64_t position;

	CHECK_RC(0, greet(&peer, &hello, &body, &welcome));
	put_caller(&writer);
	wire_put_object(&writer, path, &any, 0);
	wire_put_number(&writer, 0); /* read only */
	wire_put_number(&writer, 1); /* handle */
	wire_put_number(&writer, 100);
	CHECK_RC(0, send_frame(&peer, REQUEST_OPEN, 1, &writer));
	if (CHECK_RC(sizeof(bytes), read(peer.in_fd, bytes, sizeof(bytes)))) {
		CHECK_RC(0, frame_header_decode(bytes, &header));
		CHECK_RC(FRAME_REPLY, header.type);
		reader = wire_reader_over(bytes + FRAME_HEADER_BYTES, WIRE_RESULT_BYTES);
		CHECK(wire_get_result(&reader, &position) < 0);
	}
	say_goodbye(&peer);
	end_helper(&peer);
}

static void test_no_path_leaves_the_root(void)
{
	char link[128];

	snprintf(link, sizeof(link), "%s/out", dir);
	CHECK_RC(0, symlink("/etc", link));
	ask_for("../../etc/passwd");
	ask_for("/etc/passwd");
	ask_for("out/passwd");
	ask_for("out");
	unlink(link);
}

/* KiB that the helpers of this test use, the largest one. */
static bool helpers_stay_below(unsigned kilobytes)
{
	char command[256];

	snprintf(command, sizeof(command),
		"for p in /proc/[0-9]*; do [ \"$(readlink $p/exe)\" != " HELPER " ] || "
		"awk '/VmRSS/ && $2 > %u {exit 1}' $p/status || exit 1; done",
		kilobytes);
	return system(command) == 0;
}

static void test_a_client_that_reads_nothing_cannot_grow_the_helper(void)
{
	cleanup_buffer struct buffer body = {0};
	struct hello hello = hello_for(dir);
	struct peer peer = start_helper();
	struct welcome welcome;
	char path[128];

	snprintf(path, sizeof(path), "%s/big", dir);
	CHECK_RC(0, truncate(path, 0) < 0 ? close(creat(path, 0644)) : 0);
	CHECK_RC(0, truncate(path, 1 << 20));
	CHECK_RC(0, greet(&peer, &hello, &body, &welcome));
	fcntl(peer.out_fd, F_SETFL, O_NONBLOCK);
	for (uint32_t id = 1; id < 4000; id++) {
		cleanup_wire_writer struct wire_writer writer = {0};
		static const struct object_id any;

		put_caller(&writer);
		wire_put_object(&writer, "big", &any, 0);
		wire_put_number(&writer, 0);
		wire_put_number(&writer, id);
		wire_put_number(&writer, TRANSFER_MAX_BYTES);
		if (send_frame(&peer, REQUEST_OPEN, id, &writer) < 0)
			break;
	}
	nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
	CHECK(helpers_stay_below(160000));
	end_helper(&peer);
}

static void put_exec(struct wire_writer *w, uint32_t process, const char *command)
{
	put_caller(w);
	wire_put_number(w, process);
	wire_put_number(w, 0); /* flags */
	wire_put_number(w, 0); /* timeout */
	wire_put_number(w, 0);
	wire_put_number(w, 0); /* rows, columns */
	wire_put_string(w, "");
	wire_put_string(w, command);
	wire_put_number(w, 0);
	wire_put_number(w, 0); /* argv, environment */
}

/* Sends the same frame again and again; what does not fit at once is not sent. */
static void pester(struct peer *peer, enum frame_type type, uint32_t id,
	const struct wire_writer *payload, unsigned times)
{
	fcntl(peer->out_fd, F_SETFL, O_NONBLOCK);
	for (unsigned i = 0; i < times; i++) {
		if (send_frame(peer, type, id, payload) >= 0)
			continue;
		if (errno == EPIPE)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static void test_credit_for_what_was_not_read_cannot_grow_the_helper(void)
{
	cleanup_wire_writer struct wire_writer command = {0}, credit = {0};
	cleanup_buffer struct buffer body = {0};
	struct hello hello = hello_for(dir);
	struct peer peer = start_helper();
	struct welcome welcome;

	CHECK_RC(0, greet(&peer, &hello, &body, &welcome));
	put_exec(&command, 1, "exec cat /dev/zero");
	wire_put_number(&credit, UINT32_MAX);
	CHECK_RC(0, send_frame(&peer, REQUEST_EXEC, 1, &command));
	for (int i = 0; i < 10; i++) {
		pester(&peer, FRAME_OUTPUT_CREDIT, 1, &credit, 10);
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	}
	CHECK(helpers_stay_below(160000));
	end_helper(&peer);
}

static void test_pings_without_reading_end_the_connection(void)
{
	cleanup_buffer struct buffer body = {0};
	struct hello hello = hello_for(dir);
	struct peer peer = start_helper();
	struct welcome welcome;

	CHECK_RC(0, greet(&peer, &hello, &body, &welcome));
	pester(&peer, FRAME_PING, 1, NULL, 200000); /* more than fills the pipes */
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	CHECK(send_frame(&peer, FRAME_PING, 1, NULL) < 0);
	end_helper(&peer);
}

static void test_input_after_its_end_cannot_grow_the_helper(void)
{
	cleanup_wire_writer struct wire_writer command = {0};
	cleanup_buffer struct buffer body = {0};
	struct hello hello = hello_for(dir);
	struct peer peer = start_helper();
	struct welcome welcome;

	CHECK_RC(0, greet(&peer, &hello, &body, &welcome));
	put_exec(&command, 1, "exec sleep 60");
	CHECK_RC(0, send_frame(&peer, REQUEST_EXEC, 1, &command));
	for (int i = 0; i < 1000; i++) {
		static uint8_t frames[1000 * FRAME_HEADER_BYTES];

		for (int j = 0; j < 1000; j++)
			frame_header_encode(&(struct frame_header){.type = FRAME_INPUT, .id = 1},
				frames + j * FRAME_HEADER_BYTES);
		CHECK_RC(0, say(&peer, frames, sizeof(frames)));
	}
	CHECK(helpers_stay_below(30000));
	say_goodbye(&peer);
	end_helper(&peer);
}

static void remove_directory(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command) != 0)
		fprintf(stderr, "\"%s\" is left behind\n", dir);
}

int main(void)
{
	static const struct test_case cases[] = {TEST(test_only_the_token_opens_a_session),
		TEST(test_another_version_is_refused),
		TEST(test_garbage_ends_the_connection_and_not_the_session),
		TEST(test_no_path_leaves_the_root),
		TEST(test_a_client_that_reads_nothing_cannot_grow_the_helper),
		TEST(test_credit_for_what_was_not_read_cannot_grow_the_helper),
		TEST(test_pings_without_reading_end_the_connection),
		TEST(test_input_after_its_end_cannot_grow_the_helper)};

	signal(SIGPIPE, SIG_IGN);
	snprintf(dir, sizeof(dir), "/tmp/isthmus-session-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	atexit(remove_directory);
	return test_run("session", cases, array_size(cases));
}
