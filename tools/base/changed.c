#include "tools/base/changed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"
#include "tools/base/tool.h"

enum { FILES_MAX = 500, DIRECTORIES_MAX = 50, TOLD_MAX = 20 };

struct gathering {
	const struct tool_session *session;
	cJSON *list;
	int directories; /* read so far */
	bool truncated;
};

/* The path relative to the root; NULL: it is outside. */
static const char *below_root(const struct tool_session *session, const char *path)
{
	const char *root = session->workspace_path;

	if (!path_is_within(path, root))
		return NULL;
	path += strlen(root);
	return path + (*path == '/');
}

static void add_path(struct gathering *g, const char *path)
{
	struct buffer clean cleanup_buffer = {0};

	if (cJSON_GetArraySize(g->list) >= FILES_MAX ||
		utf8_append_clean(&clean, path, strlen(path)) < 0 ||
		buffer_append(&clean, "", 1) < 0)
		g->truncated = true;
	else
		cJSON_AddItemToArray(g->list, cJSON_CreateString((const char *)clean.data));
}

/* Adds the files below a directory, without those in ".git".  Returns how many it has added. */
static int add_files(struct gathering *g, const char *path)
{
	int fd = files_open(
		&g->session->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0);
	cleanup_dir DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
	int added = 0;
	const struct dirent *entry;

	if (fd >= 0 && !directory)
		close(fd);
	while (directory && (entry = readdir(directory))) {
		cleanup_free char *whole = path_join(path, entry->d_name);

		if (!path_is_name(entry->d_name) || !whole)
			continue;
		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".git") != 0 &&
			g->directories++ < DIRECTORIES_MAX && add_files(g, whole) > 0) {
			added++;
			continue;
		}
		add_path(g, whole);
		added++;
	}
	return added;
}

/* Whether the directory was just created: a later chmod would leave mtime older than ctime. */
static bool is_new_directory(const struct stat *status)
{
	return S_ISDIR(status->st_mode) && status->st_ctim.tv_sec == status->st_mtim.tv_sec &&
	       status->st_ctim.tv_nsec == status->st_mtim.tv_nsec;
}

/* Whether the next path of the sorted list is below `path`. */
static bool next_is_below(const cJSON *item, const char *path)
{
	const char *next = cJSON_GetStringValue(item->next);

	return next && strcmp(next, path) != 0 && path_is_within(next, path);
}

/* Sorts "a/b" before "a.c", so that a directory's entries follow it directly. */
static int by_path(const void *a, const void *b)
{
	const char *one = *(const char *const *)a, *two = *(const char *const *)b;

	while (*one && *one == *two) {
		one++;
		two++;
	}
	return (*one == '/' ? 1 : (unsigned char)*one) - (*two == '/' ? 1 : (unsigned char)*two);
}

static cJSON *sorted(const cJSON *changed)
{
	size_t count = (size_t)cJSON_GetArraySize(changed), used = 0;
	cleanup_free const char **texts = calloc(count + 1, sizeof(*texts));
	const cJSON *item;

	if (!texts)
		return NULL;
	cJSON_ArrayForEach(item, changed)
		if (cJSON_IsString(item))
			texts[used++] = item->valuestring;
	qsort(texts, used, sizeof(*texts), by_path);
	return cJSON_CreateStringArray(texts, (int)used);
}

/* Adds a path.  If it no longer exists, returns it: the caller skips the paths below it.  NULL: it
 * exists. */
static const char *add_one(struct gathering *g, const cJSON *item)
{
	const char *path = item->valuestring, *below = below_root(g->session, path);
	bool is_parent = next_is_below(item, path);
	cleanup_free char *whole = NULL;
	struct stat status;
	int r;

	if (!below) {
		whole = path_join(g->session->mount_point, path);
		if (!is_parent)
			add_path(g, whole ? whole : path);
		return NULL;
	}
	r = files_lstat(&g->session->root, below, &status);
	if (r == 0 && (is_parent || (is_new_directory(&status) && add_files(g, below) > 0)))
		return NULL;
	add_path(g, below);
	return r == -ENOENT ? path : NULL;
}

void changed_add(struct tool_call *call, const cJSON *changed, bool truncated)
{
	struct gathering g = {.session = call->session, .truncated = truncated};
	const char *gone = NULL;
	cJSON *in_order, *item;

	if (!changed || !call->session->workspace_path)
		return;
	g.list = cJSON_AddArrayToObject(call->data, "changed");
	in_order = sorted(changed);
	cJSON_ArrayForEach(item, in_order) {
		if (!gone || !path_is_within(item->valuestring, gone))
			gone = add_one(&g, item);
	}
	cJSON_Delete(in_order);
	cJSON_AddBoolToObject(call->data, "changed_truncated", g.truncated);
}

int changed_tell(struct tool_call *call)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(call->data, "changed"), *item;
	bool more = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(call->data, "changed_truncated"));
	int count = cJSON_GetArraySize(list), told = 0;
	struct buffer names cleanup_buffer = {0};

	if (!count)
		return 0;
	cJSON_ArrayForEach(item, list) {
		if (told == TOLD_MAX)
			break;
		if (buffer_printf(&names, told++ ? ", " : "[Changed: ") < 0 ||
			visible_append(&names, item->valuestring, strlen(item->valuestring), 0) < 0)
			break;
	}
	if (count > told)
		buffer_printf(&names, ", and %d more", count - told);
	else if (more)
		buffer_printf(&names, ", and more");
	return tool_text(call, "%s%.*s.]\n",
		call->text.size && call->text.data[call->text.size - 1] != '\n' ? "\n" : "",
		(int)names.size, names.data ? (const char *)names.data : "");
}
