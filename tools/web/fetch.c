#include "tools/web/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "tools/web/address.h"
#include "tools/web/libraries.h"

enum { CONNECT_MS = 10000, SLOW_SECONDS = 20 };

struct transfer {
	const struct fetch_request *request;
	struct fetch_response *response;
	CURL *easy;
	CURLM *multi;
	struct curl_slist *headers;
	struct addrinfo *proxy; /* addresses of the proxy; NULL: none */
	size_t header_bytes;
	bool refused;   /* an address was not public */
	bool too_large; /* the body or the headers are */
	char message[CURL_ERROR_SIZE];
};

void fetch_response_done(struct fetch_response *response)
{
	free(response->content_type);
	free(response->redirect);
	buffer_done(&response->body);
	*response = (struct fetch_response){0};
}

/* ---- Callbacks of curl ------------------------------------------------------------ */

static bool is_proxy(const struct transfer *transfer, const struct curl_sockaddr *address)
{
	for (const struct addrinfo *at = transfer->proxy; at; at = at->ai_next)
		if (at->ai_family == address->family && at->ai_addrlen == address->addrlen &&
			memcmp(at->ai_addr, &address->addr, at->ai_addrlen) == 0)
			return true;
	return false;
}

/* Called before each connect, with the resolved address: checks it. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct transfer *transfer = user;

	(void)purpose;
	if (!transfer->request->any_address && !address_is_public(&address->addr) &&
		!is_proxy(transfer, address)) {
		transfer->refused = true;
		return CURL_SOCKET_BAD;
	}
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static bool header_is(const char *line, size_t size, const char *name, const char *value)
{
	size_t length = strlen(name);
	cleanup_free char *rest = NULL;

	if (size <= length || strncasecmp(line, name, length) != 0 || line[length] != ':')
		return false;
	rest = strndup(line + length + 1, size - length - 1);
	return rest && strcasestr(rest, value);
}

static size_t take_header(char *line, size_t unit, size_t count, void *user)
{
	struct transfer *transfer = user;
	struct fetch_response *response = transfer->response;
	size_t size = unit * count;

	transfer->header_bytes += size;
	if (transfer->header_bytes > FETCH_HEADERS_MAX_BYTES) {
		transfer->too_large = true;
		return 0;
	}
	if (header_is(line, size, "cache-control", "no-store"))
		response->no_store = true;
	if (header_is(line, size, "cf-mitigated", "challenge"))
		response->challenge = true;
	return size;
}

static size_t take_body(char *bytes, size_t unit, size_t count, void *user)
{
	struct transfer *transfer = user;
	struct buffer *body = &transfer->response->body;
	size_t size = unit * count;

	if (body->size + size > FETCH_MAX_BYTES) {
		transfer->too_large = true;
		return 0;
	}
	return buffer_append(body, bytes, size) < 0 ? 0 : size;
}

/* ---- Proxies ---------------------------------------------------------------------- */

static const char *proxy_of(const char *url)
{
	bool secure = strncmp(url, "https:", 6) == 0;
	/* Not HTTP_PROXY: in a CGI program that is a header of the request. */
	const char *const names[] = {secure ? "https_proxy" : "http_proxy",
		secure ? "HTTPS_PROXY" : "", "all_proxy", "ALL_PROXY"};

	for (size_t i = 0; i < array_size(names); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return value;
	}
	return NULL;
}

static struct addrinfo *resolve(const char *url, const char *default_port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char *host = NULL, *port = NULL;
	CURLU *parts = curl_url();

	if (parts &&
		curl_url_set(parts, CURLUPART_URL, url,
			CURLU_DEFAULT_SCHEME | CURLU_NON_SUPPORT_SCHEME) == 0 &&
		curl_url_get(parts, CURLUPART_HOST, &host, 0) == 0) {
		size_t length = strlen(host);

		curl_url_get(parts, CURLUPART_PORT, &port, 0);
		if (length > 2 && host[0] == '[') {
			host[length - 1] = '\0';
			memmove(host, host + 1, length - 1);
		}
		if (getaddrinfo(host, port ? port : default_port, &hints, &found) != 0)
			found = NULL;
	}
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(parts);
	return found;
}

/* Checks the addresses of the target if there is a proxy, as the connect then shows the proxy's
 * address only.  A name that cannot be resolved here is left to the proxy; numeric addresses always
 * can. */
static void look_at_proxy(struct transfer *transfer)
{
	const struct fetch_request *request = transfer->request;
	const char *proxy = proxy_of(request->url);
	struct addrinfo *target;

	if (!proxy)
		return;
	transfer->proxy = resolve(proxy, "1080");
	if (request->any_address)
		return;
	target = resolve(request->url, "80");
	for (const struct addrinfo *at = target; at; at = at->ai_next)
		if (!address_is_public(at->ai_addr))
			transfer->refused = true;
	if (target)
		freeaddrinfo(target);
}

