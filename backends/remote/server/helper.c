/*
 * isthmus-helper - serves a directory of the machine it runs on, over stdin and stdout.
 *
 * The first connection forks a session, which lives on without the connection for a while.
 * Each later connection runs this program again; it hands its stdin and stdout to the session and
 * waits there until the connection has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/local/local.h"
#include "backends/remote/server/listen.h"
#include "backends/remote/server/server.h"
#include "backends/remote/wire/compress.h"
#include "ops/support/clock.h"
#include "ops/support/examine.h"
#include "ops/support/file_limit.h"
#include "ops/support/log.h"
#include "ops/support/process.h"
#include "ops/workspace.h"

enum {
	HELLO_TIMEOUT_MS = 60000,
	HANDOVER_TIMEOUT_MS = 5000,
	SILENCE_MAX_MS = 120000, /* the client says something every 15 s */
	LINGER_MAX_SECONDS = 7 * 86400,
	TICK_MS = 1000,
	REAP_MS = 1000,
	PEERS_MAX = 64,
};

/* A connection of the session. */
struct channel {
	struct lane *lane;
	int front_fd;  /* the process whose stdin and stdout we use ends when this closes */
	bool attached; /* main thread only */
	atomic_bool lost;
};

struct session {
	struct server *server;
	uint8_t id[TOKEN_BYTES], token[TOKEN_BYTES];
	int listen_fd;
	int event_fd; /* wakes the main loop */
	int ended_fd; /* who asked for our end ends when this closes */
	struct channel channels[CHANNELS_MAX];
	int64_t linger_ms, detached_ms;
	uint64_t capabilities;
	uint32_t owner_uid, owner_gid;
	atomic_bool goodbye;
};

/* ---- Answers ------------------------------------------------------------------ */

static int write_all(int fd, const uint8_t *data, size_t size)
{
	while (size > 0) {
		struct pollfd ready = {.fd = fd, .events = POLLOUT};
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n < 0 && poll(&ready, 1, HANDOVER_TIMEOUT_MS) == 0)
			return -ETIMEDOUT;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

/* The boot of the kernel, the start of its first process that we see, and our mount namespace. */
static const char *machine_identity(void)
{
	static char text[256];
	char boot[40] = "", space[64] = "", process[1024] = "", *end;
	unsigned long long start = 0;
	ssize_t length = readlink("/proc/self/ns/mnt", space, sizeof(space) - 1);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	space[length > 0 ? length : 0] = '\0';
	if (fd >= 0 && read(fd, boot, 36) < 0)
		*boot = '\0';
	if (fd >= 0)
		close(fd);
	fd = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, process, sizeof(process) - 1) < 0)
		*process = '\0';
	if (fd >= 0)
		close(fd);
	end = strrchr(process, ')'); /* the name before it may have anything in it */
	if (end)                     /* fields 3 to 21, and then the start */
		sscanf(end + 1,
			" %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			"%*s %llu",
			&start);
	if (*boot || start || *space)
		snprintf(text, sizeof(text), "%s %llu %s", boot, start, space);
	return text;
}

static int send_welcome(int fd, const struct welcome *welcome)
{
	cleanup_wire_writer struct wire_writer writer = {0};

	welcome_encode(&writer, welcome);
	return writer.error ? writer.error : write_all(fd, writer.buffer.data, writer.buffer.size);
}

static int refuse(int fd, const struct hello *hello, int error, const char *reason)
{
	struct welcome welcome = {.version = PROTOCOL_VERSION, .error = error, .reason = reason};

	memcpy(welcome.nonce, hello->nonce, NONCE_BYTES);
	send_welcome(fd, &welcome);
	return 1;
}

/* ---- The session's socket --------------------------------------------------------- */

/* An abstract name: nothing is left behind in any directory.  Names are visible to all, so
 * both ends check the other's uid, and the session the token. */
