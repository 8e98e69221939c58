/*
 * Which commands a command line runs, and what the rules say: the table shell_lines.txt, with
 * "line => verdict: command | command" on each line.  In a command "..." stands for words that
 * are not known, "?" for a command that is not; "outside: path" is a path outside the root.
 */
#include "tests/check.h"

#include "tools/permission.h"
#include "tools/shell.h"

static const char *table_path;

static struct permissions *make_rules(void)
{
	static const struct {
		const char *pattern;
		enum permission_action action;
	} rules[] = {
		{"git *", PERMISSION_ALLOW},
		{"ls *", PERMISSION_ALLOW},
		{"echo *", PERMISSION_ALLOW},
		{"cat *", PERMISSION_ALLOW},
		{"npm run *", PERMISSION_ALLOW},
		{"make *", PERMISSION_ALLOW},
		{"grep *", PERMISSION_ALLOW},
		{"wc *", PERMISSION_ALLOW},
		{"head *", PERMISSION_ALLOW},
		{"sort *", PERMISSION_ALLOW},
		{"cd *", PERMISSION_ALLOW},
		{"find *", PERMISSION_ALLOW},
		{"true *", PERMISSION_ALLOW},
		{"read *", PERMISSION_ALLOW},
		{"rm build/*", PERMISSION_ALLOW},
		{"outside /tmp/*", PERMISSION_ALLOW},
		{"git push *", PERMISSION_DENY},
		{"rm -rf *", PERMISSION_DENY},
		{"curl *", PERMISSION_DENY},
	};
	struct permissions *permissions = NULL;

	permissions_new(&permissions);
	for (size_t i = 0; i < array_size(rules); i++)
		permissions_add(permissions, PERMISSION_FROM_USER, "bash", rules[i].pattern,
			rules[i].action);
	return permissions;
}

static enum permission_action stricter(enum permission_action a, enum permission_action b)
{
	return a > b ? a : b;
}

/* As tool_bash.c asks: each command and each path outside by itself. */
static void judge(struct permissions *permissions, const char *line, struct buffer *out)
{
	static const char *const words[] = {"allow", "ask", "deny"};
	enum permission_action verdict = PERMISSION_ALLOW;
	struct buffer list cleanup_buffer = {0};
	struct shell_analysis analysis;

	if (!CHECK_RC(0, shell_analyse(line, "/root", "", &analysis)))
		return;
	if (!analysis.understood)
		verdict = PERMISSION_ASK;
	for (size_t i = 0; i < analysis.count; i++) {
		const struct shell_command *command = &analysis.commands[i];

		verdict = stricter(verdict,
			permissions_verdict(permissions, "bash", TOOL_DANGEROUS, command->text));
		verdict = stricter(verdict,
			permissions_verdict(permissions, "bash", TOOL_READ, command->plain));
		if (command->unknown)
			verdict = stricter(verdict, PERMISSION_ASK);
		buffer_printf(&list, "%s%s%s%s", list.size ? " | " : " ", command->text,
			command->open_ended ? *command->text ? " ..." : "..." : "",
			command->unknown ? " ?" : "");
	}
	for (size_t i = 0; i < analysis.outside_count; i++) {
		char subject[512];

		snprintf(subject, sizeof(subject), "outside %s", analysis.outside[i]);
		verdict = stricter(
			verdict, permissions_verdict(permissions, "bash", TOOL_DANGEROUS, subject));
		buffer_printf(&list, "%soutside: %s", list.size ? " | " : " ", analysis.outside[i]);
	}
	buffer_printf(out, "%s%s:%.*s", words[verdict],
		analysis.understood ? "" : " not understood", (int)list.size,
		list.size ? (const char *)list.data : "");
	shell_analysis_done(&analysis);
}

/* In the table a line end is written \n (and \\n stays). */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		if (text[0] == '\\' && text[1] == 'n') {
			*to++ = '\n';
			text++;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static void test_every_line_of_the_table(void)
{
	struct permissions *permissions = make_rules();
	cleanup_file FILE *file = fopen(table_path, "re");
	cleanup_free char *line = NULL;
	size_t capacity = 0, count = 0;

	if (!CHECK(file != NULL))
		return;
	while (getline(&line, &capacity, file) > 0) {
		cleanup_free char *got = NULL, *shown = NULL;
		struct buffer out cleanup_buffer = {0};
		char *arrow = strstr(line, " => ");

		if (line[0] == '#' || line[0] == '\n' || !CHECK(arrow != NULL))
			continue;
		*arrow = '\0';
		arrow += 4;
		arrow[strcspn(arrow, "\n")] = '\0';
		unescape(line);
		judge(permissions, line, &out);
		got = buffer_steal_string(&out);
		CHECK_STRING(arrow, got);
		if (got && strcmp(arrow, got) != 0)
			fprintf(stderr, "  of: %s\n", line);
		count++;
	}
	CHECK(count >= 200);
	permissions_free(permissions);
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

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {TEST(test_every_line_of_the_table),
		TEST(test_a_project_can_only_tighten), TEST(test_a_wrong_rule_is_refused)};

	if (argc != 2)
		return 2;
	if (!shell_can_parse()) {
		puts("skipped: this build has no grammar for bash (./dev setup fetches it with "
		     "npm)");
		return 77;
	}
	table_path = argv[1];
	return test_run("shell", cases, array_size(cases));
}
