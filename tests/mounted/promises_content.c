#include "tests/mounted/promises.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum { PARTS = 40, PART_BYTES = 16 << 10 };

PROMISE(files_may_be_sparse_and_huge)
{
	cleanup_fd int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;
	char text[8] = "";

	CHECK_RC(4, SYS(pwrite(fd, "here", 4, 5LL << 30)));
	CHECK_RC(0, SYS(ftruncate(fd, 1LL << 40)));
	CHECK_RC(4, SYS(pwrite(fd, "last", 4, (1LL << 40) - 4)));
	CHECK_RC(0, SYS(fstat(fd, &st)));
	CHECK_RC(1LL << 40, st.st_size);
	CHECK(st.st_blocks < 1000);
	CHECK_RC(4, SYS(pread(fd, text, 4, 5LL << 30)));
	CHECK_STRING("here", text);
	CHECK_RC(4, SYS(pread(fd, text, 8, (1LL << 40) - 4)));
	CHECK_STRING("last", text);
	CHECK_RC(0, SYS(pread(fd, text, 8, 1LL << 40)));
}

PROMISE(holes_are_found)
{
	cleanup_fd int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	off_t data;

	CHECK_RC(1, SYS(pwrite(fd, "x", 1, 4 << 20)));
	CHECK_RC(0, SYS(fsync(fd)));
	data = lseek(fd, 0, SEEK_DATA);
	CHECK(data >= 0 && data <= 4 << 20);
	CHECK_RC((4 << 20) + 1, SYS(lseek(fd, 4 << 20, SEEK_HOLE)));
	CHECK_RC(-ENXIO, SYS(lseek(fd, 5 << 20, SEEK_DATA)));
}

PROMISE(maps_share_what_they_should)
{
	cleanup_fd int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char text[4], *shared, *private;

	CHECK_RC(0, SYS(ftruncate(fd, 8192)));
	shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	private = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (!CHECK(shared != MAP_FAILED && private != MAP_FAILED))
		return;
	memcpy(shared + 4094, "abcd", 4);
	CHECK_RC(4, SYS(pread(fd, text, 4, 4094)));
	CHECK(memcmp(text, "abcd", 4) == 0);
	memcpy(private, "priv", 4);
	CHECK_RC(4, SYS(pread(fd, text, 4, 0)));
	CHECK(memcmp(text, "\0\0\0\0", 4) == 0);
	CHECK_RC(4, SYS(pwrite(fd, "wxyz", 4, 100)));
	CHECK(memcmp(shared + 100, "wxyz", 4) == 0);
	CHECK_RC(0, SYS(msync(shared, 8192, MS_SYNC)));
	munmap(shared, 8192);
	munmap(private, 8192);
}

enum { APPENDERS = 6, APPENDS = 150, LINE_BYTES = 25 };

struct appender {
	char path[PATH_MAX];
	unsigned number;
};

static int append_lines(void *data)
{
	const struct appender *me = data;
	int fd = open(me->path, O_WRONLY | O_APPEND | O_CLOEXEC);
	char line[LINE_BYTES + 1];

	for (unsigned i = 0; i < APPENDS; i++) {
		snprintf(line, sizeof(line), "writer %03u line %08u\n", me->number % 1000U,
			i % 100000000U);
		if (write(fd, line, LINE_BYTES) != LINE_BYTES)
			return 1;
	}
	return close(fd) < 0;
}

/* What was written through another mount shows once the feed has told of it. */
static bool grows_to(const char *path, off_t size)
{
	for (int i = 0; i < 500 && size_of(path) < size; i++)
		usleep(10000);
	return size_of(path) == size;
}

static void check_lines(const char *path)
{
	static char text[APPENDERS * APPENDS * LINE_BYTES + 1];
	int next[APPENDERS] = {0}, number, line, good = 0;
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t got;

	CHECK(grows_to(path, sizeof(text) - 1));
	while ((got = read(fd, text + size, sizeof(text) - size)) > 0)
		size += (size_t)got;
	CHECK_RC(sizeof(text) - 1, size);
	for (size_t at = 0; at + LINE_BYTES <= size; at += LINE_BYTES)
		if (sscanf(text + at, "writer %d line %d\n", &number, &line) == 2 && number >= 0 &&
			number < APPENDERS && next[number] == line) {
			next[number]++;
			good++;
		}
	CHECK_RC(APPENDERS * APPENDS, good);
}

