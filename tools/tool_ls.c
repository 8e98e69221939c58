#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"

enum { LIMIT_DEFAULT = 500, ENTRIES_MAX = 1000000 };

static const char input_schema[] = "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":"
				   "\"string\",\"description\":\"Default: the "
				   "root\"},\"limit\":{\"type\":\"integer\",\"minimum\":1,"
				   "\"default\":500}},\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
	"\"entries\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
	"\"name\":{\"type\":\"string\"},\"type\":{\"type\":\"string\"},"
	"\"size_bytes\":{\"type\":\"integer\"},\"mtime\":{\"type\":\"string\"}},"
	"\"required\":[\"name\",\"type\"]}},\"total\":{\"type\":\"integer\"},"
	"\"truncated\":{\"type\":\"boolean\"},\"notice\":{\"type\":\"string\"},"
	"\"left_out\":{\"type\":\"integer\"}},"
	"\"required\":[\"path\",\"entries\",\"total\",\"truncated\"]}";

struct names {
	char **list;
	size_t count;
	size_t capacity;
};

static void names_done(struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->list[i]);
	free(names->list);
}

static int names_add(struct names *names, const char *name)
{
	if (names->count == names->capacity) {
		size_t capacity = names->capacity ? names->capacity * 2 : 64;
		char **list = realloc(names->list, capacity * sizeof(*list));

		if (!list)
			return -ENOMEM;
		names->list = list;
		names->capacity = capacity;
	}
	names->list[names->count] = strdup(name);
	return names->list[names->count++] ? 0 : -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
	const char *left = *(char *const *)a, *right = *(char *const *)b;
	int order = strcasecmp(left, right);

	return order ? order : strcmp(left, right);
}

static int read_names(struct tool_call *call, const char *path, DIR *directory,
	struct permission_filter *filter, struct names *names)
{
	struct dirent *entry;

	while (errno = 0, (entry = readdir(directory))) {
		cleanup_free char *whole = NULL;

		if (tool_cancelled(call))
			return -ECANCELED;
		if (names->count >= ENTRIES_MAX)
			return -EFBIG;
		if (!path_is_name(entry->d_name))
			continue;
		whole = path_join(path, entry->d_name);
		if (!whole)
			return -ENOMEM;
		if (permission_filter_shows(filter, whole) && names_add(names, entry->d_name) < 0)
			return -ENOMEM;
	}
	return -errno;
}

static const char *type_word(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "pipe";
	case S_IFSOCK:
		return "socket";
	default:
		return "device";
	}
}

static int show_entry(struct tool_call *call, int directory, const char *name, cJSON *entries)
{
	cJSON *item = cJSON_CreateObject();
	struct buffer clean cleanup_buffer = {0}, seen cleanup_buffer = {0};
	struct stat status;
	struct tm time;
	char text[32];
	bool is_directory;

	if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
		cJSON_Delete(item);
		return errno == ENOENT ? 0 : -errno;
	}
	is_directory = S_ISDIR(status.st_mode);
	if (S_ISLNK(status.st_mode)) {
		struct stat target;

		is_directory = fstatat(directory, name, &target, 0) == 0 && S_ISDIR(target.st_mode);
	}
	if (utf8_append_clean(&clean, name, strlen(name)) < 0 || buffer_append(&clean, "", 1) < 0 ||
		visible_append(&seen, name, strlen(name), 0) < 0 ||
		buffer_append(&seen, "", 1) < 0 ||
		tool_text(call, "%s%s\n", (const char *)seen.data, is_directory ? "/" : "") < 0) {
		cJSON_Delete(item);
		return -ENOMEM;
	}
	cJSON_AddStringToObject(item, "name", (const char *)clean.data);
	cJSON_AddStringToObject(item, "type", type_word(status.st_mode));
	if (S_ISREG(status.st_mode))
		cJSON_AddNumberToObject(item, "size_bytes", (double)status.st_size);
	if (gmtime_r(&status.st_mtime, &time) &&
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &time))
		cJSON_AddStringToObject(item, "mtime", text);
	cJSON_AddItemToArray(entries, item);
	return 0;
}

static void add_notice(struct tool_call *call, size_t shown, size_t total)
{
	char notice[160];

	snprintf(notice, sizeof(notice),
		"[Showing %zu of %zu entries. Use a higher limit, or find with a pattern, to see "
		"the "
		"others.]",
		shown, total);
	cJSON_AddStringToObject(call->data, "notice", notice);
	tool_text(call, "\n%s", notice);
}

/* A root stays open when it is removed, and is then empty.  On a mount, where it was removed at the
 * workspace, only its path tells. */
static bool is_removed(const struct files_root *root, const char *path, int directory)
{
	struct stat status;

	return (fstat(directory, &status) == 0 && status.st_nlink == 0) ||
	       (!*path && stat(root->path, &status) < 0 && errno == ENOENT);
}

static int list(struct tool_call *call, const char *path, DIR *directory)
{
	struct permission_filter filter cleanup_filter = {0};
	struct names names cleanup_with(names_done) = {0};
	cJSON *entries = cJSON_AddArrayToObject(call->data, "entries");
	size_t limit = (size_t)tool_integer(call, "limit", LIMIT_DEFAULT), shown = 0;
	int r;

	permission_filter_init(&filter, call, PERMISSION_READS, path);
	r = read_names(call, path, directory, &filter, &names);
	if (r < 0)
		return tool_fail_errno(call, r, "list", path);
	if (names.count)
		qsort(names.list, names.count, sizeof(*names.list), by_name);
	for (; shown < names.count && shown < limit &&
		call->text.size < TOOL_OUTPUT_MAX_BYTES - 300;
		shown++) {
		r = show_entry(call, dirfd(directory), names.list[shown], entries);
		if (r < 0)
			return tool_fail_errno(call, r, "list", path);
	}
	cJSON_AddNumberToObject(call->data, "total", (double)names.count);
	cJSON_AddBoolToObject(call->data, "truncated", shown < names.count);
	if (shown < names.count)
		add_notice(call, shown, names.count);
	if (!names.count && is_removed(&call->session->root, path, dirfd(directory)))
		return tool_fail_errno(call, -ENOENT, "list", path);
	if (!names.count && !filter.left_out && tool_text(call, "[The directory is empty.]") < 0)
		return -1;
	permission_filter_report(&filter, call);
	return 0;
}

static int execute(struct tool_call *call)
{
	cleanup_free char *path = NULL;
	cleanup_dir DIR *directory = NULL;
	int fd;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	fd = files_open(&call->session->root, path, O_RDONLY | O_DIRECTORY, 0);
	if (fd == -ENOTDIR)
		return tool_fail(call, TOOL_NOT_A_DIRECTORY, "Use read for a file.",
			"\"%s\" is not a directory.", path);
	if (fd < 0)
		return tool_fail_errno(call, fd, "list", path);
	directory = fdopendir(fd);
	if (!directory) {
		close(fd);
		return tool_fail_errno(call, -ENOMEM, "list", path);
	}
	cJSON_AddStringToObject(call->data, "path", *path ? path : ".");
	return list(call, path, directory);
}

const struct tool tool_ls = {
	.name = "ls",
	.label = "List directory",
	.description =
		"List a directory, sorted by name, dotfiles included, with '/' after directories.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_READ,
	.hints = TOOL_IS_IDEMPOTENT,
	.uses = PERMISSION_READS,
	.execute = execute,
};
