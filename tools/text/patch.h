/*
 * tools/text/patch.h - patches in the format of Codex's apply_patch.
 *
 *	*** Begin Patch
 *	*** Add File: PATH          its lines begin with +
 *	*** Delete File: PATH
 *	*** Update File: PATH
 *	*** Move to: PATH           optional
 *	@@ LINE                     optional: the change is below this line
 *	 context, -old, +new
 *	*** End of File             optional: the lines before are the end of the file
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
	char sign;        /* ' ', '-', '+'; '@': search for it (size 0: none); '$': end of file */
	const char *text; /* without its line end; points into the text of the patch */
	size_t size;
};

struct patch_file {
	enum patch_kind kind;
	char *path;
	char *move_to; /* NULL: not moved */
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

/* Appends the content of a PATCH_ADD; every line ends in a newline.  0 or -ENOMEM. */
int patch_content(const struct patch_file *file, struct buffer *out);

enum patch_problem {
	PATCH_OK,
	PATCH_NO_MATCH,  /* `wanted` is not in the text from line `searched_from` on */
	PATCH_AMBIGUOUS, /* `wanted` is there `matches` times, and no @@ line selects one */
	PATCH_NO_MEMORY,
};

struct patch_result {
	struct buffer text;
	size_t first_changed_line; /* of the result, from 1; 0: nothing changes */
	bool tolerant;             /* a hunk did not match byte by byte */

	enum patch_problem problem;
	size_t problem_hunk; /* from 1 */
	char *wanted;        /* the lines of the hunk, without their signs */
	size_t searched_from;
	size_t matches;
	size_t match_lines[8]; /* lines, from 1, at which the first matches begin */
};

/* Applies a PATCH_UPDATE.  Hunks match in the order of the text: exactly, else without regard to
 * trailing blanks and to characters that look the same (tools/text/normalise.h).  Text outside the
 * hunks stays byte by byte; new lines get the line end of the lines around them; a last line
 * without line end stays without one.  `*ret_result` is valid even if there is a problem. */
enum patch_problem patch_apply(const uint8_t *text, size_t size, const struct patch_file *file,
	struct patch_result *ret_result);
void patch_result_done(struct patch_result *result);