/* Half of them through `other`. */
static void append_from_many(const char *path, const char *other)
{
	struct appender appenders[APPENDERS];
	int failures = 0, status;

	CHECK_RC(0, put("log", ""));
	CHECK(appears_soon(other));
	for (int i = 0; i < APPENDERS; i++) {
		snprintf(appenders[i].path, sizeof(appenders[i].path), "%s", i % 2 ? other : path);
		appenders[i].number = (unsigned)i;
		if (fork() == 0)
			_exit(append_lines(&appenders[i]));
	}
	while (wait(&status) > 0)
		failures += status != 0;
	CHECK_RC(0, failures);
	check_lines("log");
}

PROMISE(appends_lose_no_line)
{
	append_from_many("log", "log");
}

PROMISE(appends_through_two_mounts_lose_no_line)
{
	char other[PATH_MAX];

	if (!*second_mount)
		return;
	elsewhere(second_mount, "log", other, sizeof(other));
	append_from_many("log", other);
}

PROMISE(appends_beside_a_process_at_the_workspace_lose_no_line)
{
	char other[PATH_MAX];

	if (!*backing)
		return;
	elsewhere(backing, "log", other, sizeof(other));
	append_from_many("log", other);
}

PROMISE(copies_within_the_mount_are_whole)
{
	cleanup_fd int from = open("from", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cleanup_fd int to = open("to", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	static char data[300000], back[300001];
	off_t from_at = 0, to_at = 0;
	ssize_t done;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 31 >> 3);
	CHECK_RC(sizeof(data), SYS(write(from, data, sizeof(data))));
	do
		done = copy_file_range(from, &from_at, to, &to_at, sizeof(data), 0);
	while (done > 0);
	CHECK_RC(0, SYS(done));
	CHECK_RC(sizeof(data), SYS(pread(to, back, sizeof(back), 0)));
	CHECK(memcmp(data, back, sizeof(data)) == 0);
}

PROMISE(writing_clears_set_user_id)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int r;

	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(chmod("f", 06777)));
	if (geteuid() == 0) { /* root keeps the bits: somebody else has to write */
		pid_t pid = fork();

		if (pid == 0) {
			r = setgid(65534) < 0 || setuid(65534) < 0;
			fd = open("f", O_WRONLY);
			_exit(r || (fd >= 0 && write(fd, "y", 1) != 1));
		}
		waitpid(pid, &r, 0);
		if (r != 0) /* a mount that is not open to others */
			return;
		CHECK_RC(0, SYS(stat("f", &st)));
		CHECK(!(st.st_mode & S_ISUID) || strcmp(get("f"), "x") == 0);
		return;
	}
	fd = open("f", O_WRONLY | O_CLOEXEC);
	CHECK_RC(1, SYS(write(fd, "y", 1)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(0, st.st_mode & S_ISUID);
}

/* What the workspace shows is what the mount shows, within 2 s. */
static bool shows_soon(const char *path, const char *text)
{
	for (int i = 0; i < 200; i++) {
		if (strcmp(get(path), text) == 0)
			return true;
		usleep(10000);
	}
	return false;
}

PROMISE(changes_at_the_workspace_are_seen)
{
	char other[PATH_MAX];

	if (!*backing)
		return;
	elsewhere(backing, "f", other, sizeof(other));
	CHECK_STRING("ENOENT", get("f"));
	CHECK_RC(0, put(other, "one"));
	CHECK(shows_soon("f", "one"));
	CHECK_RC(0, put(other, "two!"));
	CHECK(shows_soon("f", "two!"));
	CHECK_RC(0, SYS(unlink(other)));
	CHECK(shows_soon("f", "ENOENT"));
	CHECK_RC(0, put("mine", "x"));
	elsewhere(backing, "mine", other, sizeof(other));
	CHECK_STRING("x", get(other));
}

/* As rsync(1) and builds that can be repeated do. */
PROMISE(a_change_is_seen_though_its_time_is_set_back)
{
	const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
	char other[PATH_MAX], text[8];

	if (!*backing)
		return;
	elsewhere(backing, "f", other, sizeof(other));
	CHECK_RC(0, entries_of_dot()); /* so that it is watched */
	for (int round = 0; round < 20; round++) {
		snprintf(text, sizeof(text), "text%02d", round % 100);
		CHECK_RC(0, put(other, text));
		CHECK_RC(0, SYS(utimensat(AT_FDCWD, other, times, 0)));
		CHECK(shows_soon("f", text));
	}
}

static pid_t read_for_ever(const char *path)
{
	static char data[PARTS * PART_BYTES];
	pid_t pid = fork();

	while (pid == 0) {
		cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);

		if (pread(fd, data, sizeof(data), 0) < 0)
			_exit(1);
	}
	return pid;
}

