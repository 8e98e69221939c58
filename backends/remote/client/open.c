#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/remote/client/bootstrap.h"
#include "backends/remote/client/client.h"
#include "backends/remote/wire/protocol.h"
#include "backends/remote/client/ssh_options.h"
#include "ops/support/cleanup.h"

enum {
	TIMEOUT_DEFAULT_SECONDS = 30,
	TIMEOUT_MAX_SECONDS = 86400,
	LINGER_DEFAULT_SECONDS = 600,
	LINGER_MAX_SECONDS = 7 * 86400,
	SSH_ARGUMENTS_MAX = 32,
};

static const char *const known_options[] = {
	"ssh_command", "timeout", "linger", "helper_dir", "channels", "cache", "cache_size", NULL};

static void explain(char **ret_reason, const char *format, const char *text)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	if (asprintf(ret_reason, format, text) < 0)
		*ret_reason = NULL;
#pragma GCC diagnostic pop
}

struct number {
	const char *key, *unit;
	uint32_t preset, min, max;
};

static int number_option(const struct workspace_options *options, const struct number *kind,
	uint32_t *ret_number, char **ret_reason)
{
	const char *text = workspace_option(options, kind->key);
	unsigned long number;
	char *end;

	*ret_number = kind->preset;
	if (!text)
		return 0;
	number = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || number < kind->min || number > kind->max) {
		if (asprintf(ret_reason, "option %s=\"%s\" is not a number of %s from %u to %u",
			    kind->key, text, kind->unit, kind->min, kind->max) < 0)
			*ret_reason = NULL;
		return -EINVAL;
	}
	*ret_number = (uint32_t)number;
	return 0;
}

/* ---- Arguments ------------------------------------------------------------------ */

struct arguments {
	char **list;
	size_t count;
	bool failed;
};

static void add(struct arguments *arguments, const char *text)
{
	char *copy = strdup(text);

	if (!copy || arguments->count >= SSH_ARGUMENTS_MAX) {
		arguments->failed = true;
		free(copy);
		return;
	}
	arguments->list[arguments->count++] = copy;
}

static int finish(struct arguments *arguments, struct transport *transport)
{
	transport->argv = arguments->list;
	return arguments->failed ? -ENOMEM : 0;
}

static int begin(struct arguments *arguments)
{
	*arguments = (struct arguments){.list = calloc(SSH_ARGUMENTS_MAX + 1, sizeof(char *))};
	return arguments->list ? 0 : -ENOMEM;
}

/* ---- helper:/dir ------------------------------------------------------------------- */

static int prepare_helper(const char *rest, struct remote_settings *settings, char **ret_reason)
{
	cleanup_free char *path = NULL;
	struct arguments arguments;
	int r;

	if (*rest != '/') {
		explain(ret_reason,
			"\"helper:%s\" needs an absolute directory, as in helper:/srv/app", rest);
		return -EINVAL;
	}
	r = bootstrap_find_helper(settings->helper_directory, NULL, &path);
	if (r < 0) {
		*ret_reason = bootstrap_no_helper(settings->helper_directory);
		return r;
	}
	r = begin(&arguments);
	if (r < 0)
		return r;
	settings->transport.argv = arguments.list;
	add(&arguments, path);
	settings->root = strdup(rest);
	settings->transport.place = strdup("this machine");
	if (!settings->root || !settings->transport.place)
		return -ENOMEM;
	return finish(&arguments, &settings->transport);
}

/* ---- ssh://[user@]host[:port]/dir ------------------------------------------------------ */

struct ssh_address {
	char *host; /* with "user@" */
	char *port; /* NULL: as ssh decides */
	char *root;
};

static void ssh_address_done(struct ssh_address *address)
{
	free(address->host);
	free(address->port);
	free(address->root);
}

static bool is_port(const char *text)
{
	size_t length = strspn(text, "0123456789");

	return length > 0 && length <= 5 && !text[length] && atoi(text) > 0 && atoi(text) <= 65535;
}

