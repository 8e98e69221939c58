/* Examines a place by the helper there (ops/support/examine.h). */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/open.h"
#include "fs/commands/doctor.h"
#include "fs/mount/mount.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/examine.h"
#include "ops/support/exec.h"
#include "ops/workspace.h"

enum {
	EXAMINE_TIMEOUT_MS = 20000,
	FACTS_MAX_BYTES = 256 << 10,
	WATCHES_WANTED = 65536,
	OPEN_FILES_WANTED = 1024,
	FREE_WANTED_BYTES = 64 << 20,
};

/* The answer: lines that end with NUL. */
struct place_facts {
	struct buffer text;
	bool is_remote, ignores_case;
};

/* The next value of that name after `after` (NULL: the first one); NULL: there is none. */
static const char *next_fact(const struct place_facts *facts, const char *name, const char *after)
{
	const char *line = (const char *)facts->text.data;
	const char *end = line + facts->text.size;
	size_t length = strlen(name);

	if (after)
		line = after + strlen(after) + 1;
	for (; line && line < end; line += strlen(line) + 1)
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return line + length + 1;
	return NULL;
}

static const char *text_fact(const struct place_facts *facts, const char *name)
{
	const char *value = next_fact(facts, name, NULL);

	return value ? value : "unknown";
}

static long long number_fact(
	const struct place_facts *facts, const char *name, int base, long long unknown)
{
	const char *value = next_fact(facts, name, NULL);

	return value ? strtoll(value, NULL, base) : unknown;
}

/* ---- Checks ----------------------------------------------------------------------------- */

static enum finding check_kernel(const struct place_facts *facts, struct report *report)
{
	const char *system = text_fact(facts, "system");
	int error = (int)number_fact(facts, "openat2", 10, 0);

	if (!error)
		return doctor_say(report, FOUND_GOOD, NULL, "%s", system);
	return doctor_say(report, FOUND_NOTE, NULL,
		"%s, without openat2(2) (%s): paths are looked up name by name; %s", system,
		strerror(error),
		error == ENOSYS ? "Linux 5.6 and newer have it"
				: "the seccomp profile of a newer container engine allows it");
}

static enum finding check_user(const struct place_facts *facts, struct report *report)
{
	return doctor_say(report, FOUND_GOOD, NULL, "uid %s, HOME=%s, PATH=%s",
		text_fact(facts, "uid"), text_fact(facts, "home"), text_fact(facts, "path"));
}

static enum finding check_helper(const struct place_facts *facts, struct report *report)
{
	const char *path = text_fact(facts, "helper");

	if (!facts->is_remote)
		return doctor_say(report, FOUND_GOOD, NULL, "not needed");
	if (strncmp(path, "/memfd:", 7) == 0)
		return doctor_say(report, FOUND_NOTE, NULL,
			"isthmus-helper runs in memory, and is sent again for each mount: no "
			"directory there (XDG_CACHE_HOME) is yours and writable, and lets "
			"programs run");
	return doctor_say(report, FOUND_GOOD, NULL, "%s", path);
}

static bool has_program(const struct place_facts *facts, const char *name)
{
	const char *found = next_fact(facts, "program", NULL);

	while (found && strcmp(found, name) != 0)
		found = next_fact(facts, "program", found);
	return found;
}

static enum finding check_shell(const struct place_facts *facts, struct report *report)
{
	if (has_program(facts, "sh"))
		return doctor_say(report, FOUND_GOOD, NULL, "sh%s",
			has_program(facts, "bash") ? " and bash" : ", but no bash");
	return doctor_say(report, FOUND_WARNING, NULL,
		"none: exec can run programs but no command lines, and the tool bash fails; use "
		"an image that has one");
}

static enum finding check_programs(const struct place_facts *facts, struct report *report)
{
	static const char *const names[] = {"git", "rg", "python3", "node"};
	cleanup_buffer struct buffer there = {0}, missing = {0};

	for (size_t i = 0; i < array_size(names); i++) {
		struct buffer *list = has_program(facts, names[i]) ? &there : &missing;

		buffer_printf(list, "%s%s", list->size ? ", " : "", names[i]);
	}
	return doctor_say(report, FOUND_GOOD, NULL, "%.*s%s%.*s", (int)there.size,
		there.size ? (const char *)there.data : "",
		!missing.size ? ""
		: there.size  ? "; not in PATH: "
			      : "not in PATH: ",
		(int)missing.size, missing.size ? (const char *)missing.data : "");
}

static enum finding check_directory(const struct place_facts *facts, struct report *report)
{
	const char *path = text_fact(facts, "directory");
	int error = (int)number_fact(facts, "writable", 10, 0);

	if (!error)
		return doctor_say(report, FOUND_GOOD, NULL, "%s can be written", path);
	return doctor_say(report, FOUND_WARNING, NULL,
		"%s cannot be written: %s; mount it with -r, or %s", path, strerror(error),
		error == EROFS ? "use a volume" : "name a user who can write it, before \"@\"");
}

