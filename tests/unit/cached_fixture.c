#include "tests/unit/cached_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "backends/backend.h"
#include "ops/faulty.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"
#include "tests/remove_tree.h"

char directory[64];
bool through_helper;
struct workspace *counter, *w;
struct op_context context;
struct attributes ignored;

void behind(const char *command)
{
	cleanup_free char *text = NULL;

	if (asprintf(&text, "cd '%s/tree' && %s", directory, command) > 0)
		CHECK_RC(0, system(text));
}

void mount_with(const struct cached_options *options, const char *faults)
{
	struct workspace *local = NULL;
	char tree[80], *reason = NULL;

	op_context_init(&context);
	snprintf(tree, sizeof(tree), "%s/tree", directory);
	if (through_helper)
		CHECK_RC(0, scheme_open("helper", tree, &(struct workspace_options){0}, &local,
				    &reason));
	else
		CHECK_RC(0, scheme_open("local", tree, NULL, &local, &reason));
	CHECK_RC(0, faulty_new(local, faults, &counter));
	CHECK_RC(0, cached_new(counter, options, &w));
}

void mount_it(const struct cached_options *options)
{
	mount_with(options, "");
}

void setup(const char *command)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	char tree[80];

	snprintf(directory, sizeof(directory), "/tmp/isthmus-cached-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	snprintf(tree, sizeof(tree), "%s/tree", directory);
	CHECK_RC(0, mkdir(tree, 0755));
	behind(command);
	mount_it(&options);
}

void teardown(void)
{
	workspace_free(w);
	CHECK_RC(0, remove_tree(directory));
}

uint64_t calls(void)
{
	return faulty_calls(counter, NULL);
}

void forget_calls(void)
{
	cached_quiesce(w);
	faulty_set(counter, "");
}

int look(const char *path, struct attributes *ret_attributes)
{
	struct object_ref object = OBJECT_AT(path);

	return workspace_getattr(&context, w, &object, ret_attributes);
}

static int count_entry(void *user, const struct dir_entry *entry)
{
	(void)entry;
	++*(int *)user;
	return 0;
}

int count(const char *path)
{
	struct object_ref object = OBJECT_AT(path);
	uint64_t since;
	int entries = 0;
	int r = workspace_readdir(&context, w, &object, true, count_entry, &entries, &since);

	return r < 0 ? r : entries;
}

struct open_file *open_it(const char *path, int flags)
{
	struct object_ref object = OBJECT_AT(path);
	struct open_file *file = NULL;

	CHECK_RC(0, workspace_open_file(&context, w, &object, flags, &file, &ignored));
	return file;
}

const char *text_of(const char *path)
{
	static char text[4096];
	struct open_file *file = open_it(path, O_RDONLY);
	ssize_t got = file ? workspace_read(&context, file, text, sizeof(text) - 1, 0) : 0;

	text[got > 0 ? got : 0] = '\0';
	CHECK_RC(0, workspace_close(&context, file));
	return text;
}
