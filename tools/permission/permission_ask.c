/* The questions of tools/permission/permission.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/path.h"
#include "ops/support/visible.h"
#include "tools/base/registry.h"
#include "tools/permission/permission.h"
#include "tools/text/looks.h"

/* ---- Questions --------------------------------------------------------------------------- */

static int fail_denied(struct tool_call *call, const char *subject)
{
	return tool_fail(call, TOOL_PERMISSION_DENIED, NULL, "A rule denies %s for \"%s\".",
		call->tool->name, *subject ? subject : ".");
}

/* The question so far. */
struct asking {
	struct permission_question question;
	const char **remember; /* room for one pattern per subject */
	char **owned;          /* the patterns to be freed */
	size_t owned_count;
	cJSON *rules; /* that would allow it */
	enum { RULE_IS_POSSIBLE, RULE_IS_OF_PROJECT, RULE_IS_UNKNOWN } without_rule;
	bool is_allowed_by_project; /* which does not count */
	bool ask;
	bool lasting; /* PERMISSION_ALWAYS is offered */
	struct buffer reason;
};

/* What to do if no narrower rule than "*" can allow the call. */
static char *print_widest_rule(const struct tool_call *call, const char *reason)
{
	bool is_bash = strcmp(call->tool->name, "bash") == 0;

	return string_printf(
		". %s%sAs it is written, only the rule {\"tool\": \"%s\", \"pattern\": \"*\", "
		"\"action\": \"allow\"} can allow it, if no rule for commands or files asks or "
		"denies, or --yes on the command line%s",
		reason ? reason : "", reason ? ". " : "", call->tool->name,
		is_bash ? ". Write it in another way: workdir gives the directory instead of cd, "
			  "and several calls can do what one line may not"
			: "");
}

/* How to allow the call for good: the rules, as JSON for the user to copy.  The caller frees it;
 * NULL: no memory. */
static char *print_way(const struct tool_call *call, const struct asking *asking)
{
	cleanup_free char *rules = cJSON_PrintUnformatted(asking->rules);

	if (asking->without_rule == RULE_IS_UNKNOWN)
		return print_widest_rule(call, asking->question.reason);
	if (asking->without_rule == RULE_IS_OF_PROJECT)
		return strdup(". The project's .isthmus.json asks about it: only an answer to the "
			      "question, or a change of that file, allows it");
	return rules ? string_printf(": {\"permissions\": %s} in ~/.config/isthmus/tools.json or a "
				     "file given with --policy allows it, or --yes on the command "
				     "line",
			       rules)
		     : NULL;
}

/* Every refusal says how the user can allow it: clients answer questions by themselves, too. */
static int fail_asked(struct tool_call *call, const struct asking *asking, const char *advice,
	const char *refusal)
{
	cleanup_free char *way = print_way(call, asking);
	cleanup_free char *next =
		way ? string_printf("%s%s.%s", advice, way,
			      asking->is_allowed_by_project
				      ? " An \"allow\" in the project's .isthmus.json "
					"does not count: it can only restrict."
				      : "")
		    : NULL;

	return tool_fail(
		call, TOOL_PERMISSION_DENIED, next, "%s: %s.", refusal, asking->question.sentence);
}

static int append_shown(struct buffer *out, const char *before, const char *text)
{
	int r = buffer_append_string(out, before);

	return r < 0 ? r : visible_append(out, text, strlen(text), VISIBLE_INDENT | VISIBLE_BLANKS);
}

int permission_question_text(const struct permission_question *question, struct buffer *out)
{
	int r = append_shown(out, "", question->sentence);

	if (r == 0 && question->reason)
		r = append_shown(out, "\n(", question->reason);
	if (r == 0 && question->reason)
		r = buffer_append_string(out, ")");
	for (size_t i = 0; i < question->remember_count && r == 0; i++)
		r = append_shown(out,
			i ? ", " : "\nFor this session would be allowed: ", question->remember[i]);
	return r;
}

