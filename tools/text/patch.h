/*
 * tools/text/patch.h - patches in the format of Codex' apply_patch.
 *
 *	*** Begin Patch
 *	*** Add File: PATH          each line of it begins with +
 *	*** Delete File: PATH
 *	*** Update File: PATH
 *	*** Move to: PATH           optional
 *	@@ LINE                     optional: what follows is below this line
 *	 context, -old, +new
 *	*** End of File             optional: what precedes is the end of the file
 *	*** End Patch
 *
 * Works on bytes in memory; knows nothing of files or calls.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/support/buffer.h"

enum { PATCH_FILES_MAX = 200 };

enum patch_kind { PATCH_ADD, PATCH_DELETE, PATCH_UPDATE };

struct patch_line {
	char sign;        /* ' ', '-', '+'; '@': look for it (size 0: nothing); '$': end of file */
	const char *text; /* without its line end; points into what was parsed */
	size_t size;
};

struct patch_file {
	enum patch_kind kind;
	char *path;
	char *move_to; /* NULL: it stays where it is */
	struct patch_line *lines;
	size_t count;
};

struct patch {
	struct patch_file *files;
	size_t count;
};

/* `text` must live as long as the patch.  0; -ENOMEM; -EINVAL with a sentence in `problem` that
 * names the line of the patch. */
int patch_parse(const char *text, struct patch *ret_patch, struct buffer *problem);
void patch_done(struct patch *patch);

/* The content that PATCH_ADD gives: every line of it ends in a newline.  0 or -ENOMEM. */
int patch_content(const struct patch_file *file, struct buffer *out);

enum patch_problem {
	PATCH_OK,
	PATCH_NO_MATCH,  /* `wanted` is not in the text, from line `searched_from` on */
	PATCH_AMBIGUOUS, /* it is there `matches` times, and no @@ line says which is meant */
	PATCH_NO_MEMORY,
};

struct patch_result {
	struct buffer text;
	size_t first_changed_line; /* of the result, from 1; 0: nothing changes */
	bool tolerant;             /* something did not match byte by byte */

	enum patch_problem problem;
	size_t problem_hunk; /* from 1 */
	char *wanted;        /* the lines, without their signs */
	size_t searched_from;
	size_t matches;
	size_t match_lines[8]; /* where the first ones begin, from 1 */
};

/* Applies PATCH_UPDATE.  Hunks match in the order of the text: exactly, else without regard to
 * trailing blanks and to what looks the same (tools/text/normalise.h).  What is not replaced stays
 * byte by byte; new lines get the line end of those around them, and the last line stays without
 * one.  `*ret_result` is valid also when there is a problem. */
enum patch_problem patch_apply(const uint8_t *text, size_t size, const struct patch_file *file,
	struct patch_result *ret_result);
void patch_result_done(struct patch_result *result);
