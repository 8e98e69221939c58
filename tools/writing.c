#include "tools/writing.h"

#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "tools/permission/permission.h"
#include "tools/syntax/syntax.h"
#include "tools/text/text.h"

static bool call_interrupted(void *user)
{
	return tool_cancelled(user);
}

int writing_validate(struct tool_call *call)
{
	const char *content = tool_string(call, "content"), *given = tool_string(call, "path");
	cleanup_free char *path = NULL;

	if (given[strlen(given) - 1] == '/')
		return tool_fail(call, TOOL_INVALID_ARGUMENT,
			"Add the name of the file: its directories are made with it.",
			"\"%s\" names a directory, not a file.", given);
	if (tool_path(call, "path", &path) < 0)
		return -1;
	if (!tool_flag(call, "validate_syntax"))
		return 0;
	return syntax_check(call, path, content, strlen(content));
}

int writing_permission(struct tool_call *call, unsigned uses, const char *path)
{
	bool backup = tool_flag(call, "create_backup");
	struct permission_subject subjects[2] = {
		{.text = path, .uses = uses | (backup ? PERMISSION_READS : 0)},
		{.uses = PERMISSION_WRITES},
	};
	cleanup_free char *sentence = NULL, *copy = NULL, *real = NULL;

	/* files_backup() puts the backup beside the target of a link. */
	if (backup && files_real_path(&call->session->root, path, &real) < 0)
		real = NULL;
	if (asprintf(&sentence, "%s: %s", call->tool->label, path) < 0 ||
		asprintf(&copy, "%s.bak", real ? real : path) < 0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	subjects[1].text = copy;
	return permission_ask_all(
		call, call->tool->level, subjects, backup ? 2 : 1, sentence, NULL);
}

static size_t count_lines(const char *text)
{
	size_t lines = 0;

	for (; *text; lines++) {
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return lines;
}

static int fail_write(struct tool_call *call, int error, unsigned flags, const char *path)
{
	if (error == -EEXIST && (flags & FILES_MUST_CREATE))
		return tool_fail(call, TOOL_ALREADY_EXISTS,
			"Use edit to change it, set overwrite to replace it, or choose another "
			"path.",
			"\"%s\" exists already.", path);
	if (error == -EEXIST)
		return tool_fail(call, TOOL_CONFLICT, "Read it, then call again to replace it.",
			"Others have created \"%s\" at the same time.", path);
	if (error == -EISDIR)
		return tool_fail(call, TOOL_NOT_A_FILE, "Give the path of a file in it.",
			"\"%s\" is a directory.", *path ? path : ".");
	return tool_fail_errno(call, error, "write", path);
}

void writing_undo_backup(
	struct tool_call *call, const char *path, const struct stat *before, const char *backup)
{
	if (files_backup_undo(&call->session->root, path, before, backup))
		return;
	cJSON_AddStringToObject(call->data, "backup", backup);
	tool_fail_more(call,
		"\"%s\" may have been changed or damaged: its old content is in \"%s\".", path,
		backup);
}

static int write_locked(struct tool_call *call, const char *path, const char *content,
	unsigned flags, bool *ret_created)
{
	const struct files_root *root = &call->session->root;
	cleanup_free char *backup = NULL;
	struct stat status;
	size_t kept = 0;
	int r;
	cleanup_fd int lock = files_lock(root, path, call_interrupted, call);

	if (lock < 0)
		return fail_write(call, lock, flags, path);
	r = files_stat(root, path, &status);
	*ret_created = r == -ENOENT;
	if (*ret_created && files_note_directories(root, path, &kept) < 0)
		kept = strlen(path);
	if (r == 0 && tool_flag(call, "create_backup")) {
		r = files_backup(root, path, &backup);
		if (r < 0)
			return tool_fail_errno(call, r, "make a backup of", path);
	}
	r = files_write(root, path, content, strlen(content), flags, NULL);
	if (r < 0)
		fail_write(call, r, flags, path);
	if (r < 0 && *ret_created)
		files_remove_made_directories(root, path, kept);
	if (r < 0 && backup)
		writing_undo_backup(call, path, &status, backup);
	else if (backup)
		cJSON_AddStringToObject(call->data, "backup", backup);
	return r < 0 ? -1 : 0;
}

int writing_execute(struct tool_call *call, unsigned flags)
{
	const char *content = tool_string(call, "content"), *backup;
	size_t size = strlen(content), lines = count_lines(content);
	cleanup_free char *path = NULL;
	char hash[33], text[32];
	bool created = false;

	if (tool_path(call, "path", &path) < 0 ||
		write_locked(call, path, content, flags, &created) < 0)
		return -1;
	files_hash(content, size, hash);
	cJSON_AddStringToObject(call->data, "path", path);
	cJSON_AddBoolToObject(call->data, "created", created);
	cJSON_AddNumberToObject(call->data, "size_bytes", (double)size);
	cJSON_AddNumberToObject(call->data, "lines", (double)lines);
	cJSON_AddStringToObject(call->data, "hash", hash);
	backup = json_text(call->data, "backup");
	return tool_text(call, "%s %s (%s, %zu line%s).%s%s", created ? "Created" : "Wrote", path,
		text_size(size, text), lines, lines == 1 ? "" : "s",
		backup ? " The old content is in " : "", backup ? backup : "");
}
