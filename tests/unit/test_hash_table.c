#include "ops/support/hash_table.h"

#include "tests/check.h"

enum { ENTRIES = 5000 };

struct entry {
	struct entry *next;
	size_t number;
	unsigned seen;
};

static struct entry entries[ENTRIES];

/* Few hashes: there are long chains. */
static size_t entry_hash(const void *entry)
{
	return ((const struct entry *)entry)->number / 3;
}

static void **entry_link(void *entry)
{
	return (void **)&((struct entry *)entry)->next;
}

static struct entry *find(const struct hash_table *table, size_t number)
{
	struct entry *entry = hash_table_bucket(table, number / 3);

	while (entry && entry->number != number)
		entry = entry->next;
	return entry;
}

static struct entry *next_of(const struct hash_table *table, struct entry *entry)
{
	return hash_table_next(table, entry, entry_hash, entry_link);
}

static void fill(struct hash_table *table)
{
	CHECK_RC(0, hash_table_init_small(table));
	for (size_t i = 0; i < ENTRIES; i++) {
		entries[i] = (struct entry){.number = i};
		hash_table_insert(table, &entries[i], entry_hash, entry_link);
	}
}

static void test_what_was_inserted_is_found_after_the_table_grew(void)
{
	struct hash_table table;
	size_t missing = 0;

	fill(&table);
	for (size_t i = 0; i < ENTRIES; i++)
		missing += find(&table, i) != &entries[i];
	CHECK_RC(0, missing);
	CHECK_RC(ENTRIES, table.count);
	CHECK(!find(&table, ENTRIES));
	hash_table_done(&table);
}

static void test_a_walk_meets_each_entry_once_and_may_remove_it(void)
{
	struct hash_table table;
	struct entry *next;
	size_t wrong = 0;

	fill(&table);
	for (struct entry *entry = next_of(&table, NULL); entry; entry = next) {
		next = next_of(&table, entry);
		entry->seen++;
		if (entry->number % 2)
			hash_table_remove(&table, entry, entry_hash, entry_link);
	}
	for (size_t i = 0; i < ENTRIES; i++)
		wrong += entries[i].seen != 1 || (find(&table, i) == NULL) != i % 2;
	CHECK_RC(0, wrong);
	CHECK_RC(ENTRIES / 2, table.count);
	hash_table_done(&table);
}

static void test_shrinking_keeps_what_is_there(void)
{
	struct hash_table table;
	size_t mask;

	fill(&table);
	mask = table.mask;
	for (size_t i = 7; i < ENTRIES; i++)
		hash_table_remove(&table, &entries[i], entry_hash, entry_link);
	hash_table_shrink(&table, entry_hash, entry_link);
	CHECK(table.mask < mask);
	for (size_t i = 0; i < 7; i++)
		CHECK(find(&table, i) == &entries[i]);
	hash_table_done(&table);
}

static void test_a_table_of_zeros_has_no_entries_and_can_be_freed(void)
{
	struct hash_table table = {0};

	CHECK(!next_of(&table, NULL));
	hash_table_done(&table);
}

TEST_MAIN("hash_table", TEST(test_what_was_inserted_is_found_after_the_table_grew),
	TEST(test_a_walk_meets_each_entry_once_and_may_remove_it),
	TEST(test_shrinking_keeps_what_is_there),
	TEST(test_a_table_of_zeros_has_no_entries_and_can_be_freed))
