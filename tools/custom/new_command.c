/* isthmus tool new NAME: creates a working example with its test. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/files.h"
#include "ops/support/path.h"
#include "ops/support/visible.h"
#include "tools/custom/internal.h"

/* In the texts, @NAME@ stands for the tool's name. */
struct file {
	const char *name; /* NULL: the name of the tool */
	mode_t mode;
	const char *text;
};

struct language {
	const char *name;
	struct file files[3];
	const char *then; /* what the user must do before the first call; or NULL */
};

static const char sh_tool[] =
	"#!/bin/sh\n"
	"# Amp's toolbox protocol, text form: describe prints what it is, execute gets the\n"
	"# arguments as \"name: value\" lines and prints the result.  Exit code 0 is success.\n"
	"case $TOOLBOX_ACTION in\n"
	"describe)\n"
	"\techo 'name: @NAME@'\n"
	"\techo 'description: Counts the lines of a file in the workspace'\n"
	"\techo 'path: string the file, below the root'\n"
	"\t;;\n"
	"execute)\n"
	"\tpath=$(sed -n 's/^path: //p')\n"
	"\tlines=$(wc -l <\"$path\") || exit 1\n"
	"\techo \"$path has $((lines)) lines\"\n"
	"\t;;\n"
	"esac\n";

static const char python_tool[] =
	"#!/usr/bin/env python3\n"
	"\"\"\"isthmus-tool/1: one JSON object a line on standard input and output.\"\"\"\n"
	"import json\n"
	"import os\n"
	"import sys\n"
	"\n"
	"DESCRIPTION = {\n"
	"    \"protocol\": \"isthmus-tool/1\",\n"
	"    \"lifetime\": \"call\",\n"
	"    \"tools\": [{\n"
	"        \"name\": \"@NAME@\",\n"
	"        \"label\": \"Count lines\",\n"
	"        \"description\": \"Counts the lines of a file in the workspace\",\n"
	"        \"parameters\": {\n"
	"            \"type\": \"object\",\n"
	"            \"properties\": {\"path\": {\"type\": \"string\", \"description\": \"the "
	"file, "
	"below the root\"}},\n"
	"            \"required\": [\"path\"],\n"
	"        },\n"
	"    }],\n"
	"}\n"
	"\n"
	"\n"
	"def say(**message):\n"
	"    print(json.dumps(message), flush=True)\n"
	"\n"
	"\n"
	"if os.environ[\"TOOLBOX_ACTION\"] == \"describe\":\n"
	"    print(json.dumps(DESCRIPTION))\n"
	"    sys.exit()\n"
	"for line in sys.stdin:\n"
	"    call = json.loads(line)\n"
	"    if call[\"type\"] != \"execute\":\n"
	"        continue\n"
	"    path = call[\"params\"][\"path\"]\n"
	"    try:\n"
	"        say(type=\"update\", id=call[\"id\"], content=[{\"type\": \"text\", \"text\": "
	"\"Counting\"}])\n"
	"        with open(path, \"rb\") as file:\n"
	"            count = sum(1 for _ in file)\n"
	"        say(type=\"result\", id=call[\"id\"], details={\"lines\": count},\n"
	"            content=[{\"type\": \"text\", \"text\": f\"{path} has {count} lines\"}])\n"
	"    except OSError as error:\n"
	"        say(type=\"error\", id=call[\"id\"], message=str(error))\n";

