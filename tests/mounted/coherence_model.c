/*
 * coherence_model MOUNT WORKSPACE [OPERATIONS [SEED [LIMIT_MS]]]: random work through a mount and
 * behind its back at once, compared with a model of both.
 *
 * Two processes change the same directories, one through the mount and one at the workspace; each
 * name belongs to one of them at a time, and every few hundred operations they change over.  What
 * a name has been, and from when to when, is kept in shared memory.  Whoever looks must see
 *   - at a name of its own: exactly what it did last, at once;
 *   - through the mount, at a name of the other: what is there, or what was there until LIMIT_MS
 *     ago;
 *   - at the workspace, at a name of the one on the mount: what was there when it looked.
 * At each change-over the mount must come to show what is there within LIMIT_MS, and stay so.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "tests/mounted/random.h"

enum {
	DIRECTORIES = 3,
	NAMES = 8, /* in each */
	SLOTS = DIRECTORIES * NAMES,
	STATES = 1024, /* of a name that are remembered */
	ROUND = 300,
	SIZE_MAX_BYTES = 3000,
	HEADER_BYTES = 16,
};
#define PIECES UINT64_MAX /* of several contents in one file */

enum kind { ABSENT, REGULAR, LINK, DIRECTORY };

/* What a name was from some moment between `begin` and `end` on. */
struct state {
	enum kind kind;
	uint64_t content; /* its number; 0: empty */
	unsigned size;
	mode_t mode;
	int64_t begin_ns, end_ns;
};

struct slot {
	pthread_mutex_t lock;
	unsigned long count;
	struct state states[STATES]; /* the last ones, in turn */
};

static struct shared {
	pthread_barrier_t barrier;
	struct slot slots[SLOTS];
	_Atomic uint64_t contents;
	_Atomic int64_t slowest_ns;
	_Atomic bool failed;
} * shared;

static const char *roots[2];
static int64_t limit_ns;
static uint64_t seed;
static unsigned long step;
static int me; /* 0: through the mount */
static unsigned round_number;

static int64_t now_ns(void)
{
	return (int64_t)clock_now_ns();
}

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr,
		"coherence_model: seed %llu, %s, round %u, step %lu: ", (unsigned long long)seed,
		me ? "workspace" : "mount", round_number, step);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	shared->failed = true;
	_exit(1);
}

/* ---- The model ------------------------------------------------------------------- */

static struct state *state_at(struct slot *slot, unsigned long number)
{
	return &slot->states[number % STATES];
}

static struct state current(unsigned index)
{
	struct slot *slot = &shared->slots[index];
	struct state state;

	pthread_mutex_lock(&slot->lock);
	state = *state_at(slot, slot->count - 1);
	pthread_mutex_unlock(&slot->lock);
	return state;
}

/* The name is about to become that; settled() tells when it is so for certain. */
static void becomes(unsigned index, struct state state)
{
	struct slot *slot = &shared->slots[index];

	state.begin_ns = now_ns();
	state.end_ns = INT64_MAX;
	pthread_mutex_lock(&slot->lock);
	*state_at(slot, slot->count++) = state;
	pthread_mutex_unlock(&slot->lock);
}

static void settled(unsigned index)
{
	struct slot *slot = &shared->slots[index];
	int64_t now = now_ns();

	pthread_mutex_lock(&slot->lock);
	for (unsigned long i = slot->count;
		i > 0 && i + STATES > slot->count && state_at(slot, i - 1)->end_ns == INT64_MAX;
		i--)
		state_at(slot, i - 1)->end_ns = now;
	pthread_mutex_unlock(&slot->lock);
}

/* What somebody saw of a name. */
struct sight {
	enum kind kind;
	bool has_size, has_mode, has_content;
	unsigned size;
	mode_t mode;
	uint64_t content;
	int64_t begin_ns;
};

static bool fits(const struct sight *sight, const struct state *state)
{
	return sight->kind == state->kind && (!sight->has_size || sight->size == state->size) &&
	       (!sight->has_mode || sight->mode == state->mode) &&
	       (!sight->has_content || sight->content == state->content);
}

