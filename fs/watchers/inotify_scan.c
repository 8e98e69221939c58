#include "fs/watchers/inotify_scan.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

struct scan {
	unsigned minor;
	bool others;
	size_t capacity;
	struct inotify_scan found;
};

static void add_node(struct scan *scan, uint64_t node)
{
	if (scan->found.count == scan->capacity) {
		size_t capacity = scan->capacity ? 2 * scan->capacity : 64;
		uint64_t *nodes = reallocarray(scan->found.nodes, capacity, sizeof(*nodes));

		if (!nodes) {
			scan->found.is_everything = true;
			return;
		}
		scan->found.nodes = nodes;
		scan->capacity = capacity;
	}
	scan->found.nodes[scan->found.count++] = node;
}

/* A file handle of FUSE is the node id, the upper half first, and a generation; here in
 * hexadecimal, byte by byte. */
static bool parse_handle(const char *text, uint64_t *ret_node)
{
	uint32_t words[2] = {0};
	unsigned char *bytes = (unsigned char *)words;

	for (size_t i = 0; i < sizeof(words); i++) {
		unsigned value;

		if (sscanf(text + 2 * i, "%2x", &value) != 1)
			return false;
		bytes[i] = (unsigned char)value;
	}
	*ret_node = (uint64_t)words[0] << 32 | words[1];
	return true;
}

/* A mark on an inode, as proc(5) has it; or on a whole file system, without an inode. */
static void take_line(struct scan *scan, const char *line)
{
	const char *device = strstr(line, "sdev:"), *handle = strstr(line, "f_handle:");
	uint64_t node;

	if (!device || (strncmp(line, "inotify ", 8) != 0 && strncmp(line, "fanotify ", 9) != 0) ||
		strtoul(device + strlen("sdev:"), NULL, 16) != scan->minor)
		return;
	if (handle && parse_handle(handle + strlen("f_handle:"), &node))
		add_node(scan, node);
	else
		scan->found.is_everything = true;
}

static void take_marks(struct scan *scan, int process, const char *number)
{
	cleanup_file FILE *file = NULL;
	cleanup_free char *line = NULL;
	char path[NAME_MAX + 8];
	size_t size = 0;
	int fd;

	snprintf(path, sizeof(path), "fdinfo/%s", number);
	fd = openat(process, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	file = fdopen(fd, "r");
	if (!file)
		close(fd);
	while (file && getline(&line, &size, file) > 0)
		take_line(scan, line);
}

static bool is_ours(int process)
{
	struct stat found;
	char text[1024], *uids;
	unsigned real, effective;
	cleanup_fd int fd = -1;
	ssize_t got;

	if (fstat(process, &found) == 0 && found.st_uid == geteuid())
		return true;
	/* One that must not be dumped belongs to root there. */
	fd = openat(process, "status", O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	text[got > 0 ? got : 0] = '\0';
	uids = strstr(text, "\nUid:");
	return uids && sscanf(uids, "\nUid: %u %u", &real, &effective) == 2 &&
	       (real == geteuid() || effective == geteuid());
}

static void take_process(struct scan *scan, int proc, const char *pid)
{
	cleanup_fd int process = openat(proc, pid, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *files = NULL;
	const struct dirent *entry;
	char target[32];
	int fd;

	if (process < 0)
		return;
	fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		if ((errno == EACCES || errno == EPERM) && (scan->others || is_ours(process)))
			scan->found.is_everything = true;
		return;
	}
	files = fdopendir(fd);
	if (!files) {
		close(fd);
		return;
	}
	while ((entry = readdir(files))) {
		ssize_t got = readlinkat(fd, entry->d_name, target, sizeof(target) - 1);

		if (got < 16 || strncmp(target, "anon_inode:", 11) != 0)
			continue;
		target[got] = '\0';
		if (strstr(target, "inotify") || strstr(target, "fanotify"))
			take_marks(scan, process, entry->d_name);
	}
}

static int compare_nodes(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void sort_nodes(struct inotify_scan *found)
{
	size_t count = 0;

	if (found->count)
		qsort(found->nodes, found->count, sizeof(*found->nodes), compare_nodes);
	for (size_t i = 0; i < found->count; i++)
		if (!count || found->nodes[count - 1] != found->nodes[i])
			found->nodes[count++] = found->nodes[i];
	found->count = count;
}

int inotify_scan_run(unsigned minor, bool others, struct inotify_scan *ret_scan)
{
	struct scan scan = {.minor = minor, .others = others && geteuid() != 0};
	cleanup_dir DIR *processes = opendir("/proc");
	const struct dirent *entry;

	if (!processes)
		return -errno;
	while ((entry = readdir(processes)))
		if (isdigit((unsigned char)entry->d_name[0]))
			take_process(&scan, dirfd(processes), entry->d_name);
	sort_nodes(&scan.found);
	*ret_scan = scan.found;
	return 0;
}
