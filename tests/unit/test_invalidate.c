/* What the kernel is told when the feed brings more than can be kept, or there is no memory: a
 * kernel that only notes what it is told, and that can be made to take its time. */
#include "fs/edge/invalidate.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "fs/edge/dropper.h"
#include "fs/edge/drops.h"
#include "tests/check.h"
#include "tests/no_memory.h"
#include "tests/unit/place.h"

enum { TOO_MANY = 65537 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool takes_time, is_at_it; /* lock, as all below */
	const struct inode *dropped[64];
	unsigned drops;
	char said[256]; /* "attributes", "pages" (all), or ranges of them, in turn */
	char entry[16]; /* the last name that was dropped in ... */
	fuse_ino_t in;  /* ... this directory, if it was the one that counts */
} kernel = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct {
	struct workspace base;
	change_sink sink;
	void *user;
} place;

static struct mount_options options;
static struct mount mount;
static struct session session;
static struct inode *d, *f, *superseded;

/* ---- The kernel ------------------------------------------------------------------------ */

/* With the lock held. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	size_t length = strlen(kernel.said);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(kernel.said + length, sizeof(kernel.said) - length, format, arguments);
	va_end(arguments);
}

int session_drop_inode(struct session *s, struct inode *inode, bool data)
{
	(void)s;
	pthread_mutex_lock(&kernel.lock);
	say("%s ", data ? "pages" : "attributes");
	kernel.dropped[kernel.drops++ % 64] = inode;
	kernel.is_at_it = true;
	pthread_cond_broadcast(&kernel.changed);
	while (kernel.takes_time)
		pthread_cond_wait(&kernel.changed, &kernel.lock);
	pthread_mutex_unlock(&kernel.lock);
	return 0;
}

void session_drop_range(struct session *s, struct inode *inode, off_t offset, off_t size)
{
	(void)s;
	(void)inode;
	pthread_mutex_lock(&kernel.lock);
	say("%lld+%lld ", (long long)offset, (long long)size);
	pthread_mutex_unlock(&kernel.lock);
}

int fuse_lowlevel_notify_inval_entry(
	struct fuse_session *fuse, fuse_ino_t parent, const char *name, size_t length)
{
	(void)fuse;
	pthread_mutex_lock(&kernel.lock);
	if (parent == kernel.in)
		snprintf(kernel.entry, sizeof(kernel.entry), "%.*s", (int)length, name);
	pthread_mutex_unlock(&kernel.lock);
	return 0;
}

fuse_ino_t session_ino(struct session *s, const struct inode *inode)
{
	(void)s;
	return (fuse_ino_t)(uintptr_t)inode;
}

bool mount_note_change(struct mount *m, const char *path, uint32_t own_age_ms, uint64_t at)
{
	(void)m;
	(void)at;
	(void)path;
	(void)own_age_ms;
	return true;
}

static void kernel_takes_time(bool takes_time)
{
	pthread_mutex_lock(&kernel.lock);
	kernel.takes_time = takes_time;
	kernel.is_at_it = false;
	pthread_cond_broadcast(&kernel.changed);
	pthread_mutex_unlock(&kernel.lock);
}

static void await_kernel(void)
{
	pthread_mutex_lock(&kernel.lock);
	while (!kernel.is_at_it)
		pthread_cond_wait(&kernel.changed, &kernel.lock);
	pthread_mutex_unlock(&kernel.lock);
}

static void await_drops(unsigned count)
{
	pthread_mutex_lock(&kernel.lock);
	while (kernel.drops < count)
		pthread_cond_wait(&kernel.changed, &kernel.lock);
	pthread_mutex_unlock(&kernel.lock);
}

static bool was_dropped(const struct inode *inode)
{
	bool was = false;

	pthread_mutex_lock(&kernel.lock);
	for (unsigned i = 0; i < kernel.drops && i < 64; i++)
		was = was || kernel.dropped[i] == inode;
	pthread_mutex_unlock(&kernel.lock);
	return was;
}

/* ---- The place ------------------------------------------------------------------------- */

static int place_watch(struct workspace *workspace, change_sink sink, void *user)
{
	(void)workspace;
	place.sink = sink;
	place.user = user;
	return 0;
}

static const struct workspace_ops place_ops = {
	.name = "place",
	.free = unvisited_free,
	.status = place_status,
	.watch = place_watch,
};

