#include <errno.h>
#include <string.h>

#include "ops/support/path.h"
#include "tools/base/file_changes.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/syntax/syntax.h"
#include "tools/text/edits.h"
#include "tools/text/patch.h"

enum { ALL_FILES_MAX_BYTES = 256 << 20, TRIES_MAX = 20, AROUND = 3, SHOWN_LINES_MAX = 60 };

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"patch\":{\"type\":\"string\",\"minLength\":1},"
	"\"validate_syntax\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Checks json, "
	"yaml, toml, py, sh\"}},\"required\":[\"patch\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"files\":{\"type\":\"array\",\"items\":{\"type\":"
	"\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"action\":{\"enum\":[\"add\","
	"\"update\",\"delete\",\"move\"]},\"moved_from\":{\"type\":\"string\"},\"hash\":{\"type\":"
	"\"string\"},\"first_changed_line\":{\"type\":\"integer\"},\"tolerant\":{\"type\":"
	"\"boolean\"}},\"required\":[\"path\",\"action\"]}},\"path\":{\"type\":\"string\"},"
	"\"region\":{\"type\":\"string\"},\"syntax_warning\":{\"type\":\"string\"},"
	"\"line\":{\"type\":\"integer\"},\"column\":{\"type\":\"integer\"}}}";

struct item { /* one file of the patch */
	const struct patch_file *file;
	char *path, *target; /* below the root; target NULL: not moved */
	struct buffer old;
	struct stat status;
	struct patch_result result;
};

struct work {
	struct patch patch;
	struct item *items;
	size_t count;
	struct file_change *changes;
};

static void forget_plan(struct item *item)
{
	buffer_done(&item->old);
	patch_result_done(&item->result);
}

static void work_free(void *pointer)
{
	struct work *work = pointer;

	for (size_t i = 0; i < work->count; i++) {
		forget_plan(&work->items[i]);
		free(work->items[i].path);
		free(work->items[i].target);
	}
	free(work->items);
	free(work->changes);
	patch_done(&work->patch);
	free(work);
}

/* ---- The files of the patch ---------------------------------------------------------------- */

static int resolve(struct tool_call *call, const char *given, char **ret_path)
{
	int r = files_resolve(&call->session->root, given, ret_path);

	if (r == -EXDEV)
		return tool_fail(call, TOOL_PATH_OUTSIDE_ROOT, NULL,
			"\"%s\" is outside the root directory \"%s\".", given,
			call->session->root.path);
	if (r == 0 && (!**ret_path || given[strlen(given) - 1] == '/'))
		return tool_fail(call, TOOL_NOT_A_FILE, "Give the path of a file in it.",
			"\"%s\" is a directory.", given);
	return r < 0 ? tool_fail_errno(call, r, "use", given) : 0;
}

static int take_patch(struct tool_call *call, struct work *work)
{
	struct buffer problem cleanup_buffer = {0};
	int r = patch_parse(tool_string(call, "patch"), &work->patch, &problem);

	if (r == -EINVAL)
		return tool_fail(call, TOOL_INVALID_ARGUMENT, NULL, "apply_patch: %.*s.",
			(int)problem.size, (const char *)problem.data);
	work->items = calloc(work->patch.count + 1, sizeof(*work->items));
	work->changes = calloc(work->patch.count + 1, sizeof(*work->changes));
	if (r < 0 || !work->items || !work->changes)
		return tool_fail_errno(call, -ENOMEM, "read the patch", NULL);
	for (size_t i = 0; i < work->patch.count; i++) {
		struct item *item = &work->items[work->count++];

		item->file = &work->patch.files[i];
		if (resolve(call, item->file->path, &item->path) < 0)
			return -1;
		if (item->file->move_to && resolve(call, item->file->move_to, &item->target) < 0)
			return -1;
	}
	return 0;
}

static int fail_twice(struct tool_call *call, const char *path)
{
	return tool_fail(call, TOOL_INVALID_ARGUMENT,
		"Put all that changes in a file below one *** Update File: line, and call again.",
		"The patch names \"%s\" more than once.", path);
}

static bool names(const struct item *item, const char *path)
{
	return strcmp(item->path, path) == 0 || (item->target && strcmp(item->target, path) == 0);
}

static int check_names(struct tool_call *call, const struct work *work)
{
	for (size_t i = 0; i < work->count; i++) {
		const struct item *item = &work->items[i];

		if (item->target && strcmp(item->target, item->path) == 0)
			return tool_fail(call, TOOL_INVALID_ARGUMENT, NULL,
				"The patch moves \"%s\" to itself.", item->path);
		for (size_t j = 0; j < i; j++)
			if (names(&work->items[j], item->path) ||
				(item->target && names(&work->items[j], item->target)))
				return fail_twice(call, item->path);
	}
	return 0;
}

