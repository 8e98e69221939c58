/*
 * tests/bench/linksim.c - a link with a round-trip time, a rate, and faults.
 *
 *     ssh -o ProxyCommand='linksim --rtt-ms 20 %h %p' box
 *     linksim --rtt-ms 20 --listen 2200 127.0.0.1 22
 *
 * Relays its standard input and output (or every connection to the port it listens on) to
 * HOST PORT.  Every byte is held for half the round-trip time, in order, and leaves no
 * faster than the rate; each direction has its own queue.  The state file, when given, is
 * read every 10 ms and rules all connections, also new ones:
 *
 *     up     as ever (also when the file is missing)
 *     slow   the round-trip time is a second and a half more
 *     stall  nothing moves and nobody is told; what was under way arrives later
 *     lose   half-open: what this side sends vanishes; what the far end sends arrives
 *     deaf   half-open the other way: what the far end sends vanishes
 *     reset  connections die with a TCP reset, new ones at once
 *
 * Exit code: 0 both ends closed; 1 the near end vanished; 2 usage; 3 reset.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	READ_BYTES = 64 * 1024,
	QUEUE_BYTES = 64 << 20, /* power of two; rate x delay must fit */
	CHUNKS_MAX = 1 << 16,   /* power of two */
	STATE_POLL_NS = 10 * 1000 * 1000,
	SLOW_NS = 750 * 1000 * 1000, /* either way */
};

enum link_mode { LINK_UP, LINK_SLOW, LINK_STALL, LINK_LOSE, LINK_DEAF, LINK_RESET };

struct options {
	uint64_t delay_ns;
	uint64_t rate_bits; /* per second; 0: no bound */
	const char *state_path;
	const char *listen_port;
	unsigned die_percent; /* of the connections, somewhere in their first MiB */
	const char *host, *port;
};

/* Bytes that arrived together and may leave together. */
struct chunk {
	uint64_t due_ns;
	size_t size;
};

struct direction {
	int from, to;
	uint8_t *bytes; /* ring of QUEUE_BYTES */
	struct chunk *chunks;
	uint64_t head, tail; /* of bytes, ever growing */
	uint64_t chunk_head, chunk_tail;
	uint64_t link_free_ns; /* when the last byte has left the sender */
	bool ended;            /* no more comes in */
	bool closed;           /* and that was passed on */
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "linksim: %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool queue_full(const struct direction *d)
{
	return d->tail - d->head > QUEUE_BYTES - READ_BYTES ||
	       d->chunk_tail - d->chunk_head == CHUNKS_MAX;
}

static struct chunk *queue_head(const struct direction *d)
{
	return d->chunk_head == d->chunk_tail ? NULL : &d->chunks[d->chunk_head % CHUNKS_MAX];
}

static void direction_init(struct direction *d, int from, int to)
{
	*d = (struct direction){.from = from, .to = to};
	d->bytes = malloc(QUEUE_BYTES);
	d->chunks = calloc(CHUNKS_MAX, sizeof(*d->chunks));
	if (!d->bytes || !d->chunks)
		die("memory");
	if (fcntl(from, F_SETFL, fcntl(from, F_GETFL) | O_NONBLOCK) < 0 ||
		fcntl(to, F_SETFL, fcntl(to, F_GETFL) | O_NONBLOCK) < 0)
		die("fcntl");
}

static void direction_done(struct direction *d)
{
	free(d->bytes);
	free(d->chunks);
}

static void stamp(struct direction *d, const struct options *o, bool slow, size_t size)
{
	uint64_t now = now_ns(), delay_ns = o->delay_ns + (slow ? SLOW_NS : 0);

	if (d->link_free_ns < now)
		d->link_free_ns = now;
	if (o->rate_bits)
		d->link_free_ns += (uint64_t)((double)size * 8e9 / (double)o->rate_bits);
	d->chunks[d->chunk_tail++ % CHUNKS_MAX] =
		(struct chunk){.due_ns = d->link_free_ns + delay_ns, .size = size};
}

/* Takes in what is there, which is lost in the mode `loses`; false when the connection broke. */
static bool take_in(
	struct direction *d, const struct options *o, enum link_mode mode, enum link_mode loses)
{
	size_t at = d->tail % QUEUE_BYTES;
	size_t room = QUEUE_BYTES - at < READ_BYTES ? QUEUE_BYTES - at : READ_BYTES;
	ssize_t n = read(d->from, d->bytes + at, room);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		d->ended = true;
	else if (mode != loses) {
		d->tail += (uint64_t)n;
		stamp(d, o, mode == LINK_SLOW, (size_t)n);
	}
	return true;
}

/* Sends what is due; false when the connection broke. */
static bool send_due(struct direction *d)
{
	struct chunk *c = queue_head(d);
	size_t at, size;
	ssize_t n;

	if (!c || c->due_ns > now_ns())
		return true;
	at = d->head % QUEUE_BYTES;
	size = QUEUE_BYTES - at < c->size ? QUEUE_BYTES - at : c->size;
	n = write(d->to, d->bytes + at, size);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	d->head += (uint64_t)n;
	c->size -= (size_t)n;
	if (!c->size)
		d->chunk_head++;
	return true;
}

static void pass_end_on(struct direction *d)
{
	if (!d->ended || d->closed || queue_head(d))
		return;
	if (shutdown(d->to, SHUT_WR) < 0)
		close(d->to); /* a pipe */
	d->closed = true;
}

static enum link_mode read_state(const struct options *o)
{
	static const char *const names[] = {"up", "slow", "stall", "lose", "deaf", "reset"};
	char word[16] = "";
	FILE *f = o->state_path ? fopen(o->state_path, "re") : NULL;

