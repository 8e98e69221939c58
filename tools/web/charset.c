#include "tools/web/charset.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "ops/support/utf8.h"

enum { META_BYTES = 4096, LABEL_BYTES = 40 };

static const char UTF8[] = "UTF-8";
static const char FALLBACK[] = "windows-1252";

/* The name in results, the name for iconv(3), and the labels in pages. */
static const struct {
	const char *name, *iconv;
	const char *labels; /* each between blanks */
} charsets[] = {
	{UTF8, UTF8, " utf-8 utf8 unicode-1-1-utf-8 x-unicode20utf8 "},
	{FALLBACK, "CP1252",
		" windows-1252 cp1252 x-cp1252 iso-8859-1 iso8859-1 iso_8859-1 latin1 l1 ascii "
		"us-ascii ansi_x3.4-1968 "},
	{"GB18030", "GB18030", " gb18030 gbk gb2312 gb_2312-80 x-gbk cp936 euc-cn chinese "},
	{"Big5", "BIG5-HKSCS", " big5 big5-hkscs cn-big5 x-x-big5 "},
	{"Shift_JIS", "CP932", " shift_jis shift-jis sjis x-sjis ms_kanji windows-31j ms932 "},
	{"EUC-JP", "EUC-JP", " euc-jp x-euc-jp "},
	{"ISO-2022-JP", "ISO-2022-JP", " iso-2022-jp "},
	{"EUC-KR", "CP949", " euc-kr ks_c_5601-1987 korean ksc5601 windows-949 cp949 "},
	{"KOI8-R", "KOI8-R", " koi8-r koi8 koi "},
	{"KOI8-U", "KOI8-U", " koi8-u koi8-ru "},
	{"windows-1250", "CP1250", " windows-1250 cp1250 x-cp1250 "},
	{"windows-1251", "CP1251", " windows-1251 cp1251 x-cp1251 "},
	{"windows-1253", "CP1253", " windows-1253 cp1253 "},
	{"windows-1254", "CP1254", " windows-1254 cp1254 iso-8859-9 latin5 "},
	{"windows-1255", "CP1255", " windows-1255 cp1255 "},
	{"windows-1256", "CP1256", " windows-1256 cp1256 "},
	{"windows-1257", "CP1257", " windows-1257 cp1257 "},
	{"windows-1258", "CP1258", " windows-1258 cp1258 "},
	{"windows-874", "CP874", " windows-874 tis-620 iso-8859-11 "},
	{"IBM866", "IBM866", " ibm866 cp866 "},
	{"macintosh", "MACINTOSH", " macintosh mac x-mac-roman "},
	{"ISO-8859-2", "ISO-8859-2", " iso-8859-2 latin2 l2 "},
	{"ISO-8859-5", "ISO-8859-5", " iso-8859-5 cyrillic "},
	{"ISO-8859-6", "ISO-8859-6", " iso-8859-6 arabic "},
	{"ISO-8859-7", "ISO-8859-7", " iso-8859-7 greek "},
	{"ISO-8859-8", "ISO-8859-8", " iso-8859-8 iso-8859-8-i hebrew "},
	{"ISO-8859-13", "ISO-8859-13", " iso-8859-13 "},
	{"ISO-8859-15", "ISO-8859-15", " iso-8859-15 latin-9 l9 "},
	{"ISO-8859-16", "ISO-8859-16", " iso-8859-16 "},
	{"UTF-16LE", "UTF-16LE", " utf-16le utf-16 ucs-2 iso-10646-ucs-2 "},
	{"UTF-16BE", "UTF-16BE", " utf-16be "},
};

/* The index of the charset with this label; -1: unknown. */
static int find_label(const char *label, size_t length)
{
	char wanted[LABEL_BYTES + 3];

	if (length == 0 || length > LABEL_BYTES)
		return -1;
	snprintf(wanted, sizeof(wanted), " %.*s ", (int)length, label);
	if (strchr(wanted + 1, ' ') != wanted + length + 1)
		return -1;
	for (size_t i = 0; i < array_size(charsets); i++)
		if (strcasestr(charsets[i].labels, wanted))
			return (int)i;
	return -1;
}

/* The charset of the label after "charset=" in `text`; -1: none. */
static int label_in(const char *text, const char *end)
{
	const char *at = text;

	while ((at = memmem(at, (size_t)(end - at), "=", 1))) {
		const char *name_end = at++, *start;

		while (name_end > text && name_end[-1] == ' ')
			name_end--;
		if (name_end - text < 7 || strncasecmp(name_end - 7, "charset", 7) != 0)
			continue;
		while (at < end && strchr(" \"'", *at) && *at)
			at++;
		start = at;
		while (at < end && *at && !strchr(" \"';/>\t\r\n", *at))
			at++;
		return find_label(start, (size_t)(at - start));
	}
	return -1;
}

