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

struct library {
	const char *name;
	const struct symbol *symbols;
	size_t count;
	bool is_loaded; /* guarded by load_lock */
};

static struct library curl = {"libcurl.so.4", curl_symbols, array_size(curl_symbols), false};

/* The version of the headers that this was compiled with. */
static struct library xml = {LIBXML_VERSION < 21400 ? "libxml2.so.2" : "libxml2.so.16", xml_symbols,
	array_size(xml_symbols), false};

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

/* Called with load_lock held. */
static bool open_library(const struct library *library)
{
	void *handle = dlopen(library->name, RTLD_LAZY | RTLD_LOCAL);

	for (size_t i = 0; handle && i < library->count; i++) {
		*(void **)library->symbols[i].into = dlsym(handle, library->symbols[i].name);
		if (!*(void **)library->symbols[i].into)
			handle = NULL;
	}
	return handle != NULL;
}

static int load(struct library *library, struct buffer *problem)
{
	bool is_loaded;

	pthread_mutex_lock(&load_lock);
	if (!library->is_loaded)
		library->is_loaded = open_library(library);
	is_loaded = library->is_loaded;
	if (!is_loaded && problem)
		buffer_printf(problem, "%s cannot be loaded (%s): install it to fetch pages",
			library->name, dlerror());
	pthread_mutex_unlock(&load_lock);
	return is_loaded ? 0 : -ELIBACC;
}

int web_load(struct buffer *problem)
{
	int r = load(&curl, problem);

	return r < 0 ? r : load(&xml, problem);
}

int web_load_xml(struct buffer *problem)
{
	return load(&xml, problem);
}
