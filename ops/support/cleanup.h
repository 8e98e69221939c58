/*
 * ops/support/cleanup.h - scope-bound ownership for C.
 *
 * A variable marked cleanup_x is released when its scope ends.  It is always
 * initialised (NULL, -1), and handed out with steal_ptr() or steal_fd().
 */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_run(void *pointer_to_pointer)
{
	free(*(void **)pointer_to_pointer);
}

static inline void cleanup_fd_run(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_file_run(FILE **file)
{
	if (*file)
		fclose(*file);
}

static inline void cleanup_dir_run(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

#define cleanup_with(function) __attribute__((unused, cleanup(function)))
#define cleanup_free           cleanup_with(cleanup_free_run)
#define cleanup_fd             cleanup_with(cleanup_fd_run)
#define cleanup_file           cleanup_with(cleanup_file_run)
#define cleanup_dir            cleanup_with(cleanup_dir_run)

/* Takes the pointer out of `*p`, so that the scope no longer frees it. */
#define steal_ptr(p)                                             \
	__extension__({                                          \
		__typeof__(p) steal_from_ = (p);                 \
		__typeof__(*steal_from_) stolen_ = *steal_from_; \
		*steal_from_ = NULL;                             \
		stolen_;                                         \
	})

/* Takes the descriptor out of `*fd`, so that the scope no longer closes it. */
static inline int steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

#define array_size(a) (sizeof(a) / sizeof((a)[0]))
