#include "tests/contract/contract.h"

#include <sys/sysmacros.h>

#include "ops/support/literals.h"

/* ---- Looking ------------------------------------------------------------------------- */

PROMISE(root_is_a_directory)
{
	struct attributes a;

	CHECK_RC(0, stat_of(f, "", &a));
	CHECK(S_ISDIR(a.mode));
	CHECK(a.id.inode != 0);
}

PROMISE(getattr_says_why_a_path_leads_nowhere)
{
	CHECK_RC(0, put(f, "file", "x"));
	CHECK_RC(-ENOENT, stat_of(f, "missing", &f->a));
	CHECK_RC(-ENOENT, stat_of(f, "missing/below", &f->a));
	CHECK_RC(-ENOTDIR, stat_of(f, "file/below", &f->a));
}

PROMISE(paths_that_are_not_normal_are_refused)
{
	CHECK_RC(-EINVAL, stat_of(f, "/etc", &f->a));
	CHECK_RC(-EINVAL, stat_of(f, "..", &f->a));
	CHECK_RC(-EINVAL, stat_of(f, "a/../b", &f->a));
	CHECK_RC(-EINVAL, stat_of(f, "a//b", &f->a));
	CHECK_RC(-EINVAL, make_directory(f, "./a"));
}

PROMISE(no_component_is_followed_when_it_is_a_link)
{
	struct open_file *file = NULL;

	CHECK_RC(0, make_directory(f, "real"));
	CHECK_RC(0, put(f, "real/file", "x"));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "real", "link", &f->a));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "/", "root", &f->a));
	CHECK_RC(-ELOOP, stat_of(f, "link/file", &f->a));
	CHECK_RC(-ELOOP, stat_of(f, "root/etc", &f->a));
	CHECK_RC(-ELOOP, make_directory(f, "link/new"));
	CHECK_RC(-ELOOP, workspace_unlink(&f->ctx, f->w, "link/file", NULL));
	CHECK_RC(-ELOOP, workspace_rename(&f->ctx, f->w, "link/file", "f", 0, NULL));
	CHECK_RC(-ELOOP, workspace_open_file(&f->ctx, f->w, &OBJECT_AT("root/etc/passwd"), O_RDONLY,
				 &file, &f->a));
	CHECK_RC(-ELOOP,
		workspace_open_file(&f->ctx, f->w, &OBJECT_AT("link"), O_RDONLY, &file, &f->a));
	CHECK_STRING("x", get(f, "real/file"));
}

PROMISE(what_takes_over_an_inode_number_has_another_identity)
{
	for (int i = 0; i < 200; i++) {
		struct object_id file, link;

		CHECK_RC(0, put(f, "name", "x"));
		file = id_of(f, "name");
		CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "name", &file));
		CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "target", "name", &f->a));
		link = id_of(f, "name");
		CHECK(!object_id_equal(&file, &link));
		CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "name", &link));
	}
}

PROMISE(an_identity_does_not_open_a_way_through_a_link)
{
	struct object_ref object = {.path = "link/file"};
	struct attributes a;

	CHECK_RC(0, make_directory(f, "real"));
	CHECK_RC(0, put(f, "real/file", "x"));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "real", "link", &f->a));
	object.id = (struct object_id){.device = 1, .inode = 1};
	CHECK_RC(-ELOOP, workspace_getattr(&f->ctx, f->w, &object, &a));
}

/* ---- Making -------------------------------------------------------------------------- */

PROMISE(mkdir_makes_a_directory)
{
	struct attributes made, seen;

	CHECK_RC(0, workspace_mkdir(&f->ctx, f->w, "d", 0751, &made));
	CHECK_RC(0, stat_of(f, "d", &seen));
	CHECK(S_ISDIR(made.mode));
	CHECK_RC(0751, made.mode & 07777);
	CHECK(attributes_same_version(&made, &seen));
	CHECK_RC(2, made.nlink);
	CHECK_RC(-EEXIST, make_directory(f, "d"));
	CHECK_RC(-EEXIST, make_directory(f, ""));
	CHECK_RC(-ENOENT, make_directory(f, "missing/d"));
	CHECK_RC(0, put(f, "file", ""));
	CHECK_RC(-ENOTDIR, make_directory(f, "file/d"));
	CHECK_RC(-EEXIST, make_directory(f, "file"));
}

PROMISE(modes_are_exact)
{
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_mkdir(&f->ctx, f->w, "d", 0777, &f->a));
	CHECK_RC(0777, f->a.mode & 07777);
	CHECK_RC(0, workspace_create(&f->ctx, f->w, "f", O_RDWR, 0666, &file, &f->a));
	CHECK_RC(0666, f->a.mode & 07777);
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(0, workspace_mkdir(&f->ctx, f->w, "none", 0, &f->a));
	CHECK_RC(0, f->a.mode & 07777);
}

PROMISE(new_objects_belong_to_the_caller)
{
	struct open_file *file = NULL;

	if (!is_root())
		return;
	f->ctx.uid = 1234;
	f->ctx.gid = 5678;
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(1234, f->a.uid);
	CHECK_RC(5678, f->a.gid);
	CHECK_RC(0, workspace_create(&f->ctx, f->w, "d/f", O_RDWR, 0600, &file, &f->a));
	CHECK_RC(1234, f->a.uid);
	CHECK_RC(5678, f->a.gid);
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "x", "d/s", &f->a));
	CHECK_RC(1234, f->a.uid);
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "d/p", S_IFIFO | 0600, 0, &f->a));
	CHECK_RC(5678, f->a.gid);
	f->ctx.uid = f->ctx.gid = 0;
	CHECK_RC(0, make_directory(f, "d/mine"));
	CHECK_RC(0, f->a.uid);
	CHECK_RC(0, f->a.gid);
}

