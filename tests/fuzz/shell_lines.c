#include "tests/fuzz/shell_lines.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { TABLE_MAX = 4000, DEPTH_MAX = 4 };

static char *table[TABLE_MAX];
static size_t table_count;

int shell_lines_load(const char *path)
{
	cleanup_file FILE *file = fopen(path, "re");
	cleanup_free char *line = NULL;
	size_t capacity = 0;

	if (!file)
		return -errno;
	while (table_count < TABLE_MAX && getline(&line, &capacity, file) > 0) {
		char *arrow = strstr(line, " => ");

		/* Those with escapes in them have what the grammar has too. */
		if (*line == '#' || *line == '@' || !arrow || strstr(line, "@{"))
			continue;
		*arrow = '\0';
		for (char *at = line; (at = strstr(at, "\\n")); at++) {
			*at = '\n';
			memmove(at + 1, at + 2, strlen(at + 1));
		}
		table[table_count] = strdup(line);
		if (!table[table_count++])
			return -ENOMEM;
	}
	return 0;
}

/* ---- Choices --------------------------------------------------------------------------- */

struct maker {
	const uint8_t *data;
	size_t size;
	unsigned odd; /* of 256: how often an odd bit is taken */
	int depth;
	struct buffer *out;
};

static unsigned choose(struct maker *maker, unsigned count)
{
	unsigned value = maker->size ? *maker->data : 0;

	if (!maker->size)
		return 0;
	maker->data++;
	maker->size--;
	if (count > 256 && maker->size) {
		value = value << 8 | *maker->data++;
		maker->size--;
	}
	return value % count;
}

static bool odd(struct maker *maker)
{
	return maker->size && choose(maker, 256) < maker->odd;
}

static void add(struct maker *maker, const char *text)
{
	buffer_append_string(maker->out, text);
}

#define ADD_ONE(maker, list) add(maker, (list)[choose(maker, array_size(list))])

/* ---- The grammar ----------------------------------------------------------------------- */

static void list(struct maker *maker);
static void word(struct maker *maker);

static void plain(struct maker *maker)
{
	static const char *const plains[] = {"a", "b", "f", "g", "src", "src/a.c", "x", "1", "-l",
		"-n", "--", "-", "pwn", "build", "inside", "new", "status", "a.c", "2", "E", "ls",
		"nosuch", "inside/a.c", "./f", "src/../f"};

	ADD_ONE(maker, plains);
}

static void path_that_matters(struct maker *maker)
{
	static const char *const paths[] = {"../out/key", "leave/key", "leave_file", "up/out/key",
		"to_secret", "secret/key", ".git/hooks/x", "hooks/x", "hooks/new", "dangling",
		"dangling_hook", "~/x", "~", "~+", "~-", "~root", "/etc/passwd", "/mnt/out/key",
		"..", "../", ".?", ".*", "*", "*/key", "s*/key", "le*", "leave/*", "?????_file",
		"[l]eave/*", ".gi?/config", ".[g]it/hooks/*", "@../out/key", "-o../out/key",
		"--o=../out/key", "{f,../out/key}", "$HOME/x", "${HOME}/x", "\"$HOME\"",
		"$PWD/../out/key", "/proc/self/cwd/../out/key", "/dev/tcp/localhost/1", "/dev/fd/1",
		"inside/../../out/key", "~/../out/key", "..\\/out", "\"..\"/out/key",
		".'.'/out/key", "a:../out/key", "to_root/etc/passwd", "///etc", "//mnt//out",
		".//..//out", "[.]./out/key", "*_file"};

	ADD_ONE(maker, paths);
}

static void expansion(struct maker *maker)
{
	static const char *const open[] = {"$(", "`", "\"$(", "\"`", "<(", ">(", "${x:-$(",
		"${x:-`", "${x:->(", "$((x[$(", "$[x[`", "${x[$(", "${HOME/$(", "${HOME:$(", "a[$(",
		"$(( ", "$((", "${x:=", "${x-", "${HOME+", "${!", "${x@", "$[", "$\"$(",
		"\"${x:-$(", "\"${x:-\"$(", "${x:-'$("};
	static const char *const close[] = {")", "`", ")\"", "`\"", ")", ")", ")}", "`}", ")}",
		")]))", "`]]", ")]}", ")/}", ")}", ")]", "))", "))", "}", "}", "}", "}", "P}", "]",
		")\"", ")}\"", ")\"}\"", ")'}"};
	unsigned which = choose(maker, array_size(open));

	_Static_assert(array_size(open) == array_size(close), "pairs");
	add(maker, open[which]);
	if (choose(maker, 3) && maker->depth < DEPTH_MAX)
		list(maker);
	else
		add(maker, "pwn");
	if (choose(maker, 32))
		add(maker, close[which]);
}

