/* Finding the descendants of this process.  Async-signal-safe, single-threaded. */
#include "ops/support/process_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROCESSES_MAX = 32768, STAT_BYTES = 256 };

struct process_entry {
	pid_t pid, parent;
	bool is_descendant;
};

/* Touched in supervisors only, each of which has its own copy. */
static struct process_entry table[PROCESSES_MAX];
static char names[32768];

static long parse_number(const char *text, const char **ret_end)
{
	long number = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		number = number * 10 + (*text - '0');
	*ret_end = text;
	return number;
}

/* From "PID (name, any bytes) STATE PARENT ...".  Zombies do not count. */
static bool read_entry(int proc_fd, const char *name, struct process_entry *ret_entry)
{
	char path[32], text[STAT_BYTES + 1];
	size_t length = strlen(name);
	const char *end, *after_name;
	ssize_t got;
	int fd;

	ret_entry->pid = (pid_t)parse_number(name, &end);
	if (*end || !length || length > 16)
		return false;
	memcpy(path, name, length);
	memcpy(path + length, "/stat", sizeof("/stat"));
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, text, STAT_BYTES);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	after_name = strrchr(text, ')');
	if (!after_name || strlen(after_name) < 5 || after_name[2] == 'Z' || after_name[2] == 'X')
		return false;
	ret_entry->parent = (pid_t)parse_number(after_name + 4, &end);
	ret_entry->is_descendant = false;
	return true;
}

struct kernel_dirent {
	uint64_t inode;
	int64_t offset;
	uint16_t size;
	uint8_t type;
	char name[];
};

/* /proc lists processes by ascending number. */
static size_t read_table(void)
{
	int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	size_t count = 0;
	long got;

	if (proc_fd < 0)
		return 0;
	while ((got = syscall(SYS_getdents64, proc_fd, names, sizeof(names))) > 0)
		for (long at = 0; at < got;) {
			const struct kernel_dirent *entry = (const void *)(names + at);

			if (count < PROCESSES_MAX &&
				read_entry(proc_fd, entry->name, &table[count]))
				count++;
			at += entry->size;
		}
	close(proc_fd);
	return count;
}

static const struct process_entry *find(size_t count, pid_t pid)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && table[low].pid == pid ? &table[low] : NULL;
}

static bool mark_once(size_t count, pid_t self)
{
	bool changed = false;

	for (size_t i = 0; i < count; i++) {
		const struct process_entry *parent;

		if (table[i].is_descendant)
			continue;
		parent = find(count, table[i].parent);
		if (table[i].parent == self || (parent && parent->is_descendant)) {
			table[i].is_descendant = true;
			changed = true;
		}
	}
	return changed;
}

size_t process_signal_descendants(int signal)
{
	size_t count = read_table(), found = 0;
	pid_t self = getpid();

	while (mark_once(count, self)) {}
	for (size_t i = 0; i < count; i++)
		if (table[i].is_descendant) {
			kill(table[i].pid, signal);
			found++;
		}
	return found;
}
