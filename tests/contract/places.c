#include "tests/contract/contract.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/local/local.h"
#include "ops/cache/cached.h"
#include "ops/faulty.h"
#include "ops/policy.h"
#include "ops/support/ignore.h"
#include "ops/writeback/writeback.h"
#include "tests/remove_tree.h"

/* The parent of the promises makes `top`, and removes it with what a crash left in it. */
static char top[64], directory[80];
static pid_t top_owner;

/* Deeper than PATH_MAX is possible: the shell's rm can do that. */
static void remove_directory(const char *path)
{
	char command[128];

	if (remove_tree(path) == 0)
		return;
	snprintf(command, sizeof(command), "rm -rf '%s'", path);
	if (system(command) != 0)
		fprintf(stderr, "\"%s\" is left behind\n", path);
}

static void remove_top(void)
{
	if (getpid() == top_owner)
		remove_directory(top);
}

static int make_directory_at(char *path)
{
	return mkdtemp(path) && chmod(path, 0755) == 0 ? 0 : -errno;
}

static int make_private_directory(void)
{
	int r;

	if (!*top) {
		snprintf(top, sizeof(top), "/tmp/isthmus-contract-XXXXXX");
		r = make_directory_at(top);
		if (r < 0)
			return r;
		top_owner = getpid();
		atexit(remove_top);
	}
	snprintf(directory, sizeof(directory), "%s/XXXXXX", top);
	return make_directory_at(directory);
}

static int open_with(const char *scheme, const char *rest, struct workspace **ret_workspace)
{
	cleanup_free char *reason = NULL;
	int r = scheme_open(scheme, rest, NULL, ret_workspace, &reason);

	if (r < 0)
		fprintf(stderr, "%s:%s: %s\n", scheme, rest, reason ? reason : strerror(-r));
	return r;
}

static void close_directory(struct workspace *w)
{
	workspace_free(w);
	remove_directory(directory);
}

static int open_local(struct workspace **ret_workspace, const char **ret_directory)
{
	int r = make_private_directory();

	*ret_directory = directory;
	return r < 0 ? r : open_with("local", directory, ret_workspace);
}

/* As on a kernel without openat2. */
static int open_local_steps(struct workspace **ret_workspace, const char **ret_directory)
{
	static const struct local_options options = {.no_openat2 = true};
	int r = make_private_directory();

	*ret_directory = directory;
	if (r < 0)
		return r;
	return local_workspace_new(
		open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC), &options, ret_workspace);
}

static int open_mem(struct workspace **ret_workspace, const char **ret_directory)
{
	*ret_directory = NULL;
	return open_with("mem", "", ret_workspace);
}

static int open_helper(struct workspace **ret_workspace, const char **ret_directory)
{
	int r = make_private_directory();

	*ret_directory = directory;
	return r < 0 ? r : open_with("helper", directory, ret_workspace);
}

static int open_compressed_helper(struct workspace **ret_workspace, const char **ret_directory)
{
	static const char *const pairs[] = {"compress=yes", NULL};
	const struct workspace_options options = {.pairs = pairs};
	cleanup_free char *reason = NULL;
	int r = make_private_directory();

	*ret_directory = directory;
	if (r == 0)
		r = scheme_open("helper", directory, &options, ret_workspace, &reason);
	if (r < 0)
		fprintf(stderr, "%s\n", reason ? reason : strerror(-r));
	return r;
}

/* The helper of another kind of machine, run by qemu. */
static int open_helper_of(const char *machine, const char *qemu, struct workspace **ret_workspace,
	const char **ret_directory)
{
	char helper_directory[sizeof(directory) + 8];
	char option[128], command[1024];
	const char *const pairs[] = {option, NULL};
	const struct workspace_options options = {.pairs = pairs};
	cleanup_free char *reason = NULL;
	int r;

	snprintf(command, sizeof(command), "test -x %s-%s && command -v %s >/dev/null", HELPER,
		machine, qemu);
	if (system(command) != 0)
		return -EOPNOTSUPP;
	r = make_private_directory();
	if (r < 0)
		return r;
	snprintf(helper_directory, sizeof(helper_directory), "%s.helper", directory);
	snprintf(command, sizeof(command),
		"mkdir %s && printf '#!/bin/sh\\nexec %s %s-%s\\n' >%s/isthmus-helper && "
		"chmod +x %s/isthmus-helper",
		helper_directory, qemu, HELPER, machine, helper_directory, helper_directory);
	if (system(command) != 0)
		return -EIO;
	*ret_directory = directory;
	snprintf(option, sizeof(option), "helper_dir=%s", helper_directory);
	r = scheme_open("helper", directory, &options, ret_workspace, &reason);
	snprintf(command, sizeof(command), "rm -r %s", helper_directory);
	if (system(command) != 0 || r < 0)
		fprintf(stderr, "%s\n", reason ? reason : strerror(-r));
	return r;
}