static int take_answer(
	struct tool_call *call, const struct asking *asking, enum permission_answer answer)
{
	static const char ask[] = "Ask the user to allow it";
	const struct permission_question *question = &asking->question;

	switch (answer) {
	case PERMISSION_ALWAYS:
		for (size_t i = 0; i < question->remember_count; i++)
			permissions_remember(call->session->permissions, call->tool->name,
				question->remember[i]);
		call->approved = true;
		return 0;
	case PERMISSION_ONCE:
		call->approved = true;
		return 0;
	case PERMISSION_NOBODY:
		return fail_asked(
			call, asking, ask, "This needs permission and there is nobody to ask");
	case PERMISSION_BUSY:
		return fail_asked(call, asking,
			"Wait until the user has answered some of the open questions, and call "
			"again; or ask the user to allow it",
			"This needs permission, and too many other questions wait for the user's "
			"answer");
	case PERMISSION_LATER:
		call->deferred = true;
		return tool_fail(call, TOOL_PERMISSION_DENIED, NULL, "The question is on its way.");
	case PERMISSION_UNANSWERED:
	case PERMISSION_NO:
		break;
	}
	if (tool_cancelled(call))
		return tool_fail_errno(call, -ECANCELED, "go on without permission", NULL);
	if (answer == PERMISSION_UNANSWERED)
		return fail_asked(
			call, asking, ask, "Nobody answered the question, so it is not allowed");
	return fail_asked(call, asking,
		"Do not try to reach the same in another way: go on without it, or ask the user, "
		"who "
		"can allow it",
		"The user did not allow it");
}

char *permission_literal(const char *text)
{
	char *literal = malloc(2 * strlen(text) + 1), *at = literal;

	if (!literal)
		return NULL;
	for (; *text; text++) {
		if (strchr("*?[]\\", *text))
			*at++ = '\\';
		*at++ = *text;
	}
	*at = '\0';
	return literal;
}

int permission_ask(
	struct tool_call *call, enum tool_level level, const char *subject, const char *sentence)
{
	cleanup_free char *literal = permission_literal(subject);
	const struct permission_subject one = {.text = subject, .remember = literal};

	return permission_ask_all(call, level, &one, 1, sentence, NULL);
}

/* The path that `path` leads to; NULL: the same path, or one that no tool opens.  0, -ENOMEM. */
static int leads_to(const struct files_root *root, const char *path, unsigned uses, char **ret_real)
{
	cleanup_free char *real = NULL;
	int r = files_path_led_to(root, path, !(uses & PERMISSION_LINK), &real);

	if (r == 0 && strcmp(real, path) != 0)
		*ret_real = steal_ptr(&real);
	return r == -ENOMEM ? r : 0;
}

static const char *tool_of_paths(const struct tool_call *call)
{
	return call->tool->uses ? call->tool->name : NULL;
}

/* By all names of what is there. */
static enum permission_action judge_path(const struct tool_call *call, const char *tool,
	enum tool_level level, unsigned uses, const char *path, const char *real)
{
	const struct permissions *permissions = call->session->permissions;
	enum permission_action verdict =
		permissions_path_verdict(permissions, tool, level, uses, path, real);
	enum permission_action other = permissions_other_names_verdict(
		permissions, &call->session->root, tool, uses, real ? real : path);

	return other > verdict ? other : verdict;
}

static void asking_done(struct asking *asking)
{
	for (size_t i = 0; asking->owned && i < asking->owned_count; i++)
		free(asking->owned[i]);
	free(asking->owned);
	free(asking->remember);
	cJSON_Delete(asking->rules);
	buffer_done(&asking->reason);
}

static void remember(struct asking *asking, const char *pattern, char *owned)
{
	size_t at = asking->question.remember_count++;

	asking->owned_count = asking->question.remember_count;
	asking->remember[at] = owned ? owned : pattern;
	asking->owned[at] = owned;
}

