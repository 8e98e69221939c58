/*
 * tools/base/options.h - command-line options, derived from a tool's schema.
 *
 * --name VALUE or --name=VALUE for each property ("_" and "-" are equivalent); booleans need no
 * value; --name-from FILE reads a string from a file ("-": standard input).  Arrays: repeat the
 * option, or give JSON.  Objects: NAME=VALUE, repeated.  An array of objects has the options of its
 * items; repeating one of them begins the next item.  Bare arguments fill the required strings in
 * order.
 */
#pragma once

#include <cjson/cJSON.h>

#include "ops/support/buffer.h"

/* Adds the options in `argv` to `arguments` (an object).  0, or -EINVAL with a sentence in
 * `problem`. */
int options_parse(
	const cJSON *schema, int argc, char **argv, cJSON *arguments, struct buffer *problem);

/* Appends one line of help per option.  0 or -errno. */
int options_help(const cJSON *schema, struct buffer *out);

/* Reads a whole file, or standard input for "-".  0 or -errno. */
int options_read_file(const char *path, struct buffer *content);
