/*
 * Random operations through the cached decorator and behind its back at once; whenever both
 * rest, what it says must be what there is.
 *
 *   test_cached_random [OPERATIONS [SEED [SCHEME]]], scheme local or helper
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/cache/cached.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "ops/workspace.h"
#include "tests/check.h"

enum {
	NAMES = 6,
	ROUND_OPERATIONS = 40, /* by each side before they rest */
	SETTLE_MS = 3000,
	SMALL_BYTES = 400,
	BIG_BYTES = 400 << 10, /* beyond what is cached whole */
};

static unsigned long operations = 3000, seed;
static const char *scheme = "local";
static char directory[64];

/* One who works on the tree: through the cache or beside it. */
struct side {
	struct workspace *w;
	struct op_context ctx;
	uint64_t random;
	bool only_looks;
};

static unsigned pick(struct side *side, unsigned below)
{
	side->random = side->random * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(side->random >> 33) % below;
}

/* A path of one to three components out of few names, so that sides often meet. */
static void pick_path(struct side *side, char path[32])
{
	unsigned depth = 1 + pick(side, 3);

	*path = '\0';
	for (unsigned i = 0; i < depth; i++)
		snprintf(path + strlen(path), 32 - strlen(path), "%s%c", i ? "/" : "",
			'a' + (int)pick(side, NAMES));
}

static void write_some(struct side *side, struct open_file *file, off_t offset)
{
	size_t size = pick(side, 30) ? 1 + pick(side, SMALL_BYTES) : BIG_BYTES;
	cleanup_free char *data = malloc(size);

	if (!data)
		return;
	memset(data, 'A' + (int)pick(side, 26), size);
	workspace_write(&side->ctx, file, data, size, offset);
	if (pick(side, 4) == 0)
		workspace_write(&side->ctx, file, "more", 4, offset + (off_t)size);
}

static void set_something(struct side *side, const char *path)
{
	struct object_ref object = OBJECT_AT(path);
	struct attributes want = {
		.mode = 0600 + pick(side, 64), .size_bytes = pick(side, SMALL_BYTES)};
	struct attributes a;
	unsigned mask = pick(side, 2) ? SET_MODE : SET_SIZE;

	want.mtime.tv_sec = 1000000000 + (time_t)pick(side, 1000);
	if (pick(side, 3) == 0)
		mask = SET_MTIME;
	workspace_setattr(&side->ctx, side->w, &object, mask, &want, &a);
}

static void make_file(struct side *side, const char *path)
{
	struct open_file *file;
	struct attributes a;

	if (workspace_create(&side->ctx, side->w, path, O_RDWR, 0644, &file, &a) < 0)
		return;
	if (pick(side, 4))
		write_some(side, file, 0);
	while (pick(side, 2))
		set_something(side, path);
	workspace_flush(&side->ctx, file);
	workspace_close(&side->ctx, file);
}

static void change_file(struct side *side, const char *path)
{
	static const int flags[] = {O_RDWR, O_RDWR | O_APPEND, O_WRONLY | O_TRUNC};
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file;
	struct attributes a;

	if (workspace_open_file(&side->ctx, side->w, &object, flags[pick(side, 3)], &file, &a) < 0)
		return;
	write_some(side, file, (off_t)pick(side, SMALL_BYTES));
	workspace_flush(&side->ctx, file);
	workspace_close(&side->ctx, file);
}

static void read_file(struct side *side, const char *path)
{
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file;
	struct attributes a;
	char data[SMALL_BYTES];

	if (workspace_open_file(&side->ctx, side->w, &object, O_RDONLY, &file, &a) < 0)
		return;
	workspace_read(&side->ctx, file, data, sizeof(data), 0);
	workspace_close(&side->ctx, file);
}

static int ignore_entry(void *user, const struct dir_entry *entry)
{
	(void)user;
	(void)entry;
	return 0;
}

static void read_directory(struct side *side, const char *path)
{
	struct object_ref object = OBJECT_AT(path);
	uint64_t since;

	workspace_readdir(&side->ctx, side->w, &object, true, ignore_entry, NULL, &since);
}

static void look(struct side *side, const char *path)
{
	struct object_ref object = OBJECT_AT(path);
	struct attributes a;

	workspace_getattr(&side->ctx, side->w, &object, &a);
}

