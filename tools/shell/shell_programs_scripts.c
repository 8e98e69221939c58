/*
 * Scripts in a word, for awk, sed, jq and printf.  Each has a small grammar of what surely only
 * prints, and which all implementations (gawk, mawk, busybox, onetrue-awk; GNU and busybox sed)
 * read in the same way.  Everything else asks.
 */
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "tools/shell/shell_programs_internal.h"

/* Whether the whole script matches the extended regular expression.  Only ASCII: another byte may
 * belong to a character that ends in a backslash, depending on the locale. */
static bool matches(const char *script, const char *grammar)
{
	regex_t regex;
	bool found = false;

	for (const char *at = script; *at; at++)
		if ((*at < ' ' && *at != '\t' && *at != '\n') || *at > '~')
			return false;
	if (regcomp(&regex, grammar, REG_EXTENDED | REG_NOSUB) == 0) {
		found = regexec(&regex, script, 0, NULL, 0) == 0;
		regfree(&regex);
	}
	return found;
}

#define BLANKS "[ \t]*"
#define SPACE  "[ \t\n;]*"

/* A regular expression between delimiters; `others`: the punctuation / | , # that is not the
 * delimiter.  In [ ] there is neither a backslash nor a delimiter, nor ^ or ] but at the ends, in
 * which implementations differ. */
#define LETTERS "A-Za-z0-9 _'!%&()*+.:;<=>?@`{}~$"
#define REGEX(others, escapes)                                                \
	"([]^\"" LETTERS others "-]|\\\\[]./$^*+?()[{}swbSWBnt" escapes "-]|" \
	"\\[\\^?([\"" LETTERS others "-]|\\[:[a-z]+:\\])+\\])"
#define SLASHES "/" REGEX("|,#", "|") "+/"

/* ---- sed ----------------------------------------------------------------------------------- */

#define SUBSTITUTE(delimiter, others)                                          \
	"s" delimiter REGEX(others, "") "*" delimiter "([][^\"" LETTERS others \
					"-]|\\\\[&./1-9nt])*" delimiter "[gpiI0-9]*"
#define ADDRESS "([0-9]+|\\$|" SLASHES ")"
#define SED_COMMAND                                                                        \
	"(" ADDRESS BLANKS "(," BLANKS "(" ADDRESS "|\\+[0-9]+)" BLANKS ")?!?" BLANKS ")?" \
	"([pdq=]|" SUBSTITUTE("/", "|,#") "|" SUBSTITUTE("\\|", "/,#") "|" SUBSTITUTE(     \
		",", "/|#") "|" SUBSTITUTE("#", "/|,") ")"

bool shell_sed_only_prints(const char *script)
{
	return matches(script, "^" SPACE "(" SED_COMMAND BLANKS "([;\n]" SPACE "|$))*$");
}

static void check_sed(struct shell_judge *judge, size_t word, size_t offset)
{
	const char *script = shell_judge_fixed(judge, word);

	if (!script || !shell_sed_only_prints(script + offset))
		shell_judge_ask(judge,
			"sed may write or read other files, or run commands, by anything but "
			"s///, p, d and q");
}

/* sed -i: the file, and its copy with the suffix in its name. */
static void use_in_place(struct shell_judge *judge, size_t word, const char *suffix)
{
	cleanup_free char *copy = NULL;

	shell_judge_use(judge, word, 0, SHELL_READS | SHELL_WRITES);
	if (!*suffix)
		return;
	if (strpbrk(suffix, "/*") || !shell_judge_fixed(judge, word))
		shell_judge_ask(judge, "sed -i with %.60s writes files of other names", suffix);
	else if (asprintf(&copy, "%s%s", judge->words[word].text, suffix) < 0)
		judge->no_memory = true;
	else
		shell_judge_use_path(judge, copy, SHELL_WRITES);
}

void shell_look_sed(struct shell_judge *judge)
{
	const char *suffix = NULL;
	bool has_script = false;
	size_t first = 0;

	judge->operands_taken = true;
	for (size_t i = 0; i < judge->option_count; i++) {
		const struct shell_option *option = &judge->options[i];

		if (option->name[0] == 'e') {
			check_sed(judge, option->value_word, option->value_offset);
			has_script = true;
		} else if (option->name[0] == 'i') {
			suffix = option->value_word ? judge->words[option->value_word].text +
							      option->value_offset
						    : "";
		}
	}
	if (!has_script && judge->operand_count)
		check_sed(judge, judge->operands[first++], 0);
	for (size_t i = first; i < judge->operand_count; i++) {
		if (suffix)
			use_in_place(judge, judge->operands[i], suffix);
		else
			shell_judge_use(judge, judge->operands[i], 0, SHELL_READS);
	}
}

