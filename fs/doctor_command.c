#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/command_line.h"
#include "fs/command_text.h"
#include "fs/commands.h"
#include "fs/runtime.h"
#include "ops/support/cleanup.h"

static const char usage[] =
	"usage: isthmus doctor\n"
	"\n"
	"Checks what isthmus needs on this machine and says how to mend what is\n"
	"broken.  Exit code 1: something that every mount needs is missing.\n";

enum {
	WATCHES_WANTED = 65536,
	INSTANCES_WANTED = 64,
	FILES_WANTED = 4096,
};

enum finding { FOUND_GOOD, FOUND_NOTE, FOUND_BROKEN };

/* What a check has to say: the fact, and unless it is good, what to do. */
struct report {
	char fact[PATH_MAX + 256];
	char remedy[512];
};

#define say_fact(report, ...)   snprintf((report)->fact, sizeof((report)->fact), __VA_ARGS__)
#define say_remedy(report, ...) snprintf((report)->remedy, sizeof((report)->remedy), __VA_ARGS__)

static char *find_in_path(const char *name)
{
	const char *path = getenv("PATH");
	cleanup_free char *copy = strdup(path ? path : "/usr/bin:/bin");
	char *rest = copy, *directory, *found;

	while (copy && (directory = strsep(&rest, ":"))) {
		if (asprintf(&found, "%s/%s", *directory ? directory : ".", name) < 0)
			return NULL;
		if (access(found, X_OK) == 0)
			return found;
		free(found);
	}
	return NULL;
}

static bool read_number(const char *path, unsigned long long *ret_number)
{
	cleanup_file FILE *file = fopen(path, "re");

	return file && fscanf(file, "%llu", ret_number) == 1;
}

/* ---- Checks ----------------------------------------------------------------------------- */

static enum finding check_device(struct report *report)
{
	cleanup_fd int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		say_fact(report, "/dev/fuse can be opened");
		return FOUND_GOOD;
	}
	say_fact(report, "/dev/fuse: %s", strerror(errno));
	if (errno == ENOENT)
		say_remedy(report,
			"modprobe fuse (as root); in a container, start it with --device /dev/fuse "
			"--cap-add SYS_ADMIN");
	else if (errno == EACCES || errno == EPERM)
		say_remedy(report,
			"chmod 666 /dev/fuse (as root); in a container, allow the device with "
			"--device /dev/fuse");
	else
		say_remedy(report, "modprobe fuse (as root), and see dmesg");
	return FOUND_BROKEN;
}

/* CapEff of proc(5): mount(2) wants bit 21. */
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
	if (geteuid() != 0) {
		say_fact(report, "a user mounts with fusermount3");
		return FOUND_GOOD;
	}
	if (may_mount()) {
		say_fact(report, "root has CAP_SYS_ADMIN");
		return FOUND_GOOD;
	}
	say_fact(report, "root lacks the capability CAP_SYS_ADMIN and cannot mount");
	say_remedy(report, "start the container with --cap-add SYS_ADMIN");
	return FOUND_BROKEN;
}

static enum finding check_fusermount(struct report *report)
{
	cleanup_free char *path = find_in_path("fusermount3");
	struct stat attributes;

	if (!path) {
		say_fact(report, "fusermount3 is not in PATH");
		say_remedy(report, "apt-get install fuse3");
		return geteuid() == 0 ? FOUND_NOTE : FOUND_BROKEN;
	}
	say_fact(report, "%s is there", path);
	if (geteuid() == 0)
		return FOUND_GOOD;
	if (stat(path, &attributes) == 0 && (attributes.st_mode & S_ISUID) &&
		attributes.st_uid == 0)
		return FOUND_GOOD;
	say_fact(report, "%s is not setuid root: only root can mount", path);
	say_remedy(report, "chown root %s && chmod u+s %s (as root)", path, path);
	return FOUND_BROKEN;
}

static enum finding check_allow_other(struct report *report)
{
	cleanup_file FILE *file = fopen("/etc/fuse.conf", "re");
	char line[256];

	say_fact(report, "other users may be let in (-o allow_other)");
	if (geteuid() == 0)
		return FOUND_GOOD;
	while (file && fgets(line, sizeof(line), file)) {
		char *text = line + strspn(line, " \t");

		if (strncmp(text, "user_allow_other", strlen("user_allow_other")) == 0)
			return FOUND_GOOD;
	}
	say_fact(report, "-o allow_other is for root only");
	say_remedy(report, "if you want it: echo user_allow_other >>/etc/fuse.conf (as root)");
	return FOUND_NOTE;
}

static enum finding check_ssh(struct report *report)
{
	cleanup_free char *path = find_in_path("ssh");

	if (path) {
		say_fact(report, "%s is there", path);
		return FOUND_GOOD;
	}
	say_fact(report, "ssh is not in PATH: no ssh:// workspaces");
	say_remedy(report, "apt-get install openssh-client");
	return FOUND_NOTE;
}