/* May that have been seen between sight->begin_ns and now, with so much delay? */
static bool is_allowed(unsigned index, const struct sight *sight, int64_t delay_ns)
{
	struct slot *slot = &shared->slots[index];
	int64_t now = now_ns();
	bool found = false;

	pthread_mutex_lock(&slot->lock);
	for (unsigned long i = slot->count; i > 0 && !found; i--) {
		const struct state *state = state_at(slot, i - 1);

		if (i + STATES <= slot->count) {
			found = true; /* too long ago to say */
			break;
		}
		if (state->begin_ns > now)
			continue;
		found = fits(sight, state);
		if (state->end_ns != INT64_MAX && state->end_ns + delay_ns < sight->begin_ns)
			break; /* it had taken effect by then: nothing older */
	}
	pthread_mutex_unlock(&slot->lock);
	return found;
}

static void path_of(int side, unsigned index, char path[static 256])
{
	snprintf(path, 256, "%s/d%u/n%u", roots[side], index / NAMES, index % NAMES);
}

static const char *const kind_names[] = {"nothing", "a file", "a link", "a directory"};

static void print_states(unsigned index, int64_t begin_ns)
{
	const struct slot *slot = &shared->slots[index];

	for (unsigned long i = slot->count > 6 ? slot->count - 6 : 0; i < slot->count; i++) {
		const struct state *state = &slot->states[i % STATES];

		fprintf(stderr, "  %s (size %u, mode %o, content %llu) from %.1f to %.1f ms\n",
			kind_names[state->kind], state->size, state->mode,
			(unsigned long long)state->content,
			(double)(state->begin_ns - begin_ns) / 1e6,
			state->end_ns == INT64_MAX ? 0.0
						   : (double)(state->end_ns - begin_ns) / 1e6);
	}
}

static void expect_sight(
	unsigned index, const struct sight *sight, int64_t delay_ns, const char *how)
{
	if (is_allowed(index, sight, delay_ns))
		return;
	print_states(index, sight->begin_ns);
	fail("d%u/n%u by %s is %s (size %d, mode %o, content %lld); it became what is above, "
	     "in the time from the beginning of the look",
		index / NAMES, index % NAMES, how, kind_names[sight->kind],
		sight->has_size ? (int)sight->size : -1, sight->has_mode ? sight->mode : 0,
		sight->has_content ? (long long)sight->content : -1);
}

/* ---- Looking ----------------------------------------------------------------------- */

static void sight_of_stat(struct sight *sight, const struct stat *st)
{
	sight->kind = S_ISDIR(st->st_mode) ? DIRECTORY : S_ISLNK(st->st_mode) ? LINK : REGULAR;
	sight->has_mode = sight->has_size = sight->kind == REGULAR;
	sight->size = (unsigned)st->st_size;
	sight->mode = st->st_mode & 07777;
}

static struct sight look_stat(const char *path)
{
	struct sight sight = {.begin_ns = now_ns()};
	struct stat st;

	if (lstat(path, &st) == 0)
		sight_of_stat(&sight, &st);
	else if (errno != ENOENT)
		fail("lstat \"%s\": %s", path, strerror(errno));
	return sight;
}

static uint64_t number_in(const char *text, ssize_t size)
{
	char header[HEADER_BYTES + 1] = "";

	if (size < HEADER_BYTES)
		return 0;
	memcpy(header, text, HEADER_BYTES);
	return strtoull(header, NULL, 16);
}

static struct sight look_content(const char *path)
{
	struct sight sight = {.begin_ns = now_ns()};
	char data[SIZE_MAX_BYTES + 1];
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t got;

