#include "ops/support/redact_names.h"

#include <ctype.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "ops/support/words.h"

enum {
	KEY_MAX_BYTES = 128,
	SEGMENTS_MAX = 16, /* of a name such as db.admin_password */
};

/* Lists of words, with blanks between them. */

/* Parts of names. */
static const char secret_words[] =
	"accesskey accesstoken apikey apitoken authtoken credential credentials keypass passcode "
	"passphrase passwd password privatekey secret secretkey sshpass storepass token";

/* Ends of parts: PGPASSWORD, dbpasswd. */
static const char *const secret_ends[] = {"password", "passwd", "passphrase"};

/* ... which are one before "key". */
static const char secret_keys[] =
	"access account api auth encryption master private secret signing storage";

/* A name that ends so tells of a secret, but does not hold one. */
static const char harmless_ends[] =
	"alg algorithm cmd command count dir directory duration enabled endpoint env expires "
	"expiry fd field file format header id kind len length limit max min mode name path "
	"policy prompt provider required scope size stdin store timeout ttl type uri url version";

static const char harmless_values[] = "$ 0 1 false no none null true yes";

bool redact_is_name_byte(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* Lower-case parts of a name: at '_', '-' and '.', and where aB changes case. */
static size_t split_name(struct span name, char text[KEY_MAX_BYTES], char *segments[SEGMENTS_MAX])
{
	size_t count = 0, used = 0;
	bool in_segment = false;

	for (const char *c = name.at; c < name.end && used + 2 < KEY_MAX_BYTES; c++) {
		bool is_letter = isalnum((unsigned char)*c);
		bool begins =
			isupper((unsigned char)*c) && c > name.at && islower((unsigned char)c[-1]);

		if (in_segment && (!is_letter || begins)) {
			text[used++] = '\0';
			in_segment = false;
		}
		if (!is_letter)
			continue;
		if (!in_segment) {
			if (count == SEGMENTS_MAX)
				break;
			segments[count++] = text + used;
			in_segment = true;
		}
		text[used++] = (char)tolower((unsigned char)*c);
	}
	text[used] = '\0';
	return count;
}

static bool is_secret_segment(char *const *segments, size_t count, size_t i)
{
	const char *word = segments[i];

	if (words_contain(secret_words, ' ', word))
		return true;
	for (size_t j = 0; j < array_size(secret_ends); j++) {
		size_t size = strlen(secret_ends[j]), length = strlen(word);

		if (length > size && strcmp(word + length - size, secret_ends[j]) == 0)
			return true;
	}
	if (strcmp(word, "pass") == 0)
		return i == count - 1;
	if (i == 0)
		return false;
	if (strcmp(word, "pwd") == 0)
		return strcmp(segments[i - 1], "old") != 0;
	return strcmp(word, "key") == 0 && words_contain(secret_keys, ' ', segments[i - 1]);
}

bool redact_is_secret_name(struct span name)
{
	char text[KEY_MAX_BYTES], *segments[SEGMENTS_MAX];
	size_t count = split_name(name, text, segments);

	if (count == 0 || strcmp(segments[0], "no") == 0 ||
		words_contain(harmless_ends, ' ', segments[count - 1]))
		return false;
	for (size_t i = 0; i < count; i++)
		if (is_secret_segment(segments, count, i))
			return true;
	return false;
}

struct span redact_name_at(const char *at, const char *end)
{
	struct span name = {at, at};

	/* What is longer is no name of anything. */
	while (name.end < end && redact_is_name_byte(*name.end) && name.end - at < KEY_MAX_BYTES)
		name.end++;
	return name;
}

bool redact_is_harmless_value(struct span value)
{
	char text[8];
	size_t size;

	while (value.at < value.end && strchr("\"'\\", *value.at))
		value.at++;
	while (value.end > value.at && strchr("\"'\\", value.end[-1]))
		value.end--;
	size = (size_t)(value.end - value.at);
	if (size < sizeof(text)) {
		memcpy(text, value.at, size);
		text[size] = '\0';
		if (size == 0 || words_contain(harmless_values, ' ', text))
			return true;
	}
	if (size < 2 || *value.at++ != '$')
		return false;
	if (*value.at == '{' && value.end[-1] == '}') {
		value.at++;
		value.end--;
	}
	while (value.at < value.end && (isalnum((unsigned char)*value.at) || *value.at == '_'))
		value.at++;
	return value.at == value.end;
}
