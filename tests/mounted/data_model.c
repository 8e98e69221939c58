/*
 * data_model DIRECTORY [OPERATIONS [SEED]]: random work on the content of one file, each step
 * compared with a model in memory.
 *
 * Reads, writes, appends, truncates, fallocates, copies ranges and maps, through several
 * descriptors.  Prints the seed first; with the same seed it does the same again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "tests/mounted/random.h"

enum { MAX_BYTES = 1 << 20, STEP_MAX_BYTES = 96 << 10, DESCRIPTORS = 3 };

static unsigned char model[MAX_BYTES], scratch[MAX_BYTES];
static size_t model_size;
static int fds[DESCRIPTORS]; /* the last one appends */
static char path[4096];
static uint64_t seed;
static unsigned long step;
static const char *step_name = "start";

enum { HISTORY = 24 };
static char history[HISTORY][96]; /* the last steps, in turn */

/* What the step does, for the one who reads of its failure. */
static void __attribute__((format(printf, 1, 2))) note(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(history[step % HISTORY], sizeof(history[0]), format, arguments);
	va_end(arguments);
}

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "data_model: seed %llu, step %lu (%s): ", (unsigned long long)seed, step,
		step_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\nThe last steps:\n");
	for (unsigned long i = step > HISTORY ? step - HISTORY + 1 : 1; i <= step; i++)
		fprintf(stderr, "%lu: %s\n", i, history[i % HISTORY]);
	exit(1);
}

struct range {
	size_t at, size;
};

/* Often at the borders of pages and of the file, where the mistakes are. */
static struct range random_range(size_t limit)
{
	struct range range = {.at = below(limit)};
	size_t room;

	if (below(4) == 0)
		range.at &= ~(size_t)4095;
	if (below(8) == 0 && model_size < limit)
		range.at = model_size;
	room = limit - range.at;
	range.size = 1 + below(room < STEP_MAX_BYTES ? room : STEP_MAX_BYTES);
	if (range.size > room)
		range.size = room;
	if (below(4) == 0 && range.size > 4096)
		range.size &= ~(size_t)4095;
	return range;
}

static int any_fd(void)
{
	return fds[below(DESCRIPTORS - 1)];
}

static void fill_scratch(size_t size)
{
	unsigned char mark = (unsigned char)(1 + below(255));

	for (size_t i = 0; i < size; i++)
		scratch[i] = (unsigned char)(mark + i * 7);
}

static void compare(const unsigned char *got, size_t at, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (got[i] != model[at + i])
			fail("byte %zu is 0x%02x instead of 0x%02x (file of %zu bytes, %zu at %zu)",
				at + i, got[i], model[at + i], model_size, size, at);
}

static void grow_model(size_t size)
{
	if (size > model_size)
		model_size = size;
}

static void resize_model(size_t size)
{
	if (size < model_size)
		memset(model + size, 0, model_size - size);
	model_size = size;
}

/* ---- Steps ------------------------------------------------------------------------------- */

static void do_read(void)
{
	struct range r = random_range(MAX_BYTES);
	size_t want = r.at >= model_size ? 0 : model_size - r.at;
	ssize_t got = pread(any_fd(), scratch, r.size, (off_t)r.at);

	if (want > r.size)
		want = r.size;
	note("read %zu at %zu", r.size, r.at);
	if (got != (ssize_t)want)
		fail("read %zu at %zu gave %zd instead of %zu: %s", r.size, r.at, got, want,
			got < 0 ? strerror(errno) : "no error");
	compare(scratch, r.at, want);
}

static void do_write(void)
{
	struct range r = random_range(MAX_BYTES);

	note("write %zu at %zu", r.size, r.at);
	fill_scratch(r.size);
	if (pwrite(any_fd(), scratch, r.size, (off_t)r.at) != (ssize_t)r.size)
		fail("write %zu at %zu: %s", r.size, r.at, strerror(errno));
	memcpy(model + r.at, scratch, r.size);
	grow_model(r.at + r.size);
}

static void do_append(void)
{
	size_t room = MAX_BYTES - model_size, size = 1 + below(8192);

	if (size > room)
		return;
	note("append %zu at %zu", size, model_size);
	fill_scratch(size);
	if (write(fds[DESCRIPTORS - 1], scratch, size) != (ssize_t)size)
		fail("append %zu: %s", size, strerror(errno));
	memcpy(model + model_size, scratch, size);
	model_size += size;
}

static void do_truncate(void)
{
	size_t size = below(MAX_BYTES);
	bool by_path = below(2);
	int r = by_path ? truncate(path, (off_t)size) : ftruncate(any_fd(), (off_t)size);

	note("truncate %zu to %zu by %s", model_size, size, by_path ? "path" : "descriptor");
	if (r < 0)
		fail("truncate to %zu: %s", size, strerror(errno));
	resize_model(size);
}