static void tell_of_end(const struct inode *directory)
{
	const struct change change = {.kind = CHANGE_UNWATCHED,
		.path = "",
		.directory = inode_table_id(mount.inodes, directory)};

	place.sink(place.user, &change);
}

static void tell_of_file(const struct inode *directory, const char *name, uint64_t number)
{
	const struct change change = {.kind = CHANGE_ENTRY,
		.path = name,
		.directory = inode_table_id(mount.inodes, directory),
		.at = 1,
		.exists = true,
		.attributes = {.id = {.inode = number}, .mode = S_IFREG, .size_bytes = 1}};

	place.sink(place.user, &change);
}

/* ---- What the tests do ---------------------------------------------------------------- */

static void ignore_forgotten(void *user, const struct object_ref *directory)
{
	(void)user;
	(void)directory;
}

static struct inode *enter(struct inode *parent, const char *name, uint64_t number, uint32_t mode)
{
	const struct attributes a = {.id = {.inode = number}, .mode = mode, .nlink = 1};
	struct inode *inode = NULL;
	struct inode_note note = {0};

	CHECK_RC(0, inode_table_enter(mount.inodes, parent, name, &a, 0, &inode, &note));
	superseded = note.superseded;
	return inode;
}

/* The kernel knows the watched directory "d" and the file "d/f". */
static void setup(void)
{
	const struct attributes root = {.id = {.inode = 1}, .mode = S_IFDIR, .nlink = 2};

	place.base.ops = &place_ops;
	mount = (struct mount){.options = &options, .workspace = &place.base};
	session = (struct session){.mount = &mount};
	kernel.drops = 0;
	kernel.said[0] = '\0';
	kernel.in = 0;
	kernel.entry[0] = '\0';
	CHECK_RC(0, inode_table_new(&root, ignore_forgotten, NULL, &mount.inodes));
	d = enter(inode_table_root(mount.inodes), "d", 2, S_IFDIR);
	f = enter(d, "f", 3, S_IFREG);
	inode_table_set_watched(mount.inodes, d, true, 0);
	CHECK_RC(0, dropper_start(&session, &session.dropper));
	CHECK_RC(0, invalidator_start(&session, &session.invalidator));
}

static void teardown(void)
{
	invalidator_stop(session.invalidator);
	dropper_stop(session.dropper);
	invalidator_free(session.invalidator);
	inode_table_free(mount.inodes);
	dropper_free(session.dropper);
}

/* More than the invalidator keeps while the kernel takes its time, after what the test does. */
static void overflow(void (*first)(void))
{
	kernel_takes_time(true);
	tell_of_file(d, "f", 3);
	await_kernel();
	first();
	for (int i = 0; i < TOO_MANY; i++)
		tell_of_file(d, "f", 3);
	kernel_takes_time(false);
	invalidator_drain(session.invalidator);
}

static void unwatch_d(void)
{
	tell_of_end(d);
}

static void test_a_watch_that_ended_among_too_many_changes_is_not_believed(void)
{
	setup();
	overflow(unwatch_d);
	CHECK(!inode_directory(d)->watched);
	teardown();
}

static void await_drop(const struct inode *inode)
{
	while (!was_dropped(inode))
		sched_yield();
}

static void forget_drops(void)
{
	pthread_mutex_lock(&kernel.lock);
	kernel.drops = 0;
	pthread_mutex_unlock(&kernel.lock);
}

/* The place tells of "f" in "d" as soon as it has made it, before its reply is known here. */
static void test_a_change_of_a_name_waits_for_our_own_change_of_it(void)
{
	struct own_change own = {.name = "f"}, same = {.name = "f"}, another = {.name = "g"};
	struct inode *other;

	setup();
	own.directory = same.directory = another.directory = inode_table_id(mount.inodes, d);
	other = enter(inode_table_root(mount.inodes), "other", 4, S_IFREG);
	invalidator_own_begin(session.invalidator, &own);
	invalidator_own_begin(session.invalidator, &same);
	invalidator_own_begin(session.invalidator, &another);
	tell_of_file(d, "f", 3);
	tell_of_file(inode_table_root(mount.inodes), "f", 5);
	tell_of_file(inode_table_root(mount.inodes), "other", 4);
	await_drop(other); /* so the others have been looked at */
	CHECK(!was_dropped(f));
	invalidator_own_end(session.invalidator, &own);
	forget_drops();
	tell_of_file(inode_table_root(mount.inodes), "other", 4);
	await_drop(other);
	CHECK(!was_dropped(f));
	invalidator_own_end(session.invalidator, &same);
	invalidator_drain(session.invalidator);
	CHECK(was_dropped(f));
	invalidator_own_end(session.invalidator, &another);
	teardown();
}

