/*
 * fs/commands/doctor.h - the checks of `isthmus doctor`: of this machine (doctor_command.c), or of
 * the place that a URI names (doctor_place.c).
 */
#pragma once

#include <limits.h>

struct cJSON;
struct mount_options;

/* A note: something optional is missing, or is worth knowing; everything works. */
enum finding { FOUND_GOOD, FOUND_NOTE, FOUND_WARNING, FOUND_FAULT };

struct report {
	char fact[PATH_MAX + 512];
	/* Static: a line for a shell, with sudo where it needs root; explanations belong to the
	 * fact.  NULL: no command helps. */
	const char *remedy;
};

/* Fills in the report; returns `finding`. */
enum finding doctor_say(struct report *report, enum finding finding, const char *remedy,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

struct doctor {
	struct cJSON *checks; /* receives the findings; NULL: print them for people */
	int faults;
};

/* Prints a finding, or adds it to doctor->checks. */
void doctor_tell(struct doctor *doctor, const char *check, enum finding finding,
	const struct report *report);

/* Connects to the place as a mount with these options would, and reports what it supports. */
void doctor_place(struct doctor *doctor, const char *uri, const struct mount_options *options);
