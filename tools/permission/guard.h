/*
 * tools/permission/guard.h - files that make something run later.
 *
 * What git, a shell, an editor or an agent runs by itself at the next "git status", commit, cd,
 * start or opening of the folder is decided by files in the tree.  To change one of them is as
 * dangerous as to run a command.  Left out, on purpose: what runs only when somebody runs it
 * (Makefile, package.json, conftest.py), what runs elsewhere (.github/workflows), and .gitmodules
 * and .gitattributes, which name no program that git would run without a setting in .git/config.
 *
 * Names are compared without regard to case, to characters that cannot be seen and to blanks and
 * dots at the end: the file system of the far end may do so.
 * Threads: any.
 */
#pragma once

#include "tools/base/files.h"

/* Why a change of `path` is as dangerous as a command, for people; NULL: it is not.  Looks at the
 * names in it only: `path` is below the root, with its links followed. */
const char *guard_name(const char *path);

/* The same; also for what is inside a bare repository (or would make a directory one), what the
 * settings of a repository above it name as a hook, an include or a program, and another name (hard
 * link) of a guarded file in a directory above it. */
const char *guard_path(const struct files_root *root, const char *path);
