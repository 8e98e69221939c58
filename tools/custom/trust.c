/*
 * The custom tools of a project run on this machine, so the user must trust their content once.
 * ~/.config/isthmus/trusted has one line "HASH PATH" for each trusted directory, with a hash of the
 * names, modes and contents of everything in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/support/files.h"
#include "ops/support/hex.h"
#include "ops/support/path.h"
#include "tools/base/options.h"
#include "tools/custom/internal.h"

enum { FILES_MAX = 10000, HASH_DIGITS = 64 };

static const uint64_t bytes_max = 256 << 20;

struct hashing {
	struct sha256_ctx digest;
	unsigned files;
	uint64_t bytes;
};

static int hash_file(struct hashing *hashing, const char *path)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char data[65536];
	ssize_t got;

	if (fd < 0)
		return -errno;
	while ((got = read(fd, data, sizeof(data))) > 0) {
		hashing->bytes += (uint64_t)got;
		if (hashing->bytes > bytes_max)
			return -EFBIG;
		sha256_update(&hashing->digest, (size_t)got, (const uint8_t *)data);
	}
	return got < 0 ? -errno : 0;
}

/* Adds an entry to the hash; for a symbolic link its target path, not the content behind it. */
static int hash_entry(struct hashing *hashing, const FTSENT *entry, size_t base)
{
	const char *name = entry->fts_path + base;
	char target[4096], mode[64];
	ssize_t length;

	if (++hashing->files > FILES_MAX)
		return -EFBIG;
	snprintf(mode, sizeof(mode), "%o %lld", (unsigned)entry->fts_statp->st_mode,
		S_ISREG(entry->fts_statp->st_mode) ? (long long)entry->fts_statp->st_size : 0LL);
	sha256_update(&hashing->digest, strlen(mode) + 1, (const uint8_t *)mode);
	sha256_update(&hashing->digest, strlen(name) + 1, (const uint8_t *)name);
	if (S_ISREG(entry->fts_statp->st_mode))
		return hash_file(hashing, entry->fts_accpath);
	if (!S_ISLNK(entry->fts_statp->st_mode))
		return 0;
	length = readlink(entry->fts_accpath, target, sizeof(target));
	if (length < 0)
		return -errno;
	sha256_update(&hashing->digest, (size_t)length, (const uint8_t *)target);
	return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int hash_tree(struct hashing *hashing, const char *path)
{
	char *const roots[] = {(char *)path, NULL};
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	FTSENT *entry;
	int r = tree ? 0 : -errno;

	while (r == 0 && (entry = fts_read(tree))) {
		if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR ||
			entry->fts_info == FTS_NS)
			r = -entry->fts_errno;
		else if (entry->fts_info != FTS_DP)
			r = hash_entry(hashing, entry, strlen(path));
	}
	if (tree)
		fts_close(tree);
	return r;
}

static int hash_place(const char *place, char hash[HASH_DIGITS + 1])
{
	struct hashing hashing = {.files = 0};
	uint8_t digest[SHA256_DIGEST_SIZE];
	int r;

	sha256_init(&hashing.digest);
	r = hash_tree(&hashing, place);
	sha256_digest(&hashing.digest, sizeof(digest), digest);
	if (r == 0)
		hex_write(digest, sizeof(digest), hash);
	return r;
}

static int read_trusted(const char *path, struct buffer *content)
{
	int r = options_read_file(path, content);

	if (r == -ENOENT)
		r = 0;
	return r < 0 ? r : buffer_append(content, "", 1);
}

/* The line of `place`; NULL: none.  `*ret_end`: the position after its line end. */
static char *find_line(char *lines, const char *place, char **ret_end)
{
	size_t length = strlen(place);

	for (char *line = lines; *line; line = *ret_end) {
		char *end = strchrnul(line, '\n');

		*ret_end = *end ? end + 1 : end;
		if ((size_t)(end - line) == HASH_DIGITS + 1 + length &&
			memcmp(line + HASH_DIGITS + 1, place, length) == 0)
			return line;
	}
	return NULL;
}

enum custom_trust custom_trusted(const char *place)
{
	cleanup_free char *path = custom_config_path("trusted");
	struct buffer content cleanup_buffer = {0};
	char hash[HASH_DIGITS + 1], *line, *end;

	if (!path || read_trusted(path, &content) < 0)
		return CUSTOM_NEW;
	line = find_line((char *)content.data, place, &end);
	if (!line)
		return CUSTOM_NEW;
	if (hash_place(place, hash) < 0)
		return CUSTOM_UNREADABLE;
	return memcmp(line, hash, HASH_DIGITS) == 0 ? CUSTOM_TRUSTED : CUSTOM_CHANGED;
}

/* Replaces the file by rename: an incomplete one would lose trusted directories. */
static int replace_file(const char *path, const struct buffer *content)
{
	cleanup_free char *parent = strndup(path, path_parent_length(path));
	cleanup_free char *temporary = string_printf("%s.%ld", path, (long)getpid());
	cleanup_fd int directory = parent ? make_directories(parent) : -ENOMEM, fd = -1;
	int r;

	if (directory < 0 || !temporary)
		return directory < 0 ? directory : -ENOMEM;
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, content->data, content->size);
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0)
		unlink(temporary);
	return r;
}

int custom_trust_now(const char *place)
{
	cleanup_free char *path = custom_config_path("trusted");
	struct buffer content cleanup_buffer = {0}, after cleanup_buffer = {0};
	char hash[HASH_DIGITS + 1], *line, *end = NULL;
	int r = path ? hash_place(place, hash) : -ENOENT;

	if (strchr(place, '\n'))
		r = -EINVAL;
	if (r == 0)
		r = read_trusted(path, &content);
	if (r < 0)
		return r;
	line = find_line((char *)content.data, place, &end);
	if (line)
		r = buffer_append(&after, content.data, (size_t)(line - (char *)content.data));
	if (r == 0)
		r = buffer_append_string(&after, line ? end : (char *)content.data);
	if (r == 0)
		r = buffer_printf(&after, "%s %s\n", hash, place);
	return r < 0 ? r : replace_file(path, &after);
}