/* Somebody has moved "d" to "other/d": who works in it has it as it was. */
static void move_d(void)
{
	struct inode *other = enter(inode_table_root(mount.inodes), "other", 4, S_IFDIR);

	kernel.in = session_ino(&session, d);
	enter(other, "d", 2, S_IFDIR);
	CHECK(superseded == d);
}

static void leave_d(void)
{
	move_d();
	invalidator_superseded(session.invalidator, superseded);
}

static void test_a_directory_that_was_superseded_among_too_many_changes_is_invalidated(void)
{
	setup();
	overflow(leave_d);
	CHECK_STRING("f", kernel.entry);
	teardown();
}

static void test_a_directory_that_was_superseded_without_memory_is_invalidated(void)
{
	setup();
	move_d();
	memory_ends_after(0);
	invalidator_superseded(session.invalidator, superseded);
	memory_is_back();
	invalidator_drain(session.invalidator);
	CHECK_STRING("f", kernel.entry);
	teardown();
}

/* At whatever point it was that there was none. */
static void test_a_change_without_memory_is_told_of_when_there_is_some(void)
{
	for (int lasts = 0; lasts < 8; lasts++) {
		const struct timespec pause = {.tv_nsec = 20000000};

		setup();
		memory_ends_after(lasts);
		tell_of_file(d, "f", 3);
		nanosleep(&pause, NULL);
		memory_is_back();
		invalidator_drain(session.invalidator);
		CHECK(was_dropped(f));
		teardown();
	}
}

static const struct file_lock lock = {.kind = LOCK_KIND_FLOCK, .type = LOCK_SHARED, .owner = 1},
			      same = {.kind = LOCK_KIND_FLOCK, .type = LOCK_SHARED, .owner = 2},
			      released = {.kind = LOCK_KIND_FLOCK, .type = LOCK_NONE, .owner = 1};

static void test_what_was_wanted_under_a_lock_is_dropped_at_the_release(void)
{
	setup();
	dropper_locked(session.dropper, f, &lock, NULL);
	CHECK(kernel.drops == 1);
	CHECK_RC(0, dropper_drop(session.dropper, f, true, NULL));
	CHECK(kernel.drops == 1);
	dropper_unlocking(session.dropper, f, &released, 1);
	dropper_drain(session.dropper);
	CHECK(kernel.drops == 2);
	teardown();
}

static void test_a_lock_that_another_one_covers_drops_nothing(void)
{
	setup();
	dropper_locked(session.dropper, f, &lock, NULL);
	dropper_locked(session.dropper, f, &same, NULL);
	CHECK(kernel.drops == 1);
	teardown();
}

static void test_a_barrier_waits_for_no_lock(void)
{
	struct op_context op;

	setup();
	op_context_init(&op);
	dropper_locked(session.dropper, f, &lock, NULL);
	CHECK_RC(0, dropper_drop(session.dropper, f, true, NULL));
	CHECK_RC(0, dropper_catch_up(session.dropper, &op));
	CHECK(kernel.drops == 1);
	dropper_unlocking(session.dropper, f, &released, 1);
	dropper_drain(session.dropper);
	CHECK(kernel.drops == 2);
	teardown();
}

static void test_a_map_holds_up_only_drops_of_what_others_may_not_have_changed(void)
{
	static const struct inode_version unknown;
	struct drops drops = {0};
	uint64_t due_ns = 0;

	setup();
	CHECK(drops_want(&drops, f, true, &unknown, 1000, 1) == DROPS_NEW);
	CHECK(drops_are_sent(&drops, DROPS_BARRIER, 1, 2));
	CHECK(!drops_are_sent(&drops, DROPS_HURRY, 1, 2));
	CHECK(drops_take(&drops, f, DROPS_BARRIER, 2, &due_ns) == DROP_NOTHING);
	drops_press(&drops, f);
	CHECK(!drops_are_sent(&drops, DROPS_BARRIER, 1, 2));
	CHECK(drops_take(&drops, f, DROPS_USUAL, 2, &due_ns) == DROP_NOTHING);
	CHECK(drops_take(&drops, f, DROPS_BARRIER, 2, &due_ns) == DROP_PAGES);
	CHECK(drops_end(&drops, f));
	CHECK(drops_are_sent(&drops, DROPS_BARRIER, 1, 2));
	teardown();
}

