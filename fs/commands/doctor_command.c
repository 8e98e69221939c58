#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/open.h"
#include "fs/commands/command_line.h"
#include "fs/commands/commands.h"
#include "fs/commands/doctor.h"
#include "fs/commands/mount_options.h"
#include "fs/mount/runtime.h"
#include "ops/support/buffer.h"
#include "ops/support/cleanup.h"
#include "ops/support/path.h"
#include "ops/support/visible.h"

static const char usage[] =
	"usage: isthmus doctor [--json] [[-o OPTION,...] URI]\n"
	"\n"
	"Checks the requirements of isthmus on this machine, and says how to fix\n"
	"what is missing.  With a URI: connects to the workspace as mount does,\n"
	"without mounting it, and reports what the place supports.\n"
	"\n"
	"  -o OPTION,...  options of mount for the place\n"
	"      --json     print one JSON object\n"
	"\n"
	"Exit code 1: something that every mount needs is missing, or the place\n"
	"cannot be mounted.\n";

enum finding doctor_say(
	struct report *report, enum finding finding, const char *remedy, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(report->fact, sizeof(report->fact), format, arguments);
	va_end(arguments);
	report->remedy = remedy;
	return finding;
}

/* For root, who may have no sudo, without that. */
static char *remedy_here(const char *remedy)
{
	static const char sudo[] = "sudo ";
	cleanup_buffer struct buffer text = {0};
	const char *at;

	while (geteuid() == 0 && (at = strstr(remedy, sudo))) {
		buffer_append(&text, remedy, (size_t)(at - remedy));
		remedy = at + strlen(sudo);
	}
	buffer_append_string(&text, remedy);
	return buffer_steal_string(&text);
}

static void add_to_json(cJSON *checks, const char *check, const char *finding,
	const struct report *report, const char *remedy)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddStringToObject(object, "check", check);
	cJSON_AddStringToObject(object, "finding", finding);
	cJSON_AddStringToObject(object, "fact", report->fact);
	if (remedy)
		cJSON_AddStringToObject(object, "remedy", remedy);
	cJSON_AddItemToArray(checks, object);
}

void doctor_tell(
	struct doctor *doctor, const char *check, enum finding finding, const struct report *report)
{
	static const char *const words[] = {
		[FOUND_GOOD] = "ok",
		[FOUND_NOTE] = "note",
		[FOUND_WARNING] = "warning",
		[FOUND_FAULT] = "fault",
	};

	cleanup_free char *remedy = report->remedy ? remedy_here(report->remedy) : NULL;

	doctor->faults += finding == FOUND_FAULT;
	if (doctor->checks) {
		add_to_json(doctor->checks, check, words[finding], report, remedy);
		return;
	}
	printf("%-7s  %-13s  ", words[finding], check);
	visible_print(stdout, report->fact, strlen(report->fact), VISIBLE_INDENT);
	putchar('\n');
	if (remedy)
		printf("%26s%s\n", "-> ", remedy);
}

/* ---- Checks ----------------------------------------------------------------------------- */

static enum finding check_device(struct report *report)
{
	cleanup_fd int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	const char *remedy = "sudo modprobe fuse", *hint = "";

	if (fd >= 0)
		return doctor_say(report, FOUND_GOOD, NULL, "/dev/fuse can be opened");
	if (errno == ENOENT)
		hint = "; a container needs --device /dev/fuse --cap-add SYS_ADMIN";
	else if (errno == EACCES || errno == EPERM) {
		remedy = "sudo chmod 666 /dev/fuse";
		hint = "; a container needs --device /dev/fuse";
	}
	return doctor_say(report, FOUND_FAULT, remedy, "/dev/fuse: %s%s", strerror(errno), hint);
}

/* Looks at CapEff of proc(5): mount(2) needs bit 21, CAP_SYS_ADMIN. */
static bool may_mount(void)
{
	cleanup_file FILE *file = fopen("/proc/self/status", "re");
	unsigned long long effective = ~0ULL;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	return effective >> CAP_SYS_ADMIN & 1;
}

static enum finding check_right(struct report *report)
{
	if (geteuid() != 0)
		return doctor_say(report, FOUND_GOOD, NULL, "a user mounts with fusermount3");
	if (may_mount())
		return doctor_say(report, FOUND_GOOD, NULL, "root has CAP_SYS_ADMIN");
	return doctor_say(report, FOUND_FAULT, NULL,
		"root lacks the capability CAP_SYS_ADMIN and cannot mount; a container gets it by "
		"--cap-add SYS_ADMIN");
}

