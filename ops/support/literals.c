#include "ops/support/literals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { COMMON = 30 };

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
static uint8_t upper(uint8_t c)
{
	return c >= 'a' && c <= 'z' ? c & ~0x20 : c;
}

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
			const uint8_t *match = *at + __builtin_ctz(hits);

			if (is_at(l, ignore_case, match))
				return match;
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
	const uint8_t *last, *match; /* where it can begin */

	if ((size_t)(end - at) < l->size)
		return NULL;
	last = end - l->size;
	match = find_by_blocks(l, ignore_case, &at, last);
	for (; !match && at <= last; at++)
		if (is_at(l, ignore_case, at))
			match = at;
	return match;
}

const uint8_t *literals_find(const struct literals *literals, struct literal_scan *scan,
	const uint8_t *at, const uint8_t *end)
{
	const uint8_t *first = end;

	for (size_t i = 0; i < literals->count; i++) {
		if (!scan->begun || scan->next[i] < at) {
			const uint8_t *match =
				find(&literals->all[i], literals->ignore_case, at, end);

			scan->next[i] = match ? match : end;
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

/* ---- Life ----------------------------------------------------------------------------------- */

static int copy_text(struct literal *l, const struct literal_text *text, bool ignore_case)
{
	if (!text->size || text->size > LITERAL_MAX_BYTES)
		return -EINVAL;
	l->bytes = malloc(text->size);
	if (!l->bytes)
		return -ENOMEM;
	for (size_t i = 0; i < text->size; i++)
		l->bytes[i] = ignore_case ? lower(text->bytes[i]) : text->bytes[i];
	l->size = text->size;
	choose_rare_bytes(l);
	return 0;
}

int literals_new(const struct literal_text *texts, size_t count, bool ignore_case,
	struct literals **ret_literals)
{
	struct literals *literals;
	int r = 0;

	if (!count || count > LITERALS_MAX)
		return -EINVAL;
	literals = calloc(1, sizeof(*literals));
	if (!literals)
		return -ENOMEM;
	literals->ignore_case = ignore_case;
	while (r == 0 && literals->count < count) {
		r = copy_text(
			&literals->all[literals->count], &texts[literals->count], ignore_case);
		literals->count++;
	}
	if (r < 0) {
		literals_free(literals);
		return r;
	}
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

size_t literals_count(const struct literals *literals)
{
	return literals->count;
}

struct literal_text literals_text(const struct literals *literals, size_t index)
{
	return (struct literal_text){literals->all[index].bytes, literals->all[index].size};
}

bool literals_ignore_case(const struct literals *literals)
{
	return literals->ignore_case;
}