static socklen_t socket_name(const uint8_t id[TOKEN_BYTES], struct sockaddr_un *address)
{
	char *out = address->sun_path + 1;

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	out += sprintf(out, "isthmus-");
	for (int i = 0; i < TOKEN_BYTES; i++)
		out += sprintf(out, "%02x", id[i]);
	return (socklen_t)(out - (char *)address);
}

static bool peer_is_us(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static int listen_for_fronts(struct session *session)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	socklen_t size = socket_name(session->id, &address);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 8) < 0)
		return -errno;
	session->listen_fd = steal_fd(&fd);
	return 0;
}

union descriptors {
	struct cmsghdr header;
	char room[CMSG_SPACE(2 * sizeof(int))];
};

static int send_descriptors(int fd, const void *data, size_t size)
{
	const int descriptors[2] = {STDIN_FILENO, STDOUT_FILENO};
	union descriptors control = {0};
	struct iovec vector = {(void *)(uintptr_t)data, size};
	struct msghdr message = {.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(descriptors));
	memcpy(CMSG_DATA(&control.header), descriptors, sizeof(descriptors));
	return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Two of them, or none is kept. */
static int take_descriptors(const struct cmsghdr *header, int descriptors[2])
{
	size_t count = 0;

	if (header->cmsg_type == SCM_RIGHTS)
		count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
	if (count == 1)
		close(descriptors[0]);
	return count == 2 ? 0 : -EPROTO;
}

static ssize_t receive_descriptors(int fd, void *data, size_t size, int descriptors[2])
{
	union descriptors control = {0};
	struct iovec vector = {data, size};
	struct msghdr message = {.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	ssize_t n;
	int r;

	if (poll(&ready, 1, HANDOVER_TIMEOUT_MS) <= 0)
		return -ETIMEDOUT;
	n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	r = take_descriptors(&control.header, descriptors);
	return r < 0 ? r : n;
}

/* ---- The session ------------------------------------------------------------------- */

static void wake(struct session *session)
{
	uint64_t one = 1;

	if (write(session->event_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort();
}

static void connection_lost(void *user, unsigned channel)
{
	struct session *session = user;

	session->channels[channel].lost = true;
	wake(session);
}

static void client_said_goodbye(void *user)
{
	struct session *session = user;

	session->goodbye = true;
	wake(session);
}

static void detach(struct session *session, struct channel *channel)
{
	lane_detach(channel->lane);
	server_forget_content(session->server, (unsigned)(channel - session->channels));
	if (channel->front_fd >= 0)
		close(channel->front_fd);
	channel->front_fd = -1;
	channel->attached = false;
	if (channel == session->channels)
		session->detached_ms = clock_now_ms();
	else
		lane_clear(channel->lane);
}

static void detach_lost(struct session *session)
{
	for (size_t i = 0; i < CHANNELS_MAX; i++) {
		struct channel *channel = &session->channels[i];

		if (channel->attached &&
			(channel->lost || lane_silence_ms(channel->lane) > SILENCE_MAX_MS))
			detach(session, channel);
	}
}

/* Takes ownership of the descriptors. */
static int attach(struct session *session, const struct hello *hello, int in_fd, int out_fd,
	int front_fd, bool resumed)
{
	struct channel *channel = &session->channels[hello->channel];
	struct lane *lane = channel->lane;
	struct welcome welcome = {.version = PROTOCOL_VERSION,
		.reason = "",
		.resumed = resumed,
		.channels = CHANNELS_MAX,
		.capabilities = session->capabilities,
		.owner_uid = session->owner_uid,
		.owner_gid = session->owner_gid,
		.identity = machine_identity(),
		.takes_compressed = compress_is_built()};
	int r;

	detach(session, channel);
	welcome.received = lane_received_count(lane);
	memcpy(welcome.nonce, hello->nonce, NONCE_BYTES);
	memcpy(welcome.session, session->id, TOKEN_BYTES);
	memcpy(welcome.token, session->token, TOKEN_BYTES);
	channel->front_fd = front_fd;
	channel->lost = false;
	r = send_welcome(out_fd, &welcome);
	if (r < 0) {
		close(in_fd);
		close(out_fd);
	} else {
		lane_set_compression(lane, hello->compression);
		/* A new session has sent nothing, whatever an earlier one had. */
		r = lane_attach(lane, in_fd, out_fd, resumed ? hello->received : 0);
	}
	channel->attached = r == 0;
	if (r < 0)
		detach(session, channel);
	return r;
}

static bool token_matches(const struct session *session, const struct hello *hello)
{
	uint8_t difference = 0;

	for (int i = 0; i < TOKEN_BYTES; i++)
		difference |= (uint8_t)(session->token[i] ^ hello->token[i]);
	return difference == 0;
}

static void accept_front(struct session *session)
{
	cleanup_fd int fd = accept4(session->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	uint8_t data[HELLO_MAX_BYTES];
	int descriptors[2];
	struct hello hello;
	ssize_t n;

	if (fd < 0 || !peer_is_us(fd))
		return;
	n = receive_descriptors(fd, data, sizeof(data), descriptors);
	if (n < 0)
		return;
	/* The front that hears nothing begins a session of its own. */
	send(fd, "", 1, MSG_NOSIGNAL);
	if (n < NONCE_BYTES ||
		hello_decode(data, data + NONCE_BYTES, (size_t)n - NONCE_BYTES, &hello) < 0) {
		close(descriptors[0]);
		close(descriptors[1]);
	} else if (hello.ends) {
		/* Whose token is wrong gets a session of his own all the same. */
		session->goodbye = token_matches(session, &hello);
		if (session->goodbye)
			session->ended_fd = steal_fd(&fd);
		close(descriptors[0]);
		close(descriptors[1]);
	} else if (!token_matches(session, &hello)) {
		refuse(descriptors[1], &hello, -EACCES, "the session belongs to another client");
		close(descriptors[0]);
		close(descriptors[1]);
	} else if (!lane_can_resume(session->channels[0].lane, hello.received) &&
		   hello.channel == 0) {
		refuse(descriptors[1], &hello, -ESTALE, "the session has not sent that yet");
		close(descriptors[0]);
		close(descriptors[1]);
	} else {
		attach(session, &hello, descriptors[0], descriptors[1], steal_fd(&fd), true);
	}
}

static bool is_over(const struct session *session)
{
	return session->goodbye ||
	       (!session->channels[0].attached &&
		       clock_now_ms() - session->detached_ms >= session->linger_ms);
}

static void serve(struct session *session)
{
	while (!is_over(session)) {
		struct pollfd ready[2] = {{.fd = session->listen_fd, .events = POLLIN},
			{.fd = session->event_fd, .events = POLLIN}};
		uint64_t count;

		poll(ready, 2, TICK_MS);
		if (ready[1].revents && read(session->event_fd, &count, sizeof(count)) < 0)
			continue;
		detach_lost(session);
		if (ready[0].revents)
			accept_front(session);
		server_tick(session->server);
	}
	/* Whoever comes from now on is told at once that there is no such session. */
	close(session->listen_fd);
	for (size_t i = 0; i < CHANNELS_MAX; i++)
		detach(session, &session->channels[i]);
	server_free(session->server);
}

static int workspace_at(int root_fd, struct session *session)
{
	static const struct server_callbacks callbacks = {
		.lost = connection_lost, .goodbye = client_said_goodbye};
	struct workspace_status status;
	struct workspace *w;
	int r = local_workspace_new(root_fd, NULL, &w);

	if (r < 0) {
		close(root_fd);
		return r;
	}
	workspace_status(w, &status);
	session->capabilities = status.capabilities | WORKSPACE_CAN_PREPARE | WORKSPACE_CAN_DETACH;
	session->owner_uid = status.owner_uid;
	session->owner_gid = status.owner_gid;
	r = server_new(w, &callbacks, session, &session->server);
	if (r < 0)
		workspace_free(w);
	for (unsigned i = 0; i < CHANNELS_MAX && r == 0; i++)
		session->channels[i] =
			(struct channel){.lane = server_lane(session->server, i), .front_fd = -1};
	return r;
}

/* In the child: from here on nothing of the connection's process is needed. */
static int run_session(struct session *session, const struct hello *hello, int root_fd, int in_fd,
	int out_fd, int front_fd)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int r;

	for (int fd = 0; fd <= 2; fd++)
		if (null_fd >= 0)
			dup2(null_fd, fd);
	setsid();
	signal(SIGHUP, SIG_IGN);
	if (chdir("/") < 0)
		return 1;
	session->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = session->event_fd < 0 ? -errno : workspace_at(root_fd, session);
	if (r < 0)
		return refuse(out_fd, hello, r, "cannot serve the directory");
	attach(session, hello, in_fd, out_fd, front_fd, false);
	serve(session);
	return 0;
}

/* ---- The process of one connection ---------------------------------------------------- */

/* `ends`: it should not be long. */
static void wait_for_end(int fd, bool ends)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	char byte;

	if (ends && poll(&ready, 1, HANDOVER_TIMEOUT_MS) == 0)
		return;
	while (read(fd, &byte, 1) < 0 && errno == EINTR)
		continue;
}

/* A session that is just ending never takes the connection. */
static int wait_until_taken(int fd)
{
	char byte;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -ECONNRESET;
}

/* Hands the connection to its session, and waits until that has done with it.  Negative: there is
 * no such session. */
static int resume(const struct hello *hello, const struct buffer *body)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cleanup_buffer struct buffer packet = {0};
	struct sockaddr_un address;
	socklen_t size = socket_name(hello->session, &address);
	int r;

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, size) < 0)
		return -errno;
	if (!peer_is_us(fd))
		return -EACCES;
	r = buffer_append(&packet, hello->nonce, NONCE_BYTES);
	if (r == 0)
		r = buffer_append(&packet, body->data, body->size);
	if (r == 0)
		r = send_descriptors(fd, packet.data, packet.size);
	if (r == 0)
		r = wait_until_taken(fd);
	if (r == 0)
		wait_for_end(fd, hello->ends);
	return r;
}

