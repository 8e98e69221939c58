/*
 * Scripts in a word, for sed, awk, jq and printf.  Each is parsed strictly; a script asks if it is
 * not understood, or if implementations of the program differ in how they read it.
 */
#include <ctype.h>
#include <string.h>

#include "ops/support/buffer.h"
#include "tools/shell/shell_programs_internal.h"

/* ---- sed ----------------------------------------------------------------------------------- */

/* The position after the closing delimiter; NULL: there is none, or it depends on whether [ ]
 * quotes the delimiter, in which implementations differ. */
static const char *skip_delimited(const char *at, char delimiter, bool is_regex)
{
	bool in_brackets = false;

	for (; *at; at++) {
		if (*at == delimiter)
			return in_brackets ? NULL : at + 1;
		if (*at == '\n')
			return NULL;
		if (*at == '\\') {
			if (!at[1] || at[1] == '\n' ||
				(in_brackets && (at[1] == delimiter || strchr("]\\[", at[1]))))
				return NULL;
			at++;
		} else if (is_regex && *at == '[' && !in_brackets) {
			in_brackets = true;
			at += at[1] == '^';
			at += at[1] == ']';
		} else if (in_brackets && *at == '[' && strchr(".:=", at[1]) && at[1]) {
			const char *end = strchr(at + 2, ']');

			if (!end || end == at + 2 || end[-1] != at[1] ||
				memchr(at, delimiter, (size_t)(end - at)))
				return NULL;
			at = end;
		} else if (in_brackets && *at == ']') {
			in_brackets = false;
		}
	}
	return NULL;
}

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t");
}

static const char *skip_digits(const char *at)
{
	return at + strspn(at, "0123456789");
}

static const char *skip_address(const char *at)
{
	if (*at == '/' || *at == '\\') {
		char delimiter = *at == '/' ? '/' : at[1];

		if (!ispunct((unsigned char)delimiter) || delimiter == '\\')
			return NULL;
		at = skip_delimited(at + (*at == '/' ? 1 : 2), delimiter, true);
		return at ? at + strspn(at, "IM") : NULL;
	}
	if (*at == '$')
		return at + 1;
	at = skip_digits(at);
	return *at == '~' ? skip_digits(at + 1) : at;
}

static const char *skip_addresses(const char *at)
{
	at = skip_address(at);
	if (!at)
		return NULL;
	at = skip_blanks(at);
	if (*at == ',') {
		at = skip_blanks(at + 1);
		at = *at == '+' || *at == '~' ? skip_digits(at + 1) : skip_address(at);
		if (!at)
			return NULL;
		at = skip_blanks(at);
	}
	while (*at == '!' || *at == ' ' || *at == '\t')
		at++;
	return at;
}

/* Skips the text of a, i and c, up to a newline without "\" before it. */
static const char *skip_text(const char *at)
{
	for (; *at && *at != '\n'; at++) {
		if (*at != '\\')
			continue;
		if (!at[1] || at[1] == '\\')
			return NULL;
		at++;
	}
	return at;
}

static const char *skip_substitution(const char *at, bool is_regex)
{
	char delimiter = *at;

	if (!ispunct((unsigned char)delimiter) || delimiter == '\\')
		return NULL;
	at = skip_delimited(at + 1, delimiter, is_regex);
	return at ? skip_delimited(at, delimiter, false) : NULL;
}

static const char *skip_command(const char *at)
{
	char command = *at++;

	if (command == 's') {
		at = skip_substitution(at, true);
		return at ? at + strspn(at, "gpiIMm0123456789") : NULL;
	}
	if (command == 'y')
		return skip_substitution(at, false);
	if (command && strchr("aic", command))
		return skip_text(at);
	if (command && strchr("btT:", command)) {
		at = skip_blanks(at);
		while (isalnum((unsigned char)*at) || *at == '_')
			at++;
		return *at == '}' ? NULL : at;
	}
	if (command && strchr("qQlL", command))
		return skip_digits(skip_blanks(at));
	return command && strchr("=dDgGhHnNpPxzF", command) ? at : NULL;
}

