/* The parts of webfetch that need no network: addresses, URLs, charsets, pages as Markdown. */
#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "tools/permission/permission.h"
#include "tools/web/address.h"
#include "tools/web/charset.h"
#include "tools/web/fetch.h"
#include "tools/web/libraries.h"
#include "tools/web/page.h"

static bool is_public(const char *text)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return address_is_public((const struct sockaddr *)&v4);
	if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
		return address_is_public((const struct sockaddr *)&v6);
	CU_FAIL("not an address");
	return false;
}

/* Each range by its ends, and what is right outside of it. */
static void test_addresses_of_each_range_are_told_apart(void)
{
	static const char *const refused[] = {"0.0.0.0", "0.255.255.255", "10.0.0.1",
		"10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1",
		"192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1",
		"fc00::1", "fdff::1", "fe80::1", "febf::1", "fec0::1", "ff02::1", "2001:db8::1",
		"::ffff:127.0.0.1", "::ffff:10.1.2.3", "::127.0.0.1", "::10.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::808:808", "2002:7f00:1::1",
		"2002:a00:1::", "2001:0:808:808:0:0:80ff:fffe"};
	static const char *const open[] = {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255",
		"100.128.0.0", "126.255.255.255", "128.0.0.1", "169.253.1.1", "169.255.1.1",
		"172.15.255.255", "172.32.0.1", "192.0.1.1", "192.0.3.1", "192.167.1.1",
		"192.169.1.1", "198.17.1.1", "198.20.1.1", "198.51.101.1", "203.0.114.1",
		"223.255.255.255", "2606:4700::1111", "2a00::1", "2001:db9::1", "2003::1",
		"fbff::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
		"2001:0:808:808:0:0:f7f7:f7f7"};

	for (size_t i = 0; i < array_size(refused); i++) {
		if (is_public(refused[i]))
			printf("%s\n", refused[i]);
		CU_ASSERT_FALSE(is_public(refused[i]));
	}
	for (size_t i = 0; i < array_size(open); i++) {
		if (!is_public(open[i]))
			printf("%s\n", open[i]);
		CU_ASSERT_TRUE(is_public(open[i]));
	}
	CU_ASSERT_FALSE(address_is_public(&(struct sockaddr){.sa_family = AF_UNIX}));
}

static void check_url(const char *text, const char *want, const char *origin, bool low_port)
{
	struct buffer problem cleanup_buffer = {0};
	struct fetch_url url cleanup_url = {0};
	int r = fetch_url_parse(text, &url, &problem);

	CU_ASSERT_EQUAL(r, want ? 0 : -EINVAL);
	if (r < 0 || !want) {
		CU_ASSERT(problem.size > 0);
		return;
	}
	CU_ASSERT_STRING_EQUAL(url.text, want);
	CU_ASSERT_STRING_EQUAL(url.origin, origin);
	CU_ASSERT_EQUAL(url.low_port, low_port);
}

static void test_urls_have_one_spelling(void)
{
	check_url("HTTP://Example.ORG", "http://example.org/", "http://example.org", false);
	check_url("https://example.org:443/a?b#c", "https://example.org/a?b", "https://example.org",
		false);
	check_url("http://0x7f.1:8080/", "http://127.0.0.1:8080/", "http://127.0.0.1:8080", false);
	check_url("http://2130706433/", "http://127.0.0.1/", "http://127.0.0.1", false);
	check_url("http://[::FFFF:7f00:1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:7f00:1]",
		false);
	check_url(
		"http://example.org:22/", "http://example.org:22/", "http://example.org:22", true);
	check_url("https://example.org:80/", "https://example.org:80/", "https://example.org:80",
		false);
	check_url("ftp://example.org/", NULL, NULL, false);
	check_url("file:///etc/passwd", NULL, NULL, false);
	check_url("https://example.org@10.0.0.1/", NULL, NULL, false);
	check_url("example", NULL, NULL, false);
	check_url("", NULL, NULL, false);
}

