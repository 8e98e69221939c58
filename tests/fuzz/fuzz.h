/*
 * tests/fuzz/fuzz.h - what every fuzz target is.
 *
 * With -Dfuzz=true libFuzzer calls the target; else fuzz_main.c runs it over the files that
 * are named, and over each of them cut and with one byte changed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
