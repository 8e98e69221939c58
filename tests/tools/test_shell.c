/*
 * What the rules say to lines of bash: the table shell_lines.txt, with "line => verdict" on each
 * line.  A verdict that ends in " !" is what it should be and is not yet.
 *
 * In a line \n is a line end, @{ROOT} the root's path, @{0D} a byte, @{5000*ab} "ab" 5000 times.
 * It may begin with @{dir DIRECTORY}, @{env NAME=VALUE}, or @{launch} for launch_app with words
 * between "|".  "@rules NAME" says by which rules the lines after it go.
 */
#include "tests/check.h"

#include "tests/remove_tree.h"
#include "tests/tools/bash_verdict.h"
#include "tools/shell/shell.h"

static const char *table_path;
static char place[64]; /* the tree that the lines are about */

struct rule {
	const char *tool;
	const char *pattern;
	enum permission_action action;
};

enum { RULES_MAX = 32 };

static const struct {
	const char *name;
	struct rule rules[RULES_MAX];
} rule_sets[] = {
	{"work",
		{
			{"bash", "git *", PERMISSION_ALLOW},
			{"bash", "ls *", PERMISSION_ALLOW},
			{"bash", "echo *", PERMISSION_ALLOW},
			{"bash", "cat *", PERMISSION_ALLOW},
			{"bash", "npm run *", PERMISSION_ALLOW},
			{"bash", "make *", PERMISSION_ALLOW},
			{"bash", "grep *", PERMISSION_ALLOW},
			{"bash", "wc *", PERMISSION_ALLOW},
			{"bash", "head *", PERMISSION_ALLOW},
			{"bash", "sort *", PERMISSION_ALLOW},
			{"bash", "cd *", PERMISSION_ALLOW},
			{"bash", "find *", PERMISSION_ALLOW},
			{"bash", "true *", PERMISSION_ALLOW},
			{"bash", "read *", PERMISSION_ALLOW},
			{"bash", "rm build/*", PERMISSION_ALLOW},
			{"bash", "outside /opt/*", PERMISSION_ALLOW},
			{"bash", "git push *", PERMISSION_DENY},
			{"bash", "rm -rf *", PERMISSION_DENY},
			{"bash", "curl *", PERMISSION_DENY},
		}},
	/* Nothing but these four, whatever is allowed without a rule. */
	{"four",
		{
			{"bash", "*", PERMISSION_ASK},
			{"bash", "echo *", PERMISSION_ALLOW},
			{"bash", "ls *", PERMISSION_ALLOW},
			{"bash", "cat *", PERMISSION_ALLOW},
			{"bash", "git status *", PERMISSION_ALLOW},
		}},
	{"none", {{0}}},
	{"all_but",
		{
			{"*", "*", PERMISSION_ALLOW},
			{"bash", "rm *", PERMISSION_DENY},
			{"bash", "git push *", PERMISSION_DENY},
			{"launch_app", "rm *", PERMISSION_DENY},
			{"launch_app", "git push *", PERMISSION_DENY},
		}},
	{"secret",
		{
			{"bash", "git *", PERMISSION_ALLOW},
			{"bash", "cp *", PERMISSION_ALLOW},
			{"bash", "tar *", PERMISSION_ALLOW},
			{"bash", "mine *", PERMISSION_ALLOW},
			{"read", "secret/*", PERMISSION_DENY},
		}},
	/* Programs that can change what paths lead to, reach far, or run others. */
	{"trusting",
		{
			{"bash", "cat *", PERMISSION_ALLOW},
			{"bash", "echo *", PERMISSION_ALLOW},
			{"bash", "tar *", PERMISSION_ALLOW},
			{"bash", "mv *", PERMISSION_ALLOW},
			{"bash", "ln *", PERMISSION_ALLOW},
			{"bash", "cp *", PERMISSION_ALLOW},
			{"bash", "rm *", PERMISSION_ALLOW},
			{"bash", "mkdir *", PERMISSION_ALLOW},
			{"bash", "touch *", PERMISSION_ALLOW},
			{"bash", "unzip *", PERMISSION_ALLOW},
			{"bash", "git *", PERMISSION_ALLOW},
			{"bash", "make *", PERMISSION_ALLOW},
			{"bash", "A=b make *", PERMISSION_ALLOW},
			{"bash", "curl *", PERMISSION_ALLOW},
			{"bash", "rsync *", PERMISSION_ALLOW},
			{"bash", "sort *", PERMISSION_ALLOW},
			{"bash", "find *", PERMISSION_ALLOW},
			{"bash", "gcc *", PERMISSION_ALLOW},
			{"bash", "cmake *", PERMISSION_ALLOW},
			{"bash", "sed *", PERMISSION_ALLOW},
			{"bash", "mine *", PERMISSION_ALLOW},
			{"bash", "watch *", PERMISSION_ALLOW},
			{"bash", "awk *", PERMISSION_ALLOW},
			{"bash", "gunzip *", PERMISSION_ALLOW},
			{"bash", "strace *", PERMISSION_ALLOW},
			{"bash", "apt-get *", PERMISSION_ALLOW},
			{"bash", "kubectl *", PERMISSION_ALLOW},
			{"bash", "gh *", PERMISSION_ALLOW},
			{"bash", "docker *", PERMISSION_ALLOW},
		}},
	/* What deletes or writes by an option. */
	{"keep",
		{
			{"bash", "find *", PERMISSION_ALLOW},
			{"bash", "git *", PERMISSION_ALLOW},
			{"bash", "sort *", PERMISSION_ALLOW},
			{"bash", "sed *", PERMISSION_ALLOW},
			{"bash", "tee *", PERMISSION_ALLOW},
			{"bash", "cp *", PERMISSION_ALLOW},
			{"bash", "rmdir *", PERMISSION_ALLOW},
			{"bash", "unlink *", PERMISSION_ALLOW},
			{"bash", "rm *", PERMISSION_DENY},
			{"bash", "cd build", PERMISSION_DENY},
			{"write", "src/*", PERMISSION_DENY},
			{"delete", "build/*", PERMISSION_DENY},
		}},
	{"vendor",
		{
			{"bash", "cat *", PERMISSION_ALLOW},
			{"bash", "echo *", PERMISSION_ALLOW},
			{"bash", "ls *", PERMISSION_ALLOW},
			{"bash", "cp *", PERMISSION_ALLOW},
			{"bash", "mv *", PERMISSION_ALLOW},
			{"bash", "rm *", PERMISSION_ALLOW},
			{"bash", "touch *", PERMISSION_ALLOW},
			{"bash", "tee *", PERMISSION_ALLOW},
			{"bash", "sort *", PERMISSION_ALLOW},
			{"bash", "dd *", PERMISSION_ALLOW},
			{"bash", "sed *", PERMISSION_ALLOW},
			{"bash", "mine *", PERMISSION_ALLOW},
			{"bash", "ln *", PERMISSION_ALLOW},
			{"bash", "install *", PERMISSION_ALLOW},
			{"bash", "mkdir *", PERMISSION_ALLOW},
			{"bash", "chmod *", PERMISSION_ALLOW},
			{"bash", "tar *", PERMISSION_ALLOW},
			{"bash", "git *", PERMISSION_ALLOW},
			{"write", "src/*", PERMISSION_DENY},
		}},
};

