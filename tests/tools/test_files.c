/* What tools/base/files.h promises where the scripts cannot look. */
#include "tests/check.h"

#include <sys/stat.h>

#include "ops/support/json.h"
#include "tests/remove_tree.h"
#include "tests/rename_without_flags.h"
#include "tools/base/files.h"
#include "tools/base/schema.h"
#include "tools/base/registry.h"
#include "tools/run.h"

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

/* ---- A file system that fails ----------------------------------------------------------- */

static bool truncation_fails, answers_are_lost;

int ftruncate(int fd, off_t size)
{
	if (truncation_fails) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_ftruncate, fd, size);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
	long r = syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);

	if (r == 0 && answers_are_lost) {
		errno = EIO;
		return -1;
	}
	return (int)r;
}

static void check_content(const struct files_root *root, const char *path, const char *want)
{
	struct buffer content = {0};

	CHECK_RC(0, files_read(root, path, 100, &content, NULL));
	CHECK_RC(0, buffer_append(&content, "", 1));
	CHECK_STRING(want, (const char *)content.data);
	buffer_done(&content);
}

/* The change fails by `*how`, which leaves `left` in the file. */
static void check_backup_stays(struct tool_session *session,
	const char *const tool_and_arguments[2], bool *how, const char *left)
{
	struct tool_call *call;

	CHECK_RC(0, files_write(&session->root, "f", "old\n", 4, 0, NULL));
	call = tool_call_new(session, registry_find(tool_and_arguments[0]),
		cJSON_Parse(tool_and_arguments[1]), "test");
	if (!CHECK(call != NULL))
		return;
	*how = true;
	CHECK_RC(-1, tool_run(call));
	*how = false;
	CHECK_RC(TOOL_IO_ERROR, call->code);
	check_content(&session->root, "f", left);
	check_content(&session->root, "f.bak", "old\n");
	CHECK(call->message && strstr(call->message, "its old content is in \"f.bak\"."));
	CHECK(call->ai_message && strstr(call->ai_message, "its old content is in \"f.bak\"."));
	CHECK_STRING("f.bak", json_text(call->data, "backup"));
	CHECK_RC(0, unlinkat(session->root.fd, "f.bak", 0));
	tool_call_free(call);
}

static void test_a_backup_stays_where_the_old_content_is_lost(void)
{
	static const char *const calls[][2] = {
		{"edit", "{\"path\":\"f\",\"create_backup\":true,\"edits\":[{\"old_text\":"
			 "\"old\",\"new_text\":\"new and longer\"}]}"},
		{"edit_file", "{\"path\":\"f\",\"content\":\"new and longer\\n\"}"},
	};
	char directory[64] = "/tmp/isthmus-test-files-XXXXXX";
	struct tool_session session = {0};

	CHECK(mkdtemp(directory) != NULL);
	CHECK_RC(0, setenv("XDG_STATE_HOME", directory, 1));
	CHECK_RC(0, tool_session_open(directory, &session));
	for (size_t i = 0; i < array_size(calls); i++)
		check_backup_stays(&session, calls[i], &answers_are_lost, "new and longer\n");
	CHECK_RC(0, linkat(session.root.fd, "f", session.root.fd, "link", 0));
	for (size_t i = 0; i < array_size(calls); i++)
		check_backup_stays(&session, calls[i], &truncation_fails, "old\nand longer\n");
	tool_session_close(&session);
	CHECK_RC(0, remove_tree(directory));
}

static void test_a_refusal_that_has_no_room_is_not_half_a_sentence(void)
{
	struct buffer problem cleanup_buffer = {.limit_bytes = 24};
	cJSON *schema = cJSON_Parse("{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"one\","
				    "\"two\",\"three\"]}},\"additionalProperties\":false}");
	cJSON *other = cJSON_Parse("{\"a\":\"four\"}"), *unknown = cJSON_Parse("{\"b\":1}");

	CHECK_RC(-EMSGSIZE, schema_check(schema, other, &problem));
	problem.size = 0;
	CHECK_RC(-EMSGSIZE, schema_check(schema, unknown, &problem));
	problem.size = problem.limit_bytes = 0;
	CHECK_RC(-EINVAL, schema_check(schema, other, &problem));
	cJSON_Delete(schema);
	cJSON_Delete(other);
	cJSON_Delete(unknown);
}

TEST_MAIN("files", TEST(test_new_files_are_written_where_rename_knows_no_flags),
	TEST(test_a_backup_stays_where_the_old_content_is_lost),
	TEST(test_a_refusal_that_has_no_room_is_not_half_a_sentence))