/* "/~/src" is below the home directory, as in an ssh:// URI of git; "" is the directory that we
 * were started in. */
static int open_root(const char *root)
{
	const char *home = getenv("HOME");
	cleanup_free char *path = NULL;

	if (root[0] == '/' && root[1] == '~' && (!root[2] || root[2] == '/')) {
		if (asprintf(&path, "%s%s", home ? home : "", root + 2) < 0)
			return -ENOMEM;
		root = *path ? path : "/";
	}
	return local_open_root(*root ? root : ".");
}

/* The first process of many containers is no init: what it inherits stays a zombie.  So the session
 * is waited for: all its life by a process that an engine has put into the container, which has no
 * parent there; elsewhere for as long as one takes that is ending. */
static void reap(pid_t session)
{
	const struct timespec pause = {.tv_nsec = 5000000};

	for (int fd = 0; fd <= 2; fd++)
		close(fd);
	if (getppid() == 0) {
		signal(SIGHUP, SIG_IGN);
		while (waitpid(session, NULL, 0) < 0 && errno == EINTR)
			continue;
		return;
	}
	for (int ms = 0; ms < REAP_MS && waitpid(session, NULL, WNOHANG) == 0; ms += 5)
		nanosleep(&pause, NULL);
}

static int start_session(const struct hello *hello)
{
	struct session session = {.listen_fd = -1, .event_fd = -1, .ended_fd = -1};
	int root_fd = open_root(hello->root);
	int front[2], in_fd, out_fd, r;
	char reason[512];
	pid_t pid;

	if (root_fd < 0) {
		snprintf(reason, sizeof(reason), "cannot open the directory \"%.400s\": %s",
			hello->root, strerror(-root_fd));
		return refuse(STDOUT_FILENO, hello, root_fd, reason);
	}
	session.linger_ms =
		(int64_t)(hello->linger_seconds < LINGER_MAX_SECONDS ? hello->linger_seconds
								     : LINGER_MAX_SECONDS) *
		1000;
	if (getrandom(session.id, TOKEN_BYTES, 0) != TOKEN_BYTES ||
		getrandom(session.token, TOKEN_BYTES, 0) != TOKEN_BYTES)
		return refuse(STDOUT_FILENO, hello, -EIO, "no random numbers");
	r = listen_for_fronts(&session);
	if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, front) < 0)
		r = -errno;
	in_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	out_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (r < 0 || in_fd < 0 || out_fd < 0)
		return refuse(STDOUT_FILENO, hello, r < 0 ? r : -EMFILE, "no descriptors left");
	pid = fork();
	if (pid < 0)
		return refuse(STDOUT_FILENO, hello, -errno, "cannot start a process");
	if (pid == 0) {
		close(front[0]);
		_exit(run_session(&session, hello, root_fd, in_fd, out_fd, front[1]));
	}
	close(in_fd);
	close(out_fd);
	close(front[1]);
	close(session.listen_fd);
	wait_for_end(front[0], false);
	reap(pid);
	return 0;
}

