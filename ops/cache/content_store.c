#include "ops/cache/content_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/files.h"

enum {
	HASH_BYTES = 16,
	RECORDS_MAX = 1 << 20,
	FAN_OUT = 256,
	NAME_BYTES = 2 * HASH_BYTES + 2, /* "ab/cdef..." and NUL */
	USED_SECONDS = 3600,             /* a use updates mtime at most this often */
	WRITTEN_SECONDS = 3600,          /* temporary files older than this are leftovers */
};

/* A record of the index, in memory and on disk. */
struct record {
	uint8_t version[HASH_BYTES];
	uint8_t content[HASH_BYTES];
};

#define SEED_NAME "seed"
#define TEMPORARY "tmp-" /* prefix of files that are being written */

struct content_store {
	int directory_fd;
	int index_fd;
	uint64_t seed; /* of content hashes; random for each directory, and secret */
	uint64_t max_bytes;
	pthread_mutex_t lock;
	struct record *table; /* open addressing; an all-zero version marks a free record */
	size_t room, count;
	uint64_t written_bytes; /* since the last trim; starts at the bound: trim first */
};

/* ---- The index ----------------------------------------------------------------------- */

static void hash_version(const struct attributes *version, uint8_t out[HASH_BYTES])
{
	const uint64_t words[] = {version->id.device, version->id.inode, version->id.generation,
		version->size_bytes, (uint64_t)version->mtime.tv_sec,
		(uint64_t)version->mtime.tv_nsec, (uint64_t)version->ctime.tv_sec,
		(uint64_t)version->ctime.tv_nsec};
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(words, sizeof(words)));
	memcpy(out, canonical.digest, HASH_BYTES);
}

static const uint8_t none[HASH_BYTES];

static bool is_free(const struct record *record)
{
	return memcmp(record->version, none, HASH_BYTES) == 0;
}

static struct record *slot_of(struct record *table, size_t room, const uint8_t *version)
{
	uint64_t start;
	size_t i;

	memcpy(&start, version, sizeof(start));
	for (i = start & (room - 1);
		!is_free(&table[i]) && memcmp(table[i].version, version, HASH_BYTES) != 0;
		i = (i + 1) & (room - 1))
		;
	return &table[i];
}