static void test_only_a_rule_that_names_the_host_names_it(void)
{
	static const struct {
		const char *pattern;
		bool names;
	} cases[] = {{"http://10.0.0.1:3000/*", true}, {"http://10.0.0.1:*", true}, {"*", false},
		{"http://*", false}, {"http://10.*", false}, {"http://10.0.0.1*", false},
		{"http://10.0.0.1:4000/*", false}, {"http://[1]0.0.0.1:3000/*", false},
		{"http://10.0.0.1:3000/a", true}, {"http://\\10.0.0.1:3000/a", true}};
	const char *url = "http://10.0.0.1:3000/a";

	for (size_t i = 0; i < array_size(cases); i++) {
		struct permissions *permissions = NULL;

		CU_ASSERT_EQUAL(permissions_new(&permissions), 0);
		permissions_add(permissions, PERMISSION_FROM_PROJECT, "webfetch",
			"http://10.0.0.1:3000/*", PERMISSION_ALLOW);
		CU_ASSERT_FALSE(permissions_name(permissions, "webfetch", url, "http://10.0.0.1"));
		permissions_add(permissions, PERMISSION_FROM_USER, "webfetch", cases[i].pattern,
			PERMISSION_ALLOW);
		CU_ASSERT_EQUAL(permissions_name(permissions, "webfetch", url, "http://10.0.0.1"),
			cases[i].names);
		CU_ASSERT_FALSE(permissions_name(permissions, "websearch", url, "http://10.0.0.1"));
		permissions_add(
			permissions, PERMISSION_FROM_USER, "web*", "http://10.*", PERMISSION_DENY);
		CU_ASSERT_FALSE(permissions_name(permissions, "webfetch", url, "http://10.0.0.1"));
		permissions_free(permissions);
	}
}

static void check_charset(
	const char *type, const char *bytes, size_t size, const char *name, const char *want)
{
	struct buffer out cleanup_buffer = {0};
	struct charset charset;

	CU_ASSERT_EQUAL_FATAL(charset_open(type, true, bytes, size, &charset), 0);
	CU_ASSERT_STRING_EQUAL(charset.name, name);
	CU_ASSERT_EQUAL(charset_convert(&charset, bytes, size, &out), 0);
	charset_close(&charset);
	buffer_append(&out, "", 1);
	if (strcmp((const char *)out.data, want) != 0)
		printf("%s: %s, not %s\n", name, (const char *)out.data, want);
	CU_ASSERT_STRING_EQUAL((const char *)out.data, want);
}

#define BYTES(text) text, sizeof(text) - 1

static void test_charsets_by_header_mark_meta_and_content(void)
{
	check_charset(
		"text/html; charset=\"GB2312\"", BYTES("\xc4\xe3\xba\xc3"), "GB18030", "你好");
	check_charset(
		"text/html;charset=iso-8859-1", BYTES("\x93q\x94 \xe9"), "windows-1252", "“q” é");
	check_charset(
		"text/html; charset=Shift_JIS", BYTES("\x93\xfa\x96\x7b"), "Shift_JIS", "日本");
	check_charset("text/html; charset=koi8-r", BYTES("\xcd\xc9\xd2"), "KOI8-R", "мир");
	check_charset("text/html; charset=euc-kr", BYTES("\xc7\xd1"), "EUC-KR", "한");
	check_charset("text/html; charset=big5", BYTES("\xa4\xa4"), "Big5", "中");
	/* The mark is stronger than the header. */
	check_charset("text/html; charset=latin1", BYTES("\xef\xbb\xbf\xc3\xa9"), "UTF-8", "é");
	check_charset(NULL,
		BYTES("\xff\xfe"
		      "h\0i\0"),
		"UTF-16LE", "hi");
	check_charset(NULL, BYTES("\xfe\xff\0h\0i"), "UTF-16BE", "hi");
	check_charset("text/html", BYTES("<meta charset=windows-1251>\xec\xe8\xf0"), "windows-1251",
		"<meta charset=windows-1251>мир");
	check_charset("text/html",
		BYTES("<META http-equiv=Content-Type content='text/html; charset=euc-jp'>\xc6\xfc"),
		"EUC-JP", "<META http-equiv=Content-Type content='text/html; charset=euc-jp'>日");
	check_charset(NULL, BYTES("<?xml version='1.0' encoding='iso-8859-2'?>\xb1"), "ISO-8859-2",
		"<?xml version='1.0' encoding='iso-8859-2'?>ą");
	/* A page whose meta was read byte by byte is not UTF-16. */
	check_charset(
		NULL, BYTES("<meta charset=utf-16>\xc3\xa9"), "UTF-8", "<meta charset=utf-16>é");
	check_charset("text/html; charset=klingon", BYTES("\xc3\xa9"), "UTF-8", "é");
	check_charset("text/html; charset=utf-7", BYTES("+ADw-"), "UTF-8", "+ADw-");
	check_charset(NULL, BYTES("caf\xe9"), "windows-1252", "café");
	check_charset("text/html; charset=utf-8",
		BYTES("a\0b\xff"
		      "c\xe4\xbd"),
		"UTF-8",
		"ab\xef\xbf\xbd"
		"c\xef\xbf\xbd\xef\xbf\xbd");
	check_charset("text/html; charset=gbk",
		BYTES("a\xff"
		      "b\xc4"),
		"GB18030",
		"a\xef\xbf\xbd"
		"b\xef\xbf\xbd");
	check_charset(NULL, BYTES(""), "UTF-8", "");
}

