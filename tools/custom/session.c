#include "tools/custom/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/support/log.h"
#include "ops/support/path.h"
#include "tools/custom/hosts.h"
#include "tools/custom/journal.h"

static struct {
	pthread_mutex_t lock;
	const char *name; /* NULL: no name */
	char *current;    /* the session it was switched to; NULL: none; guarded by lock */
	size_t bytes;     /* length of its journal that was read; guarded by lock */
} own_session = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *custom_session_name(const char *given)
{
	static const char *const names[] = {"ISTHMUS_SESSION", "CLAUDE_CODE_SESSION_ID"};

	for (size_t i = 0; !given && i < array_size(names); i++) {
		const char *value = getenv(names[i]);

		if (value && path_is_name(value))
			given = value;
	}
	return given;
}

void custom_session_begin(const char *name)
{
	own_session.name = name;
}

/* Follows a switch in the journal; returns the present session.  `*ret_former`: the one before.
 * The caller frees both. */
static char *move(char **ret_former)
{
	char *next, *now;

	if (!own_session.name)
		return NULL;
	pthread_mutex_lock(&own_session.lock);
	*ret_former = strdup(own_session.current ? own_session.current : own_session.name);
	next = custom_journal_switched(own_session.name, &own_session.bytes);
	if (next) {
		free(own_session.current);
		own_session.current = next;
	}
	now = strdup(own_session.current ? own_session.current : own_session.name);
	pthread_mutex_unlock(&own_session.lock);
	return now;
}

char *custom_session_current(void)
{
	cleanup_free char *former = NULL;

	return move(&former);
}

void custom_session_look(void)
{
	cleanup_free char *former = NULL, *now = move(&former);

	custom_hosts_catch_up(former, now);
}

void custom_session_at(const char *name, const char *parent)
{
	cleanup_free char *place = custom_journal_place(name);
	int r;

	if (place && parent ? strcmp(place, parent) == 0 : place == parent)
		return;
	r = custom_journal_move(name, parent, "tree");
	/* -ENOENT: a result of another tool, which the journal does not have. */
	if (r < 0 && r != -ENOENT)
		log_warning("cannot go back to the call \"%s\": %s, going on from the last one",
			parent ? parent : "", strerror(-r));
}
