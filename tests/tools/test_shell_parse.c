/*
 * The subset of bash: what is in it and how it is printed, and that bash takes the printed line
 * for the same as the line itself.
 */
#include "tests/check.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/shell/shell_parse.h"

/* The line printed anew, or "?" and what is outside the subset.  The caller frees it. */
static char *printed(const char *line)
{
	struct buffer out = {0};
	struct shell_tree tree = {0};
	const char *problem = NULL;
	int r = shell_parse(line, &tree, &problem);

	if (r == -EINVAL)
		buffer_printf(&out, "?%s", problem);
	else if (CHECK_RC(0, r))
		CHECK_RC(0, shell_print(tree.commands, &out));
	shell_tree_done(&tree);
	return buffer_steal_string(&out);
}

static void test_lines_are_printed_anew(void)
{
	static const struct {
		const char *line, *want;
	} cases[] = {
		{"", ""},
		{" \n\t\n", ""},
		{"# nothing", ""},
		{"ls", "ls"},
		{"  ls   -la\tsrc  ", "ls -la src"},
		{"l\\s", "ls"},
		{"'ls' \"-l\" a\\ b", "ls -l 'a b'"},
		{"'ls ' x", "'ls ' x"},
		{"gi\"t\" pu's'h", "git push"},
		{"echo 'it'\\''s' \"it's\"", "echo 'it'\\''s' 'it'\\''s'"},
		{"echo '' \"\" a''", "echo '' '' a"},
		{"echo \"\"$X ''", "echo ''${X} ''"},
		{"echo $'a\\n\\t\\'b'", "echo 'a\n\t'\\''b'"},
		{"echo \"a\\$b\\c\\\"d\\\\e\\`f\"", "echo 'a$b\\c\"d\\e`f'"},
		{"echo \"a\\\nb\"", "echo ab"},
		{"\"\\\n\" \"\\\n\" \"\\\n\"$X $X\"\" $X\"\\\n\"", "'' '' ''${X} ${X}'' ${X}''"},
		{"echo $X \"$X\" ${X} \"${X}y\" $1 $? \"$$\"",
			"echo ${X} \"${X}\" ${X} \"${X}\"y ${1} ${?} \"${$}\""},
		{"echo $10 ${10}", "echo ${1}0 ${10}"},
		{"grep 'a$' \"b$\" c$", "grep 'a$' 'b$' 'c$'"},
		{"ls ~ ~/ ~/x '~' a~ HEAD~1", "ls ~ ~/ ~/x '~' 'a~' 'HEAD~1'"},
		{"ls ~/'a b'/*", "ls ~/'a b/'*"},
		{"ls *.c ?x [a-z]y [!a]* '*' \\?", "ls *.c ?x [a-z]y [!a]* '*' '?'"},
		{"[ -f x ]", "'[' -f x ']'"},
		{"find . -exec ls {} \\;", "find . -exec ls '{}' ';'"},
		{"git show HEAD@{1} a}", "git show 'HEAD@{1}' 'a}'"},
		{"X=1 Y='a b' Z=$X make CC=gcc", "X=1 Y='a b' Z=\"${X}\" make CC=gcc"},
		{"X=*.c", "X='*.c'"},
		{"X= ls", "X= ls"},
		{"'X=1' ls", "'X=1' ls"},
		{"X'='1 ls", "'X=1' ls"},
		{"\\if x", "'if' x"},
		{"time '-p' x", "time '-p' x"},
		{"'A'[1]'=x'", "'A'[1]'=x'"},
		{"ls | wc -l", "ls | wc -l"},
		{"a&&b||c;d&e|&f\ng", "a && b || c; d & e |& f; g"},
		{"a &&\n\n b |\n c &", "a && b | c &"},
		{"! a; time b; ! time c | d", "! a; time b; ! time c | d"},
		{"time -p a", "time -p a"},
		{"(a;b) ; ( (c) )", "( a; b ); ( ( c ) )"},
		{"{ a; b & }; { c\n}", "{ a; b &\n}; { c\n}"},
		{"(a) >x 2>&1", "( a ) >x 2>&1"},
		{"a # b\n#c\nd#e", "a; 'd#e'"},
		{"a \\\n  b", "a b"},
		{"a>x 2>>y<z &>w >|v >&2 2>&- <&0", "a >x 2>>y <z &>w >|v >&2 2>&- <&0"},
		{">x a 2>y b", "a b >x 2>y"},
		{"> x", " >x"},
		{"a &>> x", "a &>>x"},
		{"a >$X >\"$X\" > ~/y", "a >${X} >\"${X}\" >~/y"},
		{"a <<< \"b $X\" <<<*", "a <<<'b '\"${X}\" <<<'*'"},
		{"a <<E\nb\n 'c\nE\nd", "a <<<'b\n '\\''c'; d"},
		{"a <<'E' | c\n$(x) `y`\nE\n", "a <<<'$(x) `y`' | c"},
		{"(a <<-\\E\n\tb\n\tE\n)", "( a <<<b )"},
		{"a <<E\nE", "a </dev/null"},
		{"a <<E\n\nE", "a <<<''"},
		{"echo $(a \"$(b; c)\")x \"$( (d) )\"",
			"echo $( a \"$( b; c )\" )x \"$( ( d ) )\""},
		{"X=$(a) Y=\"$(b)\"", "X=\"$( a )\" Y=\"$( b )\""},
		{"echo \xc3\xa9 \xf0\x9f\x8e\x89", "echo '\xc3\xa9' '\xf0\x9f\x8e\x89'"},
	};

	for (size_t i = 0; i < array_size(cases); i++) {
		cleanup_free char *got = printed(cases[i].line);

		CHECK_STRING(cases[i].want, got);
	}
}

