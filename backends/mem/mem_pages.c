#include "backends/mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/cleanup.h"

enum { NODE_BITS = 6, NODE_SLOTS = 1 << NODE_BITS };

struct node {
	void *slots[NODE_SLOTS];
};

/* Pages that a subtree below `height` levels of nodes spans. */
static uint64_t span(unsigned height)
{
	return height * NODE_BITS >= 64 ? UINT64_MAX : 1ull << (height * NODE_BITS);
}

static unsigned slot_of(uint64_t index, unsigned level)
{
	return (unsigned)(index >> ((level - 1) * NODE_BITS)) & (NODE_SLOTS - 1);
}

uint8_t *mem_pages_get(const struct mem_pages *pages, uint64_t index)
{
	void *at = pages->root;

	if (index >= span(pages->height))
		return NULL;
	for (unsigned level = pages->height; at && level > 0; level--)
		at = ((struct node *)at)->slots[slot_of(index, level)];
	return at;
}

static int new_block(struct mem *m, size_t size, void **ret_block)
{
	int r = mem_charge(m, size);

	if (r < 0)
		return r;
	*ret_block = calloc(1, size);
	if (*ret_block)
		return 0;
	mem_refund(m, size);
	return -ENOMEM;
}

static int grow(struct mem *m, struct mem_pages *pages)
{
	void *above;
	int r;

	if (pages->root) {
		r = new_block(m, sizeof(struct node), &above);
		if (r < 0)
			return r;
		((struct node *)above)->slots[0] = pages->root;
		pages->root = above;
	}
	pages->height++;
	return 0;
}

int mem_pages_make(struct mem *m, struct mem_pages *pages, uint64_t index, uint8_t **ret_page)
{
	void **slot = &pages->root;
	int r = 0;

	while (r == 0 && index >= span(pages->height))
		r = grow(m, pages);
	for (unsigned level = pages->height; r == 0 && level > 0; level--) {
		if (!*slot)
			r = new_block(m, sizeof(struct node), slot);
		if (r == 0)
			slot = &((struct node *)*slot)->slots[slot_of(index, level)];
	}
	if (r == 0 && !*slot) {
		r = new_block(m, MEM_PAGE_BYTES, slot);
		pages->count += r == 0;
	}
	if (r < 0)
		return r;
	*ret_page = *slot;
	return 0;
}

static void drop_all(struct mem *m, struct mem_pages *pages, void *at, unsigned level)
{
	if (!at)
		return;
	for (unsigned i = 0; level > 0 && i < NODE_SLOTS; i++)
		drop_all(m, pages, ((struct node *)at)->slots[i], level - 1);
	pages->count -= level == 0;
	mem_refund(m, level ? sizeof(struct node) : MEM_PAGE_BYTES);
	free(at);
}

static bool is_empty(const struct node *node)
{
	for (unsigned i = 0; i < NODE_SLOTS; i++)
		if (node->slots[i])
			return false;
	return true;
}

/* Drops what the subtree at `*slot`, whose first page is `base`, has in [first, end). */
static void drop_range(struct mem *m, struct mem_pages *pages, void **slot, unsigned level,
	uint64_t base, uint64_t first, uint64_t end)
{
	struct node *node = *slot;
	uint64_t last = base + (span(level) - 1);

	if (!node || first > last || end <= base)
		return;
	if (first <= base && end > last) {
		drop_all(m, pages, node, level);
		*slot = NULL;
		return;
	}
	for (unsigned i = 0; i < NODE_SLOTS; i++)
		drop_range(m, pages, &node->slots[i], level - 1, base + i * span(level - 1), first,
			end);
	if (is_empty(node))
		drop_all(m, pages, steal_ptr(slot), level);
}

void mem_pages_drop(struct mem *m, struct mem_pages *pages, uint64_t first, uint64_t end)
{
	if (first < end)
		drop_range(m, pages, &pages->root, pages->height, 0, first, end);
	if (!pages->root)
		pages->height = 0;
}

static uint64_t next_in(const void *at, unsigned level, uint64_t base, uint64_t index, bool present)
{
	uint64_t last = base + (span(level) - 1);
	uint64_t found = UINT64_MAX;

	if (index > last)
		return UINT64_MAX;
	if (index < base)
		index = base;
	if (!at)
		return present ? UINT64_MAX : index;
	if (level == 0)
		return present ? index : UINT64_MAX;
	for (unsigned i = slot_of(index, level); found == UINT64_MAX && i < NODE_SLOTS; i++)
		found = next_in(((const struct node *)at)->slots[i], level - 1,
			base + i * span(level - 1), index, present);
	return found;
}

uint64_t mem_pages_next(const struct mem_pages *pages, uint64_t index, bool present)
{
	uint64_t found = next_in(pages->root, pages->height, 0, index, present);

	if (found == UINT64_MAX && !present)
		return index > span(pages->height) ? index : span(pages->height);
	return found;
}

static void zero_in_page(const struct mem_pages *pages, uint64_t offset, uint64_t end)
{
	uint8_t *page = mem_pages_get(pages, offset / MEM_PAGE_BYTES);

	if (page && end > offset)
		memset(page + offset % MEM_PAGE_BYTES, 0, end - offset);
}

void mem_pages_zero(struct mem *m, struct mem_pages *pages, uint64_t offset, uint64_t end)
{
	uint64_t first_whole = (offset + MEM_PAGE_BYTES - 1) / MEM_PAGE_BYTES;
	uint64_t end_whole = end / MEM_PAGE_BYTES;

	if (first_whole > end_whole) {
		zero_in_page(pages, offset, end);
		return;
	}
	zero_in_page(pages, offset, first_whole * MEM_PAGE_BYTES);
	zero_in_page(pages, end_whole * MEM_PAGE_BYTES, end);
	mem_pages_drop(m, pages, first_whole, end_whole);
}
