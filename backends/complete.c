/* Completions of the beginning of a URI, for shells. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "ops/support/argv.h"
#include "ops/support/buffer.h"

enum { NAMES_TIMEOUT_MS = 3000 };

struct offers {
	const char *begin;
	void (*offer)(void *user, const char *uri);
	void *user;
};

/* Takes the string over. */
static void offer(const struct offers *offers, char *uri)
{
	if (uri && strncmp(uri, offers->begin, strlen(offers->begin)) == 0)
		offers->offer(offers->user, uri);
	free(uri);
}

static void offer_schemes(const struct offers *offers)
{
	const struct workspace_scheme *scheme;

	for (size_t i = 0; (scheme = workspace_scheme(i)); i++) {
		size_t length = strlen(scheme->name) + 1;

		length += strspn(scheme->form + length, "/");
		offer(offers, strndup(scheme->form, length));
	}
}

/* A word with other characters is not a name, whatever the command printed. */
static bool is_name(const char *name, size_t length)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789_.-";

	return length > 0 && strspn(name, good) >= length;
}

/* Behind "docker://" or "docker://user@". */
static void offer_names(const struct offers *offers, const struct scheme *scheme)
{
	const char *start = strstr(offers->begin, "://"), *at;
	cleanup_argv struct argv argv = {0};
	cleanup_buffer struct buffer names = {0};
	const char *line, *end;

	if (!start || !scheme->names || strchr(start + 3, '/'))
		return;
	at = strrchr(start, '@');
	start = at ? at + 1 : start + 3;
	scheme->names(NULL, &argv);
	if (argv.failed || argv_ask(argv.words, NAMES_TIMEOUT_MS, &names, NULL) != 0 || !names.data)
		return;
	for (line = (const char *)names.data; *line; line = end + (*end == '\n')) {
		end = strchrnul(line, '\n');
		if (is_name(line, (size_t)(end - line)))
			offer(offers, string_printf("%.*s%.*s", (int)(start - offers->begin),
					      offers->begin, (int)(end - line), line));
	}
}

void workspace_complete(
	const char *begin, void (*offer_one)(void *user, const char *uri), void *user)
{
	const struct offers offers = {.begin = begin, .offer = offer_one, .user = user};
	const struct scheme *scheme = strchr(begin, ':') ? scheme_find(begin) : NULL;

	offer_schemes(&offers);
	if (scheme)
		offer_names(&offers, scheme);
}
