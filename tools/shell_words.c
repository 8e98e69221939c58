#include "tools/shell_words.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ops/support/path.h"

int shell_words_add(struct shell_words *words, const struct buffer *word)
{
	char **grown = reallocarray(words->list, words->count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	words->list = grown;
	grown[words->count] = strndup(word->size ? (const char *)word->data : "", word->size);
	if (!grown[words->count])
		return -ENOMEM;
	words->count++;
	return 0;
}

void shell_words_done(struct shell_words *words)
{
	for (size_t i = 0; i < words->count; i++)
		free(words->list[i]);
	free(words->list);
	*words = (struct shell_words){0};
}

char *shell_words_join(const struct shell_words *words, size_t count)
{
	struct buffer text = {0};

	for (size_t i = 0; i < count && i < words->count; i++)
		if (buffer_printf(&text, "%s%s", i ? " " : "", words->list[i]) < 0)
			break;
	return buffer_steal_string(&text);
}

static bool is_one_of(const char *word, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(word, list[i]) == 0)
			return true;
	return false;
}

#define IS_ONE_OF(word, ...)                                  \
	is_one_of((word), (const char *const[]){__VA_ARGS__}, \
		array_size(((const char *const[]){__VA_ARGS__})))

size_t shell_words_prefix(const struct shell_words *words)
{
	if (words->count < 2)
		return words->count;
	/* Their first argument says what they do. */
	if (IS_ONE_OF(words->list[0], "git", "npm", "pnpm", "yarn", "npx", "cargo", "go", "docker",
		    "podman", "kubectl", "systemctl", "apt", "apt-get", "pip", "pip3", "uv",
		    "poetry", "bundle", "rake", "gradle", "mvn", "dotnet", "make", "ninja", "meson",
		    "gh", "deno", "bun", "terraform", "isthmus", "sudo", "brew", "dnf", "python",
		    "python3", "node"))
		return words->list[1][0] == '-' ? 1 : 2;
	return 1;
}

bool shell_words_only_print(const struct shell_words *words)
{
	return words->count && IS_ONE_OF(words->list[0], "echo", "printf", "true", "false", ":",
				       "test", "exit", "return");
}

/* ---- Programs that run others ---------------------------------------------------------- */

/* Options with a value of their own, as letters, of programs that run the rest of their words. */
static const struct wrapper {
	const char *name;
	const char *with_value; /* letters of options that take the next word */
	unsigned skip;          /* words between the options and the command */
	bool transparent;
	bool adds_words; /* to the command */
} wrappers[] = {
	{"nohup", "", 0, true, false},
	{"nice", "n", 0, true, false},
	{"ionice", "cnpPu", 0, true, false},
	{"time", "fo", 0, true, false},
	{"timeout", "ks", 1, true, false},
	{"stdbuf", "ioe", 0, true, false},
	{"setsid", "", 0, true, false},
	{"command", "", 0, true, false},
	{"builtin", "", 0, true, false},
	{"exec", "a", 0, true, false},
	{"coproc", "", 0, true, false},
	{"env", "uCS", 0, true, false},
	{"xargs", "adEILnPs", 0, true, true},
	{"sudo", "ugpCRrtThD", 0, false, false},
	{"doas", "uC", 0, false, false},
	{"chroot", "", 1, false, false},
	{"strace", "eosaPEpu", 0, false, false},
	{"watch", "nq", 0, false, false},
};

static bool is_assignment(const char *word)
{
	size_t length = strcspn(word, "=");

	if (!word[length] || length == 0 || isdigit((unsigned char)*word))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)word[i]) && word[i] != '_')
			return false;
	return true;
}

static const char *base_name(const char *word)
{
	return path_name(word);
}

static bool takes_next(const struct wrapper *wrapper, const char *option)
{
	size_t last = strlen(option) - 1;

	/* "-n 5" but not "-n5"; long options with a value use "=" or are not known. */
	return option[1] != '-' && last == 1 && strchr(wrapper->with_value, option[1]);
}

