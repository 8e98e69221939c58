/* The far session of a daemon that was killed keeps its locks, and nobody else can adopt it: its
 * name and token lie where the next daemon of the same mount finds them, and ends it. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "backends/remote/client/client_internal.h"
#include "ops/support/cleanup.h"

struct session_record {
	uint64_t target; /* hash of how it was reached, and of the root */
	uint8_t session[TOKEN_BYTES], token[TOKEN_BYTES];
};

static uint64_t hash_target(const struct remote_settings *settings)
{
	uint64_t hash = XXH3_64bits(settings->root, strlen(settings->root));

	const char *address = settings->transport.address;

	if (address)
		hash = XXH3_64bits_withSeed(address, strlen(address), hash);
	for (char **argument = settings->transport.argv; argument && *argument; argument++)
		hash = XXH3_64bits_withSeed(*argument, strlen(*argument), hash);
	return hash;
}

/* As long as the lock is held that daemon lives.  -1: there is no file, or another has it. */
static int open_record(const char *path, int flags)
{
	cleanup_fd int fd = path ? open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600) : -1;

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 ? steal_fd(&fd) : -1;
}

void remote_session_recall(struct remote *remote)
{
	struct session_record record;

	remote->session_fd = open_record(remote->settings.session_path, 0);
	if (remote->session_fd < 0)
		return;
	if (pread(remote->session_fd, &record, sizeof(record), 0) == sizeof(record) &&
		record.target == hash_target(&remote->settings)) {
		memcpy(remote->session, record.session, TOKEN_BYTES);
		memcpy(remote->token, record.token, TOKEN_BYTES);
		remote->ends_session = true;
	}
}

void remote_session_note(struct remote *remote)
{
	struct session_record record = {.target = hash_target(&remote->settings)};

	remote->ends_session = false;
	if (remote->session_fd < 0)
		remote->session_fd = open_record(remote->settings.session_path, O_CREAT);
	if (remote->session_fd < 0)
		return;
	memcpy(record.session, remote->session, TOKEN_BYTES);
	memcpy(record.token, remote->token, TOKEN_BYTES);
	if (pwrite(remote->session_fd, &record, sizeof(record), 0) != sizeof(record))
		remote_session_forget(remote);
}

void remote_session_forget(struct remote *remote)
{
	if (remote->session_fd < 0)
		return;
	unlink(remote->settings.session_path);
	close(remote->session_fd);
	remote->session_fd = -1;
}
