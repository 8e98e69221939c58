/*
 * tools/syntax/syntax.h - is this content valid for a file of that name?
 *
 * json strictly by RFC 8259 (with comments and trailing commas for .jsonc, tsconfig*.json and
 * what is below .vscode/), yaml, python, toml and shell scripts; anything else is.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"

/* 0, or -1 with SYNTAX_ERROR, line and column recorded.  Where the checker is not installed,
 * 0 with "syntax_warning" in the call's data. */
int syntax_check(struct tool_call *call, const char *path, const void *content, size_t size);

/* ---- For syntax.c and its tests ------------------------------------------------ */

struct syntax_error {
	size_t line;   /* from 1; 0: no error */
	size_t column; /* from 1, in characters; 0: unknown */
	char message[300];
};

enum syntax_json_flags { SYNTAX_JSON_COMMENTS = 1 << 0 }; /* and trailing commas */

/* 0; -EINVAL with `error` filled in; -ENOMEM. */
int syntax_json(const void *content, size_t size, unsigned flags, struct syntax_error *error);
int syntax_yaml(const void *content, size_t size, struct syntax_error *error);
