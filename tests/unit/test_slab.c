#include "ops/support/slab.h"

#include <stdbool.h>
#include <stdint.h>

#include "tests/check.h"

enum { THINGS = 20000 };

static uint8_t *things[THINGS];

/* From 1 byte to more than a slab has pages for. */
static size_t size_of(size_t number)
{
	return number * 7 % (SLAB_MAX_BYTES + 100) + 1;
}

static bool has_only(const uint8_t *data, size_t size, uint8_t value)
{
	for (size_t i = 0; i < size; i++)
		if (data[i] != value)
			return false;
	return true;
}

/* Those of the numbers that `step` divides. */
static size_t make(struct slab *slab, size_t step)
{
	size_t wrong = 0;

	for (size_t i = 0; i < THINGS; i += step) {
		things[i] = slab_alloc(slab, size_of(i));
		wrong += !things[i] || (uintptr_t)things[i] % SLAB_STEP != 0 ||
			 !has_only(things[i], size_of(i), 0);
		memset(things[i], (uint8_t)i, size_of(i));
	}
	return wrong;
}

static size_t drop(struct slab *slab, size_t step)
{
	size_t wrong = 0;

	for (size_t i = 0; i < THINGS; i += step) {
		wrong += !has_only(things[i], size_of(i), (uint8_t)i);
		slab_free(slab, things[i], size_of(i));
	}
	return wrong;
}

static void test_things_are_zeroed_and_keep_apart(void)
{
	struct slab slab = {0};

	CHECK_RC(0, make(&slab, 1));
	CHECK_RC(0, drop(&slab, 3));
	CHECK_RC(0, make(&slab, 3));
	slab_trim(&slab);
	CHECK_RC(0, drop(&slab, 1));
	slab_done(&slab);
}

static void test_memory_of_one_size_serves_another_after_it(void)
{
	struct slab slab = {0};
	void *first = slab_alloc(&slab, 24), *second;
	const uintptr_t page = (uintptr_t)first / 4096;

	CHECK(page != 0);
	slab_free(&slab, first, 24);
	second = slab_alloc(&slab, 200);
#if !defined(__SANITIZE_ADDRESS__) /* with it, each comes from malloc */
	CHECK_RC((long long)page, (long long)((uintptr_t)second / 4096));
#endif
	slab_free(&slab, second, 200);
	slab_done(&slab);
}

/* How many kilobytes this process has of its own. */
static long resident_kb(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[128];
	long kb = -1;

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "Anonymous: %ld", &kb);
	if (file)
		fclose(file);
	return kb;
}

static void test_what_is_freed_goes_back_to_the_system(void)
{
	enum { COUNT = 100000, SIZE = 120 };
	static void *kept[COUNT];
	struct slab slab = {0};
	long before, full, few, none;

	memset(kept, 1, sizeof(kept)); /* the array's own pages */
	before = resident_kb();
	for (size_t i = 0; i < COUNT; i++)
		kept[i] = slab_alloc(&slab, SIZE);
	full = resident_kb();
	/* One of a thousand stays: the others' pages go all the same. */
	for (size_t i = 0; i < COUNT; i++)
		if (i % 1000)
			slab_free(&slab, kept[i], SIZE);
	slab_trim(&slab);
	few = resident_kb();
	for (size_t i = 0; i < COUNT; i += 1000)
		slab_free(&slab, kept[i], SIZE);
	slab_trim(&slab);
	none = resident_kb();
	slab_done(&slab);
	printf("kB: %ld, %ld with all, %ld with few, %ld with none\n", before, full, few, none);
	CHECK(full - before >= (long)COUNT * SIZE / 1024);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* At most 3 % more than what was asked for. */
	CHECK(full - before <= (long)COUNT * SIZE / 1024 * 103 / 100);
	CHECK(few - before <= (full - before) / 10);
	CHECK(none - before <= 64);
#endif
}

TEST_MAIN("slab", TEST(test_things_are_zeroed_and_keep_apart),
	TEST(test_memory_of_one_size_serves_another_after_it),
	TEST(test_what_is_freed_goes_back_to_the_system))
