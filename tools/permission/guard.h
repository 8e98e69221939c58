/*
 * tools/permission/guard.h - guarded files: those that make a program run later.
 *
 * Some files in the tree decide what git, a shell, an editor or an agent runs by itself at the next
 * "git status", commit, cd, login, start or opening of the folder; and isthmus itself keeps its
 * rules in some.  Changing one of them is as dangerous as running a command.  Left out on purpose:
 * files that run only when a person runs them (Makefile, package.json, conftest.py) or elsewhere
 * (.github/workflows), and .gitmodules and .gitattributes, which cannot make git run a program
 * without a setting in .git/config.
 *
 * Names are compared without regard to case, invisible characters, and trailing blanks and dots, as
 * the file system of the far end may ignore these.
 * Threads: any, but for guard_add().
 */
#pragma once

#include "tools/base/files.h"

/* Says, for people, why a change of `path` is as dangerous as a command; NULL: it is not.  Looks
 * only at the names in the path, which is below the root and has all links followed. */
const char *guard_name(const char *path);

/* The same, and looks at files.  Also guarded: files in a bare repository, or that would make a
 * directory one; files that the settings of a repository above, of the account or of the machine
 * name as a hook, an include (also one of an include) or a program; places that variables of the
 * environment or guard_add() name; files to which a guarded name in the directories above or in the
 * home is a symbolic link, and hard links to guarded files there.  Every tool that changes files,
 * and redirections of commands, ask it by permission_ask_all(). */
const char *guard_path(const struct files_root *root, const char *path);

/* Guards a file or directory that the user's settings or options name, as their tools and rules;
 * the path is absolute, begins with "~/", or is relative to the working directory.  Call it before
 * the first tool call runs. */
void guard_add(const char *path);
