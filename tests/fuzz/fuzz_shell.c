/* What the rules allow of random lines is run (tests/fuzz/shell_room.h), and must do no more than
 * they say. */
#include "tests/fuzz/fuzz_shell.h"

#include <errno.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/shell_lines.h"
#include "tests/fuzz/shell_room.h"
#include "tests/tools/bash_verdict.h"

enum { BATCH = 64 };

struct fuzz_shell_counts fuzz_shell_counts;

/* What the two sets of rules allow: the four of every line, and programs that run others. */
static const char *const four[] = {"echo", "ls", "cat", "git status", NULL};
static const char *const runners[] = {"echo", "ls", "cat", "git", "env", "nice", "nohup", "timeout",
	"stdbuf", "setsid", "xargs", "bash", "sh", "find", "command", "exec", "builtin", "eval",
	"true", ":", "make", NULL};
static const char *const *const expected[] = {four, runners};

static struct tool_session sessions[2];
static bool in_room;

static struct room_line batch[BATCH];
static size_t batched;

static int make_session(struct tool_session *session, const char *const *names)
{
	int r = tool_session_open(room_root, session);

	if (r == 0)
		r = permissions_new(&session->permissions);
	if (r < 0)
		return r;
	permissions_add(session->permissions, PERMISSION_FROM_USER, "*", "*", PERMISSION_ASK);
	for (size_t i = 0; names[i]; i++) {
		char pattern[64];

		snprintf(pattern, sizeof(pattern), "%s *", names[i]);
		permissions_add(session->permissions, PERMISSION_FROM_USER, "bash", pattern,
			PERMISSION_ALLOW);
	}
	permissions_add(session->permissions, PERMISSION_FROM_USER, "read", "*", PERMISSION_ALLOW);
	permissions_add(
		session->permissions, PERMISSION_FROM_USER, "read", "secret/*", PERMISSION_DENY);
	return 0;
}

int fuzz_shell_init(void)
{
	int r = room_enter();

	if (r < 0)
		return r;
	setenv("HOME", "/mnt/home", 1);
	setenv("PATH", "/mnt/bin", 1);
	setenv("LANG", "C.UTF-8", 1);
	for (size_t i = 0; r == 0 && i < array_size(sessions); i++)
		r = make_session(&sessions[i], expected[i]);
	if (r == 0)
		r = shell_lines_load(SHELL_LINES);
	in_room = r == 0;
	return r;
}

size_t fuzz_shell_flush(void)
{
	struct buffer report cleanup_buffer = {0};
	size_t found = batched ? room_run(batch, batched, &report) : 0;

	fuzz_shell_counts.ran += batched;
	fuzz_shell_counts.found += found;
	for (size_t i = 0; i < batched; i++) {
		free((char *)batch[i].line);
		free((char *)batch[i].given);
	}
	batched = 0;
	if (found)
		fprintf(stderr, "%.*s", (int)report.size, (const char *)report.data);
	return found;
}

void fuzz_shell_line(const char *line, const char *directory, bool with_runners)
{
	cJSON *arguments = cJSON_CreateObject();
	struct bash_verdict verdict;

	cJSON_AddStringToObject(arguments, "command", line);
	cJSON_AddStringToObject(arguments, "workdir", directory);
	verdict = bash_verdict(&sessions[with_runners], "bash", arguments);
	fuzz_shell_counts.lines++;
	if (verdict.line && in_room)
		batch[batched++] = (struct room_line){
			.line = steal_ptr(&verdict.line),
			.given = strdup(line),
			.directory = directory,
			.expected = expected[with_runners],
		};
	bash_verdict_done(&verdict);
	if (batched == BATCH)
		fuzz_shell_flush();
}

void fuzz_shell_bytes(const uint8_t *data, size_t size)
{
	static const char *const directories[] = {"", "", "", "src", "inside"};
	struct buffer line cleanup_buffer = {0};
	cleanup_free char *text = NULL;

	if (size < 4)
		return;
	shell_line_make(data + 1, size - 1, &line);
	text = buffer_steal_string(&line);
	if (text && *text)
		fuzz_shell_line(
			text, directories[(data[0] >> 1) % array_size(directories)], data[0] & 1);
}

/* ---- For libFuzzer --------------------------------------------------------------------- */

static void finish(void)
{
	fuzz_shell_flush();
	fprintf(stderr, "%zu lines, of which %zu were allowed and ran\n", fuzz_shell_counts.lines,
		fuzz_shell_counts.ran);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	int r = fuzz_shell_init();

	(void)argc;
	(void)argv;
	if (r < 0) {
		printf("skipped: lines cannot be run apart from this system: %s\n", strerror(-r));
		exit(0);
	}
	atexit(finish);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_shell_bytes(data, size);
	if (fuzz_shell_counts.found)
		abort(); /* the report above has the line; it may be an earlier input's */
	return 0;
}
