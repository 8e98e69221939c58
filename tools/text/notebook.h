/*
 * tools/text/notebook.h - a Jupyter notebook (nbformat 4) as text: its cells and their outputs.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>

#include "ops/support/buffer.h"

/* Whether a file of this name is a notebook. */
bool notebook_is_one(const char *path);

/* Appends the cells: a line "[Cell 1, markdown]" or "[Cell 2, python, In 5]" with the source after
 * it, and "[Output of cell 2]" with the texts; of images and other data the type and size.  0;
 * -EINVAL: it is no such notebook; -ENOMEM. */
int notebook_text(const char *json, size_t size, struct buffer *out);
