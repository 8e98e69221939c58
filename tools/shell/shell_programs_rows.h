/*
 * tools/shell/shell_programs_rows.h - short names for the files with rows; include it last.
 */
#pragma once

#include "ops/support/cleanup.h"
#include "tools/shell/shell_programs_internal.h"

#define READS          SHELL_ROW_ONLY_READS
#define READS_ANY      (SHELL_ROW_ONLY_READS | SHELL_ROW_ANY_OPTION)
#define PRINTS         (SHELL_ROW_ONLY_READS | SHELL_ROW_PLAIN_WORDS)
#define HERE           SHELL_ROW_HERE
#define TREE           SHELL_ROW_TREE
#define STOPS          SHELL_ROW_STOPS
#define TRANSPARENT    (SHELL_ROW_ONLY_READS | STOPS | SHELL_ROW_INNER | SHELL_ROW_TRANSPARENT)
#define RUNS           (STOPS | SHELL_ROW_INNER)
#define COMMANDS(list) .commands = (list), .command_count = array_size(list)
