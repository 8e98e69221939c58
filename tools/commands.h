/* tools/commands.h - the sub-commands of isthmus-tools; each returns the exit code. */
#pragma once

int tool_command(int argc, char **argv);
