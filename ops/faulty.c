#include "ops/faulty.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/forward.h"
#include "ops/support/cleanup.h"

enum { ERRORS_MAX = 4096 };

#define NAME(prefix, name) #name,
static const char *const operation_names[] = {WORKSPACE_OPERATIONS(NAME, )};

struct fault {
	struct fault *next;
	enum forward_operation operation;
	uint64_t first, last; /* calls that fail, counted from 1 */
	int error;
};

struct faulty {
	struct forward base;
	struct fault *faults;
	atomic_uint_fast64_t calls[OPERATION_COUNT];
};

/* ---- The specification ---------------------------------------------------------- */

static void faults_free(struct fault *fault)
{
	while (fault) {
		struct fault *next = fault->next;

		free(fault);
		fault = next;
	}
}

static int parse_operation(const char *name, enum forward_operation *ret_operation)
{
	for (size_t i = 0; i < OPERATION_COUNT; i++)
		if (strcmp(operation_names[i], name) == 0) {
			*ret_operation = (enum forward_operation)i;
			return 0;
		}
	return -EINVAL;
}

static int parse_error(const char *name, int *ret_error)
{
	for (int error = 1; error < ERRORS_MAX; error++) {
		const char *known = strerrorname_np(error);

		if (known && strcmp(known, name) == 0) {
			*ret_error = -error;
			return 0;
		}
	}
	return -EINVAL;
}

/* One "OPERATION:N:ERRNO"; the text is cut up. */
static int parse_fault(char *text, struct fault *ret_fault)
{
	char *saved, *end;
	const char *name = strtok_r(text, ":", &saved);
	const char *number = strtok_r(NULL, ":", &saved);
	const char *error = strtok_r(NULL, "", &saved);
	int r;

	if (!name || !number || !error)
		return -EINVAL;
	ret_fault->first = ret_fault->last = strtoull(number, &end, 10);
	if (strcmp(end, "+") == 0)
		ret_fault->last = UINT64_MAX;
	else if (*end)
		return -EINVAL;
	r = parse_operation(name, &ret_fault->operation);
	return r < 0 || ret_fault->first == 0 ? -EINVAL : parse_error(error, &ret_fault->error);
}

static int parse_faults(const char *specification, struct fault **ret_faults)
{
	cleanup_free char *copy = strdup(specification);
	struct fault *faults = NULL;
	char *saved;
	int r = copy ? 0 : -ENOMEM;

	for (char *text = copy ? strtok_r(copy, ",", &saved) : NULL; r == 0 && text;
		text = strtok_r(NULL, ",", &saved)) {
		struct fault *fault = calloc(1, sizeof(*fault));

		r = fault ? parse_fault(text, fault) : -ENOMEM;
		if (fault) {
			fault->next = faults;
			faults = fault;
		}
	}
	if (r < 0) {
		faults_free(faults);
		return r;
	}
	*ret_faults = faults;
	return 0;
}

/* Counts the call; the error it is to fail with, or 0. */
static int count_call(struct forward *base, enum forward_operation operation)
{
	struct faulty *faulty = (struct faulty *)base;
	uint64_t call = atomic_fetch_add(&faulty->calls[operation], 1) + 1;

	for (const struct fault *fault = faulty->faults; fault; fault = fault->next)
		if (fault->operation == operation && call >= fault->first && call <= fault->last)
			return fault->error;
	return 0;
}

static void faulty_free(struct workspace *w)
{
	faults_free(((struct faulty *)w)->faults);
	forward_free(w);
}

int faulty_new(struct workspace *inner, const char *specification, struct workspace **ret_workspace)
{
	struct faulty *faulty = calloc(1, sizeof(*faulty));
	int r;

	if (!faulty)
		return -ENOMEM;
	r = parse_faults(specification, &faulty->faults);
	if (r < 0) {
		free(faulty);
		return r;
	}
	forward_init(&faulty->base, inner, &forward_ops);
	faulty->base.ops.name = "faulty";
	faulty->base.ops.free = faulty_free;
	faulty->base.ops.descriptor = NULL; /* it would lead past the faults */
	faulty->base.before = count_call;
	*ret_workspace = &faulty->base.workspace;
	return 0;
}

int faulty_set(struct workspace *w, const char *specification)
{
	struct faulty *faulty = (struct faulty *)w;
	struct fault *faults;
	int r = parse_faults(specification, &faults);

	if (r < 0)
		return r;
	faults_free(faulty->faults);
	faulty->faults = faults;
	for (size_t i = 0; i < OPERATION_COUNT; i++)
		atomic_store(&faulty->calls[i], 0);
	return 0;
}

uint64_t faulty_calls(struct workspace *w, const char *operation)
{
	struct faulty *faulty = (struct faulty *)w;
	uint64_t calls = 0;

	for (size_t i = 0; i < OPERATION_COUNT; i++)
		if (!operation || strcmp(operation_names[i], operation) == 0)
			calls += atomic_load(&faulty->calls[i]);
	return calls;
}
