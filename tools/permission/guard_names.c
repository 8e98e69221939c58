/* The names of guarded files, the only list of them. */
#include <fnmatch.h>
#include <string.h>

#include "ops/support/path.h"
#include "ops/support/utf8.h"
#include "ops/support/visible.h"
#include "tools/permission/guard_internal.h"

enum { DEPTH_MAX = 3 }; /* names of a pattern */

const char guard_by_git[] = "it changes what git runs";
static const char by_shell[] = "a shell runs it when it starts";
static const char by_cd[] = "it runs when a shell enters its directory";
static const char by_editor[] = "an editor runs what it names";
static const char by_agent[] = "an agent starts the programs that it names";
static const char by_login[] = "it runs when the user logs in, or lets others log in";
static const char by_program[] = "a program runs what it names when it starts";
static const char by_path[] = "shells look for programs in its directory";
static const char by_project[] = "it holds the rules of this project";
static const char by_user[] = "isthmus keeps its rules, its tools or its log there";

/* A name, or up to two directories and a name in them, in lower case; `*` matches anything.
 * Everything below a matching directory is guarded as well. */
static const struct {
	const char *name;
	const char *reason;
} names[] = {
	{".isthmus*", by_project},
	{".config/isthmus", by_user},
	{".cache/isthmus", by_user}, /* descriptions of tools, the helper */
	{".local/state/isthmus", by_user},
	{".local/share/isthmus", by_user},
	/* Version control and what it runs at a commit. */
	{".git", guard_by_git},
	{"git~1", guard_by_git}, /* its short name on FAT and NTFS */
	{".gitconfig", guard_by_git},
	{".config/git", guard_by_git},
	{".githooks", guard_by_git},
	{".git-hooks", guard_by_git},
	{".husky", guard_by_git},
	{".huskyrc*", guard_by_git},
	{".pre-commit-config.yaml", guard_by_git},
	{"lefthook*.yml", guard_by_git},
	{"lefthook*.yaml", guard_by_git},
	{"lefthook*.toml", guard_by_git},
	{"lefthook*.json", guard_by_git},
	{".lefthook*", guard_by_git},
	{".overcommit.yml", guard_by_git},
	{".simple-git-hooks.*", guard_by_git},
	{"simple-git-hooks.*", guard_by_git},
	{".lintstagedrc*", guard_by_git},
	{"lint-staged.config.*", guard_by_git},
	{".hg", by_program},
	{".hgrc", by_program},
	{".config/hg", by_program},
	{".jj", by_program},
	{".jjconfig.toml", by_program},
	{".config/jj", by_program},
	/* Shells. */
	{".envrc", by_cd},
	{".direnv", by_cd},
	{".direnvrc", by_cd},
	{".config/direnv", by_cd},
	{".local/share/direnv", by_cd}, /* what it trusts */
	{".mise*.toml", by_cd},
	{"mise*.toml", by_cd},
	{".mise", by_cd},
	{".config/mise", by_cd},
	{".local/state/mise", by_cd},
	{".autoenv*", by_cd},
	{".bashrc", by_shell},
	{".bash_profile", by_shell},
	{".bash_login", by_shell},
	{".bash_logout", by_shell},
	{".bash_aliases", by_shell},
	{".bashrc.d", by_shell},
	{".bash_completion*", by_shell},
	{".local/share/bash-completion", by_shell},
	{".profile", by_shell},
	{".inputrc", by_shell},
	{".shrc", by_shell},
	{".zshrc*", by_shell},
	{".zshenv*", by_shell},
	{".zprofile*", by_shell},
	{".zlogin*", by_shell},
	{".zlogout*", by_shell},
	{".config/zsh", by_shell},
	{".oh-my-zsh", by_shell},
	{".kshrc", by_shell},
	{".mkshrc", by_shell},
	{".cshrc", by_shell},
	{".tcshrc", by_shell},
	{".login", by_shell},
	{".logout", by_shell},
	{".config/fish", by_shell},
	{".local/share/fish", by_shell},
	{".config/nushell", by_shell},
	{".config/powershell", by_shell},
	{".config/starship.toml", by_shell},
	{".local/bin", by_path},
	{".cargo/bin", by_path},
	{".cargo/env*", by_shell},
	/* Editors and debuggers. */
	{".vscode/tasks.json", by_editor},
	{".vscode/settings.json", by_editor},
	{".vscode/launch.json", by_editor},
	{".vscode/extensions", by_editor},
	{".vscode-server", by_editor},
	{".config/code", by_editor},
	{"*.code-workspace", by_editor},
	{".zed", by_editor},
	{".config/zed", by_editor},
	{".idea", by_editor},
	{".fleet", by_editor},
	{".helix", by_editor},
	{".config/helix", by_editor},
	{".devcontainer", by_editor},
	{".devcontainer.json", by_editor},
	{".vimrc", by_editor},
	{".gvimrc", by_editor},
	{".exrc", by_editor},
	{".lvimrc", by_editor},
	{".nvimrc", by_editor},
	{".nvim.lua", by_editor},
	{".config/nvim", by_editor},
	{".config/vim", by_editor},
	{".local/share/nvim", by_editor},
	{".vim", by_editor},
	{".emacs", by_editor},
	{".emacs.el", by_editor},
	{".emacs.d", by_editor},
	{".config/emacs", by_editor},
	{".dir-locals*.el", by_editor},
	{".gdbinit", by_editor},
	{".config/gdb", by_editor},
	{".lldbinit*", by_editor},
	/* Agents. */
	{".mcp.json", by_agent},
	{".vscode/mcp.json", by_agent},
	{".agents", by_agent},
	{".pi", by_agent},
	{".claude", by_agent},
	{".claude.json", by_agent},
	{".codex", by_agent},
	{".gemini", by_agent},
	{"opencode.json*", by_agent},
	{".opencode*", by_agent},
	{".config/opencode", by_agent},
	{".cursor/*.json", by_agent},
	{".amp", by_agent},
	{".config/amp", by_agent},
	{".config/goose", by_agent},
	{".copilot", by_agent},
	{".github/hooks", by_agent},
	{".config/github-copilot", by_agent},
	{".continue", by_agent},
	{".crush.json", by_agent},
	{"crush.json", by_agent},
	{".config/crush", by_agent},
	{".factory", by_agent},
	{".kiro", by_agent},
	{".qwen", by_agent},
	{".roo", by_agent},
	{".aider.conf.yml", by_agent},
	/* The session of the user. */
	{".ssh", by_login},
	{".rhosts", by_login},
	{".shosts", by_login},
	{".forward", by_login},
	{".pam_environment", by_login},
	{".config/autostart", by_login},
	{".config/plasma-workspace", by_login},
	{".config/systemd", by_login},
	{".config/environment.d", by_login},
	{".local/share/systemd", by_login},
	{".local/share/dbus-1", by_login},
	{".local/share/applications", by_login},
	{".config/i3", by_login},
	{".config/sway", by_login},
	{".config/hypr", by_login},
	{".xprofile", by_login},
	{".xsession", by_login},
	{".xsessionrc", by_login},
	{".xinitrc", by_login},
	/* Other programs that run what a file says, without being told to. */
	{".tmux.conf", by_program},
	{".config/tmux", by_program},
	{".screenrc", by_program},
	{".config/kitty", by_program},
	{".config/alacritty", by_program},
	{".config/gh", by_program},
	{".config/lazygit", by_program},
	{".docker", by_program},
	{".kube", by_program},
	{".aws", by_program},
	{".gnupg", by_program},
	{".lessfilter", by_program},
	{".mailcap", by_program},
	{".psqlrc", by_program},
	{".sqliterc", by_program},
	{".pdbrc*", by_program},
	{".irbrc", by_program},
	{".pryrc", by_program},
	{".rprofile", by_program},
	{".ghci", by_program},
	{".iex.exs", by_program},
};

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

