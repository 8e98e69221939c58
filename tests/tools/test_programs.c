/*
 * What single commands do, as tools/shell/shell_programs.h judges them: the table program_words.txt
 * with "words => answer" on each line.  There 'a b' is one word, a word that ends in $ is known up
 * to there only ($$: may be several words), and one with * ? [ is a pattern. The answer: "reads"
 * (allowed without a rule), "asks", or "-" (as the rules say); then its uses (r read, w written, b
 * both, x deleted, upper case with what is below, F and L read and written with what is below and
 * through links; "?" behind: not known), then "inner: words" (too: it does more than run them),
 * "line: text", and "always: n" and "from: n" where they are not 1.
 */
#include "tests/check.h"

#include "ops/support/buffer.h"
#include "tools/shell/shell_programs_internal.h"

#define WORDS_MAX 64

static const char *table_path;

struct words {
	struct shell_word list[WORDS_MAX];
	size_t count;
};

/* Cuts `text` into words in place. */
static void split(char *text, struct words *words)
{
	char *at = text;

	while (*(at += strspn(at, " ")) && words->count < WORDS_MAX) {
		struct shell_word *word = &words->list[words->count++];
		char *out = at;

		*word = (struct shell_word){.text = at, .known = true};
		for (bool quoted = false; *at && (quoted || *at != ' '); at++) {
			if (*at == '\'') {
				quoted = !quoted;
				continue;
			}
			word->glob =
				word->glob || (!quoted && strchr("*?[", *at) && words->count > 1);
			word->known = word->known && (quoted || *at != '$');
			word->split = word->split || (!quoted && strncmp(at, "$$", 2) == 0);
			if (quoted || *at != '$')
				*out++ = *at;
		}
		at += *at == ' ';
		*out = '\0';
	}
	/* "[" is a program, not a pattern. */
	for (size_t i = 1; i < words->count; i++)
		if (strcmp(words->list[0].text, "[") == 0 && strcmp(words->list[i].text, "]") == 0)
			words->list[i].glob = false;
}

static void print_answer(const struct shell_program_answer *answer, struct buffer *out)
{
	static const char letters[] = " rwb RWB     FLL";

	buffer_printf(out, "%s", answer->reason[0] ? "asks" : answer->only_reads ? "reads" : "-");
	for (size_t i = 0; i < answer->use_count; i++)
		buffer_printf(out, " %c:%s%s",
			answer->uses[i].use & SHELL_DELETES
				? "xX"[!!(answer->uses[i].use & SHELL_TREE)]
				: letters[answer->uses[i].use & 15],
			answer->uses[i].path, answer->uses[i].known ? "" : "?");
	for (size_t i = 0; i < answer->inner_count; i++)
		buffer_printf(out, "%s %s%s", i ? "" : " inner:", answer->inner[i].text,
			answer->inner[i].known   ? ""
			: answer->inner[i].split ? "$$"
						 : "$");
	if (answer->inner && !answer->transparent)
		buffer_printf(out, " too");
	if (answer->inner_line)
		buffer_printf(out, " line: %s", answer->inner_line);
	if (answer->prefix != 1)
		buffer_printf(out, " always: %zu", answer->prefix);
	if (answer->plain_from != 1)
		buffer_printf(out, " from: %zu", answer->plain_from);
}

static int judge(char *text, struct buffer *out, struct shell_program_answer *ret_answer)
{
	struct words words = {0};

	split(text, &words);
	if (shell_program_judge(words.list, words.count, ret_answer) < 0)
		return -ENOMEM;
	print_answer(ret_answer, out);
	return 0;
}

static void check_line(char *line)
{
	cleanup_free char *got = NULL, *words = NULL;
	struct buffer out cleanup_buffer = {0};
	struct shell_program_answer answer = {0};
	char *arrow = strstr(line, " => ");

	if (!CHECK(arrow != NULL))
		return;
	*arrow = '\0';
	words = strdup(line);
	CHECK_RC(0, judge(line, &out, &answer));
	got = buffer_steal_string(&out);
	if (!CHECK_STRING(arrow + 4, got))
		fprintf(stderr, "  of: %s (%s)\n", words, answer.reason);
	shell_program_answer_done(&answer);
}

static void test_every_line_of_the_table(void)
{
	cleanup_file FILE *file = fopen(table_path, "re");
	cleanup_free char *line = NULL;
	size_t capacity = 0, count = 0;

	if (!CHECK(file != NULL))
		return;
	for (; getline(&line, &capacity, file) > 0; count++) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] && line[0] != '#')
			check_line(line);
	}
	CHECK(count >= 400);
}

