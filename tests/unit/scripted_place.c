#include "tests/unit/scripted_place.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/path.h"
#include "tests/unit/place.h"

enum { ENTRIES = 16 };

struct entry {
	char path[16];
	bool exists;
	struct attributes attributes;
};

struct handle {
	struct open_file file;
	char path[16]; /* when opened */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	struct workspace base;
	pthread_t test;
	change_sink sink;
	void *sink_user;
	uint64_t now_ns, next_inode; /* lock, as all below */
	unsigned looks, opens;
	char letter;
	struct entry entries[ENTRIES]; /* the first is the root */
} place;

void (*before_it_is_done)(void), (*before_it_arrives)(void);

/* ---- What is there: with the lock held ------------------------------------------------ */

static struct entry *entry_at(const char *path)
{
	for (size_t i = 0; i < ENTRIES; i++)
		if (place.entries[i].attributes.mode && strcmp(place.entries[i].path, path) == 0)
			return &place.entries[i];
	return NULL;
}

static struct entry *present(const char *path)
{
	struct entry *entry = entry_at(path);

	return entry && entry->exists ? entry : NULL;
}

static struct entry *make(const char *path, uint32_t mode)
{
	struct entry *entry = entry_at(path);

	for (size_t i = 0; !entry; i++)
		if (!place.entries[i].attributes.mode)
			entry = &place.entries[i];
	snprintf(entry->path, sizeof(entry->path), "%s", path);
	entry->exists = true;
	entry->attributes = (struct attributes){
		.id = {.inode = ++place.next_inode}, .mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1};
	return entry;
}

static bool is_in(const char *path, const char *directory)
{
	size_t length = path_parent_length(path);

	return *path && strlen(directory) == length && memcmp(directory, path, length) == 0;
}

/* ---- Calls: they begin with the lock taken, and reply without it ---------------------- */

static void begin(struct op_context *ctx)
{
	pthread_mutex_lock(&lock);
	ctx->served.began_ns = ++place.now_ns;
}

static void run_once(void (**hook)(void))
{
	void (*run)(void);

	if (!pthread_equal(pthread_self(), place.test))
		return;
	run = *hook;
	*hook = NULL;
	if (run)
		run();
}

static int reply(struct op_context *ctx, int r)
{
	uint64_t began_ns = ctx->served.began_ns;

	pthread_mutex_unlock(&lock);
	run_once(&before_it_is_done);
	pthread_mutex_lock(&lock);
	ctx->served.began_ns = began_ns;
	ctx->served.done_ns = ++place.now_ns;
	pthread_mutex_unlock(&lock);
	run_once(&before_it_arrives);
	return r;
}

static int scripted_getattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, struct attributes *ret_attributes)
{
	const struct entry *entry;

	(void)w;
	begin(ctx);
	place.looks++;
	entry = present(object->path);
	if (!entry)
		return reply(ctx, -ENOENT);
	*ret_attributes = entry->attributes;
	return reply(ctx, 0);
}

static int scripted_readdir(struct op_context *ctx, struct workspace *w,
	const struct object_ref *directory, bool watch, dir_entry_sink sink, void *user,
	bool *ret_watched)
{
	struct entry listed[ENTRIES];
	uint64_t looked_ns;
	int r = 0;

	(void)w;
	begin(ctx);
	memcpy(listed, place.entries, sizeof(listed));
	looked_ns = place.now_ns;
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; r >= 0 && i < ENTRIES; i++) {
		const struct dir_entry entry = {.path = path_name(listed[i].path),
			.attributes = listed[i].attributes,
			.looked_ns = looked_ns};

		if (listed[i].exists && is_in(listed[i].path, directory->path))
			r = sink(user, &entry);
	}
	*ret_watched = watch;
	pthread_mutex_lock(&lock);
	return reply(ctx, r < 0 ? r : 0);
}

static int new_handle(struct workspace *w, const char *path, struct open_file **ret_file)
{
	struct handle *handle = malloc(sizeof(*handle));

	if (!handle)
		return -ENOMEM;
	handle->file.workspace = w;
	snprintf(handle->path, sizeof(handle->path), "%s", path);
	*ret_file = &handle->file;
	return 0;
}

static int scripted_open(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, int flags, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	const struct entry *entry;

	(void)flags;
	begin(ctx);
	place.opens++;
	entry = present(object->path);
	if (!entry)
		return reply(ctx, -ENOENT);
	*ret_attributes = entry->attributes;
	return reply(ctx, new_handle(w, object->path, ret_file));
}

static struct entry *entry_of(const struct open_file *file)
{
	return entry_at(((const struct handle *)file)->path);
}

/* As many of one letter as the file is long. */
static ssize_t scripted_read(
	struct op_context *ctx, struct open_file *file, void *data, size_t size, off_t offset)
{
	size_t length;

