#include "tools/shell/shell_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "ops/support/path.h"
#include "tools/shell/shell_programs.h"

enum { PATHS_MAX = 2000, ENTRIES_MAX = 20000, LINKS_MAX = 40, TREE_DEPTH_MAX = 100 };

static const char *const too_many = "it is about more files than can be checked";
static const char *const unusual = "it names a path in an unusual way";

/* The walk of one path. */
struct walk {
	struct shell_paths *paths;
	const struct shell_context *context;
	unsigned use, flags;
	int links;     /* followed so far */
	char *outside; /* the path outside the root; set with -EXDEV */
};

void shell_paths_done(struct shell_paths *paths)
{
	for (size_t i = 0; i < paths->count; i++)
		free(paths->list[i].path);
	free(paths->list);
	*paths = (struct shell_paths){0};
}

static void must_ask(struct shell_paths *paths, const char *reason)
{
	if (!paths->reason)
		paths->reason = reason;
}

static void add(struct shell_paths *paths, const char *path, unsigned uses)
{
	struct shell_path *grown;

	for (size_t i = 0; i < paths->count; i++) {
		if (strcmp(paths->list[i].path, path) == 0 && !paths->list[i].uses == !uses) {
			paths->list[i].uses |= uses;
			return;
		}
	}
	if (paths->count >= PATHS_MAX) {
		must_ask(paths, too_many);
		return;
	}
	grown = reallocarray(paths->list, paths->count + 1, sizeof(*grown));
	if (!grown) {
		paths->no_memory = true;
		return;
	}
	paths->list = grown;
	grown[paths->count] = (struct shell_path){.path = strdup(path), .uses = uses};
	if (grown[paths->count].path)
		paths->count++;
	else
		paths->no_memory = true;
}

/* ---- Patterns ----------------------------------------- */

static bool is_pattern(const char *name)
{
	for (; *name; name++) {
		if (*name == '\\' && name[1])
			name++;
		else if (strchr("*?[", *name))
			return true;
	}
	return false;
}

void shell_pattern_unescape(char *name)
{
	char *to = name;

	for (; *name; name++) {
		if (*name == '\\' && name[1])
			name++;
		*to++ = *name;
	}
	*to = '\0';
}

/* Widens a pattern for fnmatch(): the meaning of [...] depends on the locale, and ? matches a
 * character of several bytes, so both become *. */