PROMISE(a_umask_takes_bits_away)
{
	struct open_file *file = NULL;

	f->ctx.umask = 027;
	CHECK_RC(0, workspace_mkdir(&f->ctx, f->w, "d", 0777, &f->a));
	CHECK_RC(0750, f->a.mode & 07777);
	CHECK_RC(0, workspace_create(&f->ctx, f->w, "d/f", O_RDWR, 0666, &file, &f->a));
	CHECK_RC(0640, f->a.mode & 07777);
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "d/p", S_IFIFO | 0666, 0, &f->a));
	CHECK_RC(0640, f->a.mode & 07777);
	f->ctx.umask = 0;
	CHECK_RC(0, workspace_mkdir(&f->ctx, f->w, "d/d", 0777, &f->a));
	CHECK_RC(0777, f->a.mode & 07777);
}

PROMISE(a_set_group_id_directory_gives_its_group)
{
	struct attributes want = {.mode = 02775, .gid = 4321};

	if (!is_root())
		return;
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, workspace_setattr(
			    &f->ctx, f->w, &OBJECT_AT("d"), SET_GID | SET_MODE, &want, &f->a));
	CHECK_RC(0, put(f, "d/f", ""));
	CHECK_RC(4321, f->a.gid);
	CHECK_RC(0, make_directory(f, "d/sub"));
	CHECK_RC(4321, f->a.gid);
	CHECK(f->a.mode & S_ISGID);
}

PROMISE(mknod_makes_what_is_asked)
{
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "fifo", S_IFIFO | 0640, 0, &f->a));
	CHECK(S_ISFIFO(f->a.mode));
	CHECK_RC(0640, f->a.mode & 07777);
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "socket", S_IFSOCK | 0600, 0, &f->a));
	CHECK(S_ISSOCK(f->a.mode));
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "file", S_IFREG | 0600, 0, &f->a));
	CHECK(S_ISREG(f->a.mode));
	CHECK_RC(-EEXIST, workspace_mknod(&f->ctx, f->w, "file", S_IFIFO | 0600, 0, &f->a));
	if (!is_root())
		return;
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "null", S_IFCHR | 0666, makedev(1, 3), &f->a));
	CHECK(S_ISCHR(f->a.mode));
	CHECK_RC(makedev(1, 3), f->a.rdev);
}

PROMISE(a_symbolic_link_keeps_its_target)
{
	cleanup_free char *target = NULL, *long_target = NULL;
	char text[4001];

	memset(text, 't', 4000);
	text[4000] = '\0';
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "../any where", "s", &f->a));
	CHECK(S_ISLNK(f->a.mode));
	CHECK_RC(12, f->a.size_bytes);
	CHECK_RC(0, workspace_readlink(&f->ctx, f->w, &OBJECT_AT("s"), &target));
	CHECK_STRING("../any where", target);
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, text, "long", &f->a));
	CHECK_RC(0, workspace_readlink(&f->ctx, f->w, &OBJECT_AT("long"), &long_target));
	CHECK(long_target && strcmp(text, long_target) == 0);
	CHECK_RC(-EEXIST, workspace_symlink(&f->ctx, f->w, "x", "s", &f->a));
	CHECK_RC(-ENOENT, workspace_symlink(&f->ctx, f->w, "", "empty", &f->a));
}

PROMISE(readlink_refuses_what_is_no_link)
{
	char *target;

	CHECK_RC(0, put(f, "f", ""));
	CHECK_RC(-EINVAL, workspace_readlink(&f->ctx, f->w, &OBJECT_AT("f"), &target));
	CHECK_RC(-EINVAL, workspace_readlink(&f->ctx, f->w, &OBJECT_AT(""), &target));
	CHECK_RC(-ENOENT, workspace_readlink(&f->ctx, f->w, &OBJECT_AT("missing"), &target));
}

PROMISE(link_gives_one_object_two_names)
{
	struct attributes linked, other;

	CHECK_RC(0, put(f, "a", "text"));
	CHECK_RC(0, workspace_link(&f->ctx, f->w, &OBJECT_AT("a"), "b", &linked));
	CHECK_RC(2, linked.nlink);
	CHECK_RC(0, stat_of(f, "a", &other));
	CHECK(attributes_same_version(&linked, &other));
	CHECK_STRING("text", get(f, "b"));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "a", NULL));
	CHECK_STRING("text", get(f, "b"));
	CHECK_RC(0, stat_of(f, "b", &other));
	CHECK_RC(1, other.nlink);
}

PROMISE(link_refuses)
{
	struct object_ref stale = {.path = "a", .id = {.device = 1, .inode = 2}};

	CHECK_RC(0, put(f, "a", ""));
	CHECK_RC(0, put(f, "b", ""));
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(-EEXIST, workspace_link(&f->ctx, f->w, &OBJECT_AT("a"), "b", &f->a));
	CHECK_RC(-ENOENT, workspace_link(&f->ctx, f->w, &OBJECT_AT("missing"), "c", &f->a));
	CHECK_RC(-ENOENT, workspace_link(&f->ctx, f->w, &OBJECT_AT("a"), "missing/c", &f->a));
	CHECK_RC(-EPERM, workspace_link(&f->ctx, f->w, &OBJECT_AT("d"), "c", &f->a));
	CHECK_RC(-ESTALE, workspace_link(&f->ctx, f->w, &stale, "c", &f->a));
	CHECK_STRING("a b d", names(f, ""));
}

