#include "tools/permission.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "ops/support/path.h"
#include "ops/support/visible.h"

enum { FILE_MAX_BYTES = 1 << 20, RULES_MAX = 10000, LINKS_MAX = 16 };

struct rule {
	char *tool;
	char *pattern;
	enum permission_action action;
};

struct rules {
	struct rule *list;
	size_t count;
};

struct permissions {
	pthread_mutex_t lock;
	struct rules sources[2]; /* by enum permission_source; do not change once loaded */
	struct rules session;    /* guarded by lock */
};

int permissions_new(struct permissions **ret_permissions)
{
	struct permissions *permissions = calloc(1, sizeof(*permissions));

	if (!permissions)
		return -ENOMEM;
	pthread_mutex_init(&permissions->lock, NULL);
	*ret_permissions = permissions;
	return 0;
}

static void rules_done(struct rules *rules)
{
	for (size_t i = 0; i < rules->count; i++) {
		free(rules->list[i].tool);
		free(rules->list[i].pattern);
	}
	free(rules->list);
}

void permissions_free(struct permissions *permissions)
{
	if (!permissions)
		return;
	for (size_t i = 0; i < array_size(permissions->sources); i++)
		rules_done(&permissions->sources[i]);
	rules_done(&permissions->session);
	pthread_mutex_destroy(&permissions->lock);
	free(permissions);
}

static int rules_add(
	struct rules *rules, const char *tool, const char *pattern, enum permission_action action)
{
	struct rule *grown;

	if (rules->count >= RULES_MAX)
		return -E2BIG;
	grown = reallocarray(rules->list, rules->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	rules->list = grown;
	grown[rules->count] = (struct rule){strdup(tool), strdup(pattern), action};
	rules->count++;
	return grown[rules->count - 1].tool && grown[rules->count - 1].pattern ? 0 : -ENOMEM;
}

int permissions_add(struct permissions *permissions, enum permission_source source,
	const char *tool, const char *pattern, enum permission_action action)
{
	return rules_add(&permissions->sources[source], tool, pattern, action);
}

/* ---- Files ------------------------------------------------------------------------- */

static int parse_action(const char *word, enum permission_action *ret_action)
{
	static const char *const words[] = {
		[PERMISSION_ALLOW] = "allow", [PERMISSION_ASK] = "ask", [PERMISSION_DENY] = "deny"};

	for (size_t i = 0; word && i < array_size(words); i++) {
		if (strcmp(word, words[i]) == 0) {
			*ret_action = (enum permission_action)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* A mistyped key must not turn a rule into one about everything. */
static const char *unknown_key(const cJSON *object, const char *const *known, size_t count)
{
	const cJSON *member;

	cJSON_ArrayForEach(member, object)
	{
		size_t i = 0;

		while (i < count && strcmp(member->string, known[i]) != 0)
			i++;
		if (i == count)
			return member->string;
	}
	return NULL;
}

/* A rule that can never match would deny nothing. */
static bool is_about_a_tool(const char *pattern)
{
	for (size_t i = 0; registry_at(i); i++)
		if (fnmatch(pattern, registry_at(i)->name, 0) == 0)
			return true;
	return false;
}

static int parse_rule(struct permissions *permissions, enum permission_source source,
	const cJSON *item, struct buffer *problem)
{
	const char *tool = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "tool"));
	static const char *const keys[] = {"tool", "pattern", "action"};
	const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(item, "pattern");
	enum permission_action action;

	if (!tool || unknown_key(item, keys, array_size(keys)) ||
		(pattern && !cJSON_IsString(pattern)) ||
		parse_action(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "action")),
			&action) < 0) {
		cleanup_free char *text = cJSON_PrintUnformatted(item);

		buffer_printf(problem,
			"each rule has \"tool\", \"action\" (allow, ask or deny) and, if it is "
			"not about everything, \"pattern\", and nothing else; this one is "
			"wrong: %s",
			text ? text : "");
		return -EINVAL;
	}
	if (!is_about_a_tool(tool)) {
		buffer_printf(problem, "there is no tool \"%s\"; the tools are", tool);
		for (size_t i = 0; registry_at(i); i++)
			buffer_printf(problem, "%s %s", i ? "," : "", registry_at(i)->name);
		return -EINVAL;
	}
	return permissions_add(
		permissions, source, tool, pattern ? pattern->valuestring : "*", action);
}

