#include "fs/commands/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "ops/support/cleanup.h"

static const char usage[] = "usage: isthmus sync [DIR]\n"
			    "\n"
			    "Waits until all changes on the mount at DIR (default: the current "
			    "directory) have reached the\n"
			    "workspace; for mounts with -o writes=back.\n";

static int sync_mount(const char *directory)
{
	cleanup_free char *socket_path = NULL, *mount_point = NULL;
	cleanup_fd int fd = -1;

	if (command_find_mount("sync", directory, &socket_path, &mount_point, NULL) < 0)
		return 1;
	fd = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return command_error("sync", "\"%s\": %s", mount_point, strerror(errno));
	if (fsync(fd) < 0)
		return command_error("sync",
			"\"%s\": not everything is at the workspace: %s; 'isthmus lost %s' shows "
			"what it refused",
			mount_point, strerror(errno), mount_point);
	return 0;
}

int sync_command(int argc, char **argv)
{
	const struct command_line line = {.command = "sync", .usage = usage, .arguments_max = 1};
	int code;

	if (!command_parse(&line, argc, argv, &code))
		return code;
	return sync_mount(optind < argc ? argv[optind] : ".");
}
