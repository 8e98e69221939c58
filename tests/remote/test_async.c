/* Files that are created without waiting: what is told of them is right, and no error is lost. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/backend.h"
#include "ops/cache/cached.h"
#include "ops/faulty.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/remove_tree.h"

enum { FILES = 4, MANY = 300, TRIES = 400, MTIME = 1000000000 };

static const char text[] = "content";

struct fixture {
	char directory[64];
	struct workspace *w, *faulty;
	struct op_context ctx;
	unsigned early; /* how often create was */
};

static int pass_over(void *user, const struct dir_entry *entry)
{
	(void)user;
	(void)entry;
	return 0;
}

/* Until what is in the directory is known, and watched. */
static struct object_id look_into(struct fixture *f, const char *path)
{
	struct attributes attributes = {0};
	uint64_t since = 0;

	for (int i = 0; i < TRIES && !since; i++)
		if (workspace_readdir(
			    &f->ctx, f->w, &OBJECT_AT(path), true, pass_over, NULL, &since) < 0 ||
			!since)
			usleep(5000);
	CHECK(since != 0);
	CHECK_RC(0, workspace_getattr(&f->ctx, f->w, &OBJECT_AT(path), &attributes));
	return attributes.id;
}

static bool set_up(struct fixture *f)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	cleanup_free char *reason = NULL;
	struct workspace *far;

	*f = (struct fixture){.directory = "/tmp/isthmus-early-XXXXXX"};
	op_context_init(&f->ctx);
	if (!mkdtemp(f->directory) ||
		scheme_open("helper", f->directory, NULL, &far, &reason) < 0 ||
		faulty_new(far, "", &f->faulty) < 0 || cached_new(f->faulty, &options, &f->w) < 0) {
		CU_FAIL("no workspace");
		return false;
	}
	f->ctx.parent = look_into(f, "");
	return true;
}

static void tear_down(struct fixture *f)
{
	workspace_free(f->w);
	CU_ASSERT_EQUAL(remove_tree(f->directory), 0);
}

static int create(struct fixture *f, const char *path, struct open_file **ret_file,
	struct attributes *ret_attributes)
{
	return workspace_create(
		&f->ctx, f->w, path, O_WRONLY | O_EXCL, 0644, ret_file, ret_attributes);
}

/* By another process: who was told that the name is not its own does not remove it. */
static void remove_file(struct fixture *f, const char *path)
{
	static const struct object_id any;

	f->ctx.pid++;
	workspace_unlink(&f->ctx, f->w, path, &any);
	f->ctx.pid--;
}

/* The first one in a directory is waited for; and a file must have been prepared. */
static struct open_file *create_async(
	struct fixture *f, const char *path, struct attributes *ret_attributes)
{
	struct open_file *file = NULL;

	for (int i = 0; i < TRIES; i++) {
		if (create(f, path, &file, ret_attributes) < 0)
			break;
		if (f->ctx.served.is_async)
			return file;
		workspace_close(&f->ctx, file);
		remove_file(f, path);
		usleep(5000);
	}
	CU_FAIL("never early");
	return NULL;
}

static void test_what_is_told_is_right(void)
{
	struct attributes early, open, named, after;
	struct open_file *file;
	struct fixture f;

	if (!set_up(&f))
		return;
	file = create_async(&f, "new", &early);
	if (file) {
		CHECK_RC(0, workspace_getattr(&f.ctx, f.w, &OBJECT_OF(file), &open));
		CHECK_RC(0, workspace_getattr(&f.ctx, f.w, &OBJECT_AT("new"), &named));
		CHECK_RC(0, workspace_close(&f.ctx, file));
		CHECK_RC(0, workspace_getattr(&f.ctx, f.w, &OBJECT_AT("new"), &after));
		CU_ASSERT(object_id_equal(&early.id, &after.id));
		CU_ASSERT(object_id_equal(&open.id, &after.id));
		CU_ASSERT(object_id_equal(&named.id, &after.id));
		CU_ASSERT_EQUAL(early.mode, after.mode);
		CU_ASSERT_EQUAL(early.nlink, after.nlink);
		CU_ASSERT_EQUAL(early.uid, after.uid);
		CU_ASSERT_EQUAL(early.gid, after.gid);
		CU_ASSERT_EQUAL(early.blocks, after.blocks);
		CU_ASSERT(after.mtime.tv_sec - early.mtime.tv_sec <= 1);
	}
	tear_down(&f);
}

static int find_new(void *user, const struct dir_entry *entry)
{
	*(int *)user += strcmp(entry->path, "new") == 0;
	return 0;
}

static void test_a_listing_has_it_at_once(void)
{
	struct attributes early;
	struct open_file *file;
	struct fixture f;
	uint64_t since;
	int found = 0;

	if (!set_up(&f))
		return;
	file = create_async(&f, "new", &early);
	if (file) {
		CHECK_RC(0, workspace_readdir(
				    &f.ctx, f.w, &OBJECT_AT(""), false, find_new, &found, &since));
		CU_ASSERT_EQUAL(found, 1);
		CHECK_RC(0, workspace_close(&f.ctx, file));
	}
	tear_down(&f);
}