static void odd_bit(struct maker *maker)
{
	static const char *const bits[] = {"'", "\"", "\\", "\\\n", "$", "`", "#", " #", "!", "~",
		"{", "}", "{a,b}", "{a,", "*", "?", "[", "]", "[!a]", "@(", "+(a)", "!(a)", "(",
		")", "$'", "$'\\''", "$'\\x27", "$\"", "\"$\"", "''", "\"\"", "$''", "$x", "$@",
		"\"$@\"", "$*", "$#", "$_", "$-", "$$", "$0", "$1", "${x}", "${#x}", "${x:-y}",
		"\"$x\"", "=", "x=", "+=", "a[1]=", "=(", "^", "%", ",", ":", "\t", "\v", "\f",
		"\r", "\001", "\177", "\302\240", "\342\200\203", "\342\200\213", "\357\273\277",
		"\200", "\377", "\240", "\303", "\\\\", "\\'", "\\\"", "\\`", "\\$", "\"'\"",
		"'\"'", "'\\''", "\\ ", "\\\t", "\\#", "$(", "$((", "${", "$[", "<(", "[[", "]]",
		"((", "))", "-", "--", "..", "/", "\"\\\n\"", "'\\\n'", "\"`\"", "\"\\\"", "\\\r",
		"!!", "!$", "^a^b", "&", "|", ";", ">", "<", "\n", "\n#", "&&", "||", ";;", ";&",
		"|&", "<<", "<<-", "<<<", ">&", "<&", "&>", ">|", "<>", "2>", "0<", "1", "{x}>",
		">&-"};

	switch (choose(maker, 8)) {
	case 0:
		path_that_matters(maker);
		break;
	case 1:
		expansion(maker);
		break;
	default:
		ADD_ONE(maker, bits);
	}
}

static void quoted(struct maker *maker)
{
	static const char *const quotes[] = {"'", "\"", "$'", "$\"", "\\", "'", "\""};
	static const char *const ends[] = {"'", "\"", "'", "\"", "", "'", "\""};
	static const char *const texts[] = {"a", "a b", "", "$x", "$(pwn)", "`pwn`", "\\", "\\n",
		"#", ";pwn", "\\'", "\\\"", "\\`pwn\\`", "\\$(pwn)", "\\\\$(pwn)", "\\\\`pwn`",
		"${x}", "${x:-$(pwn)}", "$((x))", "*", "~", "!x", "\n", "\\\n", "\n;pwn", "|",
		"../out/key", "\\x27", "\\047;pwn", "$", "\"", "'", "\t", "$'", "$\"", "{a,b}",
		"\\c'"};
	unsigned which = choose(maker, array_size(quotes));

	add(maker, quotes[which]);
	ADD_ONE(maker, texts);
	if (odd(maker))
		odd_bit(maker);
	add(maker, ends[which]);
}

static void word(struct maker *maker)
{
	do {
		if (odd(maker))
			odd_bit(maker);
		else if (choose(maker, 4) == 0)
			quoted(maker);
		else if (choose(maker, 16) == 0)
			path_that_matters(maker);
		else
			plain(maker);
	} while (maker->size && choose(maker, 5) == 0);
}

static void blank(struct maker *maker)
{
	static const char *const odds[] = {"", "\t", "  ", "\\\n", " \\\n ", "\v", "\f", "\r",
		"\302\240", "\240", "\342\200\203", "\n", " \n", "\t\t"};

	if (odd(maker))
		ADD_ONE(maker, odds);
	else
		add(maker, " ");
}

static void assignment(struct maker *maker)
{
	static const char *const names[] = {"x", "a", "PATH", "IFS", "HOME", "BASH_ENV", "LC_ALL",
		"LANG", "TZ", "GIT_DIR", "PS4", "LD_PRELOAD", "a[0]", "a[$(pwn)]",
		"POSIXLY_CORRECT", "1", "_", "NO_COLOR", "SHELLOPTS", "PATH[0]"};
	static const char *const signs[] = {"=", "=", "=", "+=", " =", "= ", "=("};

	ADD_ONE(maker, names);
	ADD_ONE(maker, signs);
	if (choose(maker, 3))
		word(maker);
}

static void redirection(struct maker *maker)
{
	static const char *const signs[] = {">", ">", "<", "<", ">>", "2>", "2>", "&>", ">&", "<&",
		">|", "<>", "<<<", "<<", "<<-", "1>&", "2>&", "&>>", "{x}>", "0<", "10>", "> ",
		"< "};
	static const char *const targets[] = {
		"/dev/null", "/dev/null", "f", "1", "2", "-", "new", "E\na\nE", "'E'\n$(pwn)\nE"};

	ADD_ONE(maker, signs);
	if (odd(maker))
		word(maker);
	else
		ADD_ONE(maker, targets);
}

