/*
 * tests/rename_without_flags.h - a file system that knows no flags of renameat2(2), as NFS, 9p and
 * others, for the program that includes this.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool rename_knows_no_flags;

int renameat2(
	int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
	if (flags && rename_knows_no_flags) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}
