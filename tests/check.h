/*
 * tests/check.h - what the tests add to CUnit.
 *
 * A test program is a table of named functions and TEST_MAIN; it prints one line per failed
 * check, then "N passed, N failed", and exits 1 when a test failed, 77 when all were
 * skipped.  TEST_ONLY=PATTERN in the environment runs only the functions whose names match it,
 * with or without "test_".
 */
#pragma once

#include <CUnit/Basic.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_case {
	const char *name;
	void (*run)(void);
};

/* The tests of one file of a program that has several. */
struct test_group {
	const struct test_case *cases;
	size_t count;
};

#define TEST_GROUP(name, ...)                                         \
	static const struct test_case name##_cases[] = {__VA_ARGS__}; \
	const struct test_group name = {                              \
		name##_cases, sizeof(name##_cases) / sizeof(struct test_case)}

#define TEST(function)              \
	{                           \
#function, function \
	}

static inline int check_report(int good, const char *text, const char *file, int line)
{
	if (!good) /* at once: a test that crashes later has told why */
		fprintf(stderr, "%s:%d: %s\n", file, line, text);
	CU_assertImplementation(
		good ? CU_TRUE : CU_FALSE, (unsigned)line, text, file, "", CU_FALSE);
	return good;
}

/* Checks a condition; true when it holds. */
#define CHECK(condition) check_report(!!(condition), #condition, __FILE__, __LINE__)

enum { CHECK_RESULT_BYTES = 48 };

/* "-ENOENT" for -2 and so on; any other number as it is. */
static inline const char *check_result_name(long long result, char name[CHECK_RESULT_BYTES])
{
	const char *error = result < 0 && result > -4096 ? strerrorname_np((int)-result) : NULL;

	if (error)
		snprintf(name, CHECK_RESULT_BYTES, "-%s", error);
	else
		snprintf(name, CHECK_RESULT_BYTES, "%lld", result);
	return name;
}

static inline int check_number(
	long long want, long long got, const char *text, const char *file, int line)
{
	char message[512], wanted[CHECK_RESULT_BYTES], returned[CHECK_RESULT_BYTES];

	if (want == got)
		return check_report(1, text, file, line);
	snprintf(message, sizeof(message), "%s: want %s, got %s", text,
		check_result_name(want, wanted), check_result_name(got, returned));
	return check_report(0, message, file, line);
}

/* Checks a result (0, a count or -errno); when they differ it prints both, errors by name. */
#define CHECK_RC(want, expression) \
	check_number((long long)(want), (long long)(expression), #expression, __FILE__, __LINE__)

static inline int check_string(
	const char *want, const char *got, const char *text, const char *file, int line)
{
	char message[1024];

	if (want && got && strcmp(want, got) == 0)
		return check_report(1, text, file, line);
	snprintf(message, sizeof(message), "%s: want \"%.400s\", got \"%.400s\"", text,
		want ? want : "(null)", got ? got : "(null)");
	return check_report(0, message, file, line);
}

#define CHECK_STRING(want, got) check_string((want), (got), #got, __FILE__, __LINE__)

static inline int test_is_wanted(const char *name)
{
	const char *pattern = getenv("TEST_ONLY");

	return !pattern || fnmatch(pattern, name, 0) == 0 ||
	       (strncmp(name, "test_", 5) == 0 && fnmatch(pattern, name + 5, 0) == 0);
}

/* How many times longer than usual a test waits for what must happen (TEST_PATIENCE). */
static inline int test_patience(void)
{
	const char *patience = getenv("TEST_PATIENCE");

	return patience && atoi(patience) > 0 ? atoi(patience) : 1;
}

static inline int test_run_groups(
	const char *suite_name, const struct test_group *const *groups, size_t group_count)
{
	CU_pSuite suite;
	unsigned failed;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 2;
	suite = CU_add_suite(suite_name, NULL, NULL);
	for (size_t g = 0; g < group_count; g++)
		for (size_t i = 0; i < groups[g]->count; i++)
			if (test_is_wanted(groups[g]->cases[i].name) &&
				(!suite || !CU_add_test(suite, groups[g]->cases[i].name,
						   groups[g]->cases[i].run)))
				return 2;
	CU_basic_set_mode(CU_BRM_NORMAL);
	CU_basic_run_tests();
	failed = CU_get_number_of_tests_failed();
	if (CU_get_number_of_tests_run() == 0) {
		printf("\nno function is named %s\n", getenv("TEST_ONLY"));
		failed = 1;
	}
	printf("\n%u passed, %u failed\n",
		CU_get_number_of_tests_run() > failed ? CU_get_number_of_tests_run() - failed : 0,
		failed);
	CU_cleanup_registry();
	return failed ? 1 : 0;
}

static inline int test_run(const char *suite_name, const struct test_case *cases, size_t count)
{
	const struct test_group group = {cases, count}, *groups[] = {&group};

	return test_run_groups(suite_name, groups, 1);
}

#define TEST_MAIN(suite_name, ...)                                                    \
	int main(void)                                                                \
	{                                                                             \
		static const struct test_case cases[] = {__VA_ARGS__};                \
		return test_run(suite_name, cases, sizeof(cases) / sizeof(cases[0])); \
	}
