#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "tests/fuzz/fuzz.h"

enum { FILE_MAX_BYTES = 1 << 20, VARIANTS_MAX = 32 };

/* The input, its prefixes and its neighbours. */
static void run_variants(uint8_t *data, size_t size)
{
	size_t step = size / VARIANTS_MAX + 1;

	LLVMFuzzerTestOneInput(data, size);
	for (size_t i = 0; i < size; i += step) {
		uint8_t before = data[i];

		LLVMFuzzerTestOneInput(data, i);
		data[i] = (uint8_t)(before + 0x55);
		LLVMFuzzerTestOneInput(data, size);
		data[i] = before;
	}
}

static int run_file(const char *directory, const char *name)
{
	cleanup_free char *path = NULL;
	cleanup_free uint8_t *data = malloc(FILE_MAX_BYTES);
	cleanup_file FILE *file = NULL;

	if (asprintf(&path, "%s/%s", directory, name) < 0) {
		path = NULL;
		return 1;
	}
	file = fopen(path, "re");
	if (!file || !data) {
		perror(path);
		return 1;
	}
	run_variants(data, fread(data, 1, FILE_MAX_BYTES, file));
	return 0;
}

int main(int argc, char **argv)
{
	cleanup_dir DIR *directory = argc == 2 ? opendir(argv[1]) : NULL;
	struct dirent *entry;
	int count = 0, failed = 0;

	if (!directory) {
		fprintf(stderr, "usage: %s CORPUS_DIRECTORY\n", argv[0]);
		return 2;
	}
	while ((entry = readdir(directory)))
		if (entry->d_name[0] != '.') {
			failed |= run_file(argv[1], entry->d_name);
			count++;
		}
	printf("%d inputs\n", count);
	return failed || !count;
}
