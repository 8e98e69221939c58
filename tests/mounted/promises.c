/*
 * promises: what POSIX promises to a program, by name, on the directory $MNT of a mount.
 *
 * $BACKING (or "") is the same directory at the workspace, $MNT2 (or "") on a second mount of
 * it.  Each promise works in a directory of its own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "tests/check.h"

static const char *mount_point, *backing, *second_mount;

/* A system call's result as 0, a count or -errno. */
#define SYS(call)                                    \
	__extension__({                              \
		long long sys_ = (long long)(call);  \
		sys_ < 0 ? (long long)-errno : sys_; \
	})

#define PROMISE(name)                                 \
	static void name##_body(void);                \
	static void name(void)                        \
	{                                             \
		CHECK_RC(0, SYS(chdir(mount_point))); \
		CHECK_RC(0, SYS(mkdir(#name, 0755))); \
		CHECK_RC(0, SYS(chdir(#name)));       \
		name##_body();                        \
		CHECK_RC(0, SYS(chdir(mount_point))); \
	}                                             \
	static void name##_body(void)

static int put(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -EIO;
}

static const char *get(const char *path)
{
	static char text[4096];
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (got < 0)
		return strerrorname_np(errno);
	text[got] = '\0';
	return text;
}

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? -errno : st.st_size;
}

static unsigned long links_of(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? 0 : st.st_nlink;
}

static ino_t inode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? 0 : st.st_ino;
}

/* The current directory somewhere else: below $BACKING or $MNT2. */
static void elsewhere(const char *root, const char *name, char *path, size_t size)
{
	char here[PATH_MAX];

	if (!getcwd(here, sizeof(here)))
		here[0] = '\0';
	snprintf(path, size, "%s%s/%s", root, here + strlen(mount_point), name);
}

/* A second mount hears of a new name from the change feed. */
static bool appears_soon(const char *path)
{
	for (int i = 0; i < 300; i++) {
		if (access(path, F_OK) == 0)
			return true;
		usleep(10000);
	}
	return false;
}

/* Runs `work` in a process of its own; its result (0-255). */
static int in_child(int (*work)(void *), void *data)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(work(data));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- Names -------------------------------------------------------------------------------- */

PROMISE(hard_links_are_one_inode)
{
	CHECK_RC(0, put("a", "text"));
	CHECK_RC(0, SYS(link("a", "b")));
	CHECK_RC(2, links_of("a"));
	CHECK_RC(2, links_of("b"));
	CHECK_RC(inode_of("a"), inode_of("b"));
	CHECK_RC(0, put("b", "other"));
	CHECK_STRING("other", get("a"));
	CHECK_RC(0, SYS(chmod("a", 0600)));
	CHECK_RC(0, SYS(unlink("a")));
	CHECK_RC(1, links_of("b"));
	CHECK_STRING("other", get("b"));
}

PROMISE(unlinked_files_live_on)
{
	cleanup_fd int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;
	char text[8];

	CHECK_RC(3, SYS(write(fd, "old", 3)));
	CHECK_RC(0, SYS(unlink("f")));
	CHECK_RC(0, put("f", "new"));
	CHECK_RC(3, SYS(pread(fd, text, sizeof(text), 0)));
	CHECK(memcmp(text, "old", 3) == 0);
	CHECK_RC(4, SYS(pwrite(fd, "more", 4, 3)));
	CHECK_RC(0, SYS(ftruncate(fd, 5)));
	CHECK_RC(0, SYS(fchmod(fd, 0640)));
	CHECK_RC(0, SYS(fstat(fd, &st)));
	CHECK_RC(5, st.st_size);
	CHECK_RC(0, st.st_nlink);
	CHECK_RC(S_IFREG | 0640, st.st_mode);
	CHECK_STRING("new", get("f"));
}

PROMISE(open_files_survive_being_replaced)
{
	cleanup_fd int fd = -1;
	char text[8];

	CHECK_RC(0, put("target", "target"));
	CHECK_RC(0, put("new", "new"));
	fd = open("target", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, SYS(rename("new", "target")));
	CHECK_RC(6, SYS(pread(fd, text, sizeof(text), 0)));
	CHECK_RC(1, SYS(pwrite(fd, "T", 1, 0)));
	CHECK_STRING("new", get("target"));
}

PROMISE(rename_flags_are_kept)
{
	CHECK_RC(0, put("a", "a"));
	CHECK_RC(0, SYS(mkdir("d", 0755)));
	CHECK_RC(0, put("d/f", "f"));
	CHECK_RC(-EEXIST, SYS(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_NOREPLACE)));
	CHECK_RC(0, SYS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE)));
	CHECK_RC(0, SYS(renameat2(AT_FDCWD, "b", AT_FDCWD, "d", RENAME_EXCHANGE)));
	CHECK_STRING("a", get("d"));
	CHECK_STRING("f", get("b/f"));
	CHECK_RC(-ENOENT, SYS(renameat2(AT_FDCWD, "d", AT_FDCWD, "none", RENAME_EXCHANGE)));
}

PROMISE(a_working_directory_can_be_moved_and_removed)
{
	char here[PATH_MAX];

	CHECK_RC(0, SYS(mkdir("d", 0755)));
	CHECK_RC(0, SYS(chdir("d")));
	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(rename("../d", "../e")));
	CHECK_STRING("x", get("f"));
	CHECK(getcwd(here, sizeof(here)) && strcmp(here + strlen(here) - 2, "/e") == 0);
	CHECK_RC(0, SYS(unlink("f")));
	CHECK_RC(0, SYS(rmdir("../e")));
	CHECK_RC(-ENOENT, put("g", "x"));
	CHECK_RC(0, size_of(".") < 0);
}

