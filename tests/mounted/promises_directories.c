#include "tests/mounted/promises.h"

#include <dirent.h>
#include <fcntl.h>

#include "ops/support/cleanup.h"

PROMISE(a_file_that_is_being_written_is_listed)
{
	cleanup_fd int fd = -1;

	CHECK_RC(0, entries_of_dot());
	fd = open("new", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	CHECK_RC(4, SYS(write(fd, "text", 4)));
	CHECK_RC(1, entries_of_dot());
	CHECK_RC(4, SYS(write(fd, "text", 4)));
	CHECK_RC(1, entries_of_dot());
}

/* What the feed tells of the directory that had the name before does not reach the new one. */
PROMISE(a_working_directory_that_was_made_anew_has_a_path)
{
	for (int round = 0; round < 100; round++) {
		CHECK_RC(0, SYS(mkdir("again", 0755)));
		CHECK_RC(0, SYS(chdir("again")));
		for (int i = 0; i < 4; i++) {
			cleanup_free char *path = NULL;

			CHECK_RC(0, SYS(mknod("file", S_IFREG | 0600, 0)));
			path = getcwd(NULL, 0);
			if (!CHECK(path != NULL))
				return;
			CHECK_RC(0, SYS(unlink("file")));
		}
		CHECK_RC(0, SYS(chdir("..")));
		CHECK_RC(0, SYS(rmdir("again")));
	}
}

/* What was there all the time is seen once, whatever comes and goes meanwhile; a position that
 * telldir() gave leads back to where it was. */
PROMISE(a_large_directory_is_listed_stably)
{
	const char *wish = getenv("DIRECTORY_ENTRIES");
	int entries = wish ? atoi(wish) : 5000, seen = 0, checked = 0;
	cleanup_free char *found = calloc((size_t)entries, 1);
	long middle = -1;
	char name[32], middle_name[256] = "";
	cleanup_dir DIR *stream = NULL;

	for (int i = 0; i < entries; i++) {
		snprintf(name, sizeof(name), "stay%d", i);
		if (!CHECK_RC(0, SYS(mknod(name, S_IFREG | 0600, 0))))
			return;
	}
	CHECK_RC(entries, entries_of_dot());
	stream = opendir(".");
	for (const struct dirent *d; (d = readdir(stream));) {
		int number;

		if (sscanf(d->d_name, "stay%d", &number) != 1 || number >= entries)
			continue;
		CHECK_RC(0, found[number]);
		found[number] = 1;
		seen++;
		if (seen % 100 == 0) {
			snprintf(name, sizeof(name), "come%d", seen);
			CHECK_RC(0, SYS(mknod(name, S_IFREG | 0600, 0)));
			CHECK_RC(0, SYS(unlink(name)));
		}
		if (seen == entries / 2) {
			middle = telldir(stream);
			d = readdir(stream);
			snprintf(middle_name, sizeof(middle_name), "%s", d ? d->d_name : "");
			seekdir(stream, middle);
		}
	}
	CHECK_RC(entries, seen);
	seekdir(stream, middle);
	for (const struct dirent *d; (d = readdir(stream)); checked++)
		if (checked == 0)
			CHECK_STRING(middle_name, d->d_name);
	rewinddir(stream);
	for (int i = 0; i < entries; i++) {
		snprintf(name, sizeof(name), "stay%d", i);
		unlink(name);
	}
	CHECK_RC(0, entries_of_dot());
}

PROMISE(a_directory_can_be_emptied_while_it_is_read)
{
	cleanup_dir DIR *stream = NULL;
	char name[32];

	for (int i = 0; i < 1500; i++) {
		snprintf(name, sizeof(name), "%d", i);
		mknod(name, S_IFREG | 0600, 0);
	}
	stream = opendir(".");
	for (const struct dirent *d; (d = readdir(stream));)
		if (d->d_name[0] != '.')
			CHECK_RC(0, SYS(unlink(d->d_name)));
	CHECK_RC(0, entries_of_dot());
}

TEST_GROUP(directories_promises, TEST(a_working_directory_that_was_made_anew_has_a_path),
	TEST(a_file_that_is_being_written_is_listed), TEST(a_large_directory_is_listed_stably),
	TEST(a_directory_can_be_emptied_while_it_is_read));
