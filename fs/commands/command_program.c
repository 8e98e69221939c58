#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/commands/commands.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"

char *command_find_program(const char *name)
{
	static const char *const directories[] = {"", "../libexec/", "../libexec/isthmus/",
		"../tools/", "../backends/remote/", "../backends/"};
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (length < 0)
		return NULL;
	self[length] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < array_size(directories); i++) {
		cleanup_free char *path = string_printf("%s/%s%s", self, directories[i], name);

		if (path && access(path, X_OK) == 0)
			return steal_ptr(&path);
	}
	return NULL;
}