PROMISE(a_link_to_a_symbolic_link_is_one)
{
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "target", "s", &f->a));
	CHECK_RC(0, workspace_link(&f->ctx, f->w, &OBJECT_AT("s"), "t", &f->a));
	CHECK(S_ISLNK(f->a.mode));
	CHECK_RC(2, f->a.nlink);
}

/* ---- Removing ------------------------------------------------------------------------ */

PROMISE(unlink_removes_files_only)
{
	CHECK_RC(0, put(f, "f", ""));
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "f", NULL));
	CHECK_RC(-ENOENT, workspace_unlink(&f->ctx, f->w, "f", NULL));
	CHECK_RC(-EISDIR, workspace_unlink(&f->ctx, f->w, "d", NULL));
	CHECK_RC(-EBUSY, workspace_unlink(&f->ctx, f->w, "", NULL));
}

PROMISE(rmdir_removes_empty_directories_only)
{
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "d/f", ""));
	CHECK_RC(-ENOTEMPTY, workspace_rmdir(&f->ctx, f->w, "d", NULL));
	CHECK_RC(-ENOTDIR, workspace_rmdir(&f->ctx, f->w, "d/f", NULL));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "d/f", NULL));
	CHECK_RC(0, workspace_rmdir(&f->ctx, f->w, "d", NULL));
	CHECK_RC(-ENOENT, workspace_rmdir(&f->ctx, f->w, "d", NULL));
	CHECK_RC(-EBUSY, workspace_rmdir(&f->ctx, f->w, "", NULL));
}

PROMISE(removing_another_object_than_expected_is_stale)
{
	struct object_id other, file;

	CHECK_RC(0, put(f, "f", "keep"));
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "other", ""));
	other = id_of(f, "other");
	file = id_of(f, "f");
	CHECK_RC(-ESTALE, workspace_unlink(&f->ctx, f->w, "f", &other));
	CHECK_RC(-ESTALE, workspace_rmdir(&f->ctx, f->w, "d", &other));
	CHECK_RC(-ESTALE, workspace_rename(&f->ctx, f->w, "f", "g", 0, &other));
	CHECK_STRING("d f other", names(f, ""));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "f", &file));
	CHECK_STRING("d other", names(f, ""));
}

/* ---- Renaming ------------------------------------------------------------------------ */

static void plant_held(struct fixture *f)
{
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, make_directory(f, "d/inner"));
	CHECK_RC(0, put(f, "d/file", "x"));
}

PROMISE(a_name_in_another_directory_than_meant_is_stale)
{
	struct object_ref file = {.path = "d/file"};
	struct open_file *opened = NULL;
	struct object_id other;

	plant_held(f);
	file.parent = id_of(f, "d");
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "d", "old", 0, NULL));
	plant_held(f);
	other = id_of(f, "d");
	CHECK_RC(-ESTALE, workspace_getattr(&f->ctx, f->w, &file, &f->a));
	file.path = "none/file";
	CHECK_RC(-ESTALE, workspace_getattr(&f->ctx, f->w, &file, &f->a));
	f->ctx.parent = f->ctx.new_parent = file.parent;
	CHECK_RC(-ESTALE, make_directory(f, "d/new"));
	CHECK_RC(-ESTALE, workspace_mknod(&f->ctx, f->w, "d/new", S_IFIFO | 0600, 0, &f->a));
	CHECK_RC(-ESTALE, workspace_symlink(&f->ctx, f->w, "to", "d/new", &f->a));
	CHECK_RC(-ESTALE, workspace_link(&f->ctx, f->w, &OBJECT_AT("d/file"), "d/new", &f->a));
	CHECK_RC(-ESTALE, workspace_unlink(&f->ctx, f->w, "d/file", NULL));
	CHECK_RC(-ESTALE, workspace_rmdir(&f->ctx, f->w, "d/inner", NULL));
	CHECK_RC(-ESTALE, workspace_create(&f->ctx, f->w, "d/new", O_RDWR, 0600, &opened, &f->a));
	CHECK_RC(-ESTALE,
		workspace_create_unnamed(&f->ctx, f->w, "d", O_RDWR, 0600, &opened, &f->a));
	CHECK_RC(-ESTALE, workspace_rename(&f->ctx, f->w, "d/file", "new", 0, NULL));
	CHECK_RC(-ESTALE, make_directory(f, "none/new"));
	f->ctx.parent = other;
	CHECK_RC(-ESTALE, workspace_rename(&f->ctx, f->w, "d/file", "d/new", 0, NULL));
	CHECK_STRING("file inner", names(f, "d"));
	f->ctx.parent = file.parent;
	CHECK_RC(0, make_directory(f, "old/new"));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "old/file", "old/moved", 0, NULL));
	CHECK_STRING("inner moved new", names(f, "old"));
}

