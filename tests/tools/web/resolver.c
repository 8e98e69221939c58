/* A resolver for tests, loaded with LD_PRELOAD: names come from the file in TEST_NAMES, a line
 * each: NAME ADDRESS[,ADDRESS...] [ADDRESS...]: each look-up of the name takes the next word, and
 * the last one stays.  Other names are nowhere; numbers are what they are. */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*resolve)(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **ret_found);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **ret_found);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int look_ups;

static int find(const char *node, char *addresses, size_t size)
{
	const char *path = getenv("TEST_NAMES");
	FILE *file = path ? fopen(path, "re") : NULL;
	char line[1024];
	int found = 0;

	while (file && !found && fgets(line, sizeof(line), file)) {
		char *rest = NULL, *word = strtok_r(line, " \n", &rest);

		if (!word || strcmp(word, node) != 0)
			continue;
		for (int i = 0; (word = strtok_r(NULL, " \n", &rest)) && i <= look_ups; i++)
			snprintf(addresses, size, "%s", word);
		look_ups++;
		found = 1;
	}
	if (file)
		fclose(file);
	return found;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **ret_found)
{
	resolve real = (resolve)dlsym(RTLD_NEXT, "getaddrinfo");
	struct addrinfo numeric = hints ? *hints : (struct addrinfo){0}, **end = ret_found;
	char addresses[512], *rest = NULL, *word;
	int r, found;

	numeric.ai_flags = (numeric.ai_flags & ~AI_ADDRCONFIG) | AI_NUMERICHOST;
	*ret_found = NULL;
	r = real(node, service, &numeric, ret_found);
	if (r == 0 || !node)
		return r;
	pthread_mutex_lock(&lock);
	found = find(node, addresses, sizeof(addresses));
	pthread_mutex_unlock(&lock);
	if (!found)
		return EAI_NONAME;
	numeric.ai_family = AF_UNSPEC;
	for (word = strtok_r(addresses, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		r = real(word, service, &numeric, end);
		if (r != 0)
			return r;
		while (*end)
			end = &(*end)->ai_next;
	}
	return 0;
}
