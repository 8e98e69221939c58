#include <errno.h>
#include <string.h>

#include "ops/support/files.h"
#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/text/edits.h"
#include "tools/base/output_file.h"
#include "tools/permission/permission.h"
#include "tools/base/tool.h"
#include "tools/syntax/syntax.h"
#include "tools/text/text.h"
#include "tools/writing.h"

enum {
	FILE_MAX_BYTES = 256 << 20,
	TRIES_MAX = 20,
	AROUND = 3,
	FRESH_LINES = 20,
	SNIFF_BYTES = 8192
};

static const char input_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"minLength\":1},"
	"\"edits\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":1000,\"items\":{\"type\":"
	"\"object\",\"properties\":{\"old_text\":{\"type\":\"string\",\"minLength\":1,"
	"\"description\":\"Exactly as in the file, where it is "
	"once\"},\"new_text\":{\"type\":\"string\"},\"replace_all\":{\"type\":\"boolean\","
	"\"default\":false}},\"required\":[\"old_text\",\"new_text\"],\"additionalProperties\":"
	"false},\"description\":\"All match the file as it is; they must not "
	"overlap\"},\"create_backup\":{\"type\":\"boolean\",\"default\":false,\"description\":"
	"\"Keep the old file as "
	"FILE.bak\"},\"validate_syntax\":{\"type\":\"boolean\",\"default\":true,\"description\":"
	"\"Checks json, yaml, toml, py, "
	"sh\"},\"expected_hash\":{\"type\":\"string\",\"description\":\"From read: fail when the "
	"file changed since\"}},\"required\":[\"path\",\"edits\"],\"additionalProperties\":false}";

static const char data_schema[] =
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
	"\"diff\":{\"type\":\"string\"},\"diff_truncated\":{\"type\":\"boolean\"},"
	"\"diff_file\":{\"type\":\"string\"},\"diff_lossy\":{\"type\":\"boolean\"},"
	"\"first_changed_line\":{\"type\":\"integer\"},"
	"\"replacements\":{\"type\":\"integer\"},\"tolerant\":{\"type\":\"boolean\"},"
	"\"hash\":{\"type\":\"string\"},\"backup\":{\"type\":\"string\"},"
	"\"syntax_warning\":{\"type\":\"string\"},\"region\":{\"type\":\"string\"}},"
	"\"required\":[\"path\"]}";

/* The edit, for the content that was read. */
struct work {
	char *path;
	struct edit *edits;
	size_t count;
	struct buffer old;
	struct stat status;
	struct edits_plan plan;
};

static void work_free(void *pointer)
{
	struct work *work = pointer;

	free(work->path);
	free(work->edits);
	buffer_done(&work->old);
	edits_plan_done(&work->plan);
	free(work);
}

static int take_edits(struct tool_call *call, struct work *work)
{
	const cJSON *list = json_member(call->arguments, "edits"), *item;

	work->edits = calloc((size_t)cJSON_GetArraySize(list), sizeof(*work->edits));
	if (!work->edits)
		return tool_fail_errno(call, -ENOMEM, "edit", work->path);
	cJSON_ArrayForEach(item, list) {
		struct edit *edit = &work->edits[work->count++];

		edit->old_text = json_text(item, "old_text");
		edit->new_text = json_text(item, "new_text");
		edit->replace_all = json_is_true(item, "replace_all");
		if (strcmp(edit->old_text, edit->new_text) == 0)
			return tool_fail(call, TOOL_NO_CHANGE, NULL,
				"edits[%zu]: old_text and new_text are the same.", work->count - 1);
	}
	return 0;
}

/* ---- Failures that show the present content -------------------------------------- */

/* The lines that resemble `wanted` most, for the data and the message. */
static char *show_nearest(const struct work *work, const char *wanted)
{
	struct buffer lines cleanup_buffer = {0};
	size_t first, last;

	if (!edits_nearest(work->old.data, work->old.size, wanted, &first, &last))
		return NULL;
	first = first > AROUND ? first - AROUND : 1;
	if (last - first > 60)
		last = first + 60;
	if (edits_show_lines(work->old.data, work->old.size, first, last + AROUND, &lines) < 0)
		return NULL;
	return lines.size ? buffer_steal_string(&lines) : NULL;
}

