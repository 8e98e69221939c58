/* The tools find and glob: find names by pattern, sorted by path or with the newest first. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include "ops/support/clock.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"
#include "ops/support/glob.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/search/ahead.h"
#include "tools/search/pattern.h"
#include "tools/search/walk.h"
#include "tools/text/looks.h"

enum { FIND_LIMIT = 1000, FOUND_MAX = 500000, MOUNT_THREADS = 8, AHEAD_MAX_S = 30 };

#define INPUT_SCHEMA(limit, pattern_text)                                                      \
	"{\"type\":\"object\",\"properties\":{"                                                \
	"\"pattern\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4000,\"description\":" \
	"\"" pattern_text "\"},\"path\":{\"type\":\"string\",\"description\":\"Default: the "  \
	"root\"},"                                                                             \
	"\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":100000,\"default\":" limit  \
	"}},"                                                                                  \
	"\"required\":[\"pattern\"],\"additionalProperties\":false}"

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"paths\":{\"type\":\"array\",\"items\":{"
	"\"type\":\"string\"}},\"total\":{\"type\":\"integer\"},\"truncated\":{\"type\":"
	"\"boolean\"},"
	"\"notice\":{\"type\":\"string\"},\"left_out\":{\"type\":\"integer\"}},\"required\":["
	"\"paths\",\"total\",\"truncated\"]}";

struct found_path {
	char *path; /* with '/' at the end of a directory's */
	struct timespec mtime;
	bool by_looks; /* the pattern does not match it, but what it looks like */
};

struct finding {
	struct tool_call *call;
	struct permission_filter filter;
	struct glob glob;
	struct glob looks; /* for what paths look like (tools/text/looks.h) */
	bool newest_first; /* glob: files only, sorted by mtime */
	size_t base;       /* length of the searched directory's path in each path */
	pthread_mutex_t lock;
	struct found_path *paths; /* guarded by lock */
	size_t count, capacity;
	size_t by_looks; /* of those that are shown */
	bool too_many;
	bool only_directories;
	bool pattern_is_special; /* it has characters that look like others */
	bool is_outside;         /* the pattern is about another tree */
	uint64_t unreadable;     /* directories */
	char *away;              /* NULL, or what is to be said of a link that is not there */
};

static bool stopped(void *user)
{
	return tool_cancelled(((struct finding *)user)->call);
}

static int add_path(struct finding *finding, struct found_path *found_path)
{
	int r = 0;

	pthread_mutex_lock(&finding->lock);
	if (finding->count == finding->capacity) {
		size_t capacity = finding->capacity ? finding->capacity * 2 : 256;
		struct found_path *grown = reallocarray(finding->paths, capacity, sizeof(*grown));

		r = grown ? 0 : -ENOMEM;
		finding->paths = grown ? grown : finding->paths;
		finding->capacity = grown ? capacity : finding->capacity;
	}
	if (r == 0 && finding->count >= FOUND_MAX) {
		finding->too_many = true;
		r = -E2BIG;
	}
	if (r == 0)
		finding->paths[finding->count++] = *found_path;
	pthread_mutex_unlock(&finding->lock);
	return r;
}

static bool shows(void *user, const char *path)
{
	return permission_filter_shows(&((struct finding *)user)->filter, path);
}

static void joined(void *user)
{
	tool_join_thread(((struct finding *)user)->call);
}

/* Whether the pattern matches what the path looks like. */
static bool looks_match(const struct finding *finding, const char *path)
{
	struct buffer seen cleanup_buffer = {0};
	const char *at = path;

	while (*at > 0)
		at++;
	return (*at || finding->pattern_is_special) && looks_append(path, &seen) == 0 &&
	       buffer_append(&seen, "", 1) == 0 &&
	       glob_matches(&finding->looks, (const char *)seen.data);
}

