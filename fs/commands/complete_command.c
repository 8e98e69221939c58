#include <stdio.h>

#include "backends/open.h"
#include "fs/commands/commands.h"

static void print_uri(void *user, const char *uri)
{
	(void)user;
	puts(uri);
}

int complete_command(int argc, char **argv)
{
	if (argc != 2)
		return EXIT_USAGE;
	workspace_complete(argv[1], print_uri, NULL);
	return 0;
}
