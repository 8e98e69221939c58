/* fuzz_shell SEED LINES: so many random lines, the same ones for the same seed, after lines that do
 * harm in known ways. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz_shell.h"
#include "tests/fuzz/shell_room.h"

enum { INPUT_MAX_BYTES = 160, FOUND_MAX = 30 };

static uint64_t state;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1dU;
}

/* Lines as if they were allowed: each does harm in a way of its own, and must be found. */
static size_t missed(void)
{
	static const char *const four[] = {"echo", "ls", "cat", "git status", NULL};
	static const char *const harmful[] = {"pwn", "echo $(pwn)", "a=`pwn`", "ls; rm f",
		"cat <(pwn)", "./pwn", "'ls '", "eval ls", "cd ..", "PATH=. ls", "IFS=x",
		"git push", "git 'status x'", "echo a > new", "echo a >> f", "> f",
		"echo a > .git/hooks/x", "echo a > leave_file", "cat < ../out/key",
		"cat ../out/key", "cat leave/key", "cat ../out/no", "ls /etc", "cat secret/key",
		"cat < to_secret", "echo ../out/*", "cat l*e_file", "(exec >f; ls) &", "ls & pwn &",
		"f() { ls; }; f", "for x in a; do ls; done", "[[ a ]]", "((x = 1))", "ls ~/../out",
		"read x < f", "echo $((x=1)); : $(/mnt/w/src/pwn)"};
	static const char *const harmless[] = {"echo a > /dev/null 2>&1", "ls -l src | cat",
		"cat < f; (echo \"$(ls)\")", "echo '$(pwn)'", "cat 'a\n;pwn' \"it's\n\" f",
		"LC_ALL=C git status -s", "cat up/w/f"};
	size_t count = 0;

	for (size_t i = 0; i < sizeof(harmful) / sizeof(harmful[0]); i++) {
		struct buffer report cleanup_buffer = {0};
		struct room_line lines[] = {{.line = "ls", .directory = "", .expected = four},
			{.line = harmful[i], .directory = "", .expected = four}};

		if (room_run(lines, 2, &report) == 0) {
			fprintf(stderr, "not found, but does harm: %s\n", harmful[i]);
			count++;
		}
	}
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
		struct buffer report cleanup_buffer = {0};
		struct room_line line = {.line = harmless[i], .directory = "", .expected = four};

		if (room_run(&line, 1, &report) != 0) {
			fprintf(stderr, "found, but harmless: %.*s\n", (int)report.size,
				(const char *)report.data);
			count++;
		}
	}
	return count;
}

int main(int argc, char **argv)
{
	size_t lines;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: %s SEED LINES\n", argv[0]);
		return 2;
	}
	lines = strtoul(argv[2], NULL, 10);
	r = fuzz_shell_init();
	if (r < 0) {
		printf("skipped: lines cannot be run apart from this system: %s\n", strerror(-r));
		return 77;
	}
	if (missed())
		return 1;
	state = strtoul(argv[1], NULL, 10) * 0x9e3779b97f4a7c15U + 1;
	while (fuzz_shell_counts.lines < lines && fuzz_shell_counts.found < FOUND_MAX) {
		uint64_t input[INPUT_MAX_BYTES / 8];

		for (size_t i = 0; i < INPUT_MAX_BYTES / 8; i++)
			input[i] = next_random();
		fuzz_shell_bytes((const uint8_t *)input, 8 + next_random() % (INPUT_MAX_BYTES - 8));
	}
	fuzz_shell_flush();
	printf("%zu lines, of which %zu were allowed and ran; %zu did what they may not\n",
		fuzz_shell_counts.lines, fuzz_shell_counts.ran, fuzz_shell_counts.found);
	return fuzz_shell_counts.found ? 1 : 0;
}
