/* docker://[USER@]NAME[/dir] and podman:// - a running container, by the engine's own `exec`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/end.h"
#include "backends/remote/ends/address.h"

enum { ASK_TIMEOUT_MS = 10000 };

/* What a name of an engine, of Docker Compose or of a user may have besides. */
static const char name_characters[] = "_.-",
		  user_characters[] = "_.-:", host_characters[] = "_.-:/@";

struct engine {
	const char *program;
	const char *where_option; /* of the program: which engine, by a name that it knows */
	const char *where;        /* option of ours that has that name */
};

static const struct engine docker = {"docker", "--context", "context"};
static const struct engine podman = {"podman", "--connection", "connection"};

static int add_engine(const struct engine *engine, const struct workspace_options *options,
	struct argv *argv, char **ret_reason)
{
	const char *where = workspace_option(options, engine->where);
	int r = end_check_name(engine->where, where, host_characters, ret_reason);

	argv_add(argv, engine->program);
	if (r == 0 && where)
		argv_add_two(argv, engine->where_option, where);
	return r;
}

/* ---- Compose: a service of a project is the container with these labels ----------------- */

static int refuse_service(
	const char *service, const char *project, char *names, int error, char **ret_reason)
{
	for (char *c = names; *c; c++)
		if (*c == '\n')
			*c = c[1] ? ' ' : '\0';
	if (asprintf(ret_reason, "the service \"%s\" of the Compose project \"%s\" %s%s%s", service,
		    project,
		    *names ? "has several containers ("
			   : "has no running container: start it with "
			     "'docker compose up -d', or see "
			     "'docker compose ls'",
		    names, *names ? "): name one of them instead of the service" : "") < 0)
		*ret_reason = NULL;
	return error;
}

static int explain_ask(const char *program, int r, const struct buffer *error, char **ret_reason)
{
	const char *words = error->data ? (const char *)error->data : "";
	int length = (int)strcspn(words, "\n");
	const char *other = r == -ETIMEDOUT ? "it does not answer"
			    : r < 0         ? strerror(-r)
					    : "it failed without a word";

	if (asprintf(ret_reason,
		    "cannot ask %s for its containers: %.*s; '%s ps' must show them: see that "
		    "the engine runs, and where DOCKER_HOST or an option leads",
		    program, *words ? length : (int)strlen(other), *words ? words : other,
		    program) < 0)
		*ret_reason = NULL;
	return r < 0 ? r : -EHOSTUNREACH;
}

/* Puts the container's name in the place of the service's. */
static int find_service(char *const *engine, const char *project, char **name, char **ret_reason)
{
	cleanup_free char *by_project = NULL, *by_service = NULL;
	cleanup_buffer struct buffer out = {0}, error = {0};
	cleanup_argv struct argv argv = {0};
	char *names, *end;
	int r;

	if (asprintf(&by_project, "label=com.docker.compose.project=%s", project) < 0 ||
		asprintf(&by_service, "label=com.docker.compose.service=%s", *name) < 0)
		return -ENOMEM;
	argv_add_list(&argv, engine);
	argv_add_two(&argv, "ps", "--filter");
	argv_add_two(&argv, by_project, "--filter");
	argv_add_two(&argv, by_service, "--format");
	argv_add(&argv, "{{.Names}}");
	r = argv.failed ? -ENOMEM : argv_ask(argv.words, ASK_TIMEOUT_MS, &out, &error);
	if (r != 0)
		return explain_ask(engine[0], r, &error, ret_reason);
	names = (char *)out.data;
	end = names ? strchr(names, '\n') : NULL;
	if (!end || end[1])
		return refuse_service(*name, project, names ? names : strdupa(""),
			end ? -EINVAL : -ENOENT, ret_reason);
	*end = '\0';
	free(*name);
	*name = strdup(names);
	return *name ? end_check_name("container", *name, name_characters, ret_reason) : -ENOMEM;
}

/* ---- The row --------------------------------------------------------------------- */

static int check_names(const struct end_address *address, const char *project, char **ret_reason)
{
	int r = end_check_name("container", address->name, name_characters, ret_reason);

	if (r == 0)
		r = end_check_name("user", address->user, user_characters, ret_reason);
	return r < 0 ? r : end_check_name("project", project, name_characters, ret_reason);
}

