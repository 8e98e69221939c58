#include "tools/shell/shell_ask.h"

#include <errno.h>
#include <string.h>

#include "ops/support/path.h"
#include "tools/base/tool.h"

bool shell_allowed(const struct tool_call *call)
{
	struct permissions *permissions = call->session->permissions;

	return !permissions || (permissions_allow_all(permissions, call->tool->name) &&
				       !permissions_restrict(permissions, "read") &&
				       !permissions_restrict(permissions, "write") &&
				       !permissions_restrict(permissions, "delete"));
}

struct shell_context shell_context_of(const struct tool_call *call, const char *directory)
{
	return (struct shell_context){.root = &call->session->root,
		.directory = directory,
		.root_unknown = call->session->control_socket != NULL,
		.permissions = call->session->permissions};
}

struct subjects {
	struct permission_subject *list;
	size_t count;
	char **owned; /* texts to be freed */
	size_t owned_count;
};

static void subjects_done(struct subjects *subjects)
{
	for (size_t i = 0; i < subjects->owned_count; i++)
		free(subjects->owned[i]);
	free(subjects->owned);
	free(subjects->list);
}

/* Takes ownership of the text.  NULL: no memory. */
static const char *own(struct subjects *subjects, char *text)
{
	if (text)
		subjects->owned[subjects->owned_count++] = text;
	return text;
}

static int add_step(struct subjects *subjects, const struct shell_step *step)
{
	cleanup_free char *prefix = permission_literal(step->remember);
	char *remember = NULL;

	if (!prefix || asprintf(&remember, "%s *", prefix) < 0 || !own(subjects, remember))
		return -ENOMEM;
	subjects->list[subjects->count++] = (struct permission_subject){
		.text = step->text,
		.plain = step->plain,
		.remember = remember,
		.must_ask = step->must_ask,
		.only_reads = step->only_reads || step->implied,
	};
	return 0;
}

/* The pattern that PERMISSION_ALWAYS covers: the directory of the path, but never all of "/".  The
 * caller frees it; NULL: no memory. */
static char *remember_outside(const char *path)
{
	size_t length = path_parent_length(path);
	cleanup_free char *text = length > 1 ? string_printf("outside %.*s/", (int)length, path)
					     : string_printf("outside %s", path);
	cleanup_free char *literal = text ? permission_literal(text) : NULL;

	return literal ? string_printf("%s%s", literal, length > 1 ? "*" : "") : NULL;
}

static int add_path(struct subjects *subjects, const struct shell_path *path)
{
	struct permission_subject *subject = &subjects->list[subjects->count++];
	char *text = NULL;

	*subject = (struct permission_subject){.text = path->path, .uses = path->uses};
	if (path->uses)
		return 0;
	if (asprintf(&text, "outside %s", path->path) < 0)
		text = NULL;
	subject->text = own(subjects, text);
	subject->remember = text ? own(subjects, remember_outside(path->path)) : NULL;
	return subject->text && subject->remember ? 0 : -ENOMEM;
}

static int collect(struct subjects *subjects, const struct shell_analysis *analysis)
{
	size_t most = analysis->count + analysis->paths.count + 1;
	int r = 0;

	subjects->list = calloc(most, sizeof(*subjects->list));
	subjects->owned = calloc(2 * most, sizeof(*subjects->owned));
	if (!subjects->list || !subjects->owned)
		return -ENOMEM;
	for (size_t i = 0; i < analysis->count && r == 0; i++)
		r = add_step(subjects, &analysis->steps[i]);
	for (size_t i = 0; i < analysis->paths.count && r == 0; i++)
		r = add_path(subjects, &analysis->paths.list[i]);
	return r;
}

/* The reason for the question; the caller frees it.  NULL: none. */
static char *make_reason(const struct shell_analysis *analysis, const char *first)
{
	struct buffer words = {0};
	size_t shown = 0;

	buffer_append_string(&words, first ? first : analysis->reason);
	for (size_t i = 0; i < analysis->paths.count; i++) {
		if (analysis->paths.list[i].uses || ++shown > 10)
			continue;
		buffer_printf(&words, "%s%s",
			shown > 1    ? ", "
			: words.size ? "; it names paths outside of the root: "
				     : "it names paths outside of the root: ",
			analysis->paths.list[i].path);
	}
	return words.size ? buffer_steal_string(&words) : NULL;
}

int shell_ask(struct tool_call *call, const struct shell_analysis *analysis, const char *text,
	const char *sentence, const char *reason)
{
	struct subjects subjects cleanup_with(subjects_done) = {0};
	cleanup_free char *words = make_reason(analysis, reason);

	if (collect(&subjects, analysis) < 0)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	if (analysis->must_ask || reason)
		subjects.list[subjects.count++] =
			(struct permission_subject){.text = text, .must_ask = true};
	return permission_ask_all(
		call, TOOL_DANGEROUS, subjects.list, subjects.count, sentence, words);
}
