#include <fcntl.h>

#include "backends/backend.h"
#include "ops/faulty.h"
#include "ops/forward.h"
#include "ops/support/exec.h"
#include "tests/check.h"

static struct op_context context;

static struct workspace *new_workspace(const char *specification)
{
	struct workspace *inner = NULL, *w = NULL;
	char *reason = NULL;

	op_context_init(&context);
	CHECK_RC(0, scheme_open("mem", "", NULL, &inner, &reason));
	CHECK_RC(0, faulty_new(inner, specification, &w));
	return w;
}

static void test_the_third_write_fails_and_the_fourth_does_not(void)
{
	struct workspace *w = new_workspace("write:3:ENOSPC");
	struct object_ref object = OBJECT_AT("file");
	struct open_file *file = NULL;
	struct attributes attributes;

	CHECK_RC(0, workspace_create(&context, w, "file", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(1, workspace_write(&context, file, "a", 1, 0));
	CHECK_RC(1, workspace_write(&context, file, "b", 1, 1));
	CHECK_RC(-ENOSPC, workspace_write(&context, file, "c", 1, 2));
	CHECK_RC(0, workspace_getattr(&context, w, &object, &attributes));
	CHECK_RC(2, attributes.size_bytes);
	CHECK_RC(1, workspace_write(&context, file, "d", 1, 2));
	CHECK_RC(4, faulty_calls(w, "write"));
	CHECK_RC(0, workspace_close(&context, file));
	workspace_free(w);
}

static void test_a_plus_fails_all_later_calls(void)
{
	struct workspace *w = new_workspace("mkdir:2+:EIO,rmdir:1:EBUSY");
	struct attributes attributes;

	CHECK_RC(0, workspace_mkdir(&context, w, "a", 0755, &attributes));
	CHECK_RC(-EIO, workspace_mkdir(&context, w, "b", 0755, &attributes));
	CHECK_RC(-EIO, workspace_mkdir(&context, w, "b", 0755, &attributes));
	CHECK_RC(-EBUSY, workspace_rmdir(&context, w, "a", NULL));
	CHECK_RC(0, workspace_rmdir(&context, w, "a", NULL));
	CHECK_RC(0, faulty_set(w, ""));
	CHECK_RC(0, workspace_mkdir(&context, w, "b", 0755, &attributes));
	CHECK_RC(1, faulty_calls(w, NULL));
	workspace_free(w);
}

static void test_a_failed_close_still_closes(void)
{
	struct workspace *w = new_workspace("close:1:EIO");
	struct open_file *file = NULL;
	struct attributes attributes;

	CHECK_RC(0, workspace_create(&context, w, "file", O_RDWR, 0644, &file, &attributes));
	CHECK_RC(-EIO, workspace_close(&context, file));
	workspace_free(w);
}

static void test_bad_specifications_are_refused(void)
{
	static const char *const bad[] = {"write", "write:1", "write:0:EIO", "write:x:EIO",
		"write:1:EWHAT", "rite:1:EIO", "write:1-:EIO", "read:1:EIO,write"};
	struct workspace *w = new_workspace("");

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_RC(-EINVAL, faulty_set(w, bad[i]));
	workspace_free(w);
}

/* ---- A row for every operation -------------------------------------------------- */

static void do_nothing(void) {}

/* A workspace that has every operation, so that nothing is masked. */
static struct workspace_ops full_ops(void)
{
	struct workspace_ops ops = {.name = "full"};
	void (*function)(void) = do_nothing;

	for (size_t slot = 0; slot < OPERATION_COUNT; slot++)
		memcpy((char *)&ops + offsetof(struct workspace_ops, free) +
				slot * sizeof(function),
			&function, sizeof(function));
	return ops;
}

static void test_every_operation_has_a_row(void)
{
	struct workspace_ops ops = full_ops();
	struct workspace full = {.ops = &ops}, *w = NULL;

	CHECK_RC(0, faulty_new(&full, "", &w));
#define CHECK_ROW(w, name)                            \
	if (OPERATION_##name != OPERATION_descriptor) \
		CHECK((w)->ops->name != NULL);
	WORKSPACE_OPERATIONS(CHECK_ROW, w)
	CHECK(w->ops->descriptor == NULL); /* reads through it would go past the faults */
	free(w);
}

static void test_what_the_inner_workspace_lacks_is_lacking(void)
{
	struct workspace *w = new_workspace("");
	struct exec_request request = {.command = "true", .cwd = ""};
	struct process *process = NULL;

	CHECK(w->ops->exec == NULL);
	CHECK(w->ops->watch == NULL);
	CHECK_RC(-EOPNOTSUPP, workspace_exec(&context, w, &request, &process));
	workspace_free(w);
}

TEST_MAIN("faulty", TEST(test_the_third_write_fails_and_the_fourth_does_not),
	TEST(test_a_plus_fails_all_later_calls), TEST(test_a_failed_close_still_closes),
	TEST(test_bad_specifications_are_refused), TEST(test_every_operation_has_a_row),
	TEST(test_what_the_inner_workspace_lacks_is_lacking))
