/* Finds the program that a tool needs, and gives advice if it is not installed. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/path.h"
#include "tools/custom/internal.h"

enum { FIRST_LINE_MAX = 256 };

/* Debian's packages, where their names differ from the program's. */
static const struct {
	const char *program, *advice;
} advices[] = {
	{"node", "install Node.js (the package nodejs), 22.18 or later for tools of pi"},
	{"npx", "install npm"},
	{"python", "install python-is-python3, or have its first line say python3"},
	{"uv", "install uv: https://docs.astral.sh/uv/"},
	{"uvx", "install uv: https://docs.astral.sh/uv/"},
	{"bun", "install Bun: https://bun.sh/"},
	{"deno", "install Deno: https://deno.com/"},
	{"php", "install php-cli"},
	{"tclsh", "install tcl"},
	{"Rscript", "install r-base-core"},
	{"pwsh", "install PowerShell"},
};

static bool is_there(int cwd, const char *program)
{
	cleanup_free char *found = NULL;

	if (strchr(program, '/'))
		return faccessat(cwd, program, X_OK, 0) == 0;
	found = path_find_program(program);
	return found != NULL;
}

/* Reads the first line after "#!"; false: the file has no such line. */
static bool first_line(int cwd, const char *program, char line[FIRST_LINE_MAX])
{
	cleanup_free char *found = strchr(program, '/') ? NULL : path_find_program(program);
	cleanup_fd int fd = openat(cwd, found ? found : program, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, line, FIRST_LINE_MAX - 1);

	if (got < 2 || memcmp(line, "#!", 2) != 0)
		return false;
	line[got] = '\0';
	line[strcspn(line, "\n")] = '\0';
	memmove(line, line + 2, strlen(line + 2) + 1);
	return true;
}

/* The interpreter of a script: python3 for "#!/usr/bin/env -S NAME=x python3 -u". */
static char *interpreter(int cwd, const char *program)
{
	char line[FIRST_LINE_MAX], *rest = line;
	const char *word;
	bool is_env = false;

	if (!first_line(cwd, program, line))
		return NULL;
	while ((word = strsep(&rest, " \t\r")))
		if (is_env ? *word && *word != '-' && !strchr(word, '=') : *word != '\0') {
			if (is_env || strcmp(path_name(word), "env") != 0 || !is_there(cwd, word))
				return strdup(word);
			is_env = true;
		}
	return NULL;
}

char *custom_missing_program(const struct custom_entry *entry, int cwd)
{
	const char *program = cJSON_GetStringValue(cJSON_GetArrayItem(entry->argv, 0));
	cleanup_free char *runs = NULL;

	if (!program)
		return NULL;
	if (!is_there(cwd, program))
		return strdup(program);
	runs = interpreter(cwd, program);
	return runs && !is_there(cwd, runs) ? steal_ptr(&runs) : NULL;
}

static const char *advice_for(const char *program)
{
	for (size_t i = 0; i < array_size(advices); i++)
		if (strcmp(advices[i].program, program) == 0)
			return advices[i].advice;
	return NULL;
}

char *custom_unstarted(const struct custom_entry *entry, int error)
{
	cleanup_fd int cwd = open(entry->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *missing = error == -ENOENT ? custom_missing_program(entry, cwd) : NULL;
	const char *advice = missing ? advice_for(path_name(missing)) : NULL;
	bool is_path = missing && strchr(missing, '/');

	if (!missing)
		return string_printf("it cannot be started: %s", strerror(-error));
	return string_printf("it needs \"%s\", which is %s: %s%s%s", missing,
		is_path ? "not there" : "in no directory of PATH", advice ? advice : "install ",
		advice ? "" : path_name(missing), is_path ? ", or correct the path" : "");
}

int custom_fail_unstarted(struct tool_call *call, int error)
{
	const struct custom_entry *entry = &custom_tool_of(call)->source->entry;
	cleanup_free char *reason = NULL;

	if (error == -ECANCELED)
		return tool_fail(call, TOOL_ABORTED, NULL, "The call was cancelled.");
	reason = custom_unstarted(entry, error);
	return tool_fail(call, TOOL_UNSUPPORTED,
		"Tell the user what is missing, and go on without it.",
		"Cannot start the tool \"%s\": %s.", entry->path, reason ? reason : "no memory");
}
