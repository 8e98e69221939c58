#include "tools/search/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

#include "ops/support/path.h"
#include "ops/support/worker_pool.h"
#include "tools/search/ignore_files.h"

enum { BATCH = 64, DENTS_BYTES = 64 << 10 };

/* A directory that is open while its entries are visited. */
struct open_directory {
	atomic_uint references;
	int fd;
	char *path;  /* below the root */
	char *names; /* consecutive entries: a type byte, then the name */
};

/* A task: read a directory, or visit a part of a directory that was read. */
struct item {
	struct item *next;
	char *path;            /* of the directory to read */
	struct ignore *ignore; /* rules of its parent */
	struct open_directory *part;
	size_t from, count; /* `count` entries from the offset `from` */
};

struct walker {
	const struct walk_request *request;
	const char *prefix; /* of ignore_open() */
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct item *items;        /* guarded by lock; last in, first out */
	unsigned busy;             /* workers that may still add items; guarded by lock */
	int result;                /* guarded by lock */
	bool ended;                /* guarded by lock */
	struct walk_result report; /* guarded by lock */
};

static void directory_unref(struct open_directory *directory)
{
	if (!directory || atomic_fetch_sub(&directory->references, 1) != 1)
		return;
	if (directory->fd >= 0)
		close(directory->fd);
	free(directory->path);
	free(directory->names);
	free(directory);
}

static void item_free(struct item *item)
{
	if (!item)
		return;
	free(item->path);
	ignore_unref(item->ignore);
	directory_unref(item->part);
	free(item);
}

static void put_item(struct walker *w, struct item *item)
{
	pthread_mutex_lock(&w->lock);
	item->next = w->items;
	w->items = item;
	pthread_cond_signal(&w->news);
	pthread_mutex_unlock(&w->lock);
}

static int put_directory(struct walker *w, const char *path, struct ignore *ignore)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		return -ENOMEM;
	item->path = strdup(path);
	item->ignore = ignore_ref(ignore);
	if (!item->path) {
		item_free(item);
		return -ENOMEM;
	}
	put_item(w, item);
	return 0;
}

static int put_part(struct walker *w, struct open_directory *directory, size_t from, size_t count)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		return -ENOMEM;
	atomic_fetch_add(&directory->references, 1);
	item->part = directory;
	item->from = from;
	item->count = count;
	put_item(w, item);
	return 0;
}