static void test_the_rest_of_bash_is_outside(void)
{
	static const char *const lines[] = {"a=`b`", "`b`", "\"`b`\"", "a=$((1))", "$[1]", "((a))",
		"( (a)", "${x:-y}", "${x}}${", "${!x}", "${x[1]}", "${#x}", "$@", "\"$*\"", "${@}",
		"+=a", "\"${x:-`y`}\"", "a[1]=x", "a+=x", "a=(b)", "a=$(", "$(", "$()", "$( # )",
		"()", "{ }", "{ a }", "{ a;", "(a", "a)", "a }; }", "f() { a; }",
		"function f { a; }", "f () a", "if a; then b; fi", "for x in a; do b; done",
		"while a; do b; done", "case a in b) c;; esac", "select x in a; do b; done",
		"[[ a ]]", "coproc a", "time", "time -p", "time -a b", "time  -p a", "! ;", "!",
		"! time", "!(a)", "a !(b)", "a @(b)", "a |", "| a", "a && && b", "a || ;", "; a",
		"a ;; b", "a ;& b", "a $x$", "a & ; b", "a & & b", "a | ! b", "a | time b", "&& a",
		"a (b)", "(a) b", "{ a; } b", "a <(b)", "a >(b)", "a <> b", "a >", "a > > b",
		"a > *", "a >& b", "a >&2x", "a 10> b", "a {x}> b", "a {x}>&1", "a <2>&1",
		"a > /dev/tcp/h/1", "a < \"/dev/udp/h/1\"", "a <<E", "a <<E\n$x\nE",
		"a <<E\n`x`\nE", "a <<E\n\\\nE\nE", "a <<$x\nE", "a <<$'E'\nE\n", "$(a <<E\nE\n)",
		"a <<A <<B\nA\nB\n", "a <<E $(b)\nE\n", "'a", "\"a", "$'a", "$'\\x41'",
		"$'\\u0041'", "$\"a\"", "a$\"b\"", "a\\", "a\\\nb", "a&\\\n&b", "a \\\n# b\nc",
		"# a \\\nb", "a {b,c}", "a {1..3}", "a \\${b,c}", "a $x{b,c}", "a {b,'c'}",
		"~root/x", "~+", "a=~", "a=b:~/c", "a b=~/c", "ls a[", "ls [", "ls []",
		"ls [[:alpha:]]", "ls [\"a\"]", "ls [a/b]", "a\rb", "a\vb", "a\fb", "a\001b",
		"a\x7f", "a\xc2\x85", "a\xff", "a \342\200\256b", "'\xe2\x80\x8b'", "a\xef\xbb\xbf",
		"a\xc3", "\xed\xa0\x80"};

	for (size_t i = 0; i < array_size(lines); i++) {
		cleanup_free char *got = printed(lines[i]);

		if (strcmp(lines[i], "ls [") == 0) /* a word of its own */
			CHECK_STRING("ls '['", got);
		else if (!CHECK(got && got[0] == '?'))
			fprintf(stderr, "  %s: %s\n", lines[i], got);
	}
}