static char *convert(const char *html, size_t size, enum page_kind kind, enum page_format format)
{
	const struct page_request request = {.text = html,
		.size = size,
		.kind = kind,
		.format = format,
		.base = "https://h.test/dir/page?q"};
	struct buffer out = {0};
	char *title = NULL;

	CU_ASSERT_EQUAL(page_convert(&request, &out, &title), 0);
	free(title);
	return buffer_steal_string(&out);
}

static void check_page(const char *html, const char *want)
{
	cleanup_free char *got = convert(html, strlen(html), PAGE_HTML, PAGE_MARKDOWN);

	if (strcmp(got, want) != 0)
		printf("\n%s\n-- want\n%s\n-- got\n%s\n", html, want, got);
	CU_ASSERT_STRING_EQUAL(got, want);
}

static void test_inline_text(void)
{
	check_page("a  <b> b </b>\n<i>c</i>d<em></em>", "a **b** *c*d\n");
	check_page("<b>a<div>b</div>c</b>", "**a**\n\n**b**\n\n**c**\n");
	check_page("<b>a</b><strong>b</strong> <b><b>x</b></b>", "**ab** **x**\n");
	check_page("x<br>y<br><br>z<br>", "x  \ny\n\nz\n");
	check_page("<code>a`b</code> <code>`</code><code> c </code>", "``a`b`` `` ` `` `c`\n");
	check_page("<del>a</del> <q>b</q> x<sup>2</sup> &nbsp;", "~~a~~ “b” x2 \xc2\xa0\n");
	check_page("<h2>A<br>b <b>c</b></h2><h1> </h1>", "## A b c\n");
	check_page(
		"<math><mi>x</mi><annotation encoding='application/x-tex'>x^2</annotation></math>",
		"$x^2$\n");
}

static void test_what_is_not_shown(void)
{
	check_page("a<script>x</script><style>y</style><noscript>z</noscript><!-- c --><svg><text>s"
		   "</text></svg><p hidden>h</p><p aria-hidden=TRUE>h</p><p style='color:red; "
		   "DISPLAY : none'>"
		   "h</p><template>t</template>b",
		"a\n\nb\n");
}

static void test_links_are_absolute(void)
{
	check_page("<a href=x>r</a> <a href=/y>s</a> <a href='?z#f'>t</a> <a href=//o.test/>u</a>",
		"[r](https://h.test/dir/x) [s](https://h.test/y) [t](https://h.test/dir/page?z#f) "
		"[u](https://o.test/)\n");
	check_page("<base href=/b/><a href=x>r</a>", "[r](https://h.test/b/x)\n");
	check_page("<a href='JavaScript:x()'>js</a> <a href='data:text/html,x'>d</a> <a>n</a>",
		"js d n\n");
	check_page("<a href='a b(c'>x</a> <a href='/é'>y</a> <a href='p(q)'>z</a>",
		"[x](https://h.test/dir/a%20b%28c) [y](https://h.test/%C3%A9) "
		"[z](https://h.test/dir/p(q))\n");
	check_page("<h2>T<a href=#t>#</a></h2>", "## T\n");
	check_page("<a href=/i><h3>T</h3><p>x</a>",
		"### [T](https://h.test/i)\n\n[x](https://h.test/i)\n");
	check_page("<a href=/i aria-label='The [L'></a>", "[The \\[L](https://h.test/i)\n");
	check_page("<code><a href=/v>Vec</a>&lt;T></code>", "[`Vec`](https://h.test/v)`<T>`\n");
	check_page("<img src=/a.png><img src=/b.png alt='b]'><img src='data:x' alt=c>",
		"![b\\]](https://h.test/b.png)c\n");
	check_page("<article><img src=/a.png>text</article>", "![](https://h.test/a.png)text\n");
}