	if (!f)
		return LINK_UP;
	if (fscanf(f, "%15s", word) != 1)
		word[0] = '\0';
	fclose(f);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(word, names[i]) == 0)
			return (enum link_mode)i;
	return LINK_UP;
}

static int reset(int sock)
{
	struct linger hard = {.l_onoff = 1};

	setsockopt(sock, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(sock);
	return 3;
}

static short wanted_in(const struct direction *d)
{
	return !d->ended && !queue_full(d) ? POLLIN : 0;
}

static short wanted_out(const struct direction *d, uint64_t now, uint64_t *wait_ns)
{
	struct chunk *c = queue_head(d);

	if (!c)
		return 0;
	if (c->due_ns <= now)
		return POLLOUT;
	if (c->due_ns - now < *wait_ns)
		*wait_ns = c->due_ns - now;
	return 0;
}

/* Waits until something can move; fills `ready` in the order up.from, up.to, down.from,
 * down.to. */
static void wait_ready(const struct direction *up, const struct direction *down,
	enum link_mode mode, bool has_state, short ready[4])
{
	uint64_t now = now_ns(), wait_ns = has_state ? STATE_POLL_NS : UINT64_MAX;
	struct pollfd fds[4] = {
		{.fd = up->ended ? -1 : up->from, .events = wanted_in(up)},
		{.fd = up->to, .events = wanted_out(up, now, &wait_ns)},
		{.fd = down->ended ? -1 : down->from, .events = wanted_in(down)},
		{.fd = down->to, .events = wanted_out(down, now, &wait_ns)},
	};
	struct timespec timeout;

	if (mode == LINK_STALL) {
		/* Only whether the near end is gone. */
		fds[0].events = 0;
		fds[1].fd = fds[2].fd = fds[3].fd = -1;
		wait_ns = STATE_POLL_NS;
	}
	for (int i = mode == LINK_STALL ? 1 : 0; i < 4; i++)
		if (!fds[i].events)
			fds[i].fd = -1; /* else a hang-up would be reported without end */
	timeout = (struct timespec){
		.tv_sec = (time_t)(wait_ns / 1000000000u),
		.tv_nsec = (long)(wait_ns % 1000000000u),
	};
	if (ppoll(fds, 4, wait_ns == UINT64_MAX ? NULL : &timeout, NULL) < 0 && errno != EINTR)
		die("poll");
	for (int i = 0; i < 4; i++)
		ready[i] = fds[i].revents;
}

static bool both_closed(const struct direction *up, const struct direction *down)
{
	return up->closed && down->closed;
}

static int relay(const struct options *o, int near_in, int near_out, int far)
{
	struct direction up, down;
	uint64_t dies_at = UINT64_MAX;
	int result = -1;

	srandom((unsigned)getpid() ^ (unsigned)now_ns());
	if ((unsigned)(random() % 100) < o->die_percent)
		dies_at = (uint64_t)(random() % (1 << 20));
	direction_init(&up, near_in, far);
	direction_init(&down, far, near_out);
	while (result < 0) {
		enum link_mode mode = read_state(o);
		short ready[4];

		if (mode == LINK_RESET || up.head + down.head > dies_at) {
			result = reset(far);
			break;
		}
		wait_ready(&up, &down, mode, o->state_path != NULL, ready);
		if (mode == LINK_STALL) {
			if (ready[0] & (POLLHUP | POLLERR))
				result = 1;
			continue;
		}
		if (ready[0] && !take_in(&up, o, mode, LINK_LOSE))
			result = 1;
		if (ready[2] && !take_in(&down, o, mode, LINK_DEAF))
			result = 3;
		if ((ready[1] && !send_due(&up)) || (ready[3] && !send_due(&down)))
			result = result < 0 ? 1 : result;
		pass_end_on(&up);
		pass_end_on(&down);
		/* The far end has said all: what is still to be sent has no reader. */
		if (both_closed(&up, &down) || (down.closed && near_in != near_out))
			result = result < 0 ? 0 : result;
	}
	direction_done(&up);
	direction_done(&down);
	return result;
}

static int connect_far(const struct options *o)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	int one = 1, fd = -1, r;

	r = getaddrinfo(o->host, o->port, &hints, &list);
	if (r) {
		fprintf(stderr, "linksim: %s port %s: %s\n", o->host, o->port, gai_strerror(r));
		exit(1);
	}
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	if (fd < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static int listen_near(const char *port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
		bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 64) < 0)
		die("listen");
	return fd;
}

