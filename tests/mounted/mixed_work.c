/*
 * mixed_work DIRECTORY [PROCESSES [OPERATIONS [SEED]]]: a crowd of processes does mixed work on
 * one directory, each step checked, and the sum of it at the end.
 *
 * Every process has files of its own that it writes, replaces by rename and reads back; all
 * share a log that they append lines to, and a counter that they raise under flock(2).  At
 * the end no line may be lost or torn and the counter must be the number of raises.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "tests/mounted/random.h"

enum { FILES = 8, CONTENT_MAX_BYTES = 20000, PROCESSES_MAX = 512 };

static unsigned process;
static uint64_t seed;
static unsigned long step;
static unsigned versions[FILES]; /* of our own files; 0: not there */

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "mixed_work: seed %llu, process %u, step %lu: ", (unsigned long long)seed,
		process, step);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (%s)\n", strerror(errno));
	exit(1);
}

/* ---- Files of our own ------------------------------------------------------------------ */

static void name_of(char name[64], unsigned file)
{
	snprintf(name, 64, "own-%u/file-%u", process, file);
}

/* What version `version` of a file holds: a size and bytes that follow from it. */
static size_t content_of(unsigned file, unsigned version, char content[CONTENT_MAX_BYTES])
{
	uint64_t value = (uint64_t)process << 40 | (uint64_t)file << 32 | version;
	size_t size = (value * 2654435761U) % CONTENT_MAX_BYTES;

	for (size_t i = 0; i < size; i++)
		content[i] = (char)('a' + (value + i * 7 + i / 251) % 26);
	return size;
}

static void write_whole(const char *path, const char *content, size_t size)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		fail("open \"%s\"", path);
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, content + done, size - done);

		if (n <= 0)
			fail("write \"%s\"", path);
		done += (size_t)n;
	}
	if (close(steal_fd(&fd)) < 0)
		fail("close \"%s\"", path);
}

static void do_write(void)
{
	static char content[CONTENT_MAX_BYTES];
	unsigned file = below(FILES);
	bool replace = below(2);
	char path[64], temporary[64];
	size_t size = content_of(file, ++versions[file], content);

	name_of(path, file);
	snprintf(temporary, sizeof(temporary), "own-%u/.new", process);
	write_whole(replace ? temporary : path, content, size);
	if (replace && rename(temporary, path) < 0)
		fail("rename to \"%s\"", path);
}

static void do_check(void)
{
	static char want[CONTENT_MAX_BYTES], got[CONTENT_MAX_BYTES + 1];
	unsigned file = below(FILES);
	size_t size, done = 0;
	char path[64];
	ssize_t n;

	name_of(path, file);
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (!versions[file] && fd < 0 && errno == ENOENT)
		return;
	if (fd < 0 || !versions[file])
		fail("\"%s\" of version %u", path, versions[file]);
	size = content_of(file, versions[file], want);
	while ((n = read(fd, got + done, sizeof(got) - done)) > 0)
		done += (size_t)n;
	if (n < 0 || done != size || memcmp(want, got, size) != 0)
		fail("\"%s\": %zu bytes are not the %zu of version %u", path, done, size,
			versions[file]);
}

static void do_unlink(void)
{
	unsigned file = below(FILES);
	char path[64];

	name_of(path, file);
	if (unlink(path) < 0 && (versions[file] || errno != ENOENT))
		fail("unlink \"%s\"", path);
	versions[file] = 0;
}

static void do_directory(void)
{
	char path[64], inner[80];

	snprintf(path, sizeof(path), "own-%u/dir", process);
	snprintf(inner, sizeof(inner), "%s/inner", path);
	if (mkdir(path, 0755) < 0 || mkdir(inner, 0755) < 0)
		fail("mkdir below \"%s\"", path);
	if (rmdir(path) == 0 || (errno != ENOTEMPTY && errno != EEXIST))
		fail("rmdir of the full \"%s\"", path);
	if (rmdir(inner) < 0 || rmdir(path) < 0)
		fail("rmdir below \"%s\"", path);
}

static void do_list(void)
{
	unsigned want = 0, got = 0;
	char path[64];

	snprintf(path, sizeof(path), "own-%u", process);
	cleanup_dir DIR *directory = opendir(path);

	if (!directory)
		fail("opendir \"%s\"", path);
	for (unsigned i = 0; i < FILES; i++)
		want += versions[i] != 0;
	for (const struct dirent *entry; (entry = readdir(directory));)
		got += strncmp(entry->d_name, "file-", 5) == 0;
	if (want != got)
		fail("\"%s\" lists %u files of %u", path, got, want);
}