static enum finding check_space(const struct place_facts *facts, struct report *report)
{
	long long bytes = number_fact(facts, "free", 10, FREE_WANTED_BYTES);

	return doctor_say(report, bytes < FREE_WANTED_BYTES ? FOUND_WARNING : FOUND_GOOD, NULL,
		"%s%lld MiB are free there", bytes < FREE_WANTED_BYTES ? "only " : "", bytes >> 20);
}

enum { OVERLAY = 0x794c7630, TMPFS = 0x01021994 };

/* Magic numbers of statfs(2). */
static const struct {
	long long magic;
	const char *name;
	bool is_shared; /* other machines can change it, which inotify does not report */
} file_systems[] = {
	{0xef53, "ext4", false},
	{0x58465342, "XFS", false},
	{0x9123683e, "Btrfs", false},
	{0x2fc12fc1, "ZFS", false},
	{OVERLAY, "overlay", false},
	{TMPFS, "tmpfs", false},
	{0x6969, "NFS", true},
	{0xff534d42, "CIFS", true},
	{0xfe534d42, "SMB", true},
	{0x517b, "SMB", true},
	{0x01021997, "9p", true},
	{0x00c36400, "Ceph", true},
	{0x65735546, "FUSE", true},
};

static enum finding check_file_system(const struct place_facts *facts, struct report *report)
{
	long long magic = number_fact(facts, "directory_type", 16, 0);
	size_t i = 0;

	while (i < array_size(file_systems) && file_systems[i].magic != magic)
		i++;
	if (i == array_size(file_systems))
		return doctor_say(
			report, FOUND_GOOD, NULL, "type 0x%llx", (unsigned long long)magic);
	if (file_systems[i].is_shared)
		return doctor_say(report, FOUND_WARNING, NULL,
			"%s: changes by other machines are not reported, and appear after -o ttl; "
			"a mount from the file server itself sees them",
			file_systems[i].name);
	if (magic == OVERLAY)
		return doctor_say(report, FOUND_WARNING, NULL,
			"overlay: files belong to the container, and go with it unless they are on "
			"a volume; a file of the image is copied, and gets another inode number, "
			"when it is first written");
	if (magic == TMPFS)
		return doctor_say(report, FOUND_WARNING, NULL,
			"tmpfs: files are lost when the place stops, unless they are on a volume");
	return doctor_say(report, FOUND_GOOD, NULL, "%s", file_systems[i].name);
}

static enum finding check_case(const struct place_facts *facts, struct report *report)
{
	if (!facts->ignores_case)
		return doctor_say(report, FOUND_GOOD, NULL, "upper and lower case differ");
	return doctor_say(report, FOUND_WARNING,
		"for more speed, use a directory on a file system that distinguishes them",
		"names that differ in case only lead to one file: names and contents are not "
		"cached (as with -o cache=strict)");
}

static enum finding check_watches(const struct place_facts *facts, struct report *report)
{
	int error = (int)number_fact(facts, "inotify", 10, 0);
	long long watches = number_fact(facts, "max_user_watches", 10, WATCHES_WANTED);

	if (error)
		return doctor_say(report, FOUND_WARNING,
			error == EMFILE ? "sudo sysctl -w fs.inotify.max_user_instances=512 # on "
					  "that machine"
					: NULL,
			"no inotify (%s): changes by others appear after -o ttl", strerror(error));
	if (watches < WATCHES_WANTED)
		return doctor_say(report, FOUND_WARNING,
			"sudo sysctl -w fs.inotify.max_user_watches=65536 # on that machine, whose "
			"containers share the limit",
			"inotify: %lld watches per user, too few for large workspaces", watches);
	return doctor_say(report, FOUND_GOOD, NULL, "inotify: %lld watches, %s instances", watches,
		text_fact(facts, "max_user_instances"));
}

static enum finding check_open_files(const struct place_facts *facts, struct report *report)
{
	const char *limit = text_fact(facts, "open_files");
	bool enough = strtoull(limit, NULL, 10) >= OPEN_FILES_WANTED;

	return doctor_say(report, enough ? FOUND_GOOD : FOUND_WARNING, NULL,
		enough ? "open files: the limit is sufficient"
		       : "open files: at most %s per process; a container gets more by --ulimit "
			 "nofile=65536, a machine by limits.conf(5)",
		limit);
}

/* Outside a user namespace the map is "0 0 4294967295". */
static enum finding check_ids(const struct place_facts *facts, struct report *report)
{
	unsigned long long inside, outside, count;

	if (sscanf(text_fact(facts, "uid_map"), "%llu %llu %llu", &inside, &outside, &count) != 3 ||
		(inside == outside && count == UINT32_MAX))
		return doctor_say(report, FOUND_GOOD, NULL, "the same users as on the machine");
	return doctor_say(report, FOUND_NOTE, NULL,
		"a user namespace: uid %llu is %llu on the machine; in directories shared with it, "
		"owners have other numbers, and 65534 stands for users without a number there",
		inside, outside);
}