static struct permissions *make_rules(const char *name)
{
	struct permissions *permissions = NULL;

	for (size_t i = 0; i < array_size(rule_sets); i++) {
		if (strcmp(rule_sets[i].name, name) != 0)
			continue;
		permissions_new(&permissions);
		for (const struct rule *rule = rule_sets[i].rules; permissions && rule->tool;
			rule++)
			permissions_add(permissions, PERMISSION_FROM_USER, rule->tool,
				rule->pattern, rule->action);
	}
	return permissions;
}

/* ---- The table ------------------------------------------------------------------------ */

/* What "@{NAME}" stands for. */
static void expand(struct buffer *out, const char *name, size_t length)
{
	char *end;
	long number = strtol(name, &end, 16);

	if (length == 4 && strncmp(name, "ROOT", length) == 0) {
		buffer_printf(out, "%s/w", place);
	} else if (length == 2 && end == name + 2) {
		buffer_append(out, &(char){(char)number}, 1);
	} else {
		number = strtol(name, &end, 10);
		if (!CHECK(*end == '*' && end < name + length))
			fprintf(stderr, "  no such escape: %.*s\n", (int)length, name);
		else
			for (; number > 0; number--)
				buffer_append(out, end + 1, (size_t)(name + length - end - 1));
	}
}

