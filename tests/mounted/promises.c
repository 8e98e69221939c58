/*
 * promises: what POSIX promises to a program, by name, on the directory $MNT of a mount.
 *
 * $BACKING (or "") is the same directory at the workspace, $MNT2 (or "") on a second mount of it.
 */
#include "tests/mounted/promises.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>

#include "ops/support/cleanup.h"

const char *mount_point, *backing, *second_mount;

int put(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -EIO;
}

const char *get(const char *path)
{
	static char text[4096];
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (got < 0)
		return strerrorname_np(errno);
	text[got] = '\0';
	return text;
}

off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? -errno : st.st_size;
}

unsigned long links_of(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? 0 : st.st_nlink;
}

void elsewhere(const char *root, const char *name, char *path, size_t size)
{
	char here[PATH_MAX];

	if (!getcwd(here, sizeof(here)))
		here[0] = '\0';
	snprintf(path, size, "%s%s/%s", root, here + strlen(mount_point), name);
}

bool appears_soon(const char *path)
{
	for (int i = 0; i < 300 * test_patience(); i++) {
		if (access(path, F_OK) == 0)
			return true;
		usleep(10000);
	}
	return false;
}

int entries_of_dot(void)
{
	cleanup_dir DIR *stream = opendir(".");
	int count = 0;

	while (stream && readdir(stream))
		count++;
	return count - 2;
}

static const char *from_environment(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

int main(void)
{
	static const struct test_group *const groups[] = {&names_promises, &directories_promises,
		&content_promises, &attributes_promises, &locks_promises};

	mount_point = from_environment("MNT");
	backing = from_environment("BACKING");
	second_mount = from_environment("MNT2");
	if (!*mount_point) {
		fprintf(stderr, "promises: MNT is not set\n");
		return 2;
	}
	return test_run_groups("promises", groups, array_size(groups));
}
