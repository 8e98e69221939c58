#include "tools/search/ignore_files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ops/support/path.h"

enum { FILE_MAX_BYTES = 4 << 20, ABOVE_MAX = 64 };

struct ignore *ignore_add_file(
	struct ignore *chain, const char *base, int directory, const char *name)
{
	struct buffer content cleanup_buffer = {0};
	/* Like git, do not follow a symbolic link. */
	cleanup_fd int fd = openat(directory, name,
		O_RDONLY | O_CLOEXEC | O_NONBLOCK | (directory == AT_FDCWD ? 0 : O_NOFOLLOW));

	if (fd < 0)
		return chain;
	for (;;) {
		ssize_t got;

		if (content.size > FILE_MAX_BYTES || buffer_reserve(&content, 16384) < 0)
			return chain;
		got = read(fd, content.data + content.size, 16384);
		if (got == 0)
			break;
		if (got < 0)
			return chain;
		content.size += (size_t)got;
	}
	if (content.size)
		ignore_add(&chain, base, (const char *)content.data, content.size);
	return chain;
}

/* ---- Where the lists are ------------------------------------------------------------------- */

/* The value of core.excludesFile in a configuration file, or NULL.  Knows the plain form of the key
 * only, see git-config(1). */
static char *excludes_setting(const char *path)
{
	cleanup_file FILE *file = fopen(path, "re");
	cleanup_free char *line = NULL;
	char *value = NULL;
	size_t capacity = 0;
	bool in_core = false;

	while (file && getline(&line, &capacity, file) > 0) {
		char *at = line + strspn(line, " \t"), *end;

		if (*at == '[')
			in_core = strncasecmp(at, "[core]", 6) == 0;
		if (!in_core || strncasecmp(at, "excludesfile", 12) != 0)
			continue;
		at += 12 + strspn(at + 12, " \t");
		if (*at != '=')
			continue;
		at += 1 + strspn(at + 1, " \t");
		if (*at == '"') {
			end = at + 1 + strcspn(at + 1, "\"\n");
			at++;
		} else {
			end = at + strcspn(at, "#;\n");
			while (end > at && isspace((unsigned char)end[-1]))
				end--;
		}
		free(value);
		value = strndup(at, (size_t)(end - at));
	}
	return value;
}

static char *expand_home(char *path)
{
	const char *home = getenv("HOME");
	char *expanded = NULL;

	if (!path || strncmp(path, "~/", 2) != 0)
		return path;
	if (home)
		expanded = path_join(home, path + 2);
	free(path);
	return expanded;
}

/* The setting in the last configuration file that has it, else git's default. */
static char *excludes_path(const char *repository)
{
	const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
	char names[4][4096] = {"/etc/gitconfig"};
	char *found = NULL, *fallback = NULL;

	if (config && *config)
		snprintf(names[1], sizeof(names[1]), "%s/git/config", config);
	else if (home)
		snprintf(names[1], sizeof(names[1]), "%s/.config/git/config", home);
	if (home)
		snprintf(names[2], sizeof(names[2]), "%s/.gitconfig", home);
	if (repository)
		snprintf(names[3], sizeof(names[3]), "%s/.git/config", repository);
	for (size_t i = 0; i < array_size(names); i++) {
		char *value = *names[i] ? expand_home(excludes_setting(names[i])) : NULL;

		if (value) {
			free(found);
			found = value;
		}
	}
	if (found)
		return found;
	if (config && *config)
		return asprintf(&fallback, "%s/git/ignore", config) < 0 ? NULL : fallback;
	if (home)
		return asprintf(&fallback, "%s/.config/git/ignore", home) < 0 ? NULL : fallback;
	return NULL;
}

static struct ignore *add_excludes(const char *repository)
{
	cleanup_free char *path = excludes_path(repository);

	return path ? ignore_add_file(NULL, "", AT_FDCWD, path) : NULL;
}

/* Length of the part of `path` that is the closest directory with a .git; -1: none. */
static ssize_t find_repository(const char *path)
{
	size_t length = strlen(path);
	char name[4096 + 8];

	if (length > 4096)
		return -1;
	for (int i = 0; i < ABOVE_MAX; i++) {
		snprintf(name, sizeof(name), "%.*s/.git", (int)length, path);
		if (access(name, F_OK) == 0)
			return (ssize_t)length;
		while (length > 0 && path[--length] != '/')
			;
		if (length == 0)
			return -1;
	}
	return -1;
}

/* Adds the .gitignore of every directory from `top` down to the one above `path`, which is relative
 * to `top`.  `base`: the path of `top` in the chain. */
static struct ignore *add_above(
	struct ignore *chain, const char *top, const char *base, const char *path)
{
	size_t length = 0;

	while (path[length]) {
		cleanup_free char *part = strndup(path, length), *name = NULL, *where = NULL;

		where = part ? path_join(base, part) : NULL;
		if (where && asprintf(&name, "%s/%s%s.gitignore", top, part, *part ? "/" : "") > 0)
			chain = ignore_add_file(chain, where, AT_FDCWD, name);
		length += path[length] == '/';
		length += strcspn(path + length, "/");
	}
	return chain;
}

int ignore_open(const struct files_root *root, const char *path, struct ignore **ret_chain,
	char **ret_prefix)
{
	const char *root_path = strcmp(root->path, "/") == 0 ? "" : root->path;
	cleanup_free char *start = NULL, *top = NULL, *prefix = NULL, *exclude = NULL;
	size_t root_length = strlen(root_path), top_length;
	const char *base;
	struct ignore *chain;
	ssize_t found;

	if (asprintf(&start, "%s%s%s", root_path, *path ? "/" : "", path) < 0)
		return -ENOMEM;
	found = find_repository(start);
	top_length = found < 0 ? root_length : (size_t)found;
	top = strndup(start, top_length);
	if (top_length < root_length && asprintf(&prefix, "%s/", root_path + top_length + 1) < 0)
		return -ENOMEM;
	if (!prefix)
		prefix = strdup("");
	if (!top || !prefix || asprintf(&exclude, "%s/.git/info/exclude", top) < 0)
		return -ENOMEM;
	/* The lists of a repository below the root apply to its own tree. */
	base = top_length > root_length ? top + root_length + 1 : "";
	chain = add_excludes(found < 0 ? NULL : top);
	if (found >= 0)
		chain = ignore_add_file(chain, base, AT_FDCWD, exclude);
	*ret_chain = add_above(chain, top, base, start + top_length + (start[top_length] == '/'));
	*ret_prefix = steal_ptr(&prefix);
	return 0;
}

struct ignore *ignore_open_nested(int directory, const char *base)
{
	return ignore_add_file(add_excludes(NULL), base, directory, ".git/info/exclude");
}
