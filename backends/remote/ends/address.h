/*
 * backends/remote/ends/address.h - the part of a URI that names a container, a pod or a machine.
 */
#pragma once

#include "backends/backend.h"
#include "ops/support/cleanup.h"

/* "//[USER@]NAME[/dir]". */
struct end_address {
	char *user;      /* NULL: none is named */
	char *name;      /* not empty */
	char *directory; /* "": none is named, which means the working directory that the place
			    gives */
};

/* -EINVAL with a reason, -ENOMEM. */
int end_address_parse(const struct scheme *scheme, const char *rest, struct end_address *address,
	char **ret_reason);
void end_address_done(struct end_address *address);

#define cleanup_end_address cleanup_with(end_address_done)

/* Refuses, with a reason, a `what` ("container") that is not made of letters, digits and
 * `more` ("_.-") beginning with a letter or digit.  NULL is fine. */
int end_check_name(const char *what, const char *name, const char *more, char **ret_reason);
