#include "tests/contract/contract.h"

#include <time.h>
#include <unistd.h>

static int set(struct fixture *f, const char *path, unsigned mask, struct attributes want)
{
	return workspace_setattr(&f->ctx, f->w, &OBJECT_AT(path), mask, &want, &f->a);
}

PROMISE(setattr_sets_what_the_mask_names)
{
	struct attributes want = {.mode = 04751,
		.size_bytes = 3,
		.atime = {.tv_sec = 1000, .tv_nsec = 1},
		.mtime = {.tv_sec = 2000, .tv_nsec = 999999999}};
	struct attributes seen;

	CHECK_RC(0, put(f, "f", "123456"));
	CHECK_RC(0, set(f, "f", SET_MODE | SET_SIZE | SET_ATIME | SET_MTIME, want));
	CHECK_RC(0, stat_of(f, "f", &seen));
	CHECK(attributes_same_version(&f->a, &seen));
	CHECK_RC(04751, seen.mode & 07777);
	CHECK(S_ISREG(seen.mode));
	CHECK_RC(3, seen.size_bytes);
	CHECK_RC(1000, seen.atime.tv_sec);
	CHECK_RC(1, seen.atime.tv_nsec);
	CHECK_RC(2000, seen.mtime.tv_sec);
	CHECK_RC(999999999, seen.mtime.tv_nsec);
	CHECK_STRING("123", get(f, "f"));
}

PROMISE(setattr_leaves_the_rest_alone)
{
	struct attributes before;

	CHECK_RC(0, put(f, "f", "123456"));
	CHECK_RC(0, set(f, "f", SET_MTIME, (struct attributes){.mtime = {.tv_sec = 7}}));
	before = f->a;
	CHECK_RC(0, set(f, "f", SET_MODE, (struct attributes){.mode = 0600}));
	CHECK_RC(7, f->a.mtime.tv_sec);
	CHECK_RC(before.size_bytes, f->a.size_bytes);
	CHECK_RC(before.uid, f->a.uid);
	CHECK_RC(0, set(f, "f", SET_ATIME, (struct attributes){.atime = {.tv_sec = 9}}));
	CHECK_RC(7, f->a.mtime.tv_sec);
	CHECK_RC(9, f->a.atime.tv_sec);
	CHECK_RC(0600, f->a.mode & 07777);
}

PROMISE(setattr_sets_the_owner)
{
	struct attributes want = {.uid = 1111, .gid = 2222};

	if (!is_root())
		return;
	CHECK_RC(0, put(f, "f", ""));
	CHECK_RC(0, set(f, "f", SET_UID, want));
	CHECK_RC(1111, f->a.uid);
	CHECK_RC(0, f->a.gid);
	CHECK_RC(0, set(f, "f", SET_GID, want));
	CHECK_RC(1111, f->a.uid);
	CHECK_RC(2222, f->a.gid);
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "f", "s", &f->a));
	CHECK_RC(0, set(f, "s", SET_UID | SET_GID, (struct attributes){.uid = 5, .gid = 6}));
	CHECK(S_ISLNK(f->a.mode));
	CHECK_RC(5, f->a.uid);
	CHECK_RC(0, stat_of(f, "f", &f->a));
	CHECK_RC(1111, f->a.uid);
}

PROMISE(now_is_the_clock_of_the_place)
{
	time_t before = time(NULL);

	CHECK_RC(0, put(f, "f", ""));
	CHECK_RC(0, set(f, "f", SET_ATIME | SET_MTIME, (struct attributes){0}));
	CHECK_RC(0, f->a.mtime.tv_sec);
	CHECK_RC(0, set(f, "f", SET_MTIME_NOW | SET_MTIME, (struct attributes){0}));
	CHECK(f->a.mtime.tv_sec >= before - 1);
	CHECK_RC(0, f->a.atime.tv_sec);
	CHECK_RC(0, set(f, "f", SET_ATIME_NOW, (struct attributes){0}));
	CHECK(f->a.atime.tv_sec >= before - 1);
}

PROMISE(every_change_moves_the_ctime)
{
	struct attributes before;

	CHECK_RC(0, put(f, "f", ""));
	CHECK_RC(0, stat_of(f, "f", &before));
	usleep(20000);
	CHECK_RC(0, set(f, "f", SET_MODE, (struct attributes){.mode = 0600}));
	CHECK(f->a.ctime.tv_sec > before.ctime.tv_sec || f->a.ctime.tv_nsec > before.ctime.tv_nsec);
}

PROMISE(a_write_moves_the_mtime)
{
	struct open_file *file = create_or_fail(f, "f", O_WRONLY);
	struct attributes after;

	CHECK_RC(0, set(f, "f", SET_MTIME, (struct attributes){.mtime = {.tv_sec = 5}}));
	CHECK_RC(1, workspace_write(&f->ctx, file, "x", 1, 0));
	CHECK_RC(0, workspace_flush(&f->ctx, file));
	CHECK_RC(0, stat_of(f, "f", &after));
	CHECK(after.mtime.tv_sec > 5);
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(setattr_refuses)
{
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "d", "s", &f->a));
	CHECK_RC(-ENOENT, set(f, "missing", SET_MODE, (struct attributes){0}));
	CHECK_RC(-EISDIR, set(f, "d", SET_SIZE, (struct attributes){0}));
	CHECK_RC(-EFBIG, set(f, "d", SET_SIZE, (struct attributes){.size_bytes = UINT64_MAX}));
	CHECK_RC(-EOPNOTSUPP, set(f, "s", SET_MODE, (struct attributes){.mode = 0600}));
}

