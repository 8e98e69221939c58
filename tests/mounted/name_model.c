/*
 * name_model DIRECTORY [OPERATIONS [SEED [PROCESSES]]]: random work on names by several
 * processes at once.
 *
 * Each process has a directory to itself, whose every name, kind, size, mode and link count
 * it keeps in a model and compares at the end; between its own steps it also works in a
 * directory that all share, where anything may be gone the next moment, but only ENOENT,
 * EEXIST and their like are answers.  Leaves everything in place: the caller compares the
 * tree seen through the mount with the one behind it.
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "tests/mounted/random.h"

enum { DIRECTORIES = 6, NAMES = 24, PROCESSES_MAX = 64 };

enum kind { NOTHING, FILE_KIND, LINK_KIND, FIFO_KIND, KINDS };

/* An entry of the model; files with the same `object` are one file. */
struct entry {
	enum kind kind;
	unsigned object;
};

struct object {
	off_t size;
	mode_t mode;
	unsigned links;
};

static struct entry tree[DIRECTORIES][NAMES];
static struct object objects[DIRECTORIES * NAMES + 1];
static bool directory_exists[DIRECTORIES];
static uint64_t seed;
static unsigned long step;
static int process;
static const char *step_name = "start";

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr,
		"name_model: seed %llu, process %d, step %lu (%s): ", (unsigned long long)seed,
		process, step, step_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	exit(1);
}

struct place {
	unsigned directory, name;
	char path[64];
};

static struct place place_at(unsigned directory, unsigned name)
{
	struct place p = {.directory = directory, .name = name};

	snprintf(p.path, sizeof(p.path), "d%u/n%u", directory, name);
	return p;
}

static struct place any_place(void)
{
	return place_at(below(DIRECTORIES), below(NAMES));
}

static struct entry *entry_of(const struct place *p)
{
	return &tree[p->directory][p->name];
}

static unsigned new_object(off_t size, mode_t mode)
{
	unsigned i = 0;

	while (objects[i].links)
		i++;
	objects[i] = (struct object){.size = size, .mode = mode, .links = 1};
	return i;
}

static void drop(struct entry *entry)
{
	objects[entry->object].links--;
	entry->kind = NOTHING;
}

/* The result of a system call against what the model says (an errno, 0: success). */
static void expect(int want, int got, const char *what, const char *path)
{
	int error = got < 0 ? errno : 0;

	if (error != want)
		fail("%s \"%s\": %s instead of %s", what, path, strerror(error), strerror(want));
}

/* ---- Steps in the process's own directory -------------------------------------------------- */

static int missing_or(const struct place *p, int otherwise)
{
	return directory_exists[p->directory] ? otherwise : ENOENT;
}

