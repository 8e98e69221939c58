/*
 * tests/mounted/promises.h - what POSIX promises to a program, by name, on a mount.
 *
 * Each promise works in a directory of its own, the current one.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/check.h"

/* The mount, the same directory at the workspace, and on a second mount of it; or "". */
extern const char *mount_point, *backing, *second_mount;

/* A system call's result as 0, a count or -errno. */
#define SYS(call)                                    \
	__extension__({                              \
		long long sys_ = (long long)(call);  \
		sys_ < 0 ? (long long)-errno : sys_; \
	})

#define PROMISE(name)                                 \
	static void name##_body(void);                \
	static void name(void)                        \
	{                                             \
		CHECK_RC(0, SYS(chdir(mount_point))); \
		CHECK_RC(0, SYS(mkdir(#name, 0755))); \
		CHECK_RC(0, SYS(chdir(#name)));       \
		name##_body();                        \
		CHECK_RC(0, SYS(chdir(mount_point))); \
	}                                             \
	static void name##_body(void)

extern const struct test_group names_promises, directories_promises, content_promises,
	attributes_promises, locks_promises;

/* Makes or replaces a file.  -errno. */
int put(const char *path, const char *text);

/* A file's first 4095 bytes, in static memory; or the name of an errno. */
const char *get(const char *path);

off_t size_of(const char *path);          /* -errno */
unsigned long links_of(const char *path); /* 0: there is none */
int entries_of_dot(void);                 /* of the current directory */

/* `name` in the current directory, as it is reached below $BACKING or $MNT2. */
void elsewhere(const char *root, const char *name, char *path, size_t size);

/* A second mount hears of a new name from the change feed. */
bool appears_soon(const char *path);
