/*
 * fs/inode/inode_rules.h - the rules of the kernel's names, which a test can switch off
 * (ops/cache/COHERENCE.md).
 */
#pragma once

#define INODE_RULES(X)  \
	X(CHANGES)      \
	X(KNOWN)        \
	X(MISSING_KEPT) \
	X(WAS_MISSING)  \
	X(LOSSES)       \
	X(SUPERSEDED)   \
	X(MOVED)        \
	X(ONE_NAME)     \
	X(OWN_MOVED)    \
	X(REPEAT)

enum inode_rule {
#define X(name) RULE_##name,
	INODE_RULES(X)
#undef X
		INODE_RULE_COUNT
};

#ifdef INODE_MUTANTS
extern enum inode_rule inode_rule_off;
#define RULE(name) (inode_rule_off != RULE_##name)
#else
#define RULE(name) true
#endif