static char *unescape(const char *text)
{
	struct buffer out = {0};

	while (*text) {
		size_t length = strncmp(text, "@{", 2) == 0 ? strcspn(text, "}") : 0;

		if (length) {
			expand(&out, text + 2, length - 2);
			text += length + 1;
		} else if (strncmp(text, "\\n", 2) == 0) {
			buffer_append(&out, "\n", 1);
			text += 2;
		} else {
			buffer_append(&out, text++, 1);
		}
	}
	return buffer_steal_string(&out);
}

/* The rest after "@{NAME ...}" in front, and what it says; or NULL. */
static const char *take_prefix(const char *line, const char *name, char **ret_value)
{
	size_t length = strlen(name);
	cleanup_free char *value = NULL;

	if (strncmp(line, name, length) != 0)
		return NULL;
	value = strndup(line + length, strcspn(line + length, "}"));
	*ret_value = unescape(value);
	line += strcspn(line, "}") + 1;
	return *line == ' ' ? line + 1 : line;
}

static void add_setting(cJSON *env, char *setting)
{
	char *equals = strchr(setting, '=');

	if (!CHECK(equals != NULL))
		return;
	*equals = '\0';
	cJSON_AddStringToObject(env, setting, equals + 1);
}

static cJSON *bash_arguments(const char *line)
{
	cJSON *arguments = cJSON_CreateObject(), *env = NULL;
	cleanup_free char *command = NULL;

	for (;;) {
		cleanup_free char *value = NULL;
		const char *rest = take_prefix(line, "@{dir ", &value);

		if (rest) {
			cJSON_AddStringToObject(arguments, "workdir", value);
		} else {
			rest = take_prefix(line, "@{env ", &value);
			if (!rest)
				break;
			env = env ? env : cJSON_AddObjectToObject(arguments, "env");
			add_setting(env, value);
		}
		line = rest;
	}
	command = unescape(line);
	cJSON_AddStringToObject(arguments, "command", command);
	return arguments;
}

static cJSON *launch_arguments(const char *words)
{
	cleanup_free char *text = unescape(words);
	cJSON *arguments = cJSON_CreateObject(), *args = NULL;
	char *rest = text, *word;

	while ((word = strsep(&rest, "|"))) {
		if (args)
			cJSON_AddItemToArray(args, cJSON_CreateString(word));
		else
			cJSON_AddStringToObject(arguments, "app_name", word);
		args = args ? args : cJSON_AddArrayToObject(arguments, "args");
	}
	return arguments;
}

static struct bash_verdict judge(struct tool_session *session, const char *line)
{
	if (strncmp(line, "@{launch} ", 10) == 0)
		return bash_verdict(session, "launch_app", launch_arguments(line + 10));
	return bash_verdict(session, "bash", bash_arguments(line));
}

/* A failure without a question does for "ask": nothing runs. */
static void check_line(
	struct tool_session *session, size_t number, const char *line, const char *want)
{
	static const char *const words[] = {"allow", "ask", "deny"};
	struct bash_verdict verdict = judge(session, line);
	const char *got = verdict.failed ? "ask" : words[verdict.action];
	bool not_yet = strstr(want, " !");

	if (!not_yet && !CHECK_STRING(want, got))
		fprintf(stderr, "  line %zu: %s%s%s\n", number, line,
			verdict.reason ? "\n  because: " : "",
			verdict.reason ? verdict.reason : "");
	if (not_yet && strncmp(want, got, strlen(got)) == 0)
		printf("line %zu is now as it should be: %s\n", number, line);
	bash_verdict_done(&verdict);
}

static void test_every_line_of_the_table(void)
{
	struct tool_session session = {0};
	cleanup_file FILE *file = fopen(table_path, "re");
	cleanup_free char *line = NULL, *root = NULL;
	size_t capacity = 0, count = 0, number = 0;

	if (!CHECK(file != NULL) || !CHECK(asprintf(&root, "%s/w", place) > 0) ||
		!CHECK_RC(0, tool_session_open(root, &session)))
		return;
	session.permissions = make_rules("work");
	while (getline(&line, &capacity, file) > 0) {
		char *arrow = strstr(line, " => ");

		number++;
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "@rules ", 7) == 0) {
			permissions_free(session.permissions);
			session.permissions = make_rules(line + 7);
			CHECK(session.permissions != NULL);
		} else if (*line && *line != '#' && CHECK(arrow != NULL)) {
			*arrow = '\0';
			check_line(&session, number, line, arrow + 4);
			count++;
		}
	}
	CHECK(count >= 1500);
	tool_session_close(&session);
	permissions_free(session.permissions);
}

