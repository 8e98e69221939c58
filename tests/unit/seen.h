/*
 * tests/unit/seen.h - the states of a played world that were seen, as a set of hashes, and whether
 * a sanitizer is on, with which a test runs through fewer of them.  For one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED
#endif

/* False: it was there already. */
bool seen_add(uint64_t hash);
void seen_clear(void);