PROMISE(names_may_hold_any_byte)
{
	char name[256];

	for (int byte = 1; byte < 256; byte++) {
		if (byte == '/')
			continue;
		snprintf(name, sizeof(name), "x%cx", byte);
		CHECK_RC(0, put(name, "x"));
		CHECK_STRING("x", get(name));
	}
	for (int i = 0; i < 255; i++)
		name[i] = (char)(1 + (i * 37 + 200) % 255 == '/' ? 'y' : 1 + (i * 37 + 200) % 255);
	name[255] = '\0';
	CHECK_RC(0, put(name, "long"));
	CHECK_STRING("long", get(name));
	CHECK_RC(0, SYS(rename(name, "short")));
	CHECK_RC(0, SYS(rename("short", name)));
	CHECK_RC(0, SYS(unlink(name)));
}

/* Directories nest by chdir deeper than a path can say. */
PROMISE(paths_may_be_longer_than_path_max)
{
	char name[201];
	int depth;

	memset(name, 'd', 200);
	name[200] = '\0';
	for (depth = 0; depth < 40; depth++)
		if (!CHECK_RC(0, SYS(mkdir(name, 0755))) || !CHECK_RC(0, SYS(chdir(name))))
			break;
	CHECK_RC(0, put("f", "deep"));
	CHECK_STRING("deep", get("f"));
	CHECK_RC(0, SYS(rename("f", "g")));
	CHECK_RC(4, size_of("g"));
	CHECK_RC(0, SYS(symlink("g", "s")));
	CHECK_STRING("deep", get("s"));
	CHECK_RC(0, SYS(unlink("g")));
	CHECK_RC(0, SYS(unlink("s")));
	for (; depth > 0; depth--) {
		CHECK_RC(0, SYS(chdir("..")));
		CHECK_RC(0, SYS(rmdir(name)));
	}
}

PROMISE(o_excl_has_one_winner)
{
	cleanup_fd int fd = open("f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_RC(-EEXIST, SYS(open("f", O_RDWR | O_CREAT | O_EXCL, 0600)));
	CHECK_RC(0, SYS(symlink("nowhere", "s")));
	CHECK_RC(-EEXIST, SYS(open("s", O_RDWR | O_CREAT | O_EXCL, 0600)));
}

PROMISE(unnamed_files_work_or_are_refused)
{
	cleanup_fd int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[64];

	if (fd < 0) {
		CHECK_RC(EOPNOTSUPP, errno);
		return;
	}
	CHECK_RC(4, SYS(write(fd, "text", 4)));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_RC(0, SYS(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW)));
	CHECK_STRING("text", get("named"));
}

