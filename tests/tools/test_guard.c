/* Which files are guarded because they make something run later (tools/permission/guard.h). */
#include "tests/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/remove_tree.h"
#include "tools/permission/guard.h"

static void test_names_are_guarded_wherever_they_are(void)
{
	static const char *const guarded[] = {".git", ".git/config", "sub/.git/hooks/pre-commit",
		".husky/pre-push", "a/b/.envrc", ".mcp.json", ".vscode/tasks.json",
		"x/.vscode/settings.json", ".vscode/launch.json", ".bashrc",
		".config/fish/config.fish", ".isthmus.json", ".isthmus/rules", "p.code-workspace",
		".claude/settings.local.json", ".pre-commit-config.yaml",
		".config/isthmus/tools.json", "home/me/.config/isthmus/trusted",
		".cache/isthmus/outputs/1", ".local/state/isthmus/log",
		".isthmus-tools/x/tool.json", ".pi/extensions/a.ts", ".pi/settings.json",
		".pi/agent/tools/x/index.ts", ".agents/tools/x", ".claude/commands/x.md",
		".claude.json", ".codex/hooks.json", ".gemini/extensions/x/a.json", "opencode.json",
		"opencode.jsonc", ".opencode/plugin/a.ts", ".config/opencode/opencode.json",
		".config/amp/tools/x", ".config/git/config", ".config/fish/functions/ls.fish",
		".local/bin/git", ".local/share/direnv/allow/x", ".zshrc.local", ".inputrc",
		".husky/_/h", "lefthook-local.yml", ".helix/languages.toml", ".aws/config",
		".tmux.conf"};
	static const char *const free_names[] = {"", "a", ".gitignore", ".gitattributes",
		".gitmodules", ".github/workflows/ci.yml", "git", "x.git", ".vscode/README.md",
		"tasks.json", "fish/config.fish", "mcp.json", ".envrc.example", "Makefile",
		"vscode/tasks.json", ".config/nextest.toml", ".local/x", ".local/share/x",
		".cache/x", "isthmus/tools.json", ".github/workflows", "a.config/git",
		".cursor/rules/x.md"};

	for (size_t i = 0; i < array_size(guarded); i++)
		if (!CHECK(guard_name(guarded[i])))
			fprintf(stderr, "not guarded: %s\n", guarded[i]);
	for (size_t i = 0; i < array_size(free_names); i++)
		if (!CHECK(!guard_name(free_names[i])))
			fprintf(stderr, "guarded: %s\n", free_names[i]);
}

static void test_other_spellings_of_a_lax_file_system_are_guarded(void)
{
	CHECK(guard_name(".GIT/config"));
	CHECK(guard_name("a/.Git"));
	CHECK(guard_name(".g\xe2\x80\x8cit/hooks/x")); /* HFS+ passes over it */
	CHECK(guard_name(".git./config"));             /* Windows, these */
	CHECK(guard_name(".git /config"));
	CHECK(guard_name("GIT~1/config"));
	CHECK(guard_name(".git::$INDEX_ALLOCATION/config"));
	CHECK(guard_name(".VSCode/Tasks.JSON"));
	CHECK(guard_name(".hu\xc5\xbfky/x")); /* a long s */
}

/* ---- In a tree ------------------------------------------------------------------------ */

static char directory[64];
static struct files_root root;

static void set_up(void)
{
	strcpy(directory, "/tmp/isthmus-test-guard-XXXXXX");
	CHECK(mkdtemp(directory) != NULL);
	CHECK_RC(0, files_root_open(directory, &root));
}

static void tear_down(void)
{
	files_root_close(&root);
	CHECK_RC(0, remove_tree(directory));
}

static void put(const char *path, const char *text)
{
	CHECK_RC(0, files_write(&root, path, text, strlen(text), 0, NULL));
}

static void test_a_bare_repository_is_guarded_and_so_is_what_completes_one(void)
{
	set_up();
	put("x/HEAD", "ref: refs/heads/main\n");
	put("x/config", "");
	put("x/objects/pack/p", "");
	CHECK(!guard_path(&root, "x/config"));
	CHECK(!guard_path(&root, "x/objects/a"));
	CHECK(guard_path(&root, "x/refs/heads/main"));
	put("x/refs/heads/main", "");
	CHECK(guard_path(&root, "x/config"));
	CHECK(guard_path(&root, "x/sub/deep/file"));
	CHECK(guard_path(&root, "x"));
	CHECK(!guard_path(&root, "y/config"));
	put("w/commondir", "../x");
	CHECK(guard_path(&root, "w/HEAD"));
	tear_down();
}

