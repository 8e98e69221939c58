#include "ops/support/words.h"

#include <string.h>

bool words_contain(const char *list, char separator, const char *word)
{
	const char separators[] = {separator, '\0'};
	size_t length = strlen(word);

	while (*list) {
		size_t size = strcspn(list, separators);

		if (size == length && strncmp(list, word, size) == 0)
			return true;
		list += size + (list[size] == separator);
	}
	return false;
}