PROMISE(umask_counts)
{
	mode_t before = umask(027);
	struct stat st;

	CHECK_RC(0, SYS(mkdir("d", 0777)));
	close(open("f", O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
	umask(before);
	CHECK_RC(0, SYS(stat("d", &st)));
	CHECK_RC(0750, st.st_mode & 07777);
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(0640, st.st_mode & 07777);
}

PROMISE(fifos_and_sockets_work)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
	cleanup_fd int reader = -1, writer = -1, server = -1, client = -1;
	char text[4];

	CHECK_RC(0, SYS(mkfifo("fifo", 0600)));
	reader = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	writer = open("fifo", O_WRONLY | O_CLOEXEC);
	CHECK_RC(2, SYS(write(writer, "hi", 2)));
	CHECK_RC(2, SYS(read(reader, text, sizeof(text))));
	server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_RC(0, SYS(bind(server, (struct sockaddr *)&address, sizeof(address))));
	CHECK_RC(0, SYS(listen(server, 1)));
	CHECK_RC(0, SYS(connect(client, (struct sockaddr *)&address, sizeof(address))));
}

/* ---- Directories ----------------------------------------------------------------------------- */

static int entries_of_dot(void)
{
	cleanup_dir DIR *stream = opendir(".");
	int count = 0;

	while (stream && readdir(stream))
		count++;
	return count - 2;
}

PROMISE(a_file_that_is_being_written_is_listed)
{
	cleanup_fd int fd = -1;

	CHECK_RC(0, entries_of_dot());
	fd = open("new", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	CHECK_RC(4, SYS(write(fd, "text", 4)));
	CHECK_RC(1, entries_of_dot());
	CHECK_RC(4, SYS(write(fd, "text", 4)));
	CHECK_RC(1, entries_of_dot());
}

/* What the feed tells of the directory that had the name before does not reach the new one. */
PROMISE(a_working_directory_that_was_made_anew_has_a_path)
{
	for (int round = 0; round < 100; round++) {
		CHECK_RC(0, SYS(mkdir("again", 0755)));
		CHECK_RC(0, SYS(chdir("again")));
		for (int i = 0; i < 4; i++) {
			cleanup_free char *path = NULL;

			CHECK_RC(0, SYS(mknod("file", S_IFREG | 0600, 0)));
			path = getcwd(NULL, 0);
			if (!CHECK(path != NULL))
				return;
			CHECK_RC(0, SYS(unlink("file")));
		}
		CHECK_RC(0, SYS(chdir("..")));
		CHECK_RC(0, SYS(rmdir("again")));
	}
}

/* What was there all the time is seen once, whatever comes and goes meanwhile; a position that
 * telldir() gave leads back to where it was. */
PROMISE(a_large_directory_is_listed_stably)
{
	const char *wish = getenv("DIRECTORY_ENTRIES");
	int entries = wish ? atoi(wish) : 5000, seen = 0, checked = 0;
	cleanup_free char *found = calloc((size_t)entries, 1);
	long middle = -1;
	char name[32], middle_name[256] = "";
	cleanup_dir DIR *stream = NULL;

	for (int i = 0; i < entries; i++) {
		snprintf(name, sizeof(name), "stay%d", i);
		if (!CHECK_RC(0, SYS(mknod(name, S_IFREG | 0600, 0))))
			return;
	}
	CHECK_RC(entries, entries_of_dot());
	stream = opendir(".");
	for (const struct dirent *d; (d = readdir(stream));) {
		int number;

		if (sscanf(d->d_name, "stay%d", &number) != 1 || number >= entries)
			continue;
		CHECK_RC(0, found[number]);
		found[number] = 1;
		seen++;
		if (seen % 100 == 0) {
			snprintf(name, sizeof(name), "come%d", seen);
			CHECK_RC(0, SYS(mknod(name, S_IFREG | 0600, 0)));
			CHECK_RC(0, SYS(unlink(name)));
		}
		if (seen == entries / 2) {
			middle = telldir(stream);
			d = readdir(stream);
			snprintf(middle_name, sizeof(middle_name), "%s", d ? d->d_name : "");
			seekdir(stream, middle);
		}
	}
	CHECK_RC(entries, seen);
	seekdir(stream, middle);
	for (const struct dirent *d; (d = readdir(stream)); checked++)
		if (checked == 0)
			CHECK_STRING(middle_name, d->d_name);
	rewinddir(stream);
	for (int i = 0; i < entries; i++) {
		snprintf(name, sizeof(name), "stay%d", i);
		unlink(name);
	}
	CHECK_RC(0, entries_of_dot());
}

PROMISE(a_directory_can_be_emptied_while_it_is_read)
{
	cleanup_dir DIR *stream = NULL;
	char name[32];

	for (int i = 0; i < 1500; i++) {
		snprintf(name, sizeof(name), "%d", i);
		mknod(name, S_IFREG | 0600, 0);
	}
	stream = opendir(".");
	for (const struct dirent *d; (d = readdir(stream));)
		if (d->d_name[0] != '.')
			CHECK_RC(0, SYS(unlink(d->d_name)));
	CHECK_RC(0, entries_of_dot());
}

/* ---- Content ---- */
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

/* ---- Attributes ---- */

PROMISE(times_are_kept_to_the_nanosecond)
{
	struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 123456789},
		{.tv_sec = 2000000000, .tv_nsec = 987654321}};
	struct timespec omit[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 5}};
	struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	time_t before = time(NULL) - 2;
	struct stat st;

	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "f", times, 0)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(123456789, st.st_atim.tv_nsec);
	CHECK_RC(2000000000, st.st_mtim.tv_sec);
	CHECK_RC(987654321, st.st_mtim.tv_nsec);
	CHECK(st.st_ctim.tv_sec >= before);
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "f", omit, 0)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(1000, st.st_atim.tv_sec);
	CHECK_RC(5, st.st_mtim.tv_sec);
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "f", now, 0)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK(st.st_atim.tv_sec >= before);
	CHECK_RC(5, st.st_mtim.tv_sec);
}

