#include "ops/support/mountinfo.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/cleanup.h"

/* Space, tab, newline and backslash are written as \ooo. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3]) {
			*to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS" */
static bool parse(char *text, struct mountinfo_line *ret_line)
{
	char *words[6], *tail[3], *rest = text, *dash, *minor;

	dash = strstr(text, " - ");
	if (!dash)
		return false;
	*dash = '\0';
	for (size_t i = 0; i < array_size(words); i++)
		words[i] = strsep(&rest, " ");
	rest = dash + strlen(" - ");
	for (size_t i = 0; i < array_size(tail); i++)
		tail[i] = strsep(&rest, " \n");
	if (!words[5] || !tail[2])
		return false;
	for (size_t i = 3; i < 5; i++)
		unescape(words[i]);
	minor = strchr(words[2], ':');
	unescape(tail[1]);
	*ret_line = (struct mountinfo_line){
		.id = strtoull(words[0], NULL, 10),
		.minor = minor ? (unsigned)strtoul(minor + 1, NULL, 10) : 0,
		.root = words[3],
		.mount_point = words[4],
		.type = tail[0],
		.source = tail[1],
		.super_options = tail[2],
	};
	return true;
}

static int walk(const char *path, mountinfo_sink sink, void *user)
{
	cleanup_file FILE *file = fopen(path, "re");
	cleanup_free char *text = NULL;
	size_t capacity = 0;

	if (!file)
		return -errno;
	while (getline(&text, &capacity, file) >= 0) {
		struct mountinfo_line line;

		if (parse(text, &line) && !sink(user, &line))
			break;
	}
	return 0;
}

int mountinfo_walk(mountinfo_sink sink, void *user)
{
	return walk("/proc/self/mountinfo", sink, user);
}

int mountinfo_walk_of(pid_t pid, mountinfo_sink sink, void *user)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	return walk(path, sink, user);
}
