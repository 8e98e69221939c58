/* Processes of tools: their environment, a thread that reads their output, and their end. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/xattr.h>

#include "ops/support/clock.h"
#include "ops/support/exec_client.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "ops/support/process.h"
#include "ops/support/thread.h"
#include "tools/custom/internal.h"

/* Default limits for each process of a tool; its tool.json may have others. */
enum {
	LIMIT_MEMORY_MB = 4096,
	LIMIT_FILE_MB = 1024,
	LIMIT_MORE_THREADS = 1024, /* in addition to those that exist at its start */
	LIMIT_MAX_MB = 1 << 19,
};

enum { PAIRS_MAX = 128, WRITE_MS = 30000, ASIDE_MS = 1000, READ_BYTES = 65536 };

struct custom_process {
	struct command *command;
	struct custom_events events;
	pthread_t thread;
	atomic_bool killed;
	atomic_bool given_up; /* writers must give up */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool ended; /* guarded by lock */
};

/* ---- Environment and command -------------------------------------------------------------- */

struct pairs {
	char *list[PAIRS_MAX + 1];
	size_t count;
};

static void pairs_done(struct pairs *pairs)
{
	for (size_t i = 0; i < pairs->count; i++)
		free(pairs->list[i]);
}

static void pair_add(struct pairs *pairs, const char *name, const char *value)
{
	char *pair = value && pairs->count < PAIRS_MAX ? string_printf("%s=%s", name, value) : NULL;

	if (pair)
		pairs->list[pairs->count++] = pair;
}

/* Adds "env" of tool.json: {"NAME": "value"}, or true to pass on the variable of this process. */
static void add_manifest(struct pairs *pairs, const struct custom_entry *entry)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(entry->manifest, "env")) {
		if (cJSON_IsString(item))
			pair_add(pairs, item->string, item->valuestring);
		else if (cJSON_IsTrue(item))
			pair_add(pairs, item->string, getenv(item->string));
	}
}

static void make_pairs(struct pairs *pairs, const struct tool_session *session,
	const struct custom_entry *entry, const char *action, const struct tool_call *call)
{
	const char *conversation = call ? tool_conversation(call) : session->conversation;
	char uri[4096] = "";

	pair_add(pairs, "TOOLBOX_ACTION", action);
	pair_add(pairs, "AGENT", "isthmus");
	pair_add(pairs, "ISTHMUS_ROOT", entry->at_workspace ? NULL : session->root.path);
	if (getxattr(session->root.path, "user.isthmus.uri", uri, sizeof(uri) - 1) > 0)
		pair_add(pairs, "ISTHMUS_URI", uri);
	pair_add(pairs, "ISTHMUS_CALL", call ? call->call_id : NULL);
	pair_add(pairs, "ISTHMUS_SESSION", conversation);
	pair_add(pairs, "AMP_THREAD_ID", conversation);
	/* Compiled modules beside a tool would change its content, which was trusted. */
	pair_add(pairs, "PYTHONDONTWRITEBYTECODE", "1");
	add_manifest(pairs, entry);
}

/* Adds the variables that every command gets; others may be secret. */
static void add_basics(struct pairs *pairs)
{
	static const char *const names[] = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"};

	for (size_t i = 0; i < array_size(names); i++)
		pair_add(pairs, names[i], getenv(names[i]));
}

/* A limit in MiB, from "limits" in tool.json or the default. */
static int limit_mb(const struct custom_entry *entry, const char *name, int usual_mb)
{
	const cJSON *limits = cJSON_GetObjectItemCaseSensitive(entry->manifest, "limits");
	int64_t given_mb = json_integer(limits, name);

	return given_mb > 0 && given_mb < LIMIT_MAX_MB ? (int)given_mb : usual_mb;
}

/* No limit under sanitizers, which reserve terabytes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_LIMIT "unlimited # "
#else
#define MEMORY_LIMIT ""
#endif

/* The command, run by a shell that first sets limits, on either machine.  ulimit takes file sizes
 * in units of 512 bytes and memory in units of 1024.  A lower limit stays.  /proc/loadavg has the
 * number of threads of the system; shells differ in the option that limits a user's threads. */
