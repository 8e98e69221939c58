#include "ops/support/hex.h"

#include <stdint.h>
#include <string.h>

static const char digits[] = "0123456789abcdef";

void hex_write(const void *bytes, size_t size, char *text)
{
	const uint8_t *from = bytes;

	for (size_t i = 0; i < size; i++) {
		*text++ = digits[from[i] >> 4];
		*text++ = digits[from[i] & 15];
	}
	*text = '\0';
}

bool hex_read(const char *text, void *bytes, size_t size)
{
	uint8_t *to = bytes;

	if (strlen(text) != 2 * size || text[strspn(text, digits)])
		return false;
	for (size_t i = 0; i < size; i++)
		to[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 |
				  (strchr(digits, text[2 * i + 1]) - digits));
	return true;
}
