#include "tests/unit/scripted_place.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"
#include "ops/support/position.h"
#include "tests/check.h"
#include "tests/unit/place.h"

enum { OBJECTS = 64, NAMES = 64 };

struct object {
	struct attributes attributes; /* mode 0: not made yet */
	char letter;
	uint64_t watched_since; /* 0: it is not */
};

struct name {
	struct object *in; /* NULL: not used yet */
	char text[16];
	struct object *of, *last; /* NULL: nothing is there; what was there last */
};

struct handle {
	struct open_file file;
	struct object *object;
	uint64_t end; /* of what was written and not flushed; 0: nothing */
	char letter;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	struct workspace base;
	pthread_t test;
	change_sink sink;
	void *sink_user;
	unsigned looks, opens; /* lock, as all below */
	char letter;
	long tick;                      /* of the clock that gives the times */
	struct object objects[OBJECTS]; /* the first is the root */
	struct name names[NAMES];
} place;

void (*before_it_looks)(void), (*while_it_looks)(void), (*before_it_arrives)(void);
void (*during_a_write)(void);

/* ---- What is there: with the lock held ------------------------------------------------ */

static struct name *name_in(const struct object *in, const char *text, size_t length)
{
	for (size_t i = 0; i < NAMES; i++)
		if (place.names[i].in == in && strlen(place.names[i].text) == length &&
			memcmp(place.names[i].text, text, length) == 0)
			return &place.names[i];
	return NULL;
}

static int walk(const char *path, size_t length, struct object **ret_object)
{
	struct object *object = &place.objects[0];
	const char *end = path + length;

	while (path < end) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		const char *name_end = slash ? slash : end;
		const struct name *name;

		if (!S_ISDIR(object->attributes.mode))
			return -ENOTDIR;
		name = name_in(object, path, (size_t)(name_end - path));
		if (!name || !name->of)
			return -ENOENT;
		object = name->of;
		path = slash ? slash + 1 : end;
	}
	*ret_object = object;
	return 0;
}

static bool is_other(const struct object *object, const struct object_id *expected)
{
	return expected->inode && !object_id_equal(expected, &object->attributes.id);
}

static int find_directory(
	const char *path, const struct object_id *expected, struct object **ret_directory)
{
	int r = walk(path, path_parent_length(path), ret_directory);

	if (r == 0 && !S_ISDIR((*ret_directory)->attributes.mode))
		r = -ENOTDIR;
	if (expected->inode &&
		(path_misses_object(r) || (r == 0 && is_other(*ret_directory, expected))))
		return -ESTALE;
	return r;
}

static int find(const struct object_ref *ref, struct object **ret_object)
{
	struct object *directory;
	int r;

	if (ref->file) {
		*ret_object = ((struct handle *)ref->file)->object;
		return 0;
	}
	r = *ref->path ? find_directory(ref->path, &ref->parent, &directory) : 0;
	if (r == 0)
		r = walk(ref->path, strlen(ref->path), ret_object);
	return r == 0 && is_other(*ret_object, &ref->id) ? -ESTALE : r;
}

static void touch(struct object *object, bool content)
{
	struct attributes *a = &object->attributes;

	a->ctime.tv_nsec = ++place.tick;
	a->changed_lately = true;
	if (content)
		a->mtime = a->ctime;
}

static struct object *make_object(uint32_t mode)
{
	struct object *object = place.objects;

	while (object->attributes.mode)
		object++;
	object->letter = place.letter;
	object->attributes = (struct attributes){
		.id = {.inode = (uint64_t)(object - place.objects) + 1}, .mode = mode};
	touch(object, true);
	return object;
}

/* A directory has its own "." as well, and its parent the ".." in it. */
static void count_links(struct name *name, struct object *of, int sign)
{
	bool is_directory = S_ISDIR(of->attributes.mode);

	of->attributes.nlink += (uint32_t)(is_directory ? 2 * sign : sign);
	if (is_directory)
		name->in->attributes.nlink += (uint32_t)sign;
	touch(of, false);
}