static void operate(struct side *side)
{
	struct workspace *w = side->w;
	struct op_context *ctx = &side->ctx;
	unsigned what = side->only_looks ? 12 + pick(side, 8) : pick(side, 20);
	char path[32], other[32];
	struct attributes a;

	pick_path(side, path);
	pick_path(side, other);
	switch (what) {
	case 0:
	case 1:
	case 2:
		make_file(side, path);
		break;
	case 3:
	case 4:
		change_file(side, path);
		break;
	case 5:
		workspace_mkdir(ctx, w, path, 0755, &a);
		break;
	case 6:
		workspace_unlink(ctx, w, path, NULL);
		break;
	case 7:
		workspace_rmdir(ctx, w, path, NULL);
		break;
	case 8:
		workspace_rename(ctx, w, path, other, pick(side, 5) ? 0 : RENAME_SWAP, NULL);
		break;
	case 9:
		workspace_symlink(ctx, w, other, path, &a);
		break;
	case 10:
		workspace_link(ctx, w, &OBJECT_AT(other), path, &a);
		break;
	case 11:
		set_something(side, path);
		break;
	case 12:
	case 13:
		read_directory(side, path_parent_length(path) ? other : "");
		break;
	case 14:
	case 15:
	case 16:
		look(side, path);
		break;
	default:
		read_file(side, path);
	}
}

static void *operate_for_a_round(void *user)
{
	for (int i = 0; i < ROUND_OPERATIONS; i++)
		operate(user);
	return NULL;
}

/* ---- Comparing ---------------------------------------------------------------------- */

struct listing {
	size_t count;
	struct listed {
		char name[8];
		struct attributes attributes;
	} entries[64];
};