static void look_in_wrapper(
	const struct wrapper *wrapper, const struct shell_words *words, struct shell_inner *inner)
{
	size_t at = 1;
	bool is_env = strcmp(wrapper->name, "env") == 0;

	for (; at < words->count && words->list[at][0] == '-' && words->list[at][1]; at++) {
		const char *option = words->list[at];

		if (strcmp(option, "--") == 0) {
			at++;
			break;
		}
		/* env -S splits a string into words; command -v only asks. */
		if (is_env &&
			(strncmp(option, "-S", 2) == 0 || strncmp(option, "--split", 7) == 0)) {
			inner->unknown = true;
			inner->reason = "env -S makes a command of a text";
			return;
		}
		if (strcmp(wrapper->name, "command") == 0 &&
			(strcmp(option, "-v") == 0 || strcmp(option, "-V") == 0))
			return;
		/* A long option may take the next word: then the command is not known. */
		if (strncmp(option, "--", 2) == 0 && !strchr(option, '=') &&
			wrapper->with_value[0] &&
			!IS_ONE_OF(option, "--null", "--no-run-if-empty", "--verbose",
				"--foreground", "--preserve-status", "--ignore-environment",
				"--open-tty", "--exit", "--interactive")) {
			inner->unknown = true;
			inner->reason = "an option of a command that runs another is not known";
			return;
		}
		at += takes_next(wrapper, option);
	}
	if (is_env) {
		size_t first = at;

		/* The settings stay with the command: they can change what it does. */
		while (at < words->count && is_assignment(words->list[at]))
			at++;
		if (at < words->count || words->open_ended)
			at = first;
	}
	at += wrapper->skip;
	inner->transparent = wrapper->transparent;
	if (at >= words->count) {
		inner->transparent = false;
		/* xargs without a command is echo. */
		inner->unknown = words->open_ended && !wrapper->adds_words;
		inner->reason = inner->unknown ? "what a command in it runs is not known" : NULL;
		return;
	}
	inner->has_command = true;
	inner->from = at;
	inner->to = words->count;
	inner->open_ended = words->open_ended || wrapper->adds_words;
}

static bool is_shell(const char *name)
{
	return IS_ONE_OF(
		name, "sh", "bash", "dash", "zsh", "ksh", "ash", "busybox", "fish", "csh", "tcsh");
}

static void look_in_shell(const struct shell_words *words, struct shell_inner *inner)
{
	size_t at = 1;

	for (; at < words->count && (words->list[at][0] == '-' || words->list[at][0] == '+');
		at++) {
		const char *option = words->list[at];

		if (strcmp(option, "--version") == 0 || strcmp(option, "--help") == 0)
			return;
		if (option[0] == '-' && option[1] != '-' && strchr(option, 'c')) {
			if (at + 1 < words->count) {
				inner->line = strdup(words->list[at + 1]);
				inner->transparent = inner->line != NULL;
				return;
			}
			break;
		}
		if (option[0] == '-' && option[1] != '-' && strchr(option, 's'))
			break;
		at += IS_ONE_OF(option, "-o", "+o", "-O", "+O", "--rcfile", "--init-file");
	}
	/* With a script it is a command like any other. */
	if (at < words->count && words->list[at][0] != '-')
		return;
	inner->unknown = true;
	inner->reason = "a shell in it runs what is not in the command line";
}

static void look_in_eval(const struct shell_words *words, struct shell_inner *inner)
{
	struct shell_words rest = {.list = words->list + 1, .count = words->count - 1};

	if (words->open_ended) {
		inner->unknown = true;
		inner->reason = "what eval runs is not known before it runs";
		return;
	}
	inner->line = shell_words_join(&rest, rest.count);
	inner->transparent = inner->line != NULL;
}

static void look_in_trap(const struct shell_words *words, struct shell_inner *inner)
{
	if (words->count > 2 && words->list[1][0] != '-') {
		inner->line = strdup(words->list[1]);
		return;
	}
	if (words->open_ended) {
		inner->unknown = true;
		inner->reason = "what trap runs is not known before it runs";
	}
}

