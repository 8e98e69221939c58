/* Content of files that are too large to be fetched whole on a guess and small enough to be cached,
 * such as the index of a git repository.  Once a handle has read all of one, in any order, the
 * content is cached. */
#include "ops/cache/cached_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
	PIECE_BYTES = 4096,
	PIECES_MAX = LARGE_FILE_MAX_BYTES / PIECE_BYTES,
};

struct assembly {
	struct content *content;
	size_t missing; /* pieces */
	bool has[PIECES_MAX];
};

static size_t count_pieces(size_t size)
{
	return (size + PIECE_BYTES - 1) / PIECE_BYTES;
}

static bool is_eligible(const struct cached *c, const struct cached_file *file)
{
	uint64_t size = file->attributes.size_bytes;

	return (file->flags & O_ACCMODE) == O_RDONLY && size > SMALL_FILE_MAX_BYTES &&
	       content_may_be_kept(c, size) && S_ISREG(file->attributes.mode) &&
	       !file->attributes.is_generated &&
	       c->assembling_bytes + size <= c->memory_bytes_max / 4;
}

static void begin(struct cached *c, struct cached_file *file)
{
	size_t size = file->attributes.size_bytes;
	struct assembly *a = calloc(1, sizeof(*a));

	if (a)
		a->content = content_new_blank(size);
	if (!a || !a->content) {
		free(a);
		return;
	}
	a->missing = count_pieces(size);
	c->assembling_bytes += size;
	file->assembly = a;
}

/* False if the file may have changed since the handle was opened: the pieces may then be of
 * different states. */
static bool is_valid(struct cached *c, const struct cached_file *file)
{
	const struct extra *x = file->extra;
	struct attributes now;

	return !x->content && !x->writers && tree_state(c->tree, &x->id) == file->opened_state &&
	       cached_get_attributes(c, &x->id, &now) &&
	       attributes_same_version(&now, &file->attributes);
}

void cached_assemble_begin(struct cached *c, struct cached_file *file)
{
	if (!file->assembly && is_eligible(c, file))
		begin(c, file);
	if (file->assembly && !is_valid(c, file))
		cached_assemble_end(c, file);
}

void cached_assemble_end(struct cached *c, struct cached_file *file)
{
	struct assembly *a = file->assembly;

	if (!a)
		return;
	c->assembling_bytes -= file->attributes.size_bytes;
	content_unref(a->content);
	free(a);
	file->assembly = NULL;
}

static void take(struct assembly *a, const void *data, size_t size, size_t offset)
{
	size_t end = offset + size;
	size_t last = end == a->content->size ? count_pieces(end) : end / PIECE_BYTES;

	memcpy(a->content->data + offset, data, size);
	for (size_t i = count_pieces(offset); i < last; i++) {
		a->missing -= !a->has[i];
		a->has[i] = true;
	}
}

void cached_assemble_take(
	struct cached *c, struct cached_file *file, const void *data, size_t size, off_t offset)
{
	struct assembly *a = file->assembly;

	if (!a)
		return;
	if (!is_valid(c, file) || (uint64_t)offset + size > a->content->size) {
		cached_assemble_end(c, file);
		return;
	}
	take(a, data, size, (size_t)offset);
	if (a->missing)
		return;
	if (content_attach(c, file->extra, content_ref(a->content)))
		content_keep(c, file->extra);
	cached_assemble_end(c, file);
}
