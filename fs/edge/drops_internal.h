/*
 * fs/edge/drops_internal.h - the rules of fs/edge/drops.c, which a test can switch off
 * (ops/cache/COHERENCE.md).
 */
#pragma once

#include "fs/edge/drops.h"

#define DROPS_RULES(X)       \
	X(LOCKED)            \
	X(BOUND)             \
	X(RELEASED)          \
	X(GRANT)             \
	X(GRANT_IN_TURN)     \
	X(GRANT_AFTER_REPLY) \
	X(SHARED)            \
	X(CUT)               \
	X(REPEAT)

enum drops_rule {
#define X(name) RULE_##name,
	DROPS_RULES(X)
#undef X
		DROPS_RULE_COUNT
};

#ifdef DROPS_MUTANTS
extern enum drops_rule drops_rule_off;
#define RULE(name) (drops_rule_off != RULE_##name)
#else
#define RULE(name) true
#endif