	if (fd < 0 && errno == ELOOP)
		sight.kind = LINK;
	else if (fd < 0 && errno != ENOENT)
		fail("open \"%s\": %s", path, strerror(errno));
	if (fd < 0)
		return sight;
	sight.kind = REGULAR;
	got = read(fd, data, sizeof(data));
	if (got < 0 && errno == EISDIR)
		sight.kind = DIRECTORY;
	else if (got < 0)
		fail("read \"%s\": %s", path, strerror(errno));
	close(fd);
	if (sight.kind != REGULAR)
		return sight;
	sight.has_size = sight.has_content = true;
	sight.size = (unsigned)got;
	sight.content = number_in(data, got);
	for (ssize_t i = HEADER_BYTES; i < got; i++)
		if (data[i] != (char)sight.content)
			sight.content = PIECES;
	return sight;
}

static struct sight look_link(const char *path)
{
	struct sight sight = {.begin_ns = now_ns()};
	char target[64] = "";
	ssize_t got = readlink(path, target, sizeof(target) - 1);
	struct stat st;

	if (got >= 0) {
		sight.kind = LINK;
		sight.has_content = true;
		sight.content = number_in(target, got);
	} else if (errno == EINVAL) { /* another kind: which? */
		if (lstat(path, &st) == 0)
			sight_of_stat(&sight, &st);
	} else if (errno != ENOENT) {
		fail("readlink \"%s\": %s", path, strerror(errno));
	}
	return sight;
}

/* How much later than the other's change we may see it. */
static int64_t delay_at(int side, unsigned index)
{
	bool mine = (index + round_number) % 2 == (unsigned)me;

	return side == 0 && !mine ? limit_ns : 0;
}

static struct sight (*const looks[])(const char *) = {look_stat, look_content, look_link};
static const char *const look_names[] = {"stat", "reading", "readlink"};

static void look_at(int side, unsigned index, unsigned how)
{
	int64_t delay_ns = delay_at(side, index);
	struct sight sight;
	char path[256];

	path_of(side, index, path);
	sight = looks[how](path);
	/* While it changes, an old name may lead to a file that has a new one and is written to,
	 * and what is rewritten in place is seen in pieces. */
	for (int64_t start_ns = sight.begin_ns;
		sight.kind == REGULAR && now_ns() - start_ns < delay_ns &&
		!is_allowed(index, &sight, delay_ns);
		sight = looks[how](path))
		usleep(1000);
	if (sight.content == PIECES)
		sight = looks[how](path);
	expect_sight(index, &sight, delay_ns, look_names[how]);
}

static void look_at_listing(int side, unsigned directory)
{
	struct sight sights[NAMES] = {0};
	cleanup_dir DIR *stream = NULL;
	int64_t begin_ns = now_ns();
	char path[256];

	snprintf(path, sizeof(path), "%s/d%u", roots[side], directory);
	stream = opendir(path);
	if (!stream)
		fail("opendir \"%s\": %s", path, strerror(errno));
	for (const struct dirent *d; (d = readdir(stream));)
		if (d->d_name[0] == 'n')
			sights[strtoul(d->d_name + 1, NULL, 10) % NAMES].kind =
				d->d_type == DT_REG   ? REGULAR
				: d->d_type == DT_LNK ? LINK
						      : DIRECTORY;
	for (unsigned i = 0; i < NAMES; i++) {
		sights[i].begin_ns = begin_ns;
		expect_sight(directory * NAMES + i, &sights[i],
			delay_at(side, directory * NAMES + i), "listing");
	}
}

/* ---- Changing ----------------------------------------------------------------------- */

static void must(int result, const char *what, const char *path)
{
	if (result < 0)
		fail("%s \"%s\": %s", what, path, strerror(errno));
}

static void fill(char *data, uint64_t content, unsigned size)
{
	memset(data, (char)content, size);
	snprintf(data, HEADER_BYTES + 1, "%0*llx", HEADER_BYTES, (unsigned long long)content);
	data[HEADER_BYTES] = (char)content;
}

static void write_content(int fd, uint64_t content, unsigned size, const char *path)
{
	char data[SIZE_MAX_BYTES + 1];

	fill(data, content, size);
	if (write(fd, data, size) != (ssize_t)size)
		fail("write \"%s\": %s", path, strerror(errno));
}

