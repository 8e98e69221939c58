/*
 * fs/commands/command_text.h - what commands read from their command line and print for people.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* "30" and "30s" (seconds), "1.5", "500us", "50ms", "2m", "1h"; false for anything else. */
bool command_parse_time(const char *text, uint64_t *ret_us);

/* "31us", "4.2ms", "1.3s" into `text`. */
void command_format_time(uint64_t us, char text[16]);

/* "17", "4.2k", "1.3M", "2.0G" (powers of 1024) into `text`. */
void command_format_size(uint64_t bytes, char text[16]);
