#include "fs/mount/mount_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "ops/workspace.h"

static bool is_same(const struct stat *here, const struct attributes *there)
{
	return here->st_ino == there->id.inode && here->st_dev == there->id.device;
}

static bool is_there(struct workspace *w, const char *path, struct attributes *ret_attributes)
{
	struct op_context ctx;

	op_context_init(&ctx);
	return workspace_getattr(&ctx, w, &OBJECT_AT(path), ret_attributes) == 0;
}

/* The directory above `mount_point` that is the root of the workspace, as the length of its
 * path; 0: none. */
static size_t find_root(struct workspace *w, const char *mount_point)
{
	cleanup_free char *path = strdup(mount_point);
	struct attributes root;
	struct stat here;
	char *slash;

	if (!path || !is_there(w, "", &root))
		return 0;
	while ((slash = strrchr(path, '/')) && slash[1]) {
		slash[slash == path] = '\0';
		if (stat(path, &here) == 0 && is_same(&here, &root))
			return strlen(path);
	}
	return 0;
}

/* Ids agree on clones of one machine, too; but a file that is deleted there vanishes here only if
 * both are the same.  (A mere look might be answered by a cache.) */
static bool shows_up(struct workspace *w, const char *mount_point, const char *path)
{
	cleanup_free char *here = NULL, *there = NULL;
	struct op_context ctx;
	unsigned random[2];
	char name[48];
	int fd, r;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return true;
	snprintf(name, sizeof(name), ".isthmus-probe-%08x%08x", random[0], random[1]);
	here = path_join(mount_point, name);
	there = path_join(path, name);
	fd = here && there ? open(here, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
	if (fd < 0)
		return true;
	close(fd);
	op_context_init(&ctx);
	r = workspace_unlink(&ctx, w, there, NULL);
	unlink(here);
	return r != -ENOENT;
}

bool mount_loop_find(struct workspace *w, const char *mount_point, char **ret_path)
{
	size_t root = find_root(w, mount_point);
	const char *path = mount_point + root + (mount_point[root] == '/');
	struct attributes there;
	struct stat here;

	if (!root || stat(mount_point, &here) < 0 || !is_there(w, path, &there) ||
		!is_same(&here, &there) || !shows_up(w, mount_point, path))
		return false;
	*ret_path = strdup(path);
	return true;
}
