/* The program: each promise runs in a process of its own, so that a crash is one failure. */
#include "tests/contract/contract.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROMISE_SECONDS_MAX = 150, CANNOT_RUN = 2, NOT_HERE = 77 };

static const struct test_group *const groups[] = {&names_promises, &attributes_promises,
	&files_promises, &locks_promises, &exec_promises, &streams_promises, &watch_promises};

typedef int (*promise_visitor)(const struct test_case *promise, void *user);

/* Sums up what the visitor returns for each promise. */
static int for_each_promise(promise_visitor visit, void *user)
{
	int sum = 0;

	for (size_t g = 0; g < array_size(groups); g++)
		for (size_t i = 0; i < groups[g]->count; i++)
			sum += visit(&groups[g]->cases[i], user);
	return sum;
}

/* ---- One promise -------------------------------------------------------------------- */

/* In a child. */
static int keep_promise(const struct test_case *promise)
{
	CU_pSuite suite;

	alarm(PROMISE_SECONDS_MAX);
	if (CU_initialize_registry() != CUE_SUCCESS)
		return CANNOT_RUN;
	suite = CU_add_suite("contract", NULL, NULL);
	if (!suite || !CU_add_test(suite, promise->name, promise->run))
		return CANNOT_RUN;
	CU_run_all_tests();
	return CU_get_number_of_failures() > 0;
}

static bool was_kept(const struct test_case *promise, int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	if (WIFEXITED(status))
		printf("broken: %s\n", promise->name);
	else if (WTERMSIG(status) == SIGALRM)
		printf("broken: %s (not done after %d s)\n", promise->name, PROMISE_SECONDS_MAX);
	else
		printf("broken: %s (crashed: SIG%s)\n", promise->name,
			sigabbrev_np(WTERMSIG(status)));
	return false;
}

static bool run_promise(const struct test_case *promise)
{
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0)
		exit(keep_promise(promise)); /* not _exit(): that is where leaks are reported */
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("contract: cannot run a promise");
		return false;
	}
	return was_kept(promise, status);
}

/* ---- Those that are wanted ------------------------------------------------------------ */

struct run {
	char **names; /* NULL behind the last; none: all promises */
	int broken;
};

static bool is_wanted(const struct test_case *promise, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++)
		if (strcmp(*names, promise->name) == 0)
			return true;
	return false;
}

static int run_if_wanted(const struct test_case *promise, void *user)
{
	struct run *run = user;

	if (!is_wanted(promise, run->names))
		return 0;
	run->broken += !run_promise(promise);
	return 1;
}

static int is_called(const struct test_case *promise, void *user)
{
	return strcmp(promise->name, user) == 0;
}

static bool all_exist(char **names)
{
	for (; *names; names++)
		if (!for_each_promise(is_called, *names)) {
			fprintf(stderr, "there is no promise \"%s\"; see contract --list\n",
				*names);
			return false;
		}
	return true;
}

static int run_promises(const struct contract_place *place, char **names)
{
	struct run run = {.names = names};
	int count;

	if (!all_exist(names))
		return CANNOT_RUN;
	if (!contract_use(place)) {
		printf("%s: not on this machine, skipped\n", place->name);
		return NOT_HERE;
	}
	count = for_each_promise(run_if_wanted, &run);
	printf("%s: %d passed, %d failed\n", place->name, count - run.broken, run.broken);
	return run.broken > 0;
}

/* ---- The command line ----------------------------------------------------------------- */

static int usage(void)
{
	fprintf(stderr, "usage: contract PLACE [PROMISE...]\n"
			"       contract --list\n"
			"Places:");
	for (size_t i = 0; i < contract_place_count; i++)
		fprintf(stderr, " %s", contract_places[i].name);
	fprintf(stderr, "\n");
	return CANNOT_RUN;
}

static int print_name(const struct test_case *promise, void *user)
{
	(void)user;
	puts(promise->name);
	return 0;
}

int main(int argc, char **argv)
{
	umask(0);
	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && strcmp(argv[1], "--list") == 0)
		return for_each_promise(print_name, NULL);
	for (size_t i = 0; argc > 1 && i < contract_place_count; i++)
		if (strcmp(argv[1], contract_places[i].name) == 0)
			return run_promises(&contract_places[i], argv + 2);
	return usage();
}
