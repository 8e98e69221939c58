#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "ops/support/path.h"
#include "tools/permission/guard_internal.h"

enum { ENTRIES_MAX = 20000, GUARDED_ENTRIES_MAX = 1000, GUARDED_DEPTH_MAX = 4, LINKS_MAX = 16 };

/* ---- Bare repositories ------------------------------------------------------------------ */

/* Whether the directory has `name`, or will have it: `next` is about to be created in it. */
static bool will_have(const struct files_root *root, const char *directory, const char *name,
	const char *next, size_t next_size)
{
	cleanup_free char *path = NULL;
	struct stat status;

	if (strlen(name) == next_size && strncasecmp(name, next, next_size) == 0)
		return true;
	path = path_join(directory, name);
	return path && files_lstat(root, path, &status) == 0;
}

/* Whether git takes the directory for a repository, once `next` is created in it. */
static bool is_repository(const struct files_root *root, const char *directory, const char *next)
{
	size_t size = strcspn(next, "/");

	if (!will_have(root, directory, "HEAD", next, size))
		return false;
	return will_have(root, directory, "commondir", next, size) ||
	       (will_have(root, directory, "objects", next, size) &&
		       will_have(root, directory, "refs", next, size));
}

/* ---- Absolute paths ----------------------------------------------------------------------------
 */

char *guard_absolute(const char *directory, const char *home, const char *word)
{
	cleanup_free char *joined = NULL, *normal = NULL;

	if (strncmp(word, "~/", 2) == 0) {
		if (!home)
			return NULL;
		directory = home;
		word += 2;
	}
	if (*word != '/') {
		joined = path_join(directory, word);
		if (!joined)
			return NULL;
	}
	if (path_normalise(joined ? joined : word, &normal) < 0)
		return NULL;
	return string_printf("/%s", normal);
}

/* The target of the link `path`, followed by `rest`.  NULL: no link. */
static char *link_target(const char *path, const char *rest)
{
	char target[PATH_MAX];
	ssize_t length = readlink(path, target, sizeof(target) - 1);
	cleanup_free char *parent = strndup(path, path_parent_length(path)), *absolute = NULL;

	if (length <= 0 || !parent)
		return NULL;
	target[length] = '\0';
	absolute = guard_absolute(parent, NULL, target);
	return absolute ? string_printf("%s%s", absolute, rest) : NULL;
}

/* `path` with links followed, even if its last names or a link's target do not exist yet.  The
 * caller frees it; NULL: unknown. */
static char *follow(const char *path, int links)
{
	size_t length = strlen(path);

	while (length) {
		cleanup_free char *above = strndup(path, length);
		cleanup_free char *real = above ? realpath(above, NULL) : NULL, *target = NULL;

		if (real)
			return string_printf("%s%s", real[1] ? real : "", path + length);
		if (!above || errno != ENOENT)
			return NULL;
		target = link_target(above, path + length);
		if (target)
			return links < LINKS_MAX ? follow(target, links + 1) : NULL;
		length = path_parent_length(above);
	}
	return NULL;
}

/* ---- Other names of the subject
 * ------------------------------------------------------------------ */

static bool is_at(const struct guard_subject *subject, const char *named)
{
	return named[1] && path_is_within(subject->absolute, named);
}

static bool leads_to_subject(const struct guard_subject *subject, const char *named)
{
	cleanup_free char *real = NULL;

	errno = 0;
	real = follow(named, 0);
	/* Without memory it may be: better asked once too often. */
	return real ? is_at(subject, real) : errno == ENOMEM;
}

/* Whether a link in the directory leads to the subject, or a file in it or deeper is the subject.
 */
static bool has_another_name(
	const struct guard_subject *subject, const char *directory, int depth, int *budget)
{
	cleanup_dir DIR *stream = opendir(directory);
	bool found = false;
	struct dirent *entry;

	while (stream && !found && (*budget)-- > 0 && (entry = readdir(stream))) {
		cleanup_free char *path = NULL;

		if (!path_is_name(entry->d_name))
			continue;
		if (subject->has_names && entry->d_ino == subject->status.st_ino)
			return true;
		if (entry->d_type == DT_REG)
			continue;
		if (strcmp(entry->d_name, "objects") == 0)
			continue;
		path = path_join(directory, entry->d_name);
		if (!path)
			return true;
		if (entry->d_type != DT_DIR)
			found = leads_to_subject(subject, path);
		/* Hooks are often links to scripts of the project. */
		else if (depth < GUARDED_DEPTH_MAX &&
			 (subject->has_names || strcmp(entry->d_name, "hooks") == 0))
			found = has_another_name(subject, path, depth + 1, budget);
	}
	return found;
}

bool guard_is(const struct guard_subject *subject, const char *named)
{
	int budget = GUARDED_ENTRIES_MAX;
	struct stat status;

	if (is_at(subject, named) || leads_to_subject(subject, named))
		return true;
	if (stat(named, &status) < 0)
		return false;
	if (S_ISDIR(status.st_mode))
		return has_another_name(subject, named, 0, &budget);
	return subject->has_names && status.st_dev == subject->status.st_dev &&
	       status.st_ino == subject->status.st_ino;
}

/* Why a guarded name in `directory` leads to the subject: `.bashrc` that is a link to
 * "dotfiles/bashrc".  `names` is the part of `directory` that a pattern may begin with. */