/* None of them is closed meanwhile. */
static void test_many_may_be_open(void)
{
	struct open_file *files[MANY] = {NULL};
	struct attributes attributes;
	struct fixture f;
	unsigned early = 0;
	char name[16];

	if (!set_up(&f))
		return;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "file%d", i);
		CHECK_RC(0, create(&f, name, &files[i], &attributes));
		early += f.ctx.served.is_async;
		CHECK_RC(1, workspace_write(&f.ctx, files[i], "x", 1, 0));
		if (i % 4 == 0)
			usleep(1000); /* one is prepared meanwhile */
	}
	CU_ASSERT(early > 0);
	for (int i = 0; i < MANY; i++) {
		CHECK_RC(0, workspace_flush(&f.ctx, files[i]));
		CHECK_RC(0, workspace_close(&f.ctx, files[i]));
		snprintf(name, sizeof(name), "file%d", i);
		CHECK_RC(0, workspace_getattr(&f.ctx, f.w, &OBJECT_AT(name), &attributes));
		CU_ASSERT_EQUAL(attributes.size_bytes, 1);
	}
	tear_down(&f);
}

/* An access control list decides what a new file has: none is made before it is known. */
static void test_nothing_is_early_where_a_directory_has_a_default_acl(void)
{
	struct attributes attributes;
	struct open_file *file;
	char command[128];
	struct fixture f;

	if (!set_up(&f))
		return;
	snprintf(command, sizeof(command), "cd '%s' && mkdir d && setfacl -d -m u::rwx,g::-,o::- d",
		f.directory);
	if (system(command) == 0) {
		f.ctx.parent = look_into(&f, "d");
		for (int i = 0; i < 10; i++) {
			CHECK_RC(0, create(&f, "d/new", &file, &attributes));
			CU_ASSERT(!f.ctx.served.is_async);
			CU_ASSERT_EQUAL(attributes.mode & 0777, 0600);
			workspace_close(&f.ctx, file);
			remove_file(&f, "d/new");
			usleep(5000);
		}
	}
	tear_down(&f);
}

/* As tar does.  0, or the first error that any call told. */
static int unpack(struct fixture *f, const char *path)
{
	const struct attributes want = {.mtime.tv_sec = MTIME, .atime.tv_sec = MTIME};
	struct attributes attributes;
	struct open_file *file;
	int r = create(f, path, &file, &attributes), told;

	if (r < 0)
		return r;
	f->early += f->ctx.served.is_async;
	told = (int)workspace_write(&f->ctx, file, text, sizeof(text), 0);
	r = told < 0 ? told : 0;
	told = workspace_setattr(
		&f->ctx, f->w, &OBJECT_OF(file), SET_MTIME | SET_ATIME, &want, &attributes);
	r = r < 0 ? r : told;
	told = workspace_flush(&f->ctx, file);
	r = r < 0 ? r : told;
	told = workspace_close(&f->ctx, file);
	return r < 0 ? r : told;
}

static bool is_unpacked(struct fixture *f, const char *path)
{
	char got[sizeof(text)], name[128];
	struct stat s;
	int fd;
	bool same;

	snprintf(name, sizeof(name), "%s/%s", f->directory, path);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	same = read(fd, got, sizeof(got)) == sizeof(text) && memcmp(got, text, sizeof(text)) == 0 &&
	       fstat(fd, &s) == 0 && s.st_mtime == MTIME;
	close(fd);
	return same;
}

/* Whichever call of whichever file fails at the place, some call of that file says so. */
static void unpack_with(struct fixture *f, const char *fault)
{
	unsigned failed = 0;

	CHECK_RC(0, faulty_set(f->faulty, fault));
	for (int i = 0; i < FILES; i++) {
		char name[16];
		int r;

		snprintf(name, sizeof(name), "file%d", i);
		r = unpack(f, name);
		failed += r < 0;
		if (r == 0 && !is_unpacked(f, name)) {
			fprintf(stderr, "%s: silence about %s\n", fault, name);
			CU_FAIL("an error is lost");
		}
	}
	CHECK_RC(0, faulty_set(f->faulty, ""));
	CU_ASSERT(failed <= 1);
	for (int i = 0; i < FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "file%d", i);
		remove_file(f, name);
	}
}

static void test_no_error_is_lost(void)
{
	static const char *const operations[] = {
		"create", "await_name", "write", "setattr", "flush", "close"};
	static const char *const errors[] = {"ENOSPC", "EDQUOT", "EACCES", "EIO", "EEXIST"};
	struct fixture f;
	char fault[64];

	if (!set_up(&f))
		return;
	for (size_t o = 0; o < array_size(operations); o++)
		for (size_t e = 0; e < array_size(errors); e++)
			for (int n = 1; n <= FILES; n++) {
				snprintf(fault, sizeof(fault), "%s:%d:%s", operations[o], n,
					errors[e]);
				unpack_with(&f, fault);
			}
	CU_ASSERT(f.early > 0);
	tear_down(&f);
}

int main(void)
{
	static const struct test_case cases[] = {
		TEST(test_what_is_told_is_right),
		TEST(test_a_listing_has_it_at_once),
		TEST(test_many_may_be_open),
		TEST(test_nothing_is_early_where_a_directory_has_a_default_acl),
		TEST(test_no_error_is_lost),
	};

	return test_run("async", cases, array_size(cases));
}
