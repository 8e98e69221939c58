/*
 * tools/web/fetch.h - one HTTP exchange, which reaches public addresses only.
 *
 * The address is checked when it is about to be connected, after the name was resolved: what a
 * name, a literal in any notation or a redirect leads to cannot get around that.  Through a proxy
 * (from the environment) the target is resolved and checked here; what the proxy then resolves is
 * its own affair.  No redirect is followed here; each exchange has its own connection.
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
	int64_t timeout_ms;         /* of the whole */
	bool any_address;           /* the user allowed this very place: private ones, too */
	int cancel_fd;              /* readable once cancelled; -1: never */
};

struct fetch_response {
	long status;
	char *content_type; /* with its parameters; NULL: none */
	char *redirect;     /* absolute; NULL: none */
	bool no_store;
	bool challenge;     /* Cloudflare wants to see a browser */
	struct buffer body; /* decompressed */
};

void fetch_response_done(struct fetch_response *response);
#define cleanup_response cleanup_with(fetch_response_done)

/* 0, whatever the status is; or -errno with a sentence without its full stop in `problem`:
 * -EACCES: the address is refused; -EFBIG: the body or the headers are too large; -ETIMEDOUT;
 * -ECANCELED; -EHOSTUNREACH: no connection; -EPROTO: TLS or HTTP went wrong; -ENOMEM. */
int fetch(const struct fetch_request *request, struct fetch_response *ret_response,
	struct buffer *problem);

/* ---- URLs ------------------------------------------------------------------------- */

struct fetch_url {
	char *text;    /* canonical: what rules match */
	char *origin;  /* scheme://host[:port] */
	char *host;    /* in lower case */
	bool low_port; /* below 1024 and neither 80 nor 443 */
};

void fetch_url_done(struct fetch_url *url);
#define cleanup_url cleanup_with(fetch_url_done)

/* Parses a URL.  0, or -EINVAL with a sentence without its full stop in `problem`; -ENOMEM. */
int fetch_url_parse(const char *text, struct fetch_url *ret_url, struct buffer *problem);