/* For who adds rows: "test_programs --print < words" prints lines for the table, to be read. */
static int print_lines(void)
{
	cleanup_free char *line = NULL;
	size_t capacity = 0;

	while (getline(&line, &capacity, stdin) > 0) {
		struct buffer out cleanup_buffer = {0};
		struct shell_program_answer answer = {0};
		char *arrow = strstr(line, " => ");

		line[strcspn(line, "\n")] = '\0';
		if (arrow)
			*arrow = '\0';
		if (!line[0] || line[0] == '#') {
			puts(line);
			continue;
		}
		printf("%s => ", line);
		judge(line, &out, &answer);
		printf("%.*s\n", (int)out.size, (const char *)out.data);
		if (getenv("REASONS") && answer.reason[0])
			printf("\t# %s\n", answer.reason);
		shell_program_answer_done(&answer);
	}
	return 0;
}

static void check_scripts(bool (*only_prints)(const char *script), bool want,
	const char *const *scripts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!CHECK(only_prints(scripts[i]) == want))
			fprintf(stderr, "  of: %s\n", scripts[i]);
}

static void test_scripts_of_sed(void)
{
	static const char *const good[] = {"", "p", "1p", "1,5p", "$p", "$!d", "/a/d", "/a/,/b/p",
		"s/a/b/", "s/a/b/g", "s|a|b|gp", "s/a/b/2;s/c/d/I", "5q", "$=", "s,a,b,;s#a#b#",
		"/[[:space:]]*$/d", "s/\\(a\\)\\/b/\\1\\/c/", "/a/,+3p", "1d\n$d", "s/a//",
		"s/[^a-z]/&&/", "s/x/w new/", "2 , 4 ! p ; q"};
	static const char *const bad[] = {"w f", "1w f", "s/a/b/w f", "s/a/b/gw f", "s/a/b/e", "e",
		"1e id", "e id", "r f", "R f", "W f", "/a/{w f\n}", "s/a/b/;w f", "p;e", "v",
		"s/[/]/w f/;e/x/", "s/[/a]b/x/", "a text\nw f", "# c\nw f", "a x\\\\\nw f", "s/a/b",
		"s", "y/a/b/w", "s\na\nb\nw f\n", "sxaxbxe", "}e", "{e", "1,2e", "$!e", "/a/e",
		"\\/a/e", "/a\\/b/e", "s/a\\/b/c/e", "s/a/b/ge", "s/a/b/eg", "ba}e", ":a\ne",
		"s/[[:x/e;]/b/p", "s/[a\\]/]/e", "y/abc/xyz/", "# comment\np", "a text",
		"1i\\\ntext", "\\,a,d", "n;d", "/a/{p}", "0~3d", "2,~4p", "/a/I,+3p",
		"s/[^ \\t]*//", "s/[/]//", "s|\\||x|", "s/a\nb/c/", "s/a/b\\\nc/", "s/a/b/m", "//p",
		"p p", "pw f", "1,w f", "1!!w f", "l", "F", "z", "s/\303\251/b/", "/[]w f]/p",
		"/[^]w f]/p", "/[^]/p;w f]/p", "/[^^]/p", "/[a[w f]/p", "/[[:x:w f]/p", "s/a/\\Uw/",
		"/a\\/w f"};

	check_scripts(shell_sed_only_prints, true, good, array_size(good));
	check_scripts(shell_sed_only_prints, false, bad, array_size(bad));
}

