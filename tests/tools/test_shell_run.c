/*
 * What bash is given to run: the line as it was understood where rules allow it, the line as it
 * was shown where a person did; and what happens where there is no bash.
 */
#include "tests/check.h"

#include "ops/support/process.h"
#include "tests/remove_tree.h"
#include "tools/base/registry.h"
#include "tools/permission/permission.h"
#include "tools/run.h"

static struct tool_session session;
static bool bash_is_missing;
static char *given[3];   /* the last argv that started, copied */
static unsigned started; /* how many did */
static unsigned asked;
static enum permission_answer answer;

int __real_command_start(
	const struct exec_request *request, int cwd_fd, struct command **ret_command);
int __wrap_command_start(
	const struct exec_request *request, int cwd_fd, struct command **ret_command);

int __wrap_command_start(
	const struct exec_request *request, int cwd_fd, struct command **ret_command)
{
	if (bash_is_missing && strcmp(request->argv[0], "/bin/bash") == 0)
		return -ENOENT;
	started++;
	for (size_t i = 0; i < array_size(given) && request->argv[i]; i++) {
		free(given[i]);
		given[i] = strdup(request->argv[i]);
	}
	return __real_command_start(request, cwd_fd, ret_command);
}

static int ask(struct tool_call *call, const struct permission_question *question)
{
	(void)call, (void)question;
	asked++;
	return answer;
}

/* Runs the line; the call, which the caller frees. */
static struct tool_call *run_with(const char *line, const char *name, const char *value)
{
	cJSON *arguments = cJSON_CreateObject();
	struct tool_call *call;

	cJSON_AddStringToObject(arguments, "command", line);
	if (name && strcmp(name, "workdir") == 0)
		cJSON_AddStringToObject(arguments, name, value);
	else if (name)
		cJSON_AddStringToObject(cJSON_AddObjectToObject(arguments, "env"), name, value);
	call = tool_call_new(&session, registry_find("bash"), arguments, "test");
	call->ask_permission = ask;
	started = asked = 0;
	tool_run(call);
	return call;
}

static void check_run(const char *line, enum tool_error_code want, const char *text)
{
	struct tool_call *call = run_with(line, NULL, NULL);

	CHECK_RC(want, call->code);
	if (text && CHECK(buffer_append(&call->text, "", 1) == 0))
		CHECK_STRING(text, (const char *)call->text.data);
	tool_call_free(call);
}

static void allow(const char *pattern)
{
	permissions_free(session.permissions);
	session.permissions = NULL;
	permissions_new(&session.permissions);
	permissions_add(
		session.permissions, PERMISSION_FROM_USER, "bash", pattern, PERMISSION_ALLOW);
}

static void test_what_rules_allow_runs_as_it_was_understood(void)
{
	static const char *const lines[][2] = {
		{"echo  'a'\\b   # c", "echo ab"},
		{"echo \"$X\" *", "echo \"${X}\" *"},
		{"bash -c 'echo  a; echo $X # b'", "bash -c 'echo a; echo ${X}'"},
		{"timeout 9 bash -c \"bash -c 'echo  a'\"",
			"timeout 9 bash -c 'bash -c '\\''echo a'\\'''"},
		{"echo --a=*.c", "echo '--a=*.c'"},
		{"echo <<'E'\n$(a)\nE\n", "echo <<<'$(a)'"},
	};

	allow("echo *");
	for (size_t i = 0; i < array_size(lines); i++) {
		check_run(lines[i][0], TOOL_OK, NULL);
		CHECK_RC(0, asked);
		CHECK_STRING("/bin/bash", given[0]);
		CHECK_STRING(lines[i][1], given[2]);
	}
}

static void test_what_a_person_allows_runs_as_it_was_shown(void)
{
	static const char *const lines[] = {"mkdir  -p a # b", "for i in 1; do echo  $i; done"};

	allow("echo *");
	answer = PERMISSION_ONCE;
	for (size_t i = 0; i < array_size(lines); i++) {
		check_run(lines[i], TOOL_OK, NULL);
		CHECK_RC(1, asked);
		CHECK_STRING(lines[i], given[2]);
	}
	answer = PERMISSION_NO;
	check_run("echo a; `mkdir b`", TOOL_PERMISSION_DENIED, NULL);
	CHECK_RC(0, started);
}

