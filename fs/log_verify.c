#include "fs/log_verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fs/commands.h"
#include "fs/mount_log_segment.h"

/* LOG_EXIT_ALTERED when it was said that the log is not as the daemon wrote it; else 0. */
static int check_altered(const struct log_place *place, const struct log_verify_report *report)
{
	if (report->problem[0])
		return command_error(
			"log", "\"%s\" was altered: %s", place->directory, report->problem);
	if (report->segments == 0)
		return command_error(
			"log", "\"%s\" holds no log: somebody deleted it", place->directory);
	if (report->last_seq + place->lost < place->last_seq)
		return command_error("log",
			"\"%s\" was altered: it ends with number %" PRIu64
			", but the daemon has written %" PRIu64,
			place->directory, report->last_seq, place->last_seq);
	return 0;
}

static int incomplete(const struct log_place *place)
{
	fprintf(stderr, "isthmus log: \"%s\" is incomplete: ", place->directory);
	return LOG_EXIT_INCOMPLETE;
}

/* Each of these may be an accident. */
static int check_complete(const struct log_place *place, const struct log_verify_report *report)
{
	int code = 0;

	if (place->lost > report->lost) {
		code = incomplete(place);
		fprintf(stderr,
			"the daemon could not write %" PRIu64
			" records; 'isthmus status' says why\n",
			place->lost - report->lost);
	}
	if (!place->lives && report->unsealed_lines) {
		code = incomplete(place);
		fprintf(stderr,
			"the last %" PRIu64
			" lines have no seal: the daemon was killed while it wrote them, or "
			"somebody added or altered them\n",
			report->unsealed_lines);
	} else if (!place->lives && !report->ended) {
		code = incomplete(place);
		fputs("the daemon was killed, or somebody cut off the end\n", stderr);
	}
	if (report->gap_count) {
		code = incomplete(place);
		fputs(report->gap, stderr);
		if (report->gap_count > 1)
			fprintf(stderr, "; and %u more such places", report->gap_count - 1);
		fputc('\n', stderr);
	}
	return code;
}

static void print_found(const struct log_verify_report *report, int code)
{
	printf("%s: numbers %" PRIu64 " to %" PRIu64 " in %u segment%s are as they were written\n",
		code ? "not altered" : "good", report->first_seq, report->last_seq,
		report->segments, report->segments == 1 ? "" : "s");
	if (report->oldest_gone)
		puts("note: older segments are gone: rotation deleted them");
	fputs("digest ", stdout);
	for (size_t i = 0; i < sizeof(report->digest); i++)
		printf("%02x", report->digest[i]);
	putchar('\n');
}

int log_verify_place(const struct log_place *place)
{
	struct log_verify_report report;
	int r = log_verify(place->directory, &report), code;

	if (r < 0)
		return command_error("log", "\"%s\": %s", place->directory, strerror(-r));
	code = check_altered(place, &report);
	if (code)
		return code;
	code = check_complete(place, &report);
	print_found(&report, code);
	return code;
}
