#include "tools/text/normalise.h"

#include <errno.h>

#include "ops/support/utf8.h"

struct decomposition {
	uint32_t code;
	uint32_t offset : 24; /* into the pool */
	uint32_t length : 8;  /* bytes */
};

#include "nfkd.inc"

static uint32_t decode(const uint8_t *at, size_t length)
{
	static const uint8_t lead_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t code = at[0] & lead_bits[length];

	for (size_t i = 1; i < length; i++)
		code = code << 6 | (at[i] & 0x3f);
	return code;
}

static size_t encode3(uint32_t code, uint8_t *out)
{
	out[0] = (uint8_t)(0xe0 | code >> 12);
	out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
	out[2] = (uint8_t)(0x80 | (code & 0x3f));
	return 3;
}

/* Hangul syllables: The Unicode Standard, section 3.12. */
static size_t decompose_hangul(uint32_t code, uint8_t *out)
{
	uint32_t index = code - 0xac00, trailing = index % 28;
	size_t used = encode3(0x1100 + index / 588, out);

	used += encode3(0x1161 + index % 588 / 28, out + used);
	if (trailing)
		used += encode3(0x11a7 + trailing, out + used);
	return used;
}

static const struct decomposition *find(uint32_t code)
{
	size_t low = 0, high = array_size(decompositions);

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (decompositions[middle].code < code)
			low = middle + 1;
		else
			high = middle;
	}
	return low < array_size(decompositions) && decompositions[low].code == code
		       ? &decompositions[low]
		       : NULL;
}

struct unit { /* one character of the original and what becomes of it */
	size_t size;
	const uint8_t *normal;
	size_t normal_size;
	uint8_t memory[16];
};

static size_t blanks_before_line_end(const uint8_t *at, size_t size)
{
	size_t count = 0;

	while (count < size && (at[count] == ' ' || at[count] == '\t'))
		count++;
	return count && (count == size || at[count] == '\n' || at[count] == '\r') ? count : 0;
}

static void take_unit(const uint8_t *at, size_t size, enum normalise_level level, struct unit *unit)
{
	const struct decomposition *entry;
	uint32_t code;

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
	if (unit->size == 0) { /* an invalid byte stands for itself */
		unit->size = 1;
		return;
	}
	unit->normal_size = unit->size;
	code = decode(at, unit->size);
	if (code >= 0xac00 && code <= 0xd7a3) {
		unit->normal = unit->memory;
		unit->normal_size = decompose_hangul(code, unit->memory);
		return;
	}
	entry = find(code);
	if (entry) {
		unit->normal = decomposition_pool + entry->offset;
		unit->normal_size = entry->length;
	}
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
