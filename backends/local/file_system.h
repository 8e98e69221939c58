/*
 * backends/local/file_system.h - which kind of file system an object is on, as far as that decides
 * what may be cached.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

enum file_system_traits {
	/* Others change it unseen, too: other machines, a program, the kernel.  inotify reports
	 * only what goes through this machine's system calls. */
	FILE_SYSTEM_SHARED = 1 << 0,
	/* The content of a file is made when it is read: its size (mostly 0) and times say nothing
	 * about it ... */
	FILE_SYSTEM_GENERATED = 1 << 1,
	/* ... of one with the size 0. */
	FILE_SYSTEM_GENERATED_IF_EMPTY = 1 << 2,
};

/* enum file_system_traits of the object behind a descriptor (O_PATH is enough); 0 if that cannot be
 * found out. */
unsigned file_system_traits(int fd);

/* Whether names in the directory lead to the same object in upper and lower case.  Reads a part of
 * it; one that has no name with a letter, on a file system that is not known for this, counts as
 * one that does not. */
bool file_system_ignores_case(int directory_fd);
