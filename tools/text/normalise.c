#include "tools/text/normalise.h"

#include <errno.h>
#include <utf8proc.h>

#include "ops/support/cleanup.h"
#include "ops/support/utf8.h"

enum { DECOMPOSED_MAX = 18 }; /* characters: of U+FDFA */

/* Maps punctuation that looks like an ASCII character to that; 0: no such character. */
static utf8proc_int32_t fold(utf8proc_int32_t code)
{
	static const struct {
		utf8proc_int32_t first, last;
		char ascii;
	} ranges[] = {
		{0x2018, 0x201b, '\''},
		{0x2032, 0x2032, '\''},
		{0x02bc, 0x02bc, '\''},
		{0x201c, 0x201f, '"'},
		{0x2033, 0x2033, '"'},
		{0x2010, 0x2015, '-'},
		{0x2212, 0x2212, '-'},
		{0x00a0, 0x00a0, ' '},
		{0x2000, 0x200a, ' '},
		{0x202f, 0x202f, ' '},
		{0x205f, 0x205f, ' '},
		{0x3000, 0x3000, ' '},
	};

	for (size_t i = 0; i < array_size(ranges); i++)
		if (code >= ranges[i].first && code <= ranges[i].last)
			return ranges[i].ascii;
	return 0;
}

struct unit { /* a character of the original and its normal form */
	size_t size;
	const uint8_t *normal;
	size_t normal_size;
	uint8_t memory[DECOMPOSED_MAX * 4];
};

static size_t blanks_before_line_end(const uint8_t *at, size_t size)
{
	size_t count = 0;

	while (count < size && (at[count] == ' ' || at[count] == '\t'))
		count++;
	return count && (count == size || at[count] == '\n' || at[count] == '\r') ? count : 0;
}

/* Normalises a valid character: to ASCII, or to its compatibility decomposition (NFKD). */
static void take_character(const uint8_t *at, struct unit *unit)
{
	utf8proc_int32_t codes[DECOMPOSED_MAX], code;
	utf8proc_ssize_t count = 1;

	utf8proc_iterate(at, (utf8proc_ssize_t)unit->size, &code);
	codes[0] = fold(code);
	if (!codes[0])
		count = utf8proc_decompose_char(
			code, codes, DECOMPOSED_MAX, UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE, NULL);
	if (count < 1 || count > DECOMPOSED_MAX)
		return;
	unit->normal = unit->memory;
	unit->normal_size = 0;
	for (utf8proc_ssize_t i = 0; i < count; i++) {
		utf8proc_int32_t folded = fold(codes[i]);

		unit->normal_size += (size_t)utf8proc_encode_char(
			folded ? folded : codes[i], unit->memory + unit->normal_size);
	}
}

static void take_unit(const uint8_t *at, size_t size, enum normalise_level level, struct unit *unit)
{
	unit->size = unit->normal_size = 1;
	unit->normal = at;
	if (*at == '\r') {
		unit->size = size > 1 && at[1] == '\n' ? 2 : 1;
		unit->normal = (const uint8_t *)"\n";
		return;
	}
	if (level == NORMALISE_LINE_ENDS)
		return;
	if (*at == ' ' || *at == '\t') {
		size_t blanks = blanks_before_line_end(at, size);

		if (blanks) {
			unit->size = blanks;
			unit->normal_size = 0;
		}
		return;
	}
	if (*at < 0x80)
		return;
	unit->size = utf8_sequence(at, size);
	if (unit->size == 0) { /* an invalid byte stays as it is */
		unit->size = 1;
		return;
	}
	unit->normal_size = unit->size;
	take_character(at, unit);
}

int normalise(const uint8_t *text, size_t size, enum normalise_level level, struct buffer *out,
	struct normalise_mark *marks, size_t mark_count)
{
	size_t at = 0, normal = 0, mark = 0, last_end = 0;
	struct unit unit;

	for (; at < size; at += unit.size) {
		take_unit(text + at, size - at, level, &unit);
		for (; mark < mark_count && unit.normal_size &&
			marks[mark].normal < normal + unit.normal_size;
			mark++)
			marks[mark].original = marks[mark].normal != normal ? SIZE_MAX
					       : marks[mark].is_end         ? last_end
									    : at;
		if (out && unit.normal_size &&
			buffer_append(out, unit.normal, unit.normal_size) < 0)
			return -ENOMEM;
		normal += unit.normal_size;
		if (unit.normal_size)
			last_end = at + unit.size;
	}
	for (; mark < mark_count; mark++)
		marks[mark].original = marks[mark].is_end ? last_end : size;
	return 0;
}