/* Sets what the name leads to; NULL: nothing. */
static void set_name(struct name *name, struct object *of)
{
	if (name->of) {
		name->last = name->of;
		count_links(name, name->of, -1);
	}
	name->of = of;
	if (of)
		count_links(name, of, 1);
	touch(name->in, true);
}

static struct name *make_name(struct object *in, const char *text)
{
	struct name *name = name_in(in, text, strlen(text));

	if (name)
		return name;
	for (name = place.names; name->in;)
		name++;
	name->in = in;
	snprintf(name->text, sizeof(name->text), "%s", text);
	return name;
}

static void resize(struct object *object, uint64_t size_bytes)
{
	object->attributes.size_bytes = size_bytes;
	touch(object, true);
}

/* ---- Calls: with the lock held but while a hook runs ------------------------------------ */

struct call {
	struct op_context *ctx;
	uint64_t position;
	struct facts facts;
};

static void run_once(void (**hook)(void))
{
	void (*run)(void);

	if (!pthread_equal(pthread_self(), place.test))
		return;
	run = *hook;
	*hook = NULL;
	if (!run)
		return;
	pthread_mutex_unlock(&lock);
	run();
	pthread_mutex_lock(&lock);
}

static struct call begin(struct op_context *ctx)
{
	pthread_mutex_lock(&lock);
	return (struct call){.ctx = ctx};
}

/* What follows is looked at now. */
static void number(struct call *call)
{
	run_once(&before_it_looks);
	call->position = position_draw();
	run_once(&while_it_looks);
}

static int reply(struct call *call, int r)
{
	run_once(&before_it_arrives);
	pthread_mutex_unlock(&lock);
	call->ctx->served.position = call->position;
	if (call->ctx->facts)
		*call->ctx->facts = r < 0 ? (struct facts){0} : call->facts;
	return r;
}

/* A call that looks at one object. */
static struct call look(
	struct op_context *ctx, const struct object_ref *ref, int *r, struct object **ret_object)
{
	struct call call = begin(ctx);

	number(&call);
	*r = find(ref, ret_object);
	return call;
}

static int scripted_getattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	struct object *found;
	int r;
	struct call call = look(ctx, object, &r, &found);

	(void)w;
	place.looks++;
	if (r == 0)
		*ret_attributes = found->attributes;
	return reply(&call, r);
}

static size_t list(
	const struct object *directory, uint64_t at, struct name *names, struct dir_entry *entries)
{
	size_t count = 0;

	for (size_t i = 0; i < NAMES; i++)
		if (place.names[i].in == directory && place.names[i].of) {
			names[count] = place.names[i];
			entries[count] = (struct dir_entry){.path = names[count].text,
				.attributes = names[count].of->attributes,
				.at = at};
			count++;
		}
	return count;
}

static int scripted_readdir(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	uint64_t *ret_since)
{
	struct dir_entry entries[NAMES];
	struct name names[NAMES];
	struct call call = begin(ctx);
	struct object *found;
	uint64_t since = 0;
	size_t count;
	int r = find(directory, &found);

	(void)w;
	if (r == 0 && !S_ISDIR(found->attributes.mode))
		r = -ENOTDIR;
	if (r == 0 && watch && !found->watched_since)
		found->watched_since = position_draw();
	number(&call);
	if (r < 0)
		return reply(&call, r);
	if (watch)
		since = found->watched_since;
	count = list(found, call.position, names, entries);
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; r >= 0 && i < count; i++)
		r = sink(user, &entries[i]);
	pthread_mutex_lock(&lock);
	if (r >= 0)
		*ret_since = since;
	return reply(&call, r < 0 ? r : 0);
}

static int new_handle(struct workspace *w, struct object *object, struct open_file **ret_file)
{
	struct handle *handle = malloc(sizeof(*handle));

	if (!handle)
		return -ENOMEM;
	*handle = (struct handle){.file = {.workspace = w}, .object = object};
	*ret_file = &handle->file;
	return 0;
}