PROMISE(changing_attributes_of_a_new_file_shows_in_its_ctime)
{
	struct timespec access_only[2] = {{.tv_sec = 1000}, {.tv_nsec = UTIME_OMIT}};
	cleanup_fd int fd = open("f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	struct stat made, touched, changed;

	CHECK_RC(0, SYS(fstat(fd, &made)));
	usleep(20000);
	CHECK_RC(0, SYS(futimens(fd, access_only)));
	CHECK_RC(0, SYS(fstat(fd, &touched)));
	CHECK(made.st_ctim.tv_sec != touched.st_ctim.tv_sec ||
		made.st_ctim.tv_nsec != touched.st_ctim.tv_nsec);
	CHECK_RC(0, made.st_mtim.tv_nsec - touched.st_mtim.tv_nsec);
	usleep(20000);
	CHECK_RC(0, SYS(fchmod(fd, 0600)));
	CHECK_RC(0, SYS(fstat(fd, &changed)));
	CHECK(touched.st_ctim.tv_sec != changed.st_ctim.tv_sec ||
		touched.st_ctim.tv_nsec != changed.st_ctim.tv_nsec);
}

PROMISE(access_tells_what_may_be_executed)
{
	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(chmod("f", 0644)));
	CHECK_RC(0, SYS(access("f", R_OK)));
	CHECK_RC(-EACCES, SYS(access("f", X_OK)));
	CHECK_RC(0, SYS(chmod("f", 0755)));
	CHECK_RC(0, SYS(access("f", X_OK)));
	CHECK_RC(0, SYS(access(".", R_OK | W_OK | X_OK)));
	CHECK_RC(-ENOENT, SYS(access("none", F_OK)));
}

PROMISE(directories_show_when_their_names_changed)
{
	struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct stat st;

	CHECK_RC(0, SYS(mkdir("d", 0755)));
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "d", old, 0)));
	CHECK_RC(0, put("d/f", ""));
	CHECK_RC(0, SYS(stat("d", &st)));
	CHECK(st.st_mtim.tv_sec > 1);
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "d", old, 0)));
	CHECK_RC(0, SYS(unlink("d/f")));
	CHECK_RC(0, SYS(stat("d", &st)));
	CHECK(st.st_mtim.tv_sec > 1);
	CHECK_RC(0, SYS(mkdir("d/sub", 0755)));
	CHECK_RC(3, links_of("d"));
	CHECK_RC(0, SYS(rmdir("d/sub")));
	CHECK_RC(2, links_of("d"));
}

PROMISE(xattrs_are_kept)
{
	char text[64];

	CHECK_RC(0, put("f", "x"));
	if (SYS(setxattr("f", "user.a", "one", 3, XATTR_CREATE)) == -EOPNOTSUPP)
		return;
	CHECK_RC(-EEXIST, SYS(setxattr("f", "user.a", "1", 1, XATTR_CREATE)));
	CHECK_RC(-ENODATA, SYS(setxattr("f", "user.b", "1", 1, XATTR_REPLACE)));
	CHECK_RC(3, SYS(getxattr("f", "user.a", text, sizeof(text))));
	CHECK_RC(-ERANGE, SYS(getxattr("f", "user.a", text, 2)));
	CHECK_RC(-ENODATA, SYS(getxattr("f", "user.b", text, sizeof(text))));
	CHECK_RC(7, SYS(listxattr("f", text, sizeof(text))));
	CHECK_RC(0, SYS(removexattr("f", "user.a")));
	CHECK_RC(0, SYS(listxattr("f", text, sizeof(text))));
}

