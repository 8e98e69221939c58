#include "ops/support/files.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

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

int make_directories(const char *path)
{
	cleanup_free char *copy = strdup(path);
	int fd;

	if (!copy)
		return -ENOMEM;
	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	if (mkdir(copy, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

char *state_path(const char *name)
{
	const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const char *slash = name ? "/" : "";
	const struct passwd *user;

	name = name ? name : "";
	if (base && *base == '/')
		return string_printf("%s/isthmus%s%s", base, slash, name);
	if (!home || *home != '/') {
		user = getpwuid(geteuid());
		home = user ? user->pw_dir : "/tmp";
	}
	return string_printf("%s/.local/state/isthmus%s%s", home, slash, name);
}
