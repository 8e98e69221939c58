#include "tools/permission/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"

enum { CONFIG_MAX_BYTES = 1 << 20, HOOKS_MAX = 1000 };

static const char by_git[] = "it changes what git runs";
static const char by_shell[] = "a shell runs it when it starts";
static const char by_cd[] = "it runs when a shell enters its directory";
static const char by_editor[] = "an editor runs what it names";
static const char by_agent[] = "an agent starts the programs that it names";
static const char by_login[] = "it runs when the user logs in";
static const char by_us[] = "it holds the rules of this project";

/* A name, or a directory and a name in it, in lower case; `*` matches anything.  Everything below a
 * matching directory is guarded as well. */
static const struct {
	const char *name;
	const char *reason;
} names[] = {
	{".git", by_git},
	{"git~1", by_git}, /* its short name on FAT and NTFS */
	{".gitconfig", by_git},
	{".config/git", by_git},
	{".githooks", by_git},
	{".husky", by_git},
	{".pre-commit-config.yaml", by_git},
	{"lefthook.yml", by_git},
	{".lefthook.yml", by_git},
	{".isthmus*", by_us},
	{".envrc", by_cd},
	{".mise.toml", by_cd},
	{"mise.toml", by_cd},
	{".bashrc", by_shell},
	{".bash_profile", by_shell},
	{".bash_login", by_shell},
	{".bash_logout", by_shell},
	{".bash_aliases", by_shell},
	{".profile", by_shell},
	{".zshrc", by_shell},
	{".zshenv", by_shell},
	{".zprofile", by_shell},
	{".zlogin", by_shell},
	{".zlogout", by_shell},
	{".kshrc", by_shell},
	{".cshrc", by_shell},
	{".tcshrc", by_shell},
	{".login", by_shell},
	{".logout", by_shell},
	{".config/fish", by_shell},
	{".vscode/tasks.json", by_editor},
	{".vscode/settings.json", by_editor},
	{".vscode/launch.json", by_editor},
	{".vscode/extensions", by_editor},
	{"*.code-workspace", by_editor},
	{".idea", by_editor},
	{".devcontainer", by_editor},
	{".devcontainer.json", by_editor},
	{".vimrc", by_editor},
	{".gvimrc", by_editor},
	{".exrc", by_editor},
	{".nvimrc", by_editor},
	{".nvim.lua", by_editor},
	{".config/nvim", by_editor},
	{".vim", by_editor},
	{".emacs", by_editor},
	{".emacs.d", by_editor},
	{".dir-locals.el", by_editor},
	{".gdbinit", by_editor},
	{".lldbinit", by_editor},
	{".mcp.json", by_agent},
	{".vscode/mcp.json", by_agent},
	{".cursor/mcp.json", by_agent},
	{".cursor/hooks.json", by_agent},
	{".claude/settings*.json", by_agent},
	{".claude/hooks", by_agent},
	{".codex/config.toml", by_agent},
	{".gemini/settings.json", by_agent},
	{"opencode.json*", by_agent},
	{".opencode", by_agent},
	{".ssh", by_login},
	{".config/autostart", by_login},
	{".config/systemd", by_login},
	{".pam_environment", by_login},
	{".xprofile", by_login},
	{".xsessionrc", by_login},
	{".xinitrc", by_login},
};

/* ---- Names ------------------------------------------------------------------------- */

/* Folds a name as a file system might that ignores case, invisible characters and trailing dots. */
static void fold(const char *at, size_t size, char out[PATH_NAME_MAX_BYTES + 1])
{
	const uint8_t *byte = (const uint8_t *)at, *end = byte + size;
	size_t used = 0;

	while (byte < end && *byte != ':' && used < PATH_NAME_MAX_BYTES) {
		size_t length = utf8_sequence(byte, (size_t)(end - byte));
		uint32_t code_point = utf8_decode(byte, length);

		/* The long s and the Kelvin sign fold to ASCII letters. */
		if (code_point == 0x17f || code_point == 0x212a)
			out[used++] = code_point == 0x17f ? 's' : 'k';
		else if (length == 1)
			out[used++] = (char)(*byte >= 'A' && *byte <= 'Z' ? *byte + 32 : *byte);
		else if (!length || !visible_hides(code_point))
			out[used++] = (char)*byte; /* no name in the table has such a byte */
		byte += length ? length : 1;
	}
	while (used && strchr(". ", out[used - 1]))
		used--;
	out[used] = '\0';
}