PROMISE(statfs_is_that_of_the_workspace)
{
	struct statvfs here, there;

	CHECK_RC(0, SYS(statvfs(".", &here)));
	CHECK_RC(255, here.f_namemax);
	if (!*backing)
		return;
	CHECK_RC(0, SYS(statvfs(backing, &there)));
	CHECK_RC(there.f_blocks, here.f_blocks);
	CHECK_RC(there.f_files, here.f_files);
	CHECK_RC(there.f_frsize, here.f_frsize);
}

PROMISE(inode_numbers_are_those_of_the_workspace)
{
	struct stat here, there;
	char path[PATH_MAX];

	if (!*backing)
		return;
	CHECK_RC(0, put("f", "x"));
	elsewhere(backing, "f", path, sizeof(path));
	CHECK_RC(0, SYS(stat("f", &here)));
	CHECK_RC(0, SYS(stat(path, &there)));
	CHECK_RC(there.st_ino, here.st_ino);
}

/* ---- Locks ---- */

struct lock_try {
	const char *path;
	enum { BY_FCNTL, BY_FLOCK, BY_OFD } how;
};

/* 0: got it; 1: somebody else has it. */
static int try_lock(void *data)
{
	const struct lock_try *try = data;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
	int fd = open(try->path, O_RDWR | O_CLOEXEC), r;

	if (fd < 0)
		return 2;
	if (try->how == BY_FLOCK)
		r = flock(fd, LOCK_EX | LOCK_NB);
	else
		r = fcntl(fd, try->how == BY_OFD ? F_OFD_SETLK : F_SETLK, &lock);
	if (r < 0 && errno != EAGAIN && errno != EACCES)
		return 3;
	return r < 0;
}

static int lock_elsewhere(const char *path, int how)
{
	struct lock_try try = {.path = path, .how = how};

	return in_child(try_lock, &try);
}

static void check_locks(const char *other)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 12, .l_len = 100};
	cleanup_fd int fd = -1;

	CHECK_RC(0, put("f", "x"));
	CHECK(appears_soon(other));
	fd = open("f", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(0, SYS(fcntl(fd, F_SETLK, &lock)));
	CHECK_RC(1, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(1, lock_elsewhere(other, BY_OFD));
	CHECK_RC(0, lock_elsewhere(other, BY_FLOCK));
	close(open("f", O_RDONLY)); /* POSIX: any close drops the process's locks */
	CHECK_RC(0, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(0, SYS(fcntl(fd, F_OFD_SETLK, &lock)));
	CHECK_RC(1, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(1, lock_elsewhere(other, BY_OFD));
	lock.l_type = F_UNLCK;
	CHECK_RC(0, SYS(fcntl(fd, F_OFD_SETLK, &lock)));
	CHECK_RC(0, lock_elsewhere(other, BY_OFD));
	CHECK_RC(0, SYS(flock(fd, LOCK_SH)));
	CHECK_RC(1, lock_elsewhere(other, BY_FLOCK));
	CHECK_RC(0, lock_elsewhere(other, BY_FCNTL));
	CHECK_RC(0, SYS(flock(fd, LOCK_UN)));
	CHECK_RC(0, lock_elsewhere(other, BY_FLOCK));
}

PROMISE(locks_hold_between_processes)
{
	check_locks("f");
}

PROMISE(locks_hold_against_the_workspace)
{
	char other[PATH_MAX];

	if (!*backing)
		return;
	elsewhere(backing, "f", other, sizeof(other));
	check_locks(other);
}

PROMISE(locks_hold_between_two_mounts)
{
	char other[PATH_MAX];

	if (!*second_mount)
		return;
	elsewhere(second_mount, "f", other, sizeof(other));
	check_locks(other);
}

/* OFD locks go with the last close of their description, like flocks. */
PROMISE(closing_frees_ofd_locks_and_flocks)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd;

	CHECK_RC(0, put("f", "x"));
	fd = open("f", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, SYS(fcntl(fd, F_OFD_SETLK, &lock)));
	CHECK_RC(0, SYS(flock(fd, LOCK_EX)));
	CHECK_RC(1, lock_elsewhere("f", BY_OFD));
	close(fd);
	for (int i = 0; i < 100 && lock_elsewhere("f", BY_OFD); i++)
		usleep(10000); /* the kernel releases files in the background */
	CHECK_RC(0, lock_elsewhere("f", BY_OFD));
	CHECK_RC(0, lock_elsewhere("f", BY_FLOCK));
}

static void nothing(int signal)
{
	(void)signal;
}

PROMISE(waiting_for_a_lock_can_be_interrupted)
{
	struct sigaction action = {.sa_handler = nothing};
	cleanup_fd int fd = -1, other = -1;
	time_t before = time(NULL);

	CHECK_RC(0, put("f", "x"));
	fd = open("f", O_RDWR | O_CLOEXEC);
	other = open("f", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, SYS(flock(fd, LOCK_EX)));
	sigaction(SIGALRM, &action, NULL);
	alarm(1);
	CHECK_RC(-EINTR, SYS(flock(other, LOCK_EX)));
	CHECK(time(NULL) - before < 5);
}

static int save_and_sync(void)
{
	static const char text[8192] = "x";
	cleanup_fd int fd = open("new", O_RDWR | O_CREAT | O_DSYNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, sizeof(text)) < 0 || fsync(fd) < 0)
		return -errno;
	return SYS(close(steal_fd(&fd))) < 0 ? -errno : SYS(rename("new", "saved"));
}

/* Programs have timers, children and windows. */
PROMISE(signals_that_are_handled_fail_no_call)
{
	struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	struct itimerval often = {{.tv_usec = 500}, {.tv_usec = 500}}, never = {{0}, {0}};
	int r = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 30 && r == 0; i++)
		r = save_and_sync();
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK_RC(0, r);
}