	(void)offset;
	begin(ctx);
	length = entry_of(file)->attributes.size_bytes;
	size = size < length ? size : length;
	memset(data, place.letter, size);
	reply(ctx, 0);
	return (ssize_t)size;
}

/* It arrives when it is flushed. */
static ssize_t scripted_write(
	struct op_context *ctx, struct open_file *file, const void *data, size_t size, off_t offset)
{
	(void)ctx;
	(void)file;
	(void)data;
	(void)offset;
	return (ssize_t)size;
}

static int scripted_flush(struct op_context *ctx, struct open_file *file)
{
	begin(ctx);
	entry_of(file)->attributes.size_bytes = 4;
	return reply(ctx, 0);
}

static int scripted_close(struct op_context *ctx, struct open_file *file)
{
	(void)ctx;
	free(file);
	return 0;
}

static int scripted_mkdir(struct op_context *ctx, struct workspace *w, const char *path,
	uint32_t mode, struct attributes *ret_attributes)
{
	(void)w;
	begin(ctx);
	*ret_attributes = make(path, S_IFDIR | mode)->attributes;
	return reply(ctx, 0);
}

static int scripted_create(struct op_context *ctx, struct workspace *w, const char *path, int flags,
	uint32_t mode, struct open_file **ret_file, struct attributes *ret_attributes)
{
	(void)flags;
	begin(ctx);
	*ret_attributes = make(path, S_IFREG | mode)->attributes;
	return reply(ctx, new_handle(w, path, ret_file));
}

static int scripted_setattr(struct op_context *ctx, struct workspace *w,
	const struct object_ref *object, unsigned mask, const struct attributes *want,
	struct attributes *ret_attributes)
{
	struct entry *entry;

	(void)w;
	begin(ctx);
	entry = object->file ? entry_of(object->file) : present(object->path);
	if (mask & SET_SIZE)
		entry->attributes.size_bytes = want->size_bytes;
	if (mask & SET_MODE)
		entry->attributes.mode = (entry->attributes.mode & S_IFMT) | want->mode;
	*ret_attributes = entry->attributes;
	return reply(ctx, 0);
}

static int scripted_unlink(struct op_context *ctx, struct workspace *w, const char *path,
	const struct object_id *expected)
{
	struct entry *entry;

	(void)w;
	(void)expected;
	begin(ctx);
	entry = present(path);
	if (!entry)
		return reply(ctx, -ENOENT);
	entry->exists = false;
	return reply(ctx, 0);
}

static int scripted_watch(struct workspace *w, change_sink sink, void *user)
{
	(void)w;
	place.sink = sink;
	place.sink_user = user;
	return 0;
}

static void scripted_unwatch(struct workspace *w, const char *path)
{
	(void)w;
	(void)path;
}

static const struct workspace_ops scripted_ops = {
	.name = "scripted",
	.free = place_free,
	.status = place_status,
	.getattr = scripted_getattr,
	.readdir = scripted_readdir,
	.open = scripted_open,
	.create = scripted_create,
	.read = scripted_read,
	.write = scripted_write,
	.flush = scripted_flush,
	.close = scripted_close,
	.mkdir = scripted_mkdir,
	.setattr = scripted_setattr,
	.unlink = scripted_unlink,
	.watch = scripted_watch,
	.unwatch = scripted_unwatch,
};

/* ---- For the test ------------------------------------------------------------------------ */

struct workspace *place_new(void)
{
	memset(&place, 0, sizeof(place));
	place.base.ops = &scripted_ops;
	place.test = pthread_self();
	make("", S_IFDIR | 0755);
	return &place.base;
}

void place_make(const char *path, uint32_t mode)
{
	pthread_mutex_lock(&lock);
	make(path, mode);
	pthread_mutex_unlock(&lock);
}

static void set_exists(const char *path, bool exists)
{
	pthread_mutex_lock(&lock);
	entry_at(path)->exists = exists;
	pthread_mutex_unlock(&lock);
}

void place_remove(const char *path)
{
	set_exists(path, false);
}

void place_put_back(const char *path)
{
	set_exists(path, true);
}

void place_set_size(const char *path, uint64_t size_bytes)
{
	pthread_mutex_lock(&lock);
	present(path)->attributes.size_bytes = size_bytes;
	pthread_mutex_unlock(&lock);
}

void place_set_ctime(const char *path, time_t seconds)
{
	pthread_mutex_lock(&lock);
	present(path)->attributes.ctime.tv_sec = seconds;
	pthread_mutex_unlock(&lock);
}

void place_set_letter(char letter)
{
	pthread_mutex_lock(&lock);
	place.letter = letter;
	pthread_mutex_unlock(&lock);
}

struct change place_event(const char *path)
{
	struct change change = {.kind = CHANGE_ENTRY, .path = path};
	const struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = present(path);
	change.exists = entry;
	change.looked_ns = ++place.now_ns;
	if (entry)
		change.attributes = entry->attributes;
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
