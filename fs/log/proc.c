#include "fs/log/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "ops/support/cleanup.h"

ssize_t proc_read(pid_t id, const char *file, char *text, size_t size)
{
	cleanup_fd int fd = -1;
	ssize_t length;
	char path[64];

	text[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)id, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	length = read(fd, text, size - 1);
	if (length < 0)
		return -errno;
	text[length] = '\0';
	return length;
}
