#include "tools/shell/shell_begin.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "tools/shell/shell.h"

bool shell_is_in_background(const struct shell_command *command)
{
	while (command->join != SHELL_THEN && command->join != SHELL_BACKGROUND)
		command = command->next;
	return command->join == SHELL_BACKGROUND;
}

/* The text of a word without expansions; else NULL. */
static const char *literal_text(const struct shell_token *token)
{
	const struct shell_part *part = token ? token->parts : NULL;

	return part && part->type == SHELL_LITERAL && !part->next ? part->text : NULL;
}

/* The words after NAME, if the command is only "NAME WORD..."; else NULL. */
static const struct shell_token *words_after(const struct shell_command *command, const char *name)
{
	const char *first = command->type == SHELL_SIMPLE ? literal_text(command->words) : NULL;

	return first && strcmp(first, name) == 0 && !*command->prefix && !command->settings &&
			       !command->redirections && command->next &&
			       !shell_is_in_background(command)
		       ? command->words->next
		       : NULL;
}

const char *shell_begin_cd(const struct shell_command *command)
{
	const struct shell_token *words = words_after(command, "cd");
	const char *word = literal_text(words);

	/* bash resolves ".." by names, the kernel by links. */
	if (!word || words->next || command->join != SHELL_AND || !*word || strchr("-~", *word) ||
		strstr(word, ".."))
		return NULL;
	return word;
}

int shell_begin_export(const struct shell_command *command, struct buffer *settings)
{
	const struct shell_token *words = words_after(command, "export");
	size_t before = settings->size;
	int r = words && (command->join == SHELL_AND || command->join == SHELL_THEN) ? 0 : -ENOENT;

	for (const struct shell_token *token = words; token && r == 0; token = token->next) {
		const char *text = literal_text(token);
		size_t length = 0;

		while (text && (isalnum((unsigned char)text[length]) || text[length] == '_'))
			length++;
		if (!length || text[length] != '=' || isdigit((unsigned char)*text) ||
			shell_variable_is_special(text, length) ||
			text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					  "0123456789_./,:+@%=-")])
			r = -ENOENT;
		else if (!shell_setting_is_harmless(text, length, text + length + 1))
			r = buffer_printf(settings, "%s ", text) < 0 ? -ENOMEM : 0;
	}
	settings->size = r == 0 ? settings->size : before;
	return r;
}
