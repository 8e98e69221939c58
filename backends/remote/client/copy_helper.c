/* A place without a shell gets the helper by the copy command of its engine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/bootstrap.h"
#include "backends/remote/client/end.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"

enum { COPY_MS = 12000, STEP_MS = 5000 };

static const char *const directories[] = {"/tmp", "/var/tmp", "/dev/shm", "/run", ""};

int remote_start_at(struct remote_settings *settings, char *const *words)
{
	cleanup_argv struct argv argv = {0};
	char **longer;
	int r;

	settings->scheme->end->stream(&settings->target, words, &argv);
	r = argv_steal(&argv, &longer);
	if (r < 0)
		return r;
	argv_free_words(settings->transport.argv);
	settings->transport.argv = longer;
	return 0;
}

int remote_start_at_shell(struct remote_settings *settings)
{
	cleanup_argv struct argv words = {0};

	argv_add_two(&words, "sh", "-c");
	argv_add(&words, bootstrap_script);
	settings->transport.gives_shell = true;
	return words.failed ? -ENOMEM : remote_start_at(settings, words.words);
}

struct copy {
	const struct remote_settings *settings;
	bool has_shell;
	int64_t deadline_ms;
	struct buffer why; /* what failed, for people */
	bool wrong_machine;
};

/* The line that matters: a list of errors says first how many they are. */
static const char *first_error(char *words)
{
	char *item = words ? strstr(words, "\n\t* ") : NULL;

	if (item)
		words = item + strlen("\n\t* ");
	if (words)
		words[strcspn(words, "\n")] = '\0';
	return words && *words ? words : NULL;
}

/* Runs one command of the engine; what it says when it fails is noted. */
static int run(struct copy *copy, const struct argv *argv, const char *directory)
{
	cleanup_buffer struct buffer error = {0};
	int64_t left_ms = copy->deadline_ms - clock_now_ms();
	const char *words;
	int r = argv->failed ? -ENOMEM : left_ms <= 0 ? -ETIMEDOUT : 0;

	if (r == 0)
		r = argv_ask(argv->words, left_ms < STEP_MS ? (int)left_ms : STEP_MS, NULL, &error);
	if (r == 0)
		return 0;
	words = first_error((char *)error.data);
	buffer_printf(&copy->why, " %s: %.150s;", *directory ? directory : "/",
		words && *words ? words
		: r < 0         ? strerror(-r)
				: "it does not run there");
	copy->wrong_machine = words && strstr(words, "xec format error");
	return r < 0 ? r : -EACCES;
}

/* Does not run there; without a shell there is hardly a program that could remove it. */
static void remove_copy(const struct copy *copy, char *target)
{
	cleanup_argv struct argv argv = {0};
	char *words[] = {(char *)"rm", (char *)"-f", target, NULL};

	copy->settings->scheme->end->stream(&copy->settings->target, words, &argv);
	if (!argv.failed)
		argv_ask(argv.words, STEP_MS, NULL, NULL);
}

static int try_directory(
	struct copy *copy, const char *helper, const char *directory, char **ret_target)
{
	const struct end *end = copy->settings->scheme->end;
	cleanup_free char *target = bootstrap_target(directory, helper);
	cleanup_argv struct argv to = {0}, check = {0}, words = {0};
	int r;

	if (!target)
		return -ENOMEM;
	end->copy(&copy->settings->target, helper, target, &to);
	argv_add_two(&words, target, "--check");
	if (!words.failed)
		end->stream(&copy->settings->target, words.words, &check);
	r = run(copy, &to, directory);
	if (r == 0) {
		r = run(copy, &check, directory);
		if (r != 0 && copy->has_shell)
			remove_copy(copy, target);
	}
	if (r == 0)
		*ret_target = steal_ptr(&target);
	return r;
}

static int try_helper(struct copy *copy, const char *helper, char **ret_target)
{
	int r = -EACCES;

	for (size_t i = 0; r != 0 && r != -ENOMEM && i < array_size(directories); i++) {
		copy->wrong_machine = false;
		r = try_directory(copy, helper, directories[i], ret_target);
		if (copy->wrong_machine)
			break;
	}
	return r;
}

static int explain(const struct copy *copy, char **ret_reason)
{
	if (asprintf(ret_reason,
		    "%sisthmus-helper cannot be put there:%.*s a directory of it must be writable "
		    "and let programs run, for instance a volume or a tmpfs with exec at /tmp",
		    copy->has_shell ? "" : "there is no shell, and ", (int)copy->why.size,
		    (const char *)copy->why.data) < 0)
		*ret_reason = NULL;
	return -EOPNOTSUPP;
}

int remote_copy_helper(struct remote_settings *settings, bool has_shell, char **ret_reason)
{
	struct copy copy = {.settings = settings,
		.has_shell = has_shell,
		.deadline_ms = clock_now_ms() + COPY_MS};
	cleanup_free char *target = NULL;
	cleanup_argv struct argv words = {0};
	const char *machine;
	int r = -EOPNOTSUPP;

	copy.wrong_machine = true;
	for (size_t i = 0; copy.wrong_machine && (machine = bootstrap_machine(i)); i++) {
		cleanup_free char *helper = NULL;

		if (bootstrap_find_helper(settings->helper_directory, machine, &helper) == 0)
			r = try_helper(&copy, helper, &target);
	}
	if (r == 0) {
		argv_add(&words, target);
		if (settings->forgets_helper)
			argv_add(&words, "--forget");
		settings->transport.gives_shell = false;
		r = words.failed ? -ENOMEM : remote_start_at(settings, words.words);
	} else {
		r = explain(&copy, ret_reason);
	}
	buffer_done(&copy.why);
	return r;
}
