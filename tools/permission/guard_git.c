/* Files that the settings of git name. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>

#include "ops/support/files.h"
#include "ops/support/path.h"
#include "tools/permission/guard_internal.h"

enum { CONFIG_MAX_BYTES = 1 << 20, INCLUDES_MAX = 10 /* as git */ };

/* Settings whose value is a path, and those whose value is a command line. */
static const char *const path_keys[] = {"hookspath", "path", "templatedir"};
static const char *const command_keys[] = {"fsmonitor", "sshcommand", "editor", "pager", "program",
	"clean", "smudge", "process", "textconv", "command", "driver", "cmd", "helper", "askpass",
	"external", "gitproxy", "uploadpack", "receivepack", "alternaterefscommand",
	"defaultkeycommand", "packobjectshook", "difffilter", "browser", "sendmailcmd", "tocmd",
	"cccmd", "smtpserver"};

/* Where a settings file is read from. */
struct reading {
	const struct guard_subject *subject;
	const char *work_tree; /* NULL: of any repository above the subject */
	const char *home;      /* what "~/" means; NULL: unknown */
	int includes;          /* files that include this one */
};

static bool is_one_of(const char *const *list, size_t count, const char *word, size_t size)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(list[i]) == size && strncasecmp(list[i], word, size) == 0)
			return true;
	return false;
}

static bool word_leads_to(const struct reading *reading, const char *directory, const char *word)
{
	cleanup_free char *path = NULL;

	errno = 0;
	path = guard_absolute(directory, reading->home, word);
	return path ? guard_is(reading->subject, path) : errno == ENOMEM;
}

/* Whether a path in the work tree leads to the subject. */
static bool in_work_tree(const struct reading *reading, const char *word)
{
	const struct guard_subject *subject = reading->subject;
	cleanup_free char *directory = NULL;
	size_t root = subject->root->path[1] ? strlen(subject->root->path) : 0;

	if (reading->work_tree || strchr("/~", *word))
		return word_leads_to(reading, reading->work_tree ? reading->work_tree : "", word);
	directory = strdup(subject->absolute);
	if (!directory)
		return true;
	for (size_t length = strlen(directory); length > root;) {
		length = path_parent_length(directory);
		directory[length] = '\0';
		if (word_leads_to(reading, directory, word))
			return true;
	}
	return false;
}

/* Whether a word of the command line leads to the subject.  Modifies `value`. */
static bool command_leads_to(const struct reading *reading, char *value)
{
	char *rest = NULL;

	for (char *word = strtok_r(value, " \t\"'!;&|()", &rest); word;
		word = strtok_r(NULL, " \t\"'!;&|()", &rest))
		if (strchr(word, '/') && in_work_tree(reading, word))
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

static bool file_leads_to(const struct reading *reading, const char *path);

/* Whether the included file is the subject, or leads to it.  Conditions of includes are ignored. */
static bool include_leads_to(
	const struct reading *reading, const char *directory, const char *value)
{
	cleanup_free char *path = guard_absolute(directory, reading->home, value);
	struct reading next = *reading;

	if (!path)
		return false;
	next.includes++;
	return guard_is(reading->subject, path) ||
	       (next.includes <= INCLUDES_MAX && file_leads_to(&next, path));
}

/* Whether a line of a settings file in `directory` leads to the subject.  Modifies the line. */
static bool line_leads_to(const struct reading *reading, const char *directory, char *line)
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
		/* A hooks path is relative to the work tree, an include to the settings file. */
		return in_work_tree(reading, value) || include_leads_to(reading, directory, value);
	}
	if (!is_one_of(command_keys, array_size(command_keys), key, size) && !strchr(value, '!'))
		return false;
	return command_leads_to(reading, value);
}

/* The text of a regular file; the caller frees it.  NULL: there is none. */
static char *read_text(const char *path)
{
	/* O_NONBLOCK: the open must not wait if it is a named pipe. */
	cleanup_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct buffer content cleanup_buffer = {0};
	struct stat status;
	ssize_t got;

	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return NULL;
	do {
		if (buffer_reserve(&content, 16384) < 0)
			return NULL;
		got = read(fd, content.data + content.size, 16384);
		content.size += got > 0 ? (size_t)got : 0;
	} while (got > 0 && content.size < CONFIG_MAX_BYTES);
	return buffer_steal_string(&content);
}

/* Whether the settings file `path` leads to the subject. */
static bool file_leads_to(const struct reading *reading, const char *path)
{
	cleanup_free char *text = read_text(path), *directory = NULL;
	char *rest = NULL;

	if (!text)
		return false;
	directory = strndup(path, path_parent_length(path));
	if (!directory)
		return true;
	/* A line that ends in a backslash continues on the next line. */
	for (char *at = text; (at = strstr(at, "\\\n"));)
		memmove(at, at + 2, strlen(at + 2) + 1);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (line_leads_to(reading, directory, line))
			return true;
	return false;
}

static bool file_in_leads_to(const struct reading *reading, const char *directory, const char *name)
{
	cleanup_free char *path = path_join(directory, name);

	return !path || file_leads_to(reading, path);
}

/* The path in a file of one line, after `before`; the caller frees it.  NULL: none. */
static char *path_in(const char *directory, const char *name, const char *before)
{
	cleanup_free char *file = path_join(directory, name);
	cleanup_free char *text = file ? read_text(file) : NULL;
	size_t length = strlen(before);

	if (!text || strncmp(text, before, length) != 0)
		return NULL;
	text[strcspn(text, "\r\n")] = '\0';
	return guard_absolute(directory, NULL, text + length);
}

bool guard_by_repository(const struct guard_subject *subject, const char *directory)
{
	const char *home = getenv("HOME");
	struct reading repository = {.subject = subject, .work_tree = directory, .home = home};
	struct reading account = {.subject = subject, .home = directory};
	/* In a linked work tree, and in a submodule, `.git` is a file with the path. */
	cleanup_free char *elsewhere = path_in(directory, ".git", "gitdir: ");
	cleanup_free char *git = elsewhere ? strdup(elsewhere) : path_join(directory, ".git");
	cleanup_free char *common = elsewhere ? path_in(elsewhere, "commondir", "") : NULL;

	return !git || file_in_leads_to(&repository, git, "config") ||
	       file_in_leads_to(&repository, git, "config.worktree") ||
	       (common && file_in_leads_to(&repository, common, "config")) ||
	       file_in_leads_to(&account, directory, ".gitconfig") ||
	       file_in_leads_to(&account, directory, ".config/git/config");
}

bool guard_by_account(const struct guard_subject *subject)
{
	const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
	const char *global = getenv("GIT_CONFIG_GLOBAL"), *system = getenv("GIT_CONFIG_SYSTEM");
	struct reading reading = {.subject = subject, .home = home};

	return (home && file_in_leads_to(&reading, home, ".gitconfig")) ||
	       (home && file_in_leads_to(&reading, home, ".config/git/config")) ||
	       (config && file_in_leads_to(&reading, config, "git/config")) ||
	       (global && file_leads_to(&reading, global)) ||
	       file_leads_to(&reading, system ? system : "/etc/gitconfig");
}
