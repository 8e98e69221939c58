/* The names and objects that operations are ordered by. */
#include "ops/writeback/writeback_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ops/support/path.h"

enum { KEY_OF_ALL = 1, KEY_OF_PATH, KEY_OF_OBJECT };

static size_t key_hash(const void *entry)
{
	return ((const struct key *)entry)->hash;
}

static void **key_link(void *entry)
{
	return (void **)&((struct key *)entry)->next;
}

static struct key *find_key(struct writeback *b, size_t hash)
{
	struct key *key = hash_table_bucket(&b->keys, hash);

	while (key && key->hash != hash)
		key = key->next;
	return key;
}

static struct key *add_key(struct writeback *b, size_t hash)
{
	struct key *key = find_key(b, hash);

	if (key)
		return key;
	key = calloc(1, sizeof(*key));
	if (!key)
		return NULL;
	key->hash = hash;
	TAILQ_INIT(&key->refs);
	hash_table_insert(&b->keys, key, key_hash, key_link);
	return key;
}

static size_t path_key(const char *path, size_t length)
{
	return XXH3_64bits_withSeed(path, length, KEY_OF_PATH);
}

static size_t object_key(const struct object_id *id)
{
	return XXH3_64bits_withSeed(id, sizeof(*id), KEY_OF_OBJECT);
}

/* An exclusive reference waits for all before it, a shared one for exclusive ones. */
static bool may_grant(const struct key_ref *ref)
{
	const struct key_ref *before = TAILQ_PREV(ref, key_refs, link);

	if (!before)
		return true;
	return !ref->is_exclusive && !before->is_exclusive && before->is_granted;
}

/* Ends the holds of operations before this one: it must not wait until files are closed. */
static void hurry(struct writeback *b, const struct key_ref *ref)
{
	const struct key_ref *before = ref;

	while ((before = TAILQ_PREV(before, key_refs, link)))
		if (before->operation->is_held)
			back_release_hold(b, before->operation);
}

static int add_ref(struct writeback *b, struct operation *operation, size_t hash, bool is_exclusive)
{
	struct key_ref *ref;
	struct key *key;

	for (unsigned i = 0; i < operation->ref_count; i++)
		if (operation->refs[i].key->hash == hash)
			return 0;
	key = add_key(b, hash);
	if (!key)
		return -ENOMEM;
	ref = &operation->refs[operation->ref_count++];
	*ref = (struct key_ref){.key = key, .operation = operation, .is_exclusive = is_exclusive};
	TAILQ_INSERT_TAIL(&key->refs, ref, link);
	ref->is_granted = may_grant(ref);
	if (!ref->is_granted && !key->waiting)
		key->waiting = ref;
	operation->blockers += !ref->is_granted;
	return 0;
}

static void grant(struct writeback *b, struct key *key)
{
	struct key_ref *ref;

	while ((ref = key->waiting) && may_grant(ref)) {
		key->waiting = TAILQ_NEXT(ref, link);
		ref->is_granted = true;
		back_unblock(b, ref->operation);
	}
}

void back_refs_drop(struct writeback *b, struct operation *operation)
{
	while (operation->ref_count) {
		struct key_ref *ref = &operation->refs[--operation->ref_count];
		struct key *key = ref->key;

		if (key->waiting == ref)
			key->waiting = TAILQ_NEXT(ref, link);
		TAILQ_REMOVE(&key->refs, ref, link);
		if (TAILQ_EMPTY(&key->refs)) {
			hash_table_remove(&b->keys, key, key_hash, key_link);
			free(key);
		} else
			grant(b, key);
	}
}

static int add_path(struct writeback *b, struct operation *operation, const char *path)
{
	return path ? add_ref(b, operation, path_key(path, strlen(path)), true) : 0;
}

static int add_parent(struct writeback *b, struct operation *operation, const char *path)
{
	return path && *path
		       ? add_ref(b, operation, path_key(path, path_parent_length(path)), false)
		       : 0;
}

static int add_object(struct writeback *b, struct operation *operation, const struct object_id *id)
{
	return id->inode ? add_ref(b, operation, object_key(id), true) : 0;
}

/* Exclusive references come first, as a second reference to the same key is ignored. */
int back_refs_add(struct writeback *b, struct operation *operation, const char *path,
	const char *path2, const struct object_id *id, bool all)
{
	size_t of_all = XXH3_64bits_withSeed("", 0, KEY_OF_ALL);
	int r = add_path(b, operation, path);

	if (r == 0)
		r = add_path(b, operation, path2);
	if (r == 0 && id)
		r = add_object(b, operation, id);
	if (r == 0)
		r = add_object(b, operation, &operation->facts.replaced_id);
	if (r == 0)
		r = add_parent(b, operation, path);
	if (r == 0)
		r = add_parent(b, operation, path2);
	if (r == 0)
		r = add_ref(b, operation, of_all, all);
	if (r < 0) {
		back_refs_drop(b, operation);
		operation->blockers = 0;
	}
	return r;
}

void back_refs_hurry(struct writeback *b, struct operation *operation)
{
	for (unsigned i = 0; i < operation->ref_count; i++)
		if (!operation->refs[i].is_granted)
			hurry(b, &operation->refs[i]);
}

/* No other operation refers to the directory that `operation` creates. */
bool back_is_alone(struct writeback *b, const char *directory, const struct operation *operation)
{
	const struct key *key = find_key(b, path_key(directory, strlen(directory)));
	const struct key_ref *first = key ? TAILQ_FIRST(&key->refs) : NULL;

	return first && first->operation == operation && !TAILQ_NEXT(first, link);
}
