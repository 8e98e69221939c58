/*
 * fs/commands/mount_options.h - the command line of `isthmus mount`, in the forms of a user and of
 * mount(8).
 * Threads: one.
 */
#pragma once

#include "fs/mount/mount.h"

/* Parses argv of `mount [options] URI DIR`; the mount point is in argv.  Returns false as
 * command_parse() does. */
bool mount_options_parse(int argc, char **argv, struct mount_options *ret_options, int *ret_code);

/* A command_setter for -o: parses the list into a struct mount_options. */
int mount_options_set(void *options, const char *list);

/* If an option ("key=value" or "key") that the workspace does not know resembles one of the mount's
 * own options, suggests that one on stderr. */
void mount_options_guess(const char *unknown);

/* Frees what the parsing allocated, even if it failed. */
void mount_options_done(struct mount_options *options);
