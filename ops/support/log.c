#include "ops/support/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/visible.h"

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
	struct buffer line cleanup_buffer = {0};
	char message[2048];
	va_list arguments;
	int size;

	if ((int)level > current_level())
		return;
	va_start(arguments, format);
	size = vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	if (size < 0)
		return;
	if ((size_t)size >= sizeof(message))
		size = sizeof(message) - 1;
	if (buffer_append_string(&line, output_prefix) < 0 ||
		visible_append(&line, message, (size_t)size, VISIBLE_INDENT) < 0 ||
		buffer_append(&line, "\n", 1) < 0)
		return;
	/* One write, so that lines of several threads do not mix. */
	if (write(output_fd, line.data, line.size) < 0)
		return;
}
