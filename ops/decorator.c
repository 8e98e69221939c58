#include "ops/decorator.h"

#include <string.h>

typedef void (*any_function)(void);

_Static_assert(sizeof(struct workspace_ops) ==
		       sizeof(const char *) + DECORATOR_SLOTS * sizeof(any_function),
	"a name, and function pointers behind it");

static any_function *slot_at(const struct workspace_ops *ops, size_t slot)
{
	return (any_function *)(void *)((char *)ops + offsetof(struct workspace_ops, free)) + slot;
}

bool decorator_has_slot(const struct workspace_ops *ops, size_t slot)
{
	any_function function;

	memcpy(&function, slot_at(ops, slot), sizeof(function));
	return function != NULL;
}

void decorator_mask_operations(struct workspace_ops *ops, const struct workspace_ops *inner)
{
	int (*scan)(struct op_context *, struct workspace *, const struct object_ref *,
		const struct scan_request *, dir_entry_sink, void *) = ops->scan;

	for (size_t slot = 0; slot < DECORATOR_SLOTS; slot++)
		if (!decorator_has_slot(inner, slot))
			memset(slot_at(ops, slot), 0, sizeof(any_function));
	ops->scan = scan;
}
