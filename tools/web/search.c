#include "tools/web/search.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/web/web_limits.h"

enum { KEYS_MAX_BYTES = 16384, MESSAGE_MAX_BYTES = 300 };

static const struct search_provider *const providers[] = {
	&search_tavily, &search_brave, &search_searxng, &search_exa, &search_duckduckgo};

/* ---- Configuration --------------------------------------------------------------------- */

/* Opens the file with keys, if it belongs to this user and others cannot read it. */
static FILE *open_keys(void)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;
	struct stat status;

	if (config && *config == '/')
		path = string_printf("%s/isthmus/keys", config);
	else if (home && *home == '/')
		path = string_printf("%s/.config/isthmus/keys", home);
	fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
		status.st_uid != geteuid() || (status.st_mode & 077) ||
		status.st_size > KEYS_MAX_BYTES)
		return NULL;
	return fdopen(steal_fd(&fd), "r");
}

/* The key, from the environment or the file; the caller frees it.  NULL: none. */
static char *find_key(const char *name)
{
	const char *value = getenv(name);
	cleanup_file FILE *keys = NULL;
	size_t length = strlen(name);
	char line[1024];

	if (value && *value)
		return strdup(value);
	keys = open_keys();
	while (keys && fgets(line, sizeof(line), keys)) {
		line[strcspn(line, " \t\r\n")] = '\0';
		if (strncmp(line, name, length) == 0 && line[length] == '=' && line[length + 1])
			return strdup(line + length + 1);
	}
	return NULL;
}

/* False if the key has characters that would end the header. */
static bool is_key(const char *key)
{
	for (; *key; key++)
		if (*key <= ' ' || *key > '~')
			return false;
	return true;
}

static const char *base_of(const struct search_provider *provider, bool *ret_own)
{
	const char *own = getenv(provider->url_name);

	*ret_own = own && *own;
	return *ret_own ? own : provider->url;
}

static const struct search_provider *pick(char **ret_key)
{
	for (size_t i = 0; i < array_size(providers); i++) {
		const struct search_provider *provider = providers[i];
		const char *on = provider->switch_name ? getenv(provider->switch_name) : "1";
		bool own;

		if (!on || !*on || strcmp(on, "0") == 0 || !base_of(provider, &own))
			continue;
		*ret_key = provider->key_name ? find_key(provider->key_name) : strdup("");
		if (*ret_key)
			return provider;
	}
	return NULL;
}

/* ---- Results ----------------------------------------------------------------------------- */

static uint32_t entity(const char *at, size_t *ret_length)
{
	static const struct {
		const char *name;
		uint32_t value;
	} names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'},
		{"&apos;", '\''}, {"&nbsp;", ' '}};
	char *end;
	unsigned long value;

	for (size_t i = 0; i < array_size(names); i++) {
		*ret_length = strlen(names[i].name);
		if (strncmp(at, names[i].name, *ret_length) == 0)
			return names[i].value;
	}
	if (at[1] != '#')
		return 0;
	value = at[2] == 'x' ? strtoul(at + 3, &end, 16) : strtoul(at + 2, &end, 10);
	*ret_length = (size_t)(end - at) + 1;
	return *end == ';' && value < 0x80 ? (uint32_t)value : 0;
}

/* Removes tags, decodes entities, collapses blanks, and bounds the length. */
static char *plain(const char *text)
{
	struct buffer out cleanup_buffer = {0};
	bool blank = false;
	int r = buffer_append_string(&out, "");

	for (; text && *text && r == 0 && out.size < SEARCH_SNIPPET_MAX_BYTES - 4; text++) {
		const char *tag = *text == '<' ? strchr(text, '>') : NULL;
		size_t length = 1;
		uint32_t decoded = *text == '&' ? entity(text, &length) : 0;
		char c = decoded ? (char)decoded : *text;

		if (tag && (strchr("/!", text[1]) || (text[1] >= 'a' && text[1] <= 'z'))) {
			text = tag;
			continue;
		}
		text += decoded ? length - 1 : 0;
		if (strchr(" \t\r\n", c)) {
			blank = true;
			continue;
		}
		if (blank && out.size)
			r = buffer_append_string(&out, " ");
		if (r == 0)
			r = buffer_append(&out, &c, 1);
		blank = false;
	}
	if (r == 0 && text && *text) {
		while (out.size && (out.data[out.size - 1] & 0xc0) == 0x80)
			out.size--;
		if (out.size && out.data[out.size - 1] >= 0xc0)
			out.size--;
		r = buffer_append_string(&out, "…");
	}
	return r < 0 ? NULL : buffer_steal_string(&out);
}