static void test_a_drop_during_a_reply_that_is_installed_later_is_repeated(void)
{
	unsigned number;

	setup();
	number = dropper_reply(session.dropper, f, 1);
	CHECK_RC(0, dropper_drop(session.dropper, f, false, NULL));
	dropper_replied(session.dropper, number, f, NULL);
	await_drops(2);
	teardown();
}

enum { PAGE = 4096, AHEAD = 2 << 20 }; /* and what the kernel may be reading behind a read */

/* To drop a page that is locked until a reply would wait for that. */
static void test_pages_that_are_being_read_are_dropped_when_they_were(void)
{
	struct page_request first, second, other;

	setup();
	dropper_begin_pages(session.dropper, &first, f, PAGE, PAGE + 1);
	dropper_begin_pages(session.dropper, &second, f, 8 << 20, PAGE);
	dropper_begin_pages(session.dropper, &other, d, 2 * PAGE, PAGE);
	CHECK_RC(0, dropper_drop(session.dropper, f, true, NULL));
	/* up to the first, from behind it to the second, from behind that on */
	CHECK_STRING("attributes 0+4096 2109440+6279168 10489856+0 ", kernel.said);
	kernel.said[0] = '\0';
	dropper_end_pages(session.dropper, &other);
	dropper_end_pages(session.dropper, &first);
	dropper_end_pages(session.dropper, &second);
	dropper_drain(session.dropper);
	CHECK_STRING("attributes 4096+2105344 attributes 8388608+2101248 ", kernel.said);
	teardown();
}

static void test_what_is_read_after_a_drop_is_not_dropped(void)
{
	struct page_request first, again;

	setup();
	dropper_begin_pages(session.dropper, &first, f, 0, PAGE);
	CHECK_RC(0, dropper_drop(session.dropper, f, true, NULL));
	CHECK_RC(0, dropper_drop(session.dropper, f, true, NULL));
	CHECK_STRING("attributes 2101248+0 attributes 2101248+0 ", kernel.said);
	kernel.said[0] = '\0';
	dropper_begin_pages(session.dropper, &again, f, AHEAD, PAGE);
	dropper_end_pages(session.dropper, &first);
	dropper_drain(session.dropper);
	dropper_end_pages(session.dropper, &again);
	dropper_drain(session.dropper);
	CHECK_STRING("attributes 0+2097152 ", kernel.said);
	teardown();
}

static void test_without_memory_a_drop_waits_for_the_pages(void)
{
	struct page_request reading;

	setup();
	dropper_begin_pages(session.dropper, &reading, f, PAGE, PAGE);
	memory_ends_after(0);
	CHECK_RC(0, dropper_drop(session.dropper, f, true, NULL));
	memory_is_back();
	CHECK_STRING("attributes 0+4096 4096+0 ", kernel.said);
	dropper_end_pages(session.dropper, &reading);
	teardown();
}

/* Its holder is to read nothing that was asked for before. */
static void test_a_lock_waits_for_the_pages_that_are_being_read(void)
{
	struct page_request reading;

	setup();
	dropper_begin_pages(session.dropper, &reading, f, 0, 4096);
	dropper_locked(session.dropper, f, &lock, NULL);
	CHECK_STRING("pages ", kernel.said);
	dropper_end_pages(session.dropper, &reading);
	teardown();
}

TEST_MAIN("invalidate", TEST(test_pages_that_are_being_read_are_dropped_when_they_were),
	TEST(test_what_is_read_after_a_drop_is_not_dropped),
	TEST(test_without_memory_a_drop_waits_for_the_pages),
	TEST(test_a_lock_waits_for_the_pages_that_are_being_read),
	TEST(test_what_was_wanted_under_a_lock_is_dropped_at_the_release),
	TEST(test_a_lock_that_another_one_covers_drops_nothing),
	TEST(test_a_barrier_waits_for_no_lock),
	TEST(test_a_map_holds_up_only_drops_of_what_others_may_not_have_changed),
	TEST(test_a_drop_during_a_reply_that_is_installed_later_is_repeated),
	TEST(test_a_watch_that_ended_among_too_many_changes_is_not_believed),
	TEST(test_a_change_of_a_name_waits_for_our_own_change_of_it),
	TEST(test_a_directory_that_was_superseded_among_too_many_changes_is_invalidated),
	TEST(test_a_directory_that_was_superseded_without_memory_is_invalidated),
	TEST(test_a_change_without_memory_is_told_of_when_there_is_some))