PROMISE(rename_moves_and_replaces)
{
	struct object_id id;

	CHECK_RC(0, put(f, "a", "new"));
	CHECK_RC(0, put(f, "b", "old"));
	CHECK_RC(0, make_directory(f, "d"));
	id = id_of(f, "a");
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "a", "b", 0, NULL));
	CHECK_STRING("b d", names(f, ""));
	CHECK_STRING("new", get(f, "b"));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "b", "d/c", 0, &id));
	CHECK_RC(0, stat_of(f, "d/c", &f->a));
	CHECK(object_id_equal(&id, &f->a.id));
	CHECK_STRING("d", names(f, ""));
}

PROMISE(rename_moves_whole_directories)
{
	CHECK_RC(0, make_directory(f, "a"));
	CHECK_RC(0, make_directory(f, "a/b"));
	CHECK_RC(0, put(f, "a/b/f", "text"));
	CHECK_RC(0, make_directory(f, "empty"));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "a", "empty", 0, NULL));
	CHECK_STRING("empty", names(f, ""));
	CHECK_STRING("text", get(f, "empty/b/f"));
}

PROMISE(rename_refuses)
{
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, make_directory(f, "e"));
	CHECK_RC(0, put(f, "e/f", ""));
	CHECK_RC(0, put(f, "f", ""));
	CHECK_RC(-ENOENT, workspace_rename(&f->ctx, f->w, "missing", "x", 0, NULL));
	CHECK_RC(-ENOENT, workspace_rename(&f->ctx, f->w, "f", "missing/x", 0, NULL));
	CHECK_RC(-EISDIR, workspace_rename(&f->ctx, f->w, "f", "d", 0, NULL));
	CHECK_RC(-ENOTDIR, workspace_rename(&f->ctx, f->w, "d", "f", 0, NULL));
	CHECK_RC(-ENOTEMPTY, workspace_rename(&f->ctx, f->w, "d", "e", 0, NULL));
	CHECK_RC(-EINVAL, workspace_rename(&f->ctx, f->w, "d", "d/below", 0, NULL));
	CHECK_RC(-EBUSY, workspace_rename(&f->ctx, f->w, "", "x", 0, NULL));
	CHECK_RC(-EBUSY, workspace_rename(&f->ctx, f->w, "f", "", 0, NULL));
	CHECK_STRING("d e f", names(f, ""));
}

PROMISE(rename_can_keep_the_target)
{
	CHECK_RC(0, put(f, "a", "a"));
	CHECK_RC(0, put(f, "b", "b"));
	CHECK_RC(-EEXIST, workspace_rename(&f->ctx, f->w, "a", "b", RENAME_KEEP_TARGET, NULL));
	CHECK_STRING("b", get(f, "b"));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "a", "c", RENAME_KEEP_TARGET, NULL));
	CHECK_STRING("b c", names(f, ""));
}

PROMISE(rename_can_swap)
{
	CHECK_RC(0, put(f, "a", "a"));
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "d/f", "f"));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "a", "d", RENAME_SWAP, NULL));
	CHECK_STRING("a", get(f, "d"));
	CHECK_STRING("f", get(f, "a/f"));
	CHECK_RC(-ENOENT, workspace_rename(&f->ctx, f->w, "a", "none", RENAME_SWAP, NULL));
	CHECK_RC(-EINVAL,
		workspace_rename(&f->ctx, f->w, "a", "d", RENAME_SWAP | RENAME_KEEP_TARGET, NULL));
}

PROMISE(rename_can_leave_a_whiteout)
{
	unsigned both = RENAME_LEAVE_WHITEOUT | RENAME_KEEP_TARGET;

	CHECK_RC(0, put(f, "a", "a"));
	CHECK_RC(0, put(f, "b", "b"));
	CHECK_RC(0, make_directory(f, "d"));
	f->ctx.uid = is_root() ? 4321 : f->ctx.uid;
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "a", "b", RENAME_LEAVE_WHITEOUT, NULL));
	CHECK_STRING("a", get(f, "b"));
	CHECK_RC(0, stat_of(f, "a", &f->a));
	CHECK(S_ISCHR(f->a.mode));
	CHECK_RC(0, f->a.rdev);
	CHECK_RC(1, f->a.nlink);
	CHECK_RC(f->ctx.uid, f->a.uid);
	CHECK_RC(-EEXIST, workspace_rename(&f->ctx, f->w, "b", "a", both, NULL));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "d", "e", both, NULL));
	CHECK_RC(0, stat_of(f, "d", &f->a));
	CHECK(S_ISCHR(f->a.mode));
	CHECK_RC(-EINVAL, workspace_rename(&f->ctx, f->w, "b", "a",
				  RENAME_LEAVE_WHITEOUT | RENAME_SWAP, NULL));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "a", NULL));
	CHECK_STRING("b d e", names(f, ""));
}

PROMISE(rename_between_two_names_of_one_object_does_nothing)
{
	CHECK_RC(0, put(f, "a", "x"));
	CHECK_RC(0, workspace_link(&f->ctx, f->w, &OBJECT_AT("a"), "b", &f->a));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "a", "b", 0, NULL));
	CHECK_STRING("a b", names(f, ""));
}

/* ---- Directories ---------------------------------------------------------------------- */

struct attribute_check {
	struct fixture *f;
	size_t count, wrong;
};

static int check_entry(void *user, const struct dir_entry *entry)
{
	struct attribute_check *check = user;
	struct attributes a;

	check->count++;
	if (stat_of(check->f, entry->path, &a) < 0 ||
		!attributes_same_version(&a, &entry->attributes))
		check->wrong++;
	return 0;
}

