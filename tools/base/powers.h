/*
 * tools/base/powers.h - what a limited child gives up before it looks at what is not trusted.
 *
 * Threads: the calling one, which must be the only one.
 */
#pragma once

/* From here on it computes, reads and writes what is open, and ends; nothing else.  A kernel
 * without filters leaves it the other limits (tools/base/limited_child.h). */
void give_up_powers(void);
