/*
 * tools/base/output_file.h - where output that is too long for an answer is kept.
 *
 * A private directory of the user ($XDG_CACHE_HOME/isthmus/outputs, else below ~/.cache).  Files
 * older than a day, all but the newest 100 and what is beyond 2 GiB go when a new one is made.  The
 * tools read and grep open these files although they are outside the root.  Threads: any.
 */
#pragma once

/* Makes a file for `name`; `*ret_path` is absolute and the caller frees it.  Returns the
 * descriptor. */
int output_file_make(const char *name, char **ret_path);

/* Opens one of these files for reading, by its path here or that of its copy where commands run
 * (tools/base/output_notice.h).  -ENOENT when `path` is none. */
int output_file_open(const char *path);

struct stat;
struct tool_call;

/* Opens what the call's argument "path" names for reading: one of these files, or a file or
 * directory below the root, to do `what` (a verb).  The caller frees `*ret_path`.  Returns the
 * descriptor, or -1 when the call has failed. */
int output_file_or_path_open(
	struct tool_call *call, const char *what, char **ret_path, struct stat *ret_status);