static int open_helper_aarch64(struct workspace **ret_workspace, const char **ret_directory)
{
	return open_helper_of("aarch64", "qemu-aarch64-static", ret_workspace, ret_directory);
}

static int open_helper_armv7l(struct workspace **ret_workspace, const char **ret_directory)
{
	return open_helper_of("armv7l", "qemu-arm-static", ret_workspace, ret_directory);
}

static int open_helper_riscv64(struct workspace **ret_workspace, const char **ret_directory)
{
	return open_helper_of("riscv64", "qemu-riscv64-static", ret_workspace, ret_directory);
}

/* One private sshd for all promises, and one connection of ssh to it that they share. */
static char sshd_directory[64];
static pid_t sshd_owner;

static void stop_sshd(void)
{
	char command[512];

	if (getpid() != sshd_owner)
		return;
	snprintf(command, sizeof(command),
		"ssh -F '%s/ssh_config' -O exit box 2>/dev/null; '" SSHD_SCRIPT
		"' stop '%s'; rm -rf '%s'",
		sshd_directory, sshd_directory, sshd_directory);
	if (system(command) != 0)
		fprintf(stderr, "\"%s\" is left behind\n", sshd_directory);
}

static int start_sshd(void)
{
	char command[1024];
	int status;

	if (*sshd_directory)
		return 0;
	snprintf(sshd_directory, sizeof(sshd_directory), "/tmp/isthmus-sshd-XXXXXX");
	if (!mkdtemp(sshd_directory))
		return -errno;
	sshd_owner = getpid();
	atexit(stop_sshd);
	snprintf(command, sizeof(command),
		"cd '%s' && '" SSHD_SCRIPT "' start '%s' 'SetEnv XDG_CACHE_HOME=%s/cache' && "
		"printf 'ControlMaster auto\\nControlPath %s/%%%%C\\nControlPersist 60\\n' "
		">>ssh_config",
		sshd_directory, sshd_directory, sshd_directory, sshd_directory);
	status = system(command);
	if (status == 0)
		return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 77 ? -EOPNOTSUPP : -EIO;
}

static int open_ssh(struct workspace **ret_workspace, const char **ret_directory)
{
	char option[128], rest[128];
	const char *const pairs[] = {option, NULL};
	const struct workspace_options options = {.pairs = pairs};
	cleanup_free char *reason = NULL;
	int r = start_sshd();

	if (r == 0)
		r = make_private_directory();
	if (r < 0)
		return r;
	*ret_directory = directory;
	snprintf(option, sizeof(option), "ssh_command=ssh -F '%s/ssh_config'", sshd_directory);
	snprintf(rest, sizeof(rest), "//box%s", directory);
	r = scheme_open("ssh", rest, &options, ret_workspace, &reason);
	if (r < 0)
		fprintf(stderr, "%s\n", reason ? reason : strerror(-r));
	return r;
}

/* Each decorator must keep the promises of what it holds. */
static int open_faulty_mem(struct workspace **ret_workspace, const char **ret_directory)
{
	struct workspace *inner;
	int r = open_mem(&inner, ret_directory);

	return r < 0 ? r : faulty_new(inner, "", ret_workspace);
}

static int open_cached_mem(struct workspace **ret_workspace, const char **ret_directory)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	struct workspace *inner;
	int r = open_mem(&inner, ret_directory);

	return r < 0 ? r : cached_new(inner, &options, ret_workspace);
}

static int open_cached_local(struct workspace **ret_workspace, const char **ret_directory)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	struct workspace *inner;
	int r = open_local(&inner, ret_directory);

	return r < 0 ? r : cached_new(inner, &options, ret_workspace);
}

