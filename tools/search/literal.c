#include "tools/search/literal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "ops/support/buffer.h"

enum { REPEATS_MAX = 32, COMMON = 30 };

struct literal {
	uint8_t *bytes; /* in small letters when case does not count */
	size_t size;
	size_t rare, second; /* offsets of its two rarest bytes */
};

struct literals {
	bool ignore_case;
	size_t count;
	struct literal all[LITERALS_MAX];
};

/* ---- Finding -------------------------------------------------------------------------------- */

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

static uint8_t upper(uint8_t c)
{
	return c >= 'a' && c <= 'z' ? c & ~0x20 : c;
}

static bool is_at(const struct literal *l, bool ignore_case, const uint8_t *at)
{
	if (!ignore_case)
		return memcmp(at, l->bytes, l->size) == 0;
	for (size_t i = 0; i < l->size; i++)
		if (lower(at[i]) != l->bytes[i])
			return false;
	return true;
}

#ifdef __SSE2__
struct either { /* a byte in both cases, 16 times */
	__m128i small, large;
};

static struct either either(const struct literal *l, bool ignore_case, size_t offset)
{
	uint8_t c = l->bytes[offset];

	return (struct either){
		_mm_set1_epi8((char)c), _mm_set1_epi8((char)(ignore_case ? upper(c) : c))};
}

static __m128i is_either(const struct either *want, const uint8_t *at)
{
	__m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);

	return _mm_or_si128(_mm_cmpeq_epi8(bytes, want->small), _mm_cmpeq_epi8(bytes, want->large));
}

/* 16 places at once: both rare bytes must be where they belong.  NULL, and `*at` behind the
 * places that were looked at. */
static const uint8_t *find_by_blocks(
	const struct literal *l, bool ignore_case, const uint8_t **at, const uint8_t *last)
{
	const struct either rare = either(l, ignore_case, l->rare);
	const struct either second = either(l, ignore_case, l->second);

	for (; last - *at >= 16; *at += 16) {
		unsigned hits = (unsigned)_mm_movemask_epi8(_mm_and_si128(
			is_either(&rare, *at + l->rare), is_either(&second, *at + l->second)));

		for (; hits; hits &= hits - 1) {
			const uint8_t *place = *at + __builtin_ctz(hits);

			if (is_at(l, ignore_case, place))
				return place;
		}
	}
	return NULL;
}
#else
static const uint8_t *find_by_blocks(
	const struct literal *l, bool ignore_case, const uint8_t **at, const uint8_t *last)
{
	while (!ignore_case && *at <= last) {
		const uint8_t *rare =
			memchr(*at + l->rare, l->bytes[l->rare], (size_t)(last - *at) + 1);

		*at = rare ? rare - l->rare : last + 1;
		if (rare && is_at(l, false, *at))
			return *at;
		*at += rare != NULL;
	}
	return NULL;
}
#endif

static const uint8_t *find(
	const struct literal *l, bool ignore_case, const uint8_t *at, const uint8_t *end)
{
	const uint8_t *last, *place; /* where it can begin */

	if ((size_t)(end - at) < l->size)
		return NULL;
	last = end - l->size;
	place = find_by_blocks(l, ignore_case, &at, last);
	for (; !place && at <= last; at++)
		if (is_at(l, ignore_case, at))
			place = at;
	return place;
}

