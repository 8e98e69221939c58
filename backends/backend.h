/*
 * backends/backend.h - the table of schemes, and what a backend gives to it.
 */
#pragma once

#include <stdint.h>

#include "backends/open.h"

struct argv;
struct end;

/* One kind of URI.  A new one is a file that defines it, and a row in SCHEMES. */
struct scheme {
	struct workspace_scheme about; /* first */

	/* The constructor.  `rest` is the URI after "scheme:", and the options are known ones;
	 * errors as workspace_open().  On failure it may set `*ret_reason` (allocated; NULL
	 * beforehand). */
	int (*open)(const struct scheme *scheme, const char *rest,
		const struct workspace_options *options, struct workspace **ret_workspace,
		char **ret_reason);

	/* For `open` = remote_open: how the helper there is reached (backends/remote/client/end.h).
	 */
	const struct end *end;

	/* Optional: adds the command that prints the names there are, one a line (completion).
	 * `options` may be NULL. */
	void (*names)(const struct workspace_options *options, struct argv *argv);
};

/* The row for "name" or "name:rest"; NULL: there is none. */
const struct scheme *scheme_find(const char *uri);

/* Refuses options that the scheme does not have, with a reason.  Those of the layers on top of it
 * count `with_layers` only. */
int scheme_check_options(const struct scheme *scheme, const struct workspace_options *options,
	bool with_layers, char **ret_reason);

/* workspace_open() of "NAME:REST", but without layers. */
int scheme_open(const char *name, const char *rest, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason);

/* Refuses values of the options of layers, with a reason (-EINVAL). */
int layers_check(const char *uri, const struct workspace_options *options, char **ret_reason);

/* Puts the layers that the options ask for (backends/layers.c) on top of `workspace`, which is
 * freed on failure.  Errors as workspace_open(). */
int layers_add(const char *uri, const struct workspace_options *options,
	struct workspace *workspace, struct workspace **ret_workspace, char **ret_reason);

/* Parses the value of `option`: bytes, with k, M, G or T (powers of 1024) behind them. */
int backend_parse_size(const char *option, const char *text, uint64_t min_bytes,
	uint64_t *ret_bytes, char **ret_reason);

/* Opens a workspace that is served by isthmus-helper (backends/remote/client/open.c). */
int remote_open(const struct scheme *scheme, const char *rest,
	const struct workspace_options *options, struct workspace **ret_workspace,
	char **ret_reason);

/* workspace_normal_uri() for the URI after "scheme:", of such a scheme. */
char *remote_normal(const struct scheme *scheme, const char *rest);

/* What every such scheme takes: its `shared_options`. */
extern const struct workspace_scheme_option remote_options[];

/* ---- The table of schemes -------------------------------------------------------- */

/* In the order of usage texts.  A new one is a row; NAME_scheme is in backends/local, backends/mem
 * or backends/remote/ends. */
#define SCHEMES(X) \
	X(local)   \
	X(mem)     \
	X(ssh)     \
	X(docker)  \
	X(podman)  \
	X(kube)    \
	X(kubectl) \
	X(nspawn)  \
	X(lxc)     \
	X(wsl)     \
	X(cmd)     \
	X(vm)      \
	X(helper)

#define SCHEME_DECLARE(name) extern const struct scheme name##_scheme;
SCHEMES(SCHEME_DECLARE)
