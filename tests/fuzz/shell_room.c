#include "tests/fuzz/shell_room.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/own_mounts.h"
#include "tests/remove_tree.h"
#include "tests/tools/bash_verdict.h"

enum { TRACE_FD = 213, RUN_LIMIT_MS = 120000, TRACE_MAX_BYTES = 8 << 20 };

const char room_root[] = "/mnt/w";

static int trace_fd = -1;
static int opened_fd = -1; /* inotify: what is not to be opened */

/* Lines are traced with a "+" more than what the script itself does. */
static const char script[] =
	"room_i=0\n"
	"while [ $# != 0 ]; do\n"
	"	(cd \"/mnt/w/$1\"; room_line=$2; PS4=\"+@$room_i \"; shift $#; BASH_XTRACEFD=213\n"
	"	ulimit -t 10; exec </dev/null >/dev/null 2>&1; set -x; eval \"$room_line\"; wait)\n"
	"	room_i=$((room_i + 1)); shift 2\n"
	"done\n";

/* ---- The room -------------------------------------------------------------------------- */

static int write_file(const char *path, const char *text, mode_t mode)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int become_root_of_a_namespace(void)
{
	char uid[32], gid[32];
	int r = geteuid() == 0 ? own_mounts() : 0;

	if (r < 0)
		return r;
	snprintf(uid, sizeof(uid), "0 %u 1", geteuid());
	snprintf(gid, sizeof(gid), "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) < 0)
		return -errno;
	r = write_file("/proc/self/setgroups", "deny", 0);
	if (r == 0)
		r = write_file("/proc/self/uid_map", uid, 0);
	if (r == 0)
		r = write_file("/proc/self/gid_map", gid, 0);
	/* A slave: what is unmounted outside goes here, too. */
	if (r == 0 && (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
			      mount("/dev/null", "/dev/null", NULL, MS_BIND, NULL) < 0 ||
			      mount("room", "/mnt", "tmpfs", 0, "mode=755,size=64m") < 0))
		r = -errno;
	return r;
}

static int make_programs(void)
{
	static const char canary[] = "#!/bin/bash\n: >\"/mnt/hit/$$\"\n";
	static const char *const stubs[] = {"ls", "cat", "git", "make", "cp", "tee"};
	static const char *const real[] = {"awk", "basename", "bash", "cmp", "comm", "cut", "date",
		"diff", "du", "env", "file", "find", "grep", "head", "join", "jq", "md5sum", "nice",
		"nl", "nohup", "od", "paste", "readlink", "rg", "sed", "setsid", "sh", "sort",
		"stat", "stdbuf", "strings", "tail", "timeout", "tr", "tree", "uniq", "wc", "xargs",
		"xxd"};
	static const char *const canaries[] = {"bin/pwn", "bin/rm", "bin/touch", "bin/a", "bin/ls ",
		"bin/l", "bin/s", "bin/f", "w/pwn", "w/ls", "w/src/ls", "w/src/pwn", "home/ls"};
	char path[64], target[64];
	int r = 0;

	mkdir("/mnt/bin", 0755);
	mkdir("/mnt/hit", 0755);
	for (size_t i = 0; i < array_size(stubs) + array_size(real); i++) {
		bool stub = i < array_size(stubs);
		const char *name = stub ? stubs[i] : real[i - array_size(stubs)];

		snprintf(path, sizeof(path), "/mnt/bin/%s", name);
		snprintf(target, sizeof(target), "/usr/bin/%s", stub ? "true" : name);
		if (symlink(target, path) < 0)
			return -errno;
	}
	for (size_t i = 0; r == 0 && i < array_size(canaries); i++) {
		snprintf(path, sizeof(path), "/mnt/%s", canaries[i]);
		r = write_file(path, canary, 0755);
	}
	return r;
}

static int remove_below(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	return walk->level ? remove_one(path, st, type, walk) : 0;
}

/* What is below /mnt, as it is before the first line.  The root itself stays: it may be open. */
static int furnish(void)
{
	static const char *const watched[] = {"/mnt/out", "/mnt/home", "/mnt/w/secret"};
	static const char *const all[] = {"w", "out", "home", "bin", "hit"};
	int r;

	for (size_t i = 0; i < array_size(all); i++) {
		char path[64];

		snprintf(path, sizeof(path), "/mnt/%s", all[i]);
		nftw(path, remove_below, 16, FTW_DEPTH | FTW_PHYS);
	}
	r = bash_verdict_tree("/mnt");
	if (r == 0)
		r = make_programs();
	if (opened_fd >= 0)
		close(opened_fd);
	opened_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	for (size_t i = 0; r == 0 && i < array_size(watched); i++)
		if (inotify_add_watch(opened_fd, watched[i], IN_OPEN) < 0)
			r = -errno;
	return r;
}

int room_enter(void)
{
	int r = become_root_of_a_namespace();

	if (r < 0)
		return r;
	trace_fd = open("/mnt/trace", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return trace_fd < 0 ? -errno : furnish();
}

/* ---- Running --------------------------------------------------------------------------- */

/* In the child. */
static int lock_up(void)
{
	struct mount_attr closed = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV};
	struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};
	struct mount_attr device = {.attr_clr = MOUNT_ATTR_NODEV};

	return syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &closed, sizeof(closed)) ||
	       syscall(SYS_mount_setattr, AT_FDCWD, "/mnt", 0, &writable, sizeof(writable)) ||
	       syscall(SYS_mount_setattr, AT_FDCWD, "/dev/null", 0, &device, sizeof(device)) ||
	       dup2(trace_fd, TRACE_FD) < 0;
}