static bool is_there(const cJSON *sources, const char *url)
{
	size_t length = strcspn(url, "#");
	const cJSON *source;

	cJSON_ArrayForEach(source, sources) {
		const char *other = json_text(source, "url");

		if (other && strcspn(other, "#") == length && strncmp(url, other, length) == 0)
			return true;
	}
	return false;
}

int search_add(cJSON *sources, const char *title, const char *url, const char *snippet)
{
	cleanup_free char *snippet_text = NULL, *name = NULL;
	cJSON *source;

	if (!url || (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) ||
		is_there(sources, url) || cJSON_GetArraySize(sources) >= SEARCH_RESULTS_MAX)
		return 0;
	name = plain(title);
	snippet_text = plain(snippet);
	source = cJSON_CreateObject();
	if (!name || !snippet_text || !source) {
		cJSON_Delete(source);
		return -ENOMEM;
	}
	cJSON_AddStringToObject(source, "title", *name ? name : url);
	cJSON_AddStringToObject(source, "url", url);
	cJSON_AddStringToObject(source, "snippet", snippet_text);
	cJSON_AddItemToArray(sources, source);
	return 0;
}

/* ---- Failures ----------------------------------------------------------------------------- */

/* The provider's error message: {"detail": {"error": ...}} or {"message": ...}, else its text. */
static char *error_message(const struct fetch_response *response)
{
	struct buffer clean cleanup_buffer = {0};
	cleanup_free char *body = NULL;
	const char *message = NULL;
	cJSON *json, *detail;
	char *copy;

	if (utf8_append_clean(&clean, response->body.data, response->body.size) < 0)
		return NULL;
	body = buffer_steal_string(&clean);
	json = body ? cJSON_Parse(body) : NULL;
	detail = json_member(json, "detail");
	message = json_text(detail, "error");
	message = message ? message : json_text(json, "detail");
	message = message ? message : json_text(detail, "detail");
	message = message ? message : json_text(json, "message");
	message = message ? message : body;
	copy = plain(message);
	cJSON_Delete(json);
	return copy;
}

static int fail_status(struct tool_call *call, const struct search_provider *provider,
	const struct fetch_response *response)
{
	cleanup_free char *message = error_message(response);
	long status = response->status;
	const char *next = NULL;
	enum tool_error_code code = TOOL_IO_ERROR;

	if (status == 429 || status == 432 || status == 433 || status == 202) {
		code = TOOL_RATE_LIMITED;
		next = provider == &search_duckduckgo ? "Do not search again now. Ask the user to "
							"set TAVILY_API_KEY, or use "
							"webfetch with an address that you know."
						      : "Wait before you search again, or use "
							"webfetch with an address that "
							"you know.";
	} else if (provider == &search_searxng && status == 403) {
		code = TOOL_PERMISSION_DENIED;
		next = "Ask the user to enable the format json in the instance's settings.yml "
		       "(search: formats).";
	} else if (status == 401 || status == 403) {
		code = TOOL_PERMISSION_DENIED;
		next = "Ask the user to check the key of the search engine.";
	} else if (status == 400 || status == 422) {
		code = TOOL_INVALID_ARGUMENT;
		next = "Use a shorter or simpler query.";
	} else {
		next = "Call once more later, or use webfetch with an address that you know.";
	}
	return tool_fail(call, code, next, "%s answered with status %ld%s%s.", provider->name,
		status, message && *message ? ": " : "", message ? message : "");
}