static int serve_connection(void)
{
	static const uint8_t no_session[TOKEN_BYTES];
	cleanup_buffer struct buffer body = {0}, noise = {0};
	uint8_t nonce[NONCE_BYTES];
	struct hello hello;
	int r = hello_receive(STDIN_FILENO, false, NULL, HELLO_TIMEOUT_MS, nonce, &body, &noise);

	if (r == 0)
		r = hello_decode(nonce, body.data, body.size, &hello);
	if (r < 0) {
		log_error("no client on standard input: %s", strerror(-r));
		return 1;
	}
	if (hello.version != PROTOCOL_VERSION)
		return refuse(STDOUT_FILENO, &hello, -EPROTO,
			"the helper speaks another version of the protocol");
	if (memcmp(hello.session, no_session, TOKEN_BYTES) != 0 && resume(&hello, &body) == 0 &&
		!hello.ends)
		return 0;
	if (hello.channel > 0)
		return refuse(STDOUT_FILENO, &hello, -ENOTCONN, "there is no such session");
	return start_session(&hello);
}

/* Leaves nothing behind in a place that is to stay as it is, whatever becomes of us. */
static void forget_file(void)
{
	char path[4096], *name;
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (length <= 0)
		return;
	path[length] = '\0';
	name = strrchr(path, '/');
	if (!name || strncmp(name + 1, "isthmus-helper-", strlen("isthmus-helper-")) != 0)
		return;
	unlink(path);
	*name = '\0';
	name = strrchr(path, '/');
	if (name && strncmp(name + 1, "isthmus", strlen("isthmus")) == 0)
		rmdir(path); /* unless others use it */
}