static int visit(void *user, unsigned worker, const struct walk_entry *entry)
{
	struct finding *finding = user;
	bool is_directory = entry->type == DT_DIR;
	struct found_path found_path = {0};
	struct stat status;
	int r;

	(void)worker;
	if (is_directory ? finding->newest_first : finding->only_directories)
		return 0;
	found_path.by_looks = !glob_matches(&finding->glob, entry->path + finding->base);
	if (found_path.by_looks && !looks_match(finding, entry->path + finding->base))
		return 0;
	if (finding->newest_first) {
		if (fstatat(entry->directory, entry->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		found_path.mtime = status.st_mtim;
	}
	if (asprintf(&found_path.path, "%s%s", entry->path, is_directory ? "/" : "") < 0)
		return -ENOMEM;
	r = add_path(finding, &found_path);
	if (r < 0)
		free(found_path.path);
	return r;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct found_path *)a)->path, ((const struct found_path *)b)->path);
}

static int by_time(const void *a, const void *b)
{
	const struct found_path *left = a, *right = b;

	if (left->mtime.tv_sec != right->mtime.tv_sec)
		return left->mtime.tv_sec < right->mtime.tv_sec ? 1 : -1;
	if (left->mtime.tv_nsec != right->mtime.tv_nsec)
		return left->mtime.tv_nsec < right->mtime.tv_nsec ? 1 : -1;
	return by_path(a, b);
}

static int add_notice(struct finding *finding, size_t shown)
{
	struct tool_call *call = finding->call;
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *notice = NULL;

	if (shown < finding->count || finding->too_many)
		buffer_printf(&text,
			"Showing %zu of %s%zu paths. Use a narrower pattern or path, or a higher "
			"limit. ",
			shown, finding->too_many ? "more than " : "", finding->count);
	if (finding->by_looks)
		buffer_printf(&text,
			"%zu of the names only look%s like the pattern: \\u and four digits stand "
			"for a character of them, and read takes them as they are shown. ",
			finding->by_looks, finding->by_looks == 1 ? "s" : "");
	if (finding->unreadable)
		buffer_printf(&text, "%llu director%s could not be read. ",
			(unsigned long long)finding->unreadable,
			finding->unreadable == 1 ? "y" : "ies");
	if (finding->is_outside && !finding->count)
		buffer_printf(&text, "The pattern leads out of the root directory \"%s\". ",
			call->session->root.path);
	if (finding->away)
		buffer_printf(&text, "%s ", finding->away);
	if (!text.size)
		return 0;
	text.size--;
	notice = buffer_steal_string(&text);
	if (!notice)
		return -1;
	cJSON_AddStringToObject(call->data, "notice", notice);
	return tool_text(call, "\n[%s]", notice);
}

static int describe(struct finding *finding)
{
	struct tool_call *call = finding->call;
	cJSON *paths = cJSON_AddArrayToObject(call->data, "paths");
	size_t limit = (size_t)tool_integer(call, "limit", FIND_LIMIT), shown = 0;

	if (finding->count)
		qsort(finding->paths, finding->count, sizeof(*finding->paths),
			finding->newest_first ? by_time : by_path);
	for (; shown < finding->count && shown < limit && shown < TOOL_OUTPUT_MAX_LINES; shown++) {
		struct buffer clean cleanup_buffer = {0}, seen cleanup_buffer = {0};
		const char *path = finding->paths[shown].path;

		if (call->text.size + strlen(path) > TOOL_OUTPUT_MAX_BYTES - 250)
			break;
		if (utf8_append_clean(&clean, path, strlen(path)) < 0 ||
			buffer_append(&clean, "", 1) < 0 ||
			(finding->paths[shown].by_looks
					? looks_escape(path, &seen)
					: visible_append(&seen, path, strlen(path), 0)) < 0 ||
			buffer_append(&seen, "", 1) < 0 ||
			tool_text(call, "%s\n", (const char *)seen.data) < 0)
			return tool_fail_errno(call, -ENOMEM, "list what was found", NULL);
		cJSON_AddItemToArray(paths, cJSON_CreateString((const char *)clean.data));
		finding->by_looks += finding->paths[shown].by_looks;
	}
	cJSON_AddNumberToObject(call->data, "total", (double)finding->count);
	cJSON_AddBoolToObject(call->data, "truncated",
		shown < finding->count || finding->too_many || finding->away);
	if (add_notice(finding, shown) < 0)
		return -1;
	call->exit_code = finding->count ? 0 : 1;
	if (!finding->count && tool_text(call, "[Nothing found.]\n") < 0)
		return -1;
	permission_filter_report(&finding->filter, call);
	return 0;
}

