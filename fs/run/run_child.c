#include "fs/run/run_child.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/commands/commands.h"
#include "fs/mount/runtime.h"
#include "fs/run/run_config.h"
#include "fs/run/run_namespace.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/exec_client.h"
#include "ops/support/path.h"

enum { TEST_WAIT_S = 60 };

struct preparation {
	const struct run_child *child;
	const char *directory; /* bash, sh, real/, staging/, config.json */
	const char *at;        /* where the agent sees the workspace */
	char *real_bash, *real_sh;
	cJSON *environment; /* of what runs at the workspace */
	const char *proof;  /* the value of the mark */
};

/* ---- The directory ------------------------------------------------------------------------ */

int run_directory_make(char **ret_path)
{
	static const char *const parts[] = {"real", "staging"};
	cleanup_free char *runtime = NULL, *directory = NULL;
	int r = runtime_directory(&runtime);

	if (r < 0)
		return r;
	directory = string_printf("%s/shell-XXXXXX", runtime);
	if (!directory)
		return -ENOMEM;
	if (!mkdtemp(directory))
		return -errno;
	for (size_t i = 0; i < array_size(parts); i++) {
		cleanup_free char *path = path_join(directory, parts[i]);

		if (!path || mkdir(path, 0700) < 0)
			return path ? -errno : -ENOMEM;
	}
	*ret_path = steal_ptr(&directory);
	return 0;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
	(void)status;
	(void)type;
	(void)at;
	return remove(path);
}

void run_directory_remove(const char *path)
{
	nftw(path, remove_entry, 8, FTW_DEPTH | FTW_MOUNT | FTW_PHYS);
}

static int install_shells(const struct preparation *p)
{
	static const char *const names[] = {"bash", "sh"};
	cleanup_free char *program = command_find_program("isthmus-agent-shell");
	int r = program ? 0 : -ENOENT;

	for (size_t i = 0; r == 0 && i < array_size(names); i++) {
		cleanup_free char *path = path_join(p->directory, names[i]);

		r = path ? run_config_install(program, path, p->directory) : -ENOMEM;
	}
	return r;
}

/* ---- The namespace ------------------------------------------------------------------------ */

static int replace_shell(struct preparation *p, const char *name, const char *over, char **real)
{
	cleanup_free char *from = path_join(p->directory, name);
	cleanup_free char *former = string_printf("%s/real/%s", p->directory, path_name(over));
	int r;

	if (!from || !former)
		return -ENOMEM;
	r = run_namespace_replace(from, over, former);
	if (r == 0) {
		free(*real);
		*real = steal_ptr(&former);
	}
	return r;
}

/* The login shell of a user may be any of them. */
static int replace_shells(struct preparation *p)
{
	const struct agent *agent = p->child->agent;
	cleanup_free char *login = agent_shell_of(agent, p->directory);
	int r = login ? 0 : -ENOMEM;

	if (r == 0 && (agent->routes & ROUTE_BASH))
		r = replace_shell(p, "bash", "/bin/bash", &p->real_bash);
	if (r == 0 && (agent->routes & ROUTE_SH))
		r = replace_shell(p, "sh", "/bin/sh", &p->real_sh);
	if (r == 0 && (agent->routes & ROUTE_LOGIN))
		r = strcmp(path_name(login), "sh") == 0
			    ? replace_shell(p, "sh", login, &p->real_sh)
			    : replace_shell(p, "bash", login, &p->real_bash);
	return r;
}

static int show_workspace(struct preparation *p)
{
	cleanup_free char *staging = path_join(p->directory, "staging");
	int r = 0;

	if (!staging)
		return -ENOMEM;
	if (p->child->at)
		r = run_namespace_show(p->child->mount_point, p->child->at, staging);
	if (r == 0 && p->child->at)
		p->at = p->child->at;
	return r;
}

static int enter_namespace(struct preparation *p)
{
	const struct run_child *child = p->child;
	int r = run_namespace_enter();

	if (r < 0) {
		if (!(child->agent->routes & ~ROUTE_BINDS))
			return command_error("run",
				"%s has no setting for its shell, and a mount namespace, in which "
				"it would be replaced, is refused (%s): allow user namespaces, "
				"run it as root, or give it the tools of 'isthmus mcp' instead",
				child->agent->name, strerror(-r));
		command_note("run",
			"no mount namespace (%s): the workspace is at \"%s\", and paths in "
			"commands are changed",
			strerror(-r), p->at);
		return 0;
	}
	r = show_workspace(p);
	if (r < 0)
		return command_error("run", "the workspace cannot be shown at \"%s\": %s",
			child->at, strerror(-r));
	r = replace_shells(p);
	if (r < 0)
		return command_error("run", "the shell of %s cannot be replaced: %s",
			child->agent->name, strerror(-r));
	return 0;
}

/* ---- What the shell needs ------------------------------------------------------------------- */