static int refuse_entry(void *user, const struct dir_entry *entry)
{
	(void)user;
	(void)entry;
	return -EPIPE;
}

PROMISE(readdir_gives_full_attributes)
{
	struct attribute_check check = {.f = f};
	uint64_t since;

	CHECK_RC(0, put(f, "file", "1234"));
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "file", "s", &f->a));
	CHECK_RC(0, workspace_readdir(
			    &f->ctx, f->w, &OBJECT_AT(""), false, check_entry, &check, &since));
	CHECK_RC(3, check.count);
	CHECK_RC(0, check.wrong);
}

PROMISE(readdir_refuses)
{
	struct object_ref stale = {.path = "d", .id = {.device = 1, .inode = 2}};
	uint64_t since;

	CHECK_RC(0, put(f, "file", ""));
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_STRING("<ENOTDIR>", names(f, "file"));
	CHECK_STRING("<ENOENT>", names(f, "missing"));
	CHECK_STRING("", names(f, "d"));
	CHECK_RC(-ESTALE,
		workspace_readdir(&f->ctx, f->w, &stale, false, refuse_entry, NULL, &since));
	CHECK_RC(-EPIPE, workspace_readdir(
				 &f->ctx, f->w, &OBJECT_AT(""), false, refuse_entry, NULL, &since));
}

static int count_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(size_t *)user;
	return 0;
}

PROMISE(readdir_gives_all_of_many)
{
	char name[32];
	size_t count = 0;
	uint64_t since;

	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "entry-with-a-name-%d", i);
		if (!CHECK_RC(0, workspace_mknod(&f->ctx, f->w, name, S_IFREG | 0600, 0, &f->a)))
			break;
	}
	CHECK_RC(0, workspace_readdir(
			    &f->ctx, f->w, &OBJECT_AT(""), false, count_entry, &count, &since));
	CHECK_RC(2000, count);
}

PROMISE(names_may_hold_any_byte)
{
	static const char *const hostile[] = {"a b", "\n", "\\", "\xff\xfe", "-rf", "*", "\"'`$(x)",
		"...", "\x01\x7f", "\xc3\xa9"};

	for (size_t i = 0; i < array_size(hostile); i++) {
		CHECK_RC(0, put(f, hostile[i], hostile[i]));
		CHECK_STRING(hostile[i], names(f, ""));
		CHECK_STRING(hostile[i], get(f, hostile[i]));
		CHECK_RC(0, workspace_unlink(&f->ctx, f->w, hostile[i], NULL));
	}
}

PROMISE(names_may_be_255_bytes_long)
{
	char name[258];

	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	CHECK_RC(0, put(f, name, "x"));
	CHECK_STRING(name, names(f, ""));
	name[255] = 'n';
	name[256] = '\0';
	CHECK_RC(-ENAMETOOLONG, put(f, name, "x"));
	CHECK_RC(-ENAMETOOLONG, stat_of(f, name, &f->a));
}

PROMISE(paths_may_be_longer_than_path_max)
{
	cleanup_buffer struct buffer path = {0};
	char component[251];
	struct attributes a;
	char *deep, *other;

	memset(component, 'c', 250);
	component[250] = '\0';
	for (int i = 0; i < 40; i++) {
		if (i)
			buffer_append_string(&path, "/");
		buffer_append_string(&path, component);
		buffer_append(&path, "", 1);
		if (!CHECK_RC(0, make_directory(f, (const char *)path.data)))
			return;
		path.size--;
	}
	buffer_append(&path, "", 1);
	deep = path_join((const char *)path.data, "file");
	other = path_join((const char *)path.data, "other");
	CHECK_RC(0, put(f, deep, "deep"));
	CHECK_STRING("deep", get(f, deep));
	CHECK_RC(0, stat_of(f, deep, &a));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, deep, other, 0, &a.id));
	CHECK_STRING("other", names(f, (const char *)path.data));
	CHECK_RC(0, workspace_link(&f->ctx, f->w, &OBJECT_AT(other), "near", &f->a));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, other, NULL));
	CHECK_RC(0, workspace_rmdir(&f->ctx, f->w, (const char *)path.data, NULL));
	CHECK_STRING("deep", get(f, "near"));
	free(deep);
	free(other);
}

/* ---- Scanning ------------------------------------------------------------------------- */

struct scan_log {
	char text[2048];
	size_t used;
	bool disordered;
	bool root_seen;
};

static int log_entry(void *user, const struct dir_entry *entry)
{
	struct scan_log *log = user;

	if (!*entry->path)
		log->root_seen = true;
	log->disordered |= !log->root_seen;
	log->used += (size_t)snprintf(log->text + log->used, sizeof(log->text) - log->used,
		"%s%s%s%.*s%s\n", entry->path, entry->link_target ? " -> " : "",
		entry->link_target ? entry->link_target
		: entry->content   ? " = "
				   : "",
		(int)entry->content_size, entry->content ? (const char *)entry->content : "",
		entry->complete ? " complete" : "");
	return 0;
}

static void plant_tree(struct fixture *f)
{
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, put(f, "d/small", "tiny"));
	CHECK_RC(0, put(f, "d/large", "0123456789"));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "to", "d/link", &f->a));
	CHECK_RC(0, make_directory(f, "d/sub"));
	CHECK_RC(0, put(f, "d/sub/f", "x"));
}

