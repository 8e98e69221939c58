#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "ops/support/clock.h"
#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"
#include "ops/support/glob.h"
#include "tools/base/output_file.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/search/ahead.h"
#include "tools/search/found.h"
#include "tools/search/pattern.h"
#include "tools/search/search.h"
#include "tools/text/text.h"
#include "tools/search/walk.h"

enum {
	LIMIT_DEFAULT = 100,
	EXIT_NONE_FOUND = 1,
	EXIT_TROUBLE = 2,
	MOUNT_THREADS = 8, /* to overlap waits for a far end */
};

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"pattern\":{\"type\":\"string\",\"minLength\":1,"
	"\"maxLength\":10000},\"path\":{\"type\":\"string\",\"description\":\"File or directory; "
	"default: the root\"},\"include\":{\"type\":\"string\",\"description\":\"Only files whose "
	"name matches this glob: "
	"*.{ts,tsx}\"},\"ignore_case\":{\"type\":\"boolean\",\"default\":false},\"literal\":{"
	"\"type\":\"boolean\",\"default\":false,\"description\":\"The pattern is plain "
	"text\"},\"context\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":100,\"default\":0,"
	"\"description\":\"Lines around each "
	"match\"},\"multiline\":{\"type\":\"boolean\",\"default\":false,\"description\":\"May "
	"match across lines; . matches line "
	"ends\"},\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":10000,\"default\":100,"
	"\"description\":\"Most lines to "
	"show\"},\"timeout_s\":{\"type\":\"number\",\"minimum\":0.1,\"maximum\":3600,\"default\":"
	"30}},\"required\":[\"pattern\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"files\":{\"type\":\"array\",\"items\":{"
	"\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
	"\"lines\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
	"\"line\":{\"type\":\"integer\"},\"text\":{\"type\":\"string\"},"
	"\"context\":{\"type\":\"boolean\"}},\"required\":[\"line\",\"text\"]}}},"
	"\"required\":[\"path\",\"lines\"]}},\"matches\":{\"type\":\"integer\"},"
	"\"matching_files\":{\"type\":\"integer\"},\"files_searched\":{\"type\":\"integer\"},"
	"\"truncated\":{\"type\":\"boolean\"},\"timed_out\":{\"type\":\"boolean\"},"
	"\"notice\":{\"type\":\"string\"},\"left_out\":{\"type\":\"integer\"}},\"required\":["
	"\"files\",\"matches\",\"truncated\"]}";

struct grep {
	struct tool_call *call;
	struct permission_filter filter;
	struct search_pattern *pattern;
	struct ahead *ahead;
	struct glob include;
	bool has_include;
	bool excludes; /* "!GLOB", as rg has it */
	unsigned context;
	uint64_t limit;
	uint64_t deadline_ns;
	struct searcher *searchers[WALK_THREADS_MAX];

	atomic_ullong files_searched;
	atomic_bool timed_out;
	pthread_mutex_t lock;
	struct found **files; /* guarded by lock, as are all fields below */
	size_t file_count, file_capacity;
	uint64_t kept;    /* matches in `files` */
	uint64_t matches; /* in all files */
	uint64_t matching_files;
	uint64_t streamed; /* matches passed to the sink */
	uint64_t too_hard, too_large, unreadable;
	int read_error; /* of the last file that could not be read: -errno */
	char *away;     /* NULL, or what is to be said of a link that is not there */
};

static bool stopped(void *user)
{
	struct grep *grep = user;

	if (tool_cancelled(grep->call))
		return true;
	if (clock_now_ns() < grep->deadline_ns)
		return false;
	atomic_store(&grep->timed_out, true);
	return true;
}

/* ---- Results --------------------------------------------------------------------------- */

struct file_search {
	struct grep *grep;
	const char *path;
	int fd;              /* of the file; with `name`: of its directory */
	const char *name;    /* of the file in that directory; NULL: `fd` is the file */
	struct found *found; /* NULL until the first match */
};

