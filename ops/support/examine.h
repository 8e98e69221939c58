/*
 * ops/support/examine.h - what a place is like, for `isthmus doctor URI`.
 *
 * The programs isthmus and isthmus-helper are run with EXAMINE_OPTION at the workspace, in its
 * directory, with the environment of a command there.
 */
#pragma once

#define EXAMINE_OPTION "--examine"

/* Prints facts about this machine, this process and its working directory to stdout, each a line
 * "NAME VALUE", in no order; names may repeat.  A value that is not known is left out; an error
 * is a positive errno.
 *
 *     system NAME RELEASE MACHINE            helper PATH            (of the running program)
 *     uid NUMBER                             directory PATH
 *     home PATH, path LIST                   writable ERROR         (the directory; 0: it is)
 *     uid_map INSIDE OUTSIDE COUNT           helper_type MAGIC, directory_type MAGIC (statfs(2))
 *     openat2 ERROR, inotify ERROR, user_namespace ERROR            free BYTES (there)
 *     seccomp MODE                           open_files NUMBER      (the hard limit)
 *     max_user_watches NUMBER, max_user_instances NUMBER            program NAME
 *
 * Returns the exit code. */
int examine(void);
