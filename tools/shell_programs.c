#include "tools/shell_programs.h"

#include <errno.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/path.h"

bool shell_variable_is_harmless(const char *name, size_t length)
{
	static const char *const names[] = {"LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE",
		"LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "TZ", "NO_COLOR", "FORCE_COLOR", "CI",
		"COLUMNS", "LINES", "RUST_BACKTRACE", "PYTHONUNBUFFERED"};

	for (size_t i = 0; i < array_size(names); i++)
		if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
			return true;
	return false;
}

static int add_use(struct shell_program_answer *answer, const struct shell_word *words, size_t word)
{
	struct shell_program_use *grown =
		reallocarray(answer->uses, answer->use_count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	answer->uses = grown;
	grown[answer->use_count] = (struct shell_program_use){
		.path = strdup(words[word].text),
		.use = SHELL_READS | SHELL_WRITES | SHELL_TREE,
		.known = words[word].known,
		.glob = words[word].glob,
		.word = word,
	};
	return grown[answer->use_count++].path ? 0 : -ENOMEM;
}

int shell_program_judge(
	const struct shell_word *words, size_t count, struct shell_program_answer *ret_answer)
{
	struct shell_program_answer answer = {
		.name = path_name(words[0].text), .plain_from = 1, .prefix = 1};

	for (size_t i = 1; i < count; i++) {
		if (add_use(&answer, words, i) < 0) {
			shell_program_answer_done(&answer);
			return -ENOMEM;
		}
	}
	*ret_answer = answer;
	return 0;
}

void shell_program_answer_done(struct shell_program_answer *answer)
{
	for (size_t i = 0; i < answer->use_count; i++)
		free(answer->uses[i].path);
	free(answer->uses);
	free(answer->inner);
	free(answer->inner_line);
	*answer = (struct shell_program_answer){0};
}
