#include "backends/mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BUCKETS_MIN = 8 };

static size_t dirent_cost(size_t length)
{
	return sizeof(struct mem_dirent) + length + 1 + 2 * sizeof(void *);
}

struct mem_dirent *mem_directory_find(
	const struct mem_directory *directory, const char *name, size_t length)
{
	uint64_t hash = XXH3_64bits(name, length);
	struct mem_dirent *dirent;

	if (!directory->bucket_count)
		return NULL;
	dirent = directory->buckets[hash & (directory->bucket_count - 1)];
	while (dirent && (dirent->hash != hash || dirent->length != length ||
				 memcmp(dirent->name, name, length) != 0))
		dirent = dirent->next;
	return dirent;
}

static void insert(struct mem_directory *directory, struct mem_dirent *dirent)
{
	struct mem_dirent **bucket =
		&directory->buckets[dirent->hash & (directory->bucket_count - 1)];

	dirent->next = *bucket;
	*bucket = dirent;
}

static int grow(struct mem *m, struct mem_directory *directory)
{
	struct mem_directory grown = {.entry_count = directory->entry_count,
		.bucket_count =
			directory->bucket_count ? directory->bucket_count * 2 : BUCKETS_MIN};
	size_t more = (grown.bucket_count - directory->bucket_count) * sizeof(*grown.buckets);
	int r = mem_charge(m, more);

	if (r < 0)
		return r;
	grown.buckets = calloc(grown.bucket_count, sizeof(*grown.buckets));
	if (!grown.buckets) {
		mem_refund(m, more);
		return -ENOMEM;
	}
	for (size_t i = 0; i < directory->bucket_count; i++)
		for (struct mem_dirent *dirent = directory->buckets[i], *next; dirent;
			dirent = next) {
			next = dirent->next;
			insert(&grown, dirent);
		}
	free(directory->buckets);
	*directory = grown;
	return 0;
}

int mem_directory_add(
	struct mem *m, struct mem_directory *directory, const char *name, struct mem_inode *inode)
{
	size_t length = strlen(name);
	struct mem_dirent *dirent;
	int r = 0;

	if (directory->entry_count >= directory->bucket_count)
		r = grow(m, directory);
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
	insert(directory, dirent);
	directory->entry_count++;
	return 0;
}

void mem_directory_remove(struct mem *m, struct mem_directory *directory, struct mem_dirent *dirent)
{
	struct mem_dirent **link =
		&directory->buckets[dirent->hash & (directory->bucket_count - 1)];

	while (*link != dirent)
		link = &(*link)->next;
	*link = dirent->next;
	directory->entry_count--;
	mem_refund(m, dirent_cost(dirent->length));
	free(dirent);
}

void mem_directory_done(struct mem *m, struct mem_directory *directory)
{
	for (size_t i = 0; i < directory->bucket_count; i++)
		while (directory->buckets[i])
			mem_directory_remove(m, directory, directory->buckets[i]);
	mem_refund(m, directory->bucket_count * sizeof(*directory->buckets));
	free(directory->buckets);
	*directory = (struct mem_directory){0};
}