static enum finding check_fusermount(struct report *report)
{
	cleanup_free char *path = path_find_program("fusermount3");
	struct stat attributes;

	if (!path)
		return doctor_say(report, geteuid() == 0 ? FOUND_NOTE : FOUND_FAULT,
			"sudo apt-get install fuse3", "fusermount3 is not in PATH");
	if (geteuid() == 0 || (stat(path, &attributes) == 0 && (attributes.st_mode & S_ISUID) &&
				      attributes.st_uid == 0))
		return doctor_say(report, FOUND_GOOD, NULL, "%s exists", path);
	return doctor_say(report, FOUND_FAULT,
		"sudo chown root \"$(command -v fusermount3)\" && "
		"sudo chmod u+s \"$(command -v fusermount3)\"",
		"%s is not setuid root: only root can mount", path);
}

/* mount(8) looks in /sbin only; mount.fuse(8) finds programs in the usual directories. */
static enum finding check_mount_8(struct report *report)
{
	bool is_usual = access("/usr/bin/isthmus", X_OK) == 0 ||
			access("/usr/local/bin/isthmus", X_OK) == 0;

	if (access("/sbin/mount.fuse.isthmus", X_OK) == 0 ||
		(is_usual && access("/sbin/mount.fuse", X_OK) == 0))
		return doctor_say(report, FOUND_GOOD, NULL,
			"'mount -t fuse.isthmus' and lines of /etc/fstab work");
	return doctor_say(report, FOUND_NOTE,
		"sudo ln -s \"$(command -v isthmus)\" /sbin/mount.fuse.isthmus",
		"'mount -t fuse.isthmus' and lines of /etc/fstab do not find isthmus");
}

static enum finding check_allow_other(struct report *report)
{
	cleanup_file FILE *file = fopen("/etc/fuse.conf", "re");
	bool allowed = geteuid() == 0;
	char line[256];

	while (!allowed && file && fgets(line, sizeof(line), file))
		allowed = strncmp(line + strspn(line, " \t"), "user_allow_other",
				  strlen("user_allow_other")) == 0;
	if (allowed)
		return doctor_say(report, FOUND_GOOD, NULL, "-o allow_other works for all users");
	return doctor_say(report, FOUND_NOTE, "echo user_allow_other | sudo tee -a /etc/fuse.conf",
		"-o allow_other works for root only");
}

static enum finding check_ssh(struct report *report)
{
	cleanup_free char *path = path_find_program("ssh");

	if (path)
		return doctor_say(report, FOUND_GOOD, NULL, "%s exists", path);
	return doctor_say(report, FOUND_WARNING, "sudo apt-get install openssh-client",
		"ssh is not in PATH: no ssh:// workspaces");
}

static enum finding check_program(struct report *report, const char *name, const char *loss)
{
	cleanup_free char *path = command_find_program(name);

	if (path)
		return doctor_say(report, FOUND_GOOD, NULL, "%s exists", path);
	return doctor_say(report, FOUND_FAULT, "sudo meson install -C build",
		"%s was not found beside isthmus: %s", name, loss);
}

static enum finding check_tools(struct report *report)
{
	return check_program(
		report, "isthmus-tools", "'isthmus tool' and 'isthmus mcp' do not work");
}

static enum finding check_helper(struct report *report)
{
	return check_program(report, "isthmus-helper", "remote workspaces do not work");
}

static enum finding check_limit(struct report *report, const char *path, const char *name,
	unsigned long long wanted, const char *remedy)
{
	cleanup_file FILE *file = fopen(path, "re");
	unsigned long long limit;

	if (!file || fscanf(file, "%llu", &limit) != 1)
		return doctor_say(report, FOUND_WARNING, NULL,
			"no inotify (%s: %s): changes by others appear after -o ttl", path,
			strerror(errno));
	return doctor_say(report, limit >= wanted ? FOUND_GOOD : FOUND_WARNING,
		limit >= wanted ? NULL : remedy, "inotify: %llu %s per user%s", limit, name,
		limit >= wanted ? "" : ", too few for large local workspaces");
}

static enum finding check_watches(struct report *report)
{
	return check_limit(report, "/proc/sys/fs/inotify/max_user_watches", "watches", 65536,
		"sudo sysctl -w fs.inotify.max_user_watches=65536 | sudo tee "
		"/etc/sysctl.d/60-inotify-watches.conf");
}

