#include "fs/commands/log_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/commands/commands.h"
#include "ops/support/cleanup.h"
#include "ops/support/files.h"
#include "ops/support/hex.h"
#include "ops/support/log_segment.h"

/* LOG_EXIT_ALTERED, after a message, if the log is not as the daemon wrote it; else 0. */
static int check_altered(const struct log_source *source, const struct log_verify_report *report)
{
	if (report->problem[0])
		return command_error(
			"log", "\"%s\" was altered: %s", source->directory, report->problem);
	if (report->segments == 0)
		return command_error("log", "\"%s\" has no log: it was deleted", source->directory);
	if (report->last_seq + source->lost < source->last_seq)
		return command_error("log",
			"\"%s\" was altered: it ends with number %" PRIu64
			", but the daemon has written %" PRIu64,
			source->directory, report->last_seq, source->last_seq);
	return 0;
}

/* Checks for gaps that may be accidents.  0 or LOG_EXIT_INCOMPLETE. */
static int check_complete(const struct log_source *source, const struct log_verify_report *report)
{
	const char *directory = source->directory;
	bool is_lost = source->lost > report->lost;
	bool is_unsealed = !source->lives && report->unsealed_lines;
	bool is_cut = !source->ring && !source->lives && !report->unsealed_lines && !report->ended;

	if (is_lost)
		command_note("log",
			"\"%s\" is incomplete: the daemon could not write %" PRIu64
			" records; 'isthmus status' says why",
			directory, source->lost - report->lost);
	if (is_unsealed)
		command_note("log",
			"\"%s\" is incomplete: the last %" PRIu64
			" lines have no seal: the daemon was killed while it wrote them, or they "
			"were added or altered later",
			directory, report->unsealed_lines);
	if (is_cut)
		command_note("log",
			"\"%s\" is incomplete: the daemon was killed, or the end was cut off",
			directory);
	if (report->gap_count == 1)
		command_note("log", "\"%s\" is incomplete: %s", directory, report->gap);
	if (report->gap_count > 1)
		command_note("log", "\"%s\" is incomplete: %s; and %u more such places", directory,
			report->gap, report->gap_count - 1);
	return is_lost || is_unsealed || is_cut || report->gap_count ? LOG_EXIT_INCOMPLETE : 0;
}

static void print_means(
	const struct log_verify_report *report, const struct log_verify_means *means)
{
	if (means->key && report->is_keyed)
		puts("proved: sealed with the key by the daemons that wrote it");
	else if (report->is_keyed && !report->anchored)
		puts("not proved: anyone who can write there could have replaced the whole log; "
		     "the seals have a key, so use --verify-key");
	else if (!report->anchored)
		puts("not proved: anyone who can write there could have replaced the whole log; "
		     "see --setup-keys");
}

static void print_found(
	const struct log_verify_report *report, const struct log_verify_means *means, int code)
{
	char digest[2 * sizeof(report->digest) + 1];

	printf("%s: numbers %" PRIu64 " to %" PRIu64 " in %u segment%s are as they were written\n",
		code ? "not altered" : "good", report->first_seq, report->last_seq,
		report->segments, report->segments == 1 ? "" : "s");
	print_means(report, means);
	if (report->anchored)
		printf("proved: up to number %" PRIu64 " as the anchor has it\n",
			report->anchored_seq);
	if (report->oldest_gone)
		printf("note: rotation has deleted older segments; changes are kept from number "
		       "%" PRIu64 " on\n",
			report->changes_first_seq);
	hex_write(report->digest, sizeof(report->digest), digest);
	printf("digest %s\n", digest);
}

/* Parses the key.  0, or the exit status after a message. */
static int read_key(const char *text, uint8_t ret_key[LOG_KEY_BYTES])
{
	char line[LOG_KEY_TEXT_BYTES + 1] = "";
	bool is_key;

	if (strcmp(text, "-") == 0) {
		if (!fgets(line, sizeof(line), stdin))
			return command_error("log", "no verification key on standard input");
		line[strcspn(line, "\n")] = '\0';
		text = line;
	}
	is_key = hex_read(text, ret_key, LOG_KEY_BYTES);
	log_seal_erase(line, sizeof(line));
	if (is_key)
		return 0;
	return command_usage_error("log",
		"that is not a verification key: a key has 64 hexadecimal digits, as printed by "
		"--setup-keys");
}

int log_verify_source(const struct log_source *source, const struct log_verify_texts *texts)
{
	struct log_verify_means means = {0};
	struct log_verify_report report;
	uint8_t key[LOG_KEY_BYTES];
	int r, code;

	if (texts->key) {
		code = read_key(texts->key, key);
		if (code)
			return code;
		means.key = key;
	}
	means.anchor = texts->anchor;
	means.ring = source->ring;
	means.known_seq = source->lives ? source->last_seq : 0;
	if (means.anchor && access(means.anchor, R_OK) < 0)
		return command_error("log", "\"%s\": %s", means.anchor, strerror(errno));
	r = log_verify(source->directory, &means, &report);
	log_seal_erase(key, sizeof(key));
	if (r < 0)
		return command_error("log", "\"%s\": %s", source->directory, strerror(-r));
	code = check_altered(source, &report);
	if (code)
		return code;
	code = check_complete(source, &report);
	print_found(&report, &means, code);
	return code;
}

int log_setup_keys(const char *directory)
{
	char key[LOG_KEY_TEXT_BYTES];
	cleanup_fd int fd = make_directories(directory);
	int r = fd < 0 ? fd : log_keys_setup(fd, key);

	if (r == -EEXIST)
		return command_error("log",
			"\"%s/" LOG_KEY_NAME
			"\" is there already: to create a new key, move the log's directory away "
			"first",
			directory);
	if (r < 0)
		return command_error("log", "cannot create \"%s/" LOG_KEY_NAME "\": %s", directory,
			strerror(-r));
	puts(key);
	log_seal_erase(key, sizeof(key));
	fputs("This is the verification key, which is printed only now and not kept: store it "
	      "on\nanother machine or on paper. From the next mount on, the log is sealed; "
	      "verify it with\n'isthmus log DIR --verify --verify-key -' and the key on standard "
	      "input.\n",
		stderr);
	return 0;
}