static const char c_tool[] =
	"/* Amp's toolbox protocol, text form.  Build: make */\n"
	"#include <stdio.h>\n"
	"#include <stdlib.h>\n"
	"#include <string.h>\n"
	"\n"
	"int main(void)\n"
	"{\n"
	"\tconst char *action = getenv(\"TOOLBOX_ACTION\");\n"
	"\tchar line[4096];\n"
	"\tlong lines = 0;\n"
	"\tFILE *file;\n"
	"\tint byte;\n"
	"\n"
	"\tif (action && strcmp(action, \"describe\") == 0) {\n"
	"\t\tputs(\"name: @NAME@\\n\"\n"
	"\t\t     \"description: Counts the lines of a file in the workspace\\n\"\n"
	"\t\t     \"path: string the file, below the root\");\n"
	"\t\treturn 0;\n"
	"\t}\n"
	"\tif (!fgets(line, sizeof(line), stdin) || strncmp(line, \"path: \", 6) != 0)\n"
	"\t\treturn 2;\n"
	"\tline[strcspn(line, \"\\n\")] = '\\0';\n"
	"\tfile = fopen(line + 6, \"r\");\n"
	"\tif (!file) {\n"
	"\t\tperror(line + 6);\n"
	"\t\treturn 1;\n"
	"\t}\n"
	"\twhile ((byte = getc(file)) != EOF)\n"
	"\t\tlines += byte == '\\n';\n"
	"\tfclose(file);\n"
	"\tprintf(\"%s has %ld lines\\n\", line + 6, lines);\n"
	"\treturn 0;\n"
	"}\n";

static const char ts_tool[] =
	"// A custom tool of pi: one file, no packages to install.  It needs Node.js 22.18.\n"
	"import { readFileSync } from \"node:fs\";\n"
	"import { Type } from \"typebox\";\n"
	"\n"
	"export default function (pi) {\n"
	"\tpi.registerTool({\n"
	"\t\tname: \"@NAME@\",\n"
	"\t\tlabel: \"Count lines\",\n"
	"\t\tdescription: \"Counts the lines of a file in the workspace\",\n"
	"\t\tparameters: Type.Object({ path: Type.String({ description: \"the file, below the "
	"root\" }) }),\n"
	"\t\tasync execute(_id, { path }: { path: string }, _signal, onUpdate) {\n"
	"\t\t\tonUpdate?.({ content: [{ type: \"text\", text: \"Counting\" }] });\n"
	"\t\t\tconst lines = readFileSync(path, \"utf8\").split(\"\\n\").length - 1;\n"
	"\t\t\tconst text = `${path} has ${lines} lines`;\n"
	"\t\t\treturn { content: [{ type: \"text\", text }], details: { lines } };\n"
	"\t\t},\n"
	"\t});\n"
	"}\n";

static const char makefile[] = "@NAME@: @NAME@.c\n\tcc -O2 -Wall -o $@ $<\n";

/* The test, the same for all languages: calls the tool as a person or an agent would. */
static const char test_script[] =
	"#!/bin/sh\n"
	"# Calls the tool as an agent would.\n"
	"set -e\n"
	"here=$(cd \"$(dirname \"$0\")\" && pwd)\n"
	"room=$(mktemp -d)\n"
	"trap 'rm -rf \"$room\"' EXIT\n"
	"printf 'one\\ntwo\\n' >\"$room/file\"\n"
	"got=$(${ISTHMUS:-isthmus} tool @NAME@ --tool \"$here\" --root \"$room\" --yes --path "
	"file)\n"
	"[ \"$got\" = 'file has 2 lines' ] || { echo \"wrong: $got\"; exit 1; }\n"
	"if ${ISTHMUS:-isthmus} tool @NAME@ --tool \"$here\" --root \"$room\" --yes --path nofile "
	"2>/dev/null; then\n"
	"\techo 'a missing file was no error'\n"
	"\texit 1\n"
	"fi\n"
	"echo good\n";

static const struct language languages[] = {
	{"sh", {{NULL, 0755, sh_tool}, {"test.sh", 0755, test_script}}, NULL},
	{"python", {{NULL, 0755, python_tool}, {"test.sh", 0755, test_script}}, NULL},
	{"c",
		{{"@NAME@.c", 0644, c_tool}, {"Makefile", 0644, makefile},
			{"test.sh", 0755, test_script}},
		"make -C "},
	{"ts", {{"index.ts", 0644, ts_tool}, {"test.sh", 0755, test_script}}, NULL},
};