/* find ... -exec COMMAND... ; */
static void look_in_find(const struct shell_words *words, struct shell_inner *inner)
{
	size_t execs = 0;

	for (size_t i = 1; i < words->count; i++) {
		size_t end = i + 1;

		if (!IS_ONE_OF(words->list[i], "-exec", "-execdir", "-ok", "-okdir"))
			continue;
		while (end < words->count && strcmp(words->list[end], ";") != 0 &&
			strcmp(words->list[end], "+") != 0)
			end++;
		execs++;
		inner->has_command = end > i + 1;
		inner->from = i + 1;
		inner->to = end;
		inner->open_ended = true; /* {} */
		/* The words from {} on are not known. */
		for (size_t j = i + 1; j < end; j++) {
			if (strstr(words->list[j], "{}")) {
				inner->to = j;
				inner->has_command = j > i + 1;
				inner->unknown = j == i + 1;
				break;
			}
		}
		i = end;
	}
	if (execs > 1 || (execs && words->open_ended)) {
		inner->unknown = true;
		inner->has_command = false;
		inner->reason = "what find runs is not known";
	}
	if (!execs && words->open_ended) {
		inner->unknown = true;
		inner->reason = "find may run or delete something: its words are not all known";
	}
}

void shell_words_look_inside(const struct shell_words *words, struct shell_inner *ret_inner)
{
	const char *name = base_name(words->list[0]);
	struct shell_inner inner = {0};

	if (is_shell(name)) {
		look_in_shell(words, &inner);
	} else if (strcmp(name, "eval") == 0) {
		look_in_eval(words, &inner);
	} else if (strcmp(name, "trap") == 0) {
		look_in_trap(words, &inner);
	} else if (strcmp(name, "find") == 0) {
		look_in_find(words, &inner);
	} else {
		for (size_t i = 0; i < array_size(wrappers); i++)
			if (strcmp(name, wrappers[i].name) == 0)
				look_in_wrapper(&wrappers[i], words, &inner);
	}
	/* A path in front ("/tmp/env") may be another program of that name. */
	if (name != words->list[0])
		inner.transparent = false;
	*ret_inner = inner;
}

/* ---- Paths and variables ----------------------------------------------------------------- */

const char *shell_path_in_word(const char *word)
{
	const char *equals = strchr(word, '=');

	if (equals && (word[0] == '-' || is_assignment(word)))
		word = equals + 1;
	else if (word[0] == '-' && word[1] && word[1] != '-' && (word[2] == '/' || word[2] == '~'))
		word += 2;
	if (word[0] == '@' && (word[1] == '/' || word[1] == '~')) /* curl -d @FILE */
		word++;
	if (word[0] == '/' || word[0] == '~' || strncmp(word, "..", 2) == 0 || strstr(word, "/.."))
		return word;
	return NULL;
}

static bool is_harmless(const char *path)
{
	return IS_ONE_OF(path, "/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty",
		       "/dev/zero", "/dev/urandom", "/dev/random") ||
	       strncmp(path, "/dev/fd/", 8) == 0;
}

bool shell_path_is_outside(const char *path, const char *root, const char *directory)
{
	cleanup_free char *joined = NULL, *normal = NULL;
	size_t length = root ? strlen(root) : 0;

	if (is_harmless(path))
		return false;
	if (path[0] == '~')
		return true;
	if (path[0] == '/') {
		if (path_normalise(path, &normal) < 0 || !root)
			return true;
		return !path_is_within(normal, root + (length > 0));
	}
	joined = path_join(directory, path);
	return !joined || path_normalise(joined, &normal) < 0;
}

bool shell_variable_is_special(const char *name, size_t length)
{
	static const char *const names[] = {"PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS",
		"BASHOPTS", "PROMPT_COMMAND", "PS4", "CDPATH", "HOME", "SHELL", "EDITOR", "PAGER",
		"PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5LIB", "PERL5OPT", "RUBYOPT",
		"RUBYLIB"};
	static const char *const prefixes[] = {"LD_", "GIT_", "DYLD_", "BASH_FUNC"};

	for (size_t i = 0; i < array_size(names); i++)
		if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
			return true;
	for (size_t i = 0; i < array_size(prefixes); i++)
		if (length > strlen(prefixes[i]) &&
			strncmp(prefixes[i], name, strlen(prefixes[i])) == 0)
			return true;
	return false;
}
