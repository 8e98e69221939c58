#include "fs/run/run_agent.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"

/* What each executes was found by tracing it: see the versions in isthmus(1). */
static const struct agent agents[] = {
	{"claude", AGENT_CLAUDE, ROUTE_VARIABLES, "CLAUDE_CODE_SHELL"},
	{"codex", AGENT_CODEX, ROUTE_LOGIN, NULL},
	{"gemini", AGENT_GEMINI, ROUTE_PATH, NULL},
	{"opencode", AGENT_OPENCODE, ROUTE_VARIABLES, NULL},
	{"pi", AGENT_PI, ROUTE_BASH, NULL},
	{"other", AGENT_OTHER, ROUTE_VARIABLES | ROUTE_PATH | ROUTE_BASH | ROUTE_SH, NULL},
};

const struct agent *agent_named(const char *name)
{
	for (size_t i = 0; i < array_size(agents); i++)
		if (strcmp(agents[i].name, name) == 0)
			return &agents[i];
	return NULL;
}

const struct agent *agent_find(const char *program)
{
	const struct agent *agent = agent_named(path_name(program));

	return agent ? agent : agent_named("other");
}

/* A "shell" in the user's own settings would count more than SHELL. */
static int set_opencode_shell(const char *shell)
{
	static const char variable[] = "OPENCODE_CONFIG_CONTENT";
	const char *before = getenv(variable);
	cJSON *settings = before ? cJSON_Parse(before) : cJSON_CreateObject();
	cleanup_free char *text = NULL;

	if (!cJSON_IsObject(settings)) {
		cJSON_Delete(settings);
		settings = cJSON_CreateObject();
	}
	cJSON_DeleteItemFromObjectCaseSensitive(settings, "shell");
	cJSON_AddStringToObject(settings, "shell", shell);
	text = cJSON_PrintUnformatted(settings);
	cJSON_Delete(settings);
	return text && setenv(variable, text, 1) == 0 ? 0 : -ENOMEM;
}

static int prepend_to_path(const char *directory)
{
	const char *before = getenv("PATH");
	cleanup_free char *path =
		string_printf("%s%s%s", directory, before ? ":" : "", before ? before : "");

	return path && setenv("PATH", path, 1) == 0 ? 0 : -ENOMEM;
}

int agent_set_environment(const struct agent *agent, const char *directory)
{
	cleanup_free char *shell = string_printf("%s/bash", directory);
	int r = shell ? 0 : -ENOMEM;

	if (r == 0 && (agent->routes & ROUTE_VARIABLES))
		r = setenv("SHELL", shell, 1) < 0 ? -errno : 0;
	if (r == 0 && agent->variable)
		r = setenv(agent->variable, shell, 1) < 0 ? -errno : 0;
	if (r == 0 && agent->kind == AGENT_OPENCODE)
		r = set_opencode_shell(shell);
	if (r == 0 && (agent->routes & ROUTE_PATH))
		r = prepend_to_path(directory);
	return r;
}

static const char *login_shell(void)
{
	const struct passwd *user = getpwuid(getuid());

	return user && user->pw_shell && *user->pw_shell ? user->pw_shell : "/bin/sh";
}

char *agent_shell_of(const struct agent *agent, const char *directory)
{
	if (agent->routes & ROUTE_LOGIN)
		return strdup(login_shell());
	if (agent->routes & ROUTE_PATH)
		return strdup("bash");
	if (agent->routes & ROUTE_VARIABLES)
		return string_printf("%s/bash", directory);
	return strdup("/bin/bash");
}
