/*
 * tools/base/powers.h - restricts a limited child before it reads untrusted content.
 *
 * Threads: the process must have only the calling thread.
 */
#pragma once

/* Installs a seccomp filter: the process can compute, read and write open descriptors, and exit.
 * On a kernel without filters only the limits of tools/base/limited_child.h apply. */
void give_up_powers(void);