PROMISE(setattr_of_another_object_is_stale_and_changes_nothing)
{
	struct object_ref stale = {.path = "f"};
	struct attributes before, after;

	CHECK_RC(0, put(f, "f", "first"));
	stale.id = id_of(f, "f");
	CHECK_RC(0, put(f, "g", "second"));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "g", "f", 0, NULL));
	CHECK_RC(0, stat_of(f, "f", &before));
	CHECK_RC(-ESTALE, workspace_setattr(&f->ctx, f->w, &stale, SET_MODE | SET_SIZE,
				  &(struct attributes){.mode = 0}, &f->a));
	CHECK_RC(-ESTALE, workspace_getattr(&f->ctx, f->w, &stale, &f->a));
	CHECK_RC(0, stat_of(f, "f", &after));
	CHECK(attributes_same_version(&before, &after));
}

PROMISE(a_reused_inode_number_is_another_object)
{
	struct object_ref old = {.path = "f"};

	CHECK_RC(0, put(f, "f", "old"));
	old.id = id_of(f, "f");
	for (int i = 0; i < 50; i++) {
		CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "f", NULL));
		usleep(1000);
		CHECK_RC(0, put(f, "f", "new"));
		if (!CHECK_RC(-ESTALE, workspace_getattr(&f->ctx, f->w, &old, &f->a)))
			break;
	}
}

PROMISE(symbolic_links_have_times_of_their_own)
{
	struct attributes file;

	CHECK_RC(0, put(f, "f", ""));
	CHECK_RC(0, stat_of(f, "f", &file));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "f", "s", &f->a));
	CHECK_RC(0, set(f, "s", SET_MTIME, (struct attributes){.mtime = {.tv_sec = 3}}));
	CHECK_RC(3, f->a.mtime.tv_sec);
	CHECK_RC(0, stat_of(f, "f", &f->a));
	CHECK_RC(file.mtime.tv_sec, f->a.mtime.tv_sec);
}

PROMISE(setattr_works_through_a_handle_without_a_name)
{
	struct open_file *file = create_or_fail(f, "f", O_RDWR);
	struct attributes want = {.mode = 0640, .size_bytes = 2, .mtime = {.tv_sec = 44}};

	CHECK_RC(6, workspace_write(&f->ctx, file, "123456", 6, 0));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "f", NULL));
	CHECK_RC(0, workspace_setattr(&f->ctx, f->w, &OBJECT_OF(file),
			    SET_MODE | SET_SIZE | SET_MTIME, &want, &f->a));
	CHECK_RC(0, f->a.nlink);
	CHECK_RC(2, f->a.size_bytes);
	CHECK_RC(0640, f->a.mode & 07777);
	CHECK_RC(44, f->a.mtime.tv_sec);
	CHECK_RC(0, workspace_getattr(&f->ctx, f->w, &OBJECT_OF(file), &f->a));
	CHECK_RC(2, f->a.size_bytes);
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(a_file_grows_with_zeros)
{
	CHECK_RC(0, put(f, "f", "ab"));
	CHECK_RC(0, set(f, "f", SET_SIZE, (struct attributes){.size_bytes = 1}));
	CHECK_RC(0, set(f, "f", SET_SIZE, (struct attributes){.size_bytes = 1ULL << 40}));
	CHECK_RC(1LL << 40, f->a.size_bytes);
	CHECK(f->a.blocks < 100);
	CHECK_STRING("a", get(f, "f"));
}

/* ---- Extended attributes -------------------------------------------------------------- */

static int set_x(
	struct fixture *f, const char *path, const char *name, const char *value, unsigned flags)
{
	return workspace_setxattr(
		&f->ctx, f->w, &OBJECT_AT(path), name, value, strlen(value), flags);
}

static bool has_xattrs(struct fixture *f)
{
	char text[8];

	CHECK_RC(0, put(f, "f", ""));
	return workspace_getxattr(&f->ctx, f->w, &OBJECT_AT("f"), "user.a", text, 8) != -EOPNOTSUPP;
}