static const char usage[] =
	"usage: isthmus tool new NAME [--lang sh|python|c|ts] [--root DIR]\n"
	"\n"
	"Writes a working example with its test to .isthmus-tools/NAME below DIR (default: the\n"
	"current directory).  Change it, run its test.sh, then isthmus tool trust.\n";

static char *fill_in(const char *text, const char *name)
{
	static const char mark[] = "@NAME@";
	struct buffer filled cleanup_buffer = {0};

	for (const char *at; (at = strstr(text, mark)); text = at + strlen(mark))
		if (buffer_append(&filled, text, (size_t)(at - text)) < 0 ||
			buffer_append_string(&filled, name) < 0)
			return NULL;
	if (buffer_append_string(&filled, text) < 0)
		return NULL;
	return buffer_steal_string(&filled);
}

static int write_file(int directory, const struct file *file, const char *name)
{
	cleanup_free char *text = fill_in(file->text, name);
	cleanup_free char *file_name = fill_in(file->name ? file->name : "@NAME@", name);
	cleanup_fd int fd = -1;

	if (!text || !file_name)
		return -ENOMEM;
	fd = openat(directory, file_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file->mode);
	if (fd < 0)
		return -errno;
	return write_all(fd, text, strlen(text));
}

static int write_tool(const char *path, const struct language *language, const char *name)
{
	cleanup_fd int directory = -1;
	int r = 0;

	if (access(path, F_OK) == 0)
		return -EEXIST;
	directory = make_directories(path);
	if (directory < 0)
		return directory;
	if (fchmod(directory, 0755) < 0)
		return -errno;
	for (size_t i = 0; r == 0 && i < array_size(language->files) && language->files[i].text;
		i++)
		r = write_file(directory, &language->files[i], name);
	return r;
}

static const struct language *find_language(const char *name)
{
	for (size_t i = 0; i < array_size(languages); i++)
		if (strcmp(languages[i].name, name) == 0)
			return &languages[i];
	return NULL;
}

static int complain(const char *what, const char *name)
{
	fputs("isthmus tool new: ", stderr);
	fputs(what, stderr);
	visible_print_name(stderr, name);
	fputs("\n", stderr);
	return 2;
}

int custom_new_command(int argc, char **argv)
{
	const char *name = NULL, *lang = "sh", *root = ".";
	const struct language *language;
	cleanup_free char *path = NULL;
	int r;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			fputs(usage, stdout);
			return 0;
		}
		if (strcmp(argv[i], "--lang") == 0 && i + 1 < argc)
			lang = argv[++i];
		else if (strcmp(argv[i], "--root") == 0 && i + 1 < argc)
			root = argv[++i];
		else if (!name && *argv[i] != '-')
			name = argv[i];
		else
			return complain("what is this: ", argv[i]);
	}
	if (!name) {
		fputs(usage, stderr);
		return 2;
	}
	if (!custom_name_fits(name))
		return complain("a name is a letter and up to 39 more of a-z, 0-9 and _, and no "
				"built-in tool's: ",
			name);
	language = find_language(lang);
	if (!language)
		return complain("a language is sh, python, c or ts: ", lang);
	path = string_printf("%s/.isthmus-tools/%s", root, name);
	r = path ? write_tool(path, language, name) : -ENOMEM;
	if (r < 0) {
		fputs("isthmus tool new: cannot write ", stderr);
		visible_print_name(stderr, path ? path : name);
		fprintf(stderr, ": %s\n", strerror(-r));
		return 1;
	}
	visible_print_name(stdout, path);
	fputs("\nnext: ", stdout);
	if (language->then)
		printf("%s%s && ", language->then, path);
	printf("%s/test.sh, then isthmus tool trust\n", path);
	return 0;
}