static void do_fallocate(void)
{
	static const int modes[] = {0, FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
	int mode = modes[below(array_size(modes))];
	struct range r = random_range(MAX_BYTES);
	size_t end = r.at + r.size;

	note("fallocate mode %d, %zu at %zu", mode, r.size, r.at);
	if (fallocate(any_fd(), mode, (off_t)r.at, (off_t)r.size) < 0) {
		if (errno == EOPNOTSUPP)
			return;
		fail("fallocate mode %d of %zu at %zu: %s", mode, r.size, r.at, strerror(errno));
	}
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(model + r.at, 0, r.size);
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		grow_model(end);
}

static void do_copy_range(void)
{
	struct range from = random_range(MAX_BYTES), to = random_range(MAX_BYTES);
	off_t from_at = (off_t)from.at, to_at = (off_t)to.at;
	size_t size = from.size < to.size ? from.size : to.size;
	ssize_t done;

	if (from.at < to.at + size && to.at < from.at + size)
		return;
	note("copy %zu from %zu to %zu", size, from.at, to.at);
	done = copy_file_range(any_fd(), &from_at, any_fd(), &to_at, size, 0);
	if (done < 0)
		fail("copy %zu from %zu to %zu: %s", size, from.at, to.at, strerror(errno));
	if (done > 0 && from.at + (size_t)done > model_size)
		fail("copied %zd bytes from beyond the end", done);
	memcpy(model + to.at, model + from.at, (size_t)done);
	if (done > 0)
		grow_model(to.at + (size_t)done);
}

static void do_map(void)
{
	struct range r = random_range(model_size ? model_size : 1);
	size_t start = r.at & ~(size_t)4095, length = r.at + r.size - start;
	bool write_it = below(2), private = below(4) == 0;
	unsigned char *map;

	if (!model_size)
		return;
	note("map %zu at %zu, %s%s", r.size, r.at, write_it ? "written" : "read",
		private ? ", private" : "");
	map = mmap(NULL, length, PROT_READ | PROT_WRITE, private ? MAP_PRIVATE : MAP_SHARED,
		any_fd(), (off_t)start);
	if (map == MAP_FAILED)
		fail("map %zu at %zu: %s", length, start, strerror(errno));
	compare(map + (r.at - start), r.at, r.size);
	if (write_it) {
		fill_scratch(r.size);
		memcpy(map + (r.at - start), scratch, r.size);
		if (!private)
			memcpy(model + r.at, scratch, r.size);
		if (below(2) && msync(map, length, MS_SYNC) < 0)
			fail("msync: %s", strerror(errno));
	}
	munmap(map, length);
}

static void do_size(void)
{
	struct stat st;
	bool by_path = below(2);
	int r = by_path ? stat(path, &st) : fstat(any_fd(), &st);

	note("size by %s", by_path ? "path" : "descriptor");
	if (r < 0)
		fail("stat: %s", strerror(errno));
	if (st.st_size != (off_t)model_size)
		fail("size is %lld instead of %zu", (long long)st.st_size, model_size);
}

static void do_seek(void)
{
	size_t at = below(model_size);
	off_t data = lseek(any_fd(), (off_t)at, SEEK_DATA);

	if (!model_size)
		return;
	if (data < 0 && errno != ENXIO)
		fail("SEEK_DATA from %zu: %s", at, strerror(errno));
	if (data < 0 || data > (off_t)model_size)
		data = (off_t)model_size;
	for (; (off_t)at < data; at++)
		if (model[at])
			fail("SEEK_DATA skipped the data at %zu", at);
}

static void open_all(void)
{
	for (int i = 0; i < DESCRIPTORS; i++) {
		fds[i] = open(path,
			O_RDWR | O_CREAT | O_CLOEXEC | (i == DESCRIPTORS - 1 ? O_APPEND : 0), 0644);
		if (fds[i] < 0)
			fail("open \"%s\": %s", path, strerror(errno));
	}
}

static void close_all(void)
{
	for (int i = 0; i < DESCRIPTORS; i++)
		if (close(fds[i]) < 0)
			fail("close: %s", strerror(errno));
}

static void do_reopen(void)
{
	close_all();
	open_all();
}

static void do_sync(void)
{
	if (fsync(any_fd()) < 0)
		fail("fsync: %s", strerror(errno));
}

static const struct step steps[] = {
	{do_read, 30, "read"},
	{do_write, 25, "write"},
	{do_append, 6, "append"},
	{do_truncate, 4, "truncate"},
	{do_fallocate, 5, "fallocate"},
	{do_copy_range, 5, "copy range"},
	{do_map, 12, "map"},
	{do_size, 8, "size"},
	{do_seek, 3, "seek"},
	{do_reopen, 2, "reopen"},
	{do_sync, 1, "sync"},
};

static void do_something(void)
{
	const struct step *chosen = any_step(steps, array_size(steps));

	step_name = chosen->name;
	note("%s", step_name);
	chosen->run();
}

static void compare_all(void)
{
	ssize_t got = pread(fds[0], scratch, MAX_BYTES, 0);

	step_name = "end";
	if (got != (ssize_t)model_size)
		fail("the file has %zd bytes instead of %zu", got, model_size);
	compare(scratch, 0, model_size);
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 3000;

	if (argc < 2) {
		fprintf(stderr, "usage: data_model DIRECTORY [OPERATIONS [SEED]]\n");
		return 2;
	}
	seed = argc > 3 ? strtoull(argv[3], NULL, 0)
			: (uint64_t)time(NULL) * 1000 + getpid() % 1000;
	random_state = seed;
	printf("data_model: seed %llu, %lu operations\n", (unsigned long long)seed, count);
	fflush(stdout);
	snprintf(path, sizeof(path), "%s/data-model-%d", argv[1], (int)getpid());
	open_all();
	for (step = 1; step <= count; step++)
		do_something();
	compare_all();
	do_reopen();
	compare_all();
	close_all();
	if (unlink(path) < 0)
		fail("unlink: %s", strerror(errno));
	return 0;
}