static enum finding check_program(struct report *report, const char *name, const char *loss)
{
	cleanup_free char *path = command_find_program(name);

	if (path) {
		say_fact(report, "%s is there", path);
		return FOUND_GOOD;
	}
	say_fact(report, "%s is not beside isthmus: %s", name, loss);
	say_remedy(report, "install isthmus again (meson install -C build)");
	return FOUND_BROKEN;
}

static enum finding check_tools(struct report *report)
{
	return check_program(report, "isthmus-tools", "no 'isthmus tool' and 'isthmus mcp'");
}

static enum finding check_helper(struct report *report)
{
	return check_program(report, "isthmus-helper", "no remote workspaces");
}

static enum finding check_limit(
	struct report *report, const char *file, const char *name, unsigned long long wanted)
{
	unsigned long long limit;
	char path[96];

	snprintf(path, sizeof(path), "/proc/sys/fs/inotify/%s", file);
	if (!read_number(path, &limit)) {
		say_fact(report, "%s: %s", path, strerror(errno));
		say_remedy(
			report, "without inotify, changes by others show after the time-to-live");
		return FOUND_NOTE;
	}
	say_fact(report, "inotify: %llu %s for each user", limit, name);
	if (limit >= wanted)
		return FOUND_GOOD;
	say_remedy(report,
		"for large local workspaces: sysctl -w fs.inotify.%s=%llu (as root), and in "
		"/etc/sysctl.d/",
		file, wanted);
	return FOUND_NOTE;
}

static enum finding check_watches(struct report *report)
{
	return check_limit(report, "max_user_watches", "watches", WATCHES_WANTED);
}

static enum finding check_instances(struct report *report)
{
	return check_limit(report, "max_user_instances", "instances", INSTANCES_WANTED);
}

static enum finding check_open_files(struct report *report)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
		say_fact(report, "open files: %s", strerror(errno));
		return FOUND_NOTE;
	}
	if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= FILES_WANTED) {
		say_fact(report, "open files: enough for each process");
		return FOUND_GOOD;
	}
	say_fact(report, "open files: at most %llu for each process",
		(unsigned long long)limit.rlim_max);
	say_remedy(report, "raise the hard limit: ulimit -Hn %d, or /etc/security/limits.conf",
		FILES_WANTED);
	return FOUND_NOTE;
}

/* Only what an administrator can do something about: most kernels have it not. */
static enum finding check_io_uring(struct report *report)
{
	cleanup_file FILE *file = fopen("/sys/module/fuse/parameters/enable_uring", "re");
	int letter = file ? fgetc(file) : EOF;

	if (letter != 'N') {
		say_fact(report, letter == 'Y'
					 ? "on in the kernel, for mounts with -o io_uring"
					 : "this kernel has none for FUSE; /dev/fuse will do");
		return FOUND_GOOD;
	}
	say_fact(report, "off in the kernel: no mounts with -o io_uring, which are faster");
	say_remedy(report,
		"if you want it: echo Y >/sys/module/fuse/parameters/enable_uring (as root), and "
		"for the next boots fuse.enable_uring=1 on the kernel's command line");
	return FOUND_NOTE;
}

static enum finding check_runtime(struct report *report)
{
	cleanup_free char *path = NULL;
	int r = runtime_directory(&path);

	if (r == 0) {
		say_fact(report, "%s is private and can be used", path);
		return FOUND_GOOD;
	}
	path = runtime_directory_path();
	say_fact(report, "%s: %s", path ? path : "their directory",
		r == -EPERM ? "belongs to somebody else, or is open to others" : strerror(-r));
	say_remedy(report, "set XDG_RUNTIME_DIR to a directory of yours with mode 0700");
	return FOUND_BROKEN;
}

static const struct {
	const char *name;
	enum finding (*run)(struct report *report);
} checks[] = {
	{"FUSE device", check_device},
	{"mount right", check_right},
	{"mount helper", check_fusermount},
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

int doctor_command(int argc, char **argv)
{
	static const char *const words[] = {
		[FOUND_GOOD] = "good",
		[FOUND_NOTE] = "note",
		[FOUND_BROKEN] = "BROKEN",
	};
	const struct command_line line = {.command = "doctor", .usage = usage};
	int broken = 0, code;

	if (!command_parse(&line, argc, argv, &code))
		return code;
	for (size_t i = 0; i < array_size(checks); i++) {
		struct report report = {0};
		enum finding finding = checks[i].run(&report);

		broken += finding == FOUND_BROKEN;
		printf("%-6s  %-13s  ", words[finding], checks[i].name);
		command_print_safe(stdout, report.fact);
		putchar('\n');
		if (report.remedy[0])
			printf("%25s%s\n", "-> ", report.remedy);
	}
	if (broken)
		printf("\n%d of %zu checks failed: see \"->\" for what to do.\n", broken,
			array_size(checks));
	return broken ? 1 : 0;
}
