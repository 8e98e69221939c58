#include "fs/control/changed_paths.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ops/support/hash_seed.h"

enum { FIRST_CAPACITY = 64 };

struct changed_path {
	struct changed_path *next; /* in the bucket of the table */
	uint64_t at;               /* the highest position of its changes */
	char text[];
};

static size_t text_hash(const char *path)
{
	return XXH3_64bits_withSeed(path, strlen(path), hash_seed());
}

static size_t path_hash(const void *entry)
{
	return text_hash(((const struct changed_path *)entry)->text);
}

static void **path_link(void *entry)
{
	return (void **)&((struct changed_path *)entry)->next;
}

static struct changed_path *find(const struct changed_paths *paths, const char *path)
{
	struct changed_path *at =
		paths->known.buckets ? hash_table_bucket(&paths->known, text_hash(path)) : NULL;

	while (at && strcmp(at->text, path) != 0)
		at = at->next;
	return at;
}

/* Makes room for one more name and the NULL after it. */
static bool make_room(struct changed_paths *paths)
{
	size_t capacity = paths->capacity ? 2 * paths->capacity : FIRST_CAPACITY;
	char **names;

	if (!paths->known.buckets && hash_table_init_small(&paths->known) < 0)
		return false;
	if (paths->known.count < paths->capacity)
		return true;
	names = realloc(paths->names, (capacity + 1) * sizeof(*names));
	if (!names)
		return false;
	names[paths->known.count] = NULL;
	paths->names = names;
	paths->capacity = capacity;
	return true;
}

void changed_paths_add(struct changed_paths *paths, const char *path, uint64_t at)
{
	size_t length = strlen(path) + 1;
	struct changed_path *copy = find(paths, path);

	if (copy) {
		copy->at = at > copy->at ? at : copy->at;
		return;
	}
	if (paths->known.count < CHANGED_PATHS_MAX &&
		paths->bytes + length <= CHANGED_PATHS_MAX_BYTES && make_room(paths))
		copy = malloc(sizeof(*copy) + length);
	if (!copy) {
		paths->truncated = true;
		return;
	}
	copy->at = at;
	memcpy(copy->text, path, length);
	hash_table_insert(&paths->known, copy, path_hash, path_link);
	paths->names[paths->known.count - 1] = copy->text;
	paths->names[paths->known.count] = NULL;
	paths->bytes += length;
}

void changed_paths_forget(struct changed_paths *paths, uint64_t at)
{
	size_t kept = 0, count = paths->known.count;

	for (size_t i = 0; i < count; i++) {
		struct changed_path *path = find(paths, paths->names[i]);

		if (path->at > at) {
			paths->names[kept++] = path->text;
			continue;
		}
		paths->bytes -= strlen(path->text) + 1;
		hash_table_remove(&paths->known, path, path_hash, path_link);
		free(path);
	}
	if (paths->names)
		paths->names[kept] = NULL;
}

void changed_paths_done(struct changed_paths *paths)
{
	struct changed_path *next, *at;

	for (at = hash_table_next(&paths->known, NULL, path_hash, path_link); at; at = next) {
		next = hash_table_next(&paths->known, at, path_hash, path_link);
		free(at);
	}
	hash_table_done(&paths->known);
	free(paths->names);
	*paths = (struct changed_paths){0};
}
