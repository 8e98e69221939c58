#include "ops/support/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "ops/support/json.h"
#include "ops/support/mountinfo.h"
#include "ops/support/path.h"

enum {
	CALL_TIMEOUT_S = 20,
	RESULT_MAX_BYTES = 1 << 16, /* of a link in /proc or an xattr */
};

/* ---- Which mount ---------------------------------------------------------- */

struct mount_line {
	uint64_t id;
	char *root;        /* what of the file system is mounted */
	char *mount_point; /* absolute */
};

static void mount_line_done(struct mount_line *line)
{
	free(line->root);
	free(line->mount_point);
}

static bool take_line(void *user, const struct mountinfo_line *line)
{
	struct mount_line *wanted = user;

	if (line->id != wanted->id)
		return true;
	wanted->root = strdup(line->root);
	wanted->mount_point = strdup(line->mount_point);
	return false;
}

static int find_mount_line(struct mount_line *line)
{
	int r = mountinfo_walk(take_line, line);

	if (r < 0)
		return r;
	return line->root && line->mount_point ? 0 : -ENODATA;
}

static int resolve(const char *path, char **ret_absolute, uint64_t *ret_mount_id)
{
	cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);
	cleanup_free char *absolute = NULL;
	char link[64];
	struct statx attributes;
	ssize_t length;

	if (fd < 0)
		return -errno;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &attributes) < 0)
		return -errno;
	if (!(attributes.stx_mask & STATX_MNT_ID))
		return -ENODATA;
	absolute = malloc(RESULT_MAX_BYTES);
	if (!absolute)
		return -ENOMEM;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, absolute, RESULT_MAX_BYTES - 1);
	if (length < 0)
		return -errno;
	absolute[length] = '\0';
	*ret_absolute = steal_ptr(&absolute);
	*ret_mount_id = attributes.stx_mnt_id;
	return 0;
}

static int socket_of(const char *mount_point, char **ret_socket)
{
	cleanup_free char *value = malloc(RESULT_MAX_BYTES);
	ssize_t length;

	if (!value)
		return -ENOMEM;
	length = getxattr(mount_point, "user.isthmus.control", value, RESULT_MAX_BYTES - 1);
	if (length < 0)
		return errno == ENOTSUP || errno == ENOSYS ? -ENODATA : -errno;
	value[length] = '\0';
	*ret_socket = steal_ptr(&value);
	return 0;
}

/* Where the object lies in the workspace: below what the mount shows of it. */
static int workspace_path_of(
	const struct mount_line *line, const char *absolute, char **ret_workspace_path)
{
	size_t length = strlen(line->mount_point);
	cleanup_free char *joined = NULL;

	if (strcmp(line->mount_point, "/") == 0)
		length = 0;
	if (strncmp(absolute, line->mount_point, length) != 0 ||
		(absolute[length] != '/' && absolute[length] != '\0'))
		return -ENOENT;
	joined = string_printf("%s%s", line->root, absolute + length);
	return joined ? path_normalise(joined, ret_workspace_path) : -ENOMEM;
}

int control_find(
	const char *path, char **ret_socket, char **ret_mount_point, char **ret_workspace_path)
{
	cleanup_with(mount_line_done) struct mount_line line = {0};
	cleanup_free char *absolute = NULL, *socket_path = NULL, *workspace_path = NULL;
	int r;

	r = resolve(path, &absolute, &line.id);
	if (r < 0)
		return r;
	r = find_mount_line(&line);
	if (r < 0)
		return r;
	r = socket_of(line.mount_point, &socket_path);
	if (r < 0)
		return r;
	r = workspace_path_of(&line, absolute, &workspace_path);
	if (r < 0)
		return r;
	if (ret_socket)
		*ret_socket = steal_ptr(&socket_path);
	if (ret_mount_point)
		*ret_mount_point = steal_ptr(&line.mount_point);
	if (ret_workspace_path)
		*ret_workspace_path = steal_ptr(&workspace_path);
	return 0;
}

/* ---- Frames --------------------------------------------------------------- */

/* A path that does not fit is reached through its directory, which stays open meanwhile. */
static int set_address(const char *socket_path, struct sockaddr_un *ret_address, int *ret_directory)
{
	const char *name = strrchr(socket_path, '/');
	cleanup_free char *parent = NULL;
	int length;

	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	if (strlen(socket_path) < sizeof(ret_address->sun_path)) {
		strcpy(ret_address->sun_path, socket_path);
		return 0;
	}
	if (!name)
		return -ENAMETOOLONG;
	parent = strndup(socket_path, (size_t)(name - socket_path));
	if (!parent)
		return -ENOMEM;
	*ret_directory = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*ret_directory < 0)
		return -errno;
	length = snprintf(ret_address->sun_path, sizeof(ret_address->sun_path),
		"/proc/self/fd/%d/%s", *ret_directory, name + 1);
	return (size_t)length < sizeof(ret_address->sun_path) ? 0 : -ENAMETOOLONG;
}

static int connect_socket(int fd, const char *socket_path)
{
	cleanup_fd int directory = -1;
	struct sockaddr_un address;
	int r;

	r = set_address(socket_path, &address, &directory);
	if (r < 0)
		return r;
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
}

/* Anybody who can set the xattr can name a socket: what we ask, and with which environment, is for
 * our own daemon only, or for root's, which answers that it is not ours. */
static bool peer_is_trusted(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	return peer.uid == geteuid() || peer.uid == 0 || geteuid() == 0;
}

