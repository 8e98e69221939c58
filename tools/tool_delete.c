#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/path.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"

enum { DEPTH_MAX = 400 };

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"minLength\":1},"
	"\"recursive\":{\"type\":\"boolean\",\"default\":false}},\"required\":[\"path\"],"
	"\"additionalProperties\":false}";

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
	/* Another process has removed it: that is fine. */
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

/* ---- The content of a directory to delete -----------------------------------------------------
 */

struct inspection {
	struct tool_call *call;
	struct permission_filter filter;
	struct buffer path; /* of the present entry, without NUL */
	uint64_t denied;    /* entries that rules deny */
	uint64_t asked;     /* entries about which rules ask */
	char *guarded;      /* the first guarded entry ... */
	const char *reason; /* ... and why it is guarded */
};

static void inspection_done(struct inspection *inspection)
{
	permission_filter_done(&inspection->filter);
	buffer_done(&inspection->path);
	free(inspection->guarded);
}

static int inspect_content(
	struct inspection *inspection, int directory, const char *name, int depth);

static int judge_entry(struct inspection *inspection, const char *path)
{
	enum permission_action verdict =
		permission_filter_verdict(&inspection->filter, TOOL_MODIFY, path);
	const char *reason;

	inspection->denied += verdict == PERMISSION_DENY;
	inspection->asked += verdict == PERMISSION_ASK;
	/* The message must not show a name that rules hide. */
	if (verdict != PERMISSION_ALLOW || inspection->guarded)
		return 0;
	reason = guard_name(path);
	if (!reason && strcmp(path_name(path), "HEAD") == 0)
		reason = guard_path(&inspection->call->session->root, path);
	if (!reason || permission_filter_verdict(&inspection->filter, TOOL_DANGEROUS, path) ==
			       PERMISSION_ALLOW)
		return 0;
	inspection->reason = reason;
	inspection->guarded = strdup(path);
	return inspection->guarded ? 0 : -ENOMEM;
}

static int inspect_entry(
	struct inspection *inspection, int directory, const struct dirent *entry, int depth)
{
	struct buffer *path = &inspection->path;
	size_t size = path->size;
	struct stat status;
	int r;

	if (tool_cancelled(inspection->call))
		return -ECANCELED;
	if (buffer_append_string(path, "/") < 0 ||
		buffer_append(path, entry->d_name, strlen(entry->d_name) + 1) < 0)
		return -ENOMEM;
	path->size--;
	r = judge_entry(inspection, (const char *)path->data);
	if (r == 0 && entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) {
		path->size = size;
		return 0;
	}
	if (r == 0 && fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISDIR(status.st_mode))
		r = inspect_content(inspection, directory, entry->d_name, depth + 1);
	path->size = size;
	return r;
}

static int inspect_content(
	struct inspection *inspection, int directory, const char *name, int depth)
{
	cleanup_dir DIR *stream = open_stream(
		openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	struct dirent *entry;
	int r = 0;

	if (!stream)
		return errno == ENOENT ? 0 : -errno;
	if (depth > DEPTH_MAX)
		return -ENAMETOOLONG;
	while (r == 0 && (errno = 0, entry = readdir(stream))) {
		if (path_is_name(entry->d_name))
			r = inspect_entry(inspection, dirfd(stream), entry, depth);
	}
	return r < 0 ? r : -errno;
}

static int inspect(struct inspection *inspection, const char *path)
{
	struct tool_call *call = inspection->call;
	cleanup_fd int directory = -1;
	struct stat status;
	char name[256];
	int r;

	directory = files_open_parent(&call->session->root, path, false, name);
	r = directory;
	if (r >= 0 && fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		!S_ISDIR(status.st_mode))
		return 0;
	permission_filter_init(&inspection->filter, call, PERMISSION_WRITES, path);
	if (r >= 0)
		r = buffer_append_string(&inspection->path, path);
	if (r == 0)
		r = inspect_content(inspection, directory, name, 0);
	return r < 0 ? tool_fail_errno(call, r, "look at all of", path) : 0;
}

static int check_content(struct inspection *inspection, const char *path)
{
	struct tool_call *call = inspection->call;

	if (inspect(inspection, path) < 0)
		return -1;
	if (inspection->denied)
		return tool_fail(call, TOOL_PERMISSION_DENIED,
			"Delete what else is in it by name, or ask the user.",
			"Nothing was deleted: rules deny it for %llu entr%s in \"%s\".",
			(unsigned long long)inspection->denied,
			inspection->denied == 1 ? "y" : "ies", path);
	if (inspection->guarded)
		return tool_fail(call, TOOL_PERMISSION_DENIED,
			"Delete what is guarded in a call of its own, which asks the user, or "
			"delete "
			"only what else is there.",
			"Nothing was deleted: \"%s\" is guarded: %s.", inspection->guarded,
			inspection->reason);
	return 0;
}

static int permission(struct tool_call *call)
{
	struct inspection inspection cleanup_with(inspection_done) = {.call = call};
	struct permission_subject subject = {.uses = call->tool->uses};
	bool recursive = tool_flag(call, "recursive");
	cleanup_free char *path = NULL, *sentence = NULL;
	char reason[80];

	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (asprintf(&sentence, "Delete%s: %s", recursive ? " with everything in it" : "", path) <
		0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	if (recursive && call->session->permissions && check_content(&inspection, path) < 0)
		return -1;
	snprintf(reason, sizeof(reason), "rules ask about %llu entr%s in it",
		(unsigned long long)inspection.asked, inspection.asked == 1 ? "y" : "ies");
	subject.text = path;
	subject.must_ask = inspection.asked > 0;
	return permission_ask_all(call, recursive ? TOOL_DANGEROUS : TOOL_MODIFY, &subject, 1,
		sentence, inspection.asked ? reason : NULL);
}

const struct tool tool_delete = {
	.name = "delete",
	.label = "Delete",
	.description = "Delete a file, a symbolic link or an empty directory; with recursive a "
		       "directory with everything in it.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_DANGEROUS,
	.hints = TOOL_IS_DESTRUCTIVE,
	.uses = PERMISSION_WRITES | PERMISSION_LINK,
	.validate = validate,
	.permission = permission,
	.execute = execute,
};