static void add_rule(struct asking *asking, const char *tool, const char *pattern)
{
	cJSON *rule = cJSON_CreateObject();

	cJSON_AddStringToObject(rule, "tool", tool);
	cJSON_AddStringToObject(rule, "pattern", pattern ? pattern : "");
	cJSON_AddStringToObject(rule, "action", "allow");
	cJSON_AddItemToArray(asking->rules, rule);
}

/* Notes what would allow a subject that asks. */
static void note_rules(const struct tool_call *call, const struct permission_subject *subject,
	struct asking *asking)
{
	const char *tool = subject->uses ? tool_of_paths(call) : call->tool->name;
	cleanup_free char *literal = permission_literal(subject->text);
	int by_project = permissions_project_verdict(
		call->session->permissions, tool, subject->uses, subject->text);

	asking->is_allowed_by_project =
		asking->is_allowed_by_project || by_project == PERMISSION_ALLOW;
	if (subject->must_ask)
		asking->without_rule = RULE_IS_UNKNOWN;
	else if (by_project == PERMISSION_ASK && !asking->without_rule)
		asking->without_rule = RULE_IS_OF_PROJECT;
	if (tool)
		add_rule(asking, tool,
			!subject->uses && subject->remember ? subject->remember : literal);
	if (!tool && subject->uses & PERMISSION_READS)
		add_rule(asking, "read", literal);
	if (!tool && subject->uses & PERMISSION_WRITES)
		add_rule(asking, "write", literal);
}

static enum permission_action judge_command(
	struct tool_call *call, enum tool_level level, const struct permission_subject *subject)
{
	struct permissions *permissions = call->session->permissions;
	const char *tool = call->tool->name;
	enum permission_action verdict = permissions_verdict(permissions, tool,
		subject->asks         ? TOOL_DANGEROUS
		: subject->only_reads ? TOOL_READ
				      : level,
		subject->text);
	enum permission_action plain = PERMISSION_ALLOW;

	/* TOOL_READ: for `plain` only rules count, not the level. */
	if (subject->plain)
		plain = permissions_verdict(permissions, tool, TOOL_READ, subject->plain);
	return plain > verdict ? plain : verdict;
}

/* Adds why a path asks: where it leads, and why that is guarded; each may be NULL. */
static void explain(const char *path, const char *real, const char *guarded, struct buffer *reason)
{
	if (!real && !guarded)
		return;
	buffer_printf(reason, "%s%s%s%s%s%s", reason->size ? "; " : "", path,
		real ? " leads to " : "", real ? real : "", guarded ? ": " : "",
		guarded ? guarded : "");
}

/* The caller frees `*ret_remember`. */
static enum permission_action judge_path_subject(struct tool_call *call, enum tool_level level,
	const struct permission_subject *subject, char **ret_remember, struct buffer *reason)
{
	const struct files_root *root = &call->session->root;
	cleanup_free char *real = NULL;
	const char *tool = tool_of_paths(call), *target, *guarded = NULL;
	enum permission_action verdict;

	if (leads_to(root, subject->text, subject->uses, &real) < 0)
		return PERMISSION_DENY;
	target = real ? real : subject->text;
	if (!tool)
		level = TOOL_READ; /* the command's own level is judged with the command */
	if (subject->uses & PERMISSION_WRITES)
		guarded = guard_path(root, target);
	if (guarded)
		level = TOOL_DANGEROUS;
	verdict = judge_path(call, tool, level, subject->uses, subject->text, real);
	if (verdict == PERMISSION_ASK && tool) {
		verdict = permissions_settled(call->session->permissions, tool, target);
		call->approved = call->approved || verdict == PERMISSION_ALLOW;
		*ret_remember = permission_literal(target);
	}
	if (verdict == PERMISSION_ASK)
		explain(subject->text, real, guarded, reason);
	return verdict;
}