static enum finding check_instances(struct report *report)
{
	return check_limit(report, "/proc/sys/fs/inotify/max_user_instances", "instances", 64,
		"sudo sysctl -w fs.inotify.max_user_instances=64 | sudo tee "
		"/etc/sysctl.d/60-inotify-instances.conf");
}

static enum finding check_open_files(struct report *report)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return doctor_say(report, FOUND_WARNING, NULL, "open files: %s", strerror(errno));
	if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= 4096)
		return doctor_say(report, FOUND_GOOD, NULL, "open files: the limit is sufficient");
	return doctor_say(report, FOUND_WARNING,
		"sudo prlimit --pid $$ --nofile=4096 # for this shell; limits.conf(5): for every "
		"login",
		"open files: at most %llu per process", (unsigned long long)limit.rlim_max);
}

/* A note only if an administrator can switch it on: most kernels do not support it. */
static enum finding check_io_uring(struct report *report)
{
	cleanup_file FILE *file = fopen("/sys/module/fuse/parameters/enable_uring", "re");
	int letter = file ? fgetc(file) : EOF;

	if (letter == 'Y')
		return doctor_say(
			report, FOUND_GOOD, NULL, "on in the kernel, for mounts with -o io_uring");
	if (letter != 'N')
		return doctor_say(report, FOUND_GOOD, NULL,
			"not supported for FUSE by this kernel; /dev/fuse is used");
	return doctor_say(report, FOUND_NOTE,
		"echo Y | sudo tee /sys/module/fuse/parameters/enable_uring # "
		"fuse.enable_uring=1 on the kernel's command line: at each boot",
		"off in the kernel: -o io_uring, which is faster, does not work");
}

static enum finding check_runtime(struct report *report)
{
	cleanup_free char *path = NULL;
	int r = runtime_directory(&path);

	if (r == 0)
		return doctor_say(report, FOUND_GOOD, NULL, "%s is private and can be used", path);
	path = runtime_directory_path();
	return doctor_say(report, FOUND_FAULT, "export XDG_RUNTIME_DIR=\"$(mktemp -d)\"", "%s: %s",
		path ? path : "their directory",
		r == -EPERM ? "belongs to another user, or others can access it" : strerror(-r));
}

static const struct {
	const char *name;
	enum finding (*run)(struct report *report);
} checks[] = {
	{"FUSE device", check_device},
	{"mount right", check_right},
	{"mount helper", check_fusermount},
	{"mount(8)", check_mount_8},
	{"runtime files", check_runtime},
	{"tool layer", check_tools},
	{"remote helper", check_helper},
	{"ssh", check_ssh},
	{"other users", check_allow_other},
	{"watches", check_watches},
	{"watchers", check_instances},
	{"open files", check_open_files},
	{"io_uring", check_io_uring},
};

static void check_machine(struct doctor *doctor)
{
	for (size_t i = 0; i < array_size(checks); i++) {
		struct report report = {0};
		enum finding finding = checks[i].run(&report);

		doctor_tell(doctor, checks[i].name, finding, &report);
	}
}

static int print_json(struct doctor *doctor, const char *uri)
{
	cJSON *object = cJSON_CreateObject();
	int code;

	if (uri)
		cJSON_AddStringToObject(object, "uri", uri);
	cJSON_AddNumberToObject(object, "faults", doctor->faults);
	cJSON_AddItemToObject(object, "checks", doctor->checks);
	code = command_print_json("doctor", object);
	cJSON_Delete(object);
	return code;
}

int doctor_command(int argc, char **argv)
{
	struct mount_options options = {0};
	struct doctor doctor = {0};
	bool as_json = false;
	const struct command_option known[] = {
		{"json", .flag = &as_json},
		{NULL, 'o', .set = mount_options_set, .into = &options},
		{0},
	};
	const struct command_line line = {
		.command = "doctor", .usage = usage, .options = known, .arguments_max = 1};
	cleanup_free char *uri = NULL;
	int code = 0;

	if (!command_parse(&line, argc, argv, &code)) {
		mount_options_done(&options);
		return code;
	}
	uri = argv[optind] ? workspace_uri(argv[optind]) : NULL;
	if (as_json)
		doctor.checks = cJSON_CreateArray();
	if (uri)
		doctor_place(&doctor, uri, &options);
	else
		check_machine(&doctor);
	mount_options_done(&options);
	if (as_json)
		code = print_json(&doctor, uri);
	else if (!uri && doctor.faults)
		printf("\n%d of %zu checks failed: see \"->\" for what to do.\n", doctor.faults,
			array_size(checks));
	return doctor.faults ? 1 : code;
}
