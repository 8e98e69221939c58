#include "ops/support/process_internal.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/buffer.h"

static const char *const basic_names[] = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"};
static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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

static bool is_wanted(const char *const *wanted, const char *name)
{
	for (; wanted && *wanted; wanted++)
		if (has_name(*wanted, name))
			return true;
	return false;
}

static int append_pair(struct buffer *text, size_t *count, const char *name, const char *value)
{
	int r = name ? buffer_printf(text, "%s=%s", name, value)
		     : buffer_append_string(text, value);

	if (r == 0)
		r = buffer_append(text, "", 1);
	(*count)++;
	return r;
}

/* The pointers first, the strings behind them. */
static int make_block(const struct buffer *text, size_t count, char ***ret_environment)
{
	char **block = malloc((count + 1) * sizeof(*block) + text->size);
	char *at;

	if (!block)
		return -ENOMEM;
	at = (char *)(block + count + 1);
	memcpy(at, text->data, text->size);
	for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
		block[i] = at;
	block[count] = NULL;
	*ret_environment = block;
	return 0;
}

int process_environment(const char *const *wanted, char ***ret_environment)
{
	cleanup_buffer struct buffer text = {0};
	struct account account;
	const char *values[array_size(basic_names)];
	size_t count = 0;
	int r = 0;

	find_account(&account);
	values[0] = default_path;
	values[1] = account.home;
	values[2] = values[3] = account.name;
	values[4] = account.shell;
	values[5] = "C.UTF-8";
	for (size_t i = 0; i < array_size(basic_names) && r == 0; i++)
		if (!is_wanted(wanted, basic_names[i]))
			r = append_pair(&text, &count, basic_names[i], values[i]);
	for (const char *const *pair = wanted; pair && *pair && r == 0; pair++)
		r = append_pair(&text, &count, NULL, *pair);
	return r < 0 ? r : make_block(&text, count, ret_environment);
}