static int scripted_open(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	struct call call = begin(ctx);
	struct object *found;
	int r;

	if (flags & O_TRUNC) {
		r = find(object, &found);
		if (r == 0)
			resize(found, 0);
		number(&call);
	} else {
		number(&call);
		r = find(object, &found);
	}
	place.opens++;
	if (r == 0 && S_ISDIR(found->attributes.mode))
		r = -EISDIR;
	if (r == 0)
		r = new_handle(w, found, ret_file);
	if (r == 0)
		*ret_attributes = found->attributes;
	return reply(&call, r);
}

static struct handle *handle_of(struct open_file *file)
{
	return (struct handle *)file;
}

/* As many of one letter as the file is long. */
static ssize_t scripted_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset)
{
	struct call call = begin(ctx);
	const struct object *object = handle_of(file)->object;
	size_t length;

	number(&call);
	length = object->attributes.size_bytes;
	length = (size_t)offset < length ? length - (size_t)offset : 0;
	size = size < length ? size : length;
	memset(data, object->letter, size);
	reply(&call, 0);
	return (ssize_t)size;
}

/* After this a look at the object shows what was written. */
static void apply_writes(struct handle *handle)
{
	struct object *object = handle->object;

	if (handle->end) {
		object->letter = handle->letter;
		resize(object, handle->end > object->attributes.size_bytes
				       ? handle->end
				       : object->attributes.size_bytes);
	}
	handle->end = 0;
}

static ssize_t scripted_write(
	struct op_context *ctx, struct open_file *file, const void *data, size_t size, off_t offset)
{
	struct handle *handle = handle_of(file);

	(void)ctx;
	pthread_mutex_lock(&lock);
	handle->letter = *(const char *)data;
	if ((uint64_t)offset + size > handle->end)
		handle->end = (uint64_t)offset + size;
	run_once(&during_a_write);
	apply_writes(handle);
	pthread_mutex_unlock(&lock);
	return (ssize_t)size;
}

static int scripted_flush(struct op_context *ctx, struct open_file *file)
{
	struct call call = begin(ctx);
	struct handle *handle = handle_of(file);
	struct object *object = handle->object;

	apply_writes(handle);
	number(&call);
	call.facts.object = object->attributes;
	return reply(&call, 0);
}

static int scripted_fsync(struct op_context *ctx, struct workspace *w, struct open_file *file,
	const char *path, bool data_only)
{
	(void)w;
	(void)path;
	(void)data_only;
	return scripted_flush(ctx, file);
}

/* Room is made by growing the file. */
static int scripted_fallocate(
	struct op_context *ctx, struct open_file *file, unsigned mode, off_t offset, off_t length)
{
	struct call call = begin(ctx);
	struct object *object = handle_of(file)->object;

	(void)mode;
	resize(object, (uint64_t)(offset + length));
	number(&call);
	call.facts.object = object->attributes;
	return reply(&call, 0);
}

static int scripted_close(struct op_context *ctx, struct open_file *file)
{
	int r = scripted_flush(ctx, file);

	free(file);
	return r;
}

/* Ends a call that made a name.  Nothing is known of that when it leads elsewhere by now. */
static int made(struct call *call, const struct name *name, const struct object *object,
	struct attributes *ret_attributes)
{
	number(call);
	if (name->of == object)
		call->facts.parent = name->in->attributes;
	*ret_attributes = object->attributes;
	return reply(call, 0);
}

/* The name to be made, in the directory that the caller means. */
static int find_new(const char *path, const struct object_id *parent, struct name **ret_name)
{
	struct object *directory;
	int r = find_directory(path, parent, &directory);

	if (r == 0)
		*ret_name = make_name(directory, path_name(path));
	return r < 0 ? r : 0;
}

static int refuse(struct call *call, int r)
{
	number(call);
	return reply(call, r);
}