static int take_entry(void *user, const struct dir_entry *entry)
{
	struct listing *listing = user;
	struct listed *listed = &listing->entries[listing->count++];

	snprintf(listed->name, sizeof(listed->name), "%s", entry->path);
	listed->attributes = entry->attributes;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

static int list(struct side *side, const char *path, struct listing *listing)
{
	struct object_ref object = OBJECT_AT(path);
	uint64_t since;
	int r = workspace_readdir(&side->ctx, side->w, &object, true, take_entry, listing, &since);

	qsort(listing->entries, listing->count, sizeof(listing->entries[0]), compare_names);
	return r;
}

static uint64_t content_sum(struct side *side, const char *path)
{
	static char data[BIG_BYTES * 4];
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file;
	struct attributes a;
	uint64_t sum = 0;
	ssize_t got;

	if (workspace_open_file(&side->ctx, side->w, &object, O_RDONLY, &file, &a) < 0)
		return UINT64_MAX;
	got = workspace_read(&side->ctx, file, data, sizeof(data), 0);
	workspace_close(&side->ctx, file);
	for (ssize_t i = 0; i < got; i++)
		sum = sum * 31 + (unsigned char)data[i];
	return got < 0 ? UINT64_MAX : sum + (uint64_t)got;
}

static bool differ(const char *path, const char *what, bool report)
{
	if (report)
		fprintf(stderr, "seed %lu: \"%s\": %s differs\n", seed, path, what);
	return false;
}

/* Linking a file and removing that link again moves ctime, and inotify is silent. */
static bool same_version(const struct attributes *a, const struct attributes *b)
{
	struct attributes but_ctime = *a;

	but_ctime.ctime = b->ctime;
	return attributes_same_version(&but_ctime, b);
}

static void print_both(const struct attributes *cached, const struct attributes *direct)
{
	const struct attributes *const both[] = {cached, direct};

	for (size_t i = 0; i < 2; i++)
		fprintf(stderr, "%s: inode %llu mode %o nlink %u size %llu mtime %lld.%09ld\n",
			i ? "direct" : "cached", (unsigned long long)both[i]->id.inode,
			both[i]->mode, both[i]->nlink, (unsigned long long)both[i]->size_bytes,
			(long long)both[i]->mtime.tv_sec, both[i]->mtime.tv_nsec);
}

static void print_names(const char *side, const struct listing *listing)
{
	fprintf(stderr, "%s:", side);
	for (size_t i = 0; i < listing->count; i++)
		fprintf(stderr, " %s", listing->entries[i].name);
	fprintf(stderr, "\n");
}

static bool same_object(struct side *cached, struct side *direct, const char *path,
	const struct attributes *listed, bool report)
{
	struct object_ref object = OBJECT_AT(path);
	struct attributes a, b;
	cleanup_free char *target_a = NULL, *target_b = NULL;

	if (workspace_getattr(&cached->ctx, cached->w, &object, &a) < 0 ||
		workspace_getattr(&direct->ctx, direct->w, &object, &b) < 0)
		return differ(path, "existence", report);
	if (!same_version(&a, &b) || !same_version(listed, &b)) {
		if (report)
			print_both(&a, &b);
		return differ(path, "version", report);
	}
	if (S_ISREG(b.mode))
		return content_sum(cached, path) == content_sum(direct, path) ||
		       differ(path, "content", report);
	if (!S_ISLNK(b.mode))
		return true;
	return (workspace_readlink(&cached->ctx, cached->w, &object, &target_a) == 0 &&
		       workspace_readlink(&direct->ctx, direct->w, &object, &target_b) == 0 &&
		       strcmp(target_a, target_b) == 0) ||
	       differ(path, "target", report);
}

static bool same_tree(struct side *cached, struct side *direct, const char *path, bool report)
{
	cleanup_free struct listing *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
	bool same = true;

	if (!a || !b || list(cached, path, a) != list(direct, path, b) || a->count != b->count) {
		if (report && a && b) {
			print_names("cached", a);
			print_names("direct", b);
		}
		return differ(path, "listing", report);
	}
	for (size_t i = 0; i < a->count; i++) {
		cleanup_free char *child = path_join(path, a->entries[i].name);

		if (strcmp(a->entries[i].name, b->entries[i].name) != 0)
			return differ(child, "name", report);
		/* On to the end: the other name of an object may be what tells of a link. */
		same = same_object(cached, direct, child, &a->entries[i].attributes, report) &&
		       same;
		if (S_ISDIR(a->entries[i].attributes.mode))
			same = same_tree(cached, direct, child, report) && same;
	}
	for (int i = 0; i < NAMES; i++) {
		char name[2] = {(char)('a' + i), '\0'};
		cleanup_free char *child = path_join(path, name);
		struct object_ref object = OBJECT_AT(child);
		struct attributes x;

		if (workspace_getattr(&cached->ctx, cached->w, &object, &x) !=
			workspace_getattr(&direct->ctx, direct->w, &object, &x))
			return differ(child, "existence", report);
	}
	return same;
}

static bool becomes_same(struct side *cached, struct side *direct)
{
	for (int i = 0; i < SETTLE_MS / 5; i++) {
		if (same_tree(cached, direct, "", false))
			return true;
		usleep(5000);
	}
	return same_tree(cached, direct, "", true);
}

/* ---- The test -------------------------------------------------------------------------- */

static struct workspace *open_directory(bool far)
{
	struct workspace *w = NULL;
	char *reason = NULL;

	if (far && strcmp(scheme, "helper") == 0)
		CHECK_RC(0, scheme_open("helper", directory, &(struct workspace_options){0}, &w,
				    &reason));
	else
		CHECK_RC(0, scheme_open("local", directory, NULL, &w, &reason));
	return w;
}

static void run(struct side *cached, struct side *direct)
{
	for (unsigned long done = 0; done < operations; done += 2 * ROUND_OPERATIONS) {
		pthread_t other;

		/* Every third round one of them only looks: then each change is one's own,
		 * or each is the other's. */
		cached->only_looks = done / (2 * ROUND_OPERATIONS) % 3 == 1;
		direct->only_looks = done / (2 * ROUND_OPERATIONS) % 3 == 2;
		pthread_create(&other, NULL, operate_for_a_round, direct);
		operate_for_a_round(cached);
		pthread_join(other, NULL);
		/* Own changes show at once. */
		if (direct->only_looks && !CHECK(same_tree(cached, direct, "", true)))
			return;
		if (!CHECK(becomes_same(cached, direct)))
			return;
	}
}

static void test_the_cache_says_what_there_is(void)
{
	static const struct cached_options options = {.ttl_ms = 50};
	struct side cached = {.random = seed}, direct = {.random = ~seed};
	char command[128];

	snprintf(directory, sizeof(directory), "/tmp/isthmus-random-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	op_context_init(&cached.ctx);
	op_context_init(&direct.ctx);
	direct.w = open_directory(false);
	CHECK_RC(0, cached_new(open_directory(true), &options, &cached.w));
	run(&cached, &direct);
	workspace_free(cached.w);
	workspace_free(direct.w);
	snprintf(command, sizeof(command), "rm -rf '%s'", directory);
	CHECK_RC(0, system(command));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {TEST(test_the_cache_says_what_there_is)};

	seed = (unsigned long)time(NULL);
	if (argc > 1)
		operations = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoul(argv[2], NULL, 10);
	if (argc > 3)
		scheme = argv[3];
	printf("seed %lu, %lu operations\n", seed, operations);
	return test_run("cached_random", cases, 1);
}