static void test_what_settings_of_git_name_is_guarded(void)
{
	set_up();
	put(".git/config", "[core]\n\thooksPath = \"tools/hooks\" ; comment\n"
			   "[include] path = ../shared.gitconfig\n"
			   "[filter \"x\"]\n\tclean = \"sh ./bin/\\\nclean.sh\" --all\n"
			   "[alias]\n\tgo = !scripts/go now\n[branch \"main\"]\n\tremote = origin\n"
			   "[core]\n\tautocrlf = input\n\teditor =\n\tpager = \"\"\n");
	CHECK(guard_path(&root, "tools/hooks/pre-commit"));
	CHECK(guard_path(&root, "tools/hooks"));
	CHECK(guard_path(&root, "shared.gitconfig"));
	CHECK(guard_path(&root, "bin/clean.sh"));
	CHECK(guard_path(&root, "scripts/go"));
	CHECK(!guard_path(&root, "tools/x"));
	CHECK(!guard_path(&root, "origin/x"));
	CHECK(!guard_path(&root, "input/x"));
	put("sub/.git/config", "[core]\nfsmonitor = ./watch.sh\n");
	CHECK(guard_path(&root, "sub/watch.sh"));
	CHECK(!guard_path(&root, "watch.sh"));
	tear_down();
}

static void test_another_name_of_a_guarded_file_is_guarded(void)
{
	set_up();
	put(".git/config", "");
	put(".git/hooks/pre-commit", "");
	put(".envrc", "");
	put("plain", "");
	put("sub/x", "");
	CHECK_RC(0, linkat(root.fd, ".git/config", root.fd, "sub/notes", 0));
	CHECK_RC(0, linkat(root.fd, ".git/hooks/pre-commit", root.fd, "hook", 0));
	CHECK_RC(0, linkat(root.fd, ".envrc", root.fd, "sub/env", 0));
	CHECK_RC(0, linkat(root.fd, "plain", root.fd, "sub/plain", 0));
	CHECK(guard_path(&root, "sub/notes"));
	CHECK(guard_path(&root, "hook"));
	CHECK(guard_path(&root, "sub/env"));
	CHECK(!guard_path(&root, "sub/plain"));
	tear_down();
}

static void test_a_guarded_name_that_is_a_link_guards_what_it_leads_to(void)
{
	set_up();
	put("dotfiles/bashrc", "");
	put("dotfiles/fish/config.fish", "");
	put("dotfiles/isthmus/tools.json", "{}");
	put("dotfiles/notes", "");
	put("scripts/check", "");
	put(".git/hooks/sample", "");
	put(".config/x", "");
	CHECK_RC(0, symlinkat("dotfiles/bashrc", root.fd, ".bashrc"));
	CHECK_RC(0, symlinkat("dotfiles/zshrc", root.fd, ".zshrc")); /* not there yet */
	CHECK_RC(0, symlinkat("../dotfiles/isthmus", root.fd, ".config/isthmus"));
	CHECK_RC(0, symlinkat("../dotfiles/fish", root.fd, ".config/fish"));
	CHECK_RC(0, symlinkat("../../scripts/check", root.fd, ".git/hooks/pre-commit"));
	CHECK(guard_path(&root, "dotfiles/bashrc"));
	CHECK(guard_path(&root, "dotfiles/zshrc"));
	CHECK(guard_path(&root, "dotfiles/isthmus/trusted"));
	CHECK(guard_path(&root, "dotfiles/fish/config.fish"));
	CHECK(guard_path(&root, "scripts/check"));
	CHECK(!guard_path(&root, "dotfiles/notes"));
	CHECK(!guard_path(&root, "scripts/other"));
	tear_down();
}