static void test_characters_mean_themselves(void)
{
	check_page("2 * 3 *a* a_b _c_ \\* \\d `x` [l](u) a&lt;b &lt;b> x&amp;amp; c# a|b ~~",
		"2 * 3 \\*a\\* a_b \\_c\\_ \\\\\\* \\d \\`x\\` [l\\](u) a\\<b \\<b> x\\&amp; c# "
		"a|b \\~\\~\n");
	check_page("<p># a<p>#a<p>- b<p>-b<p>1. c<p>1.5 d<p>2) e<p>> f<p>---<p>===<p>+ g<p>a - b",
		"\\# a\n\n#a\n\n\\- b\n\n-b\n\n1\\. c\n\n1.5 d\n\n2\\) e\n\n\\> "
		"f\n\n\\---\n\n\\===\n\n\\+ g\n\n"
		"a - b\n");
	check_page("see!<a href=/x>y</a>", "see\\![y](https://h.test/x)\n");
}

static void test_blocks(void)
{
	check_page("<ul><li>a<li><p>b</p><p>c</p><ol start=3><li>d<li>e</ol><li></ul>f",
		"- a\n- b\n\n  c\n\n  3. d\n  4. e\n\nf\n");
	check_page("<blockquote><p>a<blockquote>b</blockquote><ul><li>c</ul></blockquote>",
		"> a\n>\n> > b\n>\n> - c\n");
	check_page("<dl><dt>t<dd>d<dd>e<dt>u<dd>f</dl>", "t\n: d\n: e\nu\n: f\n");
	check_page("a<hr>b<hr>", "a\n\n---\n\nb\n\n---\n");
	check_page("<details><summary>s</summary>t</details>", "s\n\nt\n");
}

static void test_code_blocks(void)
{
	check_page(
		"<pre><code class='x language-rust'>\nfn a() {\n\n    b  ```\n}\n\n</code></pre>",
		"````rust\nfn a() {\n\n    b  ```\n}\n````\n");
	check_page("<div class=highlight-source-js><pre>a<br>b</pre></div>", "```js\na\nb\n```\n");
	check_page("<pre><span class='line-number'>1</span>x\n<span "
		   "class='line-number'>2</span>y</pre>",
		"```\nx\ny\n```\n");
	check_page("<pre>a <a href=/t>T</a> <a href='https://u.test/'>https://u.test/</a></pre>",
		"```\na T https://u.test/\n```\n\nLinks: [T](https://h.test/t)\n");
	check_page("<b><pre>*x*</pre></b>", "```\n*x*\n```\n");
}

static void test_tables(void)
{
	check_page("<table><caption>C</caption><tr><th>a<th>b|<tr><td><b>x</b><br>y<td><code>p|q</"
		   "code></table>",
		"C\n\n| a | b\\| |\n| --- | --- |\n| **x**<br>y | `p\\|q` |\n");
	check_page("<table><tr><td rowspan=2>a<td>b<tr><td>c<tr><td colspan=2>d</table>",
		"| a | b |\n| --- | --- |\n|  | c |\n| d |  |\n");
	/* Not rectangular, or with blocks: a list. */
	check_page("<table><tr><td>a<td>b<tr><td>c</table>", "- a — b\n- c\n");
	check_page("<table><tr><td>a<td><ul><li>b</ul><tr><td>c<td>d</table>",
		"- a —\n\n  - b\n\n- c — d\n");
	/* A table that only places things. */
	check_page("<table><tr><td><table><tr><td>1.<td><a href=/x>t</a></table><td>z</table>",
		"1\\. [t](https://h.test/x)\n\nz\n");
}

