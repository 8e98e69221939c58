#include "backends/mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static size_t dirent_hash(const void *entry)
{
	return ((const struct mem_dirent *)entry)->hash;
}

static void **dirent_link(void *entry)
{
	return (void **)&((struct mem_dirent *)entry)->next;
}

struct mem_dirent *mem_directory_next(
	const struct mem_directory *directory, struct mem_dirent *dirent)
{
	return hash_table_next(&directory->names, dirent, dirent_hash, dirent_link);
}

static size_t dirent_cost(size_t length)
{
	return sizeof(struct mem_dirent) + length + 1 + 2 * sizeof(void *);
}

struct mem_dirent *mem_directory_find(
	const struct mem_directory *directory, const char *name, size_t length)
{
	uint64_t hash = XXH3_64bits(name, length);
	struct mem_dirent *dirent;

	if (!directory->names.buckets)
		return NULL;
	dirent = hash_table_bucket(&directory->names, hash);
	while (dirent && (dirent->hash != hash || dirent->length != length ||
				 memcmp(dirent->name, name, length) != 0))
		dirent = dirent->next;
	return dirent;
}

/* There are never more buckets than `most`, but for the first few. */
static int make_room(struct mem *m, struct mem_directory *directory)
{
	int r = 0;

	if (!directory->names.buckets)
		r = hash_table_init_small(&directory->names);
	if (r == 0 && directory->names.count == directory->most) {
		r = mem_charge(m, sizeof(void *));
		directory->most += r == 0;
	}
	return r;
}

int mem_directory_add(
	struct mem *m, struct mem_directory *directory, const char *name, struct mem_inode *inode)
{
	size_t length = strlen(name);
	struct mem_dirent *dirent;
	int r = make_room(m, directory);

	if (r == 0)
		r = mem_charge(m, dirent_cost(length));
	if (r < 0)
		return r;
	dirent = malloc(sizeof(*dirent) + length + 1);
	if (!dirent) {
		mem_refund(m, dirent_cost(length));
		return -ENOMEM;
	}
	*dirent = (struct mem_dirent){
		.inode = inode, .hash = XXH3_64bits(name, length), .length = length};
	memcpy(dirent->name, name, length + 1);
	hash_table_insert(&directory->names, dirent, dirent_hash, dirent_link);
	return 0;
}

void mem_directory_remove(struct mem *m, struct mem_directory *directory, struct mem_dirent *dirent)
{
	hash_table_remove(&directory->names, dirent, dirent_hash, dirent_link);
	mem_refund(m, dirent_cost(dirent->length));
	free(dirent);
}

void mem_directory_done(struct mem *m, struct mem_directory *directory)
{
	struct mem_dirent *next;

	for (struct mem_dirent *d = mem_directory_next(directory, NULL); d; d = next) {
		next = mem_directory_next(directory, d);
		mem_directory_remove(m, directory, d);
	}
	mem_refund(m, directory->most * sizeof(void *));
	hash_table_done(&directory->names);
	*directory = (struct mem_directory){0};
}
