/*
 * tools/base/output_file.h - files for output that is too long for an answer.
 *
 * They are in a private directory of the user ($XDG_CACHE_HOME/isthmus/outputs, else below
 * ~/.cache).  Creating one removes those that are older than a day, all but the newest 100, and the
 * oldest beyond 2 GiB in total.  The tools read and grep may open these files although they are
 * outside the root.
 * Threads: any.
 */
#pragma once

/* Creates, or empties, the file NAME.txt.  `*ret_path` is absolute; the caller frees it.  Returns
 * the descriptor or -errno. */
int output_file_make(const char *name, char **ret_path);

/* Opens one of these files for reading, by its own path or by the path of its copy where commands
 * run (tools/base/output_notice.h).  -ENOENT: `path` is not one of them. */
int output_file_open(const char *path);

struct stat;
struct tool_call;

/* Opens the call's argument "path" for reading: one of these files, or a file or directory below
 * the root.  `what`: the verb for the error message.  The caller frees `*ret_path`.  Returns the
 * descriptor, or -1 (recorded). */
int output_file_or_path_open(
	struct tool_call *call, const char *what, char **ret_path, struct stat *ret_status);