bool shell_sed_only_prints(const char *script)
{
	const char *at = script;

	for (;;) {
		at += strspn(at, " \t\n;");
		if (!*at)
			return true;
		at = skip_addresses(at);
		if (!at)
			return false;
		if (*at == '#') {
			at += strcspn(at, "\n");
			continue;
		}
		if (*at == '{') {
			at++;
			continue;
		}
		if (*at != '}')
			at = skip_command(at);
		else
			at++;
		if (!at)
			return false;
		at = skip_blanks(at);
		if (*at && !strchr(";\n}#", *at))
			return false;
	}
}

static bool append_word(struct buffer *script, const struct shell_word *word, size_t offset)
{
	return word->known && !word->glob &&
	       buffer_printf(script, "%s\n", word->text + offset) >= 0;
}

void shell_look_sed(struct shell_judge *judge)
{
	struct buffer script cleanup_buffer = {0};
	bool known = true, has_script = false, in_place = false;
	size_t first = 0;

	judge->operands_taken = true;
	for (size_t i = 0; i < judge->option_count; i++) {
		const struct shell_option *option = &judge->options[i];
		const char *value = judge->words[option->value_word].text + option->value_offset;
		bool is_script = option->name[0] == 'e' && option->value_word;

		if (is_script)
			known = append_word(&script, &judge->words[option->value_word],
					option->value_offset) &&
				known;
		has_script = has_script || is_script || option->name[0] == 'f';
		if (option->name[0] != 'i')
			continue;
		in_place = true;
		if (option->value_word && strpbrk(value, "/*"))
			shell_judge_ask(
				judge, "sed -i with %.60s writes files of other names", value);
	}
	if (!has_script && judge->operand_count)
		known = append_word(&script, &judge->words[judge->operands[first++]], 0) && known;
	buffer_append(&script, "", 1);
	if (!known || (script.data && !shell_sed_only_prints((const char *)script.data)))
		shell_judge_ask(judge,
			"the script of sed may write or read files, or run commands (w, r, e)");
	for (size_t i = first; i < judge->operand_count; i++)
		shell_judge_use(judge, judge->operands[i], 0,
			in_place ? SHELL_READS | SHELL_WRITES : SHELL_READS);
}

/* ---- awk ----------------------------------------------------------------------------------- */

/* The last token, which decides the meaning of a following "/" or newline. */
enum awk_token {
	AWK_OPERATOR, /* "/" begins a regular expression */
	AWK_OPERAND,  /* "/" divides; a newline ends the statement */
	AWK_EITHER,   /* a keyword, ++ or --: not decided here */
};

struct awk_scan {
	const char *at;
	enum awk_token last;
	int depth;       /* of ( ) */
	int print_depth; /* `depth` at the present print; -1: not in a print */
	int head_depth;  /* `depth` at the present if, while or for; -1: not in its ( ) */
};

