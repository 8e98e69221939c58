#include "tests/contract/contract.h"

#include <errno.h>
#include <unistd.h>

#include "ops/support/exec.h"

/* Somebody else: the directory is changed behind the workspace's back. */
static bool is_watchable(struct fixture *f)
{
	return f->directory && (f->status.capabilities & WORKSPACE_CAN_WATCH);
}

/* Changes may be answered before the workspace has them. */
static int sync_all(struct fixture *f)
{
	return workspace_fsync(&f->ctx, f->w, NULL, "", false);
}

static int behind(struct fixture *f, const char *command)
{
	cleanup_free char *text = NULL;

	if (sync_all(f) < 0 || asprintf(&text, "cd '%s' && %s", f->directory, command) < 0)
		return -1;
	return system(text);
}

static int ignore_entry(void *user, const struct dir_entry *entry)
{
	(void)user;
	(void)entry;
	return 0;
}

static void watch(struct fixture *f, const char *path)
{
	uint64_t since = 0;

	CHECK_RC(0, sync_all(f));
	CHECK_RC(0, workspace_readdir(
			    &f->ctx, f->w, &OBJECT_AT(path), true, ignore_entry, NULL, &since));
	CHECK(since > 0);
}

static struct object_ref directory_at(struct fixture *f, const char *path)
{
	CHECK_RC(0, stat_of(f, path, &f->a));
	return (struct object_ref){.path = path, .id = f->a.id};
}

static void unwatch(struct fixture *f, const char *path)
{
	struct object_ref directory = directory_at(f, path);

	workspace_unwatch(f->w, &directory);
}

PROMISE(changes_behind_the_back_are_reported)
{
	struct seen_change change;

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "d/f", "1"));
	watch(f, "");
	watch(f, "d");
	forget_changes();
	CHECK_RC(0, behind(f, "printf 22 > d/f"));
	CHECK(await_change(CHANGE_ENTRY, "d/f", &change));
	CHECK_RC(0, behind(f, "echo > top"));
	CHECK(await_change(CHANGE_ENTRY, "top", &change));
	CHECK(change.exists);
	CHECK_RC(0, behind(f, "mv d/f d/g"));
	CHECK(await_gone("d/f"));
	CHECK(await_change(CHANGE_ENTRY, "d/g", &change));
	CHECK_RC(2, change.attributes.size_bytes);
	CHECK_RC(0, behind(f, "chmod 600 d/g"));
	CHECK_RC(0, behind(f, "rm d/g"));
	CHECK(await_gone("d/g"));
}

PROMISE(a_reported_change_carries_the_attributes)
{
	struct seen_change change;

	if (!is_watchable(f))
		return;
	watch(f, "");
	CHECK_RC(0, behind(f, "printf 12345 > f && chmod 640 f"));
	for (int i = 0; i < 100; i++) {
		CHECK(await_change(CHANGE_ENTRY, "f", &change));
		if ((change.attributes.mode & 07777) == 0640 && change.attributes.size_bytes == 5)
			break;
		usleep(10000);
	}
	CHECK_RC(0640, change.attributes.mode & 07777);
	CHECK_RC(5, change.attributes.size_bytes);
	CHECK_RC(0, stat_of(f, "f", &f->a));
	CHECK(attributes_same_version(&f->a, &change.attributes));
}

static int watch_without_reading(struct fixture *f, const char *path, bool *ret_watched)
{
	struct object_ref directory = {.path = path};
	int r;

	do
		r = workspace_watch_directory(&f->ctx, f->w, &directory, ret_watched);
	while (r == -EAGAIN && usleep(10000) == 0);
	return r;
}

PROMISE(a_directory_can_be_watched_before_it_is_read)
{
	struct seen_change change;
	bool watched = false;

	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "d/f", "1"));
	CHECK_RC(-ENOTDIR, watch_without_reading(f, "d/f", &watched));
	CHECK_RC(-ENOENT, watch_without_reading(f, "none", &watched));
	CHECK_RC(0, watch_without_reading(f, "d", &watched));
	CHECK_RC(is_watchable(f), watched);
	if (!is_watchable(f))
		return;
	forget_changes();
	CHECK_RC(0, behind(f, "printf 22 > d/f"));
	CHECK(await_change(CHANGE_ENTRY, "d/f", &change));
	unwatch(f, "d");
	CHECK_RC(0, watch_without_reading(f, "d", &watched));
	CHECK(watched);
	CHECK_RC(0, behind(f, "echo > d/g"));
	CHECK(await_change(CHANGE_ENTRY, "d/g", &change));
}

PROMISE(directories_keep_being_watched_when_they_move)
{
	struct seen_change change;

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "a"));
	CHECK_RC(0, make_directory(f, "a/sub"));
	watch(f, "");
	watch(f, "a");
	watch(f, "a/sub");
	CHECK_RC(0, behind(f, "mv a b"));
	CHECK(await_gone("a"));
	CHECK(await_change(CHANGE_ENTRY, "b", &change));
	forget_changes();
	CHECK_RC(0, behind(f, "echo > b/new && echo > b/sub/deep"));
	CHECK(await_change(CHANGE_ENTRY, "b/new", &change));
	CHECK(await_change(CHANGE_ENTRY, "b/sub/deep", &change));
	CHECK(!was_changed("a/new"));
}