/* ---- awk ----------------------------------------------------------------------------------- */

#define STRING "\"([][^" LETTERS "/|,#-]|\\\\[nt])*\""
#define VALUE                                                                             \
	"(" STRING "|\\$([0-9]+|NF|\\(NF-[0-9]+\\))|F?NR|NF|FILENAME|[0-9]+(\\.[0-9]+)?|" \
	"length\\(\\$[0-9]+\\))"
#define COMPARISON \
	"(!?" SLASHES "|" VALUE BLANKS "(!?~" BLANKS SLASHES "|([=!]=|[<>]=?)" BLANKS VALUE ")?)"
#define PATTERN COMPARISON "(" BLANKS "(&&|\\|\\||,)" BLANKS COMPARISON ")*"
#define STATEMENT \
	"(next|exit|(print|printf" BLANKS STRING ")(" BLANKS ",?" BLANKS VALUE ")*)" BLANKS
#define ACTION "\\{" SPACE "(" STATEMENT "[;\n]" SPACE ")*(" STATEMENT ")?\\}"

bool shell_awk_only_prints(const char *program)
{
	return matches(program,
		"^" SPACE "((BEGIN|END|" PATTERN ")?" BLANKS "(" ACTION "|[;\n]|$)" SPACE ")*$");
}

/* x=1 among the files assigns a variable. */
void shell_look_awk(struct shell_judge *judge)
{
	const char *program = shell_judge_operand(judge, 0);

	if (judge->operand_count && (!program || !shell_awk_only_prints(program)))
		shell_judge_ask(judge, "awk may write or read other files, or run commands, by "
				       "anything but print, "
				       "fields, comparisons and plain patterns");
	for (size_t i = 1; i < judge->operand_count; i++)
		if (strchr(judge->words[judge->operands[i]].text, '='))
			shell_judge_ask(judge, "awk may take %.60s for an assignment",
				judge->words[judge->operands[i]].text);
}

/* ---- jq ------------------------------------------------------------------------------------ */

/* Fields, operators, strings and these functions: no variables, modules or environment.  No words
 * of the list joined are the name of another function. */
#define JQ_FUNCTIONS                                                                               \
	"and|or|not|null|true|false|if|then|elif|else|end|empty|length|keys|values|has|in|map|"    \
	"select|type|add|any|all|min|max|min_by|max_by|first|last|sort|sort_by|group_by|unique|"   \
	"unique_by|reverse|join|split|test|contains|inside|startswith|endswith|ltrimstr|rtrimstr|" \
	"tostring|tonumber|tojson|fromjson|to_entries|from_entries|with_entries|flatten|range|"    \
	"floor|paths|del|recurse|input_filename"

/* In "1.env" and "..env", env is no field. */
bool shell_jq_only_prints(const char *program)
{
	return matches(program, "^([] \t\n,|:;[(){}?+*/%<>=!0-9-]|\\.|\\.[A-Za-z_][A-Za-z0-9_]*|"
				"\"[^\"\\]*\"|(" JQ_FUNCTIONS "))*$") &&
	       !matches(program, "[.0-9]\\.[.A-Za-z_]|\\.\\.");
}

void shell_look_jq(struct shell_judge *judge)
{
	const char *program = shell_judge_operand(judge, 0);

	if (judge->operand_count && (!program || !shell_jq_only_prints(program)))
		shell_judge_ask(judge,
			"jq may read other files, or variables, by anything but fields, operators "
			"and common functions");
}

/* ---- printf -------------------------------------------------------------------------------- */

/* %n sets a variable, and evaluates $( ) in its subscript. */
void shell_look_printf(struct shell_judge *judge)
{
	const char *at = shell_judge_operand(judge, 0);

	if (!judge->operand_count)
		return;
	if (!at) {
		shell_judge_ask(judge, "the format of printf is not known before it runs");
		return;
	}
	while ((at = strchr(at, '%'))) {
		at += 1 + strspn(at + 1, "-+ #0'*.0123456789hlLjzt");
		if (*at == 'n')
			shell_judge_ask(judge, "printf %%n sets a variable");
		if (*at == '%')
			at++;
	}
}
