/* ssh://[user@]host[:port][/dir][?inside=ENGINE:CONTAINER] - any machine that OpenSSH reaches, or a
 * container there. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/client/bootstrap.h"
#include "backends/remote/client/end.h"
#include "backends/remote/ends/ssh_options.h"
#include "ops/support/cleanup.h"

static void explain(char **ret_reason, const char *format, const char *text)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	if (asprintf(ret_reason, format, text) < 0)
		*ret_reason = NULL;
#pragma GCC diagnostic pop
}

struct ssh_address {
	char *host; /* with "user@" */
	char *port; /* NULL: as ssh decides */
	char *root; /* NULL: none is given */
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

/* "%2F", "%2C" and "%25": a host may be what only the user's configuration understands, such as
 * vsock/3 of systemd-ssh-proxy.  Other percent signs stay (fe80::1%eth0). */
static void decode_host(char *host)
{
	static const struct {
		const char *code;
		char meant;
	} codes[] = {{"%2F", '/'}, {"%2C", ','}, {"%25", '%'}};
	char *out = host;

	while (*host) {
		char c = *host++;

		for (size_t i = 0; i < array_size(codes) && c == '%'; i++)
			if (strncasecmp(host - 1, codes[i].code, 3) == 0) {
				c = codes[i].meant;
				host += 2;
				break;
			}
		*out++ = c;
	}
	*out = '\0';
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
	address->root = *slash ? strdup(slash) : NULL;
	if (!address->host || (*slash && !address->root))
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
	decode_host(strrchr(address->host, '@') ? strrchr(address->host, '@') + 1 : address->host);
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
static int add_ssh_command(struct argv *argv, const char *command)
{
	cleanup_free char *script = NULL;

	if (!command) {
		argv_add(argv, "ssh");
		return 0;
	}
	if (asprintf(&script, "exec %s \"$@\"", command) < 0)
		return -ENOMEM;
	argv_add(argv, "/bin/sh");
	argv_add(argv, "-c");
	argv_add(argv, script);
	argv_add(argv, "ssh_command"); /* so begins what the shell says when it cannot run it */
	return 0;
}

/* A command of another name may do anything. */
static bool is_openssh(const char *command)
{
	return !command || strcmp(command, "ssh") == 0 || strncmp(command, "ssh ", 4) == 0;
}

/* ---- A container at that machine ------------------------------------------------------- */

static int refuse_inside(const char *inside, char **ret_reason)
{
	if (asprintf(ret_reason,
		    "option inside=\"%s\": write inside=docker:[USER@]CONTAINER; podman:, kube:, "
		    "lxc: and nspawn: are known, too",
		    inside) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}

/* Reads the option into the target, as the scheme of that name reads its URI. */
static int prepare_inside(const char *inside, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	static const struct scheme *const engines[] = {
		&docker_scheme, &podman_scheme, &kube_scheme, &lxc_scheme, &nspawn_scheme};
	size_t length = strcspn(inside, ":");
	cleanup_free char *rest = NULL;

	for (size_t i = 0; i < array_size(engines) && inside[length]; i++)
		if (strlen(engines[i]->about.name) == length &&
			strncmp(engines[i]->about.name, inside, length) == 0)
			settings->inside = engines[i]->end;
	if (!settings->inside || strchr(inside, '/'))
		return refuse_inside(inside, ret_reason);
	if (asprintf(&rest, "//%s", inside + length + 1) < 0) {
		rest = NULL;
		return -ENOMEM;
	}
	return settings->inside->prepare(rest, options, settings, ret_reason);
}

/* The line for the shell at the host.  No word of it but the script, which has no quote, needs
 * quotes: names were checked. */
static char *inside_command(const struct remote_settings *settings)
{
	cleanup_free char *script = NULL;
	cleanup_buffer struct buffer line = {0};
	cleanup_argv struct argv words = {0}, argv = {0};
	int r = 0;

	if (asprintf(&script, "'%s'", bootstrap_script) < 0)
		return NULL;
	argv_add_two(&words, "sh", "-c");
	argv_add(&words, script);
	settings->inside->stream(&settings->target, words.words, &argv);
	r = words.failed || argv.failed ? -ENOMEM : buffer_append_string(&line, "exec");
	for (char **word = argv.words; r == 0 && *word; word++)
		r = buffer_printf(&line, " %s", *word);
	return r < 0 ? NULL : buffer_steal_string(&line);
}

/* ---- The command ----------------------------------------------------------------------- */

static int build_ssh(
	const struct ssh_address *address, const char *command, struct remote_settings *settings)
{
	cleanup_free char *inside = settings->inside ? inside_command(settings) : NULL;
	cleanup_argv struct argv argv = {0};
	struct ssh_options options = {0};
	int r = add_ssh_command(&argv, command);

	settings->transport.share_index = argv.count;
	argv_add(&argv, "-T");
	argv_add(&argv, "-oConnectTimeout=10");
	argv_add(&argv, "-oEscapeChar=none");
	/* What the user's configuration says for logins, as scp has it. */
	argv_add(&argv, "-oRemoteCommand=none");
	argv_add(&argv, "-oPermitLocalCommand=no");
	/* The far end gets nothing of ours but this connection. */
	argv_add(&argv, "-oClearAllForwardings=yes");
	argv_add(&argv, "-oForwardAgent=no");
	argv_add(&argv, "-oForwardX11=no");
	argv_add(&argv, "-oGSSAPIDelegateCredentials=no");
	argv_add(&argv, "-oTunnel=no");
	settings->transport.quiet_index = argv.count;
	argv_add(&argv, settings->transport.may_prompt ? "-T" : "-oBatchMode=yes");
	if (address->port) {
		argv_add(&argv, "-p");
		argv_add(&argv, address->port);
	}
	if (r == 0 && !argv.failed && is_openssh(command))
		ssh_options_find(argv.words, address->host, &options);
	if (options.cipher)
		argv_add(&argv, options.cipher);
	if (options.sharing)
		argv_add(&argv, options.sharing);
	for (const char *const *option = options.session; *option; option++)
		argv_add(&argv, *option);
	argv_add(&argv, "--");
	argv_add(&argv, address->host);
	argv_add(&argv, inside ? inside : bootstrap_command);
	if (settings->inside && !inside)
		return -ENOMEM;
	return r < 0 ? r : argv_steal(&argv, &settings->transport.argv);
}

/* Without a directory it is the home, or what the end inside has it to be. */
static int set_names(
	struct ssh_address *address, const char *inside, struct remote_settings *settings)
{
	if (address->root || !inside) {
		free(settings->root);
		settings->root = address->root ? steal_ptr(&address->root) : strdup("/~");
	}
	free(settings->transport.name);
	if (!inside)
		settings->transport.name = steal_ptr(&address->host);
	else if (asprintf(&settings->transport.name, "%s at %s", inside, address->host) < 0)
		settings->transport.name = NULL;
	return settings->root && settings->transport.name ? 0 : -ENOMEM;
}

static int prepare(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	cleanup_with(ssh_address_done) struct ssh_address address = {0};
	const char *inside = workspace_option(options, "inside");
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
	if (inside)
		r = prepare_inside(inside, options, settings, ret_reason);
	if (r < 0)
		return r;
	settings->transport.gives_shell = true;
	settings->transport.may_prompt = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
	r = build_ssh(&address, workspace_option(options, "ssh_command"), settings);
	return r < 0 ? r : set_names(&address, inside, settings);
}

/* What words of ssh mean. */
static const struct end_advice advice[] = {
	{"cannot run \"ssh\"", -ENOENT,
		"install it (openssh-client), or name another with the option "
		"ssh_command"},
	{"ssh_command: ", -ENOENT, "correct the option ssh_command"},
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", -EACCES,
		"if the change is expected, remove the old key with ssh-keygen -R"},
	{"Host key verification failed", -EACCES,
		"connect once with ssh by hand, to check and accept its key"},
	{"Permission denied", -EACCES,
		"ssh itself must get in without a question: load the key into the agent "
		"(ssh-add), or name it in ~/.ssh/config"},
	{"Could not resolve", -EHOSTUNREACH, "check the spelling of the host"},
	{"timed out", -ETIMEDOUT, "check that the host is up and its port open"},
	{"Connection refused", -EHOSTUNREACH, "check that sshd runs there, and the port"},
	{"No route to host", -EHOSTUNREACH, "check the network"},
	{"unreachable", -EHOSTUNREACH, "check the network"},
	{"executable file not found in", -ENOENT,
		"its image has no shell, and only docker:// and podman:// copy the helper in: use "
		"these, with -o context or -o connection for that machine"},
	{0},
};

static const struct workspace_scheme_option options[] = {
	{"ssh_command", "COMMAND"}, {"inside", "ENGINE:[USER@]NAME"}, {0}};

static const struct end ssh_end = {
	.prepare = prepare,
	.takes_parameters = true,
	.advice = advice,
	.silent_advice =
		"'ssh HOST true' must work: the account there must be able to run commands (sftp "
		"alone will not do), and what its shell does first (.bashrc) must ask nothing and "
		"come to an end, without reading its standard input",
};

const struct scheme ssh_scheme = {
	.about = {.name = "ssh",
		.form = "ssh://[user@]host[:port][/dir]",
		.summary = "a machine that ssh(1) reaches",
		.options = options,
		.shared_options = remote_options},
	.open = remote_open,
	.end = &ssh_end,
};