/* Of a file that is not UTF-8, which may be why nothing matches.  0: it is UTF-8, or at least
 * ASCII can match in it; -1: recorded. */
static int fail_other_encoding(struct tool_call *call, struct work *work)
{
	size_t size = work->old.size < SNIFF_BYTES ? work->old.size : SNIFF_BYTES;
	cleanup_free char *encoding = files_encoding(work->old.data, size);
	cleanup_free char *next = NULL;

	if (!encoding || !memchr(work->old.data, 0, size))
		return 0;
	if (strncmp(encoding, "utf-", 4) != 0)
		return tool_fail(call, TOOL_BINARY_FILE,
			"Change it with a program for its format, in bash.",
			"\"%s\" is not text, and edits[%zu]: old_text does not occur in it.",
			work->path, work->plan.problem_edit);
	next = string_printf("With bash convert it (iconv -f %s -t utf-8 FILE > COPY), edit the "
			     "copy, and convert that back (iconv -f utf-8 -t %s COPY > FILE).",
		encoding, encoding);
	return tool_fail(call, TOOL_BINARY_FILE, next,
		"\"%s\" is text in %s; only UTF-8 can be edited.", work->path, encoding);
}

static bool has_other_than_ascii(const char *text)
{
	while (*text && (unsigned char)*text < 0x80)
		text++;
	return *text;
}

static int fail_no_match(struct tool_call *call, struct work *work)
{
	const char *wanted = work->edits[work->plan.problem_edit].old_text;
	cleanup_free char *region = show_nearest(work, wanted);
	const char *damaged =
		strstr(wanted, "\xef\xbf\xbd")
			? " (U+FFFD in it stands for bytes that are not UTF-8: leave "
			  "them out of old_text.)"
		: has_other_than_ascii(wanted) && !utf8_is_clean(work->old.data, work->old.size)
			? " (The file is not UTF-8: only ASCII can match in it.)"
			: "";

	if (fail_other_encoding(call, work) < 0)
		return -1;
	if (!region)
		return tool_fail(call, TOOL_NO_MATCH, NULL,
			"edits[%zu]: old_text does not occur in \"%s\", nor anything like it.%s",
			work->plan.problem_edit, work->path, damaged);
	cJSON_AddStringToObject(call->data, "path", work->path);
	cJSON_AddStringToObject(call->data, "region", region);
	return tool_fail(call, TOOL_NO_MATCH, NULL,
		"edits[%zu]: old_text does not occur in \"%s\".%s The nearest lines are:\n%s",
		work->plan.problem_edit, work->path, damaged, region);
}

static int fail_ambiguous(struct tool_call *call, struct work *work)
{
	const struct edits_plan *plan = &work->plan;
	struct buffer lines cleanup_buffer = {0};
	size_t count = plan->problem_matches < array_size(plan->problem_at)
			       ? plan->problem_matches
			       : array_size(plan->problem_at);

	for (size_t i = 0; i < count; i++)
		buffer_printf(&lines, "%s%zu", i ? ", " : "",
			edits_line_of(work->old.data, plan->problem_at[i]));
	if (count < plan->problem_matches)
		buffer_append_string(&lines, ", ...");
	return tool_fail(call, TOOL_AMBIGUOUS_MATCH, NULL,
		"edits[%zu]: old_text occurs %zu times in \"%s\", at lines %.*s.",
		plan->problem_edit, plan->problem_matches, work->path, (int)lines.size,
		(const char *)lines.data);
}

static int fail_plan(struct tool_call *call, struct work *work)
{
	switch (work->plan.problem) {
	case EDITS_OK:
		return 0;
	case EDITS_NO_MATCH:
		return fail_no_match(call, work);
	case EDITS_AMBIGUOUS:
		return fail_ambiguous(call, work);
	case EDITS_OVERLAP:
		return tool_fail(call, TOOL_INVALID_ARGUMENT,
			"Join the edits that touch the same text into one and call again.",
			"edits[%zu] overlaps another edit.", work->plan.problem_edit);
	case EDITS_NO_CHANGE:
		return tool_fail(call, TOOL_NO_CHANGE, NULL,
			"The edits would leave \"%s\" as it is.", work->path);
	case EDITS_NO_MEMORY:
		break;
	}
	return tool_fail_errno(call, -ENOMEM, "edit", work->path);
}