static void test_a_line_without_a_rule_about_it_runs_as_it_is(void)
{
	allow("*");
	check_run("echo  $((1 + 1))", TOOL_OK, "2\n");
	CHECK_RC(0, asked);
	/* A rule about files is about commands, too. */
	permissions_add(
		session.permissions, PERMISSION_FROM_USER, "read", "secret/*", PERMISSION_DENY);
	check_run("cat secret/key", TOOL_PERMISSION_DENIED, NULL);
	CHECK_RC(0, started);
}

static void test_what_is_too_much_asks(void)
{
	struct buffer line cleanup_buffer = {0};
	cleanup_free char *text = NULL;

	allow("echo *");
	answer = PERMISSION_NO;
	buffer_append_string(&line, "echo");
	for (int i = 0; i < 6000; i++)
		buffer_append_string(&line, " a");
	text = buffer_steal_string(&line);
	check_run(text, TOOL_PERMISSION_DENIED, NULL);
	CHECK_RC(1, asked);
	for (int i = 0; i < 600; i++)
		buffer_append_string(&line, "echo;");
	free(text);
	text = buffer_steal_string(&line);
	check_run(text, TOOL_PERMISSION_DENIED, NULL);
	CHECK_RC(1, asked);
}

static void test_without_bash_each_line_asks(void)
{
	allow("echo *");
	bash_is_missing = true;
	answer = PERMISSION_NO;
	check_run("echo a", TOOL_PERMISSION_DENIED, NULL); /* finds that out */
	CHECK_RC(1, asked);
	CHECK_RC(0, started);
	check_run("echo a", TOOL_PERMISSION_DENIED, NULL);
	CHECK_RC(1, asked);
	answer = PERMISSION_ONCE;
	check_run("echo  $0", TOOL_OK, "/bin/sh\n");
	CHECK_STRING("/bin/sh", given[0]);
	CHECK_STRING("echo  $0", given[2]);
	bash_is_missing = false;
	atomic_store(&session.no_bash, false);
}

static void test_a_missing_directory_is_no_missing_bash(void)
{
	struct tool_call *call;

	allow("echo *");
	call = run_with("echo a", "workdir", "nodir");
	CHECK_RC(TOOL_NOT_FOUND, call->code);
	CHECK(!atomic_load(&session.no_bash));
	CHECK_RC(0, started);
	tool_call_free(call);
}

static void test_git_takes_no_directory_for_a_bare_repository(void)
{
	struct tool_call *call;

	allow("*");
	check_run("echo $GIT_CONFIG_COUNT $GIT_CONFIG_KEY_0 $GIT_CONFIG_VALUE_0", TOOL_OK,
		"1 safe.bareRepository explicit\n");
	call = run_with("echo $GIT_CONFIG_COUNT $GIT_CONFIG_KEY_2", "GIT_CONFIG_COUNT", "2");
	CHECK(buffer_append(&call->text, "", 1) == 0);
	CHECK_STRING("3 safe.bareRepository\n", (const char *)call->text.data);
	tool_call_free(call);
}

int main(void)
{
	static const struct test_case cases[] = {
		TEST(test_what_rules_allow_runs_as_it_was_understood),
		TEST(test_what_a_person_allows_runs_as_it_was_shown),
		TEST(test_a_line_without_a_rule_about_it_runs_as_it_is),
		TEST(test_what_is_too_much_asks),
		TEST(test_without_bash_each_line_asks),
		TEST(test_a_missing_directory_is_no_missing_bash),
		TEST(test_git_takes_no_directory_for_a_bare_repository),
	};
	char place[] = "/tmp/isthmus-run-XXXXXX";
	int r;

	if (!mkdtemp(place) || tool_session_open(place, &session) < 0)
		return 2;
	setenv("XDG_STATE_HOME", place, 1);
	r = test_run("shell_run", cases, array_size(cases));
	tool_session_close(&session);
	permissions_free(session.permissions);
	for (size_t i = 0; i < array_size(given); i++)
		free(given[i]);
	remove_tree(place);
	return r;
}
