/*
 * backends/backend.h - what a backend gives to the table in backends/open.c.
 */
#pragma once

#include "backends/open.h"

/* A constructor.  `rest` is the URI after "scheme:"; errors as workspace_open().
 * On failure it may set `*ret_reason` (allocated; NULL beforehand). */
typedef int (*backend_open)(const char *scheme, const char *rest,
	const struct workspace_options *options, struct workspace **ret_workspace,
	char **ret_reason);

/* Refuses options whose key is not in `known` (NULL-terminated), with a reason. */
int backend_check_options(const char *scheme, const struct workspace_options *options,
	const char *const *known, char **ret_reason);

/* Parses the value of `option`: bytes, with k, M, G or T (powers of 1024) behind them. */
int backend_parse_size(const char *option, const char *text, uint64_t min_bytes,
	uint64_t *ret_bytes, char **ret_reason);

/* local:/dir (backends/local/local.c) */
int local_open(const char *scheme, const char *rest, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason);

/* mem: (backends/mem/mem.c); option size=BYTES[kMGT] (default: half of the memory) */
int mem_open(const char *scheme, const char *rest, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason);

/* helper:/dir and ssh://[user@]host[:port]/dir (backends/remote/client/open.c) */
int remote_open(const char *scheme, const char *rest, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason);