static int prepare(const struct engine *engine, const struct scheme *scheme, const char *rest,
	const struct workspace_options *options, struct remote_settings *settings,
	char **ret_reason)
{
	cleanup_end_address struct end_address address = {0};
	const char *project = workspace_option(options, "compose");
	struct end_target *target = &settings->target;
	cleanup_argv struct argv argv = {0};
	int r = end_address_parse(scheme, rest, &address, ret_reason);

	if (r == 0)
		r = check_names(&address, project, ret_reason);
	if (r == 0)
		r = add_engine(engine, options, &argv, ret_reason);
	if (r == 0)
		r = argv_steal(&argv, &target->engine);
	if (r == 0 && project)
		r = find_service(target->engine, project, &address.name, ret_reason);
	if (r < 0)
		return r;
	settings->transport.name = strdup(address.name);
	target->name = steal_ptr(&address.name);
	target->user = steal_ptr(&address.user);
	settings->root = steal_ptr(&address.directory);
	return settings->transport.name ? 0 : -ENOMEM;
}

static int prepare_docker(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	return prepare(&docker, &docker_scheme, rest, options, settings, ret_reason);
}

static int prepare_podman(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	return prepare(&podman, &podman_scheme, rest, options, settings, ret_reason);
}

/* Never with -t: a terminal changes bytes, and joins stdout and stderr. */
static void stream(const struct end_target *target, char *const *words, struct argv *argv)
{
	argv_add_list(argv, target->engine);
	argv_add_two(argv, "exec", "-i");
	if (target->user)
		argv_add_two(argv, "-u", target->user);
	argv_add(argv, target->name);
	argv_add_list(argv, words);
}

static void identity(const struct end_target *target, struct argv *argv)
{
	argv_add_list(argv, target->engine);
	argv_add_two(argv, "inspect", "-f");
	argv_add_two(argv, "{{.Id}} {{.State.StartedAt}}", target->name);
}

static void copy(
	const struct end_target *target, const char *file, const char *path, struct argv *argv)
{
	cleanup_free char *there = NULL;

	argv_add_list(argv, target->engine);
	if (asprintf(&there, "%s:%s", target->name, path) < 0) {
		there = NULL;
		argv->failed = true;
		return;
	}
	argv_add_two(argv, "cp", file);
	argv_add(argv, there);
}

static void list(
	const struct engine *engine, const struct workspace_options *options, struct argv *argv)
{
	cleanup_free char *reason = NULL;

	argv->failed = add_engine(engine, options, argv, &reason) < 0 || argv->failed;
	argv_add_two(argv, "ps", "--format");
	argv_add(argv, "{{.Names}}");
}

static void list_docker(const struct workspace_options *options, struct argv *argv)
{
	list(&docker, options, argv);
}

static void list_podman(const struct workspace_options *options, struct argv *argv)
{
	list(&podman, options, argv);
}

/* The log of podman(1): what counts is behind it, as "Error: ...". */
static bool is_warning(const char *line)
{
	size_t length = strcspn(line, "\n");

	return strncmp(line, "time=\"", 6) == 0 && memmem(line, length, "level=warning", 13);
}

/* What words of the engines mean, also of their runtimes.  The first that fits counts. */
#define RUNTIME_ADVICE                                                                             \
	{"unable to find user", -EINVAL,                                                           \
		"there is no such user in the container: correct the part before \"@\", or leave " \
		"it out for the user of the image"},                                               \
		{"no matching entries in passwd", -EINVAL,                                         \
			"there is no such user in the container: correct the part before \"@\", "  \
			"or leave it out for the user of the image"},

