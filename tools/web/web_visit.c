#include "tools/web/web_visit.h"

#include <errno.h>
#include <string.h>

#include "ops/support/clock.h"
#include "tools/permission/permission.h"
#include "tools/web/address.h"
#include "tools/web/web_cache.h"
#include "tools/web/web_limits.h"

enum { REDIRECTS_MAX = 5 };

static const char browser[] =
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, "
	"like Gecko) Chrome/143.0.0.0 Safari/537.36";
static const char honest[] = "isthmus/" ISTHMUS_VERSION;

void web_visit_done(struct web_visit *visit)
{
	fetch_url_done(&visit->url);
	fetch_response_done(&visit->response);
}

/* ---- Permission ---------------------------------------------------------------------- */

/* Whether a rule of the user names exactly this host, so that private addresses and unusual ports
 * are allowed. */
static bool is_named(struct tool_call *call, const struct fetch_url *url)
{
	struct permissions *permissions = call->session->permissions;
	cleanup_free char *name = NULL;
	const char *host = strstr(url->origin, "://");
	size_t length = (size_t)(host - url->origin) + 3 + strlen(url->host);

	name = strndup(url->origin, length);
	return name && permissions &&
	       permissions_name(permissions, call->tool->name, url->text, name);
}

static int fail_refused(struct tool_call *call, const struct fetch_url *url, const char *why)
{
	cleanup_free char *next = string_printf(
		"Do not try another spelling of it. Ask the user to allow it with a rule in "
		"~/.config/isthmus/tools.json that names the host: {\"tool\": \"%s\", \"pattern\": "
		"\"%s/*\", \"action\": \"allow\"}.",
		call->tool->name, url->origin);

	return tool_fail(
		call, TOOL_PERMISSION_DENIED, next, "\"%s\" is not fetched: %s.", url->text, why);
}

/* Refuses what is known to be refused after the question, before it is asked.  Names are not looked
 * up: that needs the permission, too. */
static int check_target(struct tool_call *call, const struct fetch_url *url)
{
	if (is_named(call, url))
		return 0;
	if (url->low_port)
		return fail_refused(call, url,
			"ports below 1024 other than 80 and 443 need a rule that allows them");
	return address_host_is_private(url->host)
		       ? fail_refused(call, url,
				 "it is at an address of this machine or of a private network")
		       : 0;
}

int web_ask(struct tool_call *call, const struct fetch_url *url)
{
	cleanup_free char *literal = permission_literal(url->origin), *remember = NULL;
	cleanup_free char *sentence = string_printf("Fetch from the web: %s", url->text);
	struct permission_subject subject = {.text = url->text, .asks = true};

	subject.remember = remember = literal ? string_printf("%s/*", literal) : NULL;
	if (!remember || !sentence)
		return tool_fail_errno(call, -ENOMEM, "ask for permission", NULL);
	if (check_target(call, url) < 0)
		return -1;
	return permission_ask_all(call, TOOL_READ, &subject, 1, sentence, NULL);
}

/* ---- Redirects ----------------------------------------------------------------------------- */

static int fail_fetch(
	struct tool_call *call, const struct fetch_url *url, int error, struct buffer *problem)
{
	cleanup_free char *why = buffer_steal_string(problem);

	switch (error) {
	case -EACCES:
		return fail_refused(call, url, why);
	case -EFBIG:
		return tool_fail(call, TOOL_TOO_LARGE,
			"Look for a smaller page, or download it with bash: curl -o FILE URL.",
			"\"%s\" cannot be fetched: %s.", url->text, why);
	case -ETIMEDOUT:
		return tool_fail(
			call, TOOL_TIMEOUT, NULL, "\"%s\" gave no answer: %s.", url->text, why);
	case -ECANCELED:
	case -ENOMEM:
		return tool_fail_errno(call, error, "fetch", NULL);
	default:
		return tool_fail(call, TOOL_IO_ERROR,
			"Check the URL, or look for another source; call once more only if it "
			"may be a passing failure.",
			"\"%s\" cannot be fetched: %s.", url->text, why);
	}
}

static int exchange(
	struct tool_call *call, struct web_visit *visit, const char *user_agent, int64_t end_ms)
{
	const char *const headers[] = {visit->accept, "Accept-Language: en-US,en;q=0.9", NULL};
	struct buffer problem cleanup_buffer = {0};
	struct fetch_request request = {
		.url = visit->url.text,
		.user_agent = user_agent,
		.headers = headers,
		.timeout_ms = end_ms - clock_now_ms(),
		.any_address = is_named(call, &visit->url),
		.cancel_fd = call->cancel_fd,
	};
	int r;

