/* Whether what answers behind the name is what it was: the container may have been started anew, or
 * be another one.  The engine says (its id, and when it was started), else the helper does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/client_internal.h"
#include "backends/remote/client/end.h"
#include "ops/support/log.h"
#include "ops/support/thread.h"

enum { ASK_MS = 8000, NAMES_MAX = 20, NAMES_MAX_BYTES = 600 };

/* ---- Asking the engine, beside what the connection does ---------------------------------- */

struct identity_question {
	pthread_t thread;
	struct argv argv;
	struct buffer answer;
	int result;
};

static void *run_question(void *argument)
{
	struct identity_question *question = argument;

	question->result = argv_ask(question->argv.words, ASK_MS, &question->answer, NULL);
	return NULL;
}

static void question_free(struct identity_question *question)
{
	argv_done(&question->argv);
	buffer_done(&question->answer);
	free(question);
}

/* The first line of the answer; NULL where there is none. */
static char *take_answer(struct remote *remote)
{
	struct identity_question *question = remote->question;
	char *answer = NULL;

	if (!question)
		return NULL;
	pthread_join(question->thread, NULL);
	if (question->result == 0 && question->answer.size)
		answer = strndup((const char *)question->answer.data,
			strcspn((const char *)question->answer.data, "\n"));
	question_free(question);
	remote->question = NULL;
	return answer;
}

/* Once the stream is there: what the engine says before may be of the one that just ended. */
static void ask(struct remote *remote)
{
	const struct end *end = remote->settings.scheme->end;
	struct identity_question *question;

	if (!end || !end->identity)
		return;
	question = calloc(1, sizeof(*question));
	if (!question)
		return;
	end->identity(&remote->settings.target, &question->argv);
	if (!question->argv.words || question->argv.failed ||
		thread_start(&question->thread, "identity", 0, run_question, question) < 0)
		question_free(question);
	else
		remote->question = question;
}

void remote_identity_forget(struct remote *remote)
{
	free(take_answer(remote));
	free(remote->engine_identity);
	free(remote->helper_identity);
}

/* ---- Comparing ---------------------------------------------------------------------- */

/* What is not known does not differ. */
static bool differ(const char *a, const char *b)
{
	return a && *a && b && *b && strcmp(a, b) != 0;
}

static int keep(char **kept, const char *identity)
{
	char *copy = strdup(identity);

	if (!copy)
		return -ENOMEM;
	free(*kept);
	*kept = copy;
	return 0;
}

int remote_identity_take(struct remote *remote, const char *identity)
{
	free(take_answer(remote));
	free(remote->engine_identity);
	remote->engine_identity = NULL;
	ask(remote);
	return keep(&remote->helper_identity, identity);
}

bool remote_identity_differs(struct remote *remote, const char *identity)
{
	cleanup_free char *engine_identity = NULL;

	if (!remote->engine_identity)
		remote->engine_identity = take_answer(remote);
	if (differ(remote->helper_identity, identity))
		return true;
	ask(remote);
	engine_identity = take_answer(remote);
	return differ(remote->engine_identity, engine_identity);
}

/* ---- What went with the one before ------------------------------------------------------ */

struct losses {
	struct buffer names;
	size_t count;
};

static void add_loss(struct losses *losses, const char *path)
{
	if (losses->count++ < NAMES_MAX && losses->names.size < NAMES_MAX_BYTES)
		buffer_printf(&losses->names, "%s\"%s\"", losses->names.size ? ", " : "", path);
}

/* Under the lock.  Open files are lost, and what was written to them and not acknowledged. */
static void lose_files(struct remote *remote, struct losses *losses)
{
	for (struct remote_file *file = remote_file_next(remote, NULL); file;
		file = remote_file_next(remote, file)) {
		if (file->writes)
			add_loss(losses, file->path);
		file->lost_error = -ESTALE;
	}
}

/* Changes beside writes, whose requests had no answer yet.  Under the lock. */
static size_t count_changes(const struct remote *remote)
{
	size_t count = 0, left = remote->call_count;

	for (size_t i = 0; i < CALL_SLOTS && left; i++) {
		const struct call *call = remote->calls[i];

		left -= call != NULL;
		count += call && !call->done && !call->repeatable && !call->gives_back &&
			 call->type != REQUEST_WRITE && call->type != REQUEST_WRITE_DETACHED &&
			 call->type != REQUEST_PREPARE;
	}
	return count;
}

char *remote_identity_lose(struct remote *remote)
{
	struct losses losses = {0};
	cleanup_buffer struct buffer text = {0};
	size_t changes;

	pthread_mutex_lock(&remote->lock);
	changes = count_changes(remote);
	lose_files(remote, &losses);
	pthread_mutex_unlock(&remote->lock);
	buffer_printf(&text, "workspace replaced: \"%s\" is another machine or container now",
		remote->settings.transport.name);
	if (losses.count)
		buffer_printf(&text, "; not acknowledged and lost: what was written to %.*s%s",
			(int)losses.names.size, (const char *)losses.names.data,
			losses.count > NAMES_MAX ? " and others" : "");
	if (changes)
		buffer_printf(&text, "; %zu other changes were under way", changes);
	buffer_done(&losses.names);
	return buffer_steal_string(&text);
}