static struct state new_file(mode_t mode)
{
	return (struct state){.kind = REGULAR,
		.content = ++shared->contents,
		.size = HEADER_BYTES + 1 + below(below(4) ? 40 : SIZE_MAX_BYTES - HEADER_BYTES - 1),
		.mode = mode};
}

static void make_file(unsigned index, const char *path)
{
	struct state after = new_file(0600 + below(0200)), empty = after;
	int fd;

	empty.content = empty.size = 0;
	becomes(index, empty);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, after.mode);
	must(fd, "create", path);
	becomes(index, after);
	write_content(fd, after.content, after.size, path);
	must(close(fd), "close", path);
}

static void replace_file(unsigned index, const char *path)
{
	struct state after = new_file(0640);
	char temporary[300];
	int fd;

	snprintf(temporary, sizeof(temporary), "%s/d%u/temporary%d", roots[me], index / NAMES, me);
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, after.mode);
	must(fd, "create", temporary);
	write_content(fd, after.content, after.size, temporary);
	must(close(fd), "close", temporary);
	becomes(index, after);
	must(rename(temporary, path), "rename to", path);
}

/* As large as before, so that only times tell. */
static void overwrite_file(unsigned index, const char *path)
{
	struct state after = current(index);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	must(fd, "open", path);
	after.content = ++shared->contents;
	becomes(index, after);
	write_content(fd, after.content, after.size, path);
	must(close(fd), "close", path);
}

static void rewrite_file(unsigned index, const char *path)
{
	struct state before = current(index), after = new_file(before.mode), empty = after;
	int fd;

	empty.content = empty.size = 0;
	becomes(index, empty);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	must(fd, "open", path);
	becomes(index, after);
	write_content(fd, after.content, after.size, path);
	must(close(fd), "close", path);
}

static void change_mode(unsigned index, const char *path)
{
	struct state after = current(index);

	after.mode = 0600 + below(0200);
	becomes(index, after);
	must(chmod(path, after.mode), "chmod", path);
}

static void remove_it(unsigned index, const char *path)
{
	bool is_directory = current(index).kind == DIRECTORY;

	becomes(index, (struct state){.kind = ABSENT});
	must(is_directory ? rmdir(path) : unlink(path), "remove", path);
}

static void make_link(unsigned index, const char *path)
{
	struct state after = {.kind = LINK, .content = ++shared->contents};
	char target[HEADER_BYTES + 2];

	fill(target, after.content, HEADER_BYTES + 1);
	target[HEADER_BYTES] = '\0';
	becomes(index, after);
	must(symlink(target, path), "symlink", path);
}

static void make_directory(unsigned index, const char *path)
{
	becomes(index, (struct state){.kind = DIRECTORY});
	must(mkdir(path, 0755), "mkdir", path);
}

static unsigned any_of_mine(void)
{
	unsigned index = below(SLOTS / 2) * 2;

	return index + (index + (unsigned)me + round_number) % 2;
}

/* Moves a file to another name of ours that is a file or nothing. */
static bool move_file(unsigned from, const char *from_path)
{
	unsigned to = any_of_mine();
	struct state target = current(to), moved = current(from);
	char to_path[256];

	if (to == from || target.kind == DIRECTORY)
		return false;
	path_of(me, to, to_path);
	becomes(from, (struct state){.kind = ABSENT});
	becomes(to, moved);
	must(rename(from_path, to_path), "rename", from_path);
	settled(to);
	return true;
}