const uint8_t *literals_find(const struct literals *literals, struct literal_scan *scan,
	const uint8_t *at, const uint8_t *end)
{
	const uint8_t *first = end;

	for (size_t i = 0; i < literals->count; i++) {
		if (!scan->begun || scan->next[i] < at) {
			const uint8_t *place =
				find(&literals->all[i], literals->ignore_case, at, end);

			scan->next[i] = place ? place : end;
		}
		if (scan->next[i] < first)
			first = scan->next[i];
	}
	scan->begun = true;
	return first < end ? first : NULL;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

/* How common a byte is in source code, roughly: 0 is rare. */
static unsigned commonness(uint8_t c)
{
	static const char by_frequency[] = "etaoinsrlducpmfhgbyvw_ ";
	const char *at;

	if (c == ' ' || c == '\t')
		return 60;
	at = c ? strchr(by_frequency, c) : NULL;
	if (at)
		return 50 - (unsigned)(at - by_frequency);
	if (strchr("0123456789(),.;=-*/\">", c))
		return 20;
	if (c >= 'A' && c <= 'Z')
		return 12;
	return c < 0x80 ? 8 : 3;
}

bool literals_are_common(const struct literals *literals)
{
	for (size_t i = 0; i < literals->count; i++) {
		const struct literal *l = &literals->all[i];

		if (l->size == 1 && commonness(l->bytes[0]) >= COMMON)
			return true;
	}
	return false;
}

static void choose_rare_bytes(struct literal *l)
{
	for (size_t i = 1; i < l->size; i++)
		if (commonness(l->bytes[i]) < commonness(l->bytes[l->rare]))
			l->rare = i;
	l->second = l->rare == 0 && l->size > 1 ? 1 : 0;
	for (size_t i = 0; i < l->size; i++)
		if (i != l->rare && commonness(l->bytes[i]) < commonness(l->bytes[l->second]))
			l->second = i;
}

/* ---- Reading a pattern ------------------------------------------------------------ */

struct reader {
	const char *at;
	bool plain;
	bool ignore_case;
	struct buffer run; /* plain characters, one after the other */
	struct literal *best;
};

/* The run ends; the longest one of an alternative stays. */
static int end_run(struct reader *reader)
{
	size_t size = reader->run.size;
	uint8_t *bytes;

	reader->run.size = 0;
	if (size <= reader->best->size)
		return 0;
	bytes = realloc(reader->best->bytes, size);
	if (!bytes)
		return -ENOMEM;
	memcpy(bytes, reader->run.data, size);
	reader->best->bytes = bytes;
	reader->best->size = size;
	return 0;
}

/* K and S have third forms outside ASCII when case does not count. */
static bool is_literal(const struct reader *reader, uint8_t c)
{
	if (c == '\n')
		return false;
	if (!reader->ignore_case)
		return c < 0x80 || reader->plain;
	return c < 0x80 && lower(c) != 'k' && lower(c) != 's';
}

/* How often the character in front of `at` stands there at least, up to REPEATS_MAX. */
static unsigned long least_times(const char *at)
{
	const char digits[] = "0123456789";
	const char *end;
	unsigned long times;

	if (*at != '{')
		return *at == '?' || *at == '*' ? 0 : 1;
	end = at + 1 + strspn(at + 1, digits);
	if (*end == ',')
		end += 1 + strspn(end + 1, digits);
	if (*end != '}' || !strchr(digits, at[1]))
		return 1; /* no quantifier, but a brace */
	times = strtoul(at + 1, NULL, 10);
	return times < REPEATS_MAX ? times : REPEATS_MAX;
}

/* A character, `at` behind it, with what says how often it stands there. */
static int take_character(struct reader *reader, char c)
{
	uint8_t byte = reader->ignore_case ? lower((uint8_t)c) : (uint8_t)c;
	bool repeated = !reader->plain && *reader->at && strchr("?*+{", *reader->at);
	unsigned long times = repeated ? least_times(reader->at) : 1;
	int r = 0;

	if (!is_literal(reader, byte) || times == 0)
		return end_run(reader);
	for (; times > 0 && r == 0; times--)
		r = buffer_append(&reader->run, &byte, 1);
	return r < 0 || !repeated ? r : end_run(reader);
}

/* Behind the class that begins at `at`; NULL when it has no end. */
static const char *skip_class(const char *at)
{
	at += at[1] == '^' ? 2 : 1;
	if (*at == ']')
		at++;
	for (; *at && *at != ']'; at++) {
		if (*at == '\\' && (!*++at || *at == 'Q'))
			return NULL;
		if (at[0] == '[' && strchr(":.=", at[1]) && at[1]) {
			const char end[] = {at[1], ']', '\0'};
			const char *stop = strstr(at + 2, end);

			at = stop ? stop + 1 : at;
		}
	}
	return *at ? at + 1 : NULL;
}

/* Behind the group that begins at `at`; NULL for one that can change what is outside it. */
static const char *skip_group(const char *at)
{
	unsigned depth = 0;

	for (;;) {
		switch (*at) {
		case '\0':
			return NULL;
		case '(':
			/* (?i), (?x:...), (*VERB), (?#...) */
			if (at[1] == '*' || (at[1] == '?' && !strchr(":=!<>|'P", at[2])))
				return NULL;
			depth++;
			at++;
			break;
		case ')':
			at++;
			if (--depth == 0)
				return at;
			break;
		case '[':
			at = skip_class(at);
			if (!at)
				return NULL;
			break;
		case '\\':
			if (!at[1] || at[1] == 'Q')
				return NULL;
			at += 2;
			break;
		default:
			at++;
		}
	}
}

/* A backslash and what it makes special.  1: not understood. */
static int take_escape(struct reader *reader)
{
	char c = reader->at[1];

	/* The arguments of \x41, \p{L} and the like are not literal; nor is all of \Q...\E. */
	if (!c || (unsigned char)c >= 0x80 || strchr("xopPNkgcuUEQ0123456789", c))
		return 1;
	reader->at += 2;
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
		return end_run(reader);
	return take_character(reader, c);
}

/* One element of a pattern.  1: not understood. */
static int take_element(struct reader *reader)
{
	const char *skipped = NULL;
	char c = *reader->at;

	if (reader->plain || !strchr("\\^$.[]{}?*+()", c)) {
		reader->at++;
		return take_character(reader, c);
	}
	switch (c) {
	case '\\':
		return take_escape(reader);
	case '[':
		skipped = skip_class(reader->at);
		break;
	case '(':
		skipped = skip_group(reader->at);
		break;
	case ')':
		return 1;
	case '{':
		skipped = strchr(reader->at, '}');
		skipped = skipped ? skipped + 1 : NULL;
		break;
	default:
		skipped = reader->at + 1;
	}
	if (!skipped)
		return 1;
	reader->at = skipped;
	return end_run(reader);
}

/* The longest run of plain characters in one alternative.  1: none. */
static int read_alternative(struct reader *reader)
{
	int r = 0;

	while (r == 0 && *reader->at && (reader->plain || *reader->at != '|'))
		r = take_element(reader);
	if (r == 0)
		r = end_run(reader);
	return r == 0 && reader->best->size == 0 ? 1 : r;
}

static int read_pattern(struct literals *literals, struct reader *reader)
{
	for (;;) {
		int r;

		if (literals->count == LITERALS_MAX)
			return 1;
		reader->best = &literals->all[literals->count++];
		r = read_alternative(reader);
		if (r != 0)
			return r;
		choose_rare_bytes(reader->best);
		if (!*reader->at)
			return 0;
		reader->at++;
	}
}

int literals_new(const char *pattern, bool plain, bool ignore_case, struct literals **ret_literals)
{
	struct literals *literals = calloc(1, sizeof(*literals));
	struct reader reader = {.at = pattern, .plain = plain, .ignore_case = ignore_case};
	int r;

	if (!literals)
		return -ENOMEM;
	literals->ignore_case = ignore_case;
	r = read_pattern(literals, &reader);
	buffer_done(&reader.run);
	if (r != 0)
		literals_free(steal_ptr(&literals));
	if (r < 0)
		return r;
	*ret_literals = literals;
	return 0;
}

void literals_free(struct literals *literals)
{
	if (!literals)
		return;
	for (size_t i = 0; i < literals->count; i++)
		free(literals->all[i].bytes);
	free(literals);
}
