#include "fs/control/changed_paths.h"

#include <stdlib.h>
#include <string.h>

#include "ops/support/cleanup.h"

enum { FIRST_CAPACITY = 64 };

static uint32_t hash_of(const char *path)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (; *path; path++)
		hash = (hash ^ (uint8_t)*path) * 16777619u;
	return hash;
}

/* Where the path is, or would be. */
static uint32_t *find_slot(const struct changed_paths *paths, const char *path)
{
	size_t mask = 2 * paths->capacity - 1;
	size_t at = hash_of(path) & mask;

	while (paths->slots[at] && strcmp(paths->names[paths->slots[at] - 1], path) != 0)
		at = (at + 1) & mask;
	return &paths->slots[at];
}

static bool grow(struct changed_paths *paths)
{
	size_t capacity = paths->capacity ? 2 * paths->capacity : FIRST_CAPACITY;
	uint32_t *slots = calloc(2 * capacity, sizeof(*slots));
	char **names = slots ? realloc(paths->names, (capacity + 1) * sizeof(*names)) : NULL;

	if (!names) {
		free(slots);
		return false;
	}
	free(paths->slots);
	paths->slots = slots;
	paths->names = names;
	paths->names[paths->count] = NULL;
	paths->capacity = capacity;
	for (size_t i = 0; i < paths->count; i++)
		*find_slot(paths, names[i]) = (uint32_t)i + 1;
	return true;
}

void changed_paths_add(struct changed_paths *paths, const char *path)
{
	size_t length = strlen(path) + 1;
	uint32_t *slot;
	char *copy;

	if (paths->capacity && *find_slot(paths, path))
		return;
	if (paths->count == CHANGED_PATHS_MAX || paths->bytes + length > CHANGED_PATHS_MAX_BYTES ||
		(paths->count == paths->capacity && !grow(paths))) {
		paths->truncated = true;
		return;
	}
	copy = strdup(path);
	if (!copy) {
		paths->truncated = true;
		return;
	}
	slot = find_slot(paths, path);
	paths->names[paths->count++] = copy;
	paths->names[paths->count] = NULL;
	paths->bytes += length;
	*slot = (uint32_t)paths->count;
}

void changed_paths_done(struct changed_paths *paths)
{
	for (size_t i = 0; i < paths->count; i++)
		free(paths->names[i]);
	free(paths->names);
	free(paths->slots);
	*paths = (struct changed_paths){0};
}
