#include <errno.h>
#include <string.h>

#include "fs/run/report.h"
#include "fs/run/wrapper.h"
#include "tests/check.h"

static const struct report_marks marks = {"BEGIN", "END"};

static struct shell_plan plan_for(enum agent_kind agent, const char *const words[])
{
	struct shell_plan plan = {0};

	CHECK_RC(0, shell_plan_make(agent, (char *const *)(uintptr_t)words, &marks, &plan));
	return plan;
}

#define PLAN(agent, ...) plan_for(agent, (const char *const[]){__VA_ARGS__, NULL})

static void check_place(enum shell_where want, struct shell_plan plan)
{
	CHECK_RC(want, plan.where);
	shell_plan_done(&plan);
}

static void test_a_shell_without_a_command_is_the_real_one(void)
{
	check_place(SHELL_HERE, PLAN(AGENT_OTHER, "bash"));
	check_place(SHELL_HERE, PLAN(AGENT_OTHER, "bash", "script", "-c"));
	check_place(SHELL_HERE, PLAN(AGENT_OTHER, "bash", "-l"));
	check_place(SHELL_HERE, PLAN(AGENT_OTHER, "bash", "--login", "-i"));
	check_place(SHELL_HERE, PLAN(AGENT_OTHER, "bash", "-c"));
	check_place(SHELL_HERE, PLAN(AGENT_OTHER, "bash", "-o", "errexit", "script"));
}

static void test_a_command_is_found_behind_all_forms_of_options(void)
{
	static const char *const forms[][6] = {
		{"bash", "-c", "ls", NULL},
		{"bash", "-lc", "ls", NULL},
		{"bash", "-c", "-l", "ls", NULL},
		{"bash", "-l", "-c", "ls", NULL},
		{"bash", "--norc", "-c", "ls", "name", NULL},
		{"bash", "-o", "pipefail", "-c", "ls", NULL},
		{"sh", "-ec", "ls", NULL},
		{"sh", "-c", "--", "ls", NULL},
	};

	for (size_t i = 0; i < array_size(forms); i++) {
		struct shell_plan plan = plan_for(AGENT_OTHER, forms[i]);

		CHECK_RC(SHELL_THERE, plan.where);
		CHECK_STRING("ls", forms[i][plan.script_index]);
		CHECK_STRING("ls", plan.script);
		shell_plan_done(&plan);
	}
}

/* What Claude Code 2.1.197 and 2.1.330 execute. */
static void test_claude_s_command_goes_without_its_snapshot(void)
{
	struct shell_plan plan = PLAN(AGENT_CLAUDE, "/x/bash", "-c",
		"source /h/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true && "
		"shopt -u extglob 2>/dev/null || true && eval 'echo one && pwd -P >| x' < "
		"/dev/null && "
		"pwd -P >| /tmp/claude-fd00-cwd");

	CHECK_RC(SHELL_THERE, plan.where);
	CHECK_STRING("/tmp/claude-fd00-cwd", plan.report_file);
	CHECK(plan.report_needs_success);
	CHECK_STRING("eval 'echo one && pwd -P >| x' < /dev/null && printf '%s%s%s' BEGIN \"$(pwd "
		     "-P)\" END",
		plan.script);
	shell_plan_done(&plan);
}

static void test_what_claude_asks_of_the_user_s_shell_stays_here(void)
{
	check_place(SHELL_HERE, PLAN(AGENT_CLAUDE, "/bin/bash", "-c", "env"));
	check_place(SHELL_HERE,
		PLAN(AGENT_CLAUDE, "/bin/bash", "-c", "-l", "SNAPSHOT_FILE=/h/x.sh\n  # ..."));
	check_place(SHELL_THERE, PLAN(AGENT_OTHER, "/bin/bash", "-c", "env"));
}

static void test_an_unknown_form_of_a_wrapper_runs_nowhere(void)
{
	check_place(SHELL_REFUSED,
		PLAN(AGENT_CLAUDE, "bash", "-c", "source /h/.claude/shell-snapshots/s.sh; ls"));
	check_place(SHELL_REFUSED,
		PLAN(AGENT_CLAUDE, "bash", "-c", "true && eval 'ls' && pwd -P >| \"$FILE\""));
	check_place(SHELL_REFUSED, PLAN(AGENT_GEMINI, "bash", "-c", "_bgpids_file=/tmp/x\n(ls)"));
	check_place(SHELL_REFUSED, PLAN(AGENT_GEMINI, "bash", "-c",
					   "shopt; _bgpids_file=/tmp/x\n(\n  trap 'jobs -p > "
					   "\"$_bgpids_file\"' EXIT\nls\n)\n"
					   "__code=$?\nexit $__code\nmore"));
}