static void test_main_part(void)
{
	check_page("<nav>n <a href=/>home</a></nav><main>the text of the "
		   "page</main><footer>f</footer>",
		"the text of the page\n");
	/* Too little of it: all but what is links mostly. */
	check_page("<nav><a href=/>home</a></nav><p>the text of the page is here</p><main>x</main>"
		   "<header>words that are no links</header>",
		"the text of the page is here\n\nx\n\nwords that are no links\n");
}

static void check_kind(
	const char *text, enum page_kind kind, enum page_format format, const char *want)
{
	cleanup_free char *got = convert(text, strlen(text), kind, format);

	CU_ASSERT_STRING_EQUAL(got, want);
}

static void test_other_kinds(void)
{
	check_kind("{\"a\":[1,2.50,{}],\"b\":\"x\\\":{\", \"c\": [ ]}", PAGE_JSON, PAGE_MARKDOWN,
		"{\n  \"a\": [\n    1,\n    2.50,\n    {}\n  ],\n  \"b\": \"x\\\":{\",\n  \"c\": "
		"[]\n}\n");
	check_kind("{\"a\":", PAGE_JSON, PAGE_MARKDOWN, "{\"a\":");
	check_kind("<p>a", PAGE_HTML, PAGE_SOURCE, "<p>a");
	check_kind("<h1>a*</h1><ul><li><b>b</b></ul><a href=/x>c</a>", PAGE_HTML, PAGE_PLAIN,
		"a*\n\n- b\n\nc\n");
	check_kind("<rss><channel><title>T</title><item><title>A &amp; "
		   "b</title><link>https://x.test/1</link>"
		   "<pubDate>Mon</pubDate><description>&lt;p>one&lt;/p>&lt;b>two&lt;/b></"
		   "description></item>"
		   "</channel></rss>",
		PAGE_FEED, PAGE_MARKDOWN, "# T\n\n- [A & b](https://x.test/1) — Mon\n  one two\n");
	check_kind(
		"<feed "
		"xmlns='http://www.w3.org/2005/Atom'><title>T</title><entry><title>E</title><link "
		"rel='self' href='/no'/><link "
		"href='https://x.test/2'/><updated>2026</updated></entry></feed>",
		PAGE_FEED, PAGE_MARKDOWN, "# T\n\n- [E](https://x.test/2) — 2026\n");
	CU_ASSERT_EQUAL(page_kind_of("text/html; charset=x", "", 0), PAGE_HTML);
	CU_ASSERT_EQUAL(page_kind_of("application/vnd.api+json", "", 0), PAGE_JSON);
	CU_ASSERT_EQUAL(page_kind_of("text/xml", BYTES("<?xml?><rss>")), PAGE_FEED);
	CU_ASSERT_EQUAL(page_kind_of("application/pdf", BYTES("%PDF")), -1);
	CU_ASSERT_EQUAL(page_kind_of(NULL, BYTES(" <!DOCTYPE HTML>")), PAGE_HTML);
	CU_ASSERT_EQUAL(page_kind_of(NULL, BYTES("a\0b")), -1);
	CU_ASSERT_EQUAL(page_kind_of(NULL, BYTES("plain")), PAGE_TEXT);
}

static void repeat(struct buffer *b, const char *text, size_t times)
{
	while (times--)
		buffer_append_string(b, text);
}

static void test_nesting_is_bounded(void)
{
	static const char *const opens[] = {"<div>", "<b><i><font>", "<ul><li>", "<blockquote>",
		"<table><tr><td>", "<a href=x><span>", "<pre><code>"};

	for (size_t i = 0; i < array_size(opens); i++) {
		struct buffer html cleanup_buffer = {0};
		cleanup_free char *got = NULL;

		repeat(&html, opens[i], 100000);
		buffer_append_string(&html, "deepest");
		buffer_append(&html, "", 1);
		got = convert((const char *)html.data, html.size - 1, PAGE_HTML, PAGE_MARKDOWN);
		CU_ASSERT_PTR_NOT_NULL(strstr(got, "deepest"));
		if (strlen(got) >= 100000)
			printf("%s: %zu bytes\n", opens[i], strlen(got));
		CU_ASSERT(strlen(got) < 100000);
	}
}