static char *repeated(const char *text, size_t count)
{
	struct buffer line = {0};

	for (size_t i = 0; i < count; i++)
		buffer_append_string(&line, text);
	return buffer_steal_string(&line);
}

static void test_everything_is_bounded(void)
{
	static const struct {
		const char *piece;
		size_t count;
		bool inside;
	} cases[] = {{"( ", 10000, false}, {"$(", 10000, false}, {"{ ", 10000, false},
		{"a;", 50000, true}, {"a ", 50000, true}, {"''", 50000, true}, {"$a", 50000, true},
		{"{", 99999, true}, {"a ", 50001, false}, {">a ", 33000, true}, {"!", 99999, true},
		{"! ", 49999, false}, {"a=b ", 25000, true}, {"\"", 99998, true},
		{"*", 100000, true}, {"<<a ", 25000, false}, {"a <<a\na\n", 12500, true},
		{"\n", 100000, true}, {"#\n", 50000, true}, {"a&", 50000, true},
		{"~", 99999, false}};

	for (size_t i = 0; i < array_size(cases); i++) {
		cleanup_free char *line = repeated(cases[i].piece, cases[i].count);
		cleanup_free char *got = line ? printed(line) : NULL;

		if (!CHECK(got && (*got != '?') == cases[i].inside))
			fprintf(stderr, "  of %s: %.80s\n", cases[i].piece, got);
	}
}

/* ---- Against bash itself --------------------------------------------------------------- */

/* Runs each pair of lines in fresh files and compares what they print, leave and end with. */
static const char compare_script[] =
	"trap 'rm -rf -- \"$1\"' EXIT\n"
	"mkdir \"$1/box\" && cd \"$1/box\" || exit 2\n"
	"export HOME=$1/box/home X='a  b' Y='*.c' Z= LC_ALL=C\n"
	"clean() { local have=(* .[!.]* home/*)\n"
	"  [ \"${have[*]}\" = 'a.c b.c c d.h home .[!.]* home/*' ] && [ ! -s a.c ] &&\n"
	"    [ ! -s b.c ] && [ ! -s 'c d.h' ]; }\n"
	"see() { clean || { rm -rf -- * .[!.]*; mkdir home; : >a.c; : >b.c; : >'c d.h'; }\n"
	"  \"$BASH\" -c -- \"$1\" </dev/null 2>/dev/null; printf '=%s\\n' $?\n"
	"  for f in * .[!.]* home/*; do [ ! -s \"$f\" ] || [ -d \"$f\" ] ||\n"
	"    printf '%s:%s\\n' \"$f\" \"$(<\"$f\")\"; done; }\n"
	"messages() { local line\n" /* without those of bash: they have the line's number */
	"  while IFS= read -r line; do case $line in *bash:\\ line\\ *) ;; *)\n"
	"    printf '%s\\n' \"$line\"; esac; done <<<\"$1\"; }\n"
	"failed=0\n"
	"while IFS= read -r -d '' line && IFS= read -r -d '' printed; do\n"
	"  one=$(see \"$line\") two=$(see \"$printed\")\n"
	"  [ \"$one\" = \"$two\" ] || [ \"$(messages \"$one\")\" = \"$(messages \"$two\")\" ] ||\n"
	"    { failed=1\n"
	"    printf 'line: %s\\nprinted: %s\\n%s\\n%s\\n\\n' \"$line\" \"$printed\" \"$one\" "
	"\"$two\" >&2; }\n"
	"done <\"$1/pairs\"\n"
	"exit $failed\n";