static void do_create(void)
{
	struct place p = any_place();
	struct entry *entry = entry_of(&p);
	int want = missing_or(&p, entry->kind == NOTHING ? 0 : EEXIST);
	size_t size = below(5000);
	static char data[5000];
	int fd = open(p.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	expect(want, fd, "create", p.path);
	if (fd < 0)
		return;
	if (write(fd, data, size) != (ssize_t)size)
		fail("write \"%s\": %s", p.path, strerror(errno));
	expect(0, close(fd), "close", p.path);
	*entry = (struct entry){FILE_KIND, new_object((off_t)size, 0600)};
}

static void do_symlink(void)
{
	struct place p = any_place();
	struct entry *entry = entry_of(&p);
	int want = missing_or(&p, entry->kind == NOTHING ? 0 : EEXIST);
	int r = symlink("some/where", p.path);

	expect(want, r, "symlink", p.path);
	if (r == 0)
		*entry = (struct entry){LINK_KIND, new_object(10, 0777)};
}

static void do_mkfifo(void)
{
	struct place p = any_place();
	struct entry *entry = entry_of(&p);
	int want = missing_or(&p, entry->kind == NOTHING ? 0 : EEXIST);
	int r = mkfifo(p.path, 0640);

	expect(want, r, "mkfifo", p.path);
	if (r == 0)
		*entry = (struct entry){FIFO_KIND, new_object(0, 0640)};
}

static void do_unlink(void)
{
	struct place p = any_place();
	struct entry *entry = entry_of(&p);
	int want = entry->kind == NOTHING ? ENOENT : 0;

	expect(want, unlink(p.path), "unlink", p.path);
	if (want == 0)
		drop(entry);
}

static void do_link(void)
{
	struct place from = any_place(), to = any_place();
	struct entry *source = entry_of(&from), *target = entry_of(&to);
	int want = 0;

	if (source->kind == NOTHING || !directory_exists[to.directory])
		want = ENOENT;
	else if (target->kind != NOTHING)
		want = EEXIST;
	expect(want, link(from.path, to.path), "link", to.path);
	if (want != 0)
		return;
	*target = *source;
	objects[target->object].links++;
}

static void do_rename(void)
{
	struct place from = any_place(), to = any_place();
	struct entry *source = entry_of(&from), *target = entry_of(&to);
	bool missing = source->kind == NOTHING || !directory_exists[to.directory];

	expect(missing ? ENOENT : 0, rename(from.path, to.path), "rename", from.path);
	if (missing || (target->kind != NOTHING && target->object == source->object))
		return;
	if (target->kind != NOTHING)
		drop(target);
	*target = *source;
	source->kind = NOTHING;
}

static void do_exchange(void)
{
	struct place from = any_place(), to = any_place();
	struct entry *source = entry_of(&from), *target = entry_of(&to), swap = *source;
	int want = source->kind == NOTHING || target->kind == NOTHING ? ENOENT : 0;

	expect(want, renameat2(AT_FDCWD, from.path, AT_FDCWD, to.path, RENAME_EXCHANGE), "exchange",
		from.path);
	if (want != 0)
		return;
	*source = *target;
	*target = swap;
}

static void do_chmod(void)
{
	struct place p = any_place();
	struct entry *entry = entry_of(&p);
	mode_t mode = 0600 | (mode_t)below(0200);

	if (entry->kind == LINK_KIND)
		return;
	expect(entry->kind == NOTHING ? ENOENT : 0, chmod(p.path, mode), "chmod", p.path);
	if (entry->kind != NOTHING)
		objects[entry->object].mode = mode;
}

static void do_truncate(void)
{
	struct place p = any_place();
	struct entry *entry = entry_of(&p);
	off_t size = below(100000);

	if (entry->kind != FILE_KIND && entry->kind != NOTHING)
		return;
	expect(entry->kind == NOTHING ? ENOENT : 0, truncate(p.path, size), "truncate", p.path);
	if (entry->kind == FILE_KIND)
		objects[entry->object].size = size;
}

static bool is_empty(unsigned directory)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (tree[directory][i].kind != NOTHING)
			return false;
	return true;
}

static void do_directory(void)
{
	unsigned directory = below(DIRECTORIES);
	char path[16];
	int want;

	snprintf(path, sizeof(path), "d%u", directory);
	if (!directory_exists[directory]) {
		expect(0, mkdir(path, 0755), "mkdir", path);
		directory_exists[directory] = true;
		return;
	}
	want = is_empty(directory) ? 0 : ENOTEMPTY;
	expect(want, rmdir(path), "rmdir", path);
	directory_exists[directory] = want != 0;
}

/* Two whole directories change places. */
static void do_move_directory(void)
{
	unsigned a = below(DIRECTORIES), b = below(DIRECTORIES);
	struct entry swap[NAMES];
	char from[16], to[16];

	if (a == b || !directory_exists[a] || !directory_exists[b])
		return;
	snprintf(from, sizeof(from), "d%u", a);
	snprintf(to, sizeof(to), "d%u", b);
	expect(0, rename(from, "moving"), "rename", from);
	expect(0, rename(to, from), "rename", to);
	expect(0, rename("moving", to), "rename", "moving");
	memcpy(swap, tree[a], sizeof(swap));
	memcpy(tree[a], tree[b], sizeof(swap));
	memcpy(tree[b], swap, sizeof(swap));
}

static void check_entry(const struct place *p)
{
	static const mode_t types[KINDS] = {0, S_IFREG, S_IFLNK, S_IFIFO};
	const struct entry *entry = entry_of(p);
	const struct object *object = &objects[entry->object];
	struct stat st;
	int r = lstat(p->path, &st);

	expect(entry->kind == NOTHING ? ENOENT : 0, r, "lstat", p->path);
	if (r < 0)
		return;
	if (st.st_mode != (types[entry->kind] | object->mode))
		fail("mode of \"%s\" is %o instead of %o", p->path, st.st_mode,
			types[entry->kind] | object->mode);
	if (st.st_size != object->size || st.st_nlink != object->links)
		fail("\"%s\" has %lld bytes and %lu links instead of %lld and %u", p->path,
			(long long)st.st_size, (unsigned long)st.st_nlink, (long long)object->size,
			object->links);
}

static void do_check(void)
{
	struct place p = any_place();

	check_entry(&p);
}

