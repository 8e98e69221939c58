#include "tools/base/registry.h"

/* All built-in tools, in the order of `tool list`; tool_NAME is defined in tools/tool_*.c. */
#define TOOLS(X)       \
	X(read)        \
	X(write)       \
	X(create_file) \
	X(edit)        \
	X(edit_file)   \
	X(apply_patch) \
	X(delete)      \
	X(ls)          \
	X(find)        \
	X(glob)        \
	X(grep)        \
	X(bash)        \
	X(bash_output) \
	X(bash_input)  \
	X(bash_kill)   \
	X(launch_app)  \
	X(webfetch)    \
	X(websearch)

#define DECLARE(name) extern const struct tool tool_##name;
#define ROW(name)     &tool_##name,

TOOLS(DECLARE)
const struct tool *const registry_built_in[] = {TOOLS(ROW) NULL};

_Static_assert(sizeof(registry_built_in) / sizeof(registry_built_in[0]) <= REGISTRY_BUILT_IN_MAX,
	"there is room for their schemas");
