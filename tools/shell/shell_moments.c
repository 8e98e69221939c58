#include "tools/shell/shell_moments.h"

#include <errno.h>
#include <stdlib.h>

int shell_moments_add(struct shell_moments *moments, const struct shell_moment *moment)
{
	struct shell_moment *grown;

	if (!moment->changes_names && !moment->uses_paths)
		return 0;
	grown = reallocarray(moments->list, moments->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	moments->list = grown;
	grown[moments->count++] = *moment;
	return 0;
}

static bool conflict(const struct shell_moment *change, const struct shell_moment *use)
{
	if (!change->changes_names || !use->uses_paths)
		return false;
	if (use->command == change->command)
		return change->repeats;
	return use->time >= change->time || use->background || use->repeats;
}

bool shell_moments_conflict(const struct shell_moments *moments)
{
	for (size_t i = 0; i < moments->count; i++)
		for (size_t j = 0; j < moments->count; j++)
			if (conflict(&moments->list[i], &moments->list[j]))
				return true;
	return false;
}