/* ---- What all share -------------------------------------------------------------------- */

static unsigned long appended, raised;

static void do_append(void)
{
	cleanup_fd int fd = open("log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	char line[200];
	int length = snprintf(line, sizeof(line), "%u %lu %0*u.\n", process, appended,
		1 + (int)below(150), process);

	if (fd < 0 || write(fd, line, (size_t)length) != length)
		fail("append to the log");
	if (close(steal_fd(&fd)) < 0)
		fail("close the log");
	appended++;
}

static unsigned long read_counter(int fd)
{
	char text[32] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) < 0)
		fail("read the counter");
	return strtoul(text, NULL, 10);
}

static void do_raise(void)
{
	cleanup_fd int fd = open("counter", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	char text[32];
	int length;

	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		fail("lock the counter");
	length = snprintf(text, sizeof(text), "%lu\n", read_counter(fd) + 1);
	if (pwrite(fd, text, (size_t)length, 0) != length)
		fail("write the counter");
	if (close(steal_fd(&fd)) < 0)
		fail("close the counter");
	raised++;
}

/* ---- The crowd --------------------------------------------------------------------------- */

static const struct step steps[] = {{do_write, 30}, {do_check, 40}, {do_unlink, 6},
	{do_directory, 4}, {do_list, 6}, {do_append, 9}, {do_raise, 5}};

struct share { /* what a process reports when it is done */
	unsigned long appended, raised;
};

static void work(unsigned long operations, int report)
{
	struct share share;
	char path[32];

	random_state = seed + process * 1000003;
	snprintf(path, sizeof(path), "own-%u", process);
	if (mkdir(path, 0755) < 0)
		fail("mkdir \"%s\"", path);
	for (step = 1; step <= operations; step++)
		any_step(steps, array_size(steps))->run();
	share = (struct share){.appended = appended, .raised = raised};
	if (write(report, &share, sizeof(share)) != sizeof(share))
		fail("report");
	exit(0);
}

/* Every line of each process, in its order, whole. */
static unsigned long count_lines(void)
{
	static unsigned long next[PROCESSES_MAX];
	cleanup_file FILE *f = fopen("log", "re");
	unsigned long count = 0, number;
	char line[256], padded[256];
	unsigned from;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%u %lu %200[0-9].", &from, &number, padded) != 3 ||
			from >= PROCESSES_MAX || strtoul(padded, NULL, 10) != from ||
			!strstr(line, ".\n"))
			fail("line %lu of the log is torn: %s", count + 1, line);
		if (number != next[from]++)
			fail("process %u: line %lu comes after %lu", from, number, next[from] - 1);
		count++;
	}
	return count;
}

static void check_sums(const struct share *sum)
{
	cleanup_fd int fd = open("counter", O_RDONLY | O_CLOEXEC);
	unsigned long lines = count_lines(), counter = fd < 0 ? 0 : read_counter(fd);

	if (lines != sum->appended)
		fail("%lu lines of %lu are in the log", lines, sum->appended);
	if (counter != sum->raised)
		fail("the counter is %lu after %lu raises", counter, sum->raised);
}

static bool wait_for_all(unsigned processes)
{
	bool good = true;

	for (unsigned i = 0; i < processes; i++) {
		int status;

		if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
			good = false;
	}
	return good;
}

int main(int argc, char **argv)
{
	unsigned processes = argc > 2 ? (unsigned)atoi(argv[2]) : 16;
	unsigned long operations = argc > 3 ? strtoul(argv[3], NULL, 10) : 200;
	struct share sum = {0}, share;
	int report[2];

	if (argc < 2 || processes < 1 || processes > PROCESSES_MAX) {
		fprintf(stderr, "usage: mixed_work DIRECTORY [PROCESSES [OPERATIONS [SEED]]]\n");
		return 2;
	}
	seed = argc > 4 ? strtoull(argv[4], NULL, 10) : (uint64_t)time(NULL);
	printf("mixed_work: seed %llu, %u processes of %lu operations\n", (unsigned long long)seed,
		processes, operations);
	fflush(stdout);
	if (chdir(argv[1]) < 0 || pipe2(report, O_CLOEXEC) < 0)
		fail("start in \"%s\"", argv[1]);
	for (process = 0; process < processes; process++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork");
		if (pid == 0)
			work(operations, report[1]);
	}
	close(report[1]);
	if (!wait_for_all(processes))
		return 1;
	while (read(report[0], &share, sizeof(share)) == sizeof(share)) {
		sum.appended += share.appended;
		sum.raised += share.raised;
	}
	check_sums(&sum);
	return 0;
}