static void run_child(const struct room_line *lines, size_t count)
{
	static const char *const environment[] = {
		"PATH=/mnt/bin", "HOME=/mnt/home", "LANG=C.UTF-8", NULL};
	const char *arguments[2 * ROOM_LINES_MAX + 7] = {
		"bash", "--norc", "--noprofile", "-c", script, "bash"};
	size_t used = 6;

	for (size_t i = 0; i < count; i++) {
		arguments[used++] = lines[i].directory;
		arguments[used++] = lines[i].line;
	}
	arguments[used] = NULL;
	if (lock_up() == 0)
		execve("/bin/bash", (char *const *)arguments, (char *const *)environment);
	_exit(126);
}

/* 0, or -errno: it did not start, or did not end. */
static int run_all(const struct room_line *lines, size_t count)
{
	pid_t child;
	int status = 0, ready;
	cleanup_fd int fd = -1;

	if (ftruncate(trace_fd, 0) < 0 || lseek(trace_fd, 0, SEEK_SET) < 0)
		return -errno;
	child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		run_child(lines, count);
	if (child < 0)
		return -errno;
	fd = pidfd_open(child, 0);
	ready = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, RUN_LIMIT_MS);
	if (ready <= 0)
		kill(child, SIGKILL); /* the first of its process namespace: all end */
	waitpid(child, &status, 0);
	if (ready <= 0)
		return -ETIMEDOUT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 126 ? -ECHILD : 0;
}

/* ---- The tree -------------------------------------------------------------------------- */

static uint64_t tree_sum;

static void mix(const void *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		tree_sum = (tree_sum ^ ((const uint8_t *)data)[i]) * 0x100000001b3U;
}

static int mix_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)type;
	(void)walk;
	mix(path, strlen(path));
	mix(&st->st_ino, sizeof(st->st_ino));
	mix(&st->st_mode, sizeof(st->st_mode));
	mix(&st->st_size, sizeof(st->st_size));
	mix(&st->st_mtim, sizeof(st->st_mtim));
	mix(&st->st_ctim, sizeof(st->st_ctim));
	return 0;
}

static uint64_t sum_of_tree(void)
{
	static const char *const all[] = {
		"/mnt/w", "/mnt/out", "/mnt/home", "/mnt/bin", "/mnt/hit"};

	tree_sum = 0xcbf29ce484222325U;
	for (size_t i = 0; i < array_size(all); i++)
		nftw(all[i], mix_entry, 16, FTW_PHYS);
	return tree_sum;
}

static bool something_was_opened(void)
{
	char events[4096];
	bool any = false;

	while (read(opened_fd, events, sizeof(events)) > 0)
		any = true;
	return any;
}

/* ---- The trace ------------------------------------------------------------------------- */

