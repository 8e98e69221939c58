/* What tools/base/files.h promises where the scripts cannot look. */
#include "tests/check.h"

#include "tests/rename_without_flags.h"
#include "tools/base/files.h"

static void test_new_files_are_written_where_rename_knows_no_flags(void)
{
	char directory[64] = "/tmp/isthmus-test-files-XXXXXX";
	struct buffer content = {0};
	struct files_root root;

	CHECK(mkdtemp(directory) != NULL);
	CHECK_RC(0, files_root_open(directory, &root));
	rename_knows_no_flags = true;
	CHECK_RC(0, files_write(&root, "new", "text", 4, FILES_MUST_CREATE, NULL));
	CHECK_RC(-EEXIST, files_write(&root, "new", "other", 5, FILES_MUST_CREATE, NULL));
	rename_knows_no_flags = false;
	CHECK_RC(0, files_read(&root, "new", 100, &content, NULL));
	CHECK_RC(4, content.size);
	buffer_done(&content);
	files_root_close(&root);
	CHECK_RC(0, remove(strcat(directory, "/new")));
	*strrchr(directory, '/') = '\0';
	CHECK_RC(0, rmdir(directory)); /* no temporary file is left */
}

TEST_MAIN("files", TEST(test_new_files_are_written_where_rename_knows_no_flags))
