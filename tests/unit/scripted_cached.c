#include "tests/unit/scripted_cached.h"

#include <sys/stat.h>

#include "tests/check.h"

struct workspace *w;
struct op_context context;
struct attributes seen;
unsigned told;

static void count_told(void *user, const struct change *change)
{
	(void)user;
	(void)change;
	told++;
}

int look(const char *path)
{
	return workspace_getattr(&context, w, &OBJECT_AT(path), &seen);
}

void setup(void)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	struct workspace *place = place_new();

	op_context_init(&context);
	place_make("d", S_IFDIR | 0755);
	place_make("d/a", S_IFREG | 0644);
	CHECK_RC(0, cached_new(place, &options, &w));
	CHECK_RC(0, workspace_watch(w, count_told, NULL));
	CHECK_RC(0, look("d"));
	CHECK_RC(0, look("d/a"));
	cached_quiesce(w);
	place_looks();
	place_opens();
	told = 0;
}

void teardown(void)
{
	before_it_arrives = NULL;
	workspace_free(w);
}