static int scripted_mkdir(struct op_context *ctx, struct workspace *w, const char *path,
	uint32_t mode, struct attributes *ret_attributes)
{
	struct call call = begin(ctx);
	struct name *name;
	int r = find_new(path, &ctx->parent, &name);

	(void)w;
	if (r == 0 && name->of)
		r = -EEXIST;
	if (r < 0)
		return refuse(&call, r);
	set_name(name, make_object(S_IFDIR | mode));
	return made(&call, name, name->of, ret_attributes);
}

static int scripted_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	struct call call = begin(ctx);
	struct object *object;
	struct name *name;
	int r = find_new(path, &ctx->parent, &name);

	(void)flags;
	if (r == 0 && name->of)
		r = -EEXIST;
	if (r < 0)
		return refuse(&call, r);
	object = make_object(S_IFREG | mode);
	r = new_handle(w, object, ret_file);
	if (r < 0)
		return refuse(&call, r);
	set_name(name, object);
	return made(&call, name, object, ret_attributes);
}

static int scripted_link(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *path, struct attributes *ret_attributes)
{
	struct call call = begin(ctx);
	struct object *found;
	struct name *name;
	int r = find(object, &found);

	(void)w;
	if (r == 0)
		r = find_new(path, &ctx->new_parent, &name);
	if (r == 0 && name->of)
		r = -EEXIST;
	if (r < 0)
		return refuse(&call, r);
	set_name(name, found);
	return made(&call, name, found, ret_attributes);
}

static int scripted_setattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, unsigned mask, const struct attributes *want,
	struct attributes *ret_attributes)
{
	struct call call = begin(ctx);
	struct object *found;
	int r = find(object, &found);

	(void)w;
	if (r < 0)
		return refuse(&call, r);
	if (mask & SET_SIZE)
		resize(found, want->size_bytes);
	touch(found, false);
	if (mask & SET_MODE)
		found->attributes.mode =
			(found->attributes.mode & S_IFMT) | (want->mode & ~(uint32_t)S_IFMT);
	if (mask & SET_MTIME)
		found->attributes.mtime = want->mtime;
	number(&call);
	*ret_attributes = found->attributes;
	return reply(&call, 0);
}

/* Extended attributes are not kept; setting one is seen. */
static int scripted_setxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *attribute, const void *value, size_t size,
	unsigned flags)
{
	struct call call = begin(ctx);
	struct object *found;
	int r = find(object, &found);

	(void)w;
	(void)attribute;
	(void)value;
	(void)size;
	(void)flags;
	if (r < 0)
		return refuse(&call, r);
	touch(found, false);
	number(&call);
	call.facts.object = found->attributes;
	return reply(&call, 0);
}

static ssize_t scripted_listxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, char *names, size_t size)
{
	struct object *found;
	int r;
	struct call call = look(ctx, object, &r, &found);

	(void)w;
	(void)names;
	(void)size;
	place.looks++;
	return reply(&call, r);
}

static ssize_t scripted_getxattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, const char *attribute, void *value, size_t size)
{
	struct object *found;
	int r;
	struct call call = look(ctx, object, &r, &found);

	(void)w;
	(void)attribute;
	(void)value;
	(void)size;
	place.looks++;
	return reply(&call, r < 0 ? r : -ENODATA);
}

static bool is_empty(const struct object *directory)
{
	for (size_t i = 0; i < NAMES; i++)
		if (place.names[i].in == directory && place.names[i].of)
			return false;
	return true;
}

/* The name to be removed or moved, and what it leads to. */
static int find_old(const char *path, const struct object_id *parent,
	const struct object_id *expected, struct name **ret_name)
{
	struct object *directory;
	int r = find_directory(path, parent, &directory);
	struct name *name;

	if (r < 0)
		return r;
	name = name_in(directory, path_name(path), strlen(path_name(path)));
	if (!name || !name->of)
		return -ENOENT;
	if (expected && is_other(name->of, expected))
		return -ESTALE;
	*ret_name = name;
	return 0;
}

