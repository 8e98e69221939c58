/* Checks of the words of curl and wget. */
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "tools/shell/shell_programs_internal.h"

/* A downloaded file gets the last name in its address. */
static void use_last_names(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++) {
		const char *text = judge->words[judge->operands[i]].text;

		if (*path_name(text))
			shell_judge_use(judge, judge->operands[i], (size_t)(path_name(text) - text),
				SHELL_WRITES);
		if (strpbrk(text, "{[?#"))
			shell_judge_ask(
				judge, "%s may write %.60s under another name", judge->label, text);
	}
}

/* Only plain addresses: "fil{e}:///x" is a pattern of curl, and without a scheme it guesses one. */
static void check_address(struct shell_judge *judge, size_t word, size_t offset)
{
	const char *text = shell_judge_fixed(judge, word);
	size_t scheme = !text                                        ? 0
			: strncmp(text + offset, "http://", 7) == 0  ? 7
			: strncmp(text + offset, "https://", 8) == 0 ? 8
								     : 0;

	if (!scheme || text[offset + scheme +
			       shell_plain_length(text + offset + scheme, "-._~:/?#@!$&'()*+,;=%")])
		shell_judge_ask(judge, "%s %.60s may read files of this machine", judge->label,
			judge->words[word].text + offset);
}

/* "%{http_code}", but not "%output{FILE}". */
static bool is_write_out(const char *value)
{
	while ((value = strpbrk(value, "%{"))) {
		if (strncmp(value, "%{", 2) != 0)
			return false;
		value += 2 + shell_plain_length(value + 2, "_");
		if (*value != '}')
			return false;
	}
	return true;
}

/* Whether the value of the option is a path, or has one in it. */
static bool has_path(const struct shell_option *option)
{
	static const char *const names[] = {
		"F", "form", "T", "upload-file", "o", "output", "output-dir"};

	for (size_t i = 0; i < array_size(names); i++)
		if (strlen(names[i]) == option->length &&
			strncmp(names[i], option->name, option->length) == 0)
			return true;
	return false;
}

void shell_look_curl(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++)
		check_address(judge, judge->operands[i], 0);
	for (size_t i = 0; i < judge->option_count; i++) {
		const struct shell_option *option = &judge->options[i];
		const char *value = judge->words[option->value_word].text + option->value_offset;

		if (option->length == 3 && strncmp(option->name, "url", 3) == 0)
			check_address(judge, option->value_word, option->value_offset);
		else if (option->value_word &&
			 ((has_path(option) && strpbrk(value, "{}[],;\"\\#")) ||
				 (option->name[0] == 'w' && !is_write_out(value))))
			shell_judge_ask(judge, "curl %.60s may name other files", value);
	}
	if (shell_judge_has_option(judge, "O") || shell_judge_has_option(judge, "remote-name") ||
		shell_judge_has_option(judge, "remote-name-all"))
		use_last_names(judge);
}

void shell_look_wget(struct shell_judge *judge)
{
	for (size_t i = 0; i < judge->operand_count; i++)
		check_address(judge, judge->operands[i], 0);
	static const char *const many[] = {"r", "m", "p", "x", "recursive", "mirror",
		"page-requisites", "content-disposition", "trust-server-names",
		"force-directories"};

	for (size_t i = 0; i < array_size(many); i++)
		if (shell_judge_has_option(judge, many[i]))
			shell_judge_use_path(judge, ".", SHELL_WRITES | SHELL_TREE);
	if (!shell_judge_has_option(judge, "O") &&
		!shell_judge_has_option(judge, "output-document"))
		use_last_names(judge);
}
