/* Command lines of programs with a language of their own, and of others whose words matter. */
#include "tests/fuzz/shell_lines.h"

#include <string.h>

struct choices {
	const uint8_t *data;
	size_t size;
};

static unsigned choose(struct choices *choices, unsigned count)
{
	if (!choices->size)
		return 0;
	choices->size--;
	return *choices->data++ % count;
}

#define ADD_ONE(out, choices, list) \
	buffer_append_string(out, (list)[choose(choices, array_size(list))])

static void awk(struct choices *choices, struct buffer *out)
{
	static const char *const options[] = {"", "", "-F: ", "-F'>' ", "-v x=1 ", "-vx=1 ",
		"-F '|' ", "-f f ", "-W version ", "-- ", "-i x ", "-e ", "-E ", "-v ARGC=2 "};
	static const char *const tokens[] = {"{", "}", "{", "}", "print", "print", "x", "$1", "1",
		"\"a\"", "\"y\"", "/a/", "/", "/", "\"", "\\\"", "\\", ">", ">", "|", ">>", "<",
		"|&", "getline", "getline", "system", "system(\"pwn\")", "(", ")", "[", "]",
		"\"pwn\"", ";", ";", "\n", "#", "\\\n", "BEGIN{", "END{", "length", "NR", "ARGV",
		"ARGV[1]", "ARGC", "=", "==", "+", "++", "-", "--", "!", "~", ",", "/[/]/", "/\\//",
		"printf", "\"/etc/passwd\"", "\"../out/key\"", "gsub(", "close(", "func", "in",
		"if(", "$", "/=", "%", " ", "0x", ".", "a", "/\"/", "\"#\"", "\"\\\\\"", "'\\''",
		"\"new\"", "sprintf(", "nextfile", "@include", "SYMTAB", "@x(", "split(",
		"toupper(", "$(NF-1)", "NF", "[^]", "[^", "length($1)", "&&", "||", "/[^/]/",
		"/[[:alpha:]]/", "FNR", "exit", "next"};
	static const char *const ends[] = {
		"' f", "' f g", "'", "' x=1 f", "' ../out/key", "' -f g"};

	static const char *const statements[] = {"print", "print $1", "x = 1", "x = $1 / 2", "x++",
		"system(\"pwn\")", "print > \"new\"", "print \"a\" > \"new\"", "print | \"pwn\"",
		"\"pwn\" | getline", "getline < \"../out/key\"", "print \"/\" / 2", "print x /1/ 2",
		"if (/a/) print", "printf \"a\" >> \"new\"", "print (1 > 2)", "print \"a>b|c\"",
		"gsub(/>/, \"|\")", "x = \"\\\"\"", "print length /2", "close(\"a\")", "next",
		"exit", "ARGV[1] = \"../out/key\"; ARGC = 2", "$0 ~ \"a|b\"", "print /[/]/",
		"getline", "getline x"};
	static const char *const begins[] = {
		"{", "{", "BEGIN{", "BEGIN {", "END{", "/a/{", "NR > 0 {"};

	buffer_append_string(out, "awk ");
	ADD_ONE(out, choices, options);
	buffer_append_string(out, "'");
	if (choose(choices, 2)) {
		ADD_ONE(out, choices, begins);
		for (unsigned count = 1 + choose(choices, 3); count > 0; count--) {
			ADD_ONE(out, choices, statements);
			if (choose(choices, 3) == 0)
				ADD_ONE(out, choices, tokens);
			buffer_append_string(out, choose(choices, 2) ? "; " : "\n");
		}
		buffer_append_string(out, "}");
	} else {
		for (unsigned count = 1 + choose(choices, 14); count > 0; count--) {
			ADD_ONE(out, choices, tokens);
			if (choose(choices, 2))
				buffer_append_string(out, " ");
		}
	}
	ADD_ONE(out, choices, ends);
}

