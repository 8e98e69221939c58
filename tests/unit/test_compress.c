/* What is compressed comes back, and nothing that a peer sends instead does harm. */
#include "backends/remote/wire/compress.h"
#include "ops/support/cleanup.h"
#include "tests/check.h"

enum { SIZE = 100000 };

static uint8_t text[SIZE], noise[SIZE];

static void set_out(void)
{
	static const char *const words[] = {"static ", "int ", "return ", "struct ", "\n\t", "= "};
	uint32_t random = 1;
	size_t used = 0;

	for (size_t i = 0; i < SIZE; i++) {
		random = random * 1664525 + 1013904223;
		noise[i] = (uint8_t)(random >> 24);
	}
	for (size_t i = 0; used < SIZE; i++) {
		const char *word = words[noise[i] % array_size(words)];

		for (; *word && used < SIZE; word++)
			text[used++] = (uint8_t)*word;
	}
}

static bool comes_back(struct compressor *c, struct decompressor *d, const uint8_t *data,
	size_t size, size_t *packed_size)
{
	cleanup_free uint8_t *out = malloc(size + 1);
	cleanup_buffer struct buffer packed = {0};

	CHECK_RC(0, compressor_run(c, data, size, &packed));
	CHECK_RC(0, decompressor_run(d, packed.data, packed.size, out, size));
	*packed_size = packed.size;
	return memcmp(out, data, size) == 0;
}

static void test_what_is_compressed_comes_back(void)
{
	static const size_t sizes[] = {1, 255, 256, 4096, 65535, SIZE};
	struct decompressor *d;
	struct compressor *c;
	size_t first, again;

	set_out();
	CHECK_RC(0, compressor_new(&c));
	CHECK_RC(0, decompressor_new(&d));
	for (size_t i = 0; i < array_size(sizes); i++) {
		CHECK(comes_back(c, d, noise, sizes[i], &first));
		CHECK(first <= sizes[i] + sizes[i] / 1000 + 16);
		CHECK(comes_back(c, d, text, sizes[i], &first));
	}
	/* What came before is known. */
	CHECK(comes_back(c, d, noise, 5000, &first));
	CHECK(comes_back(c, d, noise, 5000, &again));
	CHECK(first > 5000 && again < 100);
	compressor_free(c);
	decompressor_free(d);
}

static int unpack(const uint8_t *data, size_t size, size_t out_size)
{
	cleanup_free uint8_t *out = malloc(out_size + 1); /* a sanitizer sees more */
	struct decompressor *d;
	int r;

	CHECK_RC(0, decompressor_new(&d));
	r = decompressor_run(d, data, size, out, out_size);
	decompressor_free(d);
	return r;
}

static void test_only_what_has_the_size_that_was_said_is_taken(void)
{
	static const uint8_t end[] = {0x03, 0x00}; /* of a deflate stream */
	cleanup_buffer struct buffer packed = {0};
	struct compressor *c;

	set_out();
	CHECK_RC(0, compressor_new(&c));
	CHECK_RC(0, compressor_run(c, text, SIZE, &packed));
	compressor_free(c);
	CHECK_RC(0, unpack(packed.data, packed.size, SIZE));
	CHECK_RC(-EPROTO, unpack(packed.data, packed.size, SIZE + 1));
	CHECK_RC(-EPROTO, unpack(packed.data, packed.size, SIZE - 1));
	CHECK_RC(-EPROTO, unpack(packed.data, packed.size, 0));
	CHECK_RC(-EPROTO, unpack(packed.data, packed.size / 2, SIZE));
	CHECK_RC(-EPROTO, unpack(packed.data, 0, SIZE));
	CHECK_RC(-EPROTO, unpack(end, sizeof(end), 0));
	CHECK_RC(-EPROTO, unpack(noise, SIZE, SIZE));
}

static void test_a_sample_tells_what_is_worth_it(void)
{
	uint8_t mixed[SIZE];

	set_out();
	for (size_t size = 256; size <= SIZE; size = size * 3 / 2) {
		CHECK(compress_is_worth(text, size));
		CHECK(!compress_is_worth(noise, size));
	}
	memcpy(mixed, noise, SIZE);
	memcpy(mixed, text, SIZE / 2);
	CHECK(compress_is_worth(mixed, SIZE));
	for (size_t i = 0; i < SIZE; i++)
		mixed[i] = "0123456789abcdef"[noise[i] % 16];
	CHECK(compress_is_worth(mixed, SIZE));
}

TEST_MAIN("compress", TEST(test_what_is_compressed_comes_back),
	TEST(test_only_what_has_the_size_that_was_said_is_taken),
	TEST(test_a_sample_tells_what_is_worth_it))
