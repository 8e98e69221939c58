#include "tools/shell_words.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
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

/* Their first argument says what they do. */
static bool has_subcommand(const char *name)
{
	return IS_ONE_OF(name, "git", "npm", "pnpm", "yarn", "npx", "cargo", "go", "docker",
		"podman", "kubectl", "systemctl", "apt", "apt-get", "pip", "pip3", "uv", "poetry",
		"bundle", "rake", "gradle", "mvn", "dotnet", "make", "ninja", "meson", "gh", "deno",
		"bun", "terraform", "isthmus", "sudo", "brew", "dnf", "python", "python3", "node");
}

size_t shell_words_prefix(const struct shell_words *words)
{
	if (words->count < 2)
		return words->count;
	if (has_subcommand(words->list[0]))
		return words->list[1][0] == '-' ? 1 : 2;
	return 1;
}

bool shell_words_only_print(const struct shell_words *words)
{
	return words->count && IS_ONE_OF(words->list[0], "echo", "printf", "true", "false", ":",
				       "test", "exit", "return");
}

static bool is_assignment(const char *word);
static const char *base_name(const char *word);

char *shell_words_plain(const struct shell_words *words)
{
	struct buffer text = {0};
	size_t at = 0;

	while (at + 1 < words->count && is_assignment(words->list[at]))
		at++;
	if (at < words->count) {
		const char *name = base_name(words->list[at++]);

		buffer_append_string(&text, name);
		while (has_subcommand(name) && at < words->count && words->list[at][0] == '-')
			at += 1 + IS_ONE_OF(words->list[at], "-C", "-c", "-n", "-H", "-w", "-p",
					  "--git-dir", "--work-tree", "--namespace", "--exec-path",
					  "--config-env", "--config", "--context", "--host",
					  "--kubeconfig", "--prefix", "--workspace",
					  "--manifest-path");
	}
	for (; at < words->count; at++)
		buffer_printf(&text, " %s", words->list[at]);
	return buffer_steal_string(&text);
}

/* ---- Built-ins that need a second look ----------------------------------------------- */

bool shell_words_go_home(const struct shell_words *words)
{
	if (strcmp(words->list[0], "cd") != 0 || words->open_ended)
		return false;
	for (size_t i = 1; i < words->count; i++)
		if (words->list[i][0] != '-' || !words->list[i][1])
			return false;
	return true;
}

bool shell_words_move(const struct shell_words *words)
{
	if (IS_ONE_OF(words->list[0], "cd", "pushd", "popd"))
		return true;
	for (size_t i = 1; i < words->count; i++)
		if (strncmp(words->list[i], "-C", 2) == 0 ||
			strncmp(words->list[i], "--directory", 11) == 0 ||
			strncmp(words->list[i], "--chdir", 7) == 0)
			return true;
	return false;
}

static bool has_word(const struct shell_words *words, const char *word)
{
	for (size_t i = 1; i < words->count; i++)
		if (strcmp(words->list[i], word) == 0)
			return true;
	return false;
}

bool shell_words_evaluate(const struct shell_words *words)
{
	const char *name = words->list[0];

	if (IS_ONE_OF(name, "let", "declare", "typeset", "local", "export", "readonly", "unset",
		    "getopts", "mapfile", "readarray"))
		return true;
	if (IS_ONE_OF(name, "test", "["))
		return has_word(words, "-v") || has_word(words, "-R");
	if (IS_ONE_OF(name, "printf", "wait"))
		return has_word(words, "-v") || has_word(words, "-p");
	if (strcmp(name, "read") != 0)
		return false;
	for (size_t i = 1; i < words->count; i++)
		if (strchr(words->list[i], '['))
			return true;
	return words->open_ended;
}

bool shell_words_take_input(const struct shell_words *words)
{
	return IS_ONE_OF(words->list[0], "read", "mapfile", "readarray");
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
	{"busybox", "", 0, false, false},
	{"flock", "wEc", 1, false, false},
	{"taskset", "", 1, false, false},
	{"chrt", "TPD", 1, false, false},
	{"setarch", "", 1, false, false},
	{"unshare", "SGRw", 0, false, false},
	{"fakeroot", "lsib", 0, false, false},
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
	/* "-n 5" and "-rn 5" but not "-n5"; long options with a value use "=" or are not
	 * known. */
	for (size_t i = 1; option[1] != '-' && option[i]; i++)
		if (strchr(wrapper->with_value, option[i]))
			return !option[i + 1];
	return false;
}

static void cannot_know(struct shell_inner *inner, const char *reason)
{
	inner->unknown = true;
	inner->reason = reason;
}

/* False: nothing that comes after the option is known, or runs. */
static bool look_at_option(
	const struct wrapper *wrapper, const char *option, struct shell_inner *inner)
{
	if (strcmp(wrapper->name, "env") == 0 &&
		(strncmp(option, "-S", 2) == 0 || strncmp(option, "--split", 7) == 0)) {
		cannot_know(inner, "env -S makes a command of a text");
		return false;
	}
	if (wrapper->adds_words &&
		(strncmp(option, "-I", 2) == 0 || strncmp(option, "-i", 2) == 0 ||
			strncmp(option, "--replace", 9) == 0))
		cannot_know(inner, "what xargs runs is not known before it runs");
	/* command -v only asks. */
	if (strcmp(wrapper->name, "command") == 0 && IS_ONE_OF(option, "-v", "-V"))
		return false;
	/* A long option may take the next word. */
	if (strncmp(option, "--", 2) == 0 && !strchr(option, '=') && wrapper->with_value[0] &&
		!IS_ONE_OF(option, "--null", "--no-run-if-empty", "--verbose", "--foreground",
			"--preserve-status", "--ignore-environment", "--open-tty", "--exit",
			"--interactive")) {
		cannot_know(inner, "an option of a command that runs another is not known");
		return false;
	}
	return true;
}

