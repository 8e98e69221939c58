/* The providers of tools/web/search.h. */
#include <errno.h>
#include <string.h>

#include "ops/support/json.h"
#include "ops/support/utf8.h"
#include "tools/web/page.h"
#include "tools/text/text.h"
#include "tools/web/search.h"

/* The caller deletes the result.  NULL: the response is not JSON. */
static cJSON *parse(const struct fetch_response *response)
{
	struct buffer clean cleanup_buffer = {0};

	if (utf8_append_clean(&clean, response->body.data, response->body.size) < 0)
		return NULL;
	return cJSON_ParseWithLength((const char *)clean.data, clean.size);
}

/* Adds each item of a list, with "title", "url" and the member `snippet`. */
static int read_list(const cJSON *list, const char *snippet, cJSON *sources)
{
	const cJSON *item;
	int r = 0;

	cJSON_ArrayForEach(item, list) {
		if (r == 0)
			r = search_add(sources, json_text(item, "title"), json_text(item, "url"),
				json_text(item, snippet));
	}
	return r;
}

/* ---- Tavily ----------------------------------------------------------------------------- */

static int ask_tavily(
	struct search_ask *ask, const char *base, const char *key, const char *query, int count)
{
	cJSON *body = cJSON_CreateObject();

	cJSON_AddStringToObject(body, "query", query);
	cJSON_AddNumberToObject(body, "max_results", count);
	ask->url = string_printf("%s/search", base);
	ask->post = cJSON_PrintUnformatted(body);
	cJSON_Delete(body);
	ask->headers[0] = string_printf("Authorization: Bearer %s", key);
	ask->headers[1] = strdup("Content-Type: application/json");
	return ask->post && ask->headers[0] && ask->headers[1] ? 0 : -ENOMEM;
}

static int read_tavily(struct tool_call *call, struct fetch_response *response, cJSON *sources)
{
	cJSON *json = parse(response);
	const cJSON *results = json_member(json, "results");
	int r = cJSON_IsArray(results) ? read_list(results, "content", sources) : -EPROTO;

	(void)call;
	cJSON_Delete(json);
	return r;
}

const struct search_provider search_tavily = {
	.name = "Tavily",
	.key_name = "TAVILY_API_KEY",
	.url_name = "ISTHMUS_TAVILY_URL",
	.url = "https://api.tavily.com",
	.ask = ask_tavily,
	.read = read_tavily,
};

/* ---- Brave -------------------------------------------------------------------------------- */

static int ask_brave(
	struct search_ask *ask, const char *base, const char *key, const char *query, int count)
{
	cleanup_free char *encoded = text_percent_encode(query, "");

	if (!encoded)
		return -ENOMEM;
	ask->url = string_printf("%s/res/v1/web/search?q=%s&count=%d", base, encoded, count);
	ask->headers[0] = string_printf("X-Subscription-Token: %s", key);
	ask->headers[1] = strdup("Accept: application/json");
	return ask->headers[0] && ask->headers[1] ? 0 : -ENOMEM;
}

static int read_brave(struct tool_call *call, struct fetch_response *response, cJSON *sources)
{
	cJSON *json = parse(response);
	const cJSON *web = json_member(json, "web"), *results = json_member(web, "results");
	/* A response without results has no "web". */
	int r = cJSON_IsObject(json) && (!web || cJSON_IsArray(results)) ? 0 : -EPROTO;

	(void)call;
	if (r == 0)
		r = read_list(results, "description", sources);
	cJSON_Delete(json);
	return r;
}

const struct search_provider search_brave = {
	.name = "Brave",
	.key_name = "BRAVE_API_KEY",
	.url_name = "ISTHMUS_BRAVE_URL",
	.url = "https://api.search.brave.com",
	.ask = ask_brave,
	.read = read_brave,
};

/* ---- SearXNG -------------------------------------------------------------------------------- */

static int ask_searxng(
	struct search_ask *ask, const char *base, const char *key, const char *query, int count)
{
	cleanup_free char *encoded = text_percent_encode(query, "");

	(void)key;
	(void)count;
	ask->url = encoded ? string_printf("%s/search?q=%s&format=json&pageno=1", base, encoded)
			   : NULL;
	ask->headers[0] = strdup("Accept: application/json");
	return ask->url && ask->headers[0] ? 0 : -ENOMEM;
}

const struct search_provider search_searxng = {
	.name = "SearXNG",
	.url_name = "ISTHMUS_SEARXNG_URL",
	.ask = ask_searxng,
	.read = read_tavily, /* the same members */
};

/* ---- Exa ------------------------------------------------------------------------------------ */

static int ask_exa(
	struct search_ask *ask, const char *base, const char *key, const char *query, int count)
{
	cJSON *body = cJSON_CreateObject(), *params, *arguments;

