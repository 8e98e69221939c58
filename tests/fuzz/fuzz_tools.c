/* What the tools read of others: JSON, ignore files, globs, command lines, edits.  The first
 * byte picks the parser. */
#include <stdlib.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tools/text/edits.h"
#include "ops/support/glob.h"
#include "ops/support/ignore.h"
#include "tools/mcp/mcp.h"
#include "tools/permission/permission.h"
#include "tools/shell/shell.h"
#include "tools/syntax/syntax.h"

static void json(const char *text, size_t size)
{
	struct syntax_error error = {0};
	char *raw;

	syntax_json(text, size, SYNTAX_JSON_COMMENTS, &error);
	if (syntax_json(text, size, 0, &error) < 0)
		return;
	raw = mcp_raw_member(text, size, "id");
	free(raw);
	json_has_escaped_nul(text, size);
}

static void yaml(const char *text, size_t size)
{
	struct syntax_error error = {0};

	syntax_yaml(text, size, &error);
}

static void glob(const char *text, size_t size)
{
	const char *path = memchr(text, '\n', size);
	struct glob compiled;

	if (glob_compile(text, &compiled) < 0)
		return;
	glob_matches(&compiled, path ? path + 1 : "a/b");
	glob_done(&compiled);
}

static void ignore(const char *text, size_t size)
{
	struct ignore *chain = NULL;

	ignore_add(&chain, "", text, size);
	ignore_matches(chain, "some/path/file.o", false);
	ignore_matches(chain, text, true);
	ignore_names_below(chain, "some/path");
	ignore_unref(chain);
}

static void shell(const char *text, size_t size)
{
	static struct files_root root = {.fd = -1};
	const struct shell_context context = {.root = &root, .directory = ""};
	struct shell_analysis analysis;

	(void)size;
	if (root.fd < 0 && files_root_open("/proc/sys/fs", &root) < 0)
		abort();
	if (shell_analyse(&context, "", text, &analysis) == 0)
		shell_analysis_done(&analysis);
}

/* OLD, a line, NEW, a line, then the file. */
static void edit(const char *text, size_t size)
{
	char *copy = strdup(text), *old_text = copy, *new_text, *file;
	struct edits_plan plan;
	struct buffer diff = {0};

	(void)size;
	new_text = copy ? strchr(old_text, '\n') : NULL;
	file = new_text ? strchr(new_text + 1, '\n') : NULL;
	if (file && new_text > old_text) {
		struct edit one = {
			.old_text = old_text, .new_text = new_text + 1, .replace_all = true};
		size_t file_size, first, last;

		*new_text = *file++ = '\0';
		file_size = strlen(file);
		if (edits_plan((const uint8_t *)file, file_size, &one, 1, &plan) == EDITS_OK)
			edits_diff("f", (const uint8_t *)file, file_size, &plan, &diff);
		edits_plan_done(&plan);
		edits_nearest((const uint8_t *)file, file_size, old_text, &first, &last);
	}
	buffer_done(&diff);
	free(copy);
}

static void rules(const char *text, size_t size)
{
	struct permissions *permissions = NULL;
	struct buffer problem = {0};

	if (permissions_new(&permissions) < 0)
		return;
	permissions_parse(permissions, PERMISSION_FROM_USER, text, size, &problem);
	permissions_verdict(permissions, "bash", TOOL_DANGEROUS, "git push");
	permissions_free(permissions);
	buffer_done(&problem);
}

static void clean(const char *text, size_t size)
{
	struct buffer out = {0};

	utf8_append_clean(&out, text, size);
	buffer_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const parsers[])(const char *text, size_t size) = {
		json, yaml, glob, ignore, shell, edit, rules, clean};
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	parsers[data[0] % array_size(parsers)](text, size - 1);
	free(text);
	return 0;
}
