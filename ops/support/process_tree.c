/* Finding the descendants of this process.  Async-signal-safe, single-threaded. */
#include "ops/support/process_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROCESSES_MAX = 32768, STATUS_BYTES = 512 };

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

/* What follows "\nNAME:\t" in a status file; newlines in a process's name are escaped there. */
static const char *field(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at ? at + strlen(name) : "";
}

/* Not from `stat`, which waits for a process that is held up within execve(2): its files may be
 * flushed to a mount that does not answer.  Zombies do not count. */
static bool read_entry(int proc_fd, const char *name, struct process_entry *ret_entry)
{
	char path[32], text[STATUS_BYTES + 1];
	size_t length = strlen(name);
	const char *end, *state;
	ssize_t got;
	int fd;

	ret_entry->pid = (pid_t)parse_number(name, &end);
	if (*end || !length || length > 16)
		return false;
	memcpy(path, name, length);
	memcpy(path + length, "/status", sizeof("/status"));
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, text, STATUS_BYTES);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	state = field(text, "\nState:\t");
	if (!*state || *state == 'Z' || *state == 'X')
		return false;
	ret_entry->parent = (pid_t)parse_number(field(text, "\nPPid:\t"), &end);
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

size_t process_signal_descendants(int signal, pid_t command)
{
	size_t count = read_table(), found = 0;
	pid_t self = getpid();

	if (count == 0) /* a chroot without /proc */
		return kill(-command, signal) == 0;
	while (mark_once(count, self)) {}
	for (size_t i = 0; i < count; i++)
		if (table[i].is_descendant) {
			kill(table[i].pid, signal);
			found++;
		}
	return found;
}
