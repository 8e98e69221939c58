#include "backends/mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/cleanup.h"

/* The bounds of the kernel, and one for all xattrs of an inode. */
enum { NAME_MAX_BYTES = 255, VALUE_MAX_BYTES = 64 << 10, ALL_MAX_BYTES = 64 << 10 };

static uint64_t xattr_cost(const char *name, size_t size)
{
	return sizeof(struct mem_xattr) + strlen(name) + 1 + size;
}

static void xattr_free(struct mem *m, struct mem_inode *inode, struct mem_xattr *xattr)
{
	uint64_t cost = xattr_cost(xattr->name, xattr->size);

	inode->xattr_bytes -= cost;
	mem_refund(m, cost);
	free(xattr->name);
	free(xattr->value);
	free(xattr);
}

void mem_xattrs_free(struct mem *m, struct mem_inode *inode)
{
	while (inode->xattrs) {
		struct mem_xattr *next = inode->xattrs->next;

		xattr_free(m, inode, inode->xattrs);
		inode->xattrs = next;
	}
}

static struct mem_xattr **find_xattr(struct mem_inode *inode, const char *name)
{
	struct mem_xattr **link = &inode->xattrs;

	while (*link && strcmp((*link)->name, name) != 0)
		link = &(*link)->next;
	return link;
}

/* Access control lists (system.*) would have to be enforced: they are not kept here. */
static int check_name(const struct mem_inode *inode, const char *name)
{
	static const char *const spaces[] = {"user.", "security.", "trusted."};

	for (size_t i = 0; i < array_size(spaces); i++) {
		size_t length = strlen(spaces[i]);

		if (strncmp(name, spaces[i], length) != 0)
			continue;
		if (!name[length])
			return -EINVAL;
		if (i == 0 && !S_ISREG(inode->attributes.mode) && !S_ISDIR(inode->attributes.mode))
			return -EPERM;
		return strlen(name) > NAME_MAX_BYTES ? -ERANGE : 0;
	}
	return -EOPNOTSUPP;
}

static ssize_t get_locked(struct mem_inode *inode, const char *name, void *value, size_t size)
{
	const struct mem_xattr *xattr;
	int r = check_name(inode, name);

	if (r < 0)
		return r == -EPERM ? -ENODATA : r;
	xattr = *find_xattr(inode, name);
	if (!xattr)
		return -ENODATA;
	if (size == 0)
		return (ssize_t)xattr->size;
	if (size < xattr->size)
		return -ERANGE;
	memcpy(value, xattr->value, xattr->size);
	return (ssize_t)xattr->size;
}

ssize_t mem_getxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, void *value, size_t size)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	ssize_t r;

	mem_lock_to_look(m, ctx);
	r = mem_find(m, object, &inode);
	if (r == 0)
		r = get_locked(inode, name, value, size);
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

static ssize_t list_locked(const struct mem_inode *inode, char *names, size_t size)
{
	size_t used = 0;

	for (const struct mem_xattr *xattr = inode->xattrs; xattr; xattr = xattr->next) {
		size_t length = strlen(xattr->name) + 1;

		if (size > 0 && used + length > size)
			return -ERANGE;
		if (size > 0)
			memcpy(names + used, xattr->name, length);
		used += length;
	}
	return (ssize_t)used;
}

ssize_t mem_listxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	char *names, size_t size)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	ssize_t r;

	mem_lock_to_look(m, ctx);
	r = mem_find(m, object, &inode);
	if (r == 0)
		r = list_locked(inode, names, size);
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

static struct mem_xattr *xattr_new(const char *name, const void *value, size_t size)
{
	struct mem_xattr *xattr = calloc(1, sizeof(*xattr));

	if (!xattr)
		return NULL;
	xattr->name = strdup(name);
	xattr->value = malloc(size + 1);
	xattr->size = size;
	if (xattr->name && xattr->value) {
		memcpy(xattr->value, value, size);
		return xattr;
	}
	free(xattr->name);
	free(xattr->value);
	free(xattr);
	return NULL;
}

static int set_locked(struct mem *m, struct mem_inode *inode, const char *name, const void *value,
	size_t size, unsigned flags)
{
	struct mem_xattr **link = find_xattr(inode, name), *xattr;
	uint64_t cost = xattr_cost(name, size);
	uint64_t freed = *link ? xattr_cost(name, (*link)->size) : 0;
	int r;

	if (*link && (flags & XATTR_MUST_CREATE))
		return -EEXIST;
	if (!*link && (flags & XATTR_MUST_REPLACE))
		return -ENODATA;
	if (inode->xattr_bytes - freed + cost > ALL_MAX_BYTES)
		return -ENOSPC;
	r = mem_charge(m, cost);
	if (r < 0)
		return r;
	xattr = xattr_new(name, size ? value : "", size);
	if (!xattr) {
		mem_refund(m, cost);
		return -ENOMEM;
	}
	inode->xattr_bytes += cost;
	if (*link) {
		xattr->next = (*link)->next;
		xattr_free(m, inode, *link);
	}
	*link = xattr;
	inode->attributes.ctime = mem_now();
	return 0;
}

int mem_setxattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name, const void *value, size_t size, unsigned flags)
{
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	int r;

	if (size > VALUE_MAX_BYTES)
		return -E2BIG;
	mem_lock_to_change(m, ctx);
	r = mem_find(m, object, &inode);
	if (r == 0)
		r = check_name(inode, name);
	if (r == 0)
		r = set_locked(m, inode, name, value, size, flags);
	if (r == 0)
		mem_tell_object(ctx, inode);
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}

int mem_removexattr(struct op_context *ctx, struct workspace *w, const struct object_ref *object,
	const char *name)
{
	struct mem_xattr **link, *xattr;
	struct mem *m = mem_of(w);
	struct mem_inode *inode;
	int r;

	mem_lock_to_change(m, ctx);
	r = mem_find(m, object, &inode);
	if (r == 0)
		r = check_name(inode, name);
	if (r == 0) {
		link = find_xattr(inode, name);
		xattr = *link;
		r = xattr ? 0 : -ENODATA;
		if (xattr) {
			*link = xattr->next;
			xattr_free(m, inode, xattr);
			inode->attributes.ctime = mem_now();
			mem_tell_object(ctx, inode);
		}
	}
	pthread_rwlock_unlock(&m->tree_lock);
	return r;
}