static int make_room(struct content_store *store)
{
	size_t room = store->room ? store->room * 2 : 1024;
	struct record *table;

	if (store->count < store->room / 4 * 3)
		return 0;
	if (store->count >= RECORDS_MAX)
		return -ENOSPC;
	table = calloc(room, sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (size_t i = 0; i < store->room; i++)
		if (!is_free(&store->table[i]))
			*slot_of(table, room, store->table[i].version) = store->table[i];
	free(store->table);
	store->table = table;
	store->room = room;
	return 0;
}

/* True if the record is new or has changed. */
static bool keep_record(struct content_store *store, const struct record *record)
{
	struct record *slot;

	if (is_free(record) || make_room(store) < 0)
		return false;
	slot = slot_of(store->table, store->room, record->version);
	if (!is_free(slot) && memcmp(slot, record, sizeof(*record)) == 0)
		return false;
	store->count += is_free(slot);
	*slot = *record;
	return true;
}

static bool find_record(
	struct content_store *store, const struct attributes *version, uint8_t content[HASH_BYTES])
{
	uint8_t key[HASH_BYTES];
	bool found = false;

	hash_version(version, key);
	pthread_mutex_lock(&store->lock);
	if (store->room) {
		const struct record *slot = slot_of(store->table, store->room, key);

		found = memcmp(slot->content, none, HASH_BYTES) != 0;
		memcpy(content, slot->content, HASH_BYTES);
	}
	pthread_mutex_unlock(&store->lock);
	return found;
}

/* The file with the content is gone. */
static void forget_record(struct content_store *store, const struct attributes *version)
{
	uint8_t key[HASH_BYTES];

	hash_version(version, key);
	pthread_mutex_lock(&store->lock);
	if (store->room)
		memset(slot_of(store->table, store->room, key)->content, 0, HASH_BYTES);
	pthread_mutex_unlock(&store->lock);
}

static int load_index(struct content_store *store)
{
	struct record records[256];
	ssize_t got;
	off_t at = 0;

	while ((got = pread(store->index_fd, records, sizeof(records), at)) > 0) {
		for (size_t i = 0; i < (size_t)got / sizeof(records[0]); i++)
			keep_record(store, &records[i]);
		at += got;
	}
	return got < 0 ? -errno : 0;
}

/* An index that is damaged, full, or mostly superseded records is replaced by an empty one. */
static int open_index(struct content_store *store, const char *identity)
{
	char name[64];
	struct stat st;
	int r;

	snprintf(name, sizeof(name), "index-%016llx",
		(unsigned long long)XXH3_64bits(identity, strlen(identity)));
	store->index_fd = openat(store->directory_fd, name,
		O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (store->index_fd < 0 || fstat(store->index_fd, &st) < 0)
		return -errno;
	r = load_index(store);
	if (r == 0 &&
		((size_t)st.st_size % sizeof(struct record) != 0 ||
			(size_t)st.st_size / sizeof(struct record) >= RECORDS_MAX) &&
		ftruncate(store->index_fd, 0) < 0)
		r = -errno;
	return r;
}

/* ---- Files ----------------------------------------------------------------------------- */

static void name_of(const uint8_t hash[HASH_BYTES], char name[NAME_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	char *end = name;

	for (size_t i = 0; i < HASH_BYTES; i++) {
		*end++ = digits[hash[i] >> 4];
		*end++ = digits[hash[i] & 15];
		if (i == 0)
			*end++ = '/';
	}
	*end = '\0';
}

/* Seeded: a peer that knew the seed could construct content with the hash of other content. */
static void hash_content(
	const struct content_store *store, const void *data, size_t size, uint8_t out[HASH_BYTES])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(data, size, store->seed));
	memcpy(out, canonical.digest, HASH_BYTES);
}

static ssize_t read_all(int fd, uint8_t *data, size_t size)
{
	size_t done = 0;
	ssize_t got;

	while (done < size && (got = read(fd, data + done, size - done)) > 0)
		done += (size_t)got;
	return (ssize_t)done;
}

/* Sets mtime to now: trimming removes the files with the oldest mtime. */
static void note_use(int fd, const struct stat *st)
{
	if (time(NULL) - st->st_mtime > USED_SECONDS)
		futimens(fd, NULL);
}

bool content_store_has(struct content_store *store, const struct attributes *version)
{
	uint8_t hash[HASH_BYTES];

	return find_record(store, version, hash);
}

int content_store_get(
	struct content_store *store, const struct attributes *version, void **ret_data)
{
	cleanup_free uint8_t *data = malloc(version->size_bytes + 1);
	uint8_t hash[HASH_BYTES], found[HASH_BYTES];
	size_t size = version->size_bytes;
	cleanup_fd int fd = -1;
	char name[NAME_BYTES];
	struct stat st;

	if (!data)
		return -ENOMEM;
	if (!find_record(store, version, hash))
		return -ENOENT;
	name_of(hash, name);
	fd = openat(store->directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		forget_record(store, version);
		return -ENOENT;
	}
	if (fstat(fd, &st) == 0 && st.st_size == (off_t)size &&
		read_all(fd, data, size) == (ssize_t)size) {
		hash_content(store, data, size, found);
		if (memcmp(hash, found, HASH_BYTES) == 0) {
			note_use(fd, &st);
			*ret_data = steal_ptr(&data);
			return 0;
		}
	}
	unlinkat(store->directory_fd, name, 0);
	forget_record(store, version);
	return -ENOENT;
}

static int write_file(struct content_store *store, const char *name, const void *data, size_t size)
{
	char temporary[64];
	cleanup_fd int fd = -1;
	int r;

	snprintf(temporary, sizeof(temporary), TEMPORARY "%d-%p", getpid(), data);
	fd = openat(store->directory_fd, temporary,
		O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, data, size);
	if (r == 0 && renameat(store->directory_fd, temporary, store->directory_fd, name) < 0) {
		char fan[3] = {name[0], name[1], '\0'};

		mkdirat(store->directory_fd, fan, 0700);
		if (renameat(store->directory_fd, temporary, store->directory_fd, name) < 0)
			r = -errno;
	}
	if (r < 0)
		unlinkat(store->directory_fd, temporary, 0);
	return r;
}

/* ---- The bound ------------------------------------------------------------------------------- */

struct stored {
	time_t used;
	uint64_t bytes;
	char name[NAME_BYTES];
};

struct inventory {
	struct buffer files; /* of struct stored */
	uint64_t bytes;
};

static bool count_file(struct inventory *inventory, const char *name, const struct stat *st)
{
	struct stored stored = {.used = st->st_mtime, .bytes = (uint64_t)st->st_blocks * 512};

	snprintf(stored.name, sizeof(stored.name), "%s", name);
	inventory->bytes += stored.bytes;
	return buffer_append(&inventory->files, &stored, sizeof(stored)) == 0;
}

/* NULL: the directory does not exist or cannot be read. */
static DIR *open_listing(struct content_store *store, const char *name)
{
	int fd = openat(store->directory_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

static bool count_directory(
	struct content_store *store, struct inventory *inventory, const char *fan)
{
	cleanup_dir DIR *dir = open_listing(store, fan);
	const struct dirent *entry;
	bool good = true;

	while (good && dir && (entry = readdir(dir))) {
		char name[NAME_BYTES];
		struct stat st;

		if (strlen(entry->d_name) != 2 * HASH_BYTES - 2)
			continue;
		snprintf(name, sizeof(name), "%.2s/%.30s", fan, entry->d_name);
		if (fstatat(store->directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			good = count_file(inventory, name, &st);
	}
	return good;
}

static int compare_use(const void *a, const void *b)
{
	const struct stored *first = a, *second = b;

	return (first->used > second->used) - (first->used < second->used);
}

/* Removes the temporary files of daemons that were killed. */
static void remove_leftovers(struct content_store *store)
{
	cleanup_dir DIR *dir = open_listing(store, ".");
	const struct dirent *entry;
	struct stat st;

	while (dir && (entry = readdir(dir)))
		if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0 &&
			fstatat(store->directory_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ==
				0 &&
			time(NULL) - st.st_mtime > WRITTEN_SECONDS)
			unlinkat(store->directory_fd, entry->d_name, 0);
}

static void trim(struct content_store *store)
{
	struct inventory inventory = {0};
	bool good = true;

	remove_leftovers(store);
	for (unsigned i = 0; good && i < FAN_OUT; i++) {
		char fan[3];

		snprintf(fan, sizeof(fan), "%02x", (uint8_t)i);
		good = count_directory(store, &inventory, fan);
	}
	if (good && inventory.bytes > store->max_bytes) {
		struct stored *file = (struct stored *)inventory.files.data;
		size_t count = inventory.files.size / sizeof(*file);

		qsort(file, count, sizeof(*file), compare_use);
		for (; count > 0 && inventory.bytes > store->max_bytes - store->max_bytes / 8;
			file++, count--) {
			unlinkat(store->directory_fd, file->name, 0);
			inventory.bytes -= file->bytes;
		}
	}
	buffer_done(&inventory.files);
}

/* Trims the store if enough was written since the last time: counting all files is slow. */
static void bound(struct content_store *store, size_t size)
{
	bool due;

	pthread_mutex_lock(&store->lock);
	store->written_bytes += size;
	due = store->written_bytes > store->max_bytes / 16;
	if (due)
		store->written_bytes = 0;
	pthread_mutex_unlock(&store->lock);
	if (due)
		trim(store);
}

int content_store_put(
	struct content_store *store, const struct attributes *version, const void *data)
{
	struct record record;
	char name[NAME_BYTES];
	bool is_new;
	int r = 0;

	if (version->size_bytes > store->max_bytes / 16)
		return -EFBIG;
	hash_version(version, record.version);
	hash_content(store, data, version->size_bytes, record.content);
	name_of(record.content, name);
	if (faccessat(store->directory_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		r = write_file(store, name, data, version->size_bytes);
	if (r < 0)
		return r;
	pthread_mutex_lock(&store->lock);
	is_new = keep_record(store, &record);
	if (is_new && write(store->index_fd, &record, sizeof(record)) != sizeof(record))
		r = -EIO;
	pthread_mutex_unlock(&store->lock);
	bound(store, version->size_bytes);
	return r;
}

/* ---- Opening ---------------------------------------------------------------------- */

static char *default_directory(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (cache && *cache == '/')
		return string_printf("%s/isthmus/content", cache);
	return home && *home == '/' ? string_printf("%s/.cache/isthmus/content", home) : NULL;
}

/* Refuses another user's directory and makes our own private: the hashes detect damage, not
 * tampering. */
static int make_private(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EPERM;
	return (st.st_mode & 077) && fchmod(fd, 0700) < 0 ? -errno : 0;
}

static int open_directory(const char *path)
{
	cleanup_fd int fd = make_directories(path);
	int r = fd < 0 ? fd : make_private(fd);

	return r < 0 ? r : steal_fd(&fd);
}

static int read_seed(struct content_store *store)
{
	cleanup_fd int fd =
		openat(store->directory_fd, SEED_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	return read_all(fd, (uint8_t *)&store->seed, sizeof(store->seed)) == sizeof(store->seed)
		       ? 0
		       : -EIO;
}

/* Several processes may do this at the same time: the first one's seed counts for all. */
static int make_seed(struct content_store *store)
{
	char temporary[64];
	uint64_t words[2];
	int fd, r;

	if (getrandom(words, sizeof(words), 0) != sizeof(words))
		return -EIO;
	snprintf(temporary, sizeof(temporary), TEMPORARY "%016llx", (unsigned long long)words[1]);
	fd = openat(store->directory_fd, temporary,
		O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, words, sizeof(words[0]));
	close(fd);
	if (r == 0 && linkat(store->directory_fd, temporary, store->directory_fd, SEED_NAME, 0) < 0)
		r = errno == EEXIST ? 0 : -errno;
	unlinkat(store->directory_fd, temporary, 0);
	return r < 0 ? r : read_seed(store);
}

static int open_seed(struct content_store *store)
{
	int r = read_seed(store);

	if (r == -EIO)
		unlinkat(store->directory_fd, SEED_NAME, 0);
	return r == -EIO || r == -ENOENT ? make_seed(store) : r;
}

int content_store_open(const char *directory, const char *identity, uint64_t max_bytes,
	struct content_store **ret_store)
{
	cleanup_free char *path = directory ? strdup(directory) : default_directory();
	struct content_store *store;
	int r;

	if (!path)
		return directory ? -ENOMEM : -ENOENT;
	store = calloc(1, sizeof(*store));
	if (!store)
		return -ENOMEM;
	pthread_mutex_init(&store->lock, NULL);
	store->index_fd = -1;
	store->max_bytes = max_bytes;
	store->written_bytes = max_bytes;
	store->directory_fd = open_directory(path);
	r = store->directory_fd < 0 ? store->directory_fd : open_seed(store);
	if (r == 0)
		r = open_index(store, identity);
	if (r < 0) {
		content_store_close(store);
		return r;
	}
	*ret_store = store;
	return 0;
}

void content_store_close(struct content_store *store)
{
	if (!store)
		return;
	if (store->directory_fd >= 0)
		close(store->directory_fd);
	if (store->index_fd >= 0)
		close(store->index_fd);
	pthread_mutex_destroy(&store->lock);
	free(store->table);
	free(store);
}
