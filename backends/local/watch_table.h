/*
 * backends/local/watch_table.h - the watches of a watcher by number, and where their directories
 * are.
 *
 * A directory is found by its id, and has a name in the one that holds it: those below it move
 * with it.
 * Threads: none; the watcher guards it.
 */
#pragma once

#include "ops/support/hash_table.h"
#include "ops/workspace_values.h"

/* A directory that is watched, or holds watched ones, or could not be watched. */
struct watch_node {
	struct watch_node *next_by_id;
	struct watch_node *parent; /* NULL: of the root */
	struct object_id id;
	struct watch *watch; /* NULL: it is not watched */
	size_t uses;         /* its watch, directories in it, and one if it has failed */
	bool has_failed;     /* it could not be watched */
	char *name;          /* in the parent */
};

struct watch {
	struct watch *next_by_number;
	struct watch_node *node;
	uint64_t since; /* position drawn right after the watch was added; 0: not every later change
			 * is reported */
	int number;     /* of inotify */
	bool is_shared; /* with other machines, whose changes inotify does not report */
	bool has_ended; /* but that has not been read yet */
	bool touched;   /* names in it changed in this batch of events */
};

struct watch_table {
	struct hash_table nodes, watches;
	size_t watched_count; /* directories that are watched ... */
	size_t failed_count;  /* ... and that could not be, or are shared */
};

/* 0, or -ENOMEM; watch_table_done() is due in both cases. */
int watch_table_init(struct watch_table *table);
void watch_table_done(struct watch_table *table);

/* Or NULL. */
struct watch_node *watch_table_find_node(struct watch_table *table, const struct object_id *id);
struct watch *watch_table_find(struct watch_table *table, int number);

/* The directory has this name in the parent now (NULL and "": it is the root).  Adds it to the
 * table if it is not there, without a use.  NULL: no memory, or it would be in itself. */
struct watch_node *watch_table_put(struct watch_table *table, struct watch_node *parent,
	const char *name, const struct object_id *id);

/* Frees a node that has no use, and then those above it. */
void watch_table_tidy(struct watch_table *table, struct watch_node *node);

/* The path of the directory, or of a name in it; the caller frees it.  NULL: no memory. */
char *watch_node_path(const struct watch_node *node, const char *name);

/* Sets whether a directory that is not watched could not be. */
void watch_table_set_failed(struct watch_table *table, struct watch_node *node, bool failed);

/* Adds a watch to a directory that has none.  NULL: no memory. */
struct watch *watch_table_add(
	struct watch_table *table, struct watch_node *node, int number, bool is_shared);

/* The watch has ended; it stays in the table until its last event has been read. */
void watch_table_end(struct watch_table *table, struct watch *watch);

/* Takes it out and frees it. */
void watch_table_remove(struct watch_table *table, struct watch *watch);

/* The numbers of all watches, as an array that the caller frees; NULL: none, or no memory. */
int *watch_table_numbers(const struct watch_table *table, size_t *ret_count);