/* The character that an escape in $'...' stands for; moves on to its last byte. */
static char escaped(const char **at)
{
	static const char names[] = "abefnrtvE", values[] = "\a\b\033\f\n\r\t\v\033";
	const char *name = strchr(names, **at);

	if (**at >= '0' && **at <= '7') {
		int value = 0, digits = 0;

		for (; digits < 3 && (*at)[digits] >= '0' && (*at)[digits] <= '7'; digits++)
			value = 8 * value + ((*at)[digits] - '0');
		*at += digits - 1;
		return (char)value;
	}
	return name && **at ? values[name - names] : **at;
}

/* Takes the next word, as `set -x` quotes it, out of the text; false: there is none. */
static bool next_word(const char **text, struct buffer *word)
{
	const char *at = *text + strspn(*text, " ");
	char quote = 0;

	if (!*at)
		return false;
	word->size = 0;
	for (; *at && (quote || *at != ' '); at++) {
		if (!quote && at[0] == '$' && at[1] == '\'') {
			quote = '$';
			at++;
		} else if (!quote && *at == '\'') {
			quote = '\'';
		} else if (quote && *at == '\'') {
			quote = 0;
		} else if ((!quote || quote == '$') && at[0] == '\\' && at[1]) {
			char c;

			at++;
			c = quote ? escaped(&at) : *at;
			buffer_append(word, &c, 1);
		} else {
			buffer_append(word, at, 1);
		}
	}
	buffer_append(word, "", 1);
	*text = at;
	return true;
}

static bool is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return strncmp(path, directory, length) == 0 && (!path[length] || path[length] == '/');
}

/* Without links, for what does not exist. */
static bool climbs_out(const char *path)
{
	int depth = 0;

	for (path += strspn(path, "/"); *path; path += strspn(path, "/")) {
		size_t length = strcspn(path, "/");

		depth += length == 2 && strncmp(path, "..", 2) == 0 ? -1
			 : length == 1 && *path == '.'              ? 0
								    : 1;
		if (depth < 0)
			return true;
		path += length;
	}
	return false;
}