/* One child a connection. */
static int serve(const struct options *o)
{
	int one = 1, listener = listen_near(o->listen_port);

	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
			die("accept");
		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (fork() == 0) {
			int result;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(listener);
			result = relay(o, fd, fd, connect_far(o));
			_exit(result == 3 ? reset(fd) : result);
		}
		close(fd);
	}
}

static void usage(void)
{
	fputs("usage: linksim [--rtt-ms MS] [--rate-mbit N] [--state FILE] [--die PERCENT]\n"
	      "               [--listen PORT] HOST PORT\n",
		stderr);
	exit(2);
}

static void parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"rtt-ms", required_argument, NULL, 'r'},
		{"rate-mbit", required_argument, NULL, 'b'},
		{"state", required_argument, NULL, 's'},
		{"die", required_argument, NULL, 'd'},
		{"listen", required_argument, NULL, 'l'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'r':
			o->delay_ns = (uint64_t)(atof(optarg) * 1e6 / 2);
			break;
		case 'b':
			o->rate_bits = (uint64_t)(atof(optarg) * 1e6);
			break;
		case 's':
			o->state_path = optarg;
			break;
		case 'd':
			o->die_percent = (unsigned)atoi(optarg);
			break;
		case 'l':
			o->listen_port = optarg;
			break;
		default:
			usage();
		}
	}
	if (argc - optind != 2)
		usage();
	o->host = argv[optind];
	o->port = argv[optind + 1];
}

int main(int argc, char **argv)
{
	struct options options = {0};

	parse(argc, argv, &options);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_TIMERSLACK, 1);
	if (options.listen_port)
		return serve(&options);
	return relay(&options, STDIN_FILENO, STDOUT_FILENO, connect_far(&options));
}
