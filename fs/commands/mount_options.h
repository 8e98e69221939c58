/*
 * fs/commands/mount_options.h - the command line of `isthmus mount`, as it is typed and as mount(8)
 * passes it on.
 * Threads: one.
 */
#pragma once

#include "fs/mount/mount.h"

/* Parses argv of `mount [options] URI DIR`, into which the options point.  False: as
 * command_parse(). */
bool mount_options_parse(int argc, char **argv, struct mount_options *ret_options, int *ret_code);

/* A command_setter: the words of one -o, into a struct mount_options. */
int mount_options_set(void *options, const char *list);

/* Says on stderr which of our own options may have been meant by one ("key=value" or "key") that
 * the workspace does not know, if one is near. */
void mount_options_guess(const char *unknown);

/* Frees what parsing made, also when it failed. */
void mount_options_done(struct mount_options *options);
