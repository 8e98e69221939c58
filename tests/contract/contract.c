#include "tests/contract/contract.h"

#include <pthread.h>
#include <unistd.h>

static const struct contract_place *place;

/* ---- The change feed of the fixture ----------------------------------------------- */

static pthread_mutex_t changes_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct seen_change changes[CHANGES_MAX]; /* guarded by changes_mutex, as the count */
static size_t change_count;

static void see_change(void *user, const struct change *change)
{
	(void)user;
	pthread_mutex_lock(&changes_mutex);
	if (change_count < CHANGES_MAX) {
		struct seen_change *seen = &changes[change_count++];

		seen->kind = change->kind;
		seen->exists = change->exists;
		seen->attributes = change->attributes;
		snprintf(seen->path, sizeof(seen->path), "%s", change->path);
	}
	pthread_mutex_unlock(&changes_mutex);
}

void forget_changes(void)
{
	pthread_mutex_lock(&changes_mutex);
	change_count = 0;
	pthread_mutex_unlock(&changes_mutex);
}

/* The latest one; exists: 0, 1, or -1 for any. */
static bool find_change(
	enum change_kind kind, const char *path, int exists, struct seen_change *ret_change)
{
	bool found = false;

	pthread_mutex_lock(&changes_mutex);
	for (size_t i = change_count; i > 0 && !found; i--) {
		const struct seen_change *seen = &changes[i - 1];

		found = seen->kind == kind && strcmp(seen->path, path) == 0 &&
			(exists < 0 || seen->exists == exists);
		if (found && ret_change)
			*ret_change = *seen;
	}
	pthread_mutex_unlock(&changes_mutex);
	return found;
}

static bool await(enum change_kind kind, const char *path, int exists, struct seen_change *ret)
{
	for (int i = 0; i < 500 * test_patience(); i++) {
		if (find_change(kind, path, exists, ret))
			return true;
		usleep(10000);
	}
	return false;
}

bool await_change(enum change_kind kind, const char *path, struct seen_change *ret_change)
{
	return await(kind, path, -1, ret_change);
}

bool await_gone(const char *path)
{
	return await(CHANGE_ENTRY, path, 0, NULL);
}

bool was_changed(const char *path)
{
	return find_change(CHANGE_ENTRY, path, -1, NULL);
}

/* ---- The fixture -------------------------------------------------------------------- */

void contract_run(void (*body)(struct fixture *f))
{
	struct fixture f = {0};

	forget_changes();
	op_context_init(&f.ctx);
	if (!CHECK(place->open(&f.w, &f.directory) == 0))
		return;
	f.is_ahead = place->is_ahead;
	workspace_status(f.w, &f.status);
	if (f.status.capabilities & WORKSPACE_CAN_WATCH)
		CHECK_RC(0, workspace_watch(f.w, see_change, NULL));
	body(&f);
	place->close(f.w);
}

bool contract_use(const struct contract_place *chosen)
{
	const char *directory;
	struct workspace *w;
	int r = chosen->open(&w, &directory);

	place = chosen;
	if (r == 0)
		place->close(w);
	return r != -EOPNOTSUPP;
}

bool is_root(void)
{
	return geteuid() == 0;
}

struct open_file *open_or_fail(struct fixture *f, const char *path, int flags)
{
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_open_file(&f->ctx, f->w, &OBJECT_AT(path), flags, &file, &f->a));
	return file;
}

struct open_file *create_or_fail(struct fixture *f, const char *path, int flags)
{
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_create(&f->ctx, f->w, path, flags, 0644, &file, &f->a));
	return file;
}

int stat_of(struct fixture *f, const char *path, struct attributes *ret_attributes)
{
	return workspace_getattr(&f->ctx, f->w, &OBJECT_AT(path), ret_attributes);
}

struct object_id id_of(struct fixture *f, const char *path)
{
	struct attributes a = {0};

	CHECK_RC(0, stat_of(f, path, &a));
	return a.id;
}

int make_directory(struct fixture *f, const char *path)
{
	return workspace_mkdir(&f->ctx, f->w, path, 0755, &f->a);
}

int put(struct fixture *f, const char *path, const char *text)
{
	size_t size = strlen(text);
	struct open_file *file = NULL;
	ssize_t written;
	int r;

	r = workspace_create(&f->ctx, f->w, path, O_WRONLY, 0644, &file, &f->a);
	if (r < 0)
		return r;
	written = workspace_write(&f->ctx, file, text, size, 0);
	r = workspace_close(&f->ctx, file);
	if (written < 0)
		return (int)written;
	return written == (ssize_t)size ? r : -EIO;
}

const char *get(struct fixture *f, const char *path)
{
	static char text[4096];
	struct open_file *file = NULL;
	ssize_t got;
	int r;

	r = workspace_open_file(&f->ctx, f->w, &OBJECT_AT(path), O_RDONLY, &file, &f->a);
	if (r == 0) {
		got = workspace_read(&f->ctx, file, text, sizeof(text) - 1, 0);
		workspace_close(&f->ctx, file);
		if (got >= 0) {
			text[got] = '\0';
			return text;
		}
		r = (int)got;
	}
	snprintf(text, sizeof(text), "<%s>", strerrorname_np(-r));
	return text;
}

struct name_list {
	char names[64][300];
	size_t count;
};

static int keep_name(void *user, const struct dir_entry *entry)
{
	struct name_list *list = user;

	if (list->count < array_size(list->names))
		snprintf(list->names[list->count++], sizeof(list->names[0]), "%s", entry->path);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

const char *names(struct fixture *f, const char *path)
{
	static char joined[64 * 300];
	struct name_list list = {.count = 0};
	size_t used = 0;
	uint64_t since;
	int r = workspace_readdir(&f->ctx, f->w, &OBJECT_AT(path), false, keep_name, &list, &since);

	if (r < 0) {
		snprintf(joined, sizeof(joined), "<%s>", strerrorname_np(-r));
		return joined;
	}
	qsort(list.names, list.count, sizeof(list.names[0]), compare_names);
	joined[0] = '\0';
	for (size_t i = 0; i < list.count; i++)
		used += (size_t)snprintf(
			joined + used, sizeof(joined) - used, "%s%s", i ? " " : "", list.names[i]);
	return joined;
}