const char *guard_name(const char *path)
{
	char folded[2 * PATH_NAME_MAX_BYTES + 2] = "", *name = folded;

	while (*path) {
		size_t length = strcspn(path, "/");

		fold(path, length, name);
		for (size_t i = 0; i < array_size(names); i++) {
			const char *subject = strchr(names[i].name, '/') ? folded : name;

			if (fnmatch(names[i].name, subject, FNM_PATHNAME) == 0)
				return names[i].reason;
		}
		length += path[length] == '/';
		path += length;
		/* Keep the directory before the next name. */
		length = strlen(name);
		memmove(folded, name, length);
		folded[length] = '/';
		name = folded + length + 1;
		*name = '\0';
	}
	return NULL;
}

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

/* ---- Files that git's settings name -------------------------------------------------------- */

/* Settings whose value is a path, and those whose value is a command line. */
static const char *const path_keys[] = {"hookspath", "path"};
static const char *const command_keys[] = {"fsmonitor", "sshcommand", "editor", "pager", "program",
	"clean", "smudge", "process", "textconv", "command", "driver", "cmd", "helper", "askpass",
	"external", "gitproxy", "uploadpack", "receivepack", "alternaterefscommand"};

static bool is_one_of(const char *const *list, size_t count, const char *word, size_t size)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(list[i]) == size && strncasecmp(list[i], word, size) == 0)
			return true;
	return false;
}

/* Whether `word`, relative to `directory`, is `path` or a directory above it. */
static bool leads_to(
	const struct files_root *root, const char *directory, const char *word, const char *path)
{
	cleanup_free char *joined = NULL, *named = NULL, *real = NULL;

	if (*word != '/') {
		joined = path_join(directory, word);
		if (!joined)
			return false;
	}
	if ((joined ? path_normalise(joined, &named) : files_resolve(root, word, &named)) < 0 ||
		!*named)
		return false;
	if (files_real_path(root, named, &real) == 0 && *real && path_is_within(path, real))
		return true;
	return path_is_within(path, named);
}

/* Whether a word of the command line leads to `path`.  Modifies `value`. */
static bool command_leads_to(
	const struct files_root *root, const char *directory, char *value, const char *path)
{
	char *rest = NULL;

	for (char *word = strtok_r(value, " \t\"'!;&|()", &rest); word;
		word = strtok_r(NULL, " \t\"'!;&|()", &rest))
		if (strchr(word, '/') && leads_to(root, directory, word, path))
			return true;
	return false;
}

/* Removes quotes, and a comment after the value. */
static void drop_quotes(char *value)
{
	char *start = value, *to = value;
	bool quoted = false;

	for (; *value && (quoted || !strchr("#;", *value)); value++) {
		quoted ^= *value == '"';
		if (*value != '"')
			*to++ = *value;
	}
	while (to > start && strchr(" \t\r", to[-1]))
		to--;
	*to = '\0';
}

/* Whether a line of .git/config in `directory` leads to `path`.  Modifies the line. */
static bool line_leads_to(const struct files_root *root, const char *directory, const char *git,
	char *line, const char *path)
{
	char *key = line + strspn(line, " \t"), *value;
	size_t size;

	if (*key == '[') { /* the first setting may follow on the same line */
		key = strchr(key, ']');
		if (!key)
			return false;
		key += 1 + strspn(key + 1, " \t");
	}
	value = strchr(key, '=');
	if (!value)
		return false;
	size = (size_t)(value - key);
	while (size && strchr(" \t", key[size - 1]))
		size--;
	value += 1 + strspn(value + 1, " \t");
	if (!*value)
		return false;
	if (is_one_of(path_keys, array_size(path_keys), key, size)) {
		drop_quotes(value);
		/* A hooks path is relative to the work tree, an include to the config file. */
		return leads_to(root, directory, value, path) || leads_to(root, git, value, path);
	}
	if (!is_one_of(command_keys, array_size(command_keys), key, size) && !strchr(value, '!'))
		return false;
	return command_leads_to(root, directory, value, path);
}

