#include "ops/support/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void buffer_done(struct buffer *b)
{
	free(b->data);
	b->data = NULL;
	b->size = 0;
	b->capacity = 0;
}

int buffer_reserve(struct buffer *b, size_t extra)
{
	size_t want, capacity;
	uint8_t *data;

	if (__builtin_add_overflow(b->size, extra, &want))
		return -ENOMEM;
	if (b->limit_bytes && want > b->limit_bytes)
		return -EMSGSIZE;
	if (want <= b->capacity)
		return 0;
	capacity = b->capacity ? b->capacity : 64;
	while (capacity < want)
		if (__builtin_mul_overflow(capacity, 2, &capacity))
			return -ENOMEM;
	data = realloc(b->data, capacity);
	if (!data)
		return -ENOMEM;
	b->data = data;
	b->capacity = capacity;
	return 0;
}

int buffer_append(struct buffer *b, const void *data, size_t size)
{
	int r = buffer_reserve(b, size);

	if (r < 0)
		return r;
	if (size)
		memcpy(b->data + b->size, data, size);
	b->size += size;
	return 0;
}

int buffer_append_string(struct buffer *b, const char *string)
{
	return buffer_append(b, string, strlen(string));
}

int buffer_vprintf(struct buffer *b, const char *format, va_list arguments)
{
	va_list again;
	int length, r;

	va_copy(again, arguments);
	length = vsnprintf(NULL, 0, format, again);
	va_end(again);
	if (length < 0)
		return -EINVAL;
	r = buffer_reserve(b, (size_t)length + 1);
	if (r < 0)
		return r;
	vsnprintf((char *)b->data + b->size, (size_t)length + 1, format, arguments);
	b->size += (size_t)length;
	return 0;
}

int buffer_printf(struct buffer *b, const char *format, ...)
{
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = buffer_vprintf(b, format, arguments);
	va_end(arguments);
	return r;
}

void buffer_consume(struct buffer *b, size_t size)
{
	if (size >= b->size) {
		b->size = 0;
		return;
	}
	memmove(b->data, b->data + size, b->size - size);
	b->size -= size;
}

char *buffer_steal_string(struct buffer *b)
{
	char *string;

	if (buffer_reserve(b, 1) < 0)
		return NULL;
	b->data[b->size] = '\0';
	string = (char *)b->data;
	b->data = NULL;
	b->size = 0;
	b->capacity = 0;
	return string;
}

char *string_printf(const char *format, ...)
{
	struct buffer text cleanup_buffer = {0};
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = buffer_vprintf(&text, format, arguments);
	va_end(arguments);
	return r < 0 ? NULL : buffer_steal_string(&text);
}