/* What a process of its own has when it has converted a page, at most; -1: it failed. */
static long memory_kb_of(const struct buffer *html)
{
	struct rusage usage;
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		cleanup_free char *got =
			convert((const char *)html->data, html->size - 1, PAGE_HTML, PAGE_MARKDOWN);

		_exit(got == NULL);
	}
	return child > 0 && wait4(child, &status, 0, &usage) == child && status == 0
		       ? usage.ru_maxrss
		       : -1;
}

static void test_memory_is_bounded(void)
{
	struct buffer nested cleanup_buffer = {0}, flat cleanup_buffer = {0};
	long nested_kb, flat_kb;

	repeat(&nested, "<div>", 100000);
	buffer_append_string(&nested, "deepest");
	repeat(&nested, "</div>", 100000);
	buffer_append(&nested, "", 1);
	repeat(&flat, "<p>some words</p>", 60000);
	buffer_append(&flat, "", 1);
	nested_kb = memory_kb_of(&nested);
	flat_kb = memory_kb_of(&flat);
	printf("nested %ld kB, flat %ld kB ", nested_kb, flat_kb);
	CU_ASSERT(nested_kb > 0 && flat_kb > 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	CU_ASSERT(nested_kb < 128 << 10);
	CU_ASSERT(flat_kb < 128 << 10);
#endif
}

static uint64_t processor_ns(void)
{
	return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static uint64_t convert_ns(const struct buffer *html)
{
	uint64_t start_ns = processor_ns();
	cleanup_free char *got =
		convert((const char *)html->data, html->size - 1, PAGE_HTML, PAGE_MARKDOWN);

	return processor_ns() - start_ns;
}

static void make_page(struct buffer *html, int parts)
{
	repeat(html,
		"<h2>Part</h2><p>some <b>text</b> here and there that is long enough, <a "
		"href=/x>link</a> <code>x</code> "
		"more.</p>\n<ul><li>one<li>two</ul><table><tr><th>a<th>b"
		"<tr><td>c<td>d</table>",
		parts);
	buffer_append(html, "", 1);
}

/* Machines differ too much for a number of milliseconds, so four times the page may take eight
 * times as long: quadratic work takes sixteen.  The best of up to 20, of the processor's time:
 * others may have it meanwhile. */
static void test_a_page_of_a_megabyte_is_quick(void)
{
	struct buffer part cleanup_buffer = {0}, whole cleanup_buffer = {0};
	uint64_t part_ns = UINT64_MAX, whole_ns = UINT64_MAX;

	make_page(&part, 1750);
	make_page(&whole, 7000);
	CU_ASSERT(whole.size > 1 << 20);
	CU_ASSERT_FATAL(web_load_xml(NULL) == 0);
	for (int i = 0; i < 3 || (i < 20 && whole_ns > 8 * part_ns); i++) {
		uint64_t took_ns = convert_ns(&part);

		part_ns = took_ns < part_ns ? took_ns : part_ns;
		took_ns = convert_ns(&whole);
		whole_ns = took_ns < whole_ns ? took_ns : whole_ns;
	}
	printf("a quarter in %.1f ms, all in %.1f ms ", (double)part_ns / 1e6,
		(double)whole_ns / 1e6);
	CU_ASSERT(whole_ns <= 8 * part_ns);
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"addresses of each range are told apart",
			test_addresses_of_each_range_are_told_apart},
		{"URLs have one spelling", test_urls_have_one_spelling},
		{"only a rule that names the host names it",
			test_only_a_rule_that_names_the_host_names_it},
		{"charsets by header, mark, meta and content",
			test_charsets_by_header_mark_meta_and_content},
		{"inline text", test_inline_text},
		{"what is not shown", test_what_is_not_shown},
		{"links are absolute", test_links_are_absolute},
		{"characters mean themselves", test_characters_mean_themselves},
		{"blocks", test_blocks},
		{"code blocks", test_code_blocks},
		{"tables", test_tables},
		{"the main part", test_main_part},
		{"other kinds", test_other_kinds},
		{"nesting is bounded", test_nesting_is_bounded},
		{"memory is bounded", test_memory_is_bounded},
		{"a page of a megabyte is quick", test_a_page_of_a_megabyte_is_quick},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {{"web", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	return CU_get_number_of_failures() != 0;
}
