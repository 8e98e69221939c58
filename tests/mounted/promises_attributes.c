#include "tests/mounted/promises.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>

#include "ops/support/cleanup.h"

PROMISE(times_are_kept_to_the_nanosecond)
{
	struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 123456789},
		{.tv_sec = 2000000000, .tv_nsec = 987654321}};
	struct timespec omit[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 5}};
	struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	time_t before = time(NULL) - 2;
	struct stat st;

	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "f", times, 0)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(123456789, st.st_atim.tv_nsec);
	CHECK_RC(2000000000, st.st_mtim.tv_sec);
	CHECK_RC(987654321, st.st_mtim.tv_nsec);
	CHECK(st.st_ctim.tv_sec >= before);
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "f", omit, 0)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(1000, st.st_atim.tv_sec);
	CHECK_RC(5, st.st_mtim.tv_sec);
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "f", now, 0)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK(st.st_atim.tv_sec >= before);
	CHECK_RC(5, st.st_mtim.tv_sec);
}

PROMISE(times_may_be_far_away)
{
	struct timespec times[2] = {{.tv_sec = -1, .tv_nsec = 500000000}, {.tv_sec = 13000000000}};
	struct stat st;

	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "f", times, 0)));
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(-1, st.st_atim.tv_sec);
	CHECK_RC(500000000, st.st_atim.tv_nsec);
	CHECK(st.st_mtim.tv_sec > 2000000000); /* what the workspace can keep */
}

PROMISE(changing_attributes_of_a_new_file_shows_in_its_ctime)
{
	struct timespec access_only[2] = {{.tv_sec = 1000}, {.tv_nsec = UTIME_OMIT}};
	cleanup_fd int fd = open("f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	struct stat made, touched, changed;

	CHECK_RC(0, SYS(fstat(fd, &made)));
	usleep(20000);
	CHECK_RC(0, SYS(futimens(fd, access_only)));
	CHECK_RC(0, SYS(fstat(fd, &touched)));
	CHECK(made.st_ctim.tv_sec != touched.st_ctim.tv_sec ||
		made.st_ctim.tv_nsec != touched.st_ctim.tv_nsec);
	CHECK_RC(0, made.st_mtim.tv_nsec - touched.st_mtim.tv_nsec);
	usleep(20000);
	CHECK_RC(0, SYS(fchmod(fd, 0600)));
	CHECK_RC(0, SYS(fstat(fd, &changed)));
	CHECK(touched.st_ctim.tv_sec != changed.st_ctim.tv_sec ||
		touched.st_ctim.tv_nsec != changed.st_ctim.tv_nsec);
}

PROMISE(access_tells_what_may_be_executed)
{
	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(chmod("f", 0644)));
	CHECK_RC(0, SYS(access("f", R_OK)));
	CHECK_RC(-EACCES, SYS(access("f", X_OK)));
	CHECK_RC(0, SYS(chmod("f", 0755)));
	CHECK_RC(0, SYS(access("f", X_OK)));
	CHECK_RC(0, SYS(access(".", R_OK | W_OK | X_OK)));
	CHECK_RC(-ENOENT, SYS(access("none", F_OK)));
}

PROMISE(directories_show_when_their_names_changed)
{
	struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct stat st;

	CHECK_RC(0, SYS(mkdir("d", 0755)));
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "d", old, 0)));
	CHECK_RC(0, put("d/f", ""));
	CHECK_RC(0, SYS(stat("d", &st)));
	CHECK(st.st_mtim.tv_sec > 1);
	CHECK_RC(0, SYS(utimensat(AT_FDCWD, "d", old, 0)));
	CHECK_RC(0, SYS(unlink("d/f")));
	CHECK_RC(0, SYS(stat("d", &st)));
	CHECK(st.st_mtim.tv_sec > 1);
	CHECK_RC(0, SYS(mkdir("d/sub", 0755)));
	CHECK_RC(3, links_of("d"));
	CHECK_RC(0, SYS(rmdir("d/sub")));
	CHECK_RC(2, links_of("d"));
}

PROMISE(xattrs_are_kept)
{
	char text[64];

	CHECK_RC(0, put("f", "x"));
	if (SYS(setxattr("f", "user.a", "one", 3, XATTR_CREATE)) == -EOPNOTSUPP)
		return;
	CHECK_RC(-EEXIST, SYS(setxattr("f", "user.a", "1", 1, XATTR_CREATE)));
	CHECK_RC(-ENODATA, SYS(setxattr("f", "user.b", "1", 1, XATTR_REPLACE)));
	CHECK_RC(3, SYS(getxattr("f", "user.a", text, sizeof(text))));
	CHECK_RC(-ERANGE, SYS(getxattr("f", "user.a", text, 2)));
	CHECK_RC(-ENODATA, SYS(getxattr("f", "user.b", text, sizeof(text))));
	CHECK_RC(7, SYS(listxattr("f", text, sizeof(text))));
	CHECK_RC(0, SYS(removexattr("f", "user.a")));
	CHECK_RC(0, SYS(listxattr("f", text, sizeof(text))));
}

PROMISE(statfs_is_that_of_the_workspace)
{
	struct statvfs here, there;

	CHECK_RC(0, SYS(statvfs(".", &here)));
	CHECK_RC(255, here.f_namemax);
	if (!*backing)
		return;
	CHECK_RC(0, SYS(statvfs(backing, &there)));
	CHECK_RC(there.f_blocks, here.f_blocks);
	CHECK_RC(there.f_files, here.f_files);
	CHECK_RC(there.f_frsize, here.f_frsize);
}

PROMISE(inode_numbers_are_those_of_the_workspace)
{
	struct stat here, there;
	char path[PATH_MAX];

	if (!*backing)
		return;
	CHECK_RC(0, put("f", "x"));
	elsewhere(backing, "f", path, sizeof(path));
	CHECK_RC(0, SYS(stat("f", &here)));
	CHECK_RC(0, SYS(stat(path, &there)));
	CHECK_RC(there.st_ino, here.st_ino);
}

TEST_GROUP(attributes_promises, TEST(times_are_kept_to_the_nanosecond), TEST(times_may_be_far_away),
	TEST(changing_attributes_of_a_new_file_shows_in_its_ctime),
	TEST(access_tells_what_may_be_executed), TEST(directories_show_when_their_names_changed),
	TEST(xattrs_are_kept), TEST(statfs_is_that_of_the_workspace),
	TEST(inode_numbers_are_those_of_the_workspace));
