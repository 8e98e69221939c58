/*
 * tools/base/options.h - command-line options made from a tool's schema.
 *
 * --name VALUE or --name=VALUE for each property ("_" or "-" alike); booleans need no value;
 * --name-from FILE takes a string from a file ("-": standard input).  Arrays: the option is
 * repeated, or given as JSON.  Objects: NAME=VALUE, repeated.  For an array of objects the
 * options are those of its items, and one that repeats begins the next item.  Words without
 * an option fill the required strings in order.
 */
#pragma once

#include <cjson/cJSON.h>

#include "ops/support/buffer.h"

/* Turns the words into `arguments` (an object).  0, or -EINVAL with a sentence. */
int options_parse(
	const cJSON *schema, int argc, char **argv, cJSON *arguments, struct buffer *problem);

/* A line for each option. */
int options_help(const cJSON *schema, struct buffer *out);

/* All of a file, or of standard input for "-".  0 or -errno. */
int options_read_file(const char *path, struct buffer *content);