static int take_line(void *user, const struct search_line *line)
{
	struct file_search *search = user;
	struct stat status;

	if (!search->found) {
		bool is_known = fstatat(search->fd, search->name ? search->name : "", &status,
					AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0;

		search->found = found_new(search->path, is_known ? &status.st_mtim : NULL);
	}
	return search->found ? found_add(search->found, line, search->grep->limit) : -ENOMEM;
}

static int newest_first(const void *a, const void *b)
{
	const struct found *left = *(struct found *const *)a, *right = *(struct found *const *)b;

	return found_is_newer(left, right) ? -1 : 1;
}

static uint64_t kept_matches(const struct grep *grep, const struct found *found)
{
	return found->matches < grep->limit ? found->matches : grep->limit;
}

/* Drops the files with the oldest mtime as long as the others still reach the limit. */
static void drop_oldest(struct grep *grep)
{
	for (;;) {
		size_t oldest = 0;
		uint64_t count;

		if (!grep->file_count || grep->kept <= grep->limit)
			return;
		for (size_t i = 1; i < grep->file_count; i++)
			if (found_is_newer(grep->files[oldest], grep->files[i]))
				oldest = i;
		count = kept_matches(grep, grep->files[oldest]);
		if (grep->kept - count < grep->limit)
			return;
		grep->kept -= count;
		found_free(grep->files[oldest]);
		grep->files[oldest] = grep->files[--grep->file_count];
	}
}

static int keep(struct grep *grep, struct found *found)
{
	if (grep->file_count == grep->file_capacity) {
		size_t capacity = grep->file_capacity ? grep->file_capacity * 2 : 64;
		struct found **grown = reallocarray(grep->files, capacity, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		grep->files = grown;
		grep->file_capacity = capacity;
	}
	grep->files[grep->file_count++] = found;
	grep->kept += kept_matches(grep, found);
	drop_oldest(grep);
	return 0;
}

/* Passes results to the sink as they are found; the answer lists the newest files first. */
static void stream(struct grep *grep, const struct found *found)
{
	struct buffer text cleanup_buffer = {0};

	if (!grep->call->sink.update || grep->streamed >= grep->limit)
		return;
	if (grep->streamed && grep->context)
		buffer_append_string(&text, "--\n");
	if (found_print(found, grep->limit - grep->streamed, grep->context > 0, &text) == 0)
		tool_update(grep->call, (const char *)text.data, text.size);
	grep->streamed += kept_matches(grep, found);
}

static bool file_stopped(void *user)
{
	return stopped(((struct file_search *)user)->grep);
}

/* ---- Searching ---------------------------------------------------------------------------- */

/* Adds the results of a file after it was searched. */
static int take_found(struct grep *grep, struct file_search *search, unsigned flags, int r)
{
	atomic_fetch_add(&grep->files_searched, 1);
	if (!search->found && !flags && r == 0)
		return 0;
	pthread_mutex_lock(&grep->lock);
	grep->too_hard += !!(flags & SEARCH_TOO_HARD);
	grep->too_large += !!(flags & SEARCH_TOO_LARGE);
	if (r < 0 && r != -ENOMEM && r != -EINTR) {
		grep->unreadable++;
		grep->read_error = r;
		r = 0;
	}
	if (search->found && (r == 0 || r == -EINTR)) {
		grep->matches += search->found->matches;
		grep->matching_files++;
		stream(grep, search->found);
		if (keep(grep, search->found) < 0)
			r = -ENOMEM;
		else
			search->found = NULL;
	}
	pthread_mutex_unlock(&grep->lock);
	found_free(search->found);
	return r;
}

static int prepare_searcher(struct grep *grep, unsigned worker)
{
	return grep->searchers[worker] ? 0 : searcher_new(grep->pattern, &grep->searchers[worker]);
}

static int search_fd(struct grep *grep, unsigned worker, const char *path, int fd, bool *ret_binary)
{
	struct file_search search = {.grep = grep, .path = path, .fd = fd};
	const struct search_request request = {.context = grep->context,
		.line = take_line,
		.user = &search,
		.stopped = file_stopped};
	unsigned flags = 0;
	int r = prepare_searcher(grep, worker);

	if (r < 0)
		return r;
	r = searcher_run(grep->searchers[worker], fd, &request, &flags);
	*ret_binary = flags & SEARCH_BINARY;
	return take_found(grep, &search, flags, r);
}

/* A file that was looked through at the workspace, and that we may read. */
static int search_ahead(struct grep *grep, unsigned worker, const struct walk_entry *entry,
	const struct ahead_file *ahead)
{
	struct file_search search = {
		.grep = grep, .path = entry->path, .fd = entry->directory, .name = entry->name};
	const struct search_request request = {.context = grep->context,
		.line = take_line,
		.user = &search,
		.stopped = file_stopped};
	unsigned flags = 0;
	int r = ahead->lines ? prepare_searcher(grep, worker) : 0;

	if (r < 0)
		return r;
	if (ahead->lines)
		r = searcher_run_excerpt(
			grep->searchers[worker], ahead->lines, ahead->lines_size, &request, &flags);
	return take_found(grep, &search, flags, r);
}

static bool may_read(const struct walk_entry *entry)
{
	return faccessat(entry->directory, entry->name, R_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) ==
	       0;
}

static bool shows(void *user, const char *path)
{
	return permission_filter_shows(&((struct grep *)user)->filter, path);
}

static void joined(void *user)
{
	tool_join_thread(((struct grep *)user)->call);
}

static int visit(void *user, unsigned worker, const struct walk_entry *entry)
{
	struct grep *grep = user;
	const struct ahead_file *ahead;
	cleanup_fd int fd = -1;
	bool binary;

	if (entry->type != DT_REG)
		return 0;
	if (grep->has_include && glob_matches(&grep->include, entry->path) == grep->excludes)
		return 0;
	if (stopped(grep))
		return -EINTR;
	ahead = ahead_find(grep->ahead, entry);
	if (ahead && (!ahead->lines || may_read(entry)))
		return search_ahead(grep, worker, entry, ahead);
	fd = openat(entry->directory, entry->name,
		O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		pthread_mutex_lock(&grep->lock);
		grep->unreadable += errno != ENOENT;
		pthread_mutex_unlock(&grep->lock);
		return errno == EMFILE || errno == ENFILE ? -errno : 0;
	}
	return search_fd(grep, worker, entry->path, fd, &binary);
}

/* Asks the workspace, for at most half of the time; without an answer, searches all files here. */
static void look_ahead(struct grep *grep, const char *path)
{
	const struct literals *texts = search_pattern_literals(grep->pattern);
	const char *include =
		grep->has_include && !grep->excludes ? tool_string(grep->call, "include") : NULL;
	uint64_t now_ns = clock_now_ns();

	if (texts && now_ns < grep->deadline_ns)
		grep->ahead = ahead_ask(grep->call, path, texts, include, grep->context,
			now_ns + (grep->deadline_ns - now_ns) / 2);
}

static int search_tree(struct grep *grep, const char *path)
{
	const struct walk_request request = {
		.root = &grep->call->session->root,
		.path = path,
		.threads = grep->call->session->control_socket ? MOUNT_THREADS : 0,
		.visit = visit,
		.user = grep,
		.shows = shows,
		.stopped = stopped,
		.joined = joined,
	};
	struct walk_result result = {0};
	int r;

	permission_filter_init(&grep->filter, grep->call, PERMISSION_READS, path);
	look_ahead(grep, path);
	r = walk(&request, &result);
	grep->unreadable += result.unreadable;
	if (tool_cancelled(grep->call))
		return tool_fail_errno(grep->call, -ECANCELED, "search", path);
	if (r < 0 && r != -EINTR)
		return tool_fail_errno(grep->call, r, "search", path);
	return 0;
}

static int search_one(struct grep *grep, const char *path, int fd)
{
	bool binary = false;
	int r = search_fd(grep, 0, path, fd, &binary);

	if (tool_cancelled(grep->call))
		r = -ECANCELED;
	if (r == 0)
		r = grep->read_error;
	if (r < 0 && r != -EINTR)
		return tool_fail_errno(grep->call, r, "search", path);
	if (binary && !grep->matches)
		return tool_fail(grep->call, TOOL_BINARY_FILE, NULL,
			"\"%s\" is a binary file and was not searched.", path);
	return 0;
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* Adds whole files while they fit, then as many matches of the next file as fit. */
static uint64_t add_files(struct grep *grep, cJSON *files)
{
	uint64_t shown = 0;
	size_t lines = 0;

	for (size_t i = 0; i < grep->file_count && shown < grep->limit; i++) {
		const struct found *found = grep->files[i];
		uint64_t limit = kept_matches(grep, found);
		struct buffer text cleanup_buffer = {0};

		if (limit > grep->limit - shown)
			limit = grep->limit - shown;
		for (;; limit /= 2) {
			text.size = 0;
			if (i && grep->context)
				buffer_append_string(&text, "--\n");
			if (limit == 0 || found_print(found, limit, grep->context > 0, &text) < 0)
				return shown;
			if (grep->call->text.size + text.size <= TOOL_OUTPUT_MAX_BYTES - 400 &&
				lines + limit <= TOOL_OUTPUT_MAX_LINES)
				break;
		}
		if (buffer_append(&grep->call->text, text.data, text.size) < 0 ||
			found_add_json(found, limit, files) < 0)
			return shown;
		shown += limit;
		lines += limit * (1 + 2 * (size_t)grep->context);
	}
	return shown;
}

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static void add_notice(struct grep *grep, uint64_t shown)
{
	struct tool_call *call = grep->call;
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *notice = NULL;

	if (shown < grep->matches)
		buffer_printf(&text,
			"Showing %llu of %llu matching lines in %llu file%s, newest files first. "
			"Use a "
			"narrower pattern, path or include, or a higher limit. ",
			(unsigned long long)shown, (unsigned long long)grep->matches,
			(unsigned long long)grep->matching_files, plural(grep->matching_files));
	if (grep->timed_out)
		buffer_printf(&text,
			"The time of %g s ran out, so not everything was searched: narrow the path "
			"or "
			"include, or give more timeout_s. ",
			tool_number(call, "timeout_s", 0));
	if (grep->unreadable)
		buffer_printf(&text, "%llu %s could not be read. ",
			(unsigned long long)grep->unreadable,
			grep->unreadable == 1 ? "file or directory" : "files or directories");
	if (grep->too_hard)
		buffer_printf(&text,
			"The pattern was too costly for lines of %llu file%s, which may match: "
			"make it simpler. ",
			(unsigned long long)grep->too_hard, plural(grep->too_hard));
	if (grep->too_large)
		buffer_printf(&text, "%llu file%s too large to search. ",
			(unsigned long long)grep->too_large,
			grep->too_large == 1 ? " was" : "s were");
	if (!grep->matches && !tool_flag(call, "multiline") &&
		pattern_has_line_end(tool_string(call, "pattern"), tool_flag(call, "literal")))
		buffer_append_string(&text, "Set multiline to match across line ends. ");
	if (grep->away)
		buffer_printf(&text, "%s ", grep->away);
	if (!text.size)
		return;
	text.size--;
	notice = buffer_steal_string(&text);
	if (!notice)
		return;
	cJSON_AddStringToObject(call->data, "notice", notice);
	tool_text(call, "%s[%s]", call->text.size ? "\n" : "", notice);
}

static int describe(struct grep *grep)
{
	struct tool_call *call = grep->call;
	cJSON *files = cJSON_AddArrayToObject(call->data, "files");
	bool is_partial = grep->timed_out || grep->away || grep->too_hard || grep->too_large;
	/* A file that cannot be read matters if nothing was found in the others. */
	bool is_unknown = is_partial || grep->unreadable;
	uint64_t shown;

	if (grep->file_count)
		qsort(grep->files, grep->file_count, sizeof(*grep->files), newest_first);
	shown = add_files(grep, files);
	cJSON_AddNumberToObject(call->data, "matches", (double)grep->matches);
	cJSON_AddNumberToObject(call->data, "matching_files", (double)grep->matching_files);
	cJSON_AddNumberToObject(call->data, "files_searched", (double)grep->files_searched);
	cJSON_AddBoolToObject(call->data, "truncated", shown < grep->matches || is_partial);
	cJSON_AddBoolToObject(call->data, "timed_out", grep->timed_out);
	if (!grep->matches && tool_text(call, is_unknown ? "[No matches in what was searched.]\n"
							 : "[No matches.]\n") < 0)
		return -1;
	add_notice(grep, shown);
	permission_filter_report(&grep->filter, call);
	call->exit_code = is_partial || (is_unknown && !grep->matches) ? EXIT_TROUBLE
			  : grep->matches                              ? 0
								       : EXIT_NONE_FOUND;
	return 0;
}

static int compile(struct grep *grep)
{
	struct tool_call *call = grep->call;
	const struct search_options options = {
		.pattern = tool_string(call, "pattern"),
		.literal = tool_flag(call, "literal"),
		.ignore_case = tool_flag(call, "ignore_case"),
		.multiline = tool_flag(call, "multiline"),
	};
	const char *include = tool_string(call, "include"), *below;
	char problem[256];
	size_t at = 0;
	int r = search_compile(&options, &grep->pattern, problem, sizeof(problem), &at);

	if (r == -EINVAL)
		return tool_fail(call, TOOL_INVALID_ARGUMENT,
			"Correct the pattern, or set literal to search for it as plain text.",
			"The pattern is not valid at character %zu: %s.", at + 1, problem);
	if (r < 0)
		return tool_fail_errno(call, r, "compile the pattern", NULL);
	if (!include)
		return 0;
	grep->excludes = include[0] == '!' && include[1];
	include += grep->excludes;
	below = pattern_below_root(include, call->session->root.path);
	grep->has_include = true;
	return pattern_compile(call, "include", below ? below : include, &grep->include);
}

static int search(struct grep *grep)
{
	struct tool_call *call = grep->call;
	cleanup_free char *path = NULL;
	struct stat status;
	cleanup_fd int fd = output_file_or_path_open(call, "search", &path, &status);
	int r;

	if (fd < 0)
		return -1;
	if (S_ISDIR(status.st_mode))
		r = search_tree(grep, path);
	else if (S_ISREG(status.st_mode))
		r = search_one(grep, path, fd);
	else
		r = tool_fail(call, TOOL_NOT_A_FILE, NULL,
			"\"%s\" is neither a file nor a directory.", path);
	/* "No matches" would not be true of what could not be asked. */
	if (r < 0 || tool_check_search(call, path, grep->matches > 0, &grep->away) < 0)
		return -1;
	return describe(grep);
}

static int execute(struct tool_call *call)
{
	struct grep grep = {
		.call = call,
		.context = (unsigned)tool_integer(call, "context", 0),
		.limit = (uint64_t)tool_integer(call, "limit", LIMIT_DEFAULT),
		.deadline_ns =
			clock_now_ns() + (uint64_t)(tool_number(call, "timeout_s", 30) * 1e9),
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	int r;

	call->exit_code = EXIT_TROUBLE;
	r = compile(&grep);
	if (r == 0)
		r = search(&grep);
	for (size_t i = 0; i < grep.file_count; i++)
		found_free(grep.files[i]);
	free(grep.files);
	for (size_t i = 0; i < WALK_THREADS_MAX; i++)
		searcher_free(grep.searchers[i]);
	search_pattern_free(grep.pattern);
	ahead_free(grep.ahead);
	free(grep.away);
	permission_filter_done(&grep.filter);
	glob_done(&grep.include);
	return r;
}

const struct tool tool_grep = {
	.name = "grep",
	.label = "Search files",
	.description =
		"Search the content of files for a PCRE2 pattern. Leaves out what .gitignore "
		"names, and binary files. Shows path:line: text, newest files first.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_READ,
	.hints = TOOL_IS_IDEMPOTENT,
	.uses = PERMISSION_READS,
	.execute = execute,
};