PROMISE(xattrs_are_set_read_listed_and_removed)
{
	struct object_ref file = OBJECT_AT("f");
	char text[64] = "";

	if (!has_xattrs(f))
		return;
	CHECK_RC(-ENODATA, workspace_getxattr(&f->ctx, f->w, &file, "user.a", text, sizeof(text)));
	CHECK_RC(0, set_x(f, "f", "user.a", "value", 0));
	CHECK_RC(0, set_x(f, "f", "user.empty", "", 0));
	CHECK_RC(5, workspace_getxattr(&f->ctx, f->w, &file, "user.a", NULL, 0));
	CHECK_RC(-ERANGE, workspace_getxattr(&f->ctx, f->w, &file, "user.a", text, 4));
	CHECK_RC(5, workspace_getxattr(&f->ctx, f->w, &file, "user.a", text, sizeof(text)));
	CHECK(memcmp(text, "value", 5) == 0);
	CHECK_RC(0, workspace_getxattr(&f->ctx, f->w, &file, "user.empty", text, sizeof(text)));
	CHECK_RC(18, workspace_listxattr(&f->ctx, f->w, &file, NULL, 0));
	CHECK_RC(-ERANGE, workspace_listxattr(&f->ctx, f->w, &file, text, 5));
	CHECK_RC(18, workspace_listxattr(&f->ctx, f->w, &file, text, sizeof(text)));
	CHECK(memmem(text, 18, "user.a", 7) && memmem(text, 18, "user.empty", 11));
	CHECK_RC(0, workspace_removexattr(&f->ctx, f->w, &file, "user.a"));
	CHECK_RC(-ENODATA, workspace_removexattr(&f->ctx, f->w, &file, "user.a"));
	CHECK_RC(-ENODATA, workspace_getxattr(&f->ctx, f->w, &file, "user.a", text, sizeof(text)));
}

PROMISE(xattr_flags_are_kept)
{
	if (!has_xattrs(f))
		return;
	CHECK_RC(-ENODATA, set_x(f, "f", "user.a", "1", XATTR_MUST_REPLACE));
	CHECK_RC(0, set_x(f, "f", "user.a", "1", XATTR_MUST_CREATE));
	CHECK_RC(-EEXIST, set_x(f, "f", "user.a", "2", XATTR_MUST_CREATE));
	CHECK_RC(0, set_x(f, "f", "user.a", "3", XATTR_MUST_REPLACE));
}

PROMISE(xattrs_work_on_directories_and_through_handles)
{
	struct open_file *file = NULL;
	char text[8];

	if (!has_xattrs(f))
		return;
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, set_x(f, "d", "user.d", "1", 0));
	file = open_or_fail(f, "f", O_RDONLY);
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "f", NULL));
	CHECK_RC(0, workspace_setxattr(&f->ctx, f->w, &OBJECT_OF(file), "user.h", "22", 2, 0));
	CHECK_RC(2,
		workspace_getxattr(&f->ctx, f->w, &OBJECT_OF(file), "user.h", text, sizeof(text)));
	CHECK_RC(0, workspace_close(&f->ctx, file));
}

PROMISE(xattrs_of_a_symbolic_link_are_not_those_of_its_target)
{
	char text[8];

	if (!has_xattrs(f))
		return;
	CHECK_RC(0, set_x(f, "f", "user.a", "1", 0));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "f", "s", &f->a));
	CHECK(workspace_getxattr(&f->ctx, f->w, &OBJECT_AT("s"), "user.a", text, 8) < 0);
	CHECK_RC(0, workspace_listxattr(&f->ctx, f->w, &OBJECT_AT("s"), text, 8));
	CHECK_RC(-EPERM, set_x(f, "s", "user.a", "1", 0));
}

PROMISE(xattrs_of_another_object_are_stale)
{
	struct object_ref stale = {.path = "f", .id = {.device = 1, .inode = 2}};
	char text[8];

	if (!has_xattrs(f))
		return;
	CHECK_RC(0, set_x(f, "f", "user.a", "1", 0));
	CHECK_RC(-ESTALE, workspace_getxattr(&f->ctx, f->w, &stale, "user.a", text, 8));
	CHECK_RC(-ESTALE, workspace_setxattr(&f->ctx, f->w, &stale, "user.a", "2", 1, 0));
	CHECK_RC(-ESTALE, workspace_removexattr(&f->ctx, f->w, &stale, "user.a"));
	CHECK_RC(-ESTALE, workspace_listxattr(&f->ctx, f->w, &stale, text, 8));
	CHECK_RC(1, workspace_getxattr(&f->ctx, f->w, &OBJECT_AT("f"), "user.a", text, 8));
	CHECK(text[0] == '1');
}

TEST_GROUP(attributes_promises, TEST(setattr_sets_what_the_mask_names),
	TEST(setattr_leaves_the_rest_alone), TEST(setattr_sets_the_owner),
	TEST(now_is_the_clock_of_the_place), TEST(every_change_moves_the_ctime),
	TEST(a_write_moves_the_mtime), TEST(setattr_refuses),
	TEST(setattr_of_another_object_is_stale_and_changes_nothing),
	TEST(a_reused_inode_number_is_another_object), TEST(symbolic_links_have_times_of_their_own),
	TEST(setattr_works_through_a_handle_without_a_name), TEST(a_file_grows_with_zeros),
	TEST(xattrs_are_set_read_listed_and_removed), TEST(xattr_flags_are_kept),
	TEST(xattrs_work_on_directories_and_through_handles),
	TEST(xattrs_of_a_symbolic_link_are_not_those_of_its_target),
	TEST(xattrs_of_another_object_are_stale));