	(void)key;
	cJSON_AddStringToObject(body, "jsonrpc", "2.0");
	cJSON_AddNumberToObject(body, "id", 1);
	cJSON_AddStringToObject(body, "method", "tools/call");
	params = cJSON_AddObjectToObject(body, "params");
	cJSON_AddStringToObject(params, "name", "web_search_exa");
	arguments = cJSON_AddObjectToObject(params, "arguments");
	cJSON_AddStringToObject(arguments, "query", query);
	cJSON_AddNumberToObject(arguments, "numResults", count);
	cJSON_AddNumberToObject(arguments, "contextMaxCharacters", 10000);
	ask->url = string_printf("%s/mcp", base);
	ask->post = cJSON_PrintUnformatted(body);
	cJSON_Delete(body);
	ask->headers[0] = strdup("Content-Type: application/json");
	ask->headers[1] = strdup("Accept: application/json, text/event-stream");
	return ask->post && ask->headers[0] && ask->headers[1] ? 0 : -ENOMEM;
}

/* Parses JSON, or a server-sent event whose data is JSON. */
static cJSON *parse_event(const struct fetch_response *response)
{
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *copy = NULL;
	const char *at;

	if (utf8_append_clean(&text, response->body.data, response->body.size) < 0)
		return NULL;
	copy = buffer_steal_string(&text);
	at = copy ? copy : "";
	while (at && strncmp(at, "data:", 5) != 0 && *at != '{') {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	return at ? cJSON_Parse(*at == '{' ? at : at + 5) : NULL;
}

/* Adds results from blocks of "Title:", "URL:" and lines of text. */
static int read_blocks(char *text, cJSON *sources)
{
	char *title = NULL, *url = NULL, *rest = NULL, *snippet = NULL, *line;
	int r = 0;

	for (line = strtok_r(text, "\n", &rest); line && r == 0;
		line = strtok_r(NULL, "\n", &rest)) {
		if (strncmp(line, "Title: ", 7) == 0) {
			r = url ? search_add(sources, title, url, snippet) : 0;
			title = line + 7;
			url = snippet = NULL;
		} else if (strncmp(line, "URL: ", 5) == 0) {
			url = line + 5;
		} else if (strncmp(line, "Text: ", 6) == 0) {
			snippet = line + 6;
		} else if (url && !snippet && !strstr(line, ": ")) {
			snippet = line;
		}
	}
	return r == 0 && url ? search_add(sources, title, url, snippet) : r;
}

static int read_exa(struct tool_call *call, struct fetch_response *response, cJSON *sources)
{
	cJSON *json = parse_event(response);
	const cJSON *content = json_member(json_member(json, "result"), "content");
	const char *text = json_text(cJSON_GetArrayItem(content, 0), "text");
	cleanup_free char *copy = text ? strdup(text) : NULL;
	int r = !text ? -EPROTO : !copy ? -ENOMEM : read_blocks(copy, sources);

	/* Unknown format: the text is the answer. */
	if (r == 0 && cJSON_GetArraySize(sources) == 0 && *text)
		tool_text(call, "%.10000s\n", text);
	cJSON_Delete(json);
	return r;
}

const struct search_provider search_exa = {
	.name = "Exa",
	.switch_name = "ISTHMUS_EXA",
	.url_name = "ISTHMUS_EXA_URL",
	.url = "https://mcp.exa.ai",
	.ask = ask_exa,
	.read = read_exa,
};

/* ---- DuckDuckGo ------------------------------------------------------------------------------ */

static int ask_duckduckgo(
	struct search_ask *ask, const char *base, const char *key, const char *query, int count)
{
	cleanup_free char *encoded = text_percent_encode(query, "");

	(void)key;
	(void)count;
	ask->url = string_printf("%s/html/", base);
	ask->post = encoded ? string_printf("q=%s", encoded) : NULL;
	ask->headers[0] = strdup("Content-Type: application/x-www-form-urlencoded");
	return ask->post && ask->headers[0] ? 0 : -ENOMEM;
}

/* The page is untrusted HTML: a limited child extracts the results. */
static int read_duckduckgo(struct tool_call *call, struct fetch_response *response, cJSON *sources)
{
	const struct page_request request = {
		.text = (const char *)response->body.data,
		.size = response->body.size,
		.kind = PAGE_RESULTS,
		.base = "https://html.duckduckgo.com/html/",
	};
	struct page_result page cleanup_page = {0};
	cJSON *list;
	int r;

	if (memmem(response->body.data, response->body.size, "anomaly-modal", 13))
		return -EBUSY;
	r = page_convert_apart(&request, response->content_type, call->cancel_fd, &page);
	if (r < 0)
		return r == -ECANCELED || r == -ENOMEM ? r : -EPROTO;
	list = cJSON_ParseWithLength((const char *)page.text.data, page.text.size);
	r = cJSON_IsArray(list) ? read_list(list, "snippet", sources) : -EPROTO;
	cJSON_Delete(list);
	return r;
}

const struct search_provider search_duckduckgo = {
	.name = "DuckDuckGo",
	.url_name = "ISTHMUS_DUCKDUCKGO_URL",
	.url = "https://html.duckduckgo.com",
	.user_agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
	.ask = ask_duckduckgo,
	.read = read_duckduckgo,
};
