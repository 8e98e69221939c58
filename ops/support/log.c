#include "ops/support/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int max_level = -1; /* -1: not decided yet */
static atomic_int output_fd = STDERR_FILENO;
static const char *_Atomic output_prefix = "isthmus: ";

void log_set_output(int fd, const char *prefix)
{
	output_fd = fd;
	output_prefix = prefix;
}

static int current_level(void)
{
	int level = max_level;
	const char *wish;

	if (level >= 0)
		return level;
	wish = getenv("ISTHMUS_LOG_LEVEL");
	level = wish && *wish >= '0' && *wish <= '3' ? *wish - '0' : LOG_LEVEL_WARNING;
	max_level = level;
	return level;
}

void log_print(enum log_level level, const char *format, ...)
{
	char line[2048];
	va_list arguments;
	int used, more;

	if ((int)level > current_level())
		return;
	used = snprintf(line, sizeof(line), "%s", output_prefix);
	va_start(arguments, format);
	more = vsnprintf(line + used, sizeof(line) - (size_t)used, format, arguments);
	va_end(arguments);
	if (more < 0)
		return;
	used += more;
	if ((size_t)used > sizeof(line) - 1)
		used = sizeof(line) - 1;
	line[used] = '\n';
	/* One write, so that lines of several threads do not mix. */
	if (write(output_fd, line, (size_t)used + 1) < 0)
		return;
}
