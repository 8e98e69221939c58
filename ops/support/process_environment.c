#include "ops/support/process.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/process_internal.h"

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

enum { LOGIN_WAIT_MS = 10000, LOGIN_MAX_BYTES = 4 << 20 };

/* Written in main(), before there are threads. */
static bool inherits_all;
static int kept_umask = -1;

void process_keep_umask(void)
{
	kept_umask = (int)umask(0);
}

void process_restore_umask(void)
{
	if (kept_umask >= 0)
		umask((mode_t)kept_umask);
}

void process_inherit_environment(void)
{
	inherits_all = !getenv(PROCESS_LOCAL_MARK);
}

struct account {
	char name[64];
	char home[256];
	char shell[256];
};

static void take(char *to, size_t size, const char *value)
{
	if (value && *value)
		snprintf(to, size, "%s", value);
}

/* Reads the file itself: a static program cannot load the name service's modules. */
static void find_account(struct account *account)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what fgetpwent returns */
	cleanup_file FILE *file = fopen("/etc/passwd", "re");
	const struct passwd *entry;

	*account = (struct account){.home = "/", .shell = "/bin/sh"};
	snprintf(account->name, sizeof(account->name), "%u", (unsigned)geteuid());
	take(account->name, sizeof(account->name), getenv("USER"));
	take(account->home, sizeof(account->home), getenv("HOME"));
	take(account->shell, sizeof(account->shell), getenv("SHELL"));
	pthread_mutex_lock(&lock);
	while (file && (entry = fgetpwent(file)))
		if (entry->pw_uid == geteuid()) {
			take(account->name, sizeof(account->name), entry->pw_name);
			take(account->home, sizeof(account->home), entry->pw_dir);
			take(account->shell, sizeof(account->shell), entry->pw_shell);
			break;
		}
	pthread_mutex_unlock(&lock);
}

static bool has_name(const char *pair, const char *name)
{
	size_t length = strlen(name);

	return strncmp(pair, name, length) == 0 && pair[length] == '=';
}

const char *process_environment_get(char *const *environment, const char *name)
{
	for (; *environment; environment++)
		if (has_name(*environment, name))
			return *environment + strlen(name) + 1;
	return NULL;
}

/* ---- Names with values, each name once ---------------------------------------------------- */

struct variables {
	struct buffer text; /* "NAME=value", each with its NUL */
	size_t count;
};

static void variables_done(struct variables *variables)
{
	buffer_done(&variables->text);
}

static bool has_variable(const struct variables *variables, const char *pair, size_t name_length)
{
	const char *at = (const char *)variables->text.data;

	for (size_t i = 0; i < variables->count; i++, at += strlen(at) + 1)
		if (strncmp(at, pair, name_length) == 0 && at[name_length] == '=')
			return true;
	return false;
}

/* Nothing where the name is there already: what counts more comes first. */
static int add_pair(struct variables *variables, const char *pair)
{
	int r;

	if (has_variable(variables, pair, strcspn(pair, "=")))
		return 0;
	r = buffer_append(&variables->text, pair, strlen(pair) + 1);
	variables->count += r == 0;
	return r;
}

static int add(struct variables *variables, const char *name, const char *value)
{
	cleanup_free char *pair = string_printf("%s=%s", name, value);

	return pair ? add_pair(variables, pair) : -ENOMEM;
}

/* The pointers first, the strings behind them. */
static int make_block(const struct variables *variables, char ***ret_environment)
{
	const struct buffer *text = &variables->text;
	char **block = malloc((variables->count + 1) * sizeof(*block) + text->size);
	char *at;

	if (!block)
		return -ENOMEM;
	at = (char *)(block + variables->count + 1);
	memcpy(at, text->data, text->size);
	for (size_t i = 0; i < variables->count; i++, at += strlen(at) + 1)
		block[i] = at;
	block[variables->count] = NULL;
	*ret_environment = block;
	return 0;
}

/* ---- What is inherited ------------------------------------------------------------------ */

/* What a shell sets for itself; the working directory is another one. */
static bool is_of_a_shell(const char *pair)
{
	static const char *const names[] = {"_", "PWD", "OLDPWD", "SHLVL"};

	for (size_t i = 0; i < array_size(names); i++)
		if (has_name(pair, names[i]))
			return true;
	return false;
}

static bool is_inherited(const char *pair)
{
	if (inherits_all)
		return strchr(pair, '=') && !is_of_a_shell(pair);
	return has_name(pair, "LANG") || strncmp(pair, "LC_", 3) == 0;
}

static bool path_has(const char *path, const char *directory, size_t length)
{
	for (; *path; path += strcspn(path, ":"), path += *path == ':')
		if (strcspn(path, ":") == length && strncmp(path, directory, length) == 0)
			return true;
	return false;
}