static int open_cached_helper(struct workspace **ret_workspace, const char **ret_directory)
{
	static const struct cached_options options = {.ttl_ms = 1000};
	struct workspace *inner;
	int r = open_helper(&inner, ret_directory);

	return r < 0 ? r : cached_new(inner, &options, ret_workspace);
}

/* On top of `inner`; nothing of the suite's is hidden or protected. */
static int put_policy(struct workspace *inner, struct workspace **ret_workspace)
{
	struct policy_rules rules = {.agentsignore = true};

	if (ignore_add(&rules.hidden, "", "*.hidden", 8) < 0 ||
		ignore_add(&rules.protected, "", "*.protected", 11) < 0)
		return -ENOMEM;
	return policy_new(inner, &rules, ret_workspace);
}

static int open_policy_mem(struct workspace **ret_workspace, const char **ret_directory)
{
	struct workspace *inner;
	int r = open_mem(&inner, ret_directory);

	return r < 0 ? r : put_policy(inner, ret_workspace);
}

static int open_policy_cached_local(struct workspace **ret_workspace, const char **ret_directory)
{
	struct workspace *inner;
	int r = open_cached_local(&inner, ret_directory);

	return r < 0 ? r : put_policy(inner, ret_workspace);
}

/* Its state and what it lost lie beside the workspace. */
static int put_writeback(struct workspace *inner, struct workspace **ret_workspace)
{
	cleanup_free char *state = string_printf("%s.state", directory);
	cleanup_free char *lost = string_printf("%s.lost", directory);
	cleanup_free char *reason = NULL;
	const struct writeback_options options = {
		.state = state, .lost = lost, .identity = "contract:"};
	int r = state && lost ? writeback_new(inner, &options, ret_workspace, &reason) : -ENOMEM;

	if (r < 0)
		fprintf(stderr, "%s\n", reason ? reason : strerror(-r));
	return r;
}

/* The first change is passed on, as it tells the workspace's clock; the suite's are the later ones.
 */
static int start_writeback(struct workspace *inner, struct workspace **ret_workspace)
{
	struct attributes attributes;
	struct op_context ctx;
	int r = put_writeback(inner, ret_workspace);

	op_context_init(&ctx);
	if (r == 0)
		r = workspace_symlink(&ctx, *ret_workspace, "to", "first", &attributes);
	if (r == 0)
		r = workspace_unlink(&ctx, *ret_workspace, "first", &attributes.id);
	return r;
}

static int open_writeback_mem(struct workspace **ret_workspace, const char **ret_directory)
{
	struct workspace *inner;
	int r = make_private_directory();

	if (r == 0)
		r = open_mem(&inner, ret_directory);
	return r < 0 ? r : start_writeback(inner, ret_workspace);
}

static int open_writeback_local(struct workspace **ret_workspace, const char **ret_directory)
{
	struct workspace *inner;
	int r = open_local(&inner, ret_directory);

	return r < 0 ? r : start_writeback(inner, ret_workspace);
}

static int open_writeback_cached_helper(
	struct workspace **ret_workspace, const char **ret_directory)
{
	struct workspace *inner;
	int r = open_cached_helper(&inner, ret_directory);

	return r < 0 ? r : start_writeback(inner, ret_workspace);
}

const struct contract_place contract_places[] = {
	{"local", open_local, close_directory},
	{"local-steps", open_local_steps, close_directory},
	{"mem", open_mem, workspace_free},
	{"faulty-mem", open_faulty_mem, workspace_free},
	{"cached-mem", open_cached_mem, workspace_free},
	{"cached-local", open_cached_local, close_directory},
	{"policy-mem", open_policy_mem, workspace_free},
	{"policy-cached-local", open_policy_cached_local, close_directory},
	{"writeback-mem", open_writeback_mem, close_directory, .is_ahead = true},
	{"writeback-local", open_writeback_local, close_directory, .is_ahead = true},
	{"writeback-cached-helper", open_writeback_cached_helper, close_directory,
		.is_ahead = true},
	{"helper", open_helper, close_directory},
	{"compressed-helper", open_compressed_helper, close_directory},
	{"helper-aarch64", open_helper_aarch64, close_directory},
	{"helper-armv7l", open_helper_armv7l, close_directory},
	{"helper-riscv64", open_helper_riscv64, close_directory},
	{"ssh", open_ssh, close_directory},
	{"cached-helper", open_cached_helper, close_directory},
};
const size_t contract_place_count = array_size(contract_places);