static cJSON *limited_words(const struct custom_entry *entry)
{
	static const char script[] =
		"{ ulimit -c 0; ulimit -f %d; ulimit -d " MEMORY_LIMIT
		"%d\n read -r a a a t a </proc/loadavg && "
		"{ ulimit -p $((${t#*/} + %d)) || ulimit -u $((${t#*/} + %d)); }; } 2>/dev/null; "
		"exec \"$@\"";
	cleanup_free char *line =
		string_printf(script, limit_mb(entry, "file_mb", LIMIT_FILE_MB) * 2048,
			limit_mb(entry, "memory_mb", LIMIT_MEMORY_MB) * 1024, LIMIT_MORE_THREADS,
			LIMIT_MORE_THREADS);
	const char *shell[] = {"/bin/sh", "-c", line ? line : "exit 1", "sh"};
	cJSON *words = cJSON_CreateStringArray(shell, array_size(shell));
	const cJSON *word;

	cJSON_ArrayForEach(word, entry->argv) {
		cJSON_AddItemToArray(words, cJSON_Duplicate(word, true));
	}
	return words;
}

static char *workspace_request(const struct tool_session *session, const cJSON *words,
	const struct pairs *pairs, const struct tool_call *call)
{
	cJSON *json = cJSON_CreateObject(), *environment;
	char *text;

	cJSON_AddStringToObject(json, "request", "exec");
	cJSON_AddItemToObject(json, "argv", cJSON_Duplicate(words, true));
	cJSON_AddStringToObject(json, "cwd", session->workspace_path);
	environment = cJSON_AddObjectToObject(json, "env");
	for (size_t i = 0; i < pairs->count; i++) {
		cleanup_free char *name = strndup(pairs->list[i], strcspn(pairs->list[i], "="));

		if (name)
			cJSON_AddStringToObject(
				environment, name, pairs->list[i] + strlen(name) + 1);
	}
	cJSON_AddTrueToObject(json, "kill_leftovers");
	exec_client_add_umask(json);
	if (call)
		cJSON_AddStringToObject(json, "call_id", call->call_id);
	text = cJSON_PrintUnformatted(json);
	cJSON_Delete(json);
	return text;
}

int custom_at_workspace_command(int argc, char **argv)
{
	struct exec_client client = {0};
	struct exec_client_end end = {0};
	int r;

	if (argc != 3)
		return EXEC_EXIT_OWN_FAILURE;
	client.control_path = argv[1];
	client.request = argv[2];
	r = exec_client_start(&client);
	if (r < 0) {
		fprintf(stderr, "cannot reach the mount's daemon: %s\n", strerror(-r));
		exec_client_leave(EXEC_EXIT_OWN_FAILURE);
	}
	exec_client_run(&client, &end);
	if (end.message)
		fprintf(stderr, "%s\n", end.message);
	exec_client_leave(end.code);
}

/* ---- Its output --------------------------------------------------------------------------------
 */

static bool is_killed(void *user)
{
	return atomic_load(&((struct custom_process *)user)->killed);
}

static void *read_events(void *user)
{
	struct custom_process *process = user;
	struct command_interrupt interrupt = {is_killed, process};
	const struct custom_events *events = &process->events;
	struct exec_event event = {.type = EXEC_STDOUT};
	cleanup_free char *data = malloc(READ_BYTES);
	int r = data ? 0 : -ENOMEM;

	while (r == 0) {
		r = command_next(process->command, interrupt, data, READ_BYTES, &event);
		if (r < 0 || event.type == EXEC_EXIT)
			break;
		if (event.type == EXEC_STDOUT)
			events->output(events->user, data, event.size);
		else
			custom_errors_take(events->errors, data, event.size);
	}
	if (r < 0)
		event = (struct exec_event){.exit_code = -1, .signal = SIGKILL};
	events->ended(events->user, event.exit_code, event.signal);
	pthread_mutex_lock(&process->lock);
	process->ended = true;
	pthread_cond_broadcast(&process->changed);
	pthread_mutex_unlock(&process->lock);
	return NULL;
}

/* ---- Start and end ------------------------------------------------------------------------------
 */

/* Checks that the program exists; the shell that sets the limits would only exit with 127. */
static int check_program(const struct custom_entry *entry, int cwd)
{
	const char *program = cJSON_GetStringValue(cJSON_GetArrayItem(entry->argv, 0));
	cleanup_free char *missing = NULL;

	if (program && strchr(program, '/') && faccessat(cwd, program, X_OK, 0) < 0)
		return -errno;
	missing = custom_missing_program(entry, cwd);
	return missing ? -ENOENT : 0;
}

