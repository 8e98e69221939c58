#include "ops/support/file_limit.h"

#include <stdbool.h>
#include <sys/resource.h>

enum { OPEN_FILES_WANTED = 65536 };

static struct rlimit limit_before;
static bool is_raised;

void file_limit_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit_before = limit;
	limit.rlim_cur = limit.rlim_max;
	if (limit.rlim_max < OPEN_FILES_WANTED)
		limit.rlim_cur = limit.rlim_max = OPEN_FILES_WANTED;
	is_raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
	if (is_raised)
		return;
	limit.rlim_cur = limit.rlim_max = limit_before.rlim_max; /* without the right to more */
	is_raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void file_limit_restore(void)
{
	if (is_raised)
		setrlimit(RLIMIT_NOFILE, &limit_before);
}
