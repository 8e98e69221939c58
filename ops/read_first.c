#include "ops/read_first.h"

#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

enum {
	FILE_MAX_BYTES = 16 << 10,
	GIT_INDEX_MAX_BYTES = 128 << 10, /* of about 1500 files; a larger one is worth a wait */
};

/* "" for a repository's own directory itself; NULL: it is not in one. */
static const char *path_in_git(const char *directory)
{
	const char *in_git = NULL;

	for (const char *at = directory; (at = strstr(at, ".git")); at += 4)
		if ((at == directory || at[-1] == '/') && (at[4] == '/' || !at[4]))
			in_git = at[4] ? at + 5 : at + 4;
	return in_git;
}

enum git_part git_part_of(const char *directory)
{
	static const struct {
		const char *path;
		enum git_part part;
	} parts[] = {{"", IN_GIT}, {"info", IN_GIT_INFO}, {"refs", IN_GIT_REFS},
		{"refs/heads", IN_GIT_HEADS}, {"objects", IN_GIT_OBJECTS}};
	const char *path = path_in_git(directory);

	if (!path)
		return NOT_GIT;
	for (size_t i = 0; i < array_size(parts); i++)
		if (strcmp(path, parts[i].path) == 0)
			return parts[i].part;
	return BELOW_GIT;
}

static bool has_name(const char *const *names, const char *name)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names;
}

static bool is_read_first_outside(const char *name)
{
	static const char *const names[] = {".gitignore", ".gitattributes", ".gitmodules",
		".editorconfig", ".ignore", ".rgignore", ".clang-format", ".npmrc", ".nvmrc",
		".prettierrc", ".eslintrc.json", "package.json", "tsconfig.json", "Makefile",
		"makefile", "GNUmakefile", "Makefile.am", "Makefile.in", "Kbuild", "Kconfig",
		"CMakeLists.txt", "meson.build", "meson_options.txt", "BUILD", "BUILD.bazel",
		"Cargo.toml", "go.mod", "pyproject.toml", "setup.cfg", "setup.py", "tox.ini",
		"pom.xml", "build.gradle", "composer.json", "Gemfile", "AGENTS.md", "CLAUDE.md",
		NULL};
	const char *dot = strrchr(name, '.');

	return (dot && strcmp(dot, ".mk") == 0) || has_name(names, name);
}

bool is_read_first(enum git_part part, const char *name, uint64_t size_bytes)
{
	static const char *const git_names[] = {"HEAD", "config", "packed-refs", NULL};

	if (part == IN_GIT && strcmp(name, "index") == 0)
		return size_bytes <= GIT_INDEX_MAX_BYTES;
	if (size_bytes > FILE_MAX_BYTES)
		return false;
	switch (part) {
	case NOT_GIT:
		return is_read_first_outside(name);
	case IN_GIT:
		return has_name(git_names, name);
	case IN_GIT_INFO:
		return strcmp(name, "exclude") == 0;
	case IN_GIT_HEADS:
		return true;
	default:
		return false;
	}
}

bool is_looked_into_first(enum git_part part, const char *name)
{
	static const char *const in_git[] = {"info", "objects", "refs", NULL};
	static const char *const in_refs[] = {"heads", "remotes", "tags", NULL};
	static const char *const in_objects[] = {"info", "pack", NULL};

	switch (part) {
	case IN_GIT:
		return has_name(in_git, name);
	case IN_GIT_REFS:
		return has_name(in_refs, name);
	case IN_GIT_OBJECTS:
		return has_name(in_objects, name);
	default:
		return false;
	}
}