PROMISE(scan_walks_a_subtree)
{
	struct scan_request request = {.flags = SCAN_CONTENT, .content_max_bytes = 4};
	struct scan_log log = {.used = 0};

	plant_tree(f);
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &request, log_entry, &log));
	CHECK(!log.disordered);
	CHECK(strstr(log.text, "small = tiny\n"));
	CHECK(strstr(log.text, "large\n"));
	CHECK(strstr(log.text, "link -> to\n"));
	CHECK(strstr(log.text, "sub complete\n"));
	CHECK(strstr(log.text, "sub/f = x\n"));
}

PROMISE(scan_leaves_hidden_directories_out)
{
	struct scan_request request = {
		.flags = SCAN_CONTENT | SCAN_NOT_HIDDEN, .content_max_bytes = 4};
	struct scan_log log = {.used = 0};

	plant_tree(f);
	CHECK_RC(0, make_directory(f, "d/.h"));
	CHECK_RC(0, put(f, "d/.h/f", "x"));
	CHECK_RC(0, put(f, "d/.f", "y"));
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &request, log_entry, &log));
	CHECK(strstr(log.text, ".h\n"));
	CHECK(!strstr(log.text, ".h/f"));
	CHECK(strstr(log.text, ".f = y\n"));
	CHECK(strstr(log.text, "sub/f = x\n"));
}

PROMISE(scan_stays_within_its_bounds)
{
	struct scan_request shallow = {.depth_max = 1}, few = {.entries_max = 1};
	struct scan_log log = {.used = 0}, few_log = {.used = 0};

	plant_tree(f);
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &shallow, log_entry, &log));
	CHECK(!strstr(log.text, "sub/f"));
	CHECK(strstr(log.text, "sub\n"));
	CHECK(strstr(log.text, " complete\n"));
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &few, log_entry, &few_log));
	CHECK(!strstr(few_log.text, "sub/f"));
	CHECK_RC(-ENOENT,
		workspace_scan(&f->ctx, f->w, &OBJECT_AT("none"), &shallow, log_entry, &log));
}

static int count_contents(void *user, const struct dir_entry *entry)
{
	unsigned *contents = user;

	*contents += entry->content != NULL;
	return 0;
}

/* A million empty files would be opened and read one by one. */
PROMISE(scan_brings_few_empty_files)
{
	struct scan_request request = {
		.flags = SCAN_CONTENT, .content_max_bytes = 4, .content_total_bytes = 4096};
	unsigned contents = 0;
	char path[16];

	CHECK_RC(0, make_directory(f, "d"));
	for (unsigned i = 0; i < 40; i++) {
		snprintf(path, sizeof(path), "d/f%u", i);
		CHECK_RC(0, put(f, path, ""));
	}
	CHECK_RC(0, workspace_scan(
			    &f->ctx, f->w, &OBJECT_AT("d"), &request, count_contents, &contents));
	CHECK(contents > 0 && contents <= 16);
}

PROMISE(scan_brings_what_is_read_first)
{
	struct scan_request request = {.flags = SCAN_READ_FIRST};
	struct scan_log log = {.used = 0};

	if (!(f->status.capabilities & WORKSPACE_CAN_READ_FIRST))
		return;
	plant_tree(f);
	CHECK_RC(0, put(f, "d/.gitignore", "*.o"));
	CHECK_RC(0, put(f, "d/sub/Makefile", "all:"));
	CHECK_RC(0, put(f, "d/sub/x.mk", "y"));
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &request, log_entry, &log));
	CHECK(strstr(log.text, ".gitignore = *.o\n"));
	CHECK(strstr(log.text, "sub/Makefile = all:\n"));
	CHECK(strstr(log.text, "sub/x.mk = y\n"));
	CHECK(strstr(log.text, "small\n"));
}

PROMISE(scan_looks_into_git_first)
{
	static const char *const directories[] = {"d/.git", "d/.git/refs", "d/.git/refs/heads",
		"d/.git/objects", "d/.git/objects/00", "d/.git/objects/pack"};
	struct scan_request request = {.flags = SCAN_READ_FIRST, .depth_max = 2, .entries_max = 15};
	struct scan_log log = {.used = 0};

	if (!(f->status.capabilities & WORKSPACE_CAN_READ_FIRST))
		return;
	plant_tree(f);
	for (size_t i = 0; i < array_size(directories); i++)
		CHECK_RC(0, make_directory(f, directories[i]));
	CHECK_RC(0, put(f, "d/.git/HEAD", "ref: x"));
	CHECK_RC(0, put(f, "d/.git/index", "DIRC"));
	CHECK_RC(0, put(f, "d/.git/description", "nothing"));
	CHECK_RC(0, put(f, "d/.git/refs/heads/main", "1234"));
	CHECK_RC(0, put(f, "d/.git/objects/pack/a.pack", "PACK"));
	CHECK_RC(0, put(f, "d/.git/objects/00/object", "zlib"));
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &request, log_entry, &log));
	CHECK(strstr(log.text, ".git/HEAD = ref: x\n"));
	CHECK(strstr(log.text, ".git/index = DIRC\n"));
	CHECK(strstr(log.text, ".git/description\n"));
	CHECK(strstr(log.text, ".git/refs/heads/main = 1234\n"));
	CHECK(strstr(log.text, ".git/objects/pack/a.pack\n"));
	CHECK(!strstr(log.text, ".git/objects/00/object"));
}

