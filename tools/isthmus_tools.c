/* The program isthmus-tools, which `isthmus tool ...` and `isthmus mcp ...` execute. */
#include <stdio.h>
#include <string.h>

#include "ops/support/log.h"
#include "ops/support/standard_files.h"
#include "ops/support/visible.h"
#include "tools/commands.h"
#include "tools/custom/custom.h"
#include "tools/image/image.h"
#include "tools/web/page.h"

static const char usage[] =
	"usage: isthmus-tools tool NAME [--OPTION VALUE]...   run one tool\n"
	"       isthmus-tools tool list [--json]              what there is\n"
	"       isthmus-tools mcp [DIR]                       serve them to an agent\n"
	"       isthmus-tools session [EVENT]                 where an agent's session is\n"
	"\n"
	"'tool NAME --help' shows a tool's options; isthmus-tools(1) has the rest.\n";

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"tool", tool_command}, {"mcp", mcp_command}, {"session", custom_session_command},
	{"page", page_command}, /* internal: limited child of webfetch */
#ifdef HAVE_IMAGES
	{"image", image_command}, /* internal: limited child for pictures */
#endif
	{"at-workspace", custom_at_workspace_command}, /* internal: for custom tools */
};

int main(int argc, char **argv)
{
	standard_files_hold();
	log_set_output(2, "isthmus-tools: ");
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
		puts("isthmus-tools " ISTHMUS_VERSION);
		return 0;
	}
	if (argc > 1) {
		fputs("isthmus-tools: there is no command \"", stderr);
		visible_print_name(stderr, argv[1]);
		fputs("\"\n", stderr);
	}
	fputs(usage, stderr);
	return 2;
}
