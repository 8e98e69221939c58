#include "ops/support/rename.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int rename_to_free_name(int directory, const char *from, const char *to)
{
	if (renameat2(directory, from, directory, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	if (linkat(directory, from, directory, to, 0) < 0)
		return -errno;
	return unlinkat(directory, from, 0) < 0 ? -errno : 0;
}