static bool leads_out(const char *directory, const char *word)
{
	static const char *const devices[] = {"/dev/null", "/dev/stdin", "/dev/stdout",
		"/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
	char path[2 * PATH_MAX], real[PATH_MAX];

	if (!*word || *word == '-' || strlen(word) + strlen(directory) + 16 > PATH_MAX)
		return false;
	for (size_t i = 0; i < array_size(devices); i++)
		if (strcmp(word, devices[i]) == 0)
			return false;
	snprintf(path, sizeof(path), "%s/%s/%s", room_root, directory, word);
	if (realpath(*word == '/' ? word : path, real))
		return !is_below(real, room_root) || is_below(real, "/mnt/w/secret");
	if (*word == '/')
		return !is_below(word, room_root) || climbs_out(word + strlen(room_root));
	return climbs_out(path + strlen(room_root));
}

/* X=1, by itself or in front of a command. */
static bool is_setting(const char *word)
{
	size_t length =
		strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

	return length && !isdigit((unsigned char)*word) && word[length] == '=';
}

static bool changes_what_commands_do(const char *setting)
{
	static const char *const names[] = {"PATH=", "IFS=", "HOME=", "ENV=", "PS4=", "SHELLOPTS=",
		"BASH", "CDPATH=", "GLOBIGNORE=", "POSIXLY_CORRECT=", "TMPDIR=", "EXECIGNORE=",
		"PROMPT_COMMAND=", "GIT_", "LD_", "PAGER=", "EDITOR="};

	for (size_t i = 0; i < array_size(names); i++)
		if (strncmp(setting, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* ls -I, -T and -w, also with other letters in front. */
static bool takes_value(const char *word)
{
	return word[0] == '-' && word[1] && word[1] != '-' && strchr("ITw", word[strlen(word) - 1]);
}

/* What is wrong with a command that ran; NULL: nothing. */
static const char *judge_command(const struct room_line *line, const char *trace)
{
	struct buffer word cleanup_buffer = {0}, pair cleanup_buffer = {0};
	const char *at = trace, *name;
	bool known = !line->expected, looks, is_value = false;

	if (!next_word(&at, &word))
		return "an empty command";
	name = (const char *)word.data;
	if (is_setting(name))
		return changes_what_commands_do(name) ? "it sets what changes commands" : NULL;
	buffer_append_string(&pair, name);
	looks = strcmp(name, "ls") == 0 || strcmp(name, "cat") == 0;
	for (bool first = true; next_word(&at, &word); first = false) {
		if (first)
			buffer_printf(&pair, " %s", (const char *)word.data);
		if (looks && !is_value && leads_out(line->directory, (const char *)word.data))
			return "it names a file outside the root or below secret/";
		is_value = takes_value((const char *)word.data);
	}
	buffer_append(&pair, "", 1);
	for (size_t i = 0; !known && line->expected[i]; i++) {
		size_t length = strlen(line->expected[i]);

		known = strncmp((const char *)pair.data, line->expected[i], length) == 0 &&
			(!pair.data[length] ||
				(pair.data[length] == ' ' && !strchr(line->expected[i], ' ')));
	}
	return known ? NULL : "a command ran that is not expected";
}

static void show(struct buffer *report, const char *text)
{
	for (; *text; text++) {
		if (isprint((unsigned char)*text))
			buffer_append(report, text, 1);
		else
			buffer_printf(report, *text == '\n' ? "\\n" : "@{%02X}", (uint8_t)*text);
	}
}

static void report_line(
	struct buffer *report, const struct room_line *line, const char *what, const char *trace)
{
	buffer_printf(report, "%s\n  ran: ", what);
	show(report, line->line);
	if (line->given && strcmp(line->given, line->line) != 0) {
		buffer_append_string(report, "\n  of: ");
		show(report, line->given);
	}
	if (*line->directory)
		buffer_printf(report, "\n  in: %s", line->directory);
	if (trace) {
		buffer_append_string(report, "\n  trace: ");
		show(report, trace);
	}
	buffer_append_string(report, "\n");
}

static size_t too_much(struct buffer *report)
{
	buffer_append_string(report, "the trace of what ran cannot be read, or is too long\n");
	return 1;
}

/* The end of what is traced of one command: a word in quotes may have line ends in it. */
static char *trace_end(char *at)
{
	char quote = 0;

	for (; *at && (quote || *at != '\n'); at++) {
		if (quote != '\'' && *at == '\\' && at[1])
			at++;
		else if (*at == '\'')
			quote = quote ? 0 : at[-1] == '$' ? '$' : '\'';
	}
	return at;
}

/* Judges each command of the trace: "++@INDEX WORD...". */
static size_t judge_trace(const struct room_line *lines, size_t count, struct buffer *report)
{
	struct stat st;
	cleanup_free char *text = NULL;
	size_t found = 0, last = SIZE_MAX;

	if (fstat(trace_fd, &st) < 0 || st.st_size > TRACE_MAX_BYTES)
		return too_much(report);
	text = calloc(1, (size_t)st.st_size + 1);
	if (!text || pread(trace_fd, text, (size_t)st.st_size, 0) < 0)
		return too_much(report);
	for (char *trace = text, *next; *trace; trace = next) {
		size_t depth = strspn(trace, "+");
		char *end = trace_end(trace), *words = trace;
		size_t index = SIZE_MAX;
		const char *what;

		next = end + (*end == '\n');
		*end = '\0';
		if (depth > 1 && trace[depth] == '@')
			index = strtoul(trace + depth + 1, &words, 10);
		what = index < count ? judge_command(&lines[index], words) : NULL;
		if (!what || index == last)
			continue;
		report_line(report, &lines[index], what, trace);
		last = index;
		found++;
	}
	return found;
}

/* ---- All of it ------------------------------------------------------------------------- */

static const char *what_came_of_it(uint64_t before, int r)
{
	bool opened = something_was_opened(), changed = sum_of_tree() != before;

	if (changed)
		furnish();
	return r == -ETIMEDOUT ? "it did not end"
	       : r < 0         ? "it could not be run"
	       : changed       ? "it changed something, or ran a canary"
	       : opened        ? "it opened what is outside the root or below secret/"
			       : NULL;
}

size_t room_run(const struct room_line *lines, size_t count, struct buffer *report)
{
	uint64_t before = sum_of_tree();
	size_t found;
	const char *what;
	int r;

	something_was_opened();
	r = run_all(lines, count);
	found = judge_trace(lines, count, report);
	what = what_came_of_it(before, r);
	if (!what)
		return found;
	if (count == 1) {
		report_line(report, lines, what, NULL);
		return 1;
	}
	for (size_t i = 0; i < count; i++)
		found += room_run(&lines[i], 1, report);
	if (!found) {
		report_line(report, lines, "one of some lines did harm, but none alone", NULL);
		found = 1;
	}
	return found;
}