/* Adds a subject to the question.  0; -1: a rule denies it (recorded). */
static int take_subject(struct tool_call *call, enum tool_level level,
	const struct permission_subject *subject, struct asking *asking)
{
	cleanup_free char *literal = NULL;
	const char *pattern;
	enum permission_action verdict =
		subject->uses ? judge_path_subject(call, level, subject, &literal, &asking->reason)
			      : judge_command(call, level, subject);

	if (verdict == PERMISSION_DENY)
		return fail_denied(call, subject->text);
	if (verdict == PERMISSION_ALLOW && !subject->must_ask)
		return 0;
	asking->ask = true;
	note_rules(call, subject, asking);
	pattern = subject->uses ? literal : subject->remember;
	if (pattern && !subject->must_ask)
		remember(asking, pattern, steal_ptr(&literal));
	else
		asking->lasting = false;
	return 0;
}

int permission_ask_all(struct tool_call *call, enum tool_level level,
	const struct permission_subject *subjects, size_t count, const char *sentence,
	const char *reason)
{
	struct asking asking cleanup_with(asking_done) = {
		.question = {.level = level, .sentence = sentence, .reason = reason},
		.remember = calloc(count + 1, sizeof(*asking.remember)),
		.owned = calloc(count + 1, sizeof(*asking.owned)),
		.rules = cJSON_CreateArray(),
		.lasting = true,
	};
	cleanup_free char *all_reasons = NULL;

	if (!asking.remember || !asking.owned || !asking.rules)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	if (!call->session->permissions)
		return 0;
	if (reason)
		buffer_append_string(&asking.reason, reason);
	for (size_t i = 0; i < count; i++)
		if (take_subject(call, level, &subjects[i], &asking) < 0)
			return -1;
	if (!asking.ask)
		return 0;
	asking.question.remember = asking.remember;
	if (!asking.lasting)
		asking.question.remember_count = 0;
	if (asking.reason.size)
		asking.question.reason = all_reasons = buffer_steal_string(&asking.reason);
	return take_answer(call, &asking,
		call->ask_permission
			? (enum permission_answer)call->ask_permission(call, &asking.question)
			: PERMISSION_NOBODY);
}

int permission_ask_path(struct tool_call *call, enum tool_level level, unsigned uses,
	const char *path, const char *sentence)
{
	const struct permission_subject one = {.text = path, .uses = uses};

	return permission_ask_all(call, level, &one, 1, sentence, NULL);
}

int permission_deny_path_early(struct tool_call *call, unsigned uses, const char *path)
{
	struct permissions *permissions = call->session->permissions;
	cleanup_free char *real = NULL;
	enum permission_action verdict;

	if (!permissions)
		return 0;
	if (leads_to(&call->session->root, path, uses, &real) < 0)
		return tool_fail_errno(call, -ENOMEM, "check the rules for", path);
	verdict = judge_path(call, call->tool->name, TOOL_READ, uses, path, real);
	if (verdict == PERMISSION_ASK)
		verdict = permissions_settled(permissions, call->tool->name, real ? real : path);
	call->asks_first = call->asks_first || verdict == PERMISSION_ASK;
	return verdict == PERMISSION_DENY ? fail_denied(call, path) : 0;
}

static bool takes_path(const struct tool *tool)
{
	const cJSON *properties =
		cJSON_GetObjectItemCaseSensitive(registry_input_schema(tool), "properties");

	return cJSON_GetObjectItemCaseSensitive(properties, "path") != NULL;
}

int permission_deny_early(struct tool_call *call)
{
	cleanup_free char *path = NULL;

	if (!call->session->permissions || !call->tool->uses || !takes_path(call->tool))
		return 0;
	if (tool_path(call, "path", &path) < 0)
		return -1;
	return permission_deny_path_early(call, call->tool->uses, path);
}

/* ---- Entries of directories ----------------------------------------------------------------- */

void permission_filter_init(struct permission_filter *filter, const struct tool_call *call,
	unsigned uses, const char *path)
{
	*filter =
		(struct permission_filter){.call = call, .uses = uses, .base_length = strlen(path)};
	if (!call->session->permissions)
		return;
	filter->lacks_memory = leads_to(&call->session->root, path, 0, &filter->real_base) < 0;
	filter->has_names = permissions_other_names_verdict(call->session->permissions,
				    &call->session->root, NULL, 0, NULL) != PERMISSION_ALLOW;
}