static void change_something(void)
{
	unsigned index = any_of_mine();
	char path[256];

	path_of(me, index, path);
	switch (current(index).kind) {
	case ABSENT:
		if (below(4))
			make_file(index, path);
		else if (below(2))
			make_link(index, path);
		else
			make_directory(index, path);
		break;
	case REGULAR:
		switch (below(9)) {
		case 0:
		case 1:
			replace_file(index, path);
			break;
		case 2:
		case 3:
			overwrite_file(index, path);
			break;
		case 4:
			rewrite_file(index, path);
			break;
		case 5:
			change_mode(index, path);
			break;
		case 6:
		case 7:
			if (move_file(index, path))
				break;
			/* fall through */
		default:
			remove_it(index, path);
		}
		break;
	default:
		remove_it(index, path);
	}
	settled(index);
	look_at(me, index, below(3)); /* our own change, at once */
}

static void do_something(void)
{
	switch (below(8)) {
	case 0:
		look_at_listing(me, below(DIRECTORIES));
		break;
	case 1:
	case 2:
	case 3:
		look_at(me, below(SLOTS), below(3));
		break;
	default:
		change_something();
	}
}

/* ---- Rounds -------------------------------------------------------------------------- */

static bool shows_the_last(unsigned index, unsigned how)
{
	struct state state = current(index);
	struct sight sight;
	char path[256];

	path_of(0, index, path);
	sight = looks[how](path);
	return fits(&sight, &state);
}

/* Everybody rests: the mount comes to show what is there. */
static void await_agreement(void)
{
	int64_t start_ns = now_ns(), took_ns;

	for (unsigned i = 0; i < SLOTS; i++)
		for (unsigned how = 0; how < 3; how++)
			while (!shows_the_last(i, how)) {
				if (now_ns() - start_ns > limit_ns)
					look_at(0, i, how);
				usleep(500);
			}
	took_ns = now_ns() - start_ns;
	if (took_ns > shared->slowest_ns)
		shared->slowest_ns = took_ns;
}

static int run_side(int side, unsigned long count)
{
	me = side;
	random_state = seed + (uint64_t)side * 0x1000193;
	for (step = 1; step <= count / 2 && !shared->failed; step++) {
		do_something();
		if (step % ROUND && step != count / 2)
			continue;
		pthread_barrier_wait(&shared->barrier);
		if (side == 0)
			await_agreement();
		pthread_barrier_wait(&shared->barrier);
		round_number++;
	}
	return shared->failed;
}

static void prepare(void)
{
	pthread_mutexattr_t mutex;
	pthread_barrierattr_t barrier;

	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		exit(2);
	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_barrierattr_init(&barrier);
	pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &barrier, 2);
	for (unsigned i = 0; i < SLOTS; i++) {
		pthread_mutex_init(&shared->slots[i].lock, &mutex);
		becomes(i, (struct state){.kind = ABSENT});
		settled(i);
	}
	for (unsigned i = 0; i < DIRECTORIES; i++) {
		char path[256];

		snprintf(path, sizeof(path), "%s/d%u", roots[0], i);
		must(mkdir(path, 0755), "mkdir", path);
	}
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 3 ? strtoul(argv[3], NULL, 0) : 4000;
	pid_t children[2];
	int status, failures = 0;

	if (argc < 3) {
		fprintf(stderr,
			"usage: coherence_model MOUNT WORKSPACE [OPERATIONS [SEED [LIMIT_MS]]]\n");
		return 2;
	}
	roots[0] = argv[1];
	roots[1] = argv[2];
	seed = argc > 4 ? strtoull(argv[4], NULL, 0)
			: (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
	limit_ns = (argc > 5 ? strtoll(argv[5], NULL, 0) : 1000) * 1000000;
	printf("coherence_model: seed %llu, %lu operations\n", (unsigned long long)seed, count);
	fflush(stdout);
	umask(0);
	prepare();
	for (int side = 0; side < 2; side++) {
		children[side] = fork();
		if (children[side] == 0)
			_exit(run_side(side, count));
	}
	for (pid_t ended; (ended = wait(&status)) > 0;) {
		failures += status != 0;
		if (status) /* the other one would wait at the barrier */
			kill(children[ended == children[0]], SIGTERM);
	}
	printf("coherence_model: the mount agreed within %.1f ms\n",
		(double)shared->slowest_ns / 1e6);
	return failures != 0;
}