static void command(struct maker *maker)
{
	static const char *const plains[] = {"echo", "ls", "cat", "git status", "echo", "echo"};
	static const char *const odds[] = {"pwn", "rm", "git", "eval", "exec", "command", "builtin",
		"time", "!", "ls ", "\"ls \"", "'ls'", "l\\s", "$'ls'", "\"\"", "''", "$x", "./ls",
		"src/ls", "l*", "{ls,pwn}", "cd ..;", "cd src &&", "source", ".", "trap", "export",
		"set", "read", "printf -v", "[", "[[", "((", "let", "declare", "alias", "unset",
		"env", "nice", "timeout 5", "nohup", "stdbuf -oL", "setsid -w", "xargs", "bash -c",
		"sh -c", "find . -exec", "find .", "git -C .", "git -c a=b", "env -S", "env x=1",
		"xargs -I{}", "if", "then", "for x in", "case x in", "function", "coproc", "select",
		"{", "}", "(", "while", "mapfile -C", "hash -p ./pwn", "shopt -s", "f()", "ls()",
		"git 'status'", "git 'status '", "bash", "make", ":", "true", "-",
		"git --no-pager status", "git -p status", "xargs -n1 -0", "nice -n 5", "env -u x",
		"timeout -s KILL 5"};

	if (odd(maker) && choose(maker, 4) == 0)
		assignment(maker), add(maker, " ");
	if (odd(maker))
		ADD_ONE(maker, odds);
	else
		ADD_ONE(maker, plains);
	for (unsigned words = choose(maker, 4); words > 0; words--) {
		blank(maker);
		word(maker);
	}
	if (odd(maker)) {
		blank(maker);
		redirection(maker);
	}
}

static void list(struct maker *maker)
{
	static const char *const plains[] = {
		" | ", " && ", " || ", "; ", "\n", ";", "&&", "|", " & "};
	static const char *const odds[] = {"|&", "&", ";;", ";&", "\n\n", " #", "#\n", " # a\n",
		" # a\\\n", "\r\n", ";\n", "\\\n", "|\n", "&&\n", "()", ")", "(", "{", "}", " do ",
		"; then ", "; done ", "; fi", "esac", "&|", "&;", "\v", "\n\\\n"};

	maker->depth++;
	do {
		if (choose(maker, 16) == 0 && maker->depth < DEPTH_MAX) {
			add(maker, choose(maker, 4) ? "(" : "{ ");
			list(maker);
			add(maker, choose(maker, 4) ? ")" : "; }");
		} else {
			command(maker);
		}
		if (!maker->size || choose(maker, 3))
			break;
		if (odd(maker))
			ADD_ONE(maker, odds);
		else
			ADD_ONE(maker, plains);
	} while (maker->out->size < SHELL_LINE_MAX_BYTES / 2);
	maker->depth--;
}

/* ---- Changing lines -------------------------------------------------------------------- */

static void from_table(struct maker *maker)
{
	if (table_count)
		add(maker, table[choose(maker, (unsigned)table_count)]);
}

/* An odd bit somewhere, a byte or some less, or a piece of another line. */
static void change(struct maker *maker)
{
	struct buffer before = *maker->out;
	size_t at = before.size ? choose(maker, (unsigned)before.size + 1) : 0, skipped = 0;

	*maker->out = (struct buffer){0};
	buffer_append(maker->out, before.data, at);
	switch (choose(maker, 6)) {
	case 0:
		skipped = choose(maker, 4);
		break;
	case 1:
		skipped = choose(maker, 40);
		break;
	case 2:
		from_table(maker);
		break;
	case 3:
		word(maker);
		break;
	default:
		odd_bit(maker);
	}
	if (at + skipped < before.size)
		buffer_append(maker->out, before.data + at + skipped, before.size - at - skipped);
	buffer_done(&before);
}

void shell_line_make(const uint8_t *data, size_t size, struct buffer *out)
{
	struct buffer line cleanup_buffer = {0};
	struct maker maker = {.data = data, .size = size, .out = &line};
	unsigned kind = choose(&maker, 4);

	maker.odd = choose(&maker, 3) ? choose(&maker, 20) : choose(&maker, 100);
	if (kind == 0)
		buffer_append(&line, maker.data, maker.size);
	else if (kind == 1)
		list(&maker);
	else
		from_table(&maker);
	for (unsigned changes = kind ? choose(&maker, 3) : 0; changes > 0; changes--)
		change(&maker);
	if (line.size > SHELL_LINE_MAX_BYTES)
		line.size = SHELL_LINE_MAX_BYTES;
	for (size_t i = 0; i < line.size; i++)
		line.data[i] = line.data[i] ? line.data[i] : ' ';
	buffer_append(out, line.data, line.size);
}