	if (request.timeout_ms <= 0)
		return tool_fail(call, TOOL_TIMEOUT, NULL,
			"The redirects of the page took %g s in all.",
			(double)visit->timeout_ms / 1000);
	if (web_limit_enter(call, visit->url.host, "fetch") < 0)
		return -1;
	fetch_response_done(&visit->response);
	r = fetch(&request, &visit->response, &problem);
	web_limit_leave();
	return r < 0 ? fail_fetch(call, &visit->url, r, &problem) : 0;
}

/* Whether a redirect may be followed.  Asks for another origin as for a new page; within the same
 * origin only rules that deny count. */
static int may_follow(
	struct tool_call *call, const struct web_visit *visit, const struct fetch_url *to)
{
	struct permissions *permissions = call->session->permissions;

	if (strcmp(visit->url.origin, to->origin) != 0)
		return web_ask(call, to);
	if (permissions && permissions_verdict(permissions, call->tool->name, TOOL_READ,
				   to->text) == PERMISSION_DENY)
		return tool_fail(call, TOOL_PERMISSION_DENIED, NULL,
			"A rule denies %s for \"%s\", to which \"%s\" redirects.", call->tool->name,
			to->text, visit->url.text);
	return 0;
}

static int follow(struct tool_call *call, struct web_visit *visit)
{
	struct fetch_url to cleanup_url = {0};
	struct buffer problem cleanup_buffer = {0};
	int r = fetch_url_parse(visit->response.redirect, &to, &problem);

	if (r == -ENOMEM)
		return tool_fail_errno(call, r, "fetch", NULL);
	if (r < 0)
		return tool_fail(call, TOOL_IO_ERROR, "Look for another source.",
			"\"%s\" redirects to \"%s\", which is not followed: %.*s.", visit->url.text,
			visit->response.redirect, (int)problem.size, (const char *)problem.data);
	if (may_follow(call, visit, &to) < 0)
		return -1;
	fetch_url_done(&visit->url);
	visit->url = to;
	to = (struct fetch_url){0};
	return 0;
}

static bool is_redirect(const struct fetch_response *response)
{
	return response->redirect && response->status >= 300 && response->status < 400;
}

static int walk(struct tool_call *call, struct web_visit *visit)
{
	int64_t end_ms = clock_now_ms() + visit->timeout_ms;
	const char *user_agent = browser;

	for (int redirects = 0;; redirects++) {
		if (exchange(call, visit, user_agent, end_ms) < 0)
			return -1;
		if (visit->response.challenge && visit->response.status == 403 &&
			user_agent == browser) {
			user_agent = honest;
			redirects--;
			continue;
		}
		if (!is_redirect(&visit->response))
			return 0;
		if (redirects == REDIRECTS_MAX)
			return tool_fail(call, TOOL_IO_ERROR,
				"Check the URL, or look for another source.",
				"\"%s\" redirects once more after %d redirects.", visit->url.text,
				REDIRECTS_MAX);
		if (follow(call, visit) < 0)
			return -1;
	}
}

/* ---- The cache ---------------------------------------------------------------------------------
 */

static int take_kept(struct tool_call *call, struct web_visit *visit)
{
	struct fetch_url final cleanup_url = {0};
	struct buffer problem cleanup_buffer = {0};
	cleanup_free char *final_url = NULL;

	if (visit->refresh ||
		web_cache_find(visit->url.text, visit->accept, &visit->response, &final_url) < 0 ||
		fetch_url_parse(final_url, &final, &problem) < 0)
		return 0;
	if (may_follow(call, visit, &final) < 0)
		return -1;
	fetch_url_done(&visit->url);
	visit->url = final;
	final = (struct fetch_url){0};
	visit->cached = true;
	return 0;
}

int web_visit(struct tool_call *call, struct web_visit *visit)
{
	cleanup_free char *first = strdup(visit->url.text);

	if (!first)
		return tool_fail_errno(call, -ENOMEM, "fetch", NULL);
	if (take_kept(call, visit) < 0)
		return -1;
	if (visit->cached)
		return 0;
	fetch_response_done(&visit->response);
	if (walk(call, visit) < 0)
		return -1;
	if (visit->response.status == 200)
		web_cache_add(first, visit->accept, &visit->response, visit->url.text);
	return 0;
}