static void delete_json(cJSON **json)
{
	cJSON_Delete(*json);
}

static int start_command(const struct tool_session *session, const struct custom_entry *entry,
	const char *action, const struct tool_call *call, struct command **ret_command)
{
	cleanup_with(pairs_done) struct pairs pairs = {0};
	cleanup_with(delete_json) cJSON *words = limited_words(entry);
	size_t count = (size_t)cJSON_GetArraySize(words), i = 0;
	cleanup_free const char **argv = calloc(count + 1, sizeof(*argv));
	bool describes = strcmp(action, "describe") == 0,
	     far = entry->at_workspace && session->control_socket;
	cleanup_free char *request = NULL;
	cleanup_fd int cwd =
		open(describes && !entry->at_workspace ? entry->directory : session->root.path,
			O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct exec_request exec = {.flags = EXEC_KILL_LEFTOVERS};
	const cJSON *word;
	char self[4096];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int r;

	if (!argv)
		return -ENOMEM;
	if (cwd < 0 || length < 0)
		return -errno;
	self[length] = '\0';
	make_pairs(&pairs, session, entry, action, call);
	if (far)
		request = workspace_request(session, words, &pairs, call);
	add_basics(&pairs);
	cJSON_ArrayForEach(word, words)
		argv[i++] = word->valuestring;
	exec.environment = (const char *const *)pairs.list;
	exec.argv = argv;
	if (far && request) {
		const char *there[] = {
			self, "at-workspace", session->control_socket, request, NULL};

		exec.argv = there;
		return command_start(&exec, cwd, ret_command);
	}
	if (far)
		return -ENOMEM;
	r = check_program(entry, cwd);
	return r < 0 ? r : command_start(&exec, cwd, ret_command);
}

int custom_process_start(const struct tool_session *session, const struct custom_entry *entry,
	const char *action, const struct tool_call *call, const struct custom_events *events,
	struct custom_process **ret_process)
{
	struct custom_process *process = calloc(1, sizeof(*process));
	int r = process ? start_command(session, entry, action, call, &process->command) : -ENOMEM;

	if (r < 0) {
		free(process);
		return r;
	}
	process->events = *events;
	pthread_mutex_init(&process->lock, NULL);
	clock_cond_init(&process->changed);
	r = thread_start(&process->thread, "tool-events", 0, read_events, process);
	if (r < 0) {
		command_free(process->command);
		free(process);
		return r;
	}
	*ret_process = process;
	return 0;
}

struct patience {
	struct custom_process *process;
	struct tool_call *call;
	int64_t until_ms;
};

static bool gives_up(void *user)
{
	struct patience *patience = user;

	return (patience->call && tool_cancelled(patience->call)) ||
	       clock_now_ms() > patience->until_ms || atomic_load(&patience->process->given_up);
}

int custom_process_write(
	struct custom_process *process, struct tool_call *call, const void *data, size_t size)
{
	struct patience patience = {process, call, clock_now_ms() + (call ? WRITE_MS : ASIDE_MS)};
	struct command_interrupt interrupt = {gives_up, &patience};
	const char *at = data;

	while (size) {
		ssize_t put = command_write(process->command, interrupt, at, size);

		if (put < 0)
			return (int)put;
		at += put;
		size -= (size_t)put;
	}
	return 0;
}

void custom_process_close_input(struct custom_process *process)
{
	command_close_stdin(process->command);
}

void custom_process_give_up(struct custom_process *process)
{
	atomic_store(&process->given_up, true);
}

static bool await_end(struct custom_process *process, int ms)
{
	const struct timespec until = clock_in_ms(ms);
	bool ended;

	pthread_mutex_lock(&process->lock);
	while (!process->ended &&
		pthread_cond_timedwait(&process->changed, &process->lock, &until) == 0)
		;
	ended = process->ended;
	pthread_mutex_unlock(&process->lock);
	return ended;
}

void custom_process_stop(struct custom_process *process, int grace_ms)
{
	if (!process)
		return;
	custom_process_close_input(process);
	if (!await_end(process, grace_ms)) {
		command_signal(process->command, SIGTERM);
		await_end(process, CUSTOM_STOP_MS);
	}
	atomic_store(&process->killed, true);
	pthread_join(process->thread, NULL);
	command_free(process->command);
	pthread_cond_destroy(&process->changed);
	pthread_mutex_destroy(&process->lock);
	free(process);
}
