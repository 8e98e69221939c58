#define WEB_LIBRARIES_THEMSELVES
#include "tools/web/libraries.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "ops/support/cleanup.h"

struct curl_library curl_library;
struct xml_library xml_library;

struct symbol {
	const char *name;
	void *into; /* a pointer */
};

#define X(function) {#function, &curl_library.function},
#define Y(function) {#function, &xml_library.function},
static const struct symbol curl_symbols[] = {CURL_FUNCTIONS(X)};
static const struct symbol xml_symbols[] = {XML_FUNCTIONS(Y){"xmlFree", &xml_library.free}};
#undef Y
#undef X

/* As the headers that this was compiled with have it. */
static const char *const curl_name = "libcurl.so.4";
static const char *const xml_name = LIBXML_VERSION < 21400 ? "libxml2.so.2" : "libxml2.so.16";

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

/* With the lock. */
static int load(
	const char *library, const struct symbol *symbols, size_t count, struct buffer *problem)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);

	for (size_t i = 0; handle && i < count; i++) {
		*(void **)symbols[i].into = dlsym(handle, symbols[i].name);
		if (!*(void **)symbols[i].into)
			handle = NULL;
	}
	if (handle)
		return 0;
	if (problem)
		buffer_printf(problem, "%s cannot be loaded (%s): install it to fetch pages",
			library, dlerror());
	return -ELIBACC;
}

int web_load(struct buffer *problem)
{
	static bool is_loaded;
	int r = 0;

	pthread_mutex_lock(&load_lock);
	if (!is_loaded)
		r = load(curl_name, curl_symbols, array_size(curl_symbols), problem);
	is_loaded = r == 0;
	pthread_mutex_unlock(&load_lock);
	return r < 0 ? r : web_load_xml(problem);
}

int web_load_xml(struct buffer *problem)
{
	static bool is_loaded;
	int r = 0;

	pthread_mutex_lock(&load_lock);
	if (!is_loaded)
		r = load(xml_name, xml_symbols, array_size(xml_symbols), problem);
	is_loaded = r == 0;
	pthread_mutex_unlock(&load_lock);
	return r;
}
