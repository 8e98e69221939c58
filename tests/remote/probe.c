/*
 * probe - opens a workspace and says how that went, for the test scripts.
 *   probe URI [key=value...]
 * Prints "ok BYTES_SENT" once the root has been read, or "error ERRNO: reason" (exit 1); with the
 * name of a file in PROBE_FILE "ok SIZE MTIME" of that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/open.h"
#include "ops/support/cleanup.h"
#include "ops/workspace.h"

int main(int argc, char **argv)
{
	const struct workspace_options options = {
		.pairs = argc > 2 ? (const char *const *)argv + 2 : NULL};
	const char *file = getenv("PROBE_FILE");
	const struct object_ref object = OBJECT_AT(file ? file : "");
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
	r = workspace_getattr(&ctx, w, &object, &attributes);
	workspace_status(w, &status);
	workspace_free(w);
	if (r == 0 && file)
		printf("ok %llu %lld\n", (unsigned long long)attributes.size_bytes,
			(long long)attributes.mtime.tv_sec);
	else
		printf("%s %llu\n", r == 0 ? "ok" : strerror(-r),
			(unsigned long long)status.bytes_sent);
	return r < 0;
}