PROMISE(own_renames_keep_the_watch_right)
{
	struct seen_change change;

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "a"));
	CHECK_RC(0, make_directory(f, "a/sub"));
	watch(f, "a/sub");
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "a", "b", 0, NULL));
	watch(f, "b/sub");
	forget_changes();
	CHECK_RC(0, behind(f, "echo > b/sub/f"));
	CHECK(await_change(CHANGE_ENTRY, "b/sub/f", &change));
}

PROMISE(a_removed_directory_is_unwatched)
{
	struct seen_change change;

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "d"));
	watch(f, "");
	watch(f, "d");
	CHECK_RC(0, behind(f, "rmdir d"));
	CHECK(await_gone("d"));
	CHECK(await_change(CHANGE_UNWATCHED, "d", &change));
	CHECK_RC(0, make_directory(f, "d"));
	watch(f, "d");
	forget_changes();
	CHECK_RC(0, behind(f, "echo > d/f"));
	CHECK(await_change(CHANGE_ENTRY, "d/f", &change));
}

PROMISE(an_unwatched_directory_is_quiet)
{
	struct seen_change change;

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "d"));
	watch(f, "");
	watch(f, "d");
	unwatch(f, "d");
	usleep(200000);
	forget_changes();
	CHECK_RC(0, behind(f, "echo > d/f && echo > after"));
	CHECK(await_change(CHANGE_ENTRY, "after", &change));
	CHECK(!was_changed("d/f"));
}

/* The kernel forgets a directory that others have moved away, and another to its place. */
PROMISE(the_directory_that_was_meant_is_unwatched)
{
	struct object_ref meant;
	struct seen_change change;

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "p"));
	CHECK_RC(0, make_directory(f, "r"));
	watch(f, "");
	watch(f, "p");
	watch(f, "r");
	meant = directory_at(f, "p");
	CHECK_RC(0, behind(f, "mv p q && mv r p && echo > p/before"));
	CHECK(await_change(CHANGE_ENTRY, "p/before", &change));
	workspace_unwatch(f->w, &meant);
	CHECK_RC(0, stat_of(f, "p", &f->a)); /* asked after that */
	CHECK_RC(0, behind(f, "echo > p/after"));
	CHECK(await_change(CHANGE_ENTRY, "p/after", &change));
}

PROMISE(scan_watches_what_it_covers)
{
	struct scan_request request = {.flags = SCAN_WATCH};
	struct seen_change change;

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "a"));
	CHECK_RC(0, make_directory(f, "a/b"));
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT(""), &request, ignore_entry, NULL));
	workspace_status(f->w, &f->status);
	CHECK_RC(3, f->status.watched_directories);
	forget_changes();
	CHECK_RC(0, behind(f, "echo > a/b/f"));
	CHECK(await_change(CHANGE_ENTRY, "a/b/f", &change));
}

PROMISE(exec_ends_after_its_changes_were_reported)
{
	/* More than the watcher looks at while they are made. */
	struct exec_request request = {.command = "cd d && touch $(seq 1 1000); rm gone",
		.cwd = "",
		.flags = EXEC_STDIN_CLOSED};
	struct exec_event event = {.type = EXEC_STDOUT};
	struct process *process = NULL;
	char text[64];

	if (!is_watchable(f))
		return;
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "d/gone", ""));
	watch(f, "d");
	forget_changes();
	if (!CHECK_RC(0, workspace_exec(&f->ctx, f->w, &request, &process)))
		return;
	while (event.type != EXEC_EXIT)
		if (!CHECK_RC(0,
			    workspace_process_next(&f->ctx, process, text, sizeof(text), &event)))
			break;
	CHECK(was_changed("d/1"));
	CHECK(was_changed("d/1000"));
	CHECK(was_changed("d/gone"));
	workspace_process_free(process);
}

PROMISE(there_is_one_sink)
{
	if (f->status.capabilities & WORKSPACE_CAN_WATCH)
		CHECK_RC(-EBUSY, workspace_watch(f->w, NULL, NULL));
}

TEST_GROUP(watch_promises, TEST(changes_behind_the_back_are_reported),
	TEST(a_reported_change_carries_the_attributes),
	TEST(a_directory_can_be_watched_before_it_is_read),
	TEST(directories_keep_being_watched_when_they_move), TEST(own_renames_keep_the_watch_right),
	TEST(a_removed_directory_is_unwatched), TEST(an_unwatched_directory_is_quiet),
	TEST(the_directory_that_was_meant_is_unwatched), TEST(scan_watches_what_it_covers),
	TEST(exec_ends_after_its_changes_were_reported), TEST(there_is_one_sink));