int permissions_parse(struct permissions *permissions, enum permission_source source,
	const char *json, size_t size, struct buffer *problem)
{
	cJSON *root = cJSON_ParseWithLength(json, size);
	const cJSON *list =
		cJSON_IsArray(root) ? root : cJSON_GetObjectItemCaseSensitive(root, "permissions");
	static const char *const keys[] = {"permissions"};
	const char *unknown =
		cJSON_IsObject(root) ? unknown_key(root, keys, array_size(keys)) : NULL;
	const cJSON *item;
	int r = 0;

	if (!cJSON_IsObject(root) && !cJSON_IsArray(root)) {
		buffer_append_string(problem, "it is not JSON");
		r = -EINVAL;
	} else if (unknown) {
		buffer_printf(problem, "it has \"%s\", but only \"permissions\" is known", unknown);
		r = -EINVAL;
	} else if (list && !cJSON_IsArray(list)) {
		buffer_append_string(problem, "\"permissions\" must be a list of rules");
		r = -EINVAL;
	}
	cJSON_ArrayForEach(item, list)
	{
		if (r == 0)
			r = parse_rule(permissions, source, item, problem);
	}
	cJSON_Delete(root);
	return r;
}

static int read_all(int fd, struct buffer *content)
{
	for (;;) {
		ssize_t got;

		if (content->size > FILE_MAX_BYTES)
			return -EFBIG;
		if (buffer_reserve(content, 16384) < 0)
			return -ENOMEM;
		got = read(fd, content->data + content->size, 16384);
		if (got == 0)
			return 0;
		if (got < 0)
			return -errno;
		content->size += (size_t)got;
	}
}

/* Takes ownership of `fd`. */
static int load_fd(struct permissions *permissions, enum permission_source source, int fd,
	const char *name, struct buffer *problem)
{
	struct buffer content cleanup_buffer = {0}, words cleanup_buffer = {0};
	int r = read_all(fd, &content);

	close(fd);
	if (r == 0)
		r = permissions_parse(
			permissions, source, (const char *)content.data, content.size, &words);
	if (r < 0)
		buffer_printf(problem, "the permissions in \"%s\" cannot be used: %.*s", name,
			words.size ? (int)words.size : (int)strlen(strerror(-r)),
			words.size ? (const char *)words.data : strerror(-r));
	return r;
}

static int load_path(
	struct permissions *permissions, const char *path, bool required, struct buffer *problem)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		return load_fd(permissions, PERMISSION_FROM_USER, fd, path, problem);
	if (errno == ENOENT && !required)
		return 0;
	buffer_printf(problem, "cannot read \"%s\": %s", path, strerror(errno));
	return -errno;
}

static char *user_file(void)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *path = NULL;

	if (config && *config == '/')
		return asprintf(&path, "%s/isthmus/tools.json", config) < 0 ? NULL : path;
	if (home && *home == '/')
		return asprintf(&path, "%s/.config/isthmus/tools.json", home) < 0 ? NULL : path;
	return NULL;
}

int permissions_load(struct permissions *permissions, const struct files_root *root,
	const char *policy, struct buffer *problem)
{
	cleanup_free char *user = user_file();
	int r = user ? load_path(permissions, user, false, problem) : 0, fd;

	if (r == 0 && policy)
		r = load_path(permissions, policy, true, problem);
	if (r < 0)
		return r;
	fd = files_open(root, ".isthmus.json", O_RDONLY | O_NONBLOCK, 0);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0) {
		buffer_printf(
			problem, "cannot read the project's .isthmus.json: %s", strerror(-fd));
		return fd;
	}
	return load_fd(permissions, PERMISSION_FROM_PROJECT, fd, ".isthmus.json", problem);
}

/* ---- Verdicts ----------------------------------------------------------------------------- */

