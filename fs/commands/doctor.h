/*
 * fs/commands/doctor.h - what `isthmus doctor` finds: of this machine (doctor_command.c), or of the
 * place that a URI names (doctor_place.c).
 */
#pragma once

#include <limits.h>

struct cJSON;
struct mount_options;

enum finding { FOUND_GOOD, FOUND_WARNING, FOUND_FAULT };

struct report {
	char fact[PATH_MAX + 512];
	const char *remedy; /* static; NULL: all is good, or the fact says it */
};

/* Fills in the report; returns the finding. */
enum finding doctor_say(struct report *report, enum finding finding, const char *remedy,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

struct doctor {
	struct cJSON *checks; /* gets what is found; NULL: it is printed for people */
	int faults;
};

/* Prints or gathers one. */
void doctor_tell(struct doctor *doctor, const char *check, enum finding finding,
	const struct report *report);

/* Connects to the place, as a mount with these options would, and tells what it is like. */
void doctor_place(struct doctor *doctor, const char *uri, const struct mount_options *options);