static int fail_conflict(struct tool_call *call, struct work *work, const char *hash)
{
	cleanup_free char *region = show_nearest(work, work->edits[0].old_text);
	const char *start = "There it now says:\n";

	if (!region) {
		struct buffer lines cleanup_buffer = {0};

		start = "Nothing like the text to replace is in it now; it begins:\n";
		edits_show_lines(work->old.data, work->old.size, 1, FRESH_LINES, &lines);
		region = buffer_steal_string(&lines);
	}
	cJSON_AddStringToObject(call->data, "path", work->path);
	cJSON_AddStringToObject(call->data, "hash", hash);
	cJSON_AddStringToObject(call->data, "region", region ? region : "");
	return tool_fail(call, TOOL_CONFLICT, NULL,
		"\"%s\" changed since it was read; its hash is now %s. %s%s", work->path, hash,
		start, region ? region : "");
}

/* ---- The work ---------------------------------------------------------------------- */

static int check_hash(struct tool_call *call, struct work *work)
{
	const char *expected = tool_string(call, "expected_hash");
	char hash[33];

	if (!expected)
		return 0;
	files_hash(work->old.data, work->old.size, hash);
	return strcmp(hash, expected) == 0 ? 0 : fail_conflict(call, work, hash);
}

static int make_plan(struct tool_call *call, struct work *work)
{
	int r;

	work->old.size = 0;
	edits_plan_done(&work->plan);
	r = files_read(&call->session->root, work->path, FILE_MAX_BYTES, &work->old, &work->status);
	if (r < 0)
		return tool_fail_errno(call, r, "edit", work->path);
	if (check_hash(call, work) < 0)
		return -1;
	edits_plan(work->old.data, work->old.size, work->edits, work->count, &work->plan);
	if (fail_plan(call, work) < 0)
		return -1;
	if (!tool_flag(call, "validate_syntax"))
		return 0;
	return syntax_check(call, work->path, work->plan.result.data, work->plan.result.size);
}

static int validate(struct tool_call *call)
{
	struct work *work = calloc(1, sizeof(*work));

	if (!work)
		return tool_fail_errno(call, -ENOMEM, "edit", NULL);
	call->state = work;
	call->state_free = work_free;
	if (tool_path(call, "path", &work->path) < 0 || take_edits(call, work) < 0)
		return -1;
	/* A failed match would show the file's content: if rules ask, the question comes first. */
	return call->asks_first ? 0 : make_plan(call, work);
}

static bool is_as_planned(struct tool_call *call, const struct work *work)
{
	struct stat now;

	return files_stat(&call->session->root, work->path, &now) == 0 &&
	       now.st_ino == work->status.st_ino && now.st_size == work->status.st_size &&
	       now.st_mtim.tv_sec == work->status.st_mtim.tv_sec &&
	       now.st_mtim.tv_nsec == work->status.st_mtim.tv_nsec;
}

static bool call_interrupted(void *user)
{
	return tool_cancelled(user);
}

static int write_planned(struct tool_call *call, struct work *work, char **backup)
{
	const struct files_root *root = &call->session->root;
	int r = 0;

	for (int i = 0; i < TRIES_MAX; i++) {
		if (!is_as_planned(call, work) && make_plan(call, work) < 0)
			return -1;
		if (!*backup && tool_flag(call, "create_backup")) {
			r = files_backup(root, work->path, backup);
			if (r < 0)
				return tool_fail_errno(call, r, "make a backup of", work->path);
		}
		r = files_write(root, work->path, work->plan.result.data, work->plan.result.size,
			FILES_MUST_REPLACE, &work->status);
		if (r != -ESTALE)
			break;
	}
	return r < 0 ? tool_fail_errno(call, r, "edit", work->path) : 0;
}