static unsigned uses_of(const struct item *item)
{
	switch (item->file->kind) {
	case PATCH_ADD:
		return PERMISSION_WRITES;
	case PATCH_DELETE:
		return PERMISSION_WRITES | PERMISSION_LINK;
	case PATCH_UPDATE:
		break;
	}
	return PERMISSION_READS | PERMISSION_WRITES;
}

/* Checks the rules that deny, before any file is read. */
static int deny_early(struct tool_call *call, const struct work *work)
{
	for (size_t i = 0; i < work->count; i++) {
		const struct item *item = &work->items[i];

		if (permission_deny_path_early(call, uses_of(item), item->path) < 0)
			return -1;
		if (item->target &&
			permission_deny_path_early(call, PERMISSION_WRITES, item->target) < 0)
			return -1;
	}
	return 0;
}

/* ---- The plan ------------------------------------------------------------------------------ */

static int check_free(struct tool_call *call, const char *path)
{
	struct stat status;
	int r = files_lstat(&call->session->root, path, &status);

	if (r == 0)
		return tool_fail(call, TOOL_ALREADY_EXISTS,
			"Use *** Update File: to change it, or choose another path.",
			"\"%s\" exists already.", path);
	return r == -ENOENT ? 0 : tool_fail_errno(call, r, "make", path);
}

static void show_nearest(struct tool_call *call, const struct item *item, char **ret_region)
{
	struct buffer lines cleanup_buffer = {0};
	size_t first, last;

	if (!edits_nearest(item->old.data, item->old.size, item->result.wanted, &first, &last))
		return;
	first = first > AROUND ? first - AROUND : 1;
	if (last - first > SHOWN_LINES_MAX)
		last = first + SHOWN_LINES_MAX;
	if (edits_show_lines(item->old.data, item->old.size, first, last + AROUND, &lines) < 0 ||
		!lines.size)
		return;
	*ret_region = buffer_steal_string(&lines);
	cJSON_AddStringToObject(call->data, "path", item->path);
	cJSON_AddStringToObject(call->data, "region", *ret_region ? *ret_region : "");
}

static int fail_no_match(struct tool_call *call, const struct item *item)
{
	const struct patch_result *result = &item->result;
	cleanup_free char *region = NULL;

	show_nearest(call, item, &region);
	return tool_fail(call, TOOL_NO_MATCH,
		"Read the file again, copy the lines as they are, keep the hunks in the order of "
		"the file, and call again with the whole patch.",
		"Nothing was changed: hunk %zu of \"%s\" does not match. These lines are not in "
		"the file from line %zu on:\n%s%s%s",
		result->problem_hunk, item->path, result->searched_from, result->wanted,
		region ? "The nearest lines are:\n" : "", region ? region : "");
}

static int fail_ambiguous(struct tool_call *call, const struct item *item)
{
	const struct patch_result *result = &item->result;
	struct buffer lines cleanup_buffer = {0};

	for (size_t i = 0; i < result->matches && i < array_size(result->match_lines); i++)
		buffer_printf(&lines, "%s%zu", i ? ", " : "", result->match_lines[i]);
	return tool_fail(call, TOOL_AMBIGUOUS_MATCH,
		"Add lines of context to the hunk, or the line of the function that it is in after "
		"@@, and call again with the whole patch.",
		"Nothing was changed: hunk %zu of \"%s\" matches %zu times, at lines %.*s%s.",
		result->problem_hunk, item->path, result->matches, (int)lines.size,
		(const char *)lines.data,
		result->matches > array_size(result->match_lines) ? ", ..." : "");
}

static int plan_update(struct tool_call *call, struct item *item, size_t *left)
{
	const struct files_root *root = &call->session->root;
	struct stat link;
	int r;

	if (item->target && files_lstat(root, item->path, &link) == 0 && S_ISLNK(link.st_mode))
		return tool_fail(call, TOOL_NOT_A_FILE,
			"Move the file that it names, or add the link anew with bash.",
			"\"%s\" is a symbolic link, which a patch cannot move.", item->path);
	r = files_read(root, item->path, *left, &item->old, &item->status);
	if (r < 0)
		return tool_fail_errno(call, r, "edit", item->path);
	*left -= item->old.size;
	switch (patch_apply(item->old.data, item->old.size, item->file, &item->result)) {
	case PATCH_OK:
		break;
	case PATCH_NO_MATCH:
		return fail_no_match(call, item);
	case PATCH_AMBIGUOUS:
		return fail_ambiguous(call, item);
	case PATCH_NO_MEMORY:
		return tool_fail_errno(call, -ENOMEM, "edit", item->path);
	}
	if (!item->target && !item->result.first_changed_line)
		return tool_fail(call, TOOL_NO_CHANGE, NULL,
			"The patch would leave \"%s\" as it is.", item->path);
	return item->target ? check_free(call, item->target) : 0;
}

