/*
 * fs/commands/command_text.h - parses and formats times and sizes for people.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Parses "30" and "30s" (seconds), "1.5", "500us", "50ms", "2m", "1h".  False: another form. */
bool command_parse_time(const char *text, uint64_t *ret_us);

/* Writes "31us", "4.2ms" or "1.3s" to `text`. */
void command_format_time(uint64_t us, char text[16]);

/* Writes "17", "4.2k", "1.3M" or "2.0G" (powers of 1024) to `text`. */
void command_format_size(uint64_t bytes, char text[16]);