/* The colon before a port; one inside the brackets of [::1] is none. */
static char *port_of(char *host)
{
	char *colon = strrchr(host, ':');
	char *bracket = strrchr(host, ']');

	return colon && (!bracket || colon > bracket) ? colon : NULL;
}

static void strip_brackets(char *host)
{
	char *user_end = strrchr(host, '@');
	char *start = user_end ? user_end + 1 : host;
	size_t length = strlen(start);

	if (length < 2 || start[0] != '[' || start[length - 1] != ']')
		return;
	memmove(start, start + 1, length - 2);
	start[length - 2] = '\0';
}

static int parse_ssh_address(const char *rest, struct ssh_address *address)
{
	const char *start = rest + 2;
	const char *slash;
	char *colon;

	if (strncmp(rest, "//", 2) != 0)
		return -EINVAL;
	slash = strchr(start, '/');
	if (!slash)
		slash = start + strlen(start);
	address->host = strndup(start, (size_t)(slash - start));
	address->root = strdup(*slash ? slash : "/~");
	if (!address->host || !address->root)
		return -ENOMEM;
	colon = port_of(address->host);
	if (colon) {
		address->port = strdup(colon + 1);
		if (!address->port)
			return -ENOMEM;
		*colon = '\0';
		if (!is_port(address->port))
			return -EINVAL;
	}
	if (strchr(address->host, ':') && !strchr(address->host, ']'))
		return -EINVAL;
	strip_brackets(address->host);
	return *address->host && *address->host != '@' ? 0 : -EINVAL;
}

/* A leading "-" would be an option; the others may reach a shell by the user's configuration
 * (ProxyCommand, Match exec), whatever the version of ssh lets through. */
static bool is_safe_name(const char *name, size_t length, const char *refused)
{
	if (!length || *name == '-')
		return false;
	for (size_t i = 0; i < length; i++) {
		uint8_t c = (uint8_t)name[i];

		if (c <= ' ' || c == 0x7f || strchr(refused, c))
			return false;
	}
	return true;
}

/* What OpenSSH refuses, and blanks in a user.  DOMAIN\user and HOST$ are users. */
static bool is_safe_host(const char *host)
{
	const char *user_end = strrchr(host, '@');
	const char *start = user_end ? user_end + 1 : host;

	if (user_end && (!is_safe_name(host, (size_t)(user_end - host), "'`\";&<>|(){}") ||
				user_end[-1] == '\\'))
		return false;
	return is_safe_name(start, strlen(start), "'`\"$\\;&<>|(){}[]");
}

/* The user's words for ssh are split by the shell, as everywhere (GIT_SSH_COMMAND). */
static int add_ssh_command(struct arguments *arguments, const char *command)
{
	cleanup_free char *script = NULL;

	if (!command) {
		add(arguments, "ssh");
		return 0;
	}
	if (asprintf(&script, "exec %s \"$@\"", command) < 0)
		return -ENOMEM;
	add(arguments, "/bin/sh");
	add(arguments, "-c");
	add(arguments, script);
	add(arguments, "ssh_command"); /* so begins what the shell says when it cannot run it */
	return 0;
}

/* A command of another name may do anything. */
static bool is_openssh(const char *command)
{
	return !command || strcmp(command, "ssh") == 0 || strncmp(command, "ssh ", 4) == 0;
}

static int build_ssh(
	const struct ssh_address *address, const char *command, struct remote_settings *settings)
{
	struct arguments arguments;
	struct ssh_options options = {0};
	int r = begin(&arguments);

	if (r < 0)
		return r;
	settings->transport.argv = arguments.list;
	r = add_ssh_command(&arguments, command);
	settings->transport.share_index = arguments.count;
	add(&arguments, "-T");
	add(&arguments, "-oConnectTimeout=10");
	add(&arguments, "-oEscapeChar=none");
	/* What the user's configuration says for logins, as scp has it. */
	add(&arguments, "-oRemoteCommand=none");
	add(&arguments, "-oPermitLocalCommand=no");
	/* The far end gets nothing of ours but this connection. */
	add(&arguments, "-oClearAllForwardings=yes");
	add(&arguments, "-oForwardAgent=no");
	add(&arguments, "-oForwardX11=no");
	add(&arguments, "-oGSSAPIDelegateCredentials=no");
	add(&arguments, "-oTunnel=no");
	settings->transport.quiet_index = arguments.count;
	add(&arguments, settings->transport.may_prompt ? "-T" : "-oBatchMode=yes");
	if (address->port) {
		add(&arguments, "-p");
		add(&arguments, address->port);
	}
	if (r == 0 && is_openssh(command))
		ssh_options_find(arguments.list, address->host, &options);
	if (options.cipher)
		add(&arguments, options.cipher);
	if (options.sharing)
		add(&arguments, options.sharing);
	add(&arguments, "--");
	add(&arguments, address->host);
	add(&arguments, bootstrap_command);
	return r < 0 ? r : finish(&arguments, &settings->transport);
}