static bool pattern_matches(const char *pattern, const char *subject)
{
	size_t length = strlen(pattern);

	if (fnmatch(pattern, subject, 0) == 0)
		return true;
	/* "git *" is also about plain "git". */
	return length > 2 && strcmp(pattern + length - 2, " *") == 0 &&
	       strlen(subject) == length - 2 && strncmp(pattern, subject, length - 2) == 0;
}

static enum permission_action judge(const struct rules *rules, const char *tool,
	const char *subject, enum permission_action fallback)
{
	for (size_t i = rules->count; i-- > 0;) {
		const struct rule *rule = &rules->list[i];

		if (fnmatch(rule->tool, tool, 0) == 0 && pattern_matches(rule->pattern, subject))
			return rule->action;
	}
	return fallback;
}

enum permission_action permissions_verdict(struct permissions *permissions, const char *tool,
	enum tool_level level, const char *subject)
{
	enum permission_action user = judge(&permissions->sources[PERMISSION_FROM_USER], tool,
		subject, level == TOOL_DANGEROUS ? PERMISSION_ASK : PERMISSION_ALLOW);
	enum permission_action project = judge(
		&permissions->sources[PERMISSION_FROM_PROJECT], tool, subject, PERMISSION_ALLOW);
	enum permission_action verdict = project > user ? project : user;

	if (verdict == PERMISSION_ASK) {
		pthread_mutex_lock(&permissions->lock);
		verdict = judge(&permissions->session, tool, subject, PERMISSION_ASK);
		pthread_mutex_unlock(&permissions->lock);
	}
	return verdict;
}

bool permissions_allow_all(struct permissions *permissions, const char *tool)
{
	bool allowed = !permissions;

	for (size_t i = 0; permissions && i < array_size(permissions->sources); i++) {
		const struct rules *rules = &permissions->sources[i];

		for (size_t j = 0; j < rules->count; j++) {
			if (fnmatch(rules->list[j].tool, tool, 0) != 0)
				continue;
			if (rules->list[j].action != PERMISSION_ALLOW)
				return false;
			allowed = allowed || (i == PERMISSION_FROM_USER &&
						     strcmp(rules->list[j].pattern, "*") == 0);
		}
	}
	return allowed;
}

