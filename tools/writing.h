/*
 * tools/writing.h - what write, create_file and edit_file share: a whole file's new content.
 */
#pragma once

#include "tools/base/tool.h"

#define WRITING_DATA_SCHEMA                                                          \
	"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"       \
	"\"created\":{\"type\":\"boolean\"},\"size_bytes\":{\"type\":\"integer\"},"  \
	"\"lines\":{\"type\":\"integer\"},\"hash\":{\"type\":\"string\"},"           \
	"\"backup\":{\"type\":\"string\"},\"syntax_warning\":{\"type\":\"string\"}," \
	"\"line\":{\"type\":\"integer\"},\"column\":{\"type\":\"integer\"}}}"

/* Checks the syntax of the argument `content` when `validate_syntax` says so. */
int writing_validate(struct tool_call *call);

/* Asks to change the file at `path`, and for its backup when one is made: that is a copy of what is
 * there, under another name. */
int writing_permission(struct tool_call *call, unsigned uses, const char *path);

/* Writes the argument `content` to the argument `path`.  `flags`: enum files_write_flags. */
int writing_execute(struct tool_call *call, unsigned flags);