static int fail_fetch(struct tool_call *call, const struct search_provider *provider, int error,
	const struct buffer *problem)
{
	enum tool_error_code code = error == -EFBIG       ? TOOL_TOO_LARGE
				    : error == -ETIMEDOUT ? TOOL_TIMEOUT
				    : error == -EACCES    ? TOOL_PERMISSION_DENIED
							  : TOOL_IO_ERROR;

	if (error == -ECANCELED || error == -ENOMEM)
		return tool_fail_errno(call, error, "search", NULL);
	return tool_fail(call, code,
		"Call once more later, or use webfetch with an address that you know.",
		"%s gave no answer: %.*s.", provider->name, (int)problem->size,
		(const char *)problem->data);
}

/* ---- The search --------------------------------------------------------------------------- */

static void ask_done(struct search_ask *ask)
{
	free(ask->url);
	free(ask->post);
	for (size_t i = 0; i < array_size(ask->headers); i++)
		free(ask->headers[i]);
}

static int read_answer(struct tool_call *call, const struct search_provider *provider,
	struct fetch_response *response, cJSON *sources)
{
	int r;

	if (response->status != 200)
		return fail_status(call, provider, response);
	r = provider->read(call, response, sources);
	if (r == -EBUSY) {
		response->status = 429;
		response->body.size = 0;
		return fail_status(call, provider, response);
	}
	if (r == -EPROTO)
		return tool_fail(call, TOOL_IO_ERROR,
			"Call once more later, or use webfetch with an address that you know.",
			"The answer of %s has an unknown format.", provider->name);
	return r < 0 ? tool_fail_errno(call, r, "search", NULL) : 0;
}

static int exchange(struct tool_call *call, const struct search_provider *provider,
	const struct search_ask *ask, bool own_url, int64_t timeout_ms, cJSON *sources)
{
	const char *const headers[] = {ask->headers[0], ask->headers[1], ask->headers[2], NULL};
	const struct fetch_request request = {
		.url = ask->url,
		.user_agent =
			provider->user_agent ? provider->user_agent : "isthmus/" ISTHMUS_VERSION,
		.headers = headers,
		.post = ask->post,
		.timeout_ms = timeout_ms,
		.any_address = own_url, /* allowed, as the user's environment names it */
		.cancel_fd = call->cancel_fd,
	};
	struct fetch_response response cleanup_response = {0};
	struct buffer problem cleanup_buffer = {0};
	int r;

	if (web_limit_enter(call, provider->name, "search") < 0)
		return -1;
	r = fetch(&request, &response, &problem);
	web_limit_leave();
	if (r < 0)
		return fail_fetch(call, provider, r, &problem);
	return read_answer(call, provider, &response, sources);
}

int search(struct tool_call *call, const char *query, int count, int64_t timeout_ms, cJSON *sources,
	const char **ret_provider)
{
	cleanup_free char *key = NULL, *base = NULL;
	const struct search_provider *provider = pick(&key);
	struct search_ask ask cleanup_with(ask_done) = {0};
	bool own_url = false;

	if (!provider)
		return tool_fail_errno(call, -ENOMEM, "search", NULL);
	if (!is_key(key))
		return tool_fail(call, TOOL_INVALID_ARGUMENT, "Ask the user to check the key.",
			"The key in %s has blanks or other characters that are not valid in a key.",
			provider->key_name);
	base = strdup(base_of(provider, &own_url));
	if (!base)
		return tool_fail_errno(call, -ENOMEM, "search", NULL);
	while (*base && base[strlen(base) - 1] == '/')
		base[strlen(base) - 1] = '\0';
	*ret_provider = provider->name;
	if (provider->ask(&ask, base, key, query, count) < 0 || !ask.url)
		return tool_fail_errno(call, -ENOMEM, "search", NULL);
	return exchange(call, provider, &ask, own_url, timeout_ms, sources);
}