/* All parts of the file, asynchronously; returns when they are written, with their count. */
static long write_parts(aio_context_t aio, int fd, const char *data)
{
	struct iocb calls[PARTS] = {0}, *list[PARTS];
	struct io_event events[PARTS];

	for (int i = 0; i < PARTS; i++) {
		list[i] = &calls[i];
		calls[i].aio_lio_opcode = IOCB_CMD_PWRITE;
		calls[i].aio_fildes = (uint32_t)fd;
		calls[i].aio_buf = (uintptr_t)(data + i * PART_BYTES);
		calls[i].aio_nbytes = PART_BYTES;
		calls[i].aio_offset = i * PART_BYTES;
	}
	if (syscall(SYS_io_submit, aio, PARTS, list) != PARTS)
		return -errno;
	return syscall(SYS_io_getevents, aio, PARTS, PARTS, events, NULL);
}

PROMISE(asynchronous_direct_writes_are_seen_when_they_are_done)
{
	static _Alignas(4096) char data[PARTS * PART_BYTES], got[sizeof(data)];
	cleanup_fd int direct = open("f", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	cleanup_fd int fd = open("f", O_RDWR | O_CLOEXEC);
	const int64_t end_ms = clock_now_ms() + 3000;
	aio_context_t aio = 0;
	pid_t readers[2];
	int stale = 0;

	if (direct < 0) /* nor can the file system of the workspace */
		return;
	CHECK_RC(0, SYS(syscall(SYS_io_setup, PARTS, &aio)));
	CHECK_RC(PARTS, write_parts(aio, direct, data));
	for (int i = 0; i < 2; i++)
		readers[i] = read_for_ever("f");
	for (int round = 1; clock_now_ms() < end_ms && !stale; round++) {
		memset(data, round, sizeof(data));
		CHECK_RC(PARTS, write_parts(aio, direct, data));
		CHECK_RC(sizeof(got), SYS(pread(fd, got, sizeof(got), 0)));
		stale = memcmp(got, data, sizeof(got));
	}
	CHECK(!stale);
	for (int i = 0; i < 2; i++) {
		CHECK_RC(0, SYS(kill(readers[i], SIGKILL)));
		CHECK_RC(readers[i], SYS(waitpid(readers[i], NULL, 0)));
	}
	CHECK_RC(0, SYS(syscall(SYS_io_destroy, aio)));
}

TEST_GROUP(content_promises, TEST(files_may_be_sparse_and_huge), TEST(holes_are_found),
	TEST(maps_share_what_they_should), TEST(appends_lose_no_line),
	TEST(appends_through_two_mounts_lose_no_line),
	TEST(appends_beside_a_process_at_the_workspace_lose_no_line),
	TEST(copies_within_the_mount_are_whole), TEST(writing_clears_set_user_id),
	TEST(changes_at_the_workspace_are_seen), TEST(a_change_is_seen_though_its_time_is_set_back),
	TEST(asynchronous_direct_writes_are_seen_when_they_are_done));
