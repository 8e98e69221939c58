/*
 * probe - opens a workspace and says how that went, for the test scripts.
 *   probe URI [key=value...]
 * Prints "ok BYTES_SENT" once the root has been read, or "error ERRNO: reason" (exit 1).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/open.h"
#include "ops/support/cleanup.h"

int main(int argc, char **argv)
{
	const struct workspace_options options = {
		.pairs = argc > 2 ? (const char *const *)argv + 2 : NULL};
	const struct object_ref root = OBJECT_AT("");
	cleanup_free char *reason = NULL;
	struct workspace_status status;
	struct attributes attributes;
	struct op_context ctx;
	struct workspace *w;
	int r;

	if (argc < 2)
		return 2;
	r = workspace_open(argv[1], &options, &w, &reason);
	if (r < 0) {
		printf("error %d: %s\n", -r, reason ? reason : strerror(-r));
		return 1;
	}
	op_context_init(&ctx);
	r = workspace_getattr(&ctx, w, &root, &attributes);
	workspace_status(w, &status);
	workspace_free(w);
	printf("%s %llu\n", r == 0 ? "ok" : strerror(-r), (unsigned long long)status.bytes_sent);
	return r < 0;
}
