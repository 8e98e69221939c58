#include "fs/commands/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/open.h"
#include "fs/commands/command_line.h"
#include "fs/mount/runtime.h"
#include "ops/support/cleanup.h"
#include "ops/support/visible.h"
#include "ops/writeback/writeback.h"

static const char usage[] =
	"usage: isthmus lost [DIR | URI] [--clear]\n"
	"\n"
	"Shows the changes that the workspace refused after they were made on the mount at DIR\n"
	"(default: the current directory) with -o writes=back, and the files that have their "
	"data.\n"
	"\n"
	"      --clear  forget them and remove the files\n";

/* The URI of the mount that has `directory`; the caller frees it.  NULL: an error was printed. */
static char *find_uri(const char *directory)
{
	cleanup_with(runtime_mount_done) struct runtime_mount mount = {0};
	cleanup_free char *socket_path = NULL, *mount_point = NULL, *id = NULL;

	if (command_is_uri(directory))
		return workspace_uri(directory);
	if (command_find_mount("lost", directory, &socket_path, &mount_point, NULL) < 0)
		return NULL;
	id = runtime_id(mount_point);
	if (id && runtime_load(id, &mount))
		return steal_ptr(&mount.uri);
	command_error("lost", "the workspace of \"%s\" is not known: give its URI", mount_point);
	return NULL;
}

static void print_lost(void *user, const struct writeback_lost *lost)
{
	const char *directory = user;

	printf("%s %s", lost->verb, lost->path);
	if (*lost->path2)
		printf(" -> %s", lost->path2);
	printf(": %s\n", lost->reason);
	if (lost->has_content) {
		fputs("    ", stdout);
		visible_print_name(stdout, directory);
		printf("/%s/content\n", lost->place);
	}
}

static int clear(const char *directory)
{
	int r = writeback_lost_clear(directory);

	return r < 0 ? command_error("lost", "cannot remove the files in \"%s\": %s", directory,
			       strerror(-r))
		     : 0;
}

int lost_command(int argc, char **argv)
{
	bool is_cleared = false;
	const struct command_option options[] = {{"clear", .flag = &is_cleared}, {0}};
	const struct command_line line = {
		.command = "lost", .usage = usage, .options = options, .arguments_max = 1};
	cleanup_free char *uri = NULL, *identity = NULL, *directory = NULL;
	int code, r;

	if (!command_parse(&line, argc, argv, &code))
		return code;
	uri = find_uri(optind < argc ? argv[optind] : ".");
	if (!uri)
		return 1;
	identity = workspace_normal_uri(uri);
	if (!identity)
		return command_error("lost", "%s", strerror(ENOMEM));
	directory = writeback_lost_directory(identity);
	if (!directory)
		return command_error("lost", "neither XDG_STATE_HOME nor HOME is set");
	if (is_cleared)
		return clear(directory);
	r = writeback_lost_each(directory, print_lost, directory);
	return r < 0 ? command_error("lost", "\"%s\": %s", directory, strerror(-r)) : 0;
}