static void test_the_root_may_be_a_directory_of_settings(void)
{
	struct files_root config;
	char path[128];

	set_up();
	put(".config/x", "");
	snprintf(path, sizeof(path), "%s/.config", directory);
	CHECK_RC(0, files_root_open(path, &config));
	CHECK(guard_path(&config, "isthmus/tools.json"));
	CHECK(guard_path(&config, "fish/config.fish"));
	CHECK(!guard_path(&config, "x"));
	files_root_close(&config);
	tear_down();
}

static void test_includes_of_git_are_followed(void)
{
	set_up();
	put(".git/config", "[includeIf \"gitdir:/nowhere\"]\n\tpath = ../conf/one\n");
	put("conf/one", "[include]\n\tpath = two\n");
	put("conf/two", "[include]\n\tpath = three\n[core]\n\thooksPath = tools/hooks\n");
	CHECK(guard_path(&root, "conf/one"));
	CHECK(guard_path(&root, "conf/two"));
	CHECK(guard_path(&root, "conf/three"));
	CHECK(guard_path(&root, "tools/hooks/pre-push"));
	CHECK(!guard_path(&root, "conf/four"));
	put("conf/three", "[include]\n\tpath = one\n"); /* a circle ends */
	CHECK(!guard_path(&root, "conf/four"));
	/* A linked work tree: its settings are those of the repository. */
	put("main/.git/config", "[core]\n\thooksPath = hooks\n");
	put("main/.git/worktrees/w/commondir", "../..\n");
	put("tree/.git", "gitdir: ../main/.git/worktrees/w\n");
	CHECK(guard_path(&root, "tree/hooks/pre-commit"));
	tear_down();
}

static void test_what_the_account_has_set_is_guarded(void)
{
	char home[128], path[256];
	static const char *const variables[] = {"HOME", "XDG_CONFIG_HOME", "CODEX_HOME"};

	set_up();
	put("me/.gitconfig", "[core]\n\thooksPath = ~/hooks\n[include]\n\tpath = more\n"
			     "[core]\n\tpager = ./pager\n");
	put("me/more", "[core]\n\thooksPath = shared-hooks\n[include]\n\tpath = ~/third\n");
	put("dots/profile", "");
	CHECK_RC(0, symlinkat("../dots/profile", root.fd, "me/.profile"));
	/* As the home of an account at the far end. */
	CHECK(guard_path(&root, "me/hooks/pre-commit"));
	CHECK(guard_path(&root, "me/third"));
	CHECK(guard_path(&root, "me/project/shared-hooks/pre-commit"));
	CHECK(!guard_path(&root, "project/shared-hooks/pre-commit"));
	CHECK(!guard_path(&root, "dots/profile"));
	/* As the home here, which need not be above the file. */
	snprintf(home, sizeof(home), "%s/me", directory);
	setenv("HOME", home, 1);
	CHECK(guard_path(&root, "project/shared-hooks/pre-commit"));
	CHECK(guard_path(&root, "project/pager"));
	CHECK(guard_path(&root, "dots/profile"));
	CHECK(!guard_path(&root, "project/src/pager.c"));
	snprintf(path, sizeof(path), "%s/conf", directory);
	setenv("XDG_CONFIG_HOME", path, 1);
	CHECK(guard_path(&root, "conf/isthmus/tools.json"));
	CHECK(guard_path(&root, "conf/git/config"));
	CHECK(!guard_path(&root, "conf/other"));
	setenv("CODEX_HOME", path, 1);
	CHECK(guard_path(&root, "conf/other"));
	snprintf(path, sizeof(path), "%s/rules.json", directory);
	CHECK(!guard_path(&root, "rules.json"));
	guard_add(path);
	CHECK(guard_path(&root, "rules.json"));
	for (size_t i = 0; i < array_size(variables); i++)
		unsetenv(variables[i]);
	tear_down();
}

TEST_MAIN("guard", TEST(test_names_are_guarded_wherever_they_are),
	TEST(test_other_spellings_of_a_lax_file_system_are_guarded),
	TEST(test_a_bare_repository_is_guarded_and_so_is_what_completes_one),
	TEST(test_what_settings_of_git_name_is_guarded),
	TEST(test_another_name_of_a_guarded_file_is_guarded),
	TEST(test_a_guarded_name_that_is_a_link_guards_what_it_leads_to),
	TEST(test_the_root_may_be_a_directory_of_settings), TEST(test_includes_of_git_are_followed),
	TEST(test_what_the_account_has_set_is_guarded))
