#include "ops/support/write_all.h"

#include <errno.h>
#include <unistd.h>

int write_all(int fd, const void *data, size_t size)
{
	const char *rest = data;

	while (size > 0) {
		ssize_t done = write(fd, rest, size);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		rest += done;
		size -= (size_t)done;
	}
	return 0;
}
