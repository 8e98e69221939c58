#include "tools/base/output_notice.h"

#include <fcntl.h>
#include <string.h>

#include "ops/support/path.h"
#include "tools/base/process.h"
#include "tools/text/text.h"
#include "tools/base/tool.h"

enum { SHARED_MAX_BYTES = 4 << 20, SHARE_MS = 20000 };

/* $1: the path of the file on this machine, $2: its size.  If the command finds such a file, it
 * runs on the same machine. */
static const char share_script[] =
	"umask 077\n"
	"if [ -r \"$1\" ] && [ $(($(wc -c <\"$1\"))) = \"$2\" ]; then printf %s \"$1\"; exit; fi\n"
	"dir=${XDG_CACHE_HOME:-$HOME/.cache}/isthmus/outputs\n"
	"mkdir -p \"$dir\" || exit\n"
	"find \"$dir\" -type f -mtime +0 -exec rm -f {} +\n"
	"cat >\"$dir/${1##*/}\" && printf %s \"$dir/${1##*/}\"\n";

static int take_path(void *user, bool is_stderr, const void *data, size_t size)
{
	return is_stderr ? 0 : buffer_append(user, data, size);
}

/* Copies the file to the machine where commands run.  Returns its path there, which the caller
 * frees; NULL: it could not be copied. */
static char *share(struct tool_call *call, const struct tail *tail)
{
	cleanup_fd int file = open(tail->path, O_RDONLY | O_CLOEXEC);
	char size[32];
	const char *const argv[] = {"/bin/sh", "-c", share_script, "sh", tail->path, size, NULL};
	struct buffer path cleanup_buffer = {0};
	const struct process_request request = {
		.argv = argv,
		.directory = "",
		.timeout_ms = SHARE_MS,
		.has_input = true,
		.input = file,
		.output = take_path,
		.user = &path,
	};
	struct process_result result = {0};
	struct tool_call *own; /* a separate call: a failure here must not fail the caller's */
	int r;

	if (!call->session->control_socket)
		return strdup(tail->path);
	if (file < 0 || tail->file_bytes > SHARED_MAX_BYTES)
		return NULL;
	own = tool_call_new(call->session, call->tool, NULL, call->call_id);
	if (!own)
		return NULL;
	snprintf(size, sizeof(size), "%llu", (unsigned long long)tail->file_bytes);
	r = process_run(own, &request, &result);
	tool_call_free(own);
	cJSON_Delete(result.changed);
	if (r < 0 || result.exit_code || !path.size || *path.data != '/')
		return NULL;
	return buffer_steal_string(&path);
}

/* Adds the range of lines that is shown, which is the end of the output. */
static void add_lines(const struct tail *tail, size_t start, struct buffer *notice)
{
	const uint8_t *text = tail->kept.data, *end = text + tail->kept.size;
	bool is_open = end[-1] != '\n';
	uint64_t total = tail->lines + is_open, shown = is_open;

	for (const uint8_t *at = text + start; (at = memchr(at, '\n', (size_t)(end - at))); at++)
		shown++;
	if (shown <= 1 && (start == 0 || text[start - 1] != '\n'))
		buffer_printf(notice, "the end of line %llu, the last", (unsigned long long)total);
	else
		buffer_printf(notice, "lines %llu-%llu of %llu",
			(unsigned long long)(total - shown + 1), (unsigned long long)total,
			(unsigned long long)total);
}

char *output_notice(struct tool_call *call, struct tail *tail)
{
	struct buffer notice cleanup_buffer = {0};
	size_t start = tail_start(tail), shown = tail->kept.size - start;
	cleanup_free char *there = NULL;
	char all[32], part[32];

	if (shown >= tail->bytes)
		return NULL;
	if (tail->path)
		there = share(call, tail);
	buffer_append_string(&notice, "[Showing ");
	add_lines(tail, start, &notice);
	buffer_printf(&notice, " (%s of %s).", text_size(shown, part), text_size(tail->bytes, all));
	if (!tail->path)
		buffer_append_string(&notice, " The rest could not be kept.]");
	else
		buffer_printf(&notice, " %s is in %s: look into it with read or grep%s.]",
			tail->file_cut ? "Its first part" : "All of it", there ? there : tail->path,
			there ? ", or in bash" : "");
	if (there) {
		free(tail->path);
		tail->path = steal_ptr(&there);
	}
	return buffer_steal_string(&notice);
}
