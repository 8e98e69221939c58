/*
 * ops/support/rename.h - to give a file a name that nothing has yet.
 */
#pragma once

/* Renames `from` to `to`, both in `directory`, where renameat2(2) knows no flags (NFS, 9p), too.
 * -EEXIST: something is there; -errno. */
int rename_to_free_name(int directory, const char *from, const char *to);