static const struct end_advice docker_advice[] = {
	{"cannot run \"docker\"", -ENOENT,
		"install the client of Docker (docker-cli or docker.io)"},
	{"docker: not found", -ENOENT, "install the client of Docker there"}, /* by ssh: */
	{"command not found: docker", -ENOENT, "install the client of Docker there"},
	{"permission denied while trying to connect", -EACCES,
		"the engine's socket is for root and the group docker: join that group "
		"(usermod -aG docker USER, then log in again), or set DOCKER_HOST or -o context"},
	{"No such container", -ENOENT, "'docker ps -a' shows the names"},
	{"is restarting", -EHOSTUNREACH, "see 'docker logs %s' for why it does not stay up"},
	{"is not running", -EHOSTUNREACH, "start it with 'docker start %s', and mount again"},
	{"is paused", -EHOSTUNREACH, "let it go on with 'docker unpause %s'"},
	{"ultiple IDs found", -EINVAL, "write more of the id, or the whole name"},
	{"context not found", -EINVAL, "'docker context ls' shows the contexts"},
	{"resolve docker endpoint", -EINVAL, "'docker context ls' shows the contexts"},
	{"annot connect to the Docker daemon", -EHOSTUNREACH,
		"start the engine (systemctl start docker), or say where it is with DOCKER_HOST or "
		"-o context"},
	{"failed to connect to the docker API", -EHOSTUNREACH,
		"start the engine (systemctl start docker), or say where it is with DOCKER_HOST or "
		"-o context"},
	{"error during connect", -EHOSTUNREACH,
		"see that the engine runs there, and where DOCKER_HOST or -o context leads"},
	RUNTIME_ADVICE{0},
};

static const struct end_advice podman_advice[] = {
	{"cannot run \"podman\"", -ENOENT, "install podman"},
	{"podman: not found", -ENOENT, "install podman there"}, /* by ssh: */
	{"command not found: podman", -ENOENT, "install podman there"},
	{"no such container", -ENOENT,
		"'podman ps -a' shows the names; root and each user have containers of their own"},
	{"no container with name or ID", -ENOENT,
		"'podman ps -a' shows the names; root and each user have containers of their own"},
	{"ore than one result", -EINVAL, "write more of the id, or the whole name"},
	{"is paused", -EHOSTUNREACH, "let it go on with 'podman unpause %s'"},
	{"only create exec sessions on running containers", -EHOSTUNREACH,
		"start it with 'podman start %s' ('podman unpause %s' where it is paused), and "
		"mount "
		"again"},
	{"container is not running", -EHOSTUNREACH,
		"start it with 'podman start %s', and mount again"},
	{"connect: permission denied", -EACCES,
		"the engine's socket is another user's: mount as that user, or name another one "
		"with CONTAINER_HOST or -o connection"},
	{"annot connect to Podman", -EHOSTUNREACH,
		"'podman system connection list' shows the connections, and CONTAINER_HOST names "
		"one"},
	{"destination not found", -EINVAL, "'podman system connection list' shows the connections"},
	RUNTIME_ADVICE{0},
};

#define SILENT_ADVICE(engine)                                                            \
	"the engine must answer ('" engine " ps'), and '%s' be able to run a shell, or " \
	"isthmus-helper, for as long as the mount lasts"

static const struct workspace_scheme_option docker_options[] = {
	{"context", "NAME"}, {"compose", "PROJECT"}, {0}};
static const struct workspace_scheme_option podman_options[] = {
	{"connection", "NAME"}, {"compose", "PROJECT"}, {0}};

static const struct end docker_end = {
	.prepare = prepare_docker,
	.stream = stream,
	.identity = identity,
	.copy = copy,
	.takes_parameters = true,
	.advice = docker_advice,
	.silent_advice = SILENT_ADVICE("docker"),
};

static const struct end podman_end = {
	.prepare = prepare_podman,
	.stream = stream,
	.identity = identity,
	.copy = copy,
	.takes_parameters = true,
	.is_noise = is_warning,
	.advice = podman_advice,
	.silent_advice = SILENT_ADVICE("podman"),
};

const struct scheme docker_scheme = {
	.about = {.name = "docker",
		.form = "docker://[user@]container[/dir]",
		.summary = "a running container of Docker",
		.options = docker_options,
		.shared_options = remote_options},
	.open = remote_open,
	.end = &docker_end,
	.names = list_docker,
};

const struct scheme podman_scheme = {
	.about = {.name = "podman",
		.form = "podman://[user@]container[/dir]",
		.summary = "a running container of Podman",
		.options = podman_options,
		.shared_options = remote_options},
	.open = remote_open,
	.end = &podman_end,
	.names = list_podman,
};