static void note_unreadable(struct walker *w, const char *path, int error)
{
	pthread_mutex_lock(&w->lock);
	if (w->report.unreadable++ == 0) {
		snprintf(
			w->report.first_unreadable, sizeof(w->report.first_unreadable), "%s", path);
		w->report.first_error = error;
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- Reading one directory --------------------------------------------------------- */

struct listing {
	struct buffer names; /* for each entry: type byte, name, NUL */
	size_t count;
	bool has_ignore_file;
	bool has_git;
};

/* An entry as getdents64(2) returns it. */
struct kernel_entry {
	uint64_t inode;
	int64_t offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

static int take_entry(struct listing *listing, int fd, const struct kernel_entry *entry)
{
	unsigned char type = entry->type;

	if (!path_is_name(entry->name))
		return 0;
	if (strcmp(entry->name, ".git") == 0) {
		listing->has_git = true;
		return 0;
	}
	if (strcmp(entry->name, ".gitignore") == 0)
		listing->has_ignore_file = true;
	if (type == DT_UNKNOWN) {
		struct stat status;

		if (fstatat(fd, entry->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		type = (unsigned char)IFTODT(status.st_mode);
	}
	listing->count++;
	if (buffer_append(&listing->names, &type, 1) < 0)
		return -ENOMEM;
	return buffer_append(&listing->names, entry->name, strlen(entry->name) + 1);
}

static int read_directory(int fd, struct listing *listing)
{
	_Alignas(struct kernel_entry) char memory[DENTS_BYTES];
	long got;

	while ((got = syscall(SYS_getdents64, fd, memory, sizeof(memory))) > 0) {
		for (long at = 0; at < got;) {
			const struct kernel_entry *entry = (const void *)(memory + at);
			int r = take_entry(listing, fd, entry);

			if (r < 0)
				return r;
			at += entry->length;
		}
	}
	return got < 0 ? -errno : 0;
}

/* The ignore chain for the entries of the directory. */
static struct ignore *chain_for(struct walker *w, struct ignore *parent, int fd, const char *path,
	const struct listing *listing)
{
	cleanup_free char *base = NULL;
	struct ignore *chain = ignore_ref(parent);

	if (!listing->has_ignore_file && !listing->has_git)
		return chain;
	if (asprintf(&base, "%s%s", w->prefix, path) < 0) {
		base = NULL;
		return chain;
	}
	if (!*path && *base)
		base[strlen(base) - 1] = '\0';
	if (listing->has_git && strcmp(path, w->request->path) != 0) {
		ignore_unref(chain);
		chain = ignore_open_nested(fd, base);
	}
	if (listing->has_ignore_file)
		chain = ignore_add_file(chain, base, fd, ".gitignore");
	return chain;
}

/* Writes the path of the entry `name` to `memory`. */
static int entry_path(struct buffer *memory, const char *directory, const char *name)
{
	memory->size = 0;
	if (*directory &&
		(buffer_append_string(memory, directory) < 0 || buffer_append(memory, "/", 1) < 0))
		return -ENOMEM;
	return buffer_append(memory, name, strlen(name) + 1);
}

static bool is_ended(struct walker *w)
{
	bool ended;

	if (w->request->stopped && w->request->stopped(w->request->user))
		return true;
	pthread_mutex_lock(&w->lock);
	ended = w->ended;
	pthread_mutex_unlock(&w->lock);
	return ended;
}

/* Visits `count` entries that sift() has kept. */
static int visit_part(struct walker *w, unsigned worker, struct open_directory *directory,
	size_t from, size_t count)
{
	struct buffer path cleanup_buffer = {0};
	const char *at = directory->names + from;
	int r = 0;

	for (; count > 0 && r >= 0; count--, at += 1 + strlen(at + 1) + 1) {
		struct walk_entry entry = {
			.directory = directory->fd, .name = at + 1, .type = (unsigned char)*at};

		r = entry_path(&path, directory->path, at + 1);
		entry.path = (const char *)path.data;
		if (r == 0)
			r = w->request->visit(w->request->user, worker, &entry);
	}
	return r;
}

static bool shows(const struct walker *w, const char *path)
{
	return !w->request->shows || w->request->shows(w->request->user, path);
}

/* Removes ignored entries, adds tasks for sub-directories, and keeps, in place, the entries to
 * visit. */
static int sift(
	struct walker *w, struct open_directory *directory, struct ignore *ignore, size_t *count)
{
	struct buffer path cleanup_buffer = {0}, below cleanup_buffer = {0};
	char *at = directory->names, *to = at;
	size_t prefix_length = strlen(w->prefix), kept = 0;
	int r = 0;

	if (buffer_append(&path, w->prefix, prefix_length) < 0 ||
		(*directory->path && (buffer_append_string(&path, directory->path) < 0 ||
					     buffer_append(&path, "/", 1) < 0)))
		return -ENOMEM;
	for (size_t left = *count; left > 0 && r == 0; left--) {
		unsigned char type = (unsigned char)*at;
		size_t size = 1 + strlen(at + 1) + 1, base = path.size;

		if (buffer_append(&path, at + 1, size - 1) < 0)
			return -ENOMEM;
		if (!ignore_matches(ignore, (const char *)path.data, type == DT_DIR) &&
			shows(w, (const char *)path.data + prefix_length)) {
			if (type == DT_DIR)
				r = put_directory(
					w, (const char *)path.data + prefix_length, ignore);
			if (type != DT_DIR || w->request->directories) {
				memmove(to, at, size);
				to += size;
				kept++;
			}
		}
		path.size = base;
		at += size;
	}
	*count = kept;
	return r;
}

static int open_for_walk(struct walker *w, const char *path)
{
	/* O_NOFOLLOW: the walk saw a directory here; a link has replaced it since. */
	return files_open(w->request->root, path,
		O_RDONLY | O_DIRECTORY | (strcmp(path, w->request->path) ? O_NOFOLLOW : 0), 0);
}

/* The number of workers for a request of `threads`. */
static unsigned count_threads(unsigned threads)
{
	long online;

	if (threads == 0) {
		online = sysconf(_SC_NPROCESSORS_ONLN);
		threads = online < 1 ? 1 : online > 8 ? 8 : (unsigned)online;
	}
	return threads < WALK_THREADS_MAX ? threads : WALK_THREADS_MAX;
}

static int visit_all(
	struct walker *w, unsigned worker, struct open_directory *directory, size_t count)
{
	const char *at = directory->names;
	int r;

	/* Leave parts to other workers. */
	while (count > BATCH && count_threads(w->request->threads) > 1) {
		r = put_part(w, directory, (size_t)(at - directory->names), BATCH);
		if (r < 0)
			return r;
		for (int i = 0; i < BATCH; i++)
			at += 1 + strlen(at + 1) + 1;
		count -= BATCH;
	}
	return visit_part(w, worker, directory, (size_t)(at - directory->names), count);
}

static int do_directory(struct walker *w, unsigned worker, const char *path, struct ignore *parent)
{
	struct open_directory *directory = calloc(1, sizeof(*directory));
	struct listing listing = {0};
	struct ignore *ignore = NULL;
	int r = -ENOMEM;

	if (!directory)
		return -ENOMEM;
	atomic_init(&directory->references, 1);
	directory->fd = open_for_walk(w, path);
	directory->path = strdup(path);
	if (directory->path)
		r = directory->fd < 0 ? directory->fd : read_directory(directory->fd, &listing);
	if (r < 0 && r != -ENOMEM && strcmp(path, w->request->path) != 0) {
		note_unreadable(w, path, r);
		r = 0;
	} else if (r == 0) {
		size_t count = listing.count;

		directory->names = (char *)steal_ptr(&listing.names.data);
		ignore = chain_for(w, parent, directory->fd, path, &listing);
		r = count ? sift(w, directory, ignore, &count) : 0;
		if (r == 0 && count)
			r = visit_all(w, worker, directory, count);
	}
	ignore_unref(ignore);
	buffer_done(&listing.names);
	directory_unref(directory);
	return r;
}

/* ---- The workers ---------------------------------------------------------------------- */

static struct item *take_item(struct walker *w)
{
	struct item *item;

	pthread_mutex_lock(&w->lock);
	w->busy--;
	while (!w->items && w->busy && !w->ended)
		pthread_cond_wait(&w->news, &w->lock);
	item = w->ended ? NULL : w->items;
	if (item) {
		w->items = item->next;
		w->busy++;
	} else {
		pthread_cond_broadcast(&w->news);
	}
	pthread_mutex_unlock(&w->lock);
	return item;
}

static void end_walk(struct walker *w, int result)
{
	pthread_mutex_lock(&w->lock);
	if (!w->ended && result < 0)
		w->result = result;
	w->ended = true;
	pthread_cond_broadcast(&w->news);
	pthread_mutex_unlock(&w->lock);
}

static void work(struct walker *w, unsigned worker)
{
	struct item *item;

	while ((item = take_item(w))) {
		int r = 0;

		if (is_ended(w))
			end_walk(w, 0);
		else if (item->part)
			r = visit_part(w, worker, item->part, item->from, item->count);
		else
			r = do_directory(w, worker, item->path, item->ignore);
		item_free(item);
		if (r < 0)
			end_walk(w, r);
	}
}

struct worker {
	struct walker *walker;
	unsigned number;
};

static void run_worker(void *user)
{
	struct worker *worker = user;
	const struct walk_request *request = worker->walker->request;

	if (request->joined)
		request->joined(request->user);
	work(worker->walker, worker->number);
}

int walk(const struct walk_request *request, struct walk_result *ret_result)
{
	struct walker w = {.request = request};
	struct worker workers[WALK_THREADS_MAX];
	struct worker_pool pool;
	struct ignore *ignore = NULL;
	cleanup_free char *prefix = NULL;
	unsigned wanted = count_threads(request->threads), started = 0;
	int r = ignore_open(request->root, request->path, &ignore, &prefix);

	if (r < 0)
		return r;
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.news, NULL);
	w.prefix = prefix;
	w.busy = wanted;
	r = put_directory(&w, request->path, ignore);
	ignore_unref(ignore);
	worker_pool_init(
		&pool, &(struct worker_limits){.name = "walk", .threads_max = WALK_THREADS_MAX});
	while (r == 0 && started + 1 < wanted) {
		workers[started] = (struct worker){&w, started + 1};
		if (!worker_pool_submit(&pool, run_worker, &workers[started]))
			break;
		started++;
	}
	pthread_mutex_lock(&w.lock);
	w.busy -= wanted - 1 - started;
	pthread_mutex_unlock(&w.lock);
	if (r == 0)
		work(&w, 0);
	worker_pool_done(&pool);
	while (w.items) {
		struct item *item = w.items;

		w.items = item->next;
		item_free(item);
	}
	pthread_cond_destroy(&w.news);
	pthread_mutex_destroy(&w.lock);
	*ret_result = w.report;
	return r < 0 ? r : w.result;
}
