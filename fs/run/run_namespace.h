/*
 * fs/run/run_namespace.h - a private mount namespace, in which the workspace lies at the path that
 * it has where it is, and our shell over the agent's.
 *
 * Needs root, or user namespaces.  Everything in it ends with its last process.
 * Threads: the process has one.
 */
#pragma once

/* 0, or -errno: -EPERM where user namespaces are not to be had. */
int run_namespace_enter(void);

/* Shows the directory `from` at `at`, which is made where it is missing: in the namespace only, as
 * far as this user cannot make it.  `staging` is an empty directory of ours. */
int run_namespace_show(const char *from, const char *at, const char *staging);

/* Shows the file `from` in the place of `over` (through links).  What was there is at `*former`,
 * an empty file of ours, from now on. */
int run_namespace_replace(const char *from, const char *over, const char *former);