static const char *another_guarded_name(
	const struct guard_subject *subject, const char *directory, const char *names)
{
	cleanup_dir DIR *stream = opendir(*directory ? directory : "/");
	const char *reason = NULL;
	struct dirent *entry;

	for (int i = 0; stream && !reason && i < ENTRIES_MAX && (entry = readdir(stream)); i++) {
		cleanup_free char *name = NULL, *path = NULL;

		if (!path_is_name(entry->d_name))
			continue;
		name = path_join(names, entry->d_name);
		path = string_printf("%s/%s", directory, entry->d_name);
		if (!name || !path)
			return guard_by_git;
		reason = guard_name(name);
		/* A plain file has no other name. */
		if (reason && entry->d_type == DT_REG && !subject->has_names)
			reason = NULL;
		else if (reason && !guard_is(subject, path))
			reason = NULL;
		else if (!reason && guard_may_be_below(name))
			reason = another_guarded_name(subject, path, name);
	}
	return reason;
}

/* ---- Places that the environment and the user's settings name
 * -------------------------------------- */

/* Variables with a path, and the guarded name that it stands for.  AMP_TOOLBOX has several. */
static const struct {
	const char *variable;
	const char *name;
} places[] = {
	{"XDG_CONFIG_HOME", ".config"},
	{"XDG_CACHE_HOME", ".cache"},
	{"XDG_STATE_HOME", ".local/state"},
	{"XDG_DATA_HOME", ".local/share"},
	{"GIT_CONFIG_GLOBAL", ".gitconfig"},
	{"GIT_CONFIG_SYSTEM", ".gitconfig"},
	{"BASH_ENV", ".bashrc"},
	{"ENV", ".profile"},
	{"CLAUDE_CONFIG_DIR", ".claude"},
	{"CODEX_HOME", ".codex"},
	{"PI_CODING_AGENT_DIR", ".pi"},
	{"OPENCODE_CONFIG", "opencode.json"},
	{"OPENCODE_CONFIG_DIR", ".opencode"},
	{"AMP_TOOLBOX", ".agents"},
};

/* Paths that guard_add() was given.  Written before the first call runs. */
static char **added;
static size_t added_count;
static bool added_is_incomplete; /* no memory: everything is guarded */

void guard_add(const char *path)
{
	cleanup_free char *here = getcwd(NULL, 0);
	char **grown = reallocarray(added, added_count + 1, sizeof(*grown));

	if (grown)
		added = grown;
	if (grown && (grown[added_count] = guard_absolute(here ? here : "", getenv("HOME"), path)))
		added_count++;
	else
		added_is_incomplete = true;
}

/* Why the subject is guarded if `place` stands for the guarded name `name`. */
static const char *judge_as(
	const struct guard_subject *subject, const char *place, const char *name)
{
	cleanup_free char *real = *place == '/' ? follow(place, 0) : NULL, *path = NULL;

	if (!real || !is_at(subject, real))
		return NULL;
	path = string_printf("%s%s", name, subject->absolute + strlen(real));
	return path ? guard_name(path) : guard_by_git;
}

static const char *judge_places(const struct guard_subject *subject)
{
	static const char by_settings[] = "the user's settings of isthmus name it";
	const char *reason = added_is_incomplete ? by_settings : NULL;

	for (size_t i = 0; i < array_size(places) && !reason; i++) {
		const char *value = getenv(places[i].variable);

		while (value && *value && !reason) {
			size_t length = strcspn(value, ":");
			cleanup_free char *place = strndup(value, length);

			if (place)
				reason = judge_as(subject, place, places[i].name);
			value += length + (value[length] == ':');
		}
	}
	for (size_t i = 0; i < added_count && !reason; i++)
		if (guard_is(subject, added[i]))
			reason = by_settings;
	return reason;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static const char *judge_directory(
	const struct guard_subject *subject, const char *directory, const char *next)
{
	cleanup_free char *absolute = NULL;

	if (is_repository(subject->root, directory, next))
		return guard_by_git;
	absolute = *directory || !subject->root->path[1]
			   ? string_printf("%s/%s",
				     subject->root->path[1] ? subject->root->path : "", directory)
			   : strdup(subject->root->path);
	if (!absolute || guard_by_repository(subject, absolute))
		return guard_by_git;
	return another_guarded_name(subject, absolute[1] ? absolute : "", "");
}

/* As the account's own files, which the root need not contain. */
static const char *judge_account(const struct guard_subject *subject)
{
	const char *home = getenv("HOME"), *reason = judge_places(subject);

	if (!reason && guard_by_account(subject))
		reason = guard_by_git;
	/* If it is above the subject, it is looked at as one of the directories. */
	if (!reason && home && *home == '/' && home[1] && !is_at(subject, home))
		reason = another_guarded_name(subject, home, "");
	return reason;
}

static const char *judge(const struct guard_subject *subject)
{
	cleanup_free char *directory = strdup(subject->path);
	const char *path = subject->path, *reason = judge_account(subject);

	if (!directory || is_repository(subject->root, path, ""))
		return guard_by_git; /* without memory, too: better asked once too often */
	while (!reason && *directory) {
		const char *next;

		directory[path_parent_length(directory)] = '\0';
		next = path + strlen(directory) + (*directory != '\0');
		reason = judge_directory(subject, directory, next);
	}
	return reason;
}

const char *guard_path(const struct files_root *root, const char *path)
{
	cleanup_free char *absolute = NULL;
	struct guard_subject subject = {.root = root, .path = path};
	const char *reason = guard_name_in(path_name(root->path), path);

	if (reason || strlen(path) >= PATH_MAX)
		return reason; /* nothing can be opened by so long a path */
	absolute = string_printf("%s%s%s", root->path[1] ? root->path : "", *path ? "/" : "", path);
	if (!absolute)
		return guard_by_git;
	subject.absolute = absolute;
	subject.has_names = files_lstat(root, path, &subject.status) == 0 &&
			    S_ISREG(subject.status.st_mode) && subject.status.st_nlink > 1;
	return judge(&subject);
}
