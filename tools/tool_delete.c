#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/path.h"
#include "tools/permission.h"
#include "tools/registry.h"

enum { DEPTH_MAX = 400 };

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{"
	"\"path\":{\"type\":\"string\",\"minLength\":1,\"description\":\"File, symbolic link or "
	"directory\"},"
	"\"recursive\":{\"type\":\"boolean\",\"default\":false,\"description\":\"Also delete "
	"everything "
	"in a directory\"}},\"required\":[\"path\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
	"\"deleted\":{\"type\":\"integer\",\"description\":\"entries that are gone\"},"
	"\"entries\":{\"type\":\"integer\"}},\"required\":[\"path\"]}";

struct removal {
	struct tool_call *call;
	uint64_t deleted;
};

/* Takes ownership of `fd`. */
static DIR *open_stream(int fd)
{
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	if (!stream && fd >= 0)
		close(fd);
	return stream;
}

static int remove_name(struct removal *removal, int directory, const char *name, int depth);

static int remove_content(struct removal *removal, int directory, const char *name, int depth)
{
	cleanup_dir DIR *stream = open_stream(
		openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	struct dirent *entry;
	int r = 0;

	if (!stream)
		return -errno;
	if (depth > DEPTH_MAX)
		return -ENAMETOOLONG;
	while (r == 0 && (errno = 0, entry = readdir(stream))) {
		if (path_is_name(entry->d_name))
			r = remove_name(removal, dirfd(stream), entry->d_name, depth + 1);
	}
	return r < 0 ? r : -errno;
}

static int remove_name(struct removal *removal, int directory, const char *name, int depth)
{
	int r;

	if (tool_cancelled(removal->call))
		return -ECANCELED;
	r = unlinkat(directory, name, 0) == 0 ? 0 : -errno;
	if (r == -EISDIR || r == -EPERM) {
		struct stat status;

		if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (!S_ISDIR(status.st_mode))
			return r;
		r = remove_content(removal, directory, name, depth);
		if (r == 0)
			r = unlinkat(directory, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
	}
	/* Gone already is as good. */
	if (r == -ENOENT && depth > 0)
		return 0;
	removal->deleted += r == 0;
	return r;
}

static uint64_t count_entries(int directory, const char *name)
{
	cleanup_dir DIR *stream = open_stream(
		openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	struct dirent *entry;
	uint64_t count = 0;

	while (stream && (entry = readdir(stream)))
		count += path_is_name(entry->d_name);
	return count;
}

static int fail_not_empty(struct tool_call *call, const char *path, int directory, const char *name)
{
	uint64_t count = count_entries(directory, name);

	cJSON_AddStringToObject(call->data, "path", path);
	cJSON_AddNumberToObject(call->data, "entries", (double)count);
	return tool_fail(call, TOOL_INVALID_ARGUMENT,
		"Set recursive to delete them too, if that is really wanted.",
		"The directory \"%s\" is not empty: it has %llu entr%s.", path,
		(unsigned long long)count, count == 1 ? "y" : "ies");
}

static int delete_one(struct tool_call *call, const char *path, int directory, const char *name)
{
	int r = unlinkat(directory, name, 0) == 0 ? 0 : -errno;
	struct stat status;

	if ((r == -EISDIR || r == -EPERM) &&
		fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISDIR(status.st_mode))
		r = unlinkat(directory, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
	if (r == -ENOTEMPTY || r == -EEXIST)
		return fail_not_empty(call, path, directory, name);
	return r < 0 ? tool_fail_errno(call, r, "delete", path) : 0;
}

static int execute(struct tool_call *call)
{
	struct removal removal = {.call = call};
	cleanup_free char *path = NULL;
	cleanup_fd int directory = -1;
	char name[256];
	int r;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	directory = files_open_parent(&call->session->root, path, false, name);
	if (directory < 0)
		return tool_fail_errno(call, directory, "delete", path);
	if (!tool_flag(call, "recursive")) {
		if (delete_one(call, path, directory, name) < 0)
			return -1;
		removal.deleted = 1;
	} else {
		r = remove_name(&removal, directory, name, 0);
		cJSON_AddNumberToObject(call->data, "deleted", (double)removal.deleted);
		if (r < 0)
			return tool_fail_errno(call, r, "delete all of", path);
		cJSON_DeleteItemFromObjectCaseSensitive(call->data, "deleted");
	}
	cJSON_AddStringToObject(call->data, "path", path);
	cJSON_AddNumberToObject(call->data, "deleted", (double)removal.deleted);
	return tool_text(call, "Deleted %s (%llu entr%s).", path,
		(unsigned long long)removal.deleted, removal.deleted == 1 ? "y" : "ies");
}

static int validate(struct tool_call *call)
{
	cleanup_free char *path = NULL;
	struct stat status;
	int r;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (!*path)
		return tool_fail(call, TOOL_INVALID_ARGUMENT,
			"Name what in it should go; ls shows what there is.",
			"The root directory itself cannot be deleted.");
	r = files_lstat(&call->session->root, path, &status);
	return r < 0 ? tool_fail_errno(call, r, "delete", path) : 0;
}

static int permission(struct tool_call *call)
{
	bool recursive = tool_flag(call, "recursive");
	cleanup_free char *path = NULL, *sentence = NULL;

	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (asprintf(&sentence, "Delete%s: %s", recursive ? " with everything in it" : "", path) <
		0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	return permission_ask_path(
		call, recursive ? TOOL_DANGEROUS : TOOL_MODIFY, path, false, sentence);
}

const struct tool tool_delete = {
	.name = "delete",
	.label = "Delete",
	.description =
		"Delete a file, a symbolic link or an empty directory; with recursive also a "
		"directory with everything in it.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_DANGEROUS,
	.hints = TOOL_IS_DESTRUCTIVE,
	.validate = validate,
	.permission = permission,
	.execute = execute,
};