static void test_a_program_in_the_root_is_no_program_of_the_table(void)
{
	cleanup_free char *path = NULL, *root = NULL, *before = strdup(getenv("PATH"));
	struct tool_session session = {0};

	if (!CHECK(asprintf(&path, "%s/w/inside:/usr/bin", place) > 0) ||
		!CHECK(asprintf(&root, "%s/w", place) > 0) ||
		!CHECK_RC(0, tool_session_open(root, &session)))
		return;
	session.permissions = make_rules("none");
	CHECK(symlinkat("a.c", session.root.fd, "src/ls") == 0);
	CHECK(symlinkat("a.c", session.root.fd, "src/nice") == 0);
	check_line(&session, 1, "ls", "allow");
	for (int i = 0; i < 2; i++) {
		setenv("PATH", i ? "inside:/usr/bin" : path, 1);
		check_line(&session, 2, "ls", "ask");
		check_line(&session, 3, "nice cat f", "ask");
		check_line(&session, 4, "cat f", "allow");
	}
	setenv("PATH", before, 1);
	unlinkat(session.root.fd, "src/ls", 0);
	unlinkat(session.root.fd, "src/nice", 0);
	tool_session_close(&session);
	permissions_free(session.permissions);
}

static void test_a_project_can_only_tighten(void)
{
	static const char project[] =
		"{\"permissions\": [{\"tool\": \"*\", \"pattern\": \"*\", \"action\": \"allow\"},"
		"{\"tool\": \"edit\", \"pattern\": \"vendor/*\", \"action\": \"deny\"}]}";
	struct permissions *permissions = NULL;
	struct buffer problem cleanup_buffer = {0};

	permissions_new(&permissions);
	CHECK_RC(0, permissions_parse(permissions, PERMISSION_FROM_PROJECT, project,
			    strlen(project), &problem));
	CHECK_RC(PERMISSION_ASK, permissions_verdict(permissions, "bash", TOOL_DANGEROUS, "make"));
	CHECK_RC(PERMISSION_DENY,
		permissions_verdict(permissions, "edit", TOOL_MODIFY, "vendor/a/b.c"));
	CHECK_RC(PERMISSION_ALLOW, permissions_verdict(permissions, "edit", TOOL_MODIFY, "a.c"));
	permissions_remember(permissions, "bash", "make *");
	CHECK_RC(
		PERMISSION_ALLOW, permissions_verdict(permissions, "bash", TOOL_DANGEROUS, "make"));
	permissions_free(permissions);
}

static void test_a_wrong_rule_is_refused(void)
{
	static const char *const files[] = {"[1", "{\"permissions\": 1}",
		"[{\"tool\": \"bash\", \"action\": \"maybe\"}]", "[{\"action\": \"deny\"}]",
		"[{\"tool\": \"a\", \"pattern\": 1, \"action\": \"deny\"}]"};

	for (size_t i = 0; i < array_size(files); i++) {
		struct permissions *permissions = NULL;
		struct buffer problem cleanup_buffer = {0};

		permissions_new(&permissions);
		CHECK_RC(-EINVAL, permissions_parse(permissions, PERMISSION_FROM_USER, files[i],
					  strlen(files[i]), &problem));
		CHECK(problem.size > 0);
		permissions_free(permissions);
	}
}

static int make_place(void)
{
	const char *directory = getenv("TMPDIR");

	snprintf(place, sizeof(place), "%s/isthmus-shell-XXXXXX", directory ? directory : "/tmp");
	if (!mkdtemp(place))
		return -errno;
	return bash_verdict_tree(place);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {TEST(test_every_line_of_the_table),
		TEST(test_a_program_in_the_root_is_no_program_of_the_table),
		TEST(test_a_project_can_only_tighten), TEST(test_a_wrong_rule_is_refused)};
	cleanup_free char *home = NULL;
	int r;

	if (argc != 2)
		return 2;
	table_path = argv[1];
	r = make_place();
	if (r == 0 && asprintf(&home, "%s/home", place) > 0) {
		setenv("HOME", home, 1);
		setenv("XDG_STATE_HOME", home, 1);
		r = test_run("shell", cases, array_size(cases));
	} else {
		fprintf(stderr, "%s: %s\n", place, strerror(-r));
	}
	remove_tree(place);
	return r ? 1 : 0;
}
