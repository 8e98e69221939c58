/* The sentence for people about a connection that could not be made. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/client_internal.h"
#include "backends/remote/client/end.h"

enum {
	NOISE_LINE_BYTES = 200,
	STDERR_MAX_BYTES = 16384, /* of the stream */
	WORDS_LINE_MAX_BYTES =
		300, /* a terminal shows what it is sent: the script of the bootstrap */
};

static void first_line(const struct buffer *noise, char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < noise->size && used < size - 1; i++) {
		uint8_t c = noise->data[i];

		if (c == '\n' && used)
			break;
		if (c >= ' ' && c != 0x7f)
			out[used++] = (char)c;
	}
	out[used] = '\0';
}

/* Messages of the far end go to terminals and logs: only as plain text. */
static void mask_control_characters(char *text)
{
	for (uint8_t *c = (uint8_t *)text; *c; c++) {
		if ((*c < ' ' && *c != '\n' && *c != '\t') || *c == 0x7f)
			*c = '?';
		if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
			c[0] = c[1] = '?'; /* the same in UTF-8 */
	}
}

/* Each "%s" of it is the name there. */
static void add_advice(struct buffer *text, const char *advice, const char *name)
{
	const char *hole;

	for (; (hole = strstr(advice, "%s")); advice = hole + 2)
		buffer_printf(text, "%.*s%s", (int)(hole - advice), advice, name);
	buffer_append_string(text, advice);
}

/* Cut between characters, where it is longer than anybody reads. */
static void add_line(struct buffer *text, const char *line, size_t length)
{
	size_t kept = length;

	if (length > WORDS_LINE_MAX_BYTES)
		for (kept = WORDS_LINE_MAX_BYTES; kept > 0 && (line[kept] & 0xc0) == 0x80;)
			kept--;
	buffer_printf(text, "%s%.*s%s", text->size ? "\n" : "", (int)kept, line,
		kept < length ? "..." : "");
}

/* Its words, without the lines that say nothing to people. */
static void add_stderr(struct buffer *text, const struct end *end, const char *stderr_text)
{
	while (stderr_text && *stderr_text) {
		size_t length = strcspn(stderr_text, "\n");

		if (!end->is_noise || !end->is_noise(stderr_text))
			add_line(text, stderr_text, length);
		stderr_text += length + (stderr_text[length] == '\n');
	}
}

void remote_write_reason(const struct remote *remote, int error, const char *detail,
	const char *stderr_text, const char *line, const char *advice, char **ret_reason)
{
	cleanup_buffer struct buffer text = {0}, said = {0};
	bool has_stderr;

	add_stderr(&said, remote->settings.scheme->end, stderr_text);
	has_stderr = said.size > 0;
	buffer_printf(
		&text, "cannot reach the workspace on \"%s\": ", remote->settings.transport.name);
	if (detail)
		buffer_append_string(&text, detail);
	if (has_stderr)
		buffer_printf(&text, "%s%.*s", detail ? "; " : "", (int)said.size,
			(const char *)said.data);
	if (!detail && !has_stderr)
		buffer_append_string(
			&text, error == -ENOTCONN    ? "the connection ended before the helper ran"
			       : error == -ETIMEDOUT ? "the helper there does not answer"
						     : strerror(-error));
	if (*line)
		buffer_printf(&text, " (it said first: \"%s\")", line);
	if (*advice) {
		buffer_append_string(&text, "; ");
		add_advice(&text, advice,
			remote->settings.inside ? remote->settings.target.name
						: remote->settings.transport.name);
	}
	*ret_reason = buffer_steal_string(&text);
	if (*ret_reason)
		mask_control_characters(*ret_reason);
}

char *remote_all_stderr(const char *stderr_text, const struct buffer *noise)
{
	size_t size = noise->size < STDERR_MAX_BYTES ? noise->size : STDERR_MAX_BYTES;
	char *all;

	if (asprintf(&all, "%s\n%.*s", stderr_text ? stderr_text : "", (int)size,
		    size ? (const char *)noise->data : "") < 0)
		return NULL;
	return all;
}

/* The first of the list whose words are there; NULL: none. */
static const struct end_advice *find_advice(const struct end *end, const char *stderr_text)
{
	const struct end_advice *known = end ? end->advice : NULL;

	while (known && known->words && !strstr(stderr_text, known->words))
		known++;
	return known && known->words ? known : NULL;
}

int remote_explain(const struct remote *remote, const char *stderr_text, const char *all, int error,
	const struct buffer *noise, char **ret_reason)
{
	static const uint8_t no_session[TOKEN_BYTES];
	const struct end *end = remote->settings.scheme->end;
	cleanup_free char *detail = *ret_reason;
	const struct end_advice *known;
	char line[NOISE_LINE_BYTES];
	const char *advice = "";
	int cause = error;
	bool is_first = memcmp(remote->session, no_session, TOKEN_BYTES) == 0;

	known = all ? find_advice(remote->settings.inside, all) : NULL;
	if (all && !known)
		known = find_advice(end, all);
	/* Of a socket, nothing but the error is known. */
	if (!known && remote->settings.transport.address && strerrordesc_np(-cause))
		known = find_advice(end, strerrordesc_np(-cause));
	if (known) {
		error = known->error;
		advice = known->advice;
	}
	first_line(noise, line, sizeof(line));
	if (cause == -EPIPE || cause == -EPROTO || cause == -ECANCELED) {
		error = error == cause ? -ENOTCONN : error;
		cause = -ENOTCONN;
	}
	if (!*advice && !detail && is_first && end->silent_advice &&
		(error == -ENOTCONN || error == -ETIMEDOUT))
		advice = end->silent_advice;
	remote_write_reason(remote, cause, detail, stderr_text, line, advice, ret_reason);
	return error;
}