static char *git_setting(const char *name)
{
	cleanup_free char *command = string_printf("git config --global %s 2>/dev/null", name);
	FILE *pipe = command ? popen(command, "re") : NULL;
	char *line = NULL;
	size_t size = 0;

	if (!pipe)
		return NULL;
	if (getline(&line, &size, pipe) > 0) {
		line[strcspn(line, "\n")] = '\0';
	} else {
		free(line);
		line = NULL;
	}
	pclose(pipe);
	return line;
}

/* Commits of the agent there are the user's. */
static cJSON *make_environment(const struct run_child *child)
{
	static const char *const settings[][3] = {
		{"user.name", "GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"},
		{"user.email", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"},
	};
	cJSON *environment = cJSON_CreateObject();
	const cJSON *item;

	for (size_t i = 0; !child->far->has_git_identity && i < array_size(settings); i++) {
		cleanup_free char *value = git_setting(settings[i][0]);

		if (!value || !*value)
			continue;
		cJSON_AddStringToObject(environment, settings[i][1], value);
		cJSON_AddStringToObject(environment, settings[i][2], value);
	}
	cJSON_ArrayForEach(item, child->environment) {
		cJSON_DeleteItemFromObjectCaseSensitive(environment, item->string);
		cJSON_AddStringToObject(environment, item->string, item->valuestring);
	}
	return environment;
}

static int save_config(const struct preparation *p)
{
	const struct run_child *child = p->child;
	cJSON *json = cJSON_CreateObject();
	int r;

	cJSON_AddNumberToObject(json, "agent", child->agent->kind);
	cJSON_AddStringToObject(json, "control_path", child->control_path);
	cJSON_AddStringToObject(json, "mount_point", p->at);
	cJSON_AddStringToObject(json, "root", child->far->root);
	cJSON_AddStringToObject(json, "real_bash", p->real_bash);
	cJSON_AddStringToObject(json, "real_sh", p->real_sh);
	cJSON_AddStringToObject(json, "far_shell", child->far->has_bash ? "bash" : "sh");
	cJSON_AddStringToObject(json, "proof", p->proof);
	cJSON_AddItemReferenceToObject(json, "environment", p->environment);
	r = run_config_save(json, p->directory);
	cJSON_Delete(json);
	return r;
}

int run_mark_make(char ret_mark[RUN_MARK_SIZE])
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	snprintf(ret_mark, RUN_MARK_SIZE, RUN_PROOF_VARIABLE "=%016" PRIx64 "%016" PRIx64,
		random[0], random[1]);
	return 0;
}

/* ---- The test ------------------------------------------------------------------------------ */

static _Noreturn void run_test(const char *shell, int output)
{
	alarm(TEST_WAIT_S);
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	execlp(shell, shell, "-c", "printf %s \"$" RUN_PROOF_VARIABLE "\"", (char *)NULL);
	_exit(EXEC_EXIT_NOT_FOUND);
}

/* A command that shows where it ran goes the way that the agent's commands will go. */
static int test_shell(const struct preparation *p)
{
	cleanup_free char *shell = agent_shell_of(p->child->agent, p->directory);
	char answer[RUN_MARK_SIZE] = "";
	int ends[2];
	ssize_t got;
	pid_t pid;

	if (!shell || pipe2(ends, O_CLOEXEC) < 0)
		return -ENOMEM;
	pid = fork();
	if (pid == 0)
		run_test(shell, ends[1]);
	close(ends[1]);
	got = pid > 0 ? read(ends[0], answer, sizeof(answer) - 1) : -1;
	close(ends[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (got > 0 && strcmp(answer, p->proof) == 0)
		return 0;
	return command_error("run",
		"a test command of %s's shell did not run at the workspace: not starting it; give "
		"it the tools of 'isthmus mcp' instead",
		p->child->agent->name);
}

/* ---- All of it ----------------------------------------------------------------------------- */

static int prepare(struct preparation *p)
{
	int r = install_shells(p);

	if (r < 0)
		return command_error("run", "the shell for the agent cannot be made: %s",
			r == -ENOENT ? "isthmus-agent-shell is missing, install isthmus again"
				     : strerror(-r));
	p->environment = make_environment(p->child);
	r = enter_namespace(p);
	if (r)
		return r;
	r = save_config(p);
	if (r == 0)
		r = agent_set_environment(p->child->agent, p->directory);
	if (r == 0 && (chdir(p->at) < 0 || setenv("PWD", p->at, 1) < 0))
		r = -errno;
	if (r < 0)
		return command_error("run", "\"%s\": %s", p->at, strerror(-r));
	return test_shell(p);
}

int run_child_exec(const struct run_child *child)
{
	struct preparation p = {.child = child,
		.directory = child->directory,
		.proof = strchr(child->mark, '=') + 1,
		.at = child->mount_point,
		.real_bash = strdup("/bin/bash"),
		.real_sh = strdup("/bin/sh")};
	int code;

	if (!p.real_bash || !p.real_sh || prepare(&p) != 0)
		return EXEC_EXIT_OWN_FAILURE;
	execvp(child->command[0], child->command);
	code = errno == ENOENT ? EXEC_EXIT_NOT_FOUND : EXEC_EXIT_NOT_EXECUTABLE;
	command_error("run", "\"%s\": %s", child->command[0], strerror(errno));
	return code;
}
