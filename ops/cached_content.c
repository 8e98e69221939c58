#include "ops/cached_internal.h"

#include <stdlib.h>
#include <string.h>

struct content *content_new(const void *data, size_t size)
{
	struct content *content = malloc(sizeof(*content) + size);

	if (!content)
		return NULL;
	*content = (struct content){.refs = 1, .size = size, .fetched_ms = cached_now_ms()};
	memcpy(content->data, data, size);
	return content;
}

struct content *content_ref(struct content *content)
{
	content->refs++;
	return content;
}

void content_unref(struct content *content)
{
	if (content && --content->refs == 0)
		free(content);
}

/* ---- The bound: least recently used goes first ----------------------------------- */

static void list_remove(struct cached *c, struct content *content)
{
	if (content->newer)
		content->newer->older = content->older;
	else
		c->newest = content->older;
	if (content->older)
		content->older->newer = content->newer;
	else
		c->oldest = content->newer;
	content->newer = content->older = NULL;
}

static void list_add(struct cached *c, struct content *content)
{
	content->older = c->newest;
	if (c->newest)
		c->newest->newer = content;
	else
		c->oldest = content;
	c->newest = content;
}

void content_detach(struct cached *c, struct node *node)
{
	struct content *content = node->content;

	if (!content)
		return;
	list_remove(c, content);
	c->content_bytes -= sizeof(*content) + content->size;
	node->content = NULL;
	content->node = NULL;
	content_unref(content);
}

void content_attach(struct cached *c, struct node *node, struct content *content)
{
	content_detach(c, node);
	node->content = content;
	content->node = node;
	list_add(c, content);
	c->content_bytes += sizeof(*content) + content->size;
	while (c->content_bytes > c->memory_bytes_max && c->oldest != content)
		content_detach(c, c->oldest->node);
	pthread_cond_broadcast(&c->changed);
}

void content_used(struct cached *c, struct content *content)
{
	if (!content->node || content == c->newest)
		return;
	list_remove(c, content);
	list_add(c, content);
}
