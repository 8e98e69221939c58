#include "tools/permission/permission.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "tools/base/registry.h"
#include "tools/syntax/syntax.h"

enum { FILE_MAX_BYTES = 1 << 20, RULES_MAX = 10000 };

struct rule {
	char *tool;
	char *pattern;
	char *path_pattern; /* `pattern` without a leading "./" and a trailing "/" */
	enum permission_action action;
};

struct rules {
	struct rule *list;
	size_t count;
};

struct permissions {
	pthread_mutex_t lock;
	struct rules sources[2]; /* by enum permission_source; never change after loading */
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

static void rule_done(struct rule *rule)
{
	free(rule->tool);
	free(rule->pattern);
	free(rule->path_pattern);
}

static void rules_done(struct rules *rules)
{
	for (size_t i = 0; i < rules->count; i++)
		rule_done(&rules->list[i]);
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

static char *make_path_pattern(const char *pattern)
{
	size_t length;

	while (strncmp(pattern, "./", 2) == 0)
		pattern += 2;
	length = strlen(pattern);
	while (length > 1 && pattern[length - 1] == '/')
		length--;
	return strndup(pattern, length);
}

static int rules_add(
	struct rules *rules, const char *tool, const char *pattern, enum permission_action action)
{
	struct rule *grown, *rule;

	if (rules->count >= RULES_MAX)
		return -E2BIG;
	grown = reallocarray(rules->list, rules->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	rules->list = grown;
	rule = &grown[rules->count];
	*rule = (struct rule){strdup(tool), strdup(pattern), make_path_pattern(pattern), action};
	if (!rule->tool || !rule->pattern || !rule->path_pattern) {
		rule_done(rule);
		return -ENOMEM;
	}
	rules->count++;
	return 0;
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

/* The first unknown key; NULL: none.  A mistyped "pattern" would turn a rule into one about
 * everything. */
static const char *unknown_key(const cJSON *object, const char *const *known, size_t count)
{
	const cJSON *member;

	cJSON_ArrayForEach(member, object) {
		size_t i = 0;

		while (i < count && strcmp(member->string, known[i]) != 0)
			i++;
		if (i == count)
			return member->string;
	}
	return NULL;
}

/* Whether the pattern matches any tool: a rule that cannot match would silently deny nothing. */
static bool is_about_a_tool(const char *pattern)
{
	for (size_t i = 0; registry_at(i); i++)
		if (fnmatch(pattern, registry_at(i)->name, 0) == 0)
			return true;
	return false;
}

static int parse_rule(struct permissions *permissions, enum permission_source source,
	const cJSON *item, unsigned number, struct buffer *problem)
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
			"not about everything, \"pattern\", and nothing else; rule %u is "
			"wrong: %s",
			number, text ? text : "");
		return -EINVAL;
	}
	if (!is_about_a_tool(tool)) {
		buffer_printf(
			problem, "rule %u: there is no tool \"%s\"; the tools are", number, tool);
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
	struct syntax_error error = {0};
	/* cJSON accepts more than JSON, and does not say where it stopped. */
	bool is_json = syntax_json(json, size, 0, &error) == 0;
	cJSON *root = is_json ? cJSON_ParseWithLength(json, size) : NULL;
	const cJSON *list =
		cJSON_IsArray(root) ? root : cJSON_GetObjectItemCaseSensitive(root, "permissions");
	/* The other keys are read by tools/custom/, from the user's file only. */
	static const char *const keys[] = {"permissions", "tools", "compat", "levels", "exec"};
	size_t known = source == PERMISSION_FROM_USER ? array_size(keys) : 1;
	const char *unknown = cJSON_IsObject(root) ? unknown_key(root, keys, known) : NULL;
	const cJSON *item;
	unsigned number = 0;
	int r = 0;

	if (error.line) {
		buffer_printf(problem, "it is not valid JSON at line %zu, column %zu: %s",
			error.line, error.column, error.message);
		r = -EINVAL;
	} else if (!cJSON_IsObject(root) && !cJSON_IsArray(root)) {
		buffer_append_string(problem, "it is neither a JSON object nor an array");
		r = -EINVAL;
	} else if (unknown) {
		buffer_printf(problem, "it has \"%s\", but only \"permissions\" is known", unknown);
		r = -EINVAL;
	} else if (list && !cJSON_IsArray(list)) {
		buffer_append_string(problem, "\"permissions\" must be a list of rules");
		r = -EINVAL;
	}
	cJSON_ArrayForEach(item, list) {
		number++;
		if (r == 0)
			r = parse_rule(permissions, source, item, number, problem);
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "tools")) {
		if (source == PERMISSION_FROM_USER && cJSON_IsString(item))
			guard_add(item->valuestring);
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
	struct buffer content cleanup_buffer = {0}, message cleanup_buffer = {0};
	int r = read_all(fd, &content);

	close(fd);
	if (r == 0)
		r = permissions_parse(
			permissions, source, (const char *)content.data, content.size, &message);
	if (r < 0)
		buffer_printf(problem, "the permissions in \"%s\" cannot be used: %.*s", name,
			message.size ? (int)message.size : (int)strlen(strerror(-r)),
			message.size ? (const char *)message.data : strerror(-r));
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

/* Makes the pattern of a path below the root relative to it: rules may have absolute paths, or
 * paths that begin with "/" or "~/". */
static int count_from_root(struct rule *rule, const char *root)
{
	const char *home = getenv("HOME"), *pattern = rule->path_pattern;
	cleanup_free char *whole = NULL;
	size_t length = strlen(root);
	char *shorter;

	if (strncmp(pattern, "~/", 2) == 0 && home && *home == '/') {
		whole = path_join(home, pattern + 2);
		if (!whole)
			return -ENOMEM;
		pattern = whole;
	}
	if (*pattern != '/' || !pattern[1])
		return 0;
	if (path_is_within(pattern, root) && pattern[length])
		pattern += length;
	shorter = strdup(pattern + 1);
	if (!shorter)
		return -ENOMEM;
	free(rule->path_pattern);
	rule->path_pattern = shorter;
	return 0;
}

static int count_all_from_root(struct rules *rules, const struct files_root *root)
{
	int r = 0;

	for (size_t i = 0; i < rules->count && r == 0; i++)
		r = count_from_root(&rules->list[i], root->path);
	return r;
}

int permissions_load(struct permissions *permissions, const struct files_root *root,
	const char *policy, struct buffer *problem)
{
	cleanup_free char *user = user_file();
	int r = user ? load_path(permissions, user, false, problem) : 0;

	if (policy)
		guard_add(policy);
	if (r == 0 && policy)
		r = load_path(permissions, policy, true, problem);
	return r < 0 ? r : count_all_from_root(&permissions->sources[PERMISSION_FROM_USER], root);
}

int permissions_load_project(
	struct permissions *permissions, const struct files_root *root, struct buffer *problem)
{
	int fd = files_open(root, ".isthmus.json", O_RDONLY | O_NONBLOCK, 0), r;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0) {
		buffer_printf(
			problem, "cannot read the project's .isthmus.json: %s", strerror(-fd));
		return fd;
	}
	r = load_fd(permissions, PERMISSION_FROM_PROJECT, fd, ".isthmus.json", problem);
	return r < 0 ? r
		     : count_all_from_root(&permissions->sources[PERMISSION_FROM_PROJECT], root);
}

/* ---- Verdicts ----------------------------------------------------------------------------- */

static bool pattern_matches(const char *pattern, const char *subject)
{
	size_t length = strlen(pattern);

	if (fnmatch(pattern, subject, 0) == 0)
		return true;
	/* "git *" also matches "git". */
	return length > 2 && strcmp(pattern + length - 2, " *") == 0 &&
	       strlen(subject) == length - 2 && strncmp(pattern, subject, length - 2) == 0;
}

/* Whether the rule matches the subject.  One that asks or denies also matches everything in a
 * directory that it names. */
static bool rule_is_about(const struct rule *rule, const char *subject, bool is_path)
{
	const char *pattern = rule->path_pattern;

	if (!is_path || rule->action == PERMISSION_ALLOW)
		return pattern_matches(rule->pattern, subject);
	if (fnmatch(pattern, subject, FNM_LEADING_DIR) == 0)
		return true;
	return strncmp(pattern, "**/", 3) == 0 &&
	       fnmatch(pattern + 3, subject, FNM_LEADING_DIR) == 0;
}

static enum permission_action judge(const struct rules *rules, const char *tool,
	const char *subject, bool is_path, enum permission_action fallback)
{
	for (size_t i = rules->count; i-- > 0;) {
		const struct rule *rule = &rules->list[i];

		if (fnmatch(rule->tool, tool, 0) == 0 && rule_is_about(rule, subject, is_path))
			return rule->action;
	}
	return fallback;
}

static enum permission_action stricter(enum permission_action a, enum permission_action b)
{
	return a > b ? a : b;
}

/* The stricter verdict of both sources.  `fallback`: the user's verdict without a rule. */
static enum permission_action judge_all(const struct permissions *permissions, const char *tool,
	const char *subject, bool is_path, enum permission_action fallback)
{
	return stricter(judge(&permissions->sources[PERMISSION_FROM_USER], tool, subject, is_path,
				fallback),
		judge(&permissions->sources[PERMISSION_FROM_PROJECT], tool, subject, is_path,
			PERMISSION_ALLOW));
}

enum permission_action permissions_settled(
	struct permissions *permissions, const char *tool, const char *subject)
{
	enum permission_action verdict;

	pthread_mutex_lock(&permissions->lock);
	verdict = judge(&permissions->session, tool, subject, false, PERMISSION_ASK);
	pthread_mutex_unlock(&permissions->lock);
	return verdict;
}

static enum permission_action fallback_of(enum tool_level level)
{
	return level == TOOL_DANGEROUS ? PERMISSION_ASK : PERMISSION_ALLOW;
}

enum permission_action permissions_verdict(struct permissions *permissions, const char *tool,
	enum tool_level level, const char *subject)
{
	enum permission_action verdict =
		judge_all(permissions, tool, subject, false, fallback_of(level));

	return verdict == PERMISSION_ASK ? permissions_settled(permissions, tool, subject)
					 : verdict;
}

/* The verdict on a path and on the target of its links; for the target only rules count, not
 * `fallback`. */
static enum permission_action judge_path(const struct permissions *permissions, const char *tool,
	const char *path, const char *real, enum permission_action fallback)
{
	enum permission_action verdict = judge_all(permissions, tool, path, true, fallback);

	return real ? stricter(verdict, judge_all(permissions, tool, real, true, PERMISSION_ALLOW))
		    : verdict;
}

enum permission_action permissions_path_verdict(const struct permissions *permissions,
	const char *tool, enum tool_level level, unsigned uses, const char *path, const char *real)
{
	enum permission_action verdict = PERMISSION_ALLOW, fallback = fallback_of(level);

	if (tool)
		verdict = judge_path(permissions, tool, path, real, fallback);
	if (uses & PERMISSION_READS)
		verdict = stricter(
			verdict, judge_path(permissions, "read", path, real, PERMISSION_ALLOW));
	if (uses & PERMISSION_WRITES)
		verdict = stricter(verdict, judge_path(permissions, "write", path, real,
						    tool ? PERMISSION_ALLOW : fallback));
	if (uses & PERMISSION_DELETES)
		verdict = stricter(
			verdict, judge_path(permissions, "delete", path, real, PERMISSION_ALLOW));
	return verdict;
}

int permissions_project_verdict(
	const struct permissions *permissions, const char *tool, unsigned uses, const char *subject)
{
	const char *const as[] = {tool, uses & PERMISSION_READS ? "read" : NULL,
		uses & PERMISSION_WRITES ? "write" : NULL};
	const struct rules *rules = &permissions->sources[PERMISSION_FROM_PROJECT];
	int verdict = -1;

	for (size_t i = 0; i < array_size(as); i++)
		for (size_t j = rules->count; as[i] && j-- > 0;) {
			const struct rule *rule = &rules->list[j];

			if (fnmatch(rule->tool, as[i], 0) != 0 ||
				!rule_is_about(rule, subject, uses != 0))
				continue;
			if ((int)rule->action > verdict)
				verdict = (int)rule->action;
			break;
		}
	return verdict;
}

/* The only path that the pattern matches.  1, with `*ret_path`; 0: it has wildcards; -ENOMEM. */
static int only_path(const char *pattern, char **ret_path)
{
	cleanup_free char *path = malloc(strlen(pattern) + 1);
	char *at = path;

	if (!path)
		return -ENOMEM;
	for (; *pattern; pattern++) {
		if (strchr("*?[", *pattern))
			return 0;
		pattern += *pattern == '\\' && pattern[1];
		*at++ = *pattern;
	}
	*at = '\0';
	*ret_path = steal_ptr(&path);
	return 1;
}

/* The file that the rule names without wildcards, if it has several links.  1, 0, -ENOMEM. */
static int named_file(const struct rule *rule, const struct files_root *root, char **ret_path,
	struct stat *ret_status)
{
	cleanup_free char *path = NULL;
	int r = rule->action == PERMISSION_ALLOW ? 0 : only_path(rule->path_pattern, &path);

	if (r <= 0)
		return r;
	if (files_lstat(root, path, ret_status) < 0 || !S_ISREG(ret_status->st_mode) ||
		ret_status->st_nlink < 2)
		return 0;
	*ret_path = steal_ptr(&path);
	return 1;
}

enum permission_action permissions_other_names_verdict(const struct permissions *permissions,
	const struct files_root *root, const char *tool, unsigned uses, const char *path)
{
	enum permission_action verdict = PERMISSION_ALLOW;
	struct stat here = {0}, there;
	bool is_known = false;

	for (size_t i = 0; i < array_size(permissions->sources); i++) {
		const struct rules *rules = &permissions->sources[i];

		for (size_t j = 0; j < rules->count; j++) {
			cleanup_free char *other = NULL;
			int r = named_file(&rules->list[j], root, &other, &there);

			if (r < 0)
				return PERMISSION_DENY;
			if (r == 0)
				continue;
			if (!path)
				return PERMISSION_ASK;
			if (!is_known && files_lstat(root, path, &here) < 0)
				return verdict;
			is_known = true;
			if (here.st_ino == there.st_ino && here.st_dev == there.st_dev)
				verdict = stricter(
					verdict, permissions_path_verdict(permissions, tool,
							 TOOL_READ, uses, other, NULL));
		}
	}
	return verdict;
}

bool permissions_restrict(const struct permissions *permissions, const char *tool)
{
	for (size_t i = 0; i < array_size(permissions->sources); i++) {
		const struct rules *rules = &permissions->sources[i];

		for (size_t j = 0; j < rules->count; j++)
			if (rules->list[j].action != PERMISSION_ALLOW &&
				fnmatch(rules->list[j].tool, tool, 0) == 0)
				return true;
	}
	return false;
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

static bool pattern_begins(const char *pattern, const char *name)
{
	for (; *name; name++, pattern++) {
		pattern += *pattern == '\\';
		if (*pattern != *name)
			return false;
	}
	return strchr("/:", *pattern) != NULL;
}

bool permissions_name(const struct permissions *permissions, const char *tool, const char *subject,
	const char *name)
{
	const struct rules *rules = &permissions->sources[PERMISSION_FROM_USER];

	for (size_t i = rules->count; i-- > 0;) {
		const struct rule *rule = &rules->list[i];

		if (fnmatch(rule->tool, tool, 0) != 0 || !rule_is_about(rule, subject, false))
			continue;
		return rule->action == PERMISSION_ALLOW && pattern_begins(rule->pattern, name);
	}
	return false;
}

void permissions_remember(struct permissions *permissions, const char *tool, const char *pattern)
{
	pthread_mutex_lock(&permissions->lock);
	/* A failure is harmless: the question is asked again. */
	(void)!rules_add(&permissions->session, tool, pattern, PERMISSION_ALLOW);
	pthread_mutex_unlock(&permissions->lock);
}
