/*
 * tools/writing.h - writes the whole content of a file; shared by write, create_file and edit_file.
 */
#pragma once

#include "tools/base/tool.h"

#define WRITING_DATA_SCHEMA                                                          \
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"       \
	"\"created\":{\"type\":\"boolean\"},\"size_bytes\":{\"type\":\"integer\"},"  \
	"\"lines\":{\"type\":\"integer\"},\"hash\":{\"type\":\"string\"},"           \
	"\"backup\":{\"type\":\"string\"},\"syntax_warning\":{\"type\":\"string\"}," \
	"\"line\":{\"type\":\"integer\"},\"column\":{\"type\":\"integer\"}}}"

/* Checks the syntax of the argument `content` if the argument `validate_syntax` is true. */
int writing_validate(struct tool_call *call);

/* Asks for permission to change the file at `path`, and to create the backup if the call makes one,
 * as that copies the content to another name. */
int writing_permission(struct tool_call *call, unsigned uses, const char *path);

/* After a change of `path` that failed, with the failure recorded: removes the backup, or, if the
 * file may not be what it was `before`, says where its old content is. */
void writing_undo_backup(
	struct tool_call *call, const char *path, const struct stat *before, const char *backup);

/* Writes the argument `content` to the argument `path`.  `flags`: enum files_write_flags. */
int writing_execute(struct tool_call *call, unsigned flags);