static int plan_delete(struct tool_call *call, struct item *item)
{
	int r = files_lstat(&call->session->root, item->path, &item->status);

	if (r < 0)
		return tool_fail_errno(call, r, "delete", item->path);
	if (S_ISDIR(item->status.st_mode))
		return tool_fail(call, TOOL_NOT_A_FILE, "Use delete for a directory.",
			"\"%s\" is a directory.", item->path);
	return 0;
}

static int plan_item(struct tool_call *call, struct item *item, size_t *left)
{
	const char *path = item->target ? item->target : item->path;

	forget_plan(item);
	if (item->file->kind == PATCH_DELETE)
		return plan_delete(call, item);
	if (item->file->kind == PATCH_ADD) {
		if (check_free(call, item->path) < 0)
			return -1;
		if (patch_content(item->file, &item->result.text) < 0)
			return tool_fail_errno(call, -ENOMEM, "make", item->path);
	} else if (plan_update(call, item, left) < 0) {
		return -1;
	}
	if (!tool_flag(call, "validate_syntax"))
		return 0;
	return syntax_check(call, path, item->result.text.data, item->result.text.size);
}

/* Refuses two paths that lead to one file: the changes would overwrite each other. */
static int check_files(struct tool_call *call, const struct work *work)
{
	for (size_t i = 0; i < work->count; i++) {
		const struct item *item = &work->items[i];

		for (size_t j = 0; j < i && item->file->kind != PATCH_ADD; j++) {
			const struct item *other = &work->items[j];

			if (other->file->kind != PATCH_ADD &&
				other->status.st_ino == item->status.st_ino &&
				other->status.st_dev == item->status.st_dev)
				return fail_twice(call, item->path);
		}
	}
	return 0;
}

static int make_plan(struct tool_call *call, struct work *work)
{
	size_t left = ALL_FILES_MAX_BYTES;

	for (size_t i = 0; i < work->count; i++)
		if (plan_item(call, &work->items[i], &left) < 0)
			return -1;
	return check_files(call, work);
}

static int validate(struct tool_call *call)
{
	struct work *work = calloc(1, sizeof(*work));

	if (!work)
		return tool_fail_errno(call, -ENOMEM, "read the patch", NULL);
	call->state = work;
	call->state_free = work_free;
	if (take_patch(call, work) < 0 || check_names(call, work) < 0 || deny_early(call, work) < 0)
		return -1;
	/* A failed match would show the file's content: if rules ask, the question comes first. */
	return call->asks_first ? 0 : make_plan(call, work);
}

/* ---- Permission ---------------------------------------------------------------------------- */

static int append_sentence(const struct item *item, struct buffer *out)
{
	static const char *const words[] = {
		[PATCH_ADD] = "add", [PATCH_DELETE] = "delete", [PATCH_UPDATE] = "edit"};

	return buffer_printf(out, "%s %s %s%s%s",
		out->size ? "," : "Apply patch:", words[item->file->kind], item->path,
		item->target ? ", move it to " : "", item->target ? item->target : "");
}

static int permission(struct tool_call *call)
{
	const struct work *work = call->state;
	cleanup_free struct permission_subject *subjects =
		calloc(2 * work->count + 1, sizeof(*subjects));
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *sentence = NULL;
	size_t count = 0;
	int r = subjects ? 0 : -ENOMEM;

	for (size_t i = 0; i < work->count && r == 0; i++) {
		const struct item *item = &work->items[i];

		subjects[count++] =
			(struct permission_subject){.text = item->path, .uses = uses_of(item)};
		if (item->target)
			subjects[count++] = (struct permission_subject){
				.text = item->target, .uses = PERMISSION_WRITES};
		r = append_sentence(item, &text);
	}
	if (r == 0)
		sentence = buffer_steal_string(&text);
	if (!sentence)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	return permission_ask_all(call, call->tool->level, subjects, count, sentence, NULL);
}

/* ---- The work ------------------------------------------------------------------------------ */

static bool call_interrupted(void *user)
{
	return tool_cancelled(user);
}

static void take_changes(struct work *work)
{
	static const enum file_change_kind kinds[] = {[PATCH_ADD] = FILE_CHANGE_CREATE,
		[PATCH_DELETE] = FILE_CHANGE_DELETE,
		[PATCH_UPDATE] = FILE_CHANGE_UPDATE};

	for (size_t i = 0; i < work->count; i++) {
		const struct item *item = &work->items[i];
		bool same = item->file->kind == PATCH_UPDATE && !item->result.first_changed_line;

		work->changes[i] = (struct file_change){
			.kind = kinds[item->file->kind],
			.path = item->path,
			.target = item->target,
			.content = same ? NULL : &item->result.text,
			.old = &item->old,
			.status = &item->status,
		};
	}
}

