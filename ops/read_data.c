#include "ops/read_data.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* The next data from `at` on, and its end; `size` where there is none.  -errno: not known. */
static int find_data(struct op_context *ctx, struct open_file *file, off_t at, off_t size,
	off_t *ret_start, off_t *ret_end)
{
	off_t start = workspace_seek(ctx, file, at, SEEK_DATA), end = size;

	if (start >= 0 && start < size)
		end = workspace_seek(ctx, file, start, SEEK_HOLE);
	else if (start >= 0 || start == -ENXIO) /* a hole to the end, unless that is nearer */
		start = workspace_seek(ctx, file, size - 1, SEEK_HOLE) < 0 ? -ESPIPE : size;
	if (start < 0 || end < 0)
		return (int)(start < 0 ? start : end);
	*ret_start = start;
	*ret_end = end < size ? end : size;
	return 0;
}

ssize_t read_data(struct op_context *ctx, struct open_file *file, void *data, size_t size)
{
	off_t at = 0, start = 0, end = 0, whole = (off_t)size;
	ssize_t got;

	while (at < whole) {
		if (find_data(ctx, file, at, whole, &start, &end) < 0) {
			start = at;
			end = whole;
		}
		memset((char *)data + at, 0, (size_t)(start - at));
		got = start < end ? workspace_read(ctx, file, (char *)data + start,
					    (size_t)(end - start), start)
				  : 0;
		if (got < end - start)
			return got < 0 ? got : start + got;
		at = end;
	}
	return whole;
}
