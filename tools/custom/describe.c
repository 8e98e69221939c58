/* Asks an entry to describe itself, once for each version of its files. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/clock.h"
#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "tools/base/options.h"
#include "tools/custom/internal.h"

/* ---- The cache ------------------------------------------------------------------------------ */

static void add_stamp(struct buffer *stamp, const char *path)
{
	struct stat status;

	if (stat(path, &status) == 0)
		buffer_printf(stamp, "%s %lld.%09ld %lld %llu;", path,
			(long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
			(long long)status.st_size, (unsigned long long)status.st_ino);
}

/* Covers the files of its command and its manifest. */
char *custom_stamp(const struct custom_entry *entry)
{
	cleanup_free char *manifest = path_join(entry->directory, "tool.json");
	struct buffer stamp cleanup_buffer = {0};
	const cJSON *word;

	add_stamp(&stamp, entry->path);
	if (manifest)
		add_stamp(&stamp, manifest);
	cJSON_ArrayForEach(word, entry->argv) {
		buffer_printf(&stamp, "%s;", word->valuestring);
		if (strchr(word->valuestring, '/'))
			add_stamp(&stamp, word->valuestring);
	}
	return buffer_steal_string(&stamp);
}

static char *cache_path(const struct custom_entry *entry)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char hash[33];

	files_hash(entry->path, strlen(entry->path), hash);
	if (cache && *cache == '/')
		return string_printf("%s/isthmus/tools/%s", cache, hash);
	return home && *home == '/' ? string_printf("%s/.cache/isthmus/tools/%s", home, hash)
				    : NULL;
}

static cJSON *recall(const char *path, const char *stamp)
{
	struct buffer content cleanup_buffer = {0};
	cJSON *json = NULL, *description = NULL;

	if (options_read_file(path, &content) == 0 && buffer_append(&content, "", 1) == 0)
		json = cJSON_Parse((const char *)content.data);
	if (json_text(json, "stamp") && strcmp(json_text(json, "stamp"), stamp) == 0)
		description = cJSON_DetachItemFromObjectCaseSensitive(json, "description");
	cJSON_Delete(json);
	return description;
}

/* Writes the cache file; a failure is harmless, the tool is then asked again. */
static void keep(const char *path, const char *stamp, const cJSON *description)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	cleanup_free char *temporary = string_printf("%s.%ld", path, (long)getpid()), *text = NULL;
	cleanup_fd int directory = parent ? make_directories(parent) : -ENOMEM, fd = -1;
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "stamp", stamp);
	cJSON_AddItemToObject(json, "description", cJSON_Duplicate(description, true));
	text = cJSON_PrintUnformatted(json);
	cJSON_Delete(json);
	if (directory < 0 || !temporary || !text)
		return;
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd >= 0 && (write_all(fd, text, strlen(text)) < 0 || rename(temporary, path) < 0))
		unlink(temporary);
}

/* ---- Asking -----------------------------------------------------------------------------------
 */

struct asking {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct buffer output; /* guarded by lock, as are all fields below */
	bool ended, too_long;
	int exit_code, signal;
	struct custom_errors errors;
};

static void take_output(void *user, const void *data, size_t size)
{
	struct asking *asking = user;

	pthread_mutex_lock(&asking->lock);
	if (buffer_append(&asking->output, data, size) < 0)
		asking->too_long = true;
	pthread_cond_broadcast(&asking->changed);
	pthread_mutex_unlock(&asking->lock);
}

static void take_end(void *user, int exit_code, int signal)
{
	struct asking *asking = user;

	pthread_mutex_lock(&asking->lock);
	asking->ended = true;
	asking->exit_code = exit_code;
	asking->signal = signal;
	pthread_cond_broadcast(&asking->changed);
	pthread_mutex_unlock(&asking->lock);
}

static int limit_ms(const struct custom_entry *entry)
{
	return entry->for_node ? CUSTOM_DESCRIBE_NODE_MS : CUSTOM_DESCRIBE_MS;
}

static void await_answer(struct asking *asking, int ms)
{
	const struct timespec until = clock_in_ms(ms);

	pthread_mutex_lock(&asking->lock);
	while (!asking->ended && !asking->too_long &&
		pthread_cond_timedwait(&asking->changed, &asking->lock, &until) == 0)
		;
	pthread_mutex_unlock(&asking->lock);
}

static void say_failed(struct custom_entry *entry, const struct asking *asking)
{
	struct buffer message cleanup_buffer = {0};

	custom_errors_say(&asking->errors, ": ", &message);
	custom_problem(entry, "when it was asked to describe its tools, it ended with %s %d%.*s",
		asking->signal ? "signal" : "exit code",
		asking->signal ? asking->signal : asking->exit_code, (int)message.size,
		message.data ? (const char *)message.data : "");
}

static cJSON *read_answer(struct custom_entry *entry, const struct asking *asking, bool in_time)
{
	struct buffer problem cleanup_buffer = {0};
	cJSON *description = NULL;

	if (asking->too_long)
		custom_problem(entry, "it describes its tools in more than %d KiB",
			CUSTOM_DESCRIBE_MAX_BYTES / 1024);
	else if (!in_time)
		custom_problem(
			entry, "it did not describe its tools within %d s", limit_ms(entry) / 1000);
	else if (asking->signal || asking->exit_code)
		say_failed(entry, asking);
	else
		description = custom_toolbox_description(
			(const char *)asking->output.data, asking->output.size, &problem);
	if (problem.size)
		custom_problem(entry, "%.*s", (int)problem.size, (const char *)problem.data);
	return description;
}

static cJSON *ask(const struct tool_session *session, struct custom_entry *entry)
{
	struct asking asking = {.lock = PTHREAD_MUTEX_INITIALIZER,
		.output.limit_bytes = CUSTOM_DESCRIBE_MAX_BYTES,
		.errors.path = entry->path};
	const struct custom_events events = {take_output, take_end, &asking, &asking.errors};
	struct custom_process *process;
	cleanup_free char *reason = NULL;
	cJSON *description = NULL;
	bool in_time;
	int r;

	clock_cond_init(&asking.changed);
	r = custom_process_start(session, entry, "describe", NULL, &events, &process);
	if (r < 0) {
		reason = custom_unstarted(entry, r);
		custom_problem(entry, "%s", reason ? reason : strerror(-r));
	} else {
		custom_process_close_input(process);
		await_answer(&asking, limit_ms(entry));
		pthread_mutex_lock(&asking.lock);
		in_time = asking.ended;
		pthread_mutex_unlock(&asking.lock);
		custom_process_stop(process, 0);
		description = read_answer(entry, &asking, in_time);
	}
	buffer_done(&asking.output);
	custom_errors_done(&asking.errors);
	pthread_cond_destroy(&asking.changed);
	return description;
}

cJSON *custom_describe(const struct tool_session *session, struct custom_entry *entry)
{
	cleanup_free char *path = cache_path(entry), *stamp = custom_stamp(entry);
	cJSON *description;

	if (!stamp)
		return NULL;
	description = path ? recall(path, stamp) : NULL;
	if (description)
		return description;
	description = entry->is_mcp ? custom_mcp_describe(session, entry) : ask(session, entry);
	if (description && path)
		keep(path, stamp, description);
	return description;
}