static bool settings_lead_to(const struct files_root *root, const char *directory, const char *path)
{
	cleanup_free char *git = path_join(directory, ".git");
	cleanup_free char *file = git ? path_join(git, "config") : NULL, *text = NULL;
	struct buffer content cleanup_buffer = {0};
	char *rest = NULL;

	if (!file || files_read(root, file, CONFIG_MAX_BYTES, &content, NULL) < 0)
		return false;
	text = buffer_steal_string(&content);
	/* A line that ends in a backslash continues on the next line. */
	for (char *at = text; at && (at = strstr(at, "\\\n"));)
		memmove(at, at + 2, strlen(at + 2) + 1);
	for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
		line = strtok_r(NULL, "\n", &rest))
		if (line_leads_to(root, directory, git, line, path))
			return true;
	return false;
}

/* ---- Hard links ------------------------------------------------------------------------------ */

static bool is_file(const struct files_root *root, const char *path, const struct stat *file)
{
	struct stat status;

	return files_stat(root, path, &status) == 0 && status.st_dev == file->st_dev &&
	       status.st_ino == file->st_ino;
}

static bool is_in_directory(
	const struct files_root *root, const char *path, const struct stat *file)
{
	int fd = files_open(root, path, O_RDONLY | O_DIRECTORY, 0);
	cleanup_dir DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!stream && fd >= 0)
		close(fd);
	for (int i = 0; stream && i < HOOKS_MAX && (entry = readdir(stream)); i++)
		if (entry->d_ino == file->st_ino)
			return true;
	return false;
}

/* Why a file with several links is guarded by another name in `directory`; NULL: it is not. */
static const char *guarded_name_of(
	const struct files_root *root, const char *directory, const struct stat *file)
{
	static const char *const files[] = {".git/config", ".git/config.worktree"};
	static const char *const directories[] = {".git/hooks", ".githooks", ".husky"};

	for (size_t i = 0; i < array_size(names); i++) {
		cleanup_free char *path = path_join(directory, names[i].name);

		if (path && !strchr(names[i].name, '*') && is_file(root, path, file))
			return names[i].reason;
	}
	for (size_t i = 0; i < array_size(files); i++) {
		cleanup_free char *path = path_join(directory, files[i]);

		if (path && is_file(root, path, file))
			return by_git;
	}
	for (size_t i = 0; i < array_size(directories); i++) {
		cleanup_free char *path = path_join(directory, directories[i]);

		if (path && is_in_directory(root, path, file))
			return by_git;
	}
	return NULL;
}

/* ---- All of it ------------------------------------------------------------------------------- */

const char *guard_path(const struct files_root *root, const char *path)
{
	cleanup_free char *directory = strdup(path);
	const char *reason = guard_name(path);
	struct stat status;
	bool has_names;

	if (reason || strlen(path) >= PATH_MAX)
		return reason; /* nothing can be opened by so long a path */
	if (!directory || is_repository(root, path, ""))
		return by_git; /* without memory, too: better asked once too often */
	has_names = files_lstat(root, path, &status) == 0 && S_ISREG(status.st_mode) &&
		    status.st_nlink > 1;
	while (!reason && *directory) {
		const char *next;

		directory[path_parent_length(directory)] = '\0';
		next = path + strlen(directory) + (*directory != '\0');
		if (is_repository(root, directory, next) || settings_lead_to(root, directory, path))
			reason = by_git;
		else if (has_names)
			reason = guarded_name_of(root, directory, &status);
	}
	return reason;
}
