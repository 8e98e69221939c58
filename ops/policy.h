/*
 * ops/policy.h - the decorator that hides and protects names.
 *
 * Rules are patterns as gitignore(5) has them; what is in a directory that one matches is as the
 * directory.  Hidden: -ENOENT for every operation, in no listing, scan or change; -EACCES for what
 * would make such a name.  Protected: -EROFS for what would change it.
 * The rename of a directory is -EXDEV (mv(1) then copies) when a rule for names below its old or
 * new path may exist: what is hidden or protected there would escape from that rule, or come under
 * it unseen.
 * Rules are about names: an object with another name too is reached by that, and commands of exec
 * are not bound.
 * Threads: `lock` guards the lists of .agentsignore; it is never held during a call of the inner
 * workspace.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ignore;
struct workspace;

struct policy_rules {
	/* From ignore_add(), for the root; or NULL.  Folded if `inner` ignores case. */
	struct ignore *hidden, *protected;

	/* Files ".agentsignore" of any directory hide, too (below it); none of them can be made or
	 * changed.  One that cannot be read fails the operations below it. */
	bool agentsignore;
};

/* Turns letters of ASCII into lower case.  (Others are compared as they are.) */
void policy_fold(char *text, size_t size);

/* Wraps `inner`; owns it and the references of the rules on success.  -ENOMEM. */
int policy_new(struct workspace *inner, const struct policy_rules *rules,
	struct workspace **ret_workspace);