/* What a search was told of, a bit each. */
struct search_log {
	unsigned entries;
	bool has_lacks, other_lacks, ignored_told, late_lacks;
};

static int log_searched(void *user, const struct dir_entry *entry)
{
	struct search_log *log = user;

	log->entries++;
	if (strcmp(entry->path, "has") == 0 || strcmp(entry->path, "sub/large") == 0)
		log->has_lacks |= entry->lacks_texts;
	if (strcmp(entry->path, "small") == 0)
		log->other_lacks = entry->lacks_texts;
	if (strcmp(entry->path, "late") == 0)
		log->late_lacks = entry->lacks_texts;
	log->ignored_told |= strncmp(entry->path, "build/", 6) == 0;
	return 0;
}

static void put_large(struct fixture *f, const char *path, const char *text)
{
	struct open_file *file = create_or_fail(f, path, O_WRONLY);
	size_t size = (128 << 10) - 3, length = strlen(text);
	char *content = malloc(size + length);

	if (!file || !content)
		return;
	memset(content, 'x', size);
	memcpy(content + size, text, length);
	CHECK_RC((ssize_t)(size + length),
		workspace_write(&f->ctx, file, content, size + length, 0));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	free(content);
}

static void plant_search(struct fixture *f)
{
	plant_tree(f);
	CHECK_RC(0, put(f, "d/has", "a Needle"));
	CHECK_RC(0, put(f, "d/late", "a\0b"));
	CHECK_RC(0, put(f, "d/.gitignore", "build/\n"));
	CHECK_RC(0, make_directory(f, "d/build"));
	CHECK_RC(0, put(f, "d/build/out", "needle"));
	put_large(f, "d/sub/large", "nEEdle");
}

/* Who has all of it at hand may tell nothing. */
PROMISE(search_tells_which_files_lack_the_texts)
{
	const struct literal_text texts[] = {
		{(const uint8_t *)"needle", 6}, {(const uint8_t *)"nowhere", 7}};
	struct scan_request request = {.flags = SCAN_NOT_IGNORED};
	struct search_log log = {0};
	struct literals *literals = NULL;

	if (!(f->status.capabilities & WORKSPACE_CAN_SEARCH))
		return;
	plant_search(f);
	CHECK_RC(0, literals_new(texts, 2, true, &literals));
	request.texts = literals;
	CHECK_RC(0, workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &request, log_searched, &log));
	CHECK(!log.has_lacks);
	CHECK(!log.ignored_told);
	CHECK(log.other_lacks == (log.entries > 0));
	CHECK(log.late_lacks == (log.entries > 0));
	request.names = "*.[ch";
	CHECK_RC(-EINVAL,
		workspace_scan(&f->ctx, f->w, &OBJECT_AT("d"), &request, log_searched, &log));
	literals_free(literals);
}

PROMISE(statfs_is_plausible)
{
	struct fs_stats st = {0};

	CHECK_RC(0, workspace_check(&f->ctx, f->w));
	CHECK_RC(0, workspace_statfs(&f->ctx, f->w, &st));
	CHECK(st.block_size_bytes >= 512);
	CHECK(st.blocks >= st.blocks_free && st.blocks_free >= st.blocks_available);
	CHECK_RC(255, st.name_max_bytes);
}

/* Of the object at the path, as it is now. */
static bool is_told(struct fixture *f, const struct attributes *told, const char *path)
{
	struct attributes now;
	struct op_context ctx;

	op_context_init(&ctx);
	return workspace_getattr(&ctx, f->w, &OBJECT_AT(path), &now) == 0 &&
	       attributes_same_version(told, &now);
}

static bool only(const struct facts *facts, bool parent, bool new_parent, bool object)
{
	return !facts->parent.mode == !parent && !facts->new_parent.mode == !new_parent &&
	       !facts->object.mode == !object;
}

PROMISE(changes_of_names_tell_what_they_left)
{
	struct object_ref f1 = OBJECT_AT("d/f");
	struct open_file *file = NULL;
	struct facts facts;

	if (f->is_ahead)
		return;
	CHECK_RC(0, make_directory(f, "d"));
	CHECK_RC(0, make_directory(f, "e"));
	f->ctx.facts = &facts;
	CHECK_RC(0, workspace_mkdir(&f->ctx, f->w, "d/sub", 0755, &f->a));
	CHECK(only(&facts, true, false, false) && is_told(f, &facts.parent, "d"));
	CHECK_RC(0, workspace_mknod(&f->ctx, f->w, "d/f", S_IFREG | 0644, 0, &f->a));
	CHECK(only(&facts, true, false, false) && is_told(f, &facts.parent, "d"));
	CHECK_RC(0, workspace_symlink(&f->ctx, f->w, "to", "d/link", &f->a));
	CHECK(only(&facts, true, false, false) && is_told(f, &facts.parent, "d"));
	CHECK_RC(0, workspace_link(&f->ctx, f->w, &f1, "e/f", &f->a));
	CHECK(only(&facts, true, false, false) && is_told(f, &facts.parent, "e"));
	CHECK_RC(0, workspace_unlink(&f->ctx, f->w, "e/f", NULL));
	CHECK(only(&facts, true, false, false) && is_told(f, &facts.parent, "e"));
	CHECK_RC(0, workspace_rmdir(&f->ctx, f->w, "d/sub", NULL));
	CHECK(only(&facts, true, false, false) && is_told(f, &facts.parent, "d"));
	CHECK_RC(0, workspace_rename(&f->ctx, f->w, "d/f", "e/g", 0, NULL));
	CHECK(only(&facts, true, true, true) && is_told(f, &facts.parent, "d"));
	CHECK(is_told(f, &facts.new_parent, "e") && is_told(f, &facts.object, "e/g"));
	CHECK_RC(0, workspace_create(&f->ctx, f->w, "d/c", O_RDWR, 0644, &file, &f->a));
	CHECK(only(&facts, true, false, false) && is_told(f, &facts.parent, "d"));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	CHECK_RC(-ENOENT, workspace_unlink(&f->ctx, f->w, "d/none", NULL));
	CHECK(only(&facts, false, false, false));
	f->ctx.facts = NULL;
}

