/*
 * tests/waits.h - how often a thread had nothing to do.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/cleanup.h"

static inline unsigned long waits_in(const char *task, const char *thread)
{
	char path[300], line[128];
	cleanup_file FILE *file = NULL;
	unsigned long waits = 0;
	bool is_it = false;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "Name:\t", 6) == 0)
			is_it = strcmp(line + 6, thread) == 0;
		if (is_it)
			sscanf(line, "voluntary_ctxt_switches: %lu", &waits);
	}
	return waits;
}

/* How often the threads of that name have waited. */
static inline unsigned long waits_of(const char *thread)
{
	cleanup_dir DIR *tasks = opendir("/proc/self/task");
	const struct dirent *entry;
	unsigned long waits = 0;

	while (tasks && (entry = readdir(tasks)))
		waits += waits_in(entry->d_name, thread);
	return waits;
}
