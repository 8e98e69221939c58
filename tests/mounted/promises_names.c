#include "tests/mounted/promises.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "ops/support/cleanup.h"

static ino_t inode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? 0 : st.st_ino;
}

PROMISE(hard_links_are_one_inode)
{
	CHECK_RC(0, put("a", "text"));
	CHECK_RC(0, SYS(link("a", "b")));
	CHECK_RC(2, links_of("a"));
	CHECK_RC(2, links_of("b"));
	CHECK_RC(inode_of("a"), inode_of("b"));
	CHECK_RC(0, put("b", "other"));
	CHECK_STRING("other", get("a"));
	CHECK_RC(0, SYS(chmod("a", 0600)));
	CHECK_RC(0, SYS(unlink("a")));
	CHECK_RC(1, links_of("b"));
	CHECK_STRING("other", get("b"));
}

PROMISE(unlinked_files_live_on)
{
	cleanup_fd int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;
	char text[8];

	CHECK_RC(3, SYS(write(fd, "old", 3)));
	CHECK_RC(0, SYS(unlink("f")));
	CHECK_RC(0, put("f", "new"));
	CHECK_RC(3, SYS(pread(fd, text, sizeof(text), 0)));
	CHECK(memcmp(text, "old", 3) == 0);
	CHECK_RC(4, SYS(pwrite(fd, "more", 4, 3)));
	CHECK_RC(0, SYS(ftruncate(fd, 5)));
	CHECK_RC(0, SYS(fchmod(fd, 0640)));
	CHECK_RC(0, SYS(fstat(fd, &st)));
	CHECK_RC(5, st.st_size);
	CHECK_RC(0, st.st_nlink);
	CHECK_RC(S_IFREG | 0640, st.st_mode);
	CHECK_STRING("new", get("f"));
}

PROMISE(open_files_survive_being_replaced)
{
	cleanup_fd int fd = -1;
	char text[8];

	CHECK_RC(0, put("target", "target"));
	CHECK_RC(0, put("new", "new"));
	fd = open("target", O_RDWR | O_CLOEXEC);
	CHECK_RC(0, SYS(rename("new", "target")));
	CHECK_RC(6, SYS(pread(fd, text, sizeof(text), 0)));
	CHECK_RC(1, SYS(pwrite(fd, "T", 1, 0)));
	CHECK_STRING("new", get("target"));
}

/* What replaces it may have the number that the workspace has freed with it. */
PROMISE(open_files_keep_their_number_for_themselves)
{
	for (int i = 0; i < 20; i++) {
		CHECK_RC(0, put("f", "small"));

		cleanup_fd int fd = open("f", O_RDONLY | O_CLOEXEC);
		char text[8];
		struct stat st;

		CHECK_RC(5, SYS(read(fd, text, sizeof(text))));
		for (int k = 0; k < 3; k++) {
			CHECK_RC(0, put("new", "newer"));
			CHECK_RC(0, SYS(rename("new", "f")));
			CHECK_RC(0, SYS(fstat(fd, &st)));
			CHECK(inode_of("f") != st.st_ino);
		}
	}
}

PROMISE(rename_flags_are_kept)
{
	CHECK_RC(0, put("a", "a"));
	CHECK_RC(0, SYS(mkdir("d", 0755)));
	CHECK_RC(0, put("d/f", "f"));
	CHECK_RC(-EEXIST, SYS(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_NOREPLACE)));
	CHECK_RC(0, SYS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE)));
	CHECK_RC(0, SYS(renameat2(AT_FDCWD, "b", AT_FDCWD, "d", RENAME_EXCHANGE)));
	CHECK_STRING("a", get("d"));
	CHECK_STRING("f", get("b/f"));
	CHECK_RC(-ENOENT, SYS(renameat2(AT_FDCWD, "d", AT_FDCWD, "none", RENAME_EXCHANGE)));
}

PROMISE(rename_can_leave_a_whiteout)
{
	struct stat st;

	for (int i = 0; i < 20; i++) {
		CHECK_RC(0, put("a", "a"));
		CHECK_RC(0, put("b", "b"));
		CHECK_RC(0, SYS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_WHITEOUT)));
		CHECK_STRING("a", get("b"));
		CHECK_RC(0, SYS(stat("a", &st)));
		CHECK(S_ISCHR(st.st_mode) && st.st_rdev == 0);
		CHECK_RC(0, SYS(unlink("a")));
		CHECK_RC(-ENOENT, SYS(stat("a", &st)));
	}
}

