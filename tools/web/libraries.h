/*
 * tools/web/libraries.h - libcurl and libxml2, loaded on first use.
 *
 * With their dependencies (TLS, Kerberos, LDAP, ICU) they take several times as long to load as the
 * rest of isthmus-tools, and most commands fetch no page.  Include this file instead of curl/curl.h
 * and the headers of libxml; it defines their functions by their usual names.
 * Threads: any.
 */
#pragma once

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <libxml/HTMLparser.h>
#include <libxml/parser.h>
#include <libxml/uri.h>

#include "ops/support/buffer.h"

#define CURL_FUNCTIONS(X)           \
	X(curl_easy_cleanup)        \
	X(curl_easy_getinfo)        \
	X(curl_easy_init)           \
	X(curl_easy_setopt)         \
	X(curl_easy_strerror)       \
	X(curl_free)                \
	X(curl_global_init)         \
	X(curl_multi_add_handle)    \
	X(curl_multi_cleanup)       \
	X(curl_multi_info_read)     \
	X(curl_multi_init)          \
	X(curl_multi_perform)       \
	X(curl_multi_poll)          \
	X(curl_multi_remove_handle) \
	X(curl_slist_append)        \
	X(curl_slist_free_all)      \
	X(curl_url)                 \
	X(curl_url_cleanup)         \
	X(curl_url_get)             \
	X(curl_url_set)             \
	X(curl_url_strerror)

#define XML_FUNCTIONS(X)        \
	X(htmlCtxtReadMemory)   \
	X(htmlFreeParserCtxt)   \
	X(htmlNewParserCtxt)    \
	X(xmlBuildURI)          \
	X(xmlDocGetRootElement) \
	X(xmlFreeDoc)           \
	X(xmlGetProp)           \
	X(xmlNodeGetContent)    \
	X(xmlReadMemory)

struct curl_library {
#define X(name) __typeof__(name) *name;
	CURL_FUNCTIONS(X)
#undef X
};

struct xml_library {
#define X(name) __typeof__(name) *name;
	XML_FUNCTIONS(X)
#undef X
	xmlFreeFunc *free;
};

/* Load both libraries, or libxml2 alone.  0, or -ELIBACC; `problem` (may be NULL) says what is
 * missing and what to do. */
int web_load(struct buffer *problem);
int web_load_xml(struct buffer *problem);

/* Valid after the library was loaded. */
extern struct curl_library curl_library;
extern struct xml_library xml_library;

#ifndef WEB_LIBRARIES_THEMSELVES
#undef curl_easy_setopt
#undef curl_easy_getinfo
#define curl_easy_cleanup        curl_library.curl_easy_cleanup
#define curl_easy_getinfo        curl_library.curl_easy_getinfo
#define curl_easy_init           curl_library.curl_easy_init
#define curl_easy_setopt         curl_library.curl_easy_setopt
#define curl_easy_strerror       curl_library.curl_easy_strerror
#define curl_free                curl_library.curl_free
#define curl_global_init         curl_library.curl_global_init
#define curl_multi_add_handle    curl_library.curl_multi_add_handle
#define curl_multi_cleanup       curl_library.curl_multi_cleanup
#define curl_multi_info_read     curl_library.curl_multi_info_read
#define curl_multi_init          curl_library.curl_multi_init
#define curl_multi_perform       curl_library.curl_multi_perform
#define curl_multi_poll          curl_library.curl_multi_poll
#define curl_multi_remove_handle curl_library.curl_multi_remove_handle
#define curl_slist_append        curl_library.curl_slist_append
#define curl_slist_free_all      curl_library.curl_slist_free_all
#define curl_url                 curl_library.curl_url
#define curl_url_cleanup         curl_library.curl_url_cleanup
#define curl_url_get             curl_library.curl_url_get
#define curl_url_set             curl_library.curl_url_set
#define curl_url_strerror        curl_library.curl_url_strerror
#define htmlCtxtReadMemory       xml_library.htmlCtxtReadMemory
#define htmlFreeParserCtxt       xml_library.htmlFreeParserCtxt
#define htmlNewParserCtxt        xml_library.htmlNewParserCtxt
#define xmlBuildURI              xml_library.xmlBuildURI
#define xmlDocGetRootElement     xml_library.xmlDocGetRootElement
#define xmlFreeDoc               xml_library.xmlFreeDoc
#define xmlGetProp               xml_library.xmlGetProp
#define xmlNodeGetContent        xml_library.xmlNodeGetContent
#define xmlReadMemory            xml_library.xmlReadMemory
#undef xmlFree
#define xmlFree (*xml_library.free)
#endif