/* ---- Seen from elsewhere ---- */

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

static const struct test_case cases[] = {
	TEST(hard_links_are_one_inode),
	TEST(unlinked_files_live_on),
	TEST(open_files_survive_being_replaced),
	TEST(rename_flags_are_kept),
	TEST(a_working_directory_can_be_moved_and_removed),
	TEST(names_may_hold_any_byte),
	TEST(paths_may_be_longer_than_path_max),
	TEST(o_excl_has_one_winner),
	TEST(unnamed_files_work_or_are_refused),
	TEST(umask_counts),
	TEST(fifos_and_sockets_work),
	TEST(a_working_directory_that_was_made_anew_has_a_path),
	TEST(a_file_that_is_being_written_is_listed),
	TEST(a_large_directory_is_listed_stably),
	TEST(a_directory_can_be_emptied_while_it_is_read),
	TEST(files_may_be_sparse_and_huge),
	TEST(holes_are_found),
	TEST(maps_share_what_they_should),
	TEST(appends_lose_no_line),
	TEST(appends_through_two_mounts_lose_no_line),
	TEST(appends_beside_a_process_at_the_workspace_lose_no_line),
	TEST(copies_within_the_mount_are_whole),
	TEST(writing_clears_set_user_id),
	TEST(times_are_kept_to_the_nanosecond),
	TEST(changing_attributes_of_a_new_file_shows_in_its_ctime),
	TEST(access_tells_what_may_be_executed),
	TEST(directories_show_when_their_names_changed),
	TEST(xattrs_are_kept),
	TEST(statfs_is_that_of_the_workspace),
	TEST(inode_numbers_are_those_of_the_workspace),
	TEST(locks_hold_between_processes),
	TEST(locks_hold_against_the_workspace),
	TEST(locks_hold_between_two_mounts),
	TEST(closing_frees_ofd_locks_and_flocks),
	TEST(waiting_for_a_lock_can_be_interrupted),
	TEST(signals_that_are_handled_fail_no_call),
	TEST(changes_at_the_workspace_are_seen),
	TEST(a_change_is_seen_though_its_time_is_set_back),
};

static const char *from_environment(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

int main(void)
{
	mount_point = from_environment("MNT");
	backing = from_environment("BACKING");
	second_mount = from_environment("MNT2");
	if (!*mount_point) {
		fprintf(stderr, "promises: MNT is not set\n");
		return 2;
	}
	return test_run("promises", cases, array_size(cases));
}
