/*
 * backends/watch_table.h - the directories of a watcher, found by path, by id and by watch number.
 *
 * Threads: none; the watcher guards it.
 */
#pragma once

#include "ops/workspace.h"

struct watch_node {
	struct watch_node *next_by_path, *next_by_id, *next_by_number;
	struct object_id id;
	uint64_t path_hash;
	int number;     /* of inotify; -1: could not be watched */
	uint64_t since; /* position drawn right after the watch was added; 0: not every change of
			 * what is looked at from then on is told */
	bool is_shared; /* with other machines, of whose changes inotify does not tell */
	bool has_ended; /* it is not watched any more, but that has not been read yet */
	bool touched;   /* names in it changed in this batch of events */
	char *path;
};

struct watch_table {
	struct watch_node **by_path, **by_id, **by_number;
	size_t bucket_count; /* a power of two, or 0 */
	size_t node_count;
	size_t watched_count; /* of those that have not ended */
	size_t failed_count;  /* nodes without a watch, or shared */
};

/* Frees every node. */
void watch_table_done(struct watch_table *table);

/* The node, or NULL.  By path and id: one that has not ended. */
struct watch_node *watch_table_find(struct watch_table *table, const char *path);
struct watch_node *watch_table_find_id(struct watch_table *table, const struct object_id *id);
struct watch_node *watch_table_find_number(struct watch_table *table, int number);

/* Adds a node, in front of those with the same path, which is copied.  NULL when there is no
 * memory. */
struct watch_node *watch_table_add(struct watch_table *table, const char *path,
	const struct object_id *id, int number, bool is_shared);

/* Its watch has ended. */
void watch_table_end(struct watch_table *table, struct watch_node *node);

/* Takes the node out; it is the caller's then. */
void watch_table_take(struct watch_table *table, struct watch_node *node);
void watch_node_free(struct watch_node *node);

/* Gives the node another path and id.  -ENOMEM: unchanged. */
int watch_table_move(struct watch_table *table, struct watch_node *node, const char *path,
	const struct object_id *id);

/* All nodes at or below `path`, as an array that the caller frees; NULL when there is none
 * or no memory. */
struct watch_node **watch_table_within(
	struct watch_table *table, const char *path, size_t *ret_count);