static int write_result(struct tool_call *call, struct work *work)
{
	const struct files_root *root = &call->session->root;
	cleanup_free char *backup = NULL;
	cleanup_fd int lock = files_lock(root, work->path, call_interrupted, call);
	int r;

	if (lock < 0)
		return tool_fail_errno(call, lock, "edit", work->path);
	r = write_planned(call, work, &backup);
	if (r < 0 && backup)
		writing_undo_backup(call, work->path, &work->status, backup);
	else if (backup)
		cJSON_AddStringToObject(call->data, "backup", backup);
	return r;
}

static void keep_whole_diff(struct tool_call *call, const struct buffer *diff)
{
	cleanup_free char *name = NULL, *path = NULL;
	cleanup_fd int fd = -1;

	if (asprintf(&name, "%s-diff", call->call_id) < 0)
		return;
	fd = output_file_make(name, &path);
	if (fd >= 0 && write_all(fd, diff->data, diff->size) == 0)
		cJSON_AddStringToObject(call->data, "diff_file", path);
}

static int describe(struct tool_call *call, struct work *work)
{
	struct buffer diff cleanup_buffer = {0}, shortened cleanup_buffer = {0};
	struct buffer shown cleanup_buffer = {0};
	const struct edits_plan *plan = &work->plan;
	bool cut, is_shortened;
	char hash[33];

	if (edits_diff(work->path, work->old.data, work->old.size, plan, &diff) < 0 ||
		edits_diff_shorten(&diff, &shortened, &is_shortened) < 0)
		return tool_fail_errno(call, -ENOMEM, "show the diff of", work->path);
	cut = shortened.size > TOOL_OUTPUT_MAX_BYTES;
	if (utf8_append_clean(&shown, shortened.data,
		    text_cut(shortened.data, shortened.size, TOOL_OUTPUT_MAX_BYTES)) < 0 ||
		buffer_append(&shown, "", 1) < 0)
		return tool_fail_errno(call, -ENOMEM, "show the diff of", work->path);
	files_hash(plan->result.data, plan->result.size, hash);
	cJSON_AddStringToObject(call->data, "path", work->path);
	cJSON_AddStringToObject(call->data, "diff", (const char *)shown.data);
	cJSON_AddBoolToObject(call->data, "diff_truncated", cut || is_shortened);
	if (!utf8_is_clean(diff.data, diff.size))
		cJSON_AddTrueToObject(call->data, "diff_lossy");
	if (cut || is_shortened)
		keep_whole_diff(call, &diff);
	cJSON_AddNumberToObject(call->data, "first_changed_line",
		(double)edits_line_of(plan->result.data, plan->regions[0].new_start));
	cJSON_AddNumberToObject(call->data, "replacements", (double)plan->count);
	cJSON_AddBoolToObject(call->data, "tolerant", plan->tolerant);
	cJSON_AddStringToObject(call->data, "hash", hash);
	return tool_text(call, "Edited %s: %zu replacement%s%s. Its hash is now %s.\n%s%s",
		work->path, plan->count, plan->count == 1 ? "" : "s",
		plan->tolerant ? " (matched without regard to blanks, quotes or line ends)" : "",
		hash, (const char *)shown.data,
		cut            ? "\n[The diff is cut at 50 KB.]"
		: is_shortened ? "\n[Of very long lines only the part around the change is shown.]"
			       : "");
}

static int execute(struct tool_call *call)
{
	struct work *work = call->state;

	return write_result(call, work) < 0 ? -1 : describe(call, work);
}

static int permission(struct tool_call *call)
{
	const struct work *work = call->state;

	return writing_permission(call, call->tool->uses, work->path);
}

const struct tool tool_edit = {
	.name = "edit",
	.label = "Edit file",
	.description =
		"Replace parts of a file. Each old_text must be in it exactly once (or set "
		"replace_all). Use several edits in one call for several places. Shows the diff.",
	.input_schema = input_schema,
	.data_schema = data_schema,
	.level = TOOL_MODIFY,
	.hints = TOOL_IS_DESTRUCTIVE,
	.uses = PERMISSION_READS | PERMISSION_WRITES,
	.validate = validate,
	.permission = permission,
	.execute = execute,
};