/* The last names of a path, folded. */
struct last_names {
	char text[DEPTH_MAX * (PATH_NAME_MAX_BYTES + 1)]; /* separated by "/" */
	size_t starts[DEPTH_MAX];
	size_t count;
};

static void add_name(struct last_names *last, const char *name, size_t size)
{
	char *at = last->text;

	if (last->count == DEPTH_MAX) {
		size_t first = last->starts[1];

		memmove(last->text, last->text + first, strlen(last->text + first) + 1);
		for (size_t i = 1; i < DEPTH_MAX; i++)
			last->starts[i - 1] = last->starts[i] - first;
		last->count--;
	}
	if (last->count) {
		at += strlen(at);
		*at++ = '/';
	}
	fold(name, size, at);
	last->starts[last->count++] = (size_t)(at - last->text);
}

static size_t count_slashes(const char *text)
{
	size_t count = 0;

	for (; (text = strchr(text, '/')); text++)
		count++;
	return count;
}

/* Why the last names are guarded; NULL: they are not. */
static const char *judge(const struct last_names *last)
{
	for (size_t i = 0; i < array_size(names); i++) {
		const char *pattern = names[i].name, *subject;
		size_t slashes = count_slashes(pattern);

		if (slashes >= last->count)
			continue;
		subject = last->text + last->starts[last->count - 1 - slashes];
		/* Most names differ here; fnmatch() costs fifty times as much. */
		if (*pattern != '*' && (pattern[0] != subject[0] || pattern[1] != subject[1]))
			continue;
		if (fnmatch(pattern, subject, FNM_PATHNAME) == 0)
			return names[i].reason;
	}
	return NULL;
}

const char *guard_name_in(const char *above, const char *path)
{
	struct last_names last = {0};

	if (*above)
		add_name(&last, above, strlen(above));
	while (*path) {
		size_t length = strcspn(path, "/");
		const char *reason;

		add_name(&last, path, length);
		reason = judge(&last);
		if (reason)
			return reason;
		path += length + (path[length] == '/');
	}
	return NULL;
}

const char *guard_name(const char *path)
{
	return guard_name_in("", path);
}

bool guard_may_be_below(const char *path)
{
	size_t length = strlen(path);

	for (size_t i = 0; i < array_size(names); i++)
		if (strncasecmp(names[i].name, path, length) == 0 && names[i].name[length] == '/')
			return true;
	return false;
}
