/* nspawn://NAME, lxc://NAME, wsl://NAME - machines that have a command like exec. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/end.h"
#include "backends/remote/ends/address.h"

static int prepare(const struct scheme *scheme, const char *rest, struct remote_settings *settings,
	char **ret_reason)
{
	cleanup_end_address struct end_address address = {0};
	int r = end_address_parse(scheme, rest, &address, ret_reason);

	if (r == 0)
		r = end_check_name("machine", address.name, "_.-", ret_reason);
	if (r == 0)
		r = end_check_name("user", address.user, "_.-", ret_reason);
	if (r < 0)
		return r;
	settings->root = strdup(*address.directory ? address.directory : "/~");
	settings->transport.name = strdup(address.name);
	settings->target.name = steal_ptr(&address.name);
	settings->target.user = steal_ptr(&address.user);
	return settings->root && settings->transport.name ? 0 : -ENOMEM;
}

/* ---- nspawn: a machine that systemd-machined knows ------------------------------------ */

static int prepare_nspawn(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	(void)options;
	return prepare(&nspawn_scheme, rest, settings, ret_reason);
}

static void stream_nspawn(const struct end_target *target, char *const *words, struct argv *argv)
{
	argv_add(argv, "systemd-run");
	argv_add_two(argv, "-M", target->name);
	if (target->user)
		argv_add_two(argv, "--uid", target->user);
	argv_add_two(argv, "--pipe", "--quiet");
	argv_add(argv, "--collect");
	argv_add(argv, "--");
	argv_add_list(argv, words);
}

static void identity_nspawn(const struct end_target *target, struct argv *argv)
{
	argv_add_two(argv, "machinectl", "show");
	argv_add_two(argv, "-pLeader", "-pTimestamp");
	argv_add(argv, target->name);
}

static void list_nspawn(const struct workspace_options *options, struct argv *argv)
{
	(void)options;
	argv_add_two(argv, "sh", "-c");
	argv_add(argv, "machinectl list --no-legend | cut -d' ' -f1");
}

static const struct end_advice nspawn_advice[] = {
	{"cannot run", -ENOENT, "install systemd-container"},
	{"No machine", -ENOENT, "'machinectl list' shows the machines"},
	{"Failed to connect to bus", -EHOSTUNREACH,
		"it needs systemd here and in the machine; for another one, see cmd:"},
	{0},
};

static const struct end nspawn_end = {
	.prepare = prepare_nspawn,
	.stream = stream_nspawn,
	.identity = identity_nspawn,
	.advice = nspawn_advice,
	.silent_advice = "'systemd-run -M %s --pipe true' must work",
};

const struct scheme nspawn_scheme = {
	.about = {.name = "nspawn",
		.form = "nspawn://[user@]machine[/dir]",
		.summary = "a machine of systemd-nspawn(1)",
		.shared_options = remote_options},
	.open = remote_open,
	.end = &nspawn_end,
	.names = list_nspawn,
};

/* ---- lxc ----------------------------------------------------------------------- */

static int prepare_lxc(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	const char *path = workspace_option(options, "lxcpath");
	cleanup_argv struct argv argv = {0};
	int r = prepare(&lxc_scheme, rest, settings, ret_reason);

	if (r == 0 && settings->target.user) {
		*ret_reason = strdup("lxc: takes no user: lxc-attach(1) enters as root");
		return -EINVAL;
	}
	if (r < 0 || !path)
		return r;
	argv_add_two(&argv, "-P", path);
	return argv_steal(&argv, &settings->target.engine);
}

static void stream_lxc(const struct end_target *target, char *const *words, struct argv *argv)
{
	argv_add(argv, "lxc-attach");
	argv_add_list(argv, target->engine);
	argv_add_two(argv, "-n", target->name);
	argv_add(argv, "--");
	argv_add_list(argv, words);
}

static void identity_lxc(const struct end_target *target, struct argv *argv)
{
	argv_add(argv, "lxc-info");
	argv_add_list(argv, target->engine);
	argv_add_two(argv, "-pHn", target->name);
}

static void list_lxc(const struct workspace_options *options, struct argv *argv)
{
	const char *path = workspace_option(options, "lxcpath");

	argv_add_two(argv, "lxc-ls", "-1");
	if (path)
		argv_add_two(argv, "-P", path);
	argv_add(argv, "--running");
}

static const struct end_advice lxc_advice[] = {
	{"cannot run", -ENOENT, "install lxc"},
	{"Failed to get init pid", -EHOSTUNREACH,
		"start it with 'lxc-start %s'; 'lxc-ls -f' shows the names"},
	{"does not exist", -ENOENT, "'lxc-ls -f' shows the names"},
	{"nsufficient privileges", -EACCES, "lxc-attach needs root for it: see cmd: with sudo"},
	{0},
};

static const struct workspace_scheme_option lxc_options[] = {{"lxcpath", "DIR"}, {0}};

static const struct end lxc_end = {
	.prepare = prepare_lxc,
	.stream = stream_lxc,
	.identity = identity_lxc,
	.takes_parameters = true,
	.advice = lxc_advice,
	.silent_advice = "'lxc-attach -n %s -- true' must work",
};

const struct scheme lxc_scheme = {
	.about = {.name = "lxc",
		.form = "lxc://container[/dir]",
		.summary = "a running container of LXC",
		.options = lxc_options,
		.shared_options = remote_options},
	.open = remote_open,
	.end = &lxc_end,
	.names = list_lxc,
};

/* ---- wsl: from Windows' side, or from one distribution to another --------------------------- */

static int prepare_wsl(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	(void)options;
	return prepare(&wsl_scheme, rest, settings, ret_reason);
}

static void stream_wsl(const struct end_target *target, char *const *words, struct argv *argv)
{
	argv_add(argv, "wsl.exe");
	argv_add_two(argv, "-d", target->name);
	if (target->user)
		argv_add_two(argv, "-u", target->user);
	argv_add(argv, "--");
	argv_add_list(argv, words);
}

static void list_wsl(const struct workspace_options *options, struct argv *argv)
{
	(void)options;
	argv_add(argv, "wsl.exe");
	argv_add_two(argv, "--list", "--quiet");
}

static const struct end_advice wsl_advice[] = {
	{"cannot run", -ENOENT, "wsl.exe is there where WSL runs this system, or is in PATH"},
	{"DISTRO_NOT_FOUND", -ENOENT, "'wsl.exe --list' shows the distributions"},
	{0},
};

static const struct end wsl_end = {
	.prepare = prepare_wsl,
	.stream = stream_wsl,
	.advice = wsl_advice,
	.silent_advice = "'wsl.exe -d %s -- true' must work",
};

const struct scheme wsl_scheme = {
	.about = {.name = "wsl",
		.form = "wsl://[user@]distribution[/dir]",
		.summary = "another distribution of the Windows Subsystem for Linux",
		.shared_options = remote_options},
	.open = remote_open,
	.end = &wsl_end,
	.names = list_wsl,
};