static int scripted_remove(struct op_context *ctx, const char *path,
	const struct object_id *expected, bool is_directory)
{
	struct call call = begin(ctx);
	struct name *name;
	int r = find_old(path, &ctx->parent, expected, &name);

	if (r == 0 && S_ISDIR(name->of->attributes.mode) != is_directory)
		r = is_directory ? -ENOTDIR : -EISDIR;
	if (r == 0 && is_directory && !is_empty(name->of))
		r = -ENOTEMPTY;
	if (r < 0)
		return refuse(&call, r);
	set_name(name, NULL);
	number(&call);
	if (!name->of)
		call.facts.parent = name->in->attributes;
	return reply(&call, 0);
}

static int scripted_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	(void)w;
	return scripted_remove(ctx, path, expected, false);
}

static int scripted_rmdir(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	(void)w;
	return scripted_remove(ctx, path, expected, true);
}

static void move(struct name *from, struct name *to, bool swap)
{
	struct object *moved = from->of, *replaced = to->of;

	if (moved == replaced)
		return;
	set_name(from, swap ? replaced : NULL);
	set_name(to, moved);
}

static int scripted_rename(struct op_context *ctx, struct workspace *w, const char *from_path,
	const char *to_path, unsigned flags, const struct object_id *expected)
{
	struct call call = begin(ctx);
	struct object *moved, *left;
	struct name *from, *to;
	int r = find_old(from_path, &ctx->parent, expected, &from);

	(void)w;
	if (r == 0)
		r = find_new(to_path, &ctx->new_parent, &to);
	if (r == 0 && (flags & RENAME_KEEP_TARGET) && to->of)
		r = -EEXIST;
	if (r == 0 && (flags & RENAME_SWAP) && !to->of)
		r = -ENOENT;
	if (r == 0 && !(flags & RENAME_SWAP) && to->of && S_ISDIR(to->of->attributes.mode) &&
		!is_empty(to->of))
		r = -ENOTEMPTY;
	if (r < 0)
		return refuse(&call, r);
	moved = from->of;
	move(from, to, flags & RENAME_SWAP);
	left = from->of;
	number(&call);
	if (to->of == moved && from->of == left)
		call.facts = (struct facts){.parent = from->in->attributes,
			.new_parent = to->in->attributes,
			.object = moved->attributes};
	return reply(&call, 0);
}

static int scripted_watch(struct workspace *w, change_sink sink, void *user)
{
	(void)w;
	place.sink = sink;
	place.sink_user = user;
	return 0;
}

static void scripted_unwatch(struct workspace *w, const struct object_ref *directory)
{
	struct change end = {
		.kind = CHANGE_UNWATCHED, .path = directory->path, .directory = directory->id};

	(void)w;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < OBJECTS; i++) {
		struct object *object = &place.objects[i];

		if (!object->watched_since || is_other(object, &directory->id))
			continue;
		object->watched_since = 0;
		end.at = position_draw();
	}
	pthread_mutex_unlock(&lock);
	if (end.at && place.sink)
		place.sink(place.sink_user, &end);
}

static const struct workspace_ops scripted_ops = {
	.name = "scripted",
	.free = unvisited_free,
	.status = place_status,
	.statfs = place_statfs,
	.getattr = scripted_getattr,
	.readdir = scripted_readdir,
	.open_file = scripted_open,
	.create = scripted_create,
	.read = scripted_read,
	.write = scripted_write,
	.flush = scripted_flush,
	.fsync = scripted_fsync,
	.fallocate = scripted_fallocate,
	.close = scripted_close,
	.mkdir = scripted_mkdir,
	.link = scripted_link,
	.setattr = scripted_setattr,
	.getxattr = scripted_getxattr,
	.listxattr = scripted_listxattr,
	.setxattr = scripted_setxattr,
	.unlink = scripted_unlink,
	.rmdir = scripted_rmdir,
	.rename = scripted_rename,
	.watch = scripted_watch,
	.unwatch = scripted_unwatch,
};

/* ---- For the test ------------------------------------------------------------------------ */