static bool is_name_byte(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static bool is_awk_word(const char *word, size_t length, const char *list)
{
	while (*list) {
		size_t size = strcspn(list, " ");

		if (size == length && memcmp(list, word, length) == 0)
			return true;
		list += size + strspn(list + size, " ");
	}
	return false;
}

/* Skips a number: in 2system("id"), 2 is a number and system is called. */
static bool scan_awk_number(struct awk_scan *scan)
{
	while (isdigit((unsigned char)*scan->at))
		scan->at++;
	scan->last = AWK_OPERAND;
	return !is_name_byte(*scan->at);
}

static bool scan_awk_word(struct awk_scan *scan)
{
	const char *word = scan->at;
	size_t length;

	while (is_name_byte(*scan->at))
		scan->at++;
	length = (size_t)(scan->at - word);
	if (is_awk_word(word, length, "system getline ARGV ARGC ENVIRON SYMTAB FUNCTAB extension"))
		return false;
	if (is_awk_word(word, length, "print printf"))
		scan->print_depth = scan->depth;
	if (is_awk_word(word, length, "if while for"))
		scan->head_depth = scan->depth;
	scan->last = is_awk_word(word, length,
			     "print printf return in exit delete do else while for if func"
			     " function BEGIN END case switch default")
			     ? AWK_EITHER
			     : AWK_OPERAND;
	return true;
}

static bool scan_awk_string(struct awk_scan *scan)
{
	for (scan->at++; *scan->at != '"'; scan->at++) {
		if (*scan->at == '\\')
			scan->at++;
		if (!*scan->at || *scan->at == '\n')
			return false;
	}
	scan->at++;
	scan->last = AWK_OPERAND;
	return true;
}

static bool scan_awk_slash(struct awk_scan *scan)
{
	if (scan->last == AWK_EITHER)
		return false;
	if (scan->last == AWK_OPERAND) {
		scan->at++;
		scan->last = AWK_OPERATOR;
		return scan->at[0] != '/' && scan->at[0] != '=';
	}
	scan->at = skip_delimited(scan->at + 1, '/', true);
	scan->last = AWK_OPERAND;
	return scan->at != NULL;
}

static bool scan_awk_operator(struct awk_scan *scan)
{
	char c = *scan->at++;

	if (c == '@' || c == '\\' || c == '`' || !isascii(c) || iscntrl((unsigned char)c))
		return false;
	if (c == '|' && *scan->at++ != '|')
		return false;
	if (c == '>' && scan->print_depth == scan->depth)
		return false;
	if ((c == '+' || c == '-') && *scan->at == c) {
		scan->at++;
		scan->last = AWK_EITHER;
		return true;
	}
	if (c == ';' || c == '{' || c == '}')
		scan->print_depth = -1;
	scan->depth += (c == '(') - (c == ')');
	scan->last = c == ')' || c == ']' ? AWK_OPERAND : AWK_OPERATOR;
	if (c == ')' && scan->head_depth == scan->depth) { /* a statement follows: if (x) /re/ */
		scan->head_depth = -1;
		scan->last = AWK_EITHER;
	}
	return true;
}

bool shell_awk_only_prints(const char *program)
{
	struct awk_scan scan = {.at = program, .print_depth = -1, .head_depth = -1};

	while (*scan.at) {
		bool ok = true;

		if (*scan.at == ' ' || *scan.at == '\t') {
			scan.at++;
		} else if (*scan.at == '#') {
			scan.at += strcspn(scan.at, "\n");
		} else if (*scan.at == '\n') {
			if (scan.last == AWK_OPERAND && scan.depth == 0) {
				scan.print_depth = -1;
				scan.last = AWK_OPERATOR;
			}
			scan.at++;
		} else if (*scan.at == '"') {
			ok = scan_awk_string(&scan);
		} else if (*scan.at == '/') {
			ok = scan_awk_slash(&scan);
		} else if (isdigit((unsigned char)*scan.at)) {
			ok = scan_awk_number(&scan);
		} else if (is_name_byte(*scan.at)) {
			ok = scan_awk_word(&scan);
		} else {
			ok = scan_awk_operator(&scan);
		}
		if (!ok)
			return false;
	}
	return true;
}

void shell_look_awk(struct shell_judge *judge)
{
	const char *program = shell_judge_operand(judge, 0);

	if (!judge->operand_count)
		return;
	if (!program || !shell_awk_only_prints(program))
		shell_judge_ask(
			judge, "the program of awk may write or read files, or run commands");
}

/* ---- jq ------------------------------------------------------------------------------------ */

static bool has_name(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = text; (at = strstr(at, name)); at++)
		if ((at == text || !is_name_byte(at[-1])) && !is_name_byte(at[length]))
			return true;
	return false;
}

void shell_look_jq(struct shell_judge *judge)
{
	const char *program = shell_judge_operand(judge, 0);

	if (!judge->operand_count)
		return;
	if (!program || has_name(program, "import") || has_name(program, "include") ||
		has_name(program, "modulemeta"))
		shell_judge_ask(judge, "the program of jq may read other files");
	/* Prints environment variables, which may contain secrets. */
	else if (has_name(program, "env") || has_name(program, "ENV"))
		judge->not_proved = true;
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
