#include "fs/commands/command_text.h"

#include <stdlib.h>
#include <string.h>

#include "ops/support/cleanup.h"

bool command_parse_time(const char *text, uint64_t *ret_us)
{
	static const struct {
		const char *name;
		double us;
	} units[] = {
		{"", 1e6},
		{"s", 1e6},
		{"ms", 1e3},
		{"us", 1},
		{"m", 60e6},
		{"h", 3600e6},
		{"d", 86400e6},
	};
	char *end;
	double number;

	if (!strchr("0123456789.", *text) || !*text)
		return false;
	number = strtod(text, &end);
	for (size_t i = 0; i < array_size(units); i++) {
		double us = number * units[i].us;

		if (strcmp(end, units[i].name) != 0)
			continue;
		if (!(us >= 0) || us > 4e12) /* 46 days, which fit into timeout_ms */
			return false;
		*ret_us = (uint64_t)us;
		return true;
	}
	return false;
}

void command_format_time(uint64_t us, char text[16])
{
	if (us < 1000)
		snprintf(text, 16, "%uus", (unsigned)us);
	else if (us < 1000000)
		snprintf(text, 16, "%.1fms", (double)us / 1e3);
	else
		snprintf(text, 16, "%.1fs", (double)us / 1e6);
}

void command_format_size(uint64_t bytes, char text[16])
{
	static const char units[] = "kMGTPE";
	double size = (double)bytes;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(text, 16, "%u", (unsigned)bytes);
		return;
	}
	for (size /= 1024; size >= 1024; size /= 1024)
		unit++;
	snprintf(text, 16, "%.1f%c", size, units[unit]);
}