struct workspace *place_new(void)
{
	memset(&place, 0, sizeof(place));
	place.base.ops = &scripted_ops;
	place.test = pthread_self();
	make_object(S_IFDIR | 0755)->attributes.nlink = 2;
	return &place.base;
}

/* The name at the path; with the lock held. */
static struct name *name_at(const char *path)
{
	static const struct object_id any;
	struct name *name = NULL;

	CHECK_RC(0, find_new(path, &any, &name));
	return name;
}

void place_make(const char *path, uint32_t mode)
{
	pthread_mutex_lock(&lock);
	set_name(name_at(path), make_object(mode));
	pthread_mutex_unlock(&lock);
}

void place_remove(const char *path)
{
	pthread_mutex_lock(&lock);
	set_name(name_at(path), NULL);
	pthread_mutex_unlock(&lock);
}

void place_put_back(const char *path)
{
	struct name *name;

	pthread_mutex_lock(&lock);
	name = name_at(path);
	set_name(name, name->last);
	pthread_mutex_unlock(&lock);
}

void place_move(const char *from, const char *to)
{
	pthread_mutex_lock(&lock);
	move(name_at(from), name_at(to), false);
	pthread_mutex_unlock(&lock);
}

void place_link(const char *path, const char *new_path)
{
	pthread_mutex_lock(&lock);
	set_name(name_at(new_path), name_at(path)->of);
	pthread_mutex_unlock(&lock);
}

void place_set_size(const char *path, uint64_t size_bytes)
{
	pthread_mutex_lock(&lock);
	resize(name_at(path)->of, size_bytes);
	pthread_mutex_unlock(&lock);
}

void place_set_ctime(const char *path, time_t seconds)
{
	pthread_mutex_lock(&lock);
	name_at(path)->of->attributes.ctime.tv_sec = seconds;
	pthread_mutex_unlock(&lock);
}

void place_set_letter(char letter)
{
	pthread_mutex_lock(&lock);
	place.letter = letter;
	for (size_t i = 0; i < OBJECTS; i++) {
		place.objects[i].letter = letter;
		place.objects[i].attributes.changed_lately = true;
	}
	pthread_mutex_unlock(&lock);
}

void place_time_passes(void)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < OBJECTS; i++)
		place.objects[i].attributes.changed_lately = false;
	pthread_mutex_unlock(&lock);
}

struct object_id place_id(const char *path)
{
	struct object_id id = {0};
	struct object *object;

	pthread_mutex_lock(&lock);
	if (walk(path, strlen(path), &object) == 0)
		id = object->attributes.id;
	pthread_mutex_unlock(&lock);
	return id;
}

bool place_is_watched(const char *path)
{
	struct object *object;
	bool watched;

	pthread_mutex_lock(&lock);
	watched = walk(path, strlen(path), &object) == 0 && object->watched_since;
	pthread_mutex_unlock(&lock);
	return watched;
}

struct change place_event(const char *path)
{
	struct change change = {.kind = CHANGE_ENTRY, .path = path};
	struct object *directory, *object;

	pthread_mutex_lock(&lock);
	change.at = position_draw();
	if (*path && walk(path, path_parent_length(path), &directory) == 0)
		change.directory = directory->attributes.id;
	change.exists = walk(path, strlen(path), &object) == 0;
	if (change.exists)
		change.attributes = object->attributes;
	pthread_mutex_unlock(&lock);
	return change;
}

void place_deliver(const struct change *change)
{
	place.sink(place.sink_user, change);
}

void place_tell(const char *path)
{
	struct change change = place_event(path);

	place_deliver(&change);
}

void place_lose(void)
{
	const struct change loss = {.kind = CHANGE_RESCAN, .path = "", .at = position_draw()};

	place_deliver(&loss);
}

static unsigned take_count(unsigned *count)
{
	unsigned taken;

	pthread_mutex_lock(&lock);
	taken = *count;
	*count = 0;
	pthread_mutex_unlock(&lock);
	return taken;
}

unsigned place_looks(void)
{
	return take_count(&place.looks);
}

unsigned place_opens(void)
{
	return take_count(&place.opens);
}
