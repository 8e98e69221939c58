/*
 * ops/support/standard_files.h - standard input, output and error that were closed at the start.
 */
#pragma once

/* For the beginning of main(): what is opened later must not get the numbers 0 to 2, or it would
 * be closed by who goes to the background, and be read and written by who means the standard
 * files.  Those that are closed refuse what they are for from now on (-EBADF), as before. */
void standard_files_hold(void);