static void compare(const struct buffer *pairs)
{
	char directory[] = "/tmp/test-shell-parse-XXXXXX", path[64];
	const char *const argv[] = {"bash", "-c", compare_script, "bash", directory, NULL};
	int status = -1;
	FILE *file;
	pid_t pid;

	if (!CHECK(mkdtemp(directory) != NULL))
		return;
	snprintf(path, sizeof(path), "%s/pairs", directory);
	file = fopen(path, "we");
	if (!CHECK(file != NULL))
		return;
	CHECK(fwrite(pairs->data, 1, pairs->size, file) == pairs->size);
	CHECK_RC(0, fclose(file));
	CHECK_RC(0, posix_spawnp(&pid, "bash", NULL, NULL, (char *const *)argv, environ));
	CHECK_RC(pid, waitpid(pid, &status, 0));
	CHECK_RC(0, status);
}

/* Appends the line and what is printed for it; false when it is outside, or printing it twice is
 * not the same as once. */
static bool add_pair(const char *line, struct buffer *pairs)
{
	cleanup_free char *once = printed(line), *twice = once ? printed(once) : NULL;

	if (!once || once[0] == '?')
		return false;
	if (!CHECK_STRING(once, twice))
		return false;
	buffer_append(pairs, line, strlen(line) + 1);
	buffer_append(pairs, once, strlen(once) + 1);
	return true;
}

static void test_bash_does_the_same_with_both(void)
{
	/* What follows "printf '[%s]' "; then whole lines. */
	static const char *const words[] = {"a 'b c' \"d e\" f\\ g", "$X \"$X\" x$X\"$X\"y",
		"$Y \"$Y\" '*'.c", "$Z \"$Z\" '' \"\"$Z", "*.c ?.c [ab].c [!a].c a* '*' \\*",
		"[b-c]* [^a]*", "~ ~/x '~' \\~ a~ \"~/x\" HEAD~1", "~/*", "$'a\\tb\\n\\\\\\'\\\"'",
		"\"a\\$X\\`\\\"\\\\\\c\\\n d\"", "\"a$\" 'b$' c$ \"$ d\" \"e$|$)\"",
		"{} a{b} {a} }{", "HEAD@{1} stash@{0} {} '{a,b}' \"{1..3}\"", "$? \"$#\" $0 $1",
		"$(printf '%s' 'a  b') \"$(printf '%s' 'a  b')\"", "\"$(printf \"%s\" \"$X\")\"",
		"$( (printf a; printf b) | cat )", "a=$X b=*.c c= =d", "X=1 Y", "\\a\\'\\\"\\ \\\\",
		"a#b '#' \\#c #d", "! time if then { }", "%1 ^a^b !! !x a!b", "\xc3\xa9*",
		"a\\\tb 'c\td' \"e\nf\" 'g\nh'", "-n -- --a=b:c,d@e%f+g", "10 2 >o", "a 2>&1 >o",
		"a >o; cat o", "x >|o <a.c; cat <o", "y >>o; printf z >>o; cat o", "a &>o",
		"b &>>o 2>o2", "~ >~/o; cat ~/o", "\"$Z\"$Z ''$Z$Z ${Z}a", "${X}b ${X}$X \"${X}\"",
		"a\"b\"'c'\\d$Z\"e\"", "c\\ d.* 'c d'.* c?d*", ". .. ./*.c",
		"a'*'* \"a\"?c [a]'.'c"};
	static const char *const lines[] = {"X=1; printf %s $X", "X=$Y; printf '[%s]' $X \"$X\"",
		"X='a  b' Y=$X; printf '[%s]' \"$Y\"", "X=$(printf 'a  b') sh -c 'printf \"$X\"'",
		"X=*.c; printf '[%s]' \"$X\"", "X=a{b Z=$X$X; printf '[%s]' \"$Z\"",
		"printf a && printf b || printf c; printf d", "! printf a || printf b",
		"printf a | cat | cat", "nosuch |& cat >o; [ -s o ]", "(printf a; exit 3)",
		"{ printf a; printf b; } | cat", "{ printf a\n} >o; cat o",
		"(X=2; printf $X); printf $X", "cat <<E\na 'b' \"c\"\n  d\nE\nprintf e",
		"cat <<'E' | cat\n$X `x` \\\nE", "cat <<E\nE", "cat <<-E\n\ta\n\t\tb\n\tE",
		"cat <<E\n\nE", "cat <<<a; cat <<<\"$X\"; cat <<< $X", "cat <<<*; cat <<<''",
		"(cat <<E\na\nE\n) | cat", "false & wait; printf a",
		"printf a # b\nprintf c;#d\nprintf e", "printf a \\\n b", "time printf a",
		"! time ! printf a", ">o; ls", ">o printf a 2>&1; cat o", "X=1 >o printf a; cat o",
		"'X=1' a || printf b", "\\if || printf b", "\"!\" a || printf b", "time \"time\" a",
		"[ a = a ] && printf b", "printf a >&2 2>&1 | cat", "printf a 2>&- <&- >o; cat o",
		"Z= ; printf \"[$Z]\"; $Z printf a; ''$Z || printf b", "$Z", "( ( printf a ) )",
		"\\time true || printf b", "'A'[1]'=x' || printf '[%s]' \"$A\""};
	struct buffer pairs cleanup_buffer = {0};
	char line[256];

	for (size_t i = 0; i < array_size(words); i++) {
		snprintf(line, sizeof(line), "printf '[%%s]' %s", words[i]);
		if (!CHECK(add_pair(line, &pairs)))
			fprintf(stderr, "  of %s\n", line);
	}
	for (size_t i = 0; i < array_size(lines); i++)
		if (!CHECK(add_pair(lines[i], &pairs)))
			fprintf(stderr, "  of %s\n", lines[i]);
	compare(&pairs);
}

