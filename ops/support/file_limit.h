/*
 * ops/support/file_limit.h - how many files this program may have open.
 *
 * A program that serves a workspace has open what all others together have open there; most
 * systems allow 1,024 unless they are asked, for the sake of select(2).
 */
#pragma once

/* As many as this process may ask for.  Once, before there are threads. */
void file_limit_raise(void);

/* As it was before file_limit_raise(): for a child that becomes another program. */
void file_limit_restore(void);