/* What Gemini CLI 0.61.0 executes. */
static void test_gemini_s_jobs_are_reported(void)
{
	struct shell_plan plan = PLAN(AGENT_GEMINI, "bash", "-c",
		"shopt -u promptvars; _bgpids_file=/tmp/gemini-shell-a/bgpids.tmp\n(\n"
		"  trap 'jobs -p > \"$_bgpids_file\"' EXIT\nls\n)\n__code=$?\nexit $__code");

	CHECK_RC(SHELL_THERE, plan.where);
	CHECK_STRING("/tmp/gemini-shell-a/bgpids.tmp", plan.report_file);
	CHECK(!plan.report_needs_success);
	CHECK_STRING("shopt -u promptvars; \nexec 9>&1\n(\n"
		     "  trap 'printf \"%s%s%s\" BEGIN \"$(jobs -p)\" END >&9' EXIT\n"
		     "ls\n)\n__code=$?\nexit $__code",
		plan.script);
	shell_plan_done(&plan);
}

/* What Codex 0.169.0 executes. */
static void test_codex_s_snapshots_stay_here(void)
{
	check_place(SHELL_HERE,
		PLAN(AGENT_CODEX, "bash", "-lc", "if :; then\n  :\nfi\necho '# Snapshot file'\n"));
	check_place(SHELL_HERE,
		PLAN(AGENT_CODEX, "bash", "-c", "set -e; . \"/h/.codex/shell_snapshots/1.tmp-2\""));
	check_place(SHELL_HERE,
		PLAN(AGENT_CODEX, "bash", "-c",
			"__CODEX_SNAPSHOT_OVERRIDE_SET_0=\"${A+x}\"\nexec '/bin/bash' -c 'ls'"));
	check_place(SHELL_THERE, PLAN(AGENT_CODEX, "bash", "-lc", "ls"));
}

static void check_mapped(const char *want, const char *text)
{
	cleanup_free char *mapped = shell_map_paths(text, "/mnt/ws", "/srv");

	CHECK_STRING(want, mapped);
}

static void test_paths_are_mapped_by_whole_names(void)
{
	check_mapped("cat /srv/a '/srv' x=/srv:/srv", "cat /mnt/ws/a '/mnt/ws' x=/mnt/ws:/mnt/ws");
	check_mapped("/mnt/ws2 /x/mnt/ws /mnt/ws.bak a/mnt/ws",
		"/mnt/ws2 /x/mnt/ws /mnt/ws.bak a/mnt/ws");
	check_mapped("", "");
}

/* Cut at every place, a stream comes out the same. */
static void test_a_report_is_taken_out_wherever_it_is_cut(void)
{
	static const char stream[] = "out BEGI N BEGBEGIN/the/dir\nENENDmore BEGIN x END";

	for (size_t cut = 0; cut < sizeof(stream) - 1; cut++) {
		struct report_filter filter = {.begin = "BEGIN", .end = "END"};
		struct buffer out = {0};

		CHECK_RC(0, report_filter_take(&filter, stream, cut, &out));
		CHECK_RC(0,
			report_filter_take(&filter, stream + cut, sizeof(stream) - 1 - cut, &out));
		CHECK_RC(0, report_filter_end(&filter, &out));
		CHECK(filter.is_complete);
		CHECK_RC(strlen("out BEGI N BEGmore BEGIN x END"), out.size);
		CHECK(memcmp(out.data, "out BEGI N BEGmore BEGIN x END", out.size) == 0);
		CHECK_RC(strlen("/the/dir\nEN"), filter.report.size);
		buffer_done(&out);
		report_filter_done(&filter);
	}
}

static void test_a_stream_without_a_report_is_whole(void)
{
	struct report_filter filter = {.begin = "BEGIN", .end = "END"};
	struct buffer out = {0};

	CHECK_RC(0, report_filter_take(&filter, "all BEGI", 8, &out));
	CHECK_RC(4, out.size);
	CHECK_RC(0, report_filter_end(&filter, &out));
	CHECK_RC(8, out.size);
	CHECK(!filter.is_complete);
	buffer_done(&out);
	report_filter_done(&filter);
}

static void test_a_report_without_an_end_is_bounded(void)
{
	struct report_filter filter = {.begin = "BEGIN", .end = "END"};
	static char data[REPORT_MAX_BYTES];
	struct buffer out = {0};
	int r;

	memset(data, 'x', sizeof(data));
	CHECK_RC(0, report_filter_take(&filter, "BEGIN", 5, &out));
	r = report_filter_take(&filter, data, sizeof(data), &out);
	if (r == 0)
		r = report_filter_take(&filter, data, sizeof(data), &out);
	CHECK_RC(-EMSGSIZE, r);
	buffer_done(&out);
	report_filter_done(&filter);
}

TEST_MAIN("run_wrapper", TEST(test_a_shell_without_a_command_is_the_real_one),
	TEST(test_a_command_is_found_behind_all_forms_of_options),
	TEST(test_claude_s_command_goes_without_its_snapshot),
	TEST(test_what_claude_asks_of_the_user_s_shell_stays_here),
	TEST(test_an_unknown_form_of_a_wrapper_runs_nowhere), TEST(test_gemini_s_jobs_are_reported),
	TEST(test_codex_s_snapshots_stay_here), TEST(test_paths_are_mapped_by_whole_names),
	TEST(test_a_report_is_taken_out_wherever_it_is_cut),
	TEST(test_a_stream_without_a_report_is_whole),
	TEST(test_a_report_without_an_end_is_bounded))