/* ---- The exchange ----------------------------------------------------------------- */

static void start_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int add_headers(struct transfer *transfer)
{
	const char *const *headers = transfer->request->headers;

	for (size_t i = 0; headers && headers[i]; i++) {
		struct curl_slist *grown = curl_slist_append(transfer->headers, headers[i]);

		if (!grown)
			return -ENOMEM;
		transfer->headers = grown;
	}
	curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
	return 0;
}

static void set_options(struct transfer *transfer)
{
	const struct fetch_request *request = transfer->request;
	CURL *easy = transfer->easy;

	curl_easy_setopt(easy, CURLOPT_URL, request->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
	curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, request->user_agent);
	curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "");
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)SLOW_SECONDS);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->message);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
	if (request->post)
		curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request->post);
}

/* Runs the exchange.  0 with the result in `*ret_code`, or -ECANCELED. */
static int run(struct transfer *transfer, CURLcode *ret_code)
{
	struct curl_waitfd cancel = {
		.fd = transfer->request->cancel_fd, .events = CURL_WAIT_POLLIN};
	unsigned extra = cancel.fd >= 0;
	int running = 1, left;
	CURLMsg *message;

	while (running) {
		if (curl_multi_perform(transfer->multi, &running))
			return -ENOMEM;
		if (running && curl_multi_poll(transfer->multi, &cancel, extra, 1000, NULL))
			return -ENOMEM;
		if (cancel.revents)
			return -ECANCELED;
	}
	*ret_code = CURLE_OUT_OF_MEMORY;
	while ((message = curl_multi_info_read(transfer->multi, &left)))
		if (message->msg == CURLMSG_DONE)
			*ret_code = message->data.result;
	return 0;
}

static int fail(const struct transfer *transfer, CURLcode code, struct buffer *problem)
{
	if (transfer->too_large) {
		buffer_printf(problem, "it is larger than the limit of %s",
			transfer->header_bytes > FETCH_HEADERS_MAX_BYTES ? "64 KB of headers"
									 : "5 MB");
		return -EFBIG;
	}
	/* Even if another address was tried afterwards: the exchange has failed. */
	if (transfer->refused) {
		buffer_append_string(problem, "it is at an address of this machine or of a private "
					      "network");
		return -EACCES;
	}
	buffer_append_string(
		problem, *transfer->message ? transfer->message : curl_easy_strerror(code));
	switch (code) {
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	default:
		return -EPROTO;
	}
}

static int take_facts(struct transfer *transfer)
{
	struct fetch_response *response = transfer->response;
	const char *type = NULL, *redirect = NULL;

	curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &response->status);
	curl_easy_getinfo(transfer->easy, CURLINFO_CONTENT_TYPE, &type);
	curl_easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &redirect);
	response->content_type = type ? strdup(type) : NULL;
	response->redirect = redirect ? strdup(redirect) : NULL;
	return (type && !response->content_type) || (redirect && !response->redirect) ? -ENOMEM : 0;
}

static int exchange(struct transfer *transfer, struct buffer *problem)
{
	CURLcode code = CURLE_OK;
	int r;

	transfer->easy = curl_easy_init();
	transfer->multi = curl_multi_init();
	if (!transfer->easy || !transfer->multi || add_headers(transfer) < 0)
		return -ENOMEM;
	set_options(transfer);
	look_at_proxy(transfer);
	if (transfer->refused)
		return fail(transfer, CURLE_OK, problem);
	if (curl_multi_add_handle(transfer->multi, transfer->easy))
		return -ENOMEM;
	r = run(transfer, &code);
	if (r == 0)
		r = code ? fail(transfer, code, problem) : take_facts(transfer);
	curl_multi_remove_handle(transfer->multi, transfer->easy);
	return r;
}

int fetch(const struct fetch_request *request, struct fetch_response *ret_response,
	struct buffer *problem)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fetch_response response cleanup_response = {0};
	struct transfer transfer = {.request = request, .response = &response};
	int r;

	r = web_load(problem);
	if (r < 0)
		return r;
	pthread_once(&once, start_curl);
	r = exchange(&transfer, problem);
	curl_easy_cleanup(transfer.easy);
	curl_multi_cleanup(transfer.multi);
	curl_slist_free_all(transfer.headers);
	if (transfer.proxy)
		freeaddrinfo(transfer.proxy);
	if (r < 0)
		return r;
	*ret_response = response;
	response = (struct fetch_response){0};
	return 0;
}
