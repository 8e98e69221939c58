#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "backends/remote/wire/protocol.h"
#include "backends/remote/wire/wire.h"
#include "tests/check.h"

static const struct attributes sample = {
	.id = {.device = 0x801, .inode = 123456789, .generation = 1732230000123456789u},
	.mode = 0100644,
	.nlink = 2,
	.uid = 1000,
	.gid = UINT32_MAX,
	.rdev = 0,
	.size_bytes = INT64_MAX,
	.blocks = UINT64_MAX,
	.block_size_bytes = 4096,
	.atime = {-1, 999999999},
	.mtime = {INT64_MAX, 0},
	.ctime = {INT64_MIN, 1},
};

static void test_numbers_keep_their_value(void)
{
	static const uint64_t numbers[] = {
		0, 1, 127, 128, 16383, 16384, UINT32_MAX, INT64_MAX, UINT64_MAX};
	static const int64_t signed_numbers[] = {0, -1, 1, 63, -64, 64, INT64_MIN, INT64_MAX};
	cleanup_wire_writer struct wire_writer w = {0};
	struct wire_reader r;

	for (size_t i = 0; i < array_size(numbers); i++)
		wire_put_number(&w, numbers[i]);
	for (size_t i = 0; i < array_size(signed_numbers); i++)
		wire_put_signed(&w, signed_numbers[i]);
	r = wire_reader_over(w.buffer.data, w.buffer.size);
	for (size_t i = 0; i < array_size(numbers); i++)
		CHECK(numbers[i] == wire_get_number(&r));
	for (size_t i = 0; i < array_size(signed_numbers); i++)
		CHECK(signed_numbers[i] == wire_get_signed(&r));
	CHECK_RC(0, wire_reader_finish(&r));
}

static void check_malformed(const void *bytes, size_t size)
{
	struct wire_reader r = wire_reader_over(bytes, size);

	CHECK(wire_get_number(&r) == 0);
	CHECK_RC(-EPROTO, wire_reader_finish(&r));
}