static void check_listing(unsigned directory)
{
	cleanup_dir DIR *stream = NULL;
	unsigned want = 0, got = 0;
	char path[16];

	snprintf(path, sizeof(path), "d%u", directory);
	for (unsigned i = 0; i < NAMES; i++)
		want += tree[directory][i].kind != NOTHING;
	stream = opendir(path);
	if (!stream && (errno != ENOENT || directory_exists[directory]))
		fail("opendir \"%s\": %s", path, strerror(errno));
	for (const struct dirent *d; stream && (d = readdir(stream));)
		if (d->d_name[0] != '.') {
			unsigned name = (unsigned)strtoul(d->d_name + 1, NULL, 10);

			if (name >= NAMES || tree[directory][name].kind == NOTHING)
				fail("\"%s/%s\" is listed but not there", path, d->d_name);
			got++;
		}
	if (got != want)
		fail("\"%s\" lists %u names instead of %u", path, got, want);
}

static void do_list(void)
{
	check_listing(below(DIRECTORIES));
}

/* ---- Steps in the shared directory ----------------------------------------------------------- */

static void tolerate(int result, const char *what, const char *path)
{
	static const int usual[] = {
		ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR, ELOOP, EINVAL, EPERM};

	if (result >= 0)
		return;
	for (size_t i = 0; i < array_size(usual); i++)
		if (errno == usual[i])
			return;
	fail("%s \"%s\": %s", what, path, strerror(errno));
}

static void do_shared(void)
{
	char a[64], b[64];
	struct stat st;
	int fd;

	snprintf(a, sizeof(a), "../shared/%zu", below(12));
	snprintf(b, sizeof(b), "../shared/%zu%s", below(12), below(3) ? "" : "/x");
	switch (below(9)) {
	case 0:
		fd = open(a, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		tolerate(fd, "open", a);
		if (fd < 0)
			break;
		tolerate((int)write(fd, "shared", 6), "write", a);
		tolerate(fstat(fd, &st), "fstat", a);
		tolerate(close(fd), "close", a);
		break;
	case 1:
		tolerate(unlink(a), "unlink", a);
		break;
	case 2:
		tolerate(mkdir(a, 0755), "mkdir", a);
		break;
	case 3:
		tolerate(rmdir(a), "rmdir", a);
		break;
	case 4:
		tolerate(link(a, b), "link", b);
		break;
	case 5:
		tolerate(symlink("x", b), "symlink", b);
		break;
	case 6:
		tolerate(lstat(b, &st), "lstat", b);
		break;
	default:
		tolerate(rename(a, b), "rename", a);
	}
}

static const struct step steps[] = {
	{do_create, 20, "create"},
	{do_symlink, 5, "symlink"},
	{do_mkfifo, 3, "mkfifo"},
	{do_unlink, 14, "unlink"},
	{do_link, 8, "link"},
	{do_rename, 14, "rename"},
	{do_exchange, 4, "exchange"},
	{do_chmod, 5, "chmod"},
	{do_truncate, 5, "truncate"},
	{do_directory, 6, "directory"},
	{do_move_directory, 1, "move directory"},
	{do_check, 20, "check"},
	{do_list, 4, "list"},
	{do_shared, 20, "shared"},
};

static void do_something(void)
{
	const struct step *chosen = any_step(steps, array_size(steps));

	step_name = chosen->name;
	chosen->run();
}

static int run_process(int number, unsigned long count)
{
	char own[32];

	process = number;
	random_state = seed + (uint64_t)number * 0x1000193;
	snprintf(own, sizeof(own), "own%d", number);
	expect(0, mkdir(own, 0755), "mkdir", own);
	expect(0, chdir(own), "chdir", own);
	for (step = 1; step <= count; step++)
		do_something();
	step_name = "end";
	for (unsigned d = 0; d < DIRECTORIES; d++) {
		check_listing(d);
		for (unsigned n = 0; n < NAMES; n++) {
			struct place p = place_at(d, n);

			check_entry(&p);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 1500;
	int processes = argc > 4 ? atoi(argv[4]) : 8, failures = 0, status;

	if (argc < 2 || processes < 1 || processes > PROCESSES_MAX) {
		fprintf(stderr, "usage: name_model DIRECTORY [OPERATIONS [SEED [PROCESSES]]]\n");
		return 2;
	}
	seed = argc > 3 ? strtoull(argv[3], NULL, 0)
			: (uint64_t)time(NULL) * 1000 + getpid() % 1000;
	printf("name_model: seed %llu, %d processes of %lu operations\n", (unsigned long long)seed,
		processes, count);
	fflush(stdout);
	umask(0);
	expect(0, chdir(argv[1]), "chdir", argv[1]);
	expect(0, mkdir("shared", 0755), "mkdir", "shared");
	for (int i = 0; i < processes; i++)
		if (fork() == 0)
			exit(run_process(i, count));
	while (wait(&status) > 0)
		failures += status != 0;
	return failures != 0;
}
