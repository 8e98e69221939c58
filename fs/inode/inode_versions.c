/* The state of an object that the kernel was given, and hashes of content by that. */
#include "fs/inode/inode_internal.h"

#include <stdlib.h>
#include <string.h>

bool inode_set_kind(
	struct inode_table *t, struct inode *inode, uint64_t device, const struct inode_version *v)
{
	slab_ref ref = file_kind_get(&t->kinds, &(struct file_kind){.device = device,
							.mode = v->mode,
							.nlink = v->nlink,
							.uid = v->uid,
							.gid = v->gid});

	if (!ref)
		return false;
	file_kind_put(&t->kinds, inode->kind);
	inode->kind = ref;
	return true;
}

struct inode_version inode_version_now(const struct inode *inode)
{
	const struct file_kind *kind = file_kind_at(inode->kind);

	return (struct inode_version){.size_bytes = inode->size_bytes,
		.mtime_ns = inode->mtime_ns,
		.ctime_ns = inode->ctime_ns,
		.uid = kind->uid,
		.gid = kind->gid,
		.mode = (uint16_t)kind->mode,
		.nlink = (uint16_t)kind->nlink};
}

void inode_lose_link(struct inode_table *t, struct inode *inode)
{
	struct inode_version version = inode_version_now(inode);

	if (!version.nlink)
		return;
	version.nlink--;
	inode_set_kind(t, inode, file_kind_at(inode->kind)->device, &version);
}

/* After the year 2262 it wraps, but two times still differ. */
static int64_t nanoseconds(const struct timespec *time)
{
	return (int64_t)((uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec);
}

void inode_version_of(const struct attributes *a, struct inode_version *ret_version)
{
	*ret_version = (struct inode_version){.size_bytes = a->size_bytes,
		.mtime_ns = nanoseconds(&a->mtime),
		.ctime_ns = nanoseconds(&a->ctime),
		.uid = a->uid,
		.gid = a->gid,
		.mode = (uint16_t)a->mode,
		.nlink = a->nlink < UINT16_MAX ? (uint16_t)a->nlink : UINT16_MAX};
}

/* inotify reports a change of a file only in the directory whose name was used for it, not in those
 * of its other links.  A directory's own times change with its entries. */
static enum lifetime lifetime_in(
	const struct inode_table *t, const struct inode *inode, uint32_t nlink)
{
	enum lifetime by_parent = LIFETIME_WATCHED,
		      own = nlink == 1 ? LIFETIME_WATCHED : LIFETIME_TTL;
	const struct inode_name *name = name_latest(inode);

	if (inode != t->root)
		by_parent = name ? inode_lifetime(name_parent(name)) : LIFETIME_TTL;
	if (inode->is_directory)
		own = inode_lifetime(inode);
	return own > by_parent ? own : by_parent;
}

void inode_note(struct inode_table *t, struct inode *inode, const struct attributes *a,
	struct inode_note *ret_note)
{
	struct inode_file *file = inode_file(inode);
	const slab_ref kind = inode->kind;
	struct inode_version version;

	inode_version_of(a, &version);
	ret_note->data_changed =
		version.size_bytes != inode->size_bytes || version.mtime_ns != inode->mtime_ns;
	if (file && version.ctime_ns != inode->ctime_ns)
		file->rewritten = true; /* the mtime may have been set back */
	ret_note->has_shrunk = version.size_bytes < inode->size_bytes;
	ret_note->has_other_size = version.size_bytes != inode->size_bytes;
	ret_note->superseded = NULL;
	ret_note->is_old = ret_note->is_another = ret_note->was_missing = false;
	ret_note->only_handle = !file || !file->handles || !file->handles->next;
	inode->size_bytes = version.size_bytes;
	inode->mtime_ns = version.mtime_ns;
	inode->ctime_ns = version.ctime_ns;
	inode_set_kind(t, inode, file_kind_at(kind)->device, &version);
	ret_note->has_other_kind = inode->kind != kind;
	ret_note->lifetime = lifetime_in(t, inode, a->nlink);
}

void inode_table_state(struct inode_table *t, struct inode *inode, struct inode_state *ret_state)
{
	const struct inode_file *file;

	pthread_mutex_lock(&t->lock);
	file = inode_file(inode);
	*ret_state = (struct inode_state){.id = inode_id(inode),
		.version = inode_version_now(inode),
		.writers = file ? file->writers : 0};
	pthread_mutex_unlock(&t->lock);
}

void inode_table_note(struct inode_table *t, struct inode *inode, const struct attributes *a,
	struct inode_note *ret_note)
{
	pthread_mutex_lock(&t->lock);
	inode_note(t, inode, a, ret_note);
	pthread_mutex_unlock(&t->lock);
}

void inode_table_grown(struct inode_table *t, struct inode *inode, uint64_t size_bytes)
{
	pthread_mutex_lock(&t->lock);
	if (size_bytes > inode->size_bytes)
		inode->size_bytes = size_bytes;
	pthread_mutex_unlock(&t->lock);
}

/* ---- Hashes ------------------------------------------------------------------------ */

void inode_forget_hash(struct inode_table *t, struct inode_file *file)
{
	if (!file->written)
		return;
	t->bytes -= sizeof(*file->written) + MALLOC_OVERHEAD_BYTES;
	free(file->written);
	file->written = NULL;
}

/* With the lock held. */
static const struct known_hash *known_hash_of(const struct inode *inode)
{
	const struct inode_file *file = inode_file(inode);

	return file ? file->written : NULL;
}

bool inode_table_has_hash(struct inode_table *t, const struct inode *inode)
{
	bool has_hash;

	pthread_mutex_lock(&t->lock);
	has_hash = known_hash_of(inode);
	pthread_mutex_unlock(&t->lock);
	return has_hash;
}

bool inode_table_hash(struct inode_table *t, struct inode *inode, const struct attributes *a,
	uint8_t ret_digest[CONTENT_HASH_BYTES])
{
	const struct known_hash *known;
	struct inode_version version;
	bool is_same;

	inode_version_of(a, &version);
	pthread_mutex_lock(&t->lock);
	known = known_hash_of(inode);
	is_same = known && known->version.size_bytes == version.size_bytes &&
		  known->version.mtime_ns == version.mtime_ns &&
		  known->version.ctime_ns == version.ctime_ns;
	if (is_same)
		memcpy(ret_digest, known->digest, CONTENT_HASH_BYTES);
	pthread_mutex_unlock(&t->lock);
	return is_same;
}

bool inode_table_keep_hash(struct inode_table *t, struct inode *inode, const struct attributes *a,
	const uint8_t *digest)
{
	struct known_hash *known = NULL;
	struct inode_file *file;
	bool is_alone;

	pthread_mutex_lock(&t->lock);
	file = inode_file(inode);
	inode_forget_hash(t, file);
	is_alone = !file->is_mixed;
	if (is_alone && a)
		known = malloc(sizeof(*known));
	if (known) {
		inode_version_of(a, &known->version);
		memcpy(known->digest, digest, CONTENT_HASH_BYTES);
		file->written = known;
		t->bytes += sizeof(*known) + MALLOC_OVERHEAD_BYTES;
	}
	pthread_mutex_unlock(&t->lock);
	return is_alone;
}