/* As in .gitignore, "name/" is a directory. */
static int compile(struct finding *finding, const char *pattern)
{
	struct buffer seen cleanup_buffer = {0};
	size_t length = strlen(pattern);
	cleanup_free char *name = NULL;

	finding->only_directories = length > 1 && pattern[length - 1] == '/';
	name = strndup(pattern, length - finding->only_directories);
	if (!name || looks_append(name, &seen) < 0 || buffer_append(&seen, "", 1) < 0)
		return tool_fail_errno(finding->call, -ENOMEM, "search", NULL);
	finding->pattern_is_special = looks_special(name);
	if (pattern_compile(finding->call, "pattern", name, &finding->glob) < 0)
		return -1;
	return pattern_compile(finding->call, "pattern", (const char *)seen.data, &finding->looks);
}

static int search(struct finding *finding)
{
	struct tool_call *call = finding->call;
	const char *pattern = tool_string(call, "pattern");
	const char *below = pattern_below_root(pattern, call->session->root.path);
	cleanup_free char *path = NULL;
	struct walk_request request = {
		.root = &call->session->root,
		.directories = !finding->newest_first,
		.threads = call->session->control_socket ? MOUNT_THREADS : 0,
		.visit = visit,
		.user = finding,
		.shows = shows,
		.stopped = stopped,
		.joined = joined,
	};
	struct walk_result result = {0};
	int r;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (compile(finding, below ? below : pattern) < 0)
		return -1;
	finding->is_outside = !below && pattern_leads_out(pattern);
	request.path = path;
	finding->base = below ? 0 : strlen(path) + (*path != '\0');
	permission_filter_init(&finding->filter, call, PERMISSION_READS, path);
	/* Loads the names into the cache. */
	ahead_free(
		ahead_ask(call, path, NULL, NULL, 0, clock_now_ns() + AHEAD_MAX_S * 1000000000ull));
	r = walk(&request, &result);
	if (tool_cancelled(call))
		r = -ECANCELED;
	if (r < 0 && !finding->too_many)
		return tool_fail_errno(call, r, "search", path);
	finding->unreadable = result.unreadable;
	if (tool_check_search(call, path, finding->count > 0, &finding->away) < 0)
		return -1;
	return describe(finding);
}

static int run(struct tool_call *call, bool newest_first)
{
	struct finding finding = {
		.call = call, .newest_first = newest_first, .lock = PTHREAD_MUTEX_INITIALIZER};
	int r = search(&finding);

	for (size_t i = 0; i < finding.count; i++)
		free(finding.paths[i].path);
	free(finding.paths);
	free(finding.away);
	permission_filter_done(&finding.filter);
	glob_done(&finding.glob);
	glob_done(&finding.looks);
	return r;
}

static int execute_find(struct tool_call *call)
{
	return run(call, false);
}

static int execute_glob(struct tool_call *call)
{
	return run(call, true);
}

const struct tool tool_find = {
	.name = "find",
	.label = "Find files",
	.description = "Find files and directories whose name matches a glob, such as *.c or "
		       "src/**/test_*. "
		       "Leaves out what .gitignore names. Paths are from the root, sorted.",
	.input_schema = INPUT_SCHEMA("1000", "Without a slash it matches names in any directory"),
	.data_schema = data_schema,
	.level = TOOL_READ,
	.hints = TOOL_IS_IDEMPOTENT,
	.uses = PERMISSION_READS,
	.execute = execute_find,
};

const struct tool tool_glob = {
	.name = "glob",
	.label = "List files by pattern",
	.description =
		"List files that match a glob (** and {a,b} work), the newest first. Leaves out "
		"what .gitignore names.",
	.input_schema = INPUT_SCHEMA(
		"100", "**/*.{ts,tsx}; without a slash it matches names in any directory"),
	.data_schema = data_schema,
	.level = TOOL_READ,
	.hints = TOOL_IS_IDEMPOTENT,
	.uses = PERMISSION_READS,
	.execute = execute_glob,
};