PROMISE(changes_of_content_tell_what_they_left)
{
	struct open_file *file = NULL;
	struct facts facts;

	if (f->is_ahead)
		return;
	f->ctx.facts = &facts;
	CHECK_RC(0, workspace_create(&f->ctx, f->w, "f", O_RDWR, 0644, &file, &f->a));
	CHECK_RC(4, workspace_write(&f->ctx, file, "text", 4, 0));
	if (!facts.object.mode) /* it was queued: */
		CHECK_RC(0, workspace_flush(&f->ctx, file));
	CHECK(f->ctx.served.position > 0);
	CHECK(only(&facts, false, false, true) && is_told(f, &facts.object, "f"));
	CHECK_RC(4, facts.object.size_bytes);
	if (workspace_fallocate(&f->ctx, file, 0, 0, 1000) == 0) {
		CHECK(only(&facts, false, false, true) && is_told(f, &facts.object, "f"));
		CHECK_RC(1000, facts.object.size_bytes);
	}
	if (workspace_setxattr(&f->ctx, f->w, &OBJECT_OF(file), "user.x", "1", 1, 0) == 0)
		CHECK(only(&facts, false, false, true) && is_told(f, &facts.object, "f"));
	CHECK_RC(0, workspace_close(&f->ctx, file));
	f->ctx.facts = NULL;
}

PROMISE(positions_are_in_the_order_of_looks_and_changes)
{
	uint64_t looked, made, missed;
	struct workspace_status status;

	if (f->is_ahead)
		return;
	CHECK_RC(-ENOENT, stat_of(f, "d", &f->a));
	workspace_status(f->w, &status);
	if (status.cache_hits + status.cache_misses > 0)
		return; /* who answers by a cache need not say when the place was looked at */
	looked = f->ctx.served.position;
	CHECK(looked > 0);
	CHECK_RC(0, make_directory(f, "d"));
	made = f->ctx.served.position;
	CHECK(made > looked);
	CHECK_RC(0, stat_of(f, "d", &f->a));
	looked = f->ctx.served.position;
	CHECK(looked > made);
	CHECK_RC(0, workspace_rmdir(&f->ctx, f->w, "d", NULL));
	made = f->ctx.served.position;
	CHECK(made > looked);
	CHECK_RC(-ENOENT, workspace_unlink(&f->ctx, f->w, "d", NULL));
	missed = f->ctx.served.position;
	CHECK(missed > made);
}

TEST_GROUP(names_promises, TEST(root_is_a_directory), TEST(getattr_says_why_a_path_leads_nowhere),
	TEST(paths_that_are_not_normal_are_refused),
	TEST(no_component_is_followed_when_it_is_a_link),
	TEST(what_takes_over_an_inode_number_has_another_identity),
	TEST(an_identity_does_not_open_a_way_through_a_link), TEST(mkdir_makes_a_directory),
	TEST(modes_are_exact), TEST(new_objects_belong_to_the_caller),
	TEST(a_umask_takes_bits_away), TEST(a_set_group_id_directory_gives_its_group),
	TEST(mknod_makes_what_is_asked), TEST(a_symbolic_link_keeps_its_target),
	TEST(readlink_refuses_what_is_no_link), TEST(link_gives_one_object_two_names),
	TEST(link_refuses), TEST(a_link_to_a_symbolic_link_is_one), TEST(unlink_removes_files_only),
	TEST(rmdir_removes_empty_directories_only),
	TEST(removing_another_object_than_expected_is_stale),
	TEST(a_name_in_another_directory_than_meant_is_stale), TEST(rename_moves_and_replaces),
	TEST(rename_moves_whole_directories), TEST(rename_refuses),
	TEST(rename_can_keep_the_target), TEST(rename_can_swap), TEST(rename_can_leave_a_whiteout),
	TEST(rename_between_two_names_of_one_object_does_nothing),
	TEST(readdir_gives_full_attributes), TEST(readdir_refuses), TEST(readdir_gives_all_of_many),
	TEST(names_may_hold_any_byte), TEST(names_may_be_255_bytes_long),
	TEST(paths_may_be_longer_than_path_max), TEST(scan_walks_a_subtree),
	TEST(scan_leaves_hidden_directories_out), TEST(scan_stays_within_its_bounds),
	TEST(scan_brings_few_empty_files), TEST(scan_brings_what_is_read_first),
	TEST(scan_looks_into_git_first), TEST(search_tells_which_files_lack_the_texts),
	TEST(statfs_is_plausible), TEST(changes_of_names_tell_what_they_left),
	TEST(changes_of_content_tell_what_they_left),
	TEST(positions_are_in_the_order_of_looks_and_changes));
