#include "fs/run/run_far.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"

enum { OUTPUT_MAX_BYTES = 1 << 16 };

/* The path last, as it may have any byte but NUL. */
static const char question[] =
	"{\"request\":\"exec\",\"argv\":[\"/bin/sh\",\"-c\","
	"\"command -v bash >/dev/null && echo bash || echo sh; "
	"git config user.email >/dev/null 2>&1 && echo known || echo unknown; pwd -P\"],"
	"\"cwd\":\"\",\"stdin_closed\":true,\"timeout_ms\":30000}";

static int receive_answer(int fd, struct buffer *answer, char **ret_reason)
{
	cleanup_buffer struct buffer payload = {0};
	enum control_frame_type type;
	int r;

	for (;;) {
		r = control_receive(fd, &type, &payload);
		if (r < 0 || type == CONTROL_EXIT)
			return r;
		if (type == CONTROL_FAILURE)
			return control_failure(&payload, ret_reason);
		if (type == CONTROL_STDOUT)
			r = buffer_append(answer, payload.data, payload.size);
		if (r < 0)
			return r;
	}
}

static int read_answer(char *text, struct run_far *ret_far)
{
	char *second = strchr(text, '\n');
	char *third = second ? strchr(second + 1, '\n') : NULL;
	size_t length = third ? strlen(third + 1) : 0;

	if (length < 2 || third[1] != '/' || third[length] != '\n')
		return -EPROTO;
	third[length] = '\0';
	*ret_far = (struct run_far){
		.has_bash = strncmp(text, "bash\n", 5) == 0,
		.has_git_identity = strncmp(second + 1, "known\n", 6) == 0,
		.root = strdup(third + 1),
	};
	return ret_far->root ? 0 : -ENOMEM;
}

int run_far_ask(const char *control_path, struct run_far *ret_far, char **ret_reason)
{
	cleanup_buffer struct buffer answer = {.limit_bytes = OUTPUT_MAX_BYTES};
	cleanup_fd int fd = control_connect(control_path);
	cleanup_free char *text = NULL;
	int r;

	*ret_reason = NULL;
	if (fd < 0)
		return fd;
	r = control_send(fd, CONTROL_JSON, question, strlen(question));
	if (r == 0)
		r = receive_answer(fd, &answer, ret_reason);
	if (r < 0)
		return r;
	text = buffer_steal_string(&answer);
	return text ? read_answer(text, ret_far) : -ENOMEM;
}

void run_far_done(struct run_far *far)
{
	free(far->root);
}