static void widen_pattern(const char *pattern, bool ascii, char *wide)
{
	for (; *pattern; pattern++) {
		if (*pattern == '\\' && pattern[1]) {
			*wide++ = *pattern++;
			*wide++ = *pattern;
		} else if (*pattern == '[' && strchr(pattern + 2, ']')) {
			pattern = strchr(pattern + 2, ']');
			*wide++ = ascii ? '?' : '*';
		} else {
			*wide++ = *pattern == '?' && !ascii ? '*' : *pattern;
		}
	}
	*wide = '\0';
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool matches(const char *pattern, const char *name)
{
	char wide[PATH_NAME_MAX_BYTES + 1];
	bool ascii = true;

	for (const char *at = name; *at; at++)
		ascii = ascii && !(*at & 0x80);
	widen_pattern(pattern, ascii, wide);
	return fnmatch(wide, name, FNM_PERIOD) == 0;
}

/* ---- Paths outside the root ----------------------------------- */

bool shell_path_is_harmless(const char *path)
{
	static const char *const paths[] = {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr",
		"/dev/tty", "/dev/zero", "/dev/urandom", "/dev/random"};

	for (size_t i = 0; i < array_size(paths); i++)
		if (strcmp(path, paths[i]) == 0)
			return true;
	return false;
}

/* Adds a path outside the root.  A rule "outside /tmp/x/ *" must match neither "/tmp/x/../y" nor
 * the root by another name. */
static void add_outside(struct walk *w, const char *path)
{
	const struct shell_context *context = w->context;
	cleanup_free char *normal = NULL, *whole = NULL;
	const char *dots = path;

	if (shell_path_is_harmless(path) && !(w->use & (SHELL_TREE | SHELL_DELETES)))
		return;
	while (strncmp(dots, "../", 3) == 0)
		dots += 3;
	if (strcmp(dots, "..") == 0)
		dots += 2;
	if (path_normalise(*path == '~' ? path + 1 : dots, &normal) < 0 ||
		(w->flags & SHELL_PATH_PATTERN && strstr(path, "/."))) {
		must_ask(w->paths, unusual);
		add(w->paths, path, 0);
		return;
	}
	if (*path == '/' || *path == '~')
		w->paths->no_memory |= asprintf(&whole, "%.1s%s%s", path,
					       *path == '~' && *normal ? "/" : "", normal) < 0;
	else
		w->paths->no_memory |=
			asprintf(&whole, "%.*s%s", (int)(dots - path), path, normal) < 0;
	if (w->paths->no_memory)
		return;
	add(w->paths, whole, 0);
	if (!context->root_unknown && *whole == '/' &&
		(path_is_within(whole + 1, context->root->path + 1) ||
			(w->use & SHELL_TREE &&
				path_is_within(context->root->path + 1, whole + 1))))
		must_ask(w->paths, unusual);
}

/* ---- Everything below a directory -------------------------------------- */

/* Whether the table of programs has a row for the program: without one it may read and write. */
static bool has_row(const struct walk *w)
{
	return (w->use & (SHELL_READS | SHELL_WRITES)) != (SHELL_READS | SHELL_WRITES);
}

static bool rules_restrict(const struct walk *w, unsigned uses)
{
	const struct permissions *permissions = w->context->permissions;

	return permissions &&
	       ((uses & PERMISSION_READS && permissions_restrict(permissions, "read")) ||
		       (uses & PERMISSION_WRITES && permissions_restrict(permissions, "write")) ||
		       (uses & PERMISSION_DELETES && permissions_restrict(permissions, "delete")));
}

/* What to check for each entry. */
struct tree_check {
	unsigned uses;
	bool by_rules;
	bool by_guard;
	bool by_link; /* the program follows links: to files in the root only */
	bool below;   /* check the entries of subdirectories as well */
};

static bool is_link(int directory, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_LNK;
	return fstatat(directory, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	       S_ISLNK(st.st_mode);
}

static const char *entry_problem(
	const struct walk *w, const struct tree_check *check, const char *path)
{
	if (check->by_guard && guard_name(path))
		return "it changes or copies a directory with files in it that make something run";
	if (check->by_rules && permissions_path_verdict(w->context->permissions, NULL, TOOL_READ,
				       check->uses, path, NULL) != PERMISSION_ALLOW)
		return "rules do not allow all files below a directory that it names";
	return NULL;
}

static int enter(struct walk *w, char **real, const char *name);

/* A link below a directory that the program follows. */
static const char *link_problem(
	struct walk *w, const struct tree_check *check, const char *directory, const char *name)
{
	cleanup_free char *real = strdup(directory);
	struct stat status;

	w->links = 0;
	if (!real || enter(w, &real, name) < 0)
		return "it follows links below a directory that lead out of the root";
	if (files_stat(w->context->root, real, &status) == 0 && S_ISDIR(status.st_mode))
		return w->use & SHELL_FOLLOWS ? "it follows links below a directory to others"
					      : NULL;
	return entry_problem(w, check, real);
}

static void check_tree(struct walk *w, const struct tree_check *check, const char *path, int depth)
{
	cleanup_fd int fd =
		files_open(w->context->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	cleanup_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir && fd != -ENOENT && fd != -ENOTDIR)
		must_ask(w->paths, "it names a directory that cannot be checked");
	if (!dir)
		return;
	fd = -1;
	while (!w->paths->reason && (entry = readdir(dir))) {
		cleanup_free char *child = path_join(path, entry->d_name);
		const char *problem;

		if (is_dots(entry->d_name))
			continue;
		if (!child || ++w->paths->entries > ENTRIES_MAX || depth > TREE_DEPTH_MAX) {
			must_ask(w->paths, too_many);
			return;
		}
		problem = entry_problem(w, check, child);
		if (!problem && check->by_link && is_link(dirfd(dir), entry))
			problem = link_problem(w, check, path, entry->d_name);
		if (problem)
			must_ask(w->paths, problem);
		else if (check->below && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
			check_tree(w, check, child, depth + 1);
	}
}

static void check_below(struct walk *w, unsigned uses, const char *path)
{
	const struct tree_check check = {
		.uses = uses,
		.by_rules = rules_restrict(w, uses),
		.by_guard = w->use & SHELL_TREE && has_row(w) &&
			    (w->use & SHELL_WRITES || w->flags & SHELL_PATH_COPIED),
		.by_link = w->use & SHELL_FOLLOWS ||
			   (w->use & SHELL_FOLLOWS_FILES && w->use & SHELL_TREE),
		.below = w->use & SHELL_TREE,
	};

	if (check.by_rules || check.by_guard || check.by_link)
		check_tree(w, &check, path, 0);
}

/* ---- The walk ----------------------------------------- */

/* The present position of a walk. */
struct spot {
	char *real;    /* with links followed */
	char *written; /* as in the command line; "": not known any more */
};

static void spot_done(struct spot *spot)
{
	free(spot->real);
	free(spot->written);
}

static void add_spot(struct walk *w, const struct spot *spot)
{
	unsigned uses = (w->use & SHELL_READS ? PERMISSION_READS : 0) |
			(w->use & SHELL_WRITES ? PERMISSION_WRITES : 0) |
			(w->use & SHELL_DELETES ? PERMISSION_DELETES : 0);

	add(w->paths, spot->real, uses);
	if (strcmp(spot->written, spot->real) != 0)
		add(w->paths, spot->written, uses | PERMISSION_LINK);
	check_below(w, uses, spot->real);
}

/* The path leaves the root; `path` is its rest. */
static int leave(struct walk *w, const char *before, const char *path)
{
	free(w->outside);
	w->outside = NULL;
	return asprintf(&w->outside, "%s%s%s", before, *before && *path ? "/" : "", path) < 0
		       ? -ENOMEM
		       : -EXDEV;
}

static int leave_upwards(struct walk *w, const char *rest)
{
	const char *root = w->context->root->path;
	cleanup_free char *above = NULL;

	if (w->context->root_unknown)
		return leave(w, "..", rest);
	above = strndup(root, path_parent_length(root));
	return above ? leave(w, *above ? above : "/", rest) : -ENOMEM;
}

/* What an absolute path names below the root; NULL: it is outside. */
static const char *below_root(const struct shell_context *context, const char *path)
{
	const char *root = context->root->path;

	while (!context->root_unknown) {
		size_t length;

		root += strspn(root, "/");
		path += strspn(path, "/");
		if (!*root)
			return path;
		length = strcspn(path, "/");
		if (length == 1 && *path == '.') {
			path++;
			continue;
		}
		if (strcspn(root, "/") != length || memcmp(root, path, length) != 0)
			return NULL;
		root += length;
		path += length;
	}
	return NULL;
}

static int replace(char **path, char *joined)
{
	if (!joined)
		return -ENOMEM;
	free(*path);
	*path = joined;
	return 0;
}

static int enter_path(struct walk *w, char **real, const char *path);

/* Enters a name in the directory `*real`, and follows links. */
static int enter(struct walk *w, char **real, const char *name)
{
	cleanup_free char *child = NULL;
	char target[PATH_MAX];
	ssize_t length;

	if (strcmp(name, ".") == 0)
		return 0;
	if (strcmp(name, "..") == 0) {
		if (!**real)
			return leave_upwards(w, "");
		(*real)[path_parent_length(*real)] = '\0';
		return 0;
	}
	child = path_join(*real, name);
	if (!child)
		return -ENOMEM;
	cleanup_fd int fd = files_open(w->context->root, child, O_PATH | O_NOFOLLOW, 0);

	if (fd < 0 && fd != -ENOENT && fd != -ENOTDIR)
		return fd;
	length = fd < 0 ? -1 : readlinkat(fd, "", target, sizeof(target) - 1);
	if (length <= 0)
		return replace(real, steal_ptr(&child));
	target[length] = '\0';
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	return enter_path(w, real, target);
}

static int enter_path(struct walk *w, char **real, const char *path)
{
	if (*path == '/') {
		const char *below = below_root(w->context, path);

		if (!below)
			return leave(w, "", path);
		path = below;
		**real = '\0';
	}
	while (*path) {
		size_t length = strcspn(path, "/");
		cleanup_free char *name = strndup(path, length);
		int r = !name ? -ENOMEM : length ? enter(w, real, name) : 0;

		path += length;
		path += strspn(path, "/");
		if (r == -EXDEV) {
			cleanup_free char *before = steal_ptr(&w->outside);

			return leave(w, before, path);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int append_written(struct spot *spot, const char *name)
{
	if (strcmp(name, ".") == 0)
		return 0;
	if (strcmp(name, "..") == 0) {
		spot->written[path_parent_length(spot->written)] = '\0';
		return 0;
	}
	return replace(&spot->written, path_join(spot->written, name));
}

static int follow(struct walk *w, struct spot *spot, const char *rest);

/* Follows one name that is not a pattern, then the rest. */
static int follow_name(struct walk *w, struct spot *spot, const char *name, const char *rest)
{
	int r = enter(w, &spot->real, name);

	if (r == -EXDEV) {
		cleanup_free char *before = steal_ptr(&w->outside);

		return leave(w, before, rest);
	}
	if (r == 0)
		r = append_written(spot, name);
	return r < 0 ? r : follow(w, spot, rest);
}

/* As follow_name(), for one of several names; also adds a path outside the root. */
static int follow_match(struct walk *w, const struct spot *spot, const char *name, const char *rest)
{
	struct spot copy cleanup_with(spot_done) = {strdup(spot->real), strdup(spot->written)};
	int r;

	if (!copy.real || !copy.written)
		return -ENOMEM;
	w->links = 0;
	r = follow_name(w, &copy, name, rest);
	if (r == -EXDEV) {
		add_outside(w, w->outside);
		r = 0;
	}
	return r;
}

/* Follows each name that matches the pattern.  Returns their number, or -errno. */
static int follow_pattern(
	struct walk *w, const struct spot *spot, const char *pattern, const char *rest)
{
	cleanup_fd int fd = files_open(w->context->root, spot->real, O_RDONLY | O_DIRECTORY, 0);
	cleanup_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int count = 0;

	if (!dir)
		return 0;
	fd = -1;
	while ((entry = readdir(dir))) {
		int r;

		if (++w->paths->entries > ENTRIES_MAX || w->paths->count >= PATHS_MAX) {
			must_ask(w->paths, too_many);
			return 1;
		}
		/* Before bash 5.2, ".*" matches ".." as well. */
		if (!matches(pattern, entry->d_name) || (!*rest && strcmp(entry->d_name, ".") == 0))
			continue;
		r = follow_match(w, spot, entry->d_name, rest);
		if (r < 0)
			return r;
		count++;
	}
	return count;
}

/* Adds the paths that `rest` leads to from the spot. */
static int follow(struct walk *w, struct spot *spot, const char *rest)
{
	size_t length;
	cleanup_free char *name = NULL;
	int r;

	rest += strspn(rest, "/");
	if (!*rest) {
		add_spot(w, spot);
		return 0;
	}
	length = strcspn(rest, "/");
	if (length > PATH_NAME_MAX_BYTES)
		return -ENAMETOOLONG;
	name = strndup(rest, length);
	if (!name)
		return -ENOMEM;
	rest += length;
	rest += strspn(rest, "/");
	if (w->flags & SHELL_PATH_PATTERN) {
		r = is_pattern(name) ? follow_pattern(w, spot, name, rest) : 0;
		if (r != 0)
			return r < 0 ? r : 0;
		shell_pattern_unescape(name);
	}
	return follow_name(w, spot, name, rest);
}

void shell_paths_add(struct shell_paths *paths, const struct shell_context *context,
	const char *path, unsigned use, unsigned flags)
{
	struct walk w = {.paths = paths, .context = context, .use = use, .flags = flags};
	struct spot spot cleanup_with(spot_done) = {strdup(""), strdup("")};
	const char *rest = path;
	int r = spot.real && spot.written ? 0 : -ENOMEM;

	if (paths->count >= PATHS_MAX) {
		must_ask(paths, too_many);
		return;
	}
	if (*path == '~' || *path == '/')
		rest = *path == '/' ? below_root(context, path) : NULL;
	if (!rest) {
		add_outside(&w, path);
		return;
	}
	if (strlen(path) >= PATH_MAX)
		r = -ENAMETOOLONG;
	if (r == 0 && rest == path && !(use & SHELL_FROM_ROOT)) {
		r = enter_path(&w, &spot.real, context->directory);
		if (r == 0)
			r = replace(&spot.written, strdup(context->directory));
	}
	if (r == 0)
		r = follow(&w, &spot, rest);
	if (r == -EXDEV)
		add_outside(&w, w.outside);
	else if (r == -ENOMEM)
		paths->no_memory = true;
	else if (r < 0)
		must_ask(paths, unusual);
	free(w.outside);
}

bool shell_pattern_matches(const struct shell_context *context, const char *pattern)
{
	const char *slash = strchr(pattern, '/');
	cleanup_free char *above = strndup(pattern, slash ? (size_t)(slash - pattern) : 0);
	cleanup_free char *directory = above ? path_join(context->directory, above) : NULL;
	cleanup_fd int fd =
		directory ? files_open(context->root, directory, O_RDONLY | O_DIRECTORY, 0)
			  : -ENOMEM;
	cleanup_dir DIR *dir = NULL;
	struct dirent *entry;
	bool found = false;

	if (fd == -ENOENT)
		return false;
	dir = fd < 0 || slash ? NULL : fdopendir(fd);
	if (!dir)
		return true;
	fd = -1;
	for (unsigned count = 0; !found && (entry = readdir(dir)); count++)
		found = count > ENTRIES_MAX || matches(pattern, entry->d_name);
	return found;
}

static bool directory_has(
	const struct shell_context *context, const char *directory, size_t length, const char *name)
{
	cleanup_free char *written = strndup(directory, length);
	cleanup_free char *real = written && *written == '/' ? realpath(written, NULL) : NULL;
	cleanup_free char *above = NULL, *path = NULL;
	struct stat status;

	if (!written)
		return true; /* without memory: better asked once too often */
	if (*written != '/')
		above = path_join(context->directory, written);
	else if (real && below_root(context, real))
		above = strdup(below_root(context, real));
	else
		return false;
	path = above ? path_join(above, name) : NULL;
	return !path || (files_stat(context->root, path, &status) == 0 && !S_ISDIR(status.st_mode));
}

bool shell_program_is_inside(const struct shell_context *context, const char *name)
{
	/* With "/" as the root, the system's own programs are inside. */
	const char *path = context->root->path[1] ? getenv("PATH") : NULL;

	while (path) {
		size_t length = strcspn(path, ":");

		if (directory_has(context, path, length, name))
			return true;
		path = path[length] ? path + length + 1 : NULL;
	}
	return false;
}

bool shell_directory_is_guarded(const struct shell_context *context)
{
	cleanup_free char *real = NULL, *inside = NULL;

	if (!*context->directory || files_real_path(context->root, context->directory, &real) < 0)
		return false;
	inside = path_join(real, "HEAD");
	return !inside || guard_path(context->root, inside);
}

static bool writes_name(const struct shell_paths *paths, const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < paths->count; i++) {
		const char *at = paths->list[i].uses & PERMISSION_WRITES ? paths->list[i].path : "";

		for (; *at; at += strcspn(at, "/"), at += strspn(at, "/"))
			if (strcspn(at, "/") == length && strncasecmp(at, name, length) == 0)
				return true;
	}
	return false;
}

bool shell_paths_make_repository(const struct shell_paths *paths)
{
	return writes_name(paths, "HEAD") &&
	       (writes_name(paths, "objects") || writes_name(paths, "refs") ||
		       writes_name(paths, "commondir"));
}