static void test_numbers_beyond_64_bits_are_malformed(void)
{
	check_malformed("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10);
	check_malformed("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", 11);
	check_malformed("\x80", 1);
	check_malformed("", 0);
}

static void test_strings_end_where_they_say(void)
{
	struct wire_reader good = wire_reader_over("\2ab", 4);
	struct wire_reader nul_inside = wire_reader_over("\2a\0", 4);
	struct wire_reader no_nul = wire_reader_over("\2abc", 4);
	struct wire_reader endless =
		wire_reader_over("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);

	CHECK_STRING("ab", wire_get_string(&good));
	CHECK_RC(0, wire_reader_finish(&good));
	CHECK_STRING("", wire_get_string(&nul_inside));
	CHECK(nul_inside.failed);
	CHECK_STRING("", wire_get_string(&no_nul));
	CHECK(no_nul.failed);
	CHECK_STRING("", wire_get_string(&endless));
	CHECK(endless.failed);
}

static void check_path(bool good, const char *path)
{
	cleanup_wire_writer struct wire_writer w = {0};
	struct wire_reader r;

	wire_put_string(&w, path);
	r = wire_reader_over(w.buffer.data, w.buffer.size);
	wire_get_path(&r);
	CHECK(good == !r.failed);
}

static void test_paths_that_leave_the_root_are_malformed(void)
{
	check_path(true, "");
	check_path(true, "a/b..c");
	check_path(false, "/etc/passwd");
	check_path(false, "..");
	check_path(false, "a/../../b");
	check_path(false, "a//b");
	check_path(false, "a/");
}

static void test_errors_travel_as_codes(void)
{
	static const int errors[] = {ENOENT, EDQUOT, ESTALE, EOPNOTSUPP, ELOOP, ENODATA};
	static const int64_t results[] = {0, 1, 255, 65536, INT64_MAX, -ENOENT, -EDQUOT};
	uint8_t bytes[WIRE_RESULT_BYTES];
	uint64_t position;

	for (size_t i = 0; i < array_size(errors); i++)
		CHECK_RC(errors[i], wire_errno_of_code(wire_code_of_errno(errors[i])));
	CHECK_RC(2, wire_code_of_errno(ENOENT));
	CHECK_RC(116, wire_code_of_errno(ESTALE));
	CHECK_RC(5, wire_code_of_errno(123456));
	CHECK_RC(EIO, wire_errno_of_code(123456));
	for (size_t i = 0; i < array_size(results); i++) {
		struct wire_reader r = wire_reader_over(bytes, sizeof(bytes));

		wire_set_result(bytes, results[i], UINT64_MAX - i);
		CHECK(results[i] == wire_get_result(&r, &position));
		CHECK(position == UINT64_MAX - i);
	}
}

static void test_open_flags_keep_their_meaning(void)
{
	static const int flags[] = {O_RDONLY, O_WRONLY | O_APPEND, O_RDWR | O_TRUNC | O_EXCL,
		O_RDWR | O_SYNC, O_WRONLY | O_DSYNC, O_RDONLY | O_DIRECT | O_NOATIME};

	for (size_t i = 0; i < array_size(flags); i++) {
		cleanup_wire_writer struct wire_writer w = {0};
		struct wire_reader r;

		wire_put_open_flags(&w, flags[i]);
		r = wire_reader_over(w.buffer.data, w.buffer.size);
		CHECK_RC(flags[i], wire_get_open_flags(&r));
	}
}

static bool same_attributes(const struct attributes *a, const struct attributes *b)
{
	return attributes_same_version(a, b) && a->blocks == b->blocks && a->rdev == b->rdev &&
	       a->block_size_bytes == b->block_size_bytes && a->atime.tv_sec == b->atime.tv_sec &&
	       a->atime.tv_nsec == b->atime.tv_nsec && a->changed_lately == b->changed_lately &&
	       a->is_generated == b->is_generated;
}

static void put_listing(struct wire_writer *w)
{
	const struct dir_entry entries[] = {
		{.path = "", .attributes = sample, .at = 9, .watched_since = 5, .complete = true},
		{.path = "src", .attributes = sample, .at = 7},
		{.path = "src/main.c",
			.attributes = sample,
			.at = 7,
			.content = "int x;",
			.content_size = 6},
		{.path = "src/main",
			.attributes = sample,
			.at = UINT64_MAX,
			.watched_since = 1,
			.link_target = "main.c"},
	};
	const char *previous = "";
	uint64_t previous_at = 0;

	for (size_t i = 0; i < array_size(entries); i++) {
		wire_put_dir_entry(w, previous, previous_at, i % 2 ? &sample : NULL, &entries[i]);
		previous = entries[i].path;
		previous_at = entries[i].at;
	}
}

static void test_a_listing_keeps_its_entries(void)
{
	cleanup_wire_writer struct wire_writer w = {0};
	cleanup_buffer struct buffer path = {0};
	struct dir_entry entry = {0};
	uint64_t at = 0;
	struct wire_reader r;

	put_listing(&w);
	CHECK_RC(0, w.error);
	r = wire_reader_over(w.buffer.data, w.buffer.size);
	wire_get_dir_entry(&r, &path, &at, &entry);
	CHECK_STRING("", entry.path);
	CHECK_RC(9, entry.at);
	CHECK_RC(5, entry.watched_since);
	CHECK(entry.complete && same_attributes(&sample, &entry.attributes));
	wire_get_dir_entry(&r, &path, &at, &entry);
	CHECK_STRING("src", entry.path);
	CHECK_RC(7, entry.at);
	CHECK(!entry.watched_since && !entry.complete && !entry.content);
	wire_get_dir_entry(&r, &path, &at, &entry);
	CHECK_STRING("src/main.c", entry.path);
	CHECK_RC(7, entry.at);
	CHECK(entry.content_size == 6 && memcmp(entry.content, "int x;", 6) == 0);
	wire_get_dir_entry(&r, &path, &at, &entry);
	CHECK_STRING("src/main", entry.path);
	CHECK_STRING("main.c", entry.link_target);
	CHECK(entry.at == UINT64_MAX && entry.watched_since == 1);
	CHECK_RC(0, wire_reader_finish(&r));
}

/* Each prefix of a message is malformed or a shorter message: never a read past its end
 * (the copy has exactly its size, for AddressSanitizer). */
static void test_a_listing_may_be_cut_at_every_byte(void)
{
	cleanup_wire_writer struct wire_writer w = {0};
	int whole = 0;

	put_listing(&w);
	for (size_t size = 0; size <= w.buffer.size; size++) {
		cleanup_free uint8_t *copy = malloc(size ? size : 1);
		cleanup_buffer struct buffer path = {0};
		struct wire_reader r = wire_reader_over(copy, size);
		uint64_t at = 0;
		struct dir_entry entry = {0};

		memcpy(copy, w.buffer.data, size);
		while (wire_reader_left(&r) > 0)
			wire_get_dir_entry(&r, &path, &at, &entry);
		whole += !r.failed;
	}
	CHECK_RC(5, whole); /* nothing, and after each of the four entries */
}

static void test_packed_attributes_are_few_bytes_and_the_same(void)
{
	struct dir_entry entries[] = {
		{.path = "a", .at = 1, .attributes = sample},
		{.path = "b", .at = 1, .attributes = sample},
		{.path = "c", .at = 1, .attributes = sample},
		{.path = "d", .at = 1, .attributes = sample},
	};
	cleanup_wire_writer struct wire_writer w = {0};
	cleanup_buffer struct buffer path = {0};
	struct attributes before = {0};
	struct dir_entry got = {0};
	uint64_t at = 0;
	struct wire_reader r;
	size_t size;

	for (size_t i = 1; i < array_size(entries); i++)
		entries[i].attributes.ctime = entries[i].attributes.mtime =
			(struct timespec){1732230000, 5000000};
	entries[1].attributes.id.inode -= 3;
	entries[1].attributes.mtime = (struct timespec){-7, 999999999};
	entries[2].attributes.id.generation ^= UINT64_MAX;
	entries[2].attributes.size_bytes = 4097;
	entries[2].attributes.uid = UINT32_MAX;
	entries[2].attributes.mode ^= 0111;
	entries[2].attributes.atime = (struct timespec){INT64_MAX, 5};
	entries[2].attributes.is_generated = true;
	entries[3].attributes.changed_lately = true;
	entries[3].attributes.blocks = 8;
	entries[3].attributes.size_bytes = 1;
	entries[3].attributes.atime = entries[3].attributes.mtime;
	for (size_t i = 0; i < array_size(entries); i++) {
		size = w.buffer.size;
		wire_put_dir_entry(&w, "", i ? 1 : 0, &before, &entries[i]);
		before = entries[i].attributes;
	}
	r = wire_reader_over(w.buffer.data, w.buffer.size);
	for (size_t i = 0; i < array_size(entries); i++) {
		path.size = 0;
		wire_get_dir_entry(&r, &path, &at, &got);
		CHECK_STRING(entries[i].path, got.path);
		CHECK(same_attributes(&entries[i].attributes, &got.attributes));
		CHECK_RC(entries[i].attributes.mtime.tv_sec, got.attributes.mtime.tv_sec);
		CHECK_RC(entries[i].attributes.mtime.tv_nsec, got.attributes.mtime.tv_nsec);
		CHECK_RC(entries[i].attributes.atime.tv_nsec, got.attributes.atime.tv_nsec);
		CHECK_RC(entries[i].attributes.ctime.tv_sec, got.attributes.ctime.tv_sec);
	}
	CHECK_RC(0, wire_reader_finish(&r));
	CHECK(w.buffer.size - size < 40);
	w.buffer.size = 0;
	wire_put_dir_entry(&w, "c", 1, &before, &entries[3]);
	CHECK(w.buffer.size <= 11);
	w.buffer.size = 0;
	/* Made 2 ms before its content came. */
	entries[3].attributes.id.generation = 1732230000003000000u ^ S_IFREG;
	wire_put_dir_entry(&w, "c", 1, &before, &entries[3]);
	CHECK(w.buffer.size <= 15);
}

static void test_an_entry_cannot_leave_its_directory(void)
{
	const struct dir_entry entry = {.path = "../../etc/passwd", .attributes = sample};
	cleanup_wire_writer struct wire_writer w = {0};
	cleanup_buffer struct buffer path = {0};
	struct dir_entry got = {0};
	uint64_t at = 0;
	struct wire_reader r;

	wire_put_dir_entry(&w, "", 0, NULL, &entry);
	r = wire_reader_over(w.buffer.data, w.buffer.size);
	wire_get_dir_entry(&r, &path, &at, &got);
	CHECK(r.failed);
}

static void test_facts_keep_what_is_told(void)
{
	struct attributes other = sample;

	other.id.inode++;
	for (unsigned told = 0; told < 8; told++) {
		cleanup_wire_writer struct wire_writer w = {0};
		struct facts facts = {0}, got;
		struct wire_reader r;

		if (told & 1)
			facts.parent = sample;
		if (told & 2)
			facts.new_parent = other;
		if (told & 4)
			facts.object = sample;
		wire_put_facts(&w, &facts);
		r = wire_reader_over(w.buffer.data, w.buffer.size);
		wire_get_facts(&r, &got);
		CHECK_RC(0, wire_reader_finish(&r));
		CHECK(same_attributes(&facts.parent, &got.parent));
		CHECK(same_attributes(&facts.new_parent, &got.new_parent));
		CHECK(same_attributes(&facts.object, &got.object));
	}
}

static void test_a_change_names_its_directory(void)
{
	const struct change change = {.kind = CHANGE_ENTRY,
		.path = "d/f",
		.directory = {5, 6, 7},
		.at = UINT64_MAX,
		.exists = true,
		.attributes = sample};
	cleanup_wire_writer struct wire_writer w = {0};
	struct wire_reader r;
	struct change got;

	wire_put_change(&w, &change);
	r = wire_reader_over(w.buffer.data, w.buffer.size);
	wire_get_change(&r, &got);
	CHECK_RC(0, wire_reader_finish(&r));
	CHECK_STRING("d/f", got.path);
	CHECK(object_id_equal(&change.directory, &got.directory) && got.at == UINT64_MAX);
	CHECK(got.exists && same_attributes(&sample, &got.attributes));
}

static void test_a_frame_header_keeps_its_fields(void)
{
	const struct frame_header header = {.size = 1 << 20,
		.type = FRAME_REPLY,
		.flags = FRAME_COMPRESSED,
		.id = 0xfedcba98,
		.ack = 0x01020304};
	uint8_t bytes[FRAME_HEADER_BYTES];
	struct frame_header got;

	frame_header_encode(&header, bytes);
	CHECK_RC(0, frame_header_decode(bytes, &got));
	CHECK(got.size == header.size && got.type == header.type && got.flags == header.flags &&
		got.id == header.id && got.ack == header.ack);
	bytes[0]++;
	CHECK_RC(-EPROTO, frame_header_decode(bytes, &got));
	bytes[0]--;
	bytes[5] = FRAME_FLAGS + 1;
	CHECK_RC(-EPROTO, frame_header_decode(bytes, &got));
}

/* ---- The opening ---------------------------------------------------------------- */

static const struct hello sample_hello = {.nonce = "0123456789abcde",
	.version = PROTOCOL_VERSION,
	.received = 77,
	.linger_seconds = 600,
	.channel = 3,
	.compression = COMPRESSION_ALWAYS,
	.root = "/srv/app"};

static int receive(const void *data, size_t size, size_t *ret_left, struct hello *ret_hello,
	struct buffer *body, struct buffer *noise)
{
	uint8_t nonce[NONCE_BYTES], rest[16];
	int fds[2];
	int r;

	if (pipe(fds) < 0 || write(fds[1], data, size) != (ssize_t)size)
		return -EIO;
	close(fds[1]);
	r = hello_receive(fds[0], false, NULL, 1000, nonce, body, noise);
	if (r == 0)
		r = hello_decode(nonce, body->data, body->size, ret_hello);
	*ret_left = 0;
	if (r == 0)
		*ret_left = (size_t)read(fds[0], rest, sizeof(rest));
	close(fds[0]);
	return r;
}

static void test_a_hello_is_found_behind_noise_and_nothing_beyond_is_taken(void)
{
	for (size_t length = 0; length < 70; length++) {
		cleanup_wire_writer struct wire_writer w = {0};
		cleanup_buffer struct buffer body = {0}, noise = {0};
		struct hello hello;
		size_t left;

		for (size_t i = 0; i < length; i++)
			wire_put_raw(&w, i % 7 ? "n" : "\xff", 1);
		hello_encode(&w, &sample_hello);
		wire_put_raw(&w, "rest", 4);
		CHECK_RC(0, receive(w.buffer.data, w.buffer.size, &left, &hello, &body, &noise));
		CHECK_RC(4, left);
		CHECK_STRING("/srv/app", hello.root);
		CHECK(hello.received == 77 && hello.linger_seconds == 600 && hello.channel == 3);
		CHECK(hello.compression == COMPRESSION_ALWAYS);
		CHECK_RC(length, noise.size);
	}
}

static void test_a_hello_may_be_cut_at_every_byte(void)
{
	cleanup_wire_writer struct wire_writer w = {0};

	hello_encode(&w, &sample_hello);
	for (size_t size = 0; size < w.buffer.size; size++) {
		cleanup_buffer struct buffer body = {0}, noise = {0};
		struct hello hello;
		size_t left;

		CHECK_RC(-EPIPE, receive(w.buffer.data, size, &left, &hello, &body, &noise));
	}
}

/* The body of what hello_encode() or welcome_encode() wrote. */
static struct buffer body_of(const struct wire_writer *w)
{
	const size_t prefix = MAGIC_BYTES + NONCE_BYTES + 4;

	return (struct buffer){.data = w->buffer.data + prefix, .size = w->buffer.size - prefix};
}

static void test_a_hello_has_all_fields_of_its_version(void)
{
	struct hello other = sample_hello, got;
	cleanup_wire_writer struct wire_writer w = {0}, number = {0};
	struct buffer body;

	hello_encode(&w, &sample_hello);
	body = body_of(&w);
	for (size_t size = 0; size < body.size; size++)
		CHECK_RC(-EPROTO, hello_decode(other.nonce, body.data, size, &got));
	CHECK_RC(0, hello_decode(other.nonce, body.data, body.size, &got));
	wire_put_number(&number, PROTOCOL_VERSION + 1);
	CHECK_RC(0, hello_decode(other.nonce, number.buffer.data, number.buffer.size, &got));
	CHECK_RC(PROTOCOL_VERSION + 1, (int)got.version);
}

static void test_a_welcome_keeps_its_fields(void)
{
	struct welcome welcome = {.version = PROTOCOL_VERSION,
		.error = -EACCES,
		.reason = "no",
		.resumed = true,
		.token = "secret",
		.received = 9,
		.capabilities = 3,
		.owner_uid = 1000,
		.channels = 4,
		.identity = "boot-1",
		.takes_compressed = true};
	cleanup_wire_writer struct wire_writer w = {0}, other = {0};
	struct welcome got;
	struct buffer body;

	welcome_encode(&w, &welcome);
	body = body_of(&w);
	CHECK_RC(0, welcome_decode(welcome.nonce, body.data, body.size, &got));
	CHECK_RC(-EACCES, got.error);
	CHECK_STRING("no", got.reason);
	CHECK(got.resumed && got.received == 9 && got.capabilities == 3 && got.owner_uid == 1000 &&
		got.channels == 4);
	CHECK(memcmp(got.token, "secret", 7) == 0);
	CHECK_STRING("boot-1", got.identity);
	CHECK(got.takes_compressed);
	for (size_t size = 0; size < body.size; size++)
		CHECK_RC(-EPROTO, welcome_decode(welcome.nonce, body.data, size, &got));
	welcome.version++;
	welcome_encode(&other, &welcome);
	CHECK_RC(0, welcome_decode(welcome.nonce, body_of(&other).data, 8, &got));
	CHECK_STRING("no", got.reason);
}

TEST_MAIN("wire", TEST(test_numbers_keep_their_value),
	TEST(test_numbers_beyond_64_bits_are_malformed), TEST(test_strings_end_where_they_say),
	TEST(test_paths_that_leave_the_root_are_malformed), TEST(test_errors_travel_as_codes),
	TEST(test_open_flags_keep_their_meaning), TEST(test_a_listing_keeps_its_entries),
	TEST(test_a_listing_may_be_cut_at_every_byte),
	TEST(test_packed_attributes_are_few_bytes_and_the_same),
	TEST(test_an_entry_cannot_leave_its_directory), TEST(test_facts_keep_what_is_told),
	TEST(test_a_change_names_its_directory), TEST(test_a_frame_header_keeps_its_fields),
	TEST(test_a_hello_is_found_behind_noise_and_nothing_beyond_is_taken),
	TEST(test_a_hello_may_be_cut_at_every_byte),
	TEST(test_a_hello_has_all_fields_of_its_version), TEST(test_a_welcome_keeps_its_fields))