static int prepare_ssh(
	const char *rest, const char *command, struct remote_settings *settings, char **ret_reason)
{
	cleanup_with(ssh_address_done) struct ssh_address address = {0};
	int r = parse_ssh_address(rest, &address);

	if (r == -EINVAL)
		explain(ret_reason,
			"\"ssh:%s\" is not an address; write ssh://[user@]host[:port]/dir, "
			"with an IPv6 address in brackets",
			rest);
	if (r < 0)
		return r;
	if (!is_safe_host(address.host)) {
		explain(ret_reason,
			"\"%s\" is not sent to ssh: a user or a host neither begins with \"-\" nor "
			"has "
			"blanks, control characters or characters of the shell; correct the "
			"address",
			address.host);
		return -EINVAL;
	}
	settings->transport.gives_shell = true;
	settings->transport.may_prompt = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
	r = build_ssh(&address, command, settings);
	settings->root = steal_ptr(&address.root);
	settings->transport.place = steal_ptr(&address.host);
	return r;
}

/* ---- Opening ------------------------------------------------------------------------------ */

static int read_options(const struct workspace_options *options, struct remote_settings *settings,
	char **ret_reason)
{
	static const struct number timeout = {
		"timeout", "seconds", TIMEOUT_DEFAULT_SECONDS, 0, TIMEOUT_MAX_SECONDS};
	static const struct number linger = {
		"linger", "seconds", LINGER_DEFAULT_SECONDS, 0, LINGER_MAX_SECONDS};
	static const struct number channels = {
		"channels", "connections", CHANNELS_MAX, 1, CHANNELS_MAX};
	const char *directory = workspace_option(options, "helper_dir");
	uint32_t timeout_seconds;
	int r = number_option(options, &timeout, &timeout_seconds, ret_reason);

	if (r == 0)
		r = number_option(options, &linger, &settings->linger_seconds, ret_reason);
	if (r == 0)
		r = number_option(options, &channels, &settings->channels, ret_reason);
	if (r < 0)
		return r;
	settings->timeout_ms = timeout_seconds * 1000;
	if (options) {
		settings->link_changed = options->link_changed;
		settings->link_user = options->link_user;
	}
	if (options && options->session_path) {
		settings->session_path = strdup(options->session_path);
		if (!settings->session_path)
			return -ENOMEM;
	}
	if (directory) {
		settings->helper_directory = strdup(directory);
		if (!settings->helper_directory)
			return -ENOMEM;
	}
	return 0;
}

int remote_open(const char *scheme, const char *rest, const struct workspace_options *options,
	struct workspace **ret_workspace, char **ret_reason)
{
	bool is_ssh = strcmp(scheme, "ssh") == 0;
	struct remote_settings settings = {.name = is_ssh ? "ssh" : "helper"};
	int r = backend_check_options(scheme, options, known_options, ret_reason);

	if (r == 0)
		r = read_options(options, &settings, ret_reason);
	if (r == 0)
		r = is_ssh ? prepare_ssh(rest, workspace_option(options, "ssh_command"), &settings,
				     ret_reason)
			   : prepare_helper(rest, &settings, ret_reason);
	if (r == 0)
		r = remote_workspace_new(&settings, ret_workspace, ret_reason);
	if (r < 0)
		remote_settings_done(&settings);
	return r;
}