PROMISE(a_working_directory_can_be_moved_and_removed)
{
	char here[PATH_MAX];

	CHECK_RC(0, SYS(mkdir("d", 0755)));
	CHECK_RC(0, SYS(chdir("d")));
	CHECK_RC(0, put("f", "x"));
	CHECK_RC(0, SYS(rename("../d", "../e")));
	CHECK_STRING("x", get("f"));
	CHECK(getcwd(here, sizeof(here)) && strcmp(here + strlen(here) - 2, "/e") == 0);
	CHECK_RC(0, SYS(unlink("f")));
	CHECK_RC(0, SYS(rmdir("../e")));
	CHECK_RC(-ENOENT, put("g", "x"));
	CHECK_RC(0, size_of(".") < 0);
}

PROMISE(names_may_hold_any_byte)
{
	char name[256];

	for (int byte = 1; byte < 256; byte++) {
		if (byte == '/')
			continue;
		snprintf(name, sizeof(name), "x%cx", byte);
		CHECK_RC(0, put(name, "x"));
		CHECK_STRING("x", get(name));
	}
	for (int i = 0; i < 255; i++)
		name[i] = (char)(1 + (i * 37 + 200) % 255 == '/' ? 'y' : 1 + (i * 37 + 200) % 255);
	name[255] = '\0';
	CHECK_RC(0, put(name, "long"));
	CHECK_STRING("long", get(name));
	CHECK_RC(0, SYS(rename(name, "short")));
	CHECK_RC(0, SYS(rename("short", name)));
	CHECK_RC(0, SYS(unlink(name)));
}

/* Directories nest by chdir deeper than a path can say. */
PROMISE(paths_may_be_longer_than_path_max)
{
	char name[201];
	int depth;

	memset(name, 'd', 200);
	name[200] = '\0';
	for (depth = 0; depth < 40; depth++)
		if (!CHECK_RC(0, SYS(mkdir(name, 0755))) || !CHECK_RC(0, SYS(chdir(name))))
			break;
	CHECK_RC(0, put("f", "deep"));
	CHECK_STRING("deep", get("f"));
	CHECK_RC(0, SYS(rename("f", "g")));
	CHECK_RC(4, size_of("g"));
	CHECK_RC(0, SYS(symlink("g", "s")));
	CHECK_STRING("deep", get("s"));
	CHECK_RC(0, SYS(unlink("g")));
	CHECK_RC(0, SYS(unlink("s")));
	for (; depth > 0; depth--) {
		CHECK_RC(0, SYS(chdir("..")));
		CHECK_RC(0, SYS(rmdir(name)));
	}
}

PROMISE(o_excl_has_one_winner)
{
	cleanup_fd int fd = open("f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_RC(-EEXIST, SYS(open("f", O_RDWR | O_CREAT | O_EXCL, 0600)));
	CHECK_RC(0, SYS(symlink("nowhere", "s")));
	CHECK_RC(-EEXIST, SYS(open("s", O_RDWR | O_CREAT | O_EXCL, 0600)));
}

PROMISE(unnamed_files_work_or_are_refused)
{
	cleanup_fd int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[64];

	if (fd < 0) {
		CHECK_RC(EOPNOTSUPP, errno);
		return;
	}
	CHECK_RC(4, SYS(write(fd, "text", 4)));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_RC(0, SYS(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW)));
	CHECK_STRING("text", get("named"));
}

PROMISE(umask_counts)
{
	mode_t before = umask(027);
	struct stat st;

	CHECK_RC(0, SYS(mkdir("d", 0777)));
	close(open("f", O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
	umask(before);
	CHECK_RC(0, SYS(stat("d", &st)));
	CHECK_RC(0750, st.st_mode & 07777);
	CHECK_RC(0, SYS(stat("f", &st)));
	CHECK_RC(0640, st.st_mode & 07777);
}

PROMISE(fifos_and_sockets_work)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
	cleanup_fd int reader = -1, writer = -1, server = -1, client = -1;
	char text[4];

	CHECK_RC(0, SYS(mkfifo("fifo", 0600)));
	reader = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	writer = open("fifo", O_WRONLY | O_CLOEXEC);
	CHECK_RC(2, SYS(write(writer, "hi", 2)));
	CHECK_RC(2, SYS(read(reader, text, sizeof(text))));
	server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_RC(0, SYS(bind(server, (struct sockaddr *)&address, sizeof(address))));
	CHECK_RC(0, SYS(listen(server, 1)));
	CHECK_RC(0, SYS(connect(client, (struct sockaddr *)&address, sizeof(address))));
}

TEST_GROUP(names_promises, TEST(hard_links_are_one_inode), TEST(unlinked_files_live_on),
	TEST(open_files_survive_being_replaced), TEST(open_files_keep_their_number_for_themselves),
	TEST(rename_flags_are_kept), TEST(rename_can_leave_a_whiteout),
	TEST(a_working_directory_can_be_moved_and_removed), TEST(names_may_hold_any_byte),
	TEST(paths_may_be_longer_than_path_max), TEST(o_excl_has_one_winner),
	TEST(unnamed_files_work_or_are_refused), TEST(umask_counts), TEST(fifos_and_sockets_work));