/* Settings before a command stay with it: they can change what it does. */
static size_t skip_only_settings(const struct shell_words *words, size_t at)
{
	size_t first = at;

	while (at < words->count && is_assignment(words->list[at]))
		at++;
	return at < words->count || words->open_ended ? first : at;
}

static void look_in_wrapper(
	const struct wrapper *wrapper, const struct shell_words *words, struct shell_inner *inner)
{
	size_t at = 1;
	bool is_env = strcmp(wrapper->name, "env") == 0; /* "env -" is "env -i" */

	for (; at < words->count && words->list[at][0] == '-' && (words->list[at][1] || is_env);
		at++) {
		if (strcmp(words->list[at], "--") == 0) {
			at++;
			break;
		}
		if (!look_at_option(wrapper, words->list[at], inner))
			return;
		at += takes_next(wrapper, words->list[at]);
	}
	if (is_env)
		at = skip_only_settings(words, at);
	at += wrapper->skip;
	inner->transparent = wrapper->transparent && !inner->unknown;
	if (at >= words->count) {
		inner->transparent = false;
		/* xargs without a command is echo. */
		if (words->open_ended && !wrapper->adds_words)
			cannot_know(inner, "what a command in it runs is not known");
		return;
	}
	inner->has_command = true;
	inner->from = at;
	inner->to = words->count;
	inner->open_ended = words->open_ended || wrapper->adds_words;
}

static bool is_shell(const char *name)
{
	return IS_ONE_OF(name, "sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "tcsh");
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
	cannot_know(inner, "a shell in it runs what is not in the command line");
}

static void look_in_eval(const struct shell_words *words, struct shell_inner *inner)
{
	size_t from = words->count > 1 && strcmp(words->list[1], "--") == 0 ? 2 : 1;
	struct shell_words rest = {.list = words->list + from, .count = words->count - from};

	if (words->open_ended) {
		cannot_know(inner, "what eval runs is not known before it runs");
		return;
	}
	inner->line = shell_words_join(&rest, rest.count);
	inner->transparent = inner->line != NULL;
}

static void look_in_trap(const struct shell_words *words, struct shell_inner *inner)
{
	size_t at = words->count > 1 && strcmp(words->list[1], "--") == 0 ? 2 : 1;

	if (words->count > at + 1 && words->list[at][0] != '-') {
		inner->line = strdup(words->list[at]);
		return;
	}
	if (words->open_ended) {
		cannot_know(inner, "what trap runs is not known before it runs");
	}
}

/* watch gives its words to a shell. */
static void look_in_watch(const struct shell_words *words, struct shell_inner *inner)
{
	static const struct wrapper watch = {"watch", "nqs", 0, false, false};
	struct shell_words rest;

	look_in_wrapper(&watch, words, inner);
	if (!inner->has_command || inner->open_ended)
		return;
	rest = (struct shell_words){
		.list = words->list + inner->from, .count = inner->to - inner->from};
	inner->line = shell_words_join(&rest, rest.count);
	inner->has_command = !inner->line;
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
		cannot_know(inner, "find may run or delete something: its words are not all known");
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
	} else if (strcmp(name, "watch") == 0) {
		look_in_watch(words, &inner);
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

/* A pattern among the directories of a path that also stands for "..". */
static bool is_dots_pattern(const char *component, size_t length)
{
	char text[256];

	if (length < 2 || length >= sizeof(text) || component[0] != '.' ||
		(component[length] != '/' && memchr(component, '*', length)))
		return false;
	memcpy(text, component, length);
	text[length] = '\0';
	return strcspn(text, "*?[") < length && fnmatch(text, "..", 0) == 0;
}

static char *replace_dots_patterns(const char *path)
{
	struct buffer text = {0};

	while (*path) {
		size_t length = strcspn(path, "/");

		if (is_dots_pattern(path, length))
			buffer_append_string(&text, "..");
		else
			buffer_append(&text, path, length);
		path += length;
		if (*path)
			buffer_append(&text, path++, 1);
	}
	return buffer_steal_string(&text);
}

static bool has_dots_pattern(const char *path)
{
	for (;; path++) {
		size_t length = strcspn(path, "/");

		if (is_dots_pattern(path, length))
			return true;
		path += length;
		if (!*path)
			return false;
	}
}

const char *shell_path_in_word(const char *word)
{
	const char *equals = strchr(word, '=');

	if (equals && (word[0] == '-' || is_assignment(word)))
		word = equals + 1;
	else if (word[0] == '-' && word[1] && word[1] != '-' && (word[2] == '/' || word[2] == '~'))
		word += 2;
	if (word[0] == '@' && (word[1] == '/' || word[1] == '~')) /* curl -d @FILE */
		word++;
	if (word[0] == '/' || word[0] == '~' || strncmp(word, "..", 2) == 0 ||
		strstr(word, "/..") || has_dots_pattern(word))
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
	cleanup_free char *joined = NULL, *normal = NULL, *without = NULL;
	size_t length = root ? strlen(root) : 0;

	if (is_harmless(path))
		return false;
	if (path[0] == '~')
		return true;
	without = replace_dots_patterns(path);
	if (!without)
		return true;
	path = without;
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