/* --listen ADDRESS [--allow CID]... */
static int listen_command(int argc, char **argv)
{
	uint32_t peers[PEERS_MAX];
	struct listen_options options = {.peers = peers};

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--listen") == 0)
			options.address = argv[i + 1];
		else if (strcmp(argv[i], "--allow") == 0 && options.peer_count < PEERS_MAX)
			peers[options.peer_count++] = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else
			options.address = NULL;
	}
	if (!options.address || argc % 2 == 0) {
		log_error("usage: isthmus-helper --listen vsock:PORT|unix:PATH [--allow CID]...");
		return 2;
	}
	return helper_listen(&options, serve_connection);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--check") == 0) {
		puts("isthmus-helper " ISTHMUS_VERSION);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], EXAMINE_OPTION) == 0)
		return examine();
	if (argc == 2 && strcmp(argv[1], "--forget") == 0) {
		forget_file();
		argc--;
	}
	if (argc > 1 && strcmp(argv[1], "--listen") != 0 && strcmp(argv[1], "--allow") != 0) {
		fprintf(stderr, "isthmus-helper is run by \"isthmus mount\" at the workspace, not "
				"by hand\n");
		return 2;
	}
	log_set_output(2, "isthmus-helper: ");
	signal(SIGPIPE, SIG_IGN);
	process_keep_umask();
	process_inherit_environment();
	file_limit_raise();
	return argc == 1 ? serve_connection() : listen_command(argc, argv);
}
