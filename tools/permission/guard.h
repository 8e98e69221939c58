/*
 * tools/permission/guard.h - guarded files: those that make a program run later.
 *
 * Some files in the tree decide what git, a shell, an editor or an agent runs by itself at the next
 * "git status", commit, cd, start or opening of the folder.  Changing one of them is as dangerous
 * as running a command.  Left out on purpose: files that run only when a person runs them
 * (Makefile, package.json, conftest.py) or elsewhere (.github/workflows), and .gitmodules and
 * .gitattributes, which cannot make git run a program without a setting in .git/config.
 *
 * Names are compared without regard to case, invisible characters, and trailing blanks and dots, as
 * the file system of the far end may ignore these.
 * Threads: any.
 */
#pragma once

#include "tools/base/files.h"

/* Says, for people, why a change of `path` is as dangerous as a command; NULL: it is not.  Looks
 * only at the names in the path, which is below the root and has all links followed. */
const char *guard_name(const char *path);

/* The same, and looks at files.  Also guarded: files in a bare repository, or that would make a
 * directory one; files that the settings of a repository above name as a hook, an include or a
 * program; and hard links to guarded files in the directories above. */
const char *guard_path(const struct files_root *root, const char *path);
