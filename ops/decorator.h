/*
 * ops/decorator.h - what workspaces that hold a workspace have in common.
 */
#pragma once

#include "ops/workspace.h"

/* Takes the operations that `inner` lacks out of a decorator's own table, so that callers
 * meet the same defaults with and without the decorator.  `scan` stays: it has a default
 * of equal standing. */
void decorator_mask_operations(struct workspace_ops *ops, const struct workspace_ops *inner);

/* Slots of the table behind `name`; each is a function pointer. */
enum { DECORATOR_SLOTS = sizeof(struct workspace_ops) / sizeof(void *) - 1 };

/* True when the slot is filled in. */
bool decorator_has_slot(const struct workspace_ops *ops, size_t slot);
