/*
 * tools/syntax/syntax.h - checks whether content is valid for a file of a given name.
 *
 * Checks JSON strictly by RFC 8259 (comments and trailing commas are allowed in .jsonc, in
 * tsconfig*.json and below .vscode/), YAML, Python, TOML and shell scripts.  Any other content is
 * valid.
 * Threads: any.
 */
#pragma once

#include "tools/base/tool.h"

/* 0, or -1 with SYNTAX_ERROR, line and column recorded.  If the checker is not installed, returns 0
 * and adds "syntax_warning" to the call's data. */
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