static unsigned random_count = 80; /* pairs that bash runs */
static unsigned long random_state = 1;

static size_t random_below(size_t limit)
{
	random_state = random_state * 6364136223846793005UL + 1442695040888963407UL;
	return (size_t)(random_state >> 33) % limit;
}

/* $$ is another one in each bash; in the background the order is not known. */
static bool is_steady(const char *line)
{
	cleanup_free char *once = printed(line);

	return once && !strstr(once, "${$}") && !strstr(once, " & ") && !strstr(once, " &\n") &&
	       strcmp(once + strlen(once) - (strlen(once) > 1 ? 2 : 0), " &") != 0;
}

/* No "/" but in "~/", so nothing outside the directory. */
static void test_bash_does_the_same_with_random_lines(void)
{
	static const char *const pieces[] = {" ", " ", " ", "printf '[%s]' ", "printf '[%s]' ",
		"cat ", "a", "b", "$X", "$Y", "${Z}", "*", "?", "[a-b]", "[", "]", "'", "'", "\"",
		"\"", "\\", "~", "~/", "=", "X=", "{", "}", "{}", ",", "..", "#", "\n", "; ", "&&",
		"||", " | ", "(", ")", "{ ", "; }", "! ", "!", ">", ">>", "<", ">|", "2>&1", "<<<",
		"<<E\n", "<<'E'\n", "<<-E\n\t", "\nE\n", "\t", "$(", "$( ", ")", "\\\n", "time ",
		"$'", "\\n", "$", "-", "1", "2", "\xc3\xa9", "if", "+=", "@", ":", "%", "^", "$?",
		"$@", "&>", "|&", ";", "o"};
	struct buffer pairs cleanup_buffer = {0};

	for (unsigned found = 0; found < random_count;) {
		char line[256] = "printf '[%s]' ";
		size_t length = 1 + random_below(12);

		if (random_below(4) == 0)
			line[0] = '\0';
		for (size_t i = 0; i < length; i++)
			strcat(line, pieces[random_below(array_size(pieces))]);
		if (is_steady(line))
			found += add_pair(line, &pairs);
	}
	compare(&pairs);
}

/* The argument is how many random lines bash gets. */
int main(int argc, char **argv)
{
	static const struct test_case cases[] = {TEST(test_lines_are_printed_anew),
		TEST(test_the_rest_of_bash_is_outside), TEST(test_everything_is_bounded),
		TEST(test_bash_does_the_same_with_both),
		TEST(test_bash_does_the_same_with_random_lines)};

	if (argc > 1)
		random_count = (unsigned)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		random_state = strtoul(argv[2], NULL, 10);
	return test_run("shell_parse", cases, array_size(cases));
}
