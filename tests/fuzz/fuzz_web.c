/* What servers send: any bytes as text in some charset, and that as a page of some kind.  The first
 * byte picks the kind and the format, the second the charset. */
#include <stdlib.h>

#include "ops/support/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tools/web/charset.h"
#include "tools/web/page.h"

static void convert(const char *text, size_t size, unsigned pick)
{
	const struct page_request request = {
		.text = text,
		.size = size,
		.kind = (enum page_kind)(pick % (PAGE_TEXT + 1)),
		.format = (enum page_format)(pick / 8 % (PAGE_SOURCE + 1)),
		.whole = pick & 128,
		.base = "https://h.test/dir/page?q",
	};
	struct buffer out = {0};
	char *title = NULL;

	/* Markdown of a page that is text without NUL is that again. */
	if (page_convert(&request, &out, &title) == 0 && !utf8_is_clean(out.data, out.size))
		abort();
	free(title);
	buffer_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const types[] = {NULL, "text/html; charset=utf-8",
		"text/html; charset=gbk", "text/html; charset=iso-2022-jp",
		"text/html; charset=big5", "text/html; charset=utf-16",
		"text/html; charset=\"euc-kr", "charset"};
	struct buffer text = {0};
	struct charset charset;
	char *copy;

	if (size < 2)
		return 0;
	if (charset_open(types[data[1] % 8], true, data + 2, size - 2, &charset) < 0)
		return 0;
	if (charset_convert(&charset, data + 2, size - 2, &text) < 0)
		abort();
	charset_close(&charset);
	size = text.size;
	copy = buffer_steal_string(&text);
	if (copy)
		convert(copy, size, data[0]);
	free(copy);
	return 0;
}
