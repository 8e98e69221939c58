/* Lost operations: a directory for each, with its content and the reason. */
#include "ops/writeback/writeback_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/files.h"
#include "ops/support/log.h"
#include "ops/support/path.h"
#include "ops/support/visible.h"

enum { PIECE_BYTES = 256 << 10, REASON_MAX = 32 << 10 };

static const char *const verbs[] = {
	[OP_MKDIR] = "mkdir",
	[OP_CREATE] = "create",
	[OP_SYMLINK] = "symlink",
	[OP_CONTENT] = "write",
	[OP_SETATTR] = "setattr",
	[OP_UNLINK] = "unlink",
	[OP_RMDIR] = "rmdir",
	[OP_RENAME] = "rename",
};

/* A new directory "TIME-N" in `directory`; its descriptor. */
static int make_place(int directory, uint64_t number, char *name, size_t size)
{
	int place;

	snprintf(name, size, "%llu-%llu", (unsigned long long)(clock_wall_ns() / 1000000),
		(unsigned long long)number);
	if (mkdirat(directory, name, 0700) < 0)
		return -errno;
	place = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return place < 0 ? -errno : place;
}

static int sync_descriptor(int fd)
{
	return fsync(fd) < 0 ? -errno : 0;
}

static int write_reason(int place, const struct operation *operation)
{
	const char *path2 = operation->path2 ? operation->path2 : "";
	cleanup_buffer struct buffer text = {0};
	cleanup_fd int fd = openat(place, "reason", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r, error = operation->refusal;

	if (fd < 0)
		return -errno;
	if (buffer_printf(&text, "%s\n%s\n", verbs[operation->facts.kind],
		    error == -ESTALE || error == -EEXIST ? "somebody else has changed it meanwhile"
							 : strerror(-error)) < 0 ||
		visible_append(&text, operation->path, strlen(operation->path), 0) < 0 ||
		buffer_append_string(&text, "\n") < 0 ||
		visible_append(&text, path2, strlen(path2), 0) < 0 ||
		buffer_append_string(&text, "\n") < 0)
		return -ENOMEM;
	r = write_all(fd, text.data, text.size);
	return r < 0 ? r : sync_descriptor(fd);
}

static int write_content(struct writeback *b, int place, struct operation *operation)
{
	cleanup_free char *piece = malloc(PIECE_BYTES);
	cleanup_fd int fd = openat(place, "content", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	uint64_t size = operation->stored.size_bytes;
	int r = fd < 0 ? -errno : piece ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < size && r == 0;) {
		ssize_t got = back_stored_read(b, operation, piece,
			size - at < PIECE_BYTES ? (size_t)(size - at) : PIECE_BYTES, at);

		r = got <= 0 ? -EIO : write_all(fd, piece, (size_t)got);
		at += got > 0 ? (uint64_t)got : 0;
	}
	return r < 0 ? r : sync_descriptor(fd);
}

static int fill_place(struct writeback *b, int place, struct operation *operation)
{
	int r = operation->data ? write_content(b, place, operation) : 0;

	if (r == 0)
		r = write_reason(place, operation);
	return r < 0 ? r : sync_descriptor(place);
}

int back_keep_lost(struct writeback *b, struct operation *operation)
{
	cleanup_fd int directory = make_directories(b->lost_directory);
	char name[64] = "";
	cleanup_fd int place =
		directory < 0 ? directory
			      : make_place(directory, operation->sequence, name, sizeof(name));
	int r = place < 0 ? place : fill_place(b, place, operation);

	if (r == 0)
		r = sync_descriptor(directory);
	if (r < 0 && place >= 0) {
		unlinkat(place, "content", 0);
		unlinkat(place, "reason", 0);
		unlinkat(directory, name, AT_REMOVEDIR);
	}
	if (r == 0)
		log_error("%s of \"%s\" was refused at the workspace (%s); it is kept in \"%s/%s\"",
			verbs[operation->facts.kind], operation->path,
			strerror(-operation->refusal), b->lost_directory, name);
	else if (!operation->is_unkept)
		log_error("%s of \"%s\" was refused at the workspace (%s), and cannot be kept in "
			  "\"%s\" (%s): it waits in the journal until it can; make room there",
			verbs[operation->facts.kind], operation->path,
			strerror(-operation->refusal), b->lost_directory, strerror(-r));
	operation->is_unkept = r < 0;
	return r;
}

/* ---- What is kept --------------------------- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_place(const struct dirent *entry)
{
	return entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
}

static void tell_lost(int directory, const char *name,
	void (*tell)(void *user, const struct writeback_lost *lost), void *user)
{
	cleanup_fd int place = openat(directory, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int fd = openat(place, "reason", O_RDONLY | O_CLOEXEC);
	char text[REASON_MAX] = "", *rest = text;
	struct writeback_lost lost = {.place = name};

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return;
	lost.has_content = faccessat(place, "content", F_OK, 0) == 0;
	lost.verb = strsep(&rest, "\n");
	lost.reason = rest ? strsep(&rest, "\n") : "";
	lost.path = rest ? strsep(&rest, "\n") : "";
	lost.path2 = rest ? strsep(&rest, "\n") : "";
	tell(user, &lost);
}

int writeback_lost_each(
	const char *path, void (*tell)(void *user, const struct writeback_lost *lost), void *user)
{
	cleanup_fd int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent **entries;
	int count;

	if (directory < 0)
		return errno == ENOENT ? 0 : -errno;
	count = scandirat(directory, ".", &entries, is_place, by_name);
	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		if (tell)
			tell_lost(directory, entries[i]->d_name, tell, user);
		free(entries[i]);
	}
	free(entries);
	return count;
}

struct clearing {
	int directory, error;
};

static void clear_one(void *user, const struct writeback_lost *lost)
{
	struct clearing *clearing = user;
	cleanup_fd int place =
		openat(clearing->directory, lost->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if ((lost->has_content && unlinkat(place, "content", 0) < 0) ||
		unlinkat(place, "reason", 0) < 0 ||
		unlinkat(clearing->directory, lost->place, AT_REMOVEDIR) < 0)
		clearing->error = -errno;
}

int writeback_lost_clear(const char *path)
{
	cleanup_fd int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct clearing clearing = {.directory = directory};
	int r;

	if (directory < 0)
		return errno == ENOENT ? 0 : -errno;
	r = writeback_lost_each(path, clear_one, &clearing);
	return r < 0 ? r : clearing.error;
}
