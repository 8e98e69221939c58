/*
 * tools/web/fetch.h - one HTTP exchange, with public addresses only.
 *
 * The address is checked right before the connect, after the name was resolved, so that no name,
 * notation of an address or redirect can bypass the check.  With a proxy (from the environment) the
 * target is resolved and checked here as well; the proxy may resolve it differently.  Redirects are
 * not followed; each exchange has its own connection.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/support/buffer.h"

enum { FETCH_MAX_BYTES = 5 << 20, FETCH_HEADERS_MAX_BYTES = 64 << 10 };

struct fetch_request {
	const char *url;
	const char *user_agent;
	const char *const *headers; /* "Name: value", NULL-terminated; may be NULL */
	const char *post;           /* the body of a POST; NULL: GET */
	int64_t timeout_ms;         /* for the whole exchange */
	bool any_address;           /* the user allowed exactly this host: skip the address check */
	int cancel_fd;              /* becomes readable when the caller cancels; -1: never */
};

struct fetch_response {
	long status;
	char *content_type; /* with its parameters; NULL: none */
	char *redirect;     /* absolute; NULL: none */
	bool no_store;
	bool challenge;     /* Cloudflare asks for a browser */
	struct buffer body; /* decompressed */
};

void fetch_response_done(struct fetch_response *response);
#define cleanup_response cleanup_with(fetch_response_done)

/* 0 with any HTTP status; or -errno with a sentence without its full stop in `problem`:
 * -EACCES: the address is not public; -EFBIG: the body or the headers are too large; -ETIMEDOUT;
 * -ECANCELED; -EHOSTUNREACH: no connection; -EPROTO: error of TLS or HTTP; -ENOMEM. */
int fetch(const struct fetch_request *request, struct fetch_response *ret_response,
	struct buffer *problem);

/* ---- URLs ------------------------------------------------------------------------- */

struct fetch_url {
	char *text;    /* the canonical form, which rules match */
	char *origin;  /* scheme://host[:port] */
	char *host;    /* in lower case */
	bool low_port; /* below 1024 and neither 80 nor 443 */
};

void fetch_url_done(struct fetch_url *url);
#define cleanup_url cleanup_with(fetch_url_done)

/* Parses a URL.  0, or -EINVAL with a sentence without its full stop in `problem`; -ENOMEM. */
int fetch_url_parse(const char *text, struct fetch_url *ret_url, struct buffer *problem);