void permissions_remember(struct permissions *permissions, const char *tool, const char *pattern)
{
	pthread_mutex_lock(&permissions->lock);
	/* Without memory, or past the bound, the question comes again: no harm. */
	(void)!rules_add(&permissions->session, tool, pattern, PERMISSION_ALLOW);
	pthread_mutex_unlock(&permissions->lock);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static int fail_denied(struct tool_call *call, const char *subject)
{
	return tool_fail(call, TOOL_PERMISSION_DENIED, NULL, "A rule denies %s for \"%s\".",
		call->tool->name, subject);
}

static int fail_nobody(struct tool_call *call, const char *sentence)
{
	return tool_fail(call, TOOL_PERMISSION_DENIED,
		"Ask the user to allow it: with a rule such as {\"tool\": \"bash\", \"pattern\": "
		"\"make *\", \"action\": \"allow\"} in ~/.config/isthmus/tools.json or a file "
		"given with "
		"--policy, or with --yes on the command line.",
		"This needs permission and there is nobody to ask: %s.", sentence);
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

static int take_answer(struct tool_call *call, const struct permission_question *question,
	enum permission_answer answer)
{
	switch (answer) {
	case PERMISSION_ALWAYS:
		for (size_t i = 0; i < question->remember_count; i++)
			permissions_remember(call->session->permissions, call->tool->name,
				question->remember[i]);
		return 0;
	case PERMISSION_ONCE:
		return 0;
	case PERMISSION_NOBODY:
		return fail_nobody(call, question->sentence);
	case PERMISSION_LATER:
		call->deferred = true;
		return tool_fail(call, TOOL_PERMISSION_DENIED, NULL, "The question is on its way.");
	case PERMISSION_NO:
		break;
	}
	if (tool_cancelled(call))
		return tool_fail_errno(call, -ECANCELED, "go on without permission", NULL);
	return tool_fail(call, TOOL_PERMISSION_DENIED, NULL, "The user did not allow it: %s.",
		question->sentence);
}

int permission_ask_all(struct tool_call *call, enum tool_level level,
	const struct permission_subject *subjects, size_t count, const char *sentence,
	const char *reason)
{
	struct permissions *permissions = call->session->permissions;
	cleanup_free const char **remember = calloc(count + 1, sizeof(*remember));
	struct permission_question question = {
		.level = level, .sentence = sentence, .reason = reason, .remember = remember};
	bool ask = false, lasting = true;

	if (!remember)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	if (!permissions)
		return 0;
	for (size_t i = 0; i < count; i++) {
		enum permission_action verdict =
			permissions_verdict(permissions, call->tool->name, level, subjects[i].text);
		enum permission_action plain = PERMISSION_ALLOW;

		/* Of a lower level: only what a rule says counts. */
		if (subjects[i].plain)
			plain = permissions_verdict(
				permissions, call->tool->name, TOOL_READ, subjects[i].plain);
		verdict = plain > verdict ? plain : verdict;
		if (verdict == PERMISSION_DENY)
			return fail_denied(call, subjects[i].text);
		if (verdict == PERMISSION_ALLOW && !subjects[i].must_ask)
			continue;
		ask = true;
		if (subjects[i].remember && !subjects[i].must_ask)
			remember[question.remember_count++] = subjects[i].remember;
		else
			lasting = false;
	}
	if (!ask)
		return 0;
	if (!lasting)
		question.remember_count = 0;
	return take_answer(call, &question,
		call->ask_permission ? (enum permission_answer)call->ask_permission(call, &question)
				     : PERMISSION_NOBODY);
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

/* What the link at `path` names, as a path below the root; NULL: no link, or outside. */
static char *link_target(const struct files_root *root, const char *path)
{
	cleanup_fd int fd = files_open(root, path, O_PATH | O_NOFOLLOW, 0);
	cleanup_free char *parent = strndup(path, path_parent_length(path)), *joined = NULL;
	char target[PATH_MAX], *named = NULL;
	ssize_t length = fd < 0 || !parent ? -1 : readlinkat(fd, "", target, sizeof(target) - 1);

	if (length <= 0)
		return NULL;
	target[length] = '\0';
	if (target[0] != '/')
		joined = path_join(parent, target);
	return files_resolve(root, joined ? joined : target, &named) < 0 ? NULL : named;
}

/* Where the path leads, also when its last names, or what a link names, do not exist yet.
 * NULL: not known. */
static char *real_path(const struct files_root *root, const char *path, bool follow, int links)
{
	size_t length = follow ? strlen(path) : path_parent_length(path);

	for (;;) {
		cleanup_free char *above = strndup(path, length), *real = NULL, *target = NULL;
		const char *rest = path + length + (path[length] == '/');
		int r = above ? files_real_path(root, above, &real) : -ENOMEM;

		if (r == -ENOENT && links < LINKS_MAX)
			target = link_target(root, above);
		if (r == 0)
			return path_join(real, rest);
		if (target) {
			cleanup_free char *whole = path_join(target, rest);

			return whole ? real_path(root, whole, true, links + 1) : NULL;
		}
		if (r != -ENOENT || !length)
			return NULL;
		length = path_parent_length(above);
	}
}

bool permission_guards(const char *path)
{
	while (*path) {
		size_t length = strcspn(path, "/");

		if (length == 4 && strncmp(path, ".git", 4) == 0)
			return true;
		if (strcmp(path, ".isthmus.json") == 0)
			return true;
		path += length + (path[length] == '/');
	}
	return false;
}

int permission_ask_path(struct tool_call *call, enum tool_level level, const char *path,
	bool follow, const char *sentence)
{
	cleanup_free char *real = real_path(&call->session->root, path, follow, 0);
	cleanup_free char *literal = permission_literal(path);
	const struct permission_subject one = {.text = path,
		.plain = real && strcmp(real, path) != 0 ? real : NULL,
		.remember = literal};
	const char *reason = NULL;

	if (level == TOOL_MODIFY && permission_guards(real ? real : path)) {
		level = TOOL_DANGEROUS;
		reason = "it changes what git runs, or the rules of this project";
	}
	return permission_ask_all(call, level, &one, 1, sentence, reason);
}