void permission_filter_done(struct permission_filter *filter)
{
	free(filter->real_base);
}

enum permission_action permission_filter_verdict(
	const struct permission_filter *filter, enum tool_level level, const char *path)
{
	const struct tool_call *call = filter->call;
	const char *rest = path + filter->base_length;
	cleanup_free char *real = NULL;

	if (!call->session->permissions)
		return PERMISSION_ALLOW;
	if (filter->lacks_memory)
		return PERMISSION_DENY;
	if (filter->real_base) {
		real = path_join(filter->real_base, rest + (*rest == '/'));
		if (!real)
			return PERMISSION_DENY;
	}
	if (filter->has_names)
		return judge_path(call, tool_of_paths(call), level, filter->uses, path, real);
	return permissions_path_verdict(
		call->session->permissions, tool_of_paths(call), level, filter->uses, path, real);
}

bool permission_filter_shows(struct permission_filter *filter, const char *path)
{
	enum permission_action verdict = permission_filter_verdict(filter, TOOL_READ, path);

	if (verdict == PERMISSION_ALLOW || (verdict == PERMISSION_ASK && filter->call->approved))
		return true;
	atomic_fetch_add(&filter->left_out, 1);
	return false;
}

void permission_filter_report(const struct permission_filter *filter, struct tool_call *call)
{
	unsigned long long left_out = atomic_load(&filter->left_out);
	const char *before =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(call->data, "notice"));
	struct buffer notice cleanup_buffer = {0};
	cleanup_free char *text = NULL;

	if (!left_out)
		return;
	if (before)
		buffer_printf(&notice, "%s\n", before);
	buffer_printf(
		&notice, "[%llu entr%s left out by rules.]", left_out, left_out == 1 ? "y" : "ies");
	text = buffer_steal_string(&notice);
	cJSON_DeleteItemFromObjectCaseSensitive(call->data, "notice");
	cJSON_AddStringToObject(call->data, "notice", text ? text : "");
	cJSON_AddNumberToObject(call->data, "left_out", (double)left_out);
	tool_text(call, "%s[%llu entr%s left out by rules.]",
		call->text.size && call->text.data[call->text.size - 1] != '\n' ? "\n" : "",
		left_out, left_out == 1 ? "y" : "ies");
}

static bool may_name(void *user, const char *path)
{
	return permission_filter_shows(user, path);
}

char *permission_near_names(const struct tool_call *call, const char *path)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	struct permission_filter filter cleanup_filter = {0};

	if (!parent)
		return NULL;
	permission_filter_init(&filter, call, PERMISSION_READS, parent);
	return files_near_names(&call->session->root, path, may_name, &filter);
}

void permission_take_look_alike(struct tool_call *call)
{
	const struct files_root *root = &call->session->root;
	struct permission_filter filter cleanup_filter = {0};
	cleanup_free char *path = NULL, *found = NULL;
	struct buffer name cleanup_buffer = {0};
	const char *given = tool_string(call, "path");
	struct stat status;

	if (!given || !(call->tool->uses & PERMISSION_READS) || !takes_path(call->tool) ||
		files_resolve(root, given, &path) < 0 ||
		files_lstat(root, path, &status) != -ENOENT)
		return;
	permission_filter_init(&filter, call, PERMISSION_READS, "");
	found = files_look_alike(root, path, may_name, &filter);
	if (!found || looks_escape(found, &name) < 0 || buffer_append(&name, "", 1) < 0)
		return;
	cJSON_ReplaceItemInObjectCaseSensitive(call->arguments, "path", cJSON_CreateString(found));
	tool_remark(call,
		"[There is no \"%s\", but one name that looks like it, which "
		"was used: \"%s\".]",
		path, (const char *)name.data);
}