int control_set_timeout(int fd, int option, time_t seconds)
{
	const struct timeval timeout = {.tv_sec = seconds};

	return setsockopt(fd, SOL_SOCKET, option, &timeout, sizeof(timeout)) < 0 ? -errno : 0;
}

static int connect_within(const char *socket_path, time_t seconds)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	/* It waits while a daemon that hangs has many connections to accept. */
	r = control_set_timeout(fd, SO_SNDTIMEO, seconds);
	if (r == 0)
		r = connect_socket(fd, socket_path);
	if (r == 0 && !peer_is_trusted(fd))
		r = -EPERM;
	if (r == 0)
		r = control_set_timeout(fd, SO_SNDTIMEO, 0);
	if (r < 0)
		return r == -EAGAIN ? -ETIMEDOUT : r;
	return steal_fd(&fd);
}

int control_connect(const char *socket_path)
{
	return connect_within(socket_path, CALL_TIMEOUT_S);
}

bool control_is_served(const char *socket_path)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return false;
	r = connect_socket(fd, socket_path);
	return r == 0 || r == -EAGAIN;
}

int control_listen(const char *socket_path)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cleanup_fd int directory = -1;
	struct sockaddr_un address;
	int r;

	if (fd < 0)
		return -errno;
	r = set_address(socket_path, &address, &directory);
	if (r < 0)
		return r;
	if (unlink(address.sun_path) < 0 && errno != ENOENT)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (chmod(address.sun_path, 0600) < 0 || listen(fd, 64) < 0)
		return -errno;
	return steal_fd(&fd);
}

int control_send(int fd, enum control_frame_type type, const void *payload, size_t size)
{
	uint8_t header[5] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16),
		(uint8_t)(size >> 24), (uint8_t)type};
	struct iovec parts[2] = {
		{.iov_base = header, .iov_len = sizeof(header)},
		{.iov_base = (void *)(uintptr_t)payload, .iov_len = size},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	if (size > CONTROL_FRAME_MAX_BYTES)
		return -EMSGSIZE;
	while (message.msg_iovlen > 0) {
		ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -errno;
		while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
			sent -= (ssize_t)message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen > 0) {
			message.msg_iov->iov_base = (uint8_t *)message.msg_iov->iov_base + sent;
			message.msg_iov->iov_len -= (size_t)sent;
		}
	}
	return 0;
}

static int receive_all(int fd, void *data, size_t size)
{
	uint8_t *at = data;

	while (size > 0) {
		ssize_t got = recv(fd, at, size, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (got == 0)
			return -ECONNRESET;
		at += got;
		size -= (size_t)got;
	}
	return 0;
}

int control_receive(int fd, enum control_frame_type *ret_type, struct buffer *payload)
{
	uint8_t header[5];
	uint32_t size;
	int r;

	r = receive_all(fd, header, sizeof(header));
	if (r < 0)
		return r;
	size = header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16 |
	       (uint32_t)header[3] << 24;
	if (size > CONTROL_FRAME_MAX_BYTES)
		return -EMSGSIZE;
	payload->size = 0;
	r = buffer_reserve(payload, (size_t)size + 1);
	if (r < 0)
		return r;
	r = receive_all(fd, payload->data, size);
	if (r < 0)
		return r;
	payload->data[size] = '\0';
	payload->size = size;
	*ret_type = (enum control_frame_type)header[4];
	return 0;
}

/* ---- Requests ------------------------------------------------------------- */

static int errno_by_name(const char *name)
{
	for (int number = 1; number < 4096 && name; number++) {
		const char *known = strerrorname_np(number);

		if (known && strcmp(known, name) == 0)
			return number;
	}
	return EPROTO;
}

int control_failure(const struct buffer *payload, char **ret_message)
{
	cJSON *failure = cJSON_ParseWithLength((const char *)payload->data, payload->size);
	const char *message = json_text(failure, "message");
	int number = errno_by_name(json_text(failure, "error"));

	*ret_message = message ? strdup(message) : NULL;
	cJSON_Delete(failure);
	return -number;
}

/* Anything that it sends will do. */
bool control_answers(const char *socket_path, time_t seconds)
{
	static const char request[] = "{\"request\":\"stats\"}";
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint8_t header;

	return fd >= 0 && control_set_timeout(fd, SO_SNDTIMEO, seconds) == 0 &&
	       control_set_timeout(fd, SO_RCVTIMEO, seconds) == 0 &&
	       connect_socket(fd, socket_path) == 0 &&
	       control_send(fd, CONTROL_JSON, request, strlen(request)) == 0 &&
	       receive_all(fd, &header, sizeof(header)) == 0;
}

int control_call_within(
	const char *socket_path, const char *request_json, time_t seconds, char **ret_reply)
{
	cleanup_buffer struct buffer payload = {0};
	cleanup_fd int fd = connect_within(socket_path, seconds);
	enum control_frame_type type;
	int r;

	*ret_reply = NULL;
	if (fd < 0)
		return fd;
	r = control_set_timeout(fd, SO_RCVTIMEO, seconds);
	if (r == 0)
		r = control_send(fd, CONTROL_JSON, request_json, strlen(request_json));
	if (r == 0)
		r = control_receive(fd, &type, &payload);
	if (r < 0)
		return r;
	if (type == CONTROL_FAILURE)
		return control_failure(&payload, ret_reply);
	if (type != CONTROL_JSON)
		return -EPROTO;
	*ret_reply = buffer_steal_string(&payload);
	return *ret_reply ? 0 : -ENOMEM;
}

int control_call(const char *socket_path, const char *request_json, char **ret_reply)
{
	return control_call_within(socket_path, request_json, CALL_TIMEOUT_S, ret_reply);
}
