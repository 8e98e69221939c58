/*
 * listing_model DIRECTORY [NAMES [SEED]]: listings of a directory while names in it are created,
 * renamed and removed by another process.
 *
 * A name that exists all the time while the directory is read must be listed exactly once, and one
 * that never exists not at all: in one pass, and in one that goes back to a position, or opens the
 * directory again and goes on from there.  In the end all names are removed, and then DIRECTORY.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
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

#include "tests/mounted/random.h"

enum { BURSTS = 4 };

/* Written by the process that changes names. */
struct name {
	atomic_uint turns; /* odd: a change of it is under way */
	atomic_bool exists;
};

/* What the process that lists knows of a name. */
struct listed {
	unsigned turns; /* when the listing began */
	bool existed;
	unsigned times;
};

static const char *directory;
static uint64_t seed;
static unsigned count = 10000;
static struct name *names;
static struct listed *listed;

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "listing_model: seed %llu: ", (unsigned long long)seed);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	exit(1);
}

/* ---- Changes ---------------------------------------------------------------------------- */

static void name_of(unsigned i, char text[16])
{
	snprintf(text, 16, "n%u", i);
}

static void set(unsigned i, bool exists)
{
	names[i].exists = exists;
	names[i].turns++;
}

static void make(unsigned i)
{
	char text[16];
	int fd;

	name_of(i, text);
	names[i].turns++;
	fd = open(text, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0)
		fail("cannot create \"%s\": %s", text, strerror(errno));
	close(fd);
	set(i, true);
}

static void drop(unsigned i)
{
	char text[16];

	name_of(i, text);
	names[i].turns++;
	if (unlink(text) < 0)
		fail("cannot remove \"%s\": %s", text, strerror(errno));
	set(i, false);
}

static void move(unsigned from, unsigned to)
{
	char text[16], text2[16];

	name_of(from, text);
	name_of(to, text2);
	names[from].turns++;
	names[to].turns++;
	if (rename(text, text2) < 0)
		fail("cannot rename \"%s\" to \"%s\": %s", text, text2, strerror(errno));
	set(to, true);
	set(from, false);
}

/* Every fourth name is never touched again. */
static unsigned any_name(void)
{
	unsigned i = (unsigned)below(count);

	return i % 4 ? i : (i + 1) % count;
}

static void change_names(void)
{
	for (unsigned i = 0; i < count; i += 2)
		make(i);
	for (unsigned done = 0; done < count; done++) {
		unsigned from = any_name(), to = any_name();

		if (!names[from].exists)
			make(from);
		else if (from == to || below(2))
			drop(from);
		else
			move(from, to);
	}
}

/* ---- Listings ----------------------------------------------------------------------------- */

static void note(const struct dirent *entry)
{
	unsigned i = (unsigned)strtoul(entry->d_name + 1, NULL, 10);

	if (*entry->d_name == '.')
		return;
	if (*entry->d_name != 'n' || i >= count)
		fail("\"%s\" was listed", entry->d_name);
	listed[i].times++;
}

static DIR *open_at(long position)
{
	DIR *stream = opendir(".");

	if (!stream)
		fail("cannot open the directory: %s", strerror(errno));
	if (position)
		seekdir(stream, position);
	return stream;
}

/* `seeks`: now and then what follows a position is read and forgotten. */
static void list(bool seeks)
{
	DIR *stream = open_at(0);
	struct dirent *entry;
	long position;

	while ((errno = 0, entry = readdir(stream))) {
		note(entry);
		if (!seeks || below(500))
			continue;
		position = telldir(stream);
		for (unsigned i = (unsigned)below(1000); i > 0 && readdir(stream); i--)
			continue;
		if (below(2)) {
			seekdir(stream, position);
		} else {
			closedir(stream);
			stream = open_at(position);
		}
	}
	if (errno)
		fail("cannot read the directory: %s", strerror(errno));
	closedir(stream);
}

static void check_listing(bool seeks)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < count; i++) {
		listed[i].turns = names[i].turns;
		listed[i].existed = names[i].exists;
		listed[i].times = 0;
	}
	list(seeks);
	for (unsigned i = 0; i < count; i++) {
		if (listed[i].turns % 2 || listed[i].turns != names[i].turns)
			continue;
		if (listed[i].times == listed[i].existed)
			continue;
		fprintf(stderr, "\"n%u\" was listed %u times, although it was %s there\n", i,
			listed[i].times, listed[i].existed ? "always" : "never");
		if (++wrong == 10)
			break;
	}
	if (wrong)
		fail("a listing%s is not right", seeks ? " with seekdir" : "");
}

static void list_until(pid_t changer)
{
	unsigned listings = 0;
	int status;

	while (waitpid(changer, &status, WNOHANG) == 0)
		check_listing(listings++ % 2);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		exit(1);
	for (unsigned i = 0; i < 4; i++) /* what is pending still ends meanwhile */
		check_listing(i % 2);
}

static void remove_all(void)
{
	for (unsigned i = 0; i < count; i++)
		if (names[i].exists)
			drop(i);
	check_listing(false);
}

/* What is pending is sent while the directory is listed. */
static void list_after_bursts(void)
{
	for (unsigned burst = 0; burst < BURSTS; burst++) {
		for (unsigned i = 0; i < count; i++)
			make(i);
		for (unsigned i = 0; i < 6; i++)
			check_listing(i % 2);
		remove_all();
	}
}

static void remove_directory(void)
{
	if (chdir("/") < 0 || rmdir(directory) < 0)
		fail("cannot remove \"%s\": %s", directory, strerror(errno));
}

int main(int argc, char **argv)
{
	pid_t changer;

	directory = argv[1];
	if (argc > 2)
		count = (unsigned)strtoul(argv[2], NULL, 10);
	seed = argc > 3 ? strtoull(argv[3], NULL, 10)
			: (uint64_t)time(NULL) * 1000 + (uint64_t)getpid();
	random_state = seed;
	if (argc < 2 || count < 8 || mkdir(directory, 0755) < 0 || chdir(directory) < 0)
		fail("usage: listing_model NEW_DIRECTORY [NAMES [SEED]]");
	names = mmap(NULL, count * sizeof(*names), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	listed = calloc(count, sizeof(*listed));
	if (names == MAP_FAILED || !listed)
		fail("no memory");
	list_after_bursts();
	changer = fork();
	if (changer < 0)
		fail("cannot fork: %s", strerror(errno));
	if (!changer) {
		change_names();
		_exit(0);
	}
	list_until(changer);
	remove_all();
	remove_directory();
	return 0;
}