static enum finding check_sandboxes(const struct place_facts *facts, struct report *report)
{
	int error = (int)number_fact(facts, "user_namespace", 10, 0);
	bool is_filtered = number_fact(facts, "seccomp", 10, 0) == 2;

	if (!error)
		return doctor_say(report, FOUND_GOOD, NULL, "user namespaces can be made%s",
			is_filtered ? ", under a seccomp filter" : "");
	return doctor_say(report, FOUND_NOTE,
		is_filtered ? NULL
			    : "sudo sysctl -w user.max_user_namespaces=10000 "
			      "kernel.unprivileged_userns_clone=1 # on that machine",
		"user namespaces are refused (%s): bwrap, browsers and engines may not run there%s",
		strerror(error),
		is_filtered ? "; a container gets them by --security-opt seccomp=unconfined, or a "
			      "profile that allows unshare"
			    : "");
}

static const struct {
	const char *name;
	enum finding (*run)(const struct place_facts *facts, struct report *report);
} checks[] = {
	{"kernel", check_kernel},
	{"user", check_user},
	{"remote helper", check_helper},
	{"shell", check_shell},
	{"programs", check_programs},
	{"directory", check_directory},
	{"file system", check_file_system},
	{"file names", check_case},
	{"space", check_space},
	{"watches", check_watches},
	{"open files", check_open_files},
	{"user ids", check_ids},
	{"sandboxes", check_sandboxes},
};

/* ---- Asking ----------------------------------------------------------------------------- */

static int listen_to(struct op_context *ctx, struct process *process, struct buffer *out)
{
	struct exec_event event;
	char data[4096];
	int r;

	for (;;) {
		r = workspace_process_next(ctx, process, data, sizeof(data), &event);
		if (r < 0)
			return r;
		if (event.type == EXEC_EXIT)
			return event.timed_out ? -ETIMEDOUT : event.exit_code ? -ENOEXEC : 0;
		if (event.type == EXEC_STDOUT)
			r = buffer_append(out, data, event.size);
		if (r < 0)
			return r;
	}
}

/* Runs the helper program again, as a command: /proc/self/exe of the process that starts commands
 * is the helper. */
static int ask(struct workspace *workspace, struct place_facts *facts)
{
	static const char *const argv[] = {"/proc/self/exe", EXAMINE_OPTION, NULL};
	const struct exec_request request = {.argv = argv,
		.cwd = "",
		.timeout_ms = EXAMINE_TIMEOUT_MS,
		.flags = EXEC_STDIN_CLOSED | EXEC_KILL_LEFTOVERS};
	struct process *process;
	struct op_context ctx;
	int r;

	op_context_init(&ctx);
	r = workspace_exec(&ctx, workspace, &request, &process);
	if (r < 0)
		return r;
	r = listen_to(&ctx, process, &facts->text);
	workspace_process_free(process);
	for (size_t i = 0; i < facts->text.size; i++)
		if (facts->text.data[i] == '\n')
			facts->text.data[i] = '\0';
	if (r == 0)
		r = buffer_append(&facts->text, "", 1);
	return r;
}

static void examine_place(struct doctor *doctor, struct workspace *workspace)
{
	struct place_facts facts = {.text.limit_bytes = FACTS_MAX_BYTES};
	struct workspace_status status;
	struct report report = {0};
	int r;

	workspace_status(workspace, &status);
	facts.is_remote = status.capabilities & WORKSPACE_IS_REMOTE;
	facts.ignores_case = status.capabilities & WORKSPACE_IGNORES_CASE;
	r = ask(workspace, &facts);
	for (size_t i = 0; r == 0 && i < array_size(checks); i++) {
		enum finding finding = checks[i].run(&facts, &report);

		doctor_tell(doctor, checks[i].name, finding, &report);
	}
	if (r == -EOPNOTSUPP)
		doctor_tell(doctor, "commands",
			doctor_say(&report, FOUND_WARNING, NULL, "no commands can run there"),
			&report);
	else if (r < 0)
		doctor_tell(doctor, "commands",
			doctor_say(&report, FOUND_FAULT, NULL,
				"cannot run isthmus-helper there: %s", strerror(-r)),
			&report);
	buffer_done(&facts.text);
}

void doctor_place(struct doctor *doctor, const char *uri, const struct mount_options *options)
{
	struct workspace_options place = {.pairs = options->backend_pairs, .strict = true};
	cleanup_free char *reason = NULL;
	struct workspace *workspace;
	int64_t began_ms = clock_now_ms();
	struct report report = {0};
	int r = workspace_open(uri, &place, &workspace, &reason);

	if (r < 0)
		doctor_say(&report, FOUND_FAULT, NULL, "%s", reason ? reason : strerror(-r));
	else
		doctor_say(&report, FOUND_GOOD, NULL, "reached \"%s\" in %lld ms", uri,
			(long long)(clock_now_ms() - began_ms));
	doctor_tell(doctor, "place", r < 0 ? FOUND_FAULT : FOUND_GOOD, &report);
	if (r < 0)
		return;
	examine_place(doctor, workspace);
	workspace_free(workspace);
}