static void test_programs_of_awk(void)
{
	static const char *const good[] = {"", "{print}", "{print $1}", "NR==1", "/a/",
		"/a/{print $2}", "$3 > 100", "$3 > 100 {print $1}", "{printf \"%s\\n\", $1}",
		"/a|b/", "{print \"> | system\"}", "NR==1\n/foo/{print}", "/[a-z]\\/b/",
		"{print length($0)}", "/^[^#]/", "BEGIN{print \"x\"}{print}END{print NR}",
		"!/a/ && $1 ~ /b/ || NF >= 2.5, FNR == 9", "/\\[x\\]/ {print $NF; exit}",
		"{print $(NF-1) \" \" FILENAME}", "/\"/", "/a/;/b/{next}", "{print;}\n"};
	static const char *const bad[] = {"{print > \"f\"}", "{print $1 > \"f\"}",
		"{print >> \"f\"}", "{print | \"id\"}", "{system(\"id\")}",
		"BEGIN{\"id\" | getline x}", "{getline < \"f\"}", "{getline}",
		"{printf \"a\" > \"f\"}", "{print (1) > \"f\"}", "{print (1)(2) > \"f\"}",
		"@load \"x\"", "{f=\"system\"; @f(\"id\")}", "BEGIN{ARGV[1]=\"/etc/passwd\"}",
		"{print a,\n b > \"f\"}", "{x = a / b; system(\"id\") / c}",
		"{print /\"/ ; system(\"id\") /\"/}", "{x++ / 2 ; print \"/\" > \"f\"}",
		"{print |& \"id\"}", "BEGIN{print ENVIRON[\"X\"]}", "{print a[1] > \"f\"}",
		"{if (a) print > \"f\"}", "{print\\\n > \"f\"}", "{print \"a\\\" > \"f\"}",
		"/[/]/ {system(\"id\")}", "{ print $1, $2 > $3 }", "{printf(\"x\") > \"f\"}",
		"{print -1 >\"f\"}", "{sys\\\ntem(\"id\")}",
		"BEGIN{if (1) /\"/; system(\"id\"); x = /\"/}",
		"{while ((x) > 1) /\"/; system(\"id\"); x = /\"/}",
		"{for (;;)\n/\"/; system(\"id\"); x = /\"/}",
		"{ x = length /\"/; system(\"id\"); y = /\"/ }",
		"length /\"/ {system(\"id\")} /\"/", "{s+=$1} END{print s/NR}", "!seen[$0]++",
		"{print ($1 > 5)}", "# x\n{print}", "{gsub(/a/,\"b\")} 1", "{print $1 / $2}",
		"{$1 = 2} 1", "{print x}", "x", "NR /a/", "$1 /\"/ {print \"/\"}", "/a/ /b/",
		"/a//b/", "$1 ~ \"a\"", "/\\\\/", "/[a\\]/]/", "/[]/]/",
		"/[^]/ {system(\"id\")} /]/", "/a\n/", "\"\\\"\"", "\"\\\\\"", "{printf $1}",
		"{print $x}", "{print $(NR)}", "function f() {print}", "{delete x}",
		"{close(\"x\")}", "\"id\" | getline", "{print $1 > $2}", "NR > 1 > 2",
		"{print NR > 5}", "/\303\251/", "{print \"\303\\\"}"};

	check_scripts(shell_awk_only_prints, true, good, array_size(good));
	check_scripts(shell_awk_only_prints, false, bad, array_size(bad));
}

static void test_programs_of_jq(void)
{
	static const char *const good[] = {".", ".a.b", ".[]", ".a[0]", ".[] | select(.a == \"b\")",
		"keys", ".a | length", "map(.x) | add", ".env", ".\"env\"", "to_entries[] | .key",
		".a // \"b\"", ".[2:4]", "if .a then .b else .c end", ".a?", "\"import\""};
	static const char *const bad[] = {"env", ".a | env", "..", "..env", "1.env", "1 | env",
		"$ENV", "env.X", "import \"x\" as y; .", "include \"x\"; .", "\"\\(env)\"", "{env}",
		"@sh", "input", "modulemeta", ".. | env", "def f: env; f", ".a as $x | $x",
		"# x\n.", "get_search_list", "$__loc__", "debug", "x::y", "(env)", "[env]", "-env",
		".\303\251"};

	check_scripts(shell_jq_only_prints, true, good, array_size(good));
	check_scripts(shell_jq_only_prints, false, bad, array_size(bad));
}

/* An answer for a word in a place that no row knows must not be worse than linear. */
static void test_long_commands_are_judged(void)
{
	static struct shell_word words[20000];
	struct shell_program_answer answer;

	for (size_t i = 0; i < array_size(words); i++)
		words[i] = (struct shell_word){.text = i ? "-nf.env" : "grep", .known = true};
	CHECK_RC(0, shell_program_judge(words, array_size(words), &answer));
	CHECK(answer.use_count >= array_size(words) - 1);
	shell_program_answer_done(&answer);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {TEST(test_every_line_of_the_table),
		TEST(test_scripts_of_sed), TEST(test_programs_of_awk), TEST(test_programs_of_jq),
		TEST(test_long_commands_are_judged)};

	if (argc != 2)
		return 2;
	if (strcmp(argv[1], "--print") == 0)
		return print_lines();
	table_path = argv[1];
	return test_run("programs", cases, array_size(cases));
}
