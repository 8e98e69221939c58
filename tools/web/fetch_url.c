/* The URLs of tools/web/fetch.h. */
#include <errno.h>
#include <string.h>

#include "tools/web/fetch.h"
#include "tools/web/libraries.h"

enum { URL_MAX_BYTES = 8192 };

void fetch_url_done(struct fetch_url *url)
{
	free(url->text);
	free(url->origin);
	free(url->host);
}

static char *part(CURLU *url, CURLUPart what, unsigned flags)
{
	char *text = NULL, *copy;

	if (curl_url_get(url, what, &text, flags))
		return NULL;
	copy = strdup(text);
	curl_free(text);
	return copy;
}

static int describe(CURLU *url, struct fetch_url *ret_url)
{
	cleanup_free char *scheme = part(url, CURLUPART_SCHEME, 0);
	cleanup_free char *port = part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
	long number = port ? strtol(port, NULL, 10) : 0;
	bool usual;

	if (!scheme || !port || number <= 0)
		return -EINVAL;
	usual = number == (strcmp(scheme, "https") == 0 ? 443 : 80);
	/* Canonical: without the default port and the fragment, with "/" as the empty path. */
	if (usual)
		curl_url_set(url, CURLUPART_PORT, NULL, 0);
	curl_url_set(url, CURLUPART_FRAGMENT, NULL, 0);
	ret_url->text = part(url, CURLUPART_URL, 0);
	ret_url->host = part(url, CURLUPART_HOST, 0);
	if (!ret_url->text || !ret_url->host)
		return -ENOMEM;
	for (char *at = ret_url->host; *at; at++)
		if (*at >= 'A' && *at <= 'Z')
			*at = (char)(*at + 32);
	/* curl keeps the case of the host; replace it by lower case. */
	memcpy(ret_url->text + strlen(scheme) + 3, ret_url->host, strlen(ret_url->host));
	ret_url->origin = string_printf(
		"%s://%s%s%s", scheme, ret_url->host, usual ? "" : ":", usual ? "" : port);
	ret_url->low_port = number < 1024 && number != 80 && number != 443;
	return ret_url->origin ? 0 : -ENOMEM;
}

static int check(CURLU *url, struct buffer *problem)
{
	cleanup_free char *scheme = part(url, CURLUPART_SCHEME, 0);
	cleanup_free char *user = part(url, CURLUPART_USER, 0);

	if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
		buffer_append_string(problem, "only http and https URLs can be fetched");
		return -EINVAL;
	}
	if (user) {
		buffer_append_string(problem,
			"a URL with a user name in it is not fetched, as what "
			"stands before the \"@\" can look like the host");
		return -EINVAL;
	}
	return 0;
}

int fetch_url_parse(const char *text, struct fetch_url *ret_url, struct buffer *problem)
{
	struct fetch_url parsed cleanup_url = {0};
	CURLUcode code;
	CURLU *url;
	int r;

	r = web_load(problem);
	if (r < 0)
		return r;
	url = curl_url();
	if (!url)
		return -ENOMEM;
	/* Accept all schemes here; check() refuses those other than http and https. */
	code = strlen(text) > URL_MAX_BYTES ? CURLUE_BAD_PORT_NUMBER
					    : curl_url_set(url, CURLUPART_URL, text,
						      CURLU_NON_SUPPORT_SCHEME | CURLU_URLENCODE);
	if (code && strlen(text) <= URL_MAX_BYTES)
		buffer_printf(problem, "it is not a URL: %s", curl_url_strerror(code));
	else if (code)
		buffer_printf(problem, "it is longer than %d bytes", URL_MAX_BYTES);
	r = code ? -EINVAL : check(url, problem);
	if (r == 0) {
		r = describe(url, &parsed);
		if (r == -EINVAL)
			buffer_append_string(problem, "it is not a URL with a host");
	}
	curl_url_cleanup(url);
	if (r < 0)
		return r;
	*ret_url = parsed;
	parsed = (struct fetch_url){0};
	return 0;
}
