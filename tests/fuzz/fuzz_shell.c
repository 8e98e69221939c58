/* What the rules allow of random lines is run (tests/fuzz/shell_room.h), and must do no more than
 * they say. */
#include "tests/fuzz/fuzz_shell.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/shell_lines.h"
#include "tests/fuzz/shell_room.h"
#include "tests/tools/bash_verdict.h"

enum { BATCH = 64 };

struct fuzz_shell_counts fuzz_shell_counts;

/* By enum fuzz_shell_rules: what is allowed.  Then what may run: also what does nothing but run
 * another command, which counts by itself. */
static const char *const allowed[][12] = {{"echo", "ls", "cat", "git status"},
	{"echo", "ls", "cat", "git", "make", "find", "xargs", "env", "nice", "timeout"}};
static const char *const four[] = {"echo", "ls", "cat", "git status", "env", "nice", "nohup",
	"ionice", "timeout", "stdbuf", "setsid", "command", "builtin", "exec", "eval", "bash",
	"time", "xargs", "true", ":", NULL};
static const char *const runners[] = {"echo", "ls", "cat", "git", "env", "nice", "nohup", "ionice",
	"timeout", "stdbuf", "setsid", "command", "builtin", "exec", "eval", "bash", "time", "true",
	":", "make", "find", "xargs", NULL};
static const char *const *const expected[] = {four, runners, NULL};

static struct tool_session sessions[array_size(expected)];
static bool in_room;
static struct room_line batch[BATCH];
static size_t batched;

static void add_rule(struct tool_session *session, const char *tool, const char *pattern,
	enum permission_action action)
{
	permissions_add(session->permissions, PERMISSION_FROM_USER, tool, pattern, action);
}

static int make_session(struct tool_session *session, enum fuzz_shell_rules rules)
{
	int r = tool_session_open(room_root, session);

	if (r == 0)
		r = permissions_new(&session->permissions);
	if (r < 0)
		return r;
	add_rule(session, "write", "*", PERMISSION_ASK);
	add_rule(session, "read", "secret/*", PERMISSION_DENY);
	if (rules == FUZZ_NONE)
		return 0;
	add_rule(session, "bash", "*", PERMISSION_ASK);
	for (size_t i = 0; i < array_size(allowed[rules]) && allowed[rules][i]; i++) {
		char pattern[64];

		snprintf(pattern, sizeof(pattern), "%s *", allowed[rules][i]);
		add_rule(session, "bash", pattern, PERMISSION_ALLOW);
	}
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
		r = make_session(&sessions[i], (enum fuzz_shell_rules)i);
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

void fuzz_shell_line(const char *line, const char *directory, enum fuzz_shell_rules rules)
{
	cJSON *arguments = cJSON_CreateObject();
	struct bash_verdict verdict;

	cJSON_AddStringToObject(arguments, "command", line);
	cJSON_AddStringToObject(arguments, "workdir", directory);
	verdict = bash_verdict(&sessions[rules], "bash", arguments);
	fuzz_shell_counts.lines++;
	if (verdict.line && in_room)
		batch[batched++] = (struct room_line){
			.line = steal_ptr(&verdict.line),
			.given = strdup(line),
			.directory = directory,
			.expected = expected[rules],
		};
	bash_verdict_done(&verdict);
	if (batched == BATCH)
		fuzz_shell_flush();
}

/* Lines of the table come again and again. */
static bool was_seen(const char *line, char directory, enum fuzz_shell_rules rules)
{
	static uint64_t seen[1 << 16];
	uint64_t hash = 0xcbf29ce484222325U ^ (uint64_t)rules ^ (uint64_t)directory << 8;
	uint64_t *slot;

	for (; *line; line++)
		hash = (hash ^ (uint8_t)*line) * 0x100000001b3U;
	slot = &seen[hash >> 48];
	if (*slot == hash)
		return true;
	*slot = hash;
	return false;
}

void fuzz_shell_bytes(const uint8_t *data, size_t size)
{
	static const char *const directories[] = {"", "", "", "src", "inside"};
	static const enum fuzz_shell_rules sets[] = {FUZZ_FOUR, FUZZ_FOUR, FUZZ_RUNNERS, FUZZ_NONE};
	struct buffer line cleanup_buffer = {0};
	cleanup_free char *text = NULL;
	enum fuzz_shell_rules rules;
	const char *directory;

	if (size < 4)
		return;
	rules = sets[data[0] & 3];
	directory = directories[(data[0] >> 2) % array_size(directories)];
	if (rules == FUZZ_NONE)
		shell_script_make(data + 1, size - 1, &line);
	else
		shell_line_make(data + 1, size - 1, &line);
	text = buffer_steal_string(&line);
	if (text && *text && !was_seen(text, *directory, rules))
		fuzz_shell_line(text, directory, rules);
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