static void sed(struct choices *choices, struct buffer *out)
{
	static const char *const options[] = {"", "", "-n ", "-E ", "-e ", "-s ", "-z ", "-nE ",
		"-ne ", "--posix ", "-i ", "-ni ", "--expression=", "-u ", "-l 5 ", "-f ", "-Es ",
		"-b ", "--debug ", "--sandbox "};
	static const char *const tokens[] = {"p", "d", "1", "$", ",", "/a/", "!", "{", "}", ";",
		";", "\n", "\n", "s/a/b/", "s/a/b/", "s", "/", "/", "a", "b", "w new", "w new", "w",
		"e pwn", "e pwn", "e", "r ../out/key", "r", "R f", "W new", "y/a/b/", "y", "\\",
		"\\", "\\\n", "[", "]", "[/]", "\\/", "\\,a,", "#", "#n", "a x", "a\\\n", "i\\",
		"c", "g", "I", "M", "~", "+1", "0", "2", "t", ": x", "q", "l", "=", "N", "h", "x",
		" ", "|", "s|a|b|", "s,a,b,", "&", "\\n", "s\na\nb\n", "}e pwn", "\\'", "[^", "[]",
		":]", "[^]", "[[:alpha:]]", "+1", "\\%", "%", "b\n", "F", "z", "v"};
	static const char *const ends[] = {"' f", "' f", "' f -n", "' f -i", "' -e p f",
		"' -e 'w new' f", "' -e 'e pwn' f", "' -- -i", "' < f", "' ../out/key", "' -s f"};

	buffer_append_string(out, "sed ");
	ADD_ONE(out, choices, options);
	buffer_append_string(out, "'");
	for (unsigned count = 1 + choose(choices, 12); count > 0; count--)
		ADD_ONE(out, choices, tokens);
	ADD_ONE(out, choices, ends);
}

static void words(struct choices *choices, struct buffer *out)
{
	static const char *const programs[] = {"sort", "uniq", "head", "wc", "cut", "tr", "grep",
		"find", "diff", "cmp", "comm", "date", "du", "stat", "env", "nice", "timeout 5",
		"xargs", "test", "[", "printf", "echo", "basename", "tee", "od", "nl", "paste",
		"join", "md5sum", "readlink", "true", "ls", "cat", "file", "tree", "xxd", "jq",
		"rg", "strings", "command", "builtin", "type", "exec", "nohup", "stdbuf -o0",
		"setsid -w", "cp", "touch", "comm"};
	static const char *const bits[] = {"f", "f", "g", "src", ".", "-", "--", "-n", "-r", "-o",
		"-onew", "--output=new", "--outp=new", "-f", "-ff", "-f../out/key",
		"--file=../out/key", "-c", "-i", "-e", "-x", "-X", "-s", "-S", "-t", "-T", "-T.",
		"-u", "-z", "-v", "-l", "-L", "-R", "-a", "-d", "-D", "-m", "-C", "-exec", "pwn",
		"{}", "\\;", "+", "-delete", "-fprint", "-fls", "-name", "'*'", "-ok", "-execdir",
		"-print", "-type", "-o", "!", "\\(", "\\)", "new", "--files0-from=f",
		"--compress-program=pwn", "--compress-prog", "-S1", "../out/key", "leave",
		"leave/key", "leave_file", "to_secret", "secret/key", "secret", "..", "*", "*_file",
		"x", "1", "-1", "+1", "-k1", "-p", "--pre", "--pre=pwn", "-f-", "@f", "-I{}", "-I",
		"-n1", "-P2", "sh", "-c", "'pwn'", "bash", "env", "ls", "a=b", "--to-file=g",
		"-exec ls", "-0", "-newer", "-samefile", "-ff ../out/key", "]", "=", "-eq", "-nt",
		"--help", "--version", "-rnf", "-nof", "-h", "-H", "-b", "--reference=f", "-w",
		"-y", "--color", "-U", "-q"};

	ADD_ONE(out, choices, programs);
	for (unsigned count = choose(choices, 7); count > 0; count--) {
		buffer_append_string(out, " ");
		ADD_ONE(out, choices, bits);
	}
}

void shell_script_make(const uint8_t *data, size_t size, struct buffer *out)
{
	struct choices choices = {data, size};

	switch (choose(&choices, 3)) {
	case 0:
		awk(&choices, out);
		break;
	case 1:
		sed(&choices, out);
		break;
	default:
		words(&choices, out);
	}
}
