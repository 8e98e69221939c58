/* vm:unix:SOCKET!/dir, vm:vsock:CID:PORT!/dir, vm:hybrid:SOCKET:PORT!/dir - a virtual machine in
 * which `isthmus-helper --listen` runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/end.h"
#include "ops/support/cleanup.h"

enum { CONNECT_PATIENCE_MS = 9000 };

/* Digits alone; 0 < number < 2^32 - 1, which stands for "any". */
static bool is_number(const char *text, size_t length)
{
	char *end;
	unsigned long long number = strtoull(text, &end, 10);

	return *text >= '1' && *text <= '9' && end == text + length && number < UINT32_MAX;
}

static bool is_good_address(const char *address)
{
	const char *rest = strchr(address, ':'), *port;

	if (!rest++)
		return false;
	port = strrchr(rest, ':');
	if (strncmp(address, "unix:", 5) == 0)
		return rest[0] == '/';
	if (!port || !is_number(port + 1, strlen(port + 1)))
		return false;
	if (strncmp(address, "vsock:", 6) == 0)
		return is_number(rest, (size_t)(port - rest));
	return strncmp(address, "hybrid:", 7) == 0 && rest[0] == '/';
}

static int prepare(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	const char *mark = strstr(rest, "!/");
	size_t length = mark ? (size_t)(mark - rest) : strlen(rest);
	cleanup_free char *address = strndup(rest, length);

	(void)options;
	if (!address)
		return -ENOMEM;
	if (!is_good_address(address) || (!mark && strchr(address, '!'))) {
		if (asprintf(ret_reason,
			    "\"vm:%s\" is not an address; write vm:unix:SOCKET!/dir, "
			    "vm:vsock:CID:PORT!/dir or vm:hybrid:SOCKET:PORT!/dir, with absolute "
			    "paths",
			    rest) < 0)
			*ret_reason = NULL;
		return -EINVAL;
	}
	settings->root = strdup(mark ? mark + 1 : "/~");
	settings->transport.name = strdup(address);
	if (!settings->root || !settings->transport.name)
		return -ENOMEM;
	settings->transport.address = steal_ptr(&address);
	settings->transport.connect_ms = CONNECT_PATIENCE_MS;
	settings->channels = 1; /* a serial port carries one connection, and none is far away */
	return 0;
}

static const struct end_advice advice[] = {
	{"No such file", -ENOENT, "start the virtual machine, or correct the path of its socket"},
	{"Connection refused", -ECONNREFUSED,
		"nobody serves that socket: start the virtual machine, or \"isthmus-helper "
		"--listen\" in it, see isthmus(1)"},
	{"Permission denied", -EACCES,
		"the socket is another user's: mount as that user, or change who may open it"},
	{"No such device", -ENODEV,
		"this machine has no vsock for virtual machines: load the module vhost_vsock"},
	{0},
};

static const struct end vm_end = {
	.prepare = prepare,
	.advice = advice,
	.silent_advice = "run \"isthmus-helper --listen\" in the virtual machine, see isthmus(1)",
};

const struct scheme vm_scheme = {
	.about = {.name = "vm",
		.form = "vm:unix:SOCKET!/dir",
		.summary =
			"a virtual machine that isthmus-helper listens in (also vm:vsock:CID:PORT, "
			"vm:hybrid:SOCKET:PORT)",
		.shared_options = remote_options},
	.open = remote_open,
	.end = &vm_end,
};