static int fail_apply(struct tool_call *call, int error, const char *path, struct buffer *lost)
{
	cleanup_free char *text = lost->size ? buffer_steal_string(lost) : NULL;

	if (text)
		return tool_fail(call, TOOL_IO_ERROR,
			"Look at these files before anything else, and tell the user.",
			"The patch failed at \"%s\" (%s), and what was done before could not be "
			"taken back in: %s.",
			path, strerror(-error), text);
	if (error == -EEXIST)
		return tool_fail(call, TOOL_ALREADY_EXISTS,
			"Use *** Update File: to change it, or choose another path.",
			"Nothing was changed: \"%s\" exists already.", path);
	return tool_fail_errno(call, error, "apply the patch (nothing was changed) to", path);
}

static int apply(struct tool_call *call, struct work *work)
{
	struct file_locks locks cleanup_with(file_locks_done) = {0};
	const struct files_root *root = &call->session->root;
	struct buffer lost cleanup_buffer = {0};
	size_t failed = 0;
	int r;

	take_changes(work);
	r = file_changes_lock(root, work->changes, work->count, call_interrupted, call, &locks);
	if (r < 0)
		return tool_fail_errno(call, r, "apply the patch", NULL);
	for (int i = 0; i < TRIES_MAX; i++) {
		/* The files may have changed while the question or the lock was waited for. */
		if (make_plan(call, work) < 0)
			return -1;
		take_changes(work);
		r = file_changes_apply(
			root, work->changes, work->count, call_interrupted, call, &failed, &lost);
		if (r != -ESTALE || lost.size)
			break;
	}
	return r < 0 ? fail_apply(call, r, work->items[failed].path, &lost) : 0;
}

static int describe_item(struct tool_call *call, const struct item *item, cJSON *files)
{
	static const char *const actions[] = {
		[PATCH_ADD] = "add", [PATCH_DELETE] = "delete", [PATCH_UPDATE] = "update"};
	const char *path = item->target ? item->target : item->path;
	cJSON *entry = cJSON_CreateObject();
	char hash[33];

	cJSON_AddItemToArray(files, entry);
	cJSON_AddStringToObject(entry, "path", path);
	cJSON_AddStringToObject(entry, "action", item->target ? "move" : actions[item->file->kind]);
	if (item->file->kind == PATCH_DELETE)
		return tool_text(call, "D %s\n", path);
	if (item->target)
		cJSON_AddStringToObject(entry, "moved_from", item->path);
	files_hash(item->result.text.data, item->result.text.size, hash);
	cJSON_AddStringToObject(entry, "hash", hash);
	if (item->file->kind == PATCH_ADD)
		return tool_text(call, "A %s (hash %s)\n", path, hash);
	if (item->result.first_changed_line)
		cJSON_AddNumberToObject(
			entry, "first_changed_line", (double)item->result.first_changed_line);
	cJSON_AddBoolToObject(entry, "tolerant", item->result.tolerant);
	return tool_text(call, "M %s%s%s (hash %s)%s\n", item->path, item->target ? " -> " : "",
		item->target ? item->target : "", hash,
		item->result.tolerant ? " (matched without regard to blanks or quotes)" : "");
}

static int execute(struct tool_call *call)
{
	struct work *work = call->state;
	cJSON *files;

	if (apply(call, work) < 0)
		return -1;
	files = cJSON_AddArrayToObject(call->data, "files");
	if (tool_text(call, "Applied the patch to %zu file%s:\n", work->count,
		    work->count == 1 ? "" : "s") < 0)
		return -1;
	for (size_t i = 0; i < work->count; i++)
		if (describe_item(call, &work->items[i], files) < 0)
			return -1;
	return 0;
}

const struct tool tool_apply_patch = {
	.name = "apply_patch",
	.label = "Apply patch",
	.description =
		"Add, change, move and delete several files in one call, all or nothing. Between "
		"*** Begin Patch and *** End Patch stand: *** Add File: PATH (each line with +), "
		"*** Delete File: PATH, *** Update File: PATH (optionally *** Move to: PATH below "
		"it) with hunks: @@ and a line above the change, then lines that begin with a "
		"blank (context, 3 before and after), - or +. Each file once; hunks in order.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_MODIFY,
	.hints = TOOL_IS_DESTRUCTIVE,
	.uses = PERMISSION_READS | PERMISSION_WRITES,
	.validate = validate,
	.permission = permission,
	.execute = execute,
};
