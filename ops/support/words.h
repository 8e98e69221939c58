/*
 * ops/support/words.h - lists of words in one string.
 */
#pragma once

#include <stdbool.h>

/* True when the word is one of a list, which has `separator` between them. */
bool words_contain(const char *list, char separator, const char *word);