static int meta_label(const char *bytes, size_t size)
{
	const char *at = bytes, *end = bytes + (size < META_BYTES ? size : META_BYTES);

	while ((at = memchr(at, '<', (size_t)(end - at)))) {
		const char *close = memchr(at, '>', (size_t)(end - at));
		int found;

		if (!close)
			return -1;
		if (close - at > 5 &&
			(strncasecmp(at, "<meta", 5) == 0 || strncasecmp(at, "<?xml", 5) == 0)) {
			found = label_in(at, close);
			/* "encoding" in an XML declaration. */
			if (found < 0 && at[1] == '?') {
				const char *encoding =
					memmem(at, (size_t)(close - at), "encoding=", 9);
				const char *start = encoding ? encoding + 10 : NULL, *stop;

				stop = start && start < close
					       ? memchr(start, start[-1], (size_t)(close - start))
					       : NULL;
				found = stop ? find_label(start, (size_t)(stop - start)) : -1;
			}
			/* The label was read as single bytes, so the page cannot be UTF-16. */
			if (found >= 0)
				return strncmp(charsets[found].name, "UTF-16", 6) == 0 ? 0 : found;
		}
		at = close;
	}
	return -1;
}

static int mark(const uint8_t *bytes, size_t size, size_t *ret_skip)
{
	static const struct {
		const char *bytes, *label;
		size_t size;
	} marks[] = {{"\xef\xbb\xbf", "utf-8", 3}, {"\xfe\xff", "utf-16be", 2},
		{"\xff\xfe", "utf-16le", 2}};

	for (size_t i = 0; i < array_size(marks); i++) {
		if (size < marks[i].size || memcmp(bytes, marks[i].bytes, marks[i].size) != 0)
			continue;
		*ret_skip = marks[i].size;
		return find_label(marks[i].label, strlen(marks[i].label));
	}
	return -1;
}

static bool is_utf8(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size;) {
		size_t length = utf8_sequence(bytes + i, size - i);

		if (!length)
			return false;
		i += length;
	}
	return true;
}

int charset_open(const char *content_type, bool has_meta, const void *bytes, size_t size,
	struct charset *ret_charset)
{
	struct charset charset = {.converter = (iconv_t)-1};
	int found = mark(bytes, size, &charset.skip_bytes);

	if (found < 0 && content_type)
		found = label_in(content_type, content_type + strlen(content_type));
	if (found < 0 && has_meta)
		found = meta_label(bytes, size);
	if (found < 0)
		found = is_utf8(bytes, size) ? 0 : 1;
	charset.name = charsets[found].name;
	if (charset.name != UTF8) {
		charset.converter = iconv_open(UTF8, charsets[found].iconv);
		if (charset.converter == (iconv_t)-1)
			return -errno;
	}
	*ret_charset = charset;
	return 0;
}

void charset_close(struct charset *charset)
{
	if (charset->converter != (iconv_t)-1)
		iconv_close(charset->converter);
	charset->converter = (iconv_t)-1;
}

/* Appends UTF-8, without NUL and with invalid bytes replaced. */
static int append_utf8(const uint8_t *bytes, size_t size, struct buffer *out)
{
	int r = buffer_reserve(out, size);

	for (size_t i = 0; i < size && r == 0;) {
		size_t length = utf8_sequence(bytes + i, size - i), start = i;

		while (length && bytes[i] && i < size) {
			i += length;
			length = i < size ? utf8_sequence(bytes + i, size - i) : 0;
		}
		r = buffer_append(out, bytes + start, i - start);
		if (i < size && bytes[i] && r == 0)
			r = buffer_append_string(out, "\xef\xbf\xbd");
		i++;
	}
	return r;
}

int charset_convert(
	const struct charset *charset, const void *bytes, size_t size, struct buffer *out)
{
	char *in = (char *)(uintptr_t)bytes + charset->skip_bytes, piece[8192];
	size_t left = size - charset->skip_bytes;
	int r = 0;

	if (charset->converter == (iconv_t)-1)
		return append_utf8((const uint8_t *)in, left, out);
	while (left && r == 0) {
		char *to = piece;
		size_t room = sizeof(piece);
		size_t done = iconv(charset->converter, &in, &left, &to, &room);
		int error = errno;
		size_t skipped;

		r = append_utf8((const uint8_t *)piece, (size_t)(to - piece), out);
		if (r < 0 || done != (size_t)-1 || error == E2BIG)
			continue;
		/* An invalid byte or half of a surrogate pair, or an incomplete character at the
		 * end. */
		r = buffer_append_string(out, "\xef\xbf\xbd");
		skipped = left > 1 && strncmp(charset->name, "UTF-16", 6) == 0 ? 2 : 1;
		in += skipped;
		left -= skipped;
		iconv(charset->converter, NULL, NULL, NULL, NULL);
	}
	return r;
}