/* A user's PATH of this machine lacks what root has in a container: that comes behind it. */
static int add_path(struct variables *variables)
{
	const char *own = getenv("PATH"), *at = default_path;
	cleanup_buffer struct buffer path = {0};
	int r = buffer_append_string(&path, own ? own : "");

	while (*at && r == 0) {
		int length = (int)strcspn(at, ":");

		if (!own || !path_has(own, at, (size_t)length))
			r = buffer_printf(&path, "%s%.*s", path.size ? ":" : "", length, at);
		at += length + (at[length] == ':');
	}
	if (r == 0)
		r = buffer_append(&path, "", 1);
	return r < 0 ? r : add(variables, "PATH", (const char *)path.data);
}

/* What the login, or the container engine, has not set. */
static int add_missing(struct variables *variables)
{
	struct account account;
	int r = 0;

	find_account(&account);
	if (inherits_all)
		r = add(variables, "PATH", default_path);
	if (r == 0)
		r = add(variables, "HOME", account.home);
	if (r == 0)
		r = add(variables, "USER", account.name);
	if (r == 0)
		r = add(variables, "LOGNAME", account.name);
	if (r == 0)
		r = add(variables, "SHELL", account.shell);
	if (r == 0 && !has_variable(variables, "LC_ALL", 6) &&
		!has_variable(variables, "LC_CTYPE", 8))
		r = add(variables, "LANG", "C.UTF-8");
	return r;
}

int process_environment(const char *const *wanted, char *const *login, char ***ret_environment)
{
	cleanup_with(variables_done) struct variables variables = {0};
	int r = 0;

	for (; wanted && *wanted && r == 0; wanted++)
		r = add_pair(&variables, *wanted);
	for (; login && *login && r == 0; login++)
		r = add_pair(&variables, *login);
	for (char **pair = login ? NULL : environ; pair && *pair && r == 0; pair++)
		if (is_inherited(*pair))
			r = add_pair(&variables, *pair);
	if (r == 0 && !inherits_all)
		r = add_path(&variables);
	if (r == 0)
		r = add_missing(&variables);
	return r < 0 ? r : make_block(&variables, ret_environment);
}

/* ---- That of a login shell --------------------------------------------------------------- */

/* Understood by every shell, csh and fish included.  What the shell's files print comes before the
 * mark. */
static const char login_mark[] = "isthmus-login-environment";
static const char login_command[] =
	"printf '\\000isthmus-login-environment\\000'; exec cat /proc/self/environ";

/* Appends what the shell prints until its end. */
static int read_login(const char *shell, int cwd_fd, struct buffer *out)
{
	const char *argv[] = {shell, "-l", "-c", login_command, NULL};
	const struct exec_request request = {.argv = argv,
		.timeout_ms = LOGIN_WAIT_MS,
		.flags = EXEC_STDIN_CLOSED | EXEC_KILL_LEFTOVERS};
	const struct command_interrupt never = {0};
	struct exec_event event = {0};
	struct command *command;
	char data[4096];
	int r = command_start(&request, cwd_fd, &command);

	if (r < 0)
		return r;
	while (r == 0 && event.type != EXEC_EXIT) {
		r = command_next(command, never, data, sizeof(data), &event);
		if (r == 0 && event.type == EXEC_STDOUT)
			r = buffer_append(out, data, event.size);
	}
	command_free(command);
	return r;
}

static int take_login(const struct buffer *said, char ***ret_environment)
{
	cleanup_with(variables_done) struct variables variables = {0};
	const char *found = (const char *)said->data, *end = found + said->size, *at = NULL;
	int r = 0;

	while (said->size &&
		(found = memmem(found, (size_t)(end - found), login_mark, sizeof(login_mark))))
		at = found += sizeof(login_mark);
	if (!at || at == end || end[-1])
		return -EBADMSG;
	for (; at < end && r == 0; at += strlen(at) + 1)
		if (strchr(at, '=') && !is_of_a_shell(at))
			r = add_pair(&variables, at);
	return r < 0 ? r : make_block(&variables, ret_environment);
}

int process_login_environment(int cwd_fd, char *const **ret_environment)
{
	static pthread_mutex_t login_lock = PTHREAD_MUTEX_INITIALIZER;
	static char **environment;
	cleanup_buffer struct buffer said = {.limit_bytes = LOGIN_MAX_BYTES};
	struct account account;
	int r = 0;

	pthread_mutex_lock(&login_lock);
	if (!environment) {
		find_account(&account);
		r = read_login(account.shell, cwd_fd, &said);
		if (r == 0)
			r = take_login(&said, &environment);
	}
	pthread_mutex_unlock(&login_lock);
	*ret_environment = environment;
	return r < 0 ? -EBADMSG : 0;
}
