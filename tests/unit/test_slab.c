#include "ops/support/slab_table.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

enum { COUNT = 20000 };

static uint8_t *parts[COUNT];

static size_t size_of(size_t number)
{
	return number * 7 % SLAB_MAX_BYTES + 1;
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

	for (size_t i = 0; i < COUNT; i += step) {
		parts[i] = slab_alloc(slab, size_of(i));
		wrong += !parts[i] || (uintptr_t)parts[i] % SLAB_STEP != 0 ||
			 !has_only(parts[i], size_of(i), 0);
		wrong += slab_at(slab_ref_of(parts[i])) != parts[i];
		memset(parts[i], (uint8_t)i, size_of(i));
	}
	return wrong;
}

static size_t drop(struct slab *slab, size_t step)
{
	size_t wrong = 0;

	for (size_t i = 0; i < COUNT; i += step) {
		wrong += !has_only(parts[i], size_of(i), (uint8_t)i);
		slab_free(slab, parts[i], size_of(i));
	}
	return wrong;
}

static void test_allocations_are_zeroed_and_keep_apart(void)
{
	struct slab slab = {0};

	CHECK_RC(0, make(&slab, 1));
	CHECK_RC(0, drop(&slab, 3));
	CHECK_RC(0, make(&slab, 3));
	slab_trim(&slab);
	CHECK_RC(0, drop(&slab, 1));
	slab_done(&slab);
}

static void test_what_is_too_large_is_refused(void)
{
	struct slab slab = {0};

	CHECK(slab_alloc(&slab, SLAB_MAX_BYTES + 1) == NULL);
	CHECK(slab_at(slab_ref_of(NULL)) == NULL);
	slab_done(&slab);
}

/* Slabs that come and go take the same places again: references are not used up. */
static void test_places_are_used_again(void)
{
	slab_ref highest = 0, first = 0;

	for (int i = 0; i < 100; i++) {
		struct slab slab = {0};
		slab_ref ref;

		CHECK_RC(0, make(&slab, 1));
		ref = slab_ref_of(parts[COUNT - 1]);
		first = i ? first : ref;
		highest = ref > highest ? ref : highest;
		CHECK_RC(0, drop(&slab, 1));
		slab_done(&slab);
	}
#if !SLAB_BY_MALLOC
	CHECK(highest <= first + (1 << 20) / SLAB_STEP);
#endif
}

/* Of addresses, for one that has used none yet. */
static int use_with(size_t left_bytes, size_t others_bytes)
{
	FILE *file = fopen("/proc/self/statm", "re");
	struct slab slab = {0};
	struct rlimit limit;
	unsigned long pages = 0;

	if (!file || fscanf(file, "%lu", &pages) != 1)
		return 1;
	fclose(file);
	limit.rlim_cur = limit.rlim_max =
		(rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + left_bytes;
	if (setrlimit(RLIMIT_AS, &limit) < 0)
		return 2;
	if (!slab_alloc(&slab, 24))
		return 3;
	if (mmap(NULL, others_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return 4;
	return 0;
}

static int end_of_use_with(size_t left_bytes, size_t others_bytes)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		_exit(use_with(left_bytes, others_bytes));
	waitpid(pid, &status, 0);
	return status;
}

/* The first test: the range is reserved once. */
static void test_where_addresses_are_few_most_are_left_to_others(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	const bool takes_addresses = true;
#else
	const bool takes_addresses = SLAB_BY_MALLOC;
#endif

	if (takes_addresses)
		return;
	CHECK_RC(0, end_of_use_with((size_t)512 << 20, (size_t)360 << 20));
	CHECK_RC(0, end_of_use_with((size_t)8 << 20, (size_t)2 << 20));
}

/* ---- Tables --------------------------------------------------------------------------------- */

struct entry {
	slab_ref next;
	uint32_t number;
};

static size_t entry_hash(const void *entry)
{
	return ((const struct entry *)entry)->number * (size_t)2654435761;
}

static slab_ref *entry_link(void *entry)
{
	return &((struct entry *)entry)->next;
}

static struct entry *find(const struct slab_table *table, uint32_t number)
{
	const struct entry wanted = {.number = number};
	struct entry *entry = slab_table_bucket(table, entry_hash(&wanted));

	while (entry && entry->number != number)
		entry = slab_at(entry->next);
	return entry;
}

static void test_a_table_finds_what_is_in_it(void)
{
	struct slab slab = {0};
	struct slab_table table;
	size_t wrong = 0, full;

	CHECK_RC(0, slab_table_init(&table));
	for (uint32_t i = 0; i < COUNT; i++) {
		struct entry *entry = slab_alloc(&slab, sizeof(*entry));

		entry->number = i;
		slab_table_insert(&table, entry, entry_hash, entry_link);
	}
	full = table.mask;
	for (uint32_t i = 0; i < COUNT; i++) {
		struct entry *entry = find(&table, i);

		wrong += !entry;
		if (entry && i % 100) {
			slab_table_remove(&table, entry, entry_hash, entry_link);
			slab_free(&slab, entry, sizeof(*entry));
		}
	}
	slab_table_shrink(&table, entry_hash, entry_link);
	for (uint32_t i = 0; i < COUNT; i++)
		wrong += !find(&table, i) != (i % 100 != 0);
	CHECK_RC(0, wrong);
	CHECK_RC(COUNT / 100, table.count);
	CHECK(table.mask < full / 4);
	for (uint32_t i = 0; i < COUNT; i += 100) {
		struct entry *entry = find(&table, i);

		slab_table_remove(&table, entry, entry_hash, entry_link);
		slab_free(&slab, entry, sizeof(*entry));
	}
	slab_table_done(&table);
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
	enum { MANY = 100000, SIZE = 120 };
	static void *kept[MANY];
	struct slab slab = {0};
	long before, full, few, none;

	memset(kept, 1, sizeof(kept)); /* the array's own pages */
	before = resident_kb();
	for (size_t i = 0; i < MANY; i++)
		kept[i] = slab_alloc(&slab, SIZE);
	full = resident_kb();
	/* One of a thousand stays: the others' pages go all the same. */
	for (size_t i = 0; i < MANY; i++)
		if (i % 1000)
			slab_free(&slab, kept[i], SIZE);
	slab_trim(&slab);
	few = resident_kb();
	for (size_t i = 0; i < MANY; i += 1000)
		slab_free(&slab, kept[i], SIZE);
	slab_trim(&slab);
	none = resident_kb();
	slab_done(&slab);
	printf("kB: %ld, %ld with all, %ld with few, %ld with none\n", before, full, few, none);
	CHECK(full - before >= (long)MANY * SIZE / 1024);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* At most 3 % more than what was asked for. */
	CHECK(full - before <= (long)MANY * SIZE / 1024 * 103 / 100);
	CHECK(few - before <= (full - before) / 10);
	CHECK(none - before <= 64);
#endif
}

TEST_MAIN("slab", TEST(test_where_addresses_are_few_most_are_left_to_others),
	TEST(test_allocations_are_zeroed_and_keep_apart), TEST(test_what_is_too_large_is_refused),
	TEST(test_places_are_used_again), TEST(test_a_table_finds_what_is_in_it),
	TEST(test_memory_of_one_size_serves_another_after_it),
	TEST(test_what_is_freed_goes_back_to_the_system))
