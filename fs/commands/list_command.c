#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "fs/commands/command_line.h"
#include "fs/commands/commands.h"
#include "fs/mount/runtime.h"
#include "ops/support/cleanup.h"
#include "ops/support/control.h"
#include "ops/support/json.h"
#include "ops/support/mountinfo.h"
#include "ops/support/visible.h"
#include "ops/support/worker_pool.h"
#include "ops/writeback/writeback.h"

static const char usage[] = "usage: isthmus list [--json]\n"
			    "\n"
			    "Shows the mounts of this user, including those whose daemon is dead.\n"
			    "\n"
			    "      --json  print one JSON array\n";

enum {
	PROBE_TRIES = 100, /* 5 ms apart */
	ANSWER_WAIT_S = 4, /* a daemon may wait 1 s of it for its link */
	THREAD_STACK_BYTES = 256 << 10,
};

enum listed_state { UNKNOWN, MOUNTED, GONE, DEAD, SILENT, STOPPED, ELSEWHERE };

static const struct {
	const char *name;
	const char *remedy; /* NULL: none is needed */
} states[] = {
	[UNKNOWN] = {"unknown", NULL},
	[MOUNTED] = {"mounted", NULL},
	[GONE] = {"gone", "its directory was moved or removed at the workspace: unmount it, and "
			  "mount again what is to be seen"},
	[DEAD] = {"dead", "its daemon is gone: run 'isthmus umount' on it"},
	[SILENT] = {"silent", "its daemon does not answer: 'isthmus umount --force' gives it up"},
	[STOPPED] = {"silent", "its daemon is stopped: continue it with 'kill -CONT' and its PID, "
			       "or give it up with 'isthmus umount --force'"},
	[ELSEWHERE] = {"elsewhere", "it is mounted in another mount namespace"},
};

/* A mount, from ID.json, the kernel's list, or both. */
struct listed {
	char *mount_point;
	char *uri;
	pid_t pid;           /* 0: unknown */
	unsigned connection; /* number of the FUSE connection, in the kernel's list */
	enum listed_state state;
	const struct runtime_mount *to_ask; /* NULL: no ID.json, or the daemon is dead */
};

struct list {
	struct listed *items;
	size_t count;
	bool no_memory;
};

static void list_done(struct list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].mount_point);
		free(list->items[i].uri);
	}
	free(list->items);
}

/* ---- Gathering: nothing here touches a mount point ------------------------------------- */

static struct listed *find_listed(struct list *list, const char *mount_point)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->items[i].mount_point, mount_point) == 0)
			return &list->items[i];
	return NULL;
}

static struct listed *add_listed(struct list *list, const char *mount_point, const char *uri)
{
	struct listed *more, *item;

	more = reallocarray(list->items, list->count + 1, sizeof(*more));
	if (!more) {
		list->no_memory = true;
		return NULL;
	}
	list->items = more;
	item = &more[list->count++];
	*item = (struct listed){.mount_point = strdup(mount_point), .uri = strdup(uri)};
	if (item->mount_point && item->uri)
		return item;
	free(item->mount_point);
	free(item->uri);
	list->count--;
	list->no_memory = true;
	return NULL;
}

static bool is_of_this_user(const struct mountinfo_line *line)
{
	char id[32];
	const char *found;

	if (strcmp(line->type, "fuse.isthmus") != 0)
		return false;
	snprintf(id, sizeof(id), "user_id=%u", geteuid());
	found = strstr(line->super_options, id);
	return found && strchr(",\n", found[strlen(id)]);
}

static bool add_mounted(void *user, const struct mountinfo_line *line)
{
	struct list *list = user;
	struct listed *item;

	if (!is_of_this_user(line))
		return true;
	item = find_listed(list, line->mount_point);
	if (!item)
		item = add_listed(list, line->mount_point, line->source);
	if (item)
		item->connection = line->minor;
	return true;
}

static void add_saved(struct list *list, const struct runtime_mount *mount)
{
	struct listed *item = find_listed(list, mount->mount_point);
	bool lives = runtime_is_alive(mount);

	if (item && item->connection && item->connection != mount->connection)
		item = NULL; /* another mount has replaced it */
	if (!item && !lives) {
		/* The daemon crashed, and the directory was unmounted since. */
		runtime_remove(mount->id);
		return;
	}
	if (!item) {
		item = add_listed(list, mount->mount_point, mount->uri);
		if (item)
			item->state = ELSEWHERE;
	} else {
		item->state = lives ? UNKNOWN : DEAD;
		item->to_ask = lives ? mount : NULL;
	}
	if (item)
		item->pid = lives ? mount->pid : 0;
}

/* ---- Asking ---------------------------------------------------------------------------- */

/* Checks a mount without an ID.json here (another XDG_RUNTIME_DIR).  A child process does that, as
 * the answer may never come. */
static enum listed_state probe(const struct listed *item)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	pid_t child = fork();
	char value[1];
	int status;

	/* This attribute is never in the kernel's caches, so the daemon is asked. */
	if (child == 0)
		_exit(getxattr(item->mount_point, "user.isthmus.uri", value, 0) < 0 &&
			errno == ENOTCONN);
	for (int i = 0; child > 0 && i < PROBE_TRIES; i++) {
		if (waitpid(child, &status, WNOHANG) == child)
			return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? DEAD : MOUNTED;
		nanosleep(&pause, NULL);
	}
	if (child > 0)
		kill(child, SIGKILL);
	return SILENT;
}

/* Asks a running daemon for the state of its mount. */
static enum listed_state ask_daemon(const struct runtime_mount *mount)
{
	static const char request[] = "{\"request\":\"status\",\"wait_ms\":1000}";
	cleanup_free char *reply = NULL;
	const char *root;
	cJSON *status;
	bool gone;
	int r;

	if (runtime_is_stopped(mount->pid))
		return STOPPED;
	r = control_call_within(mount->control_path, request, ANSWER_WAIT_S, &reply);
	if (r < 0) /* a refusal is an answer */
		return reply ? MOUNTED : SILENT;
	status = cJSON_Parse(reply);
	root = json_text(cJSON_GetObjectItemCaseSensitive(status, "workspace"), "root");
	gone = root && *root;
	cJSON_Delete(status);
	return gone ? GONE : MOUNTED;
}

static void ask_run(void *user)
{
	struct listed *item = user;

	item->state = item->to_ask ? ask_daemon(item->to_ask) : probe(item);
}

/* Asks all daemons in parallel, so that a slow or hanging one does not delay the others. */
static void ask_all(struct list *list)
{
	struct worker_pool pool;

	worker_pool_init(&pool, &(struct worker_limits){.name = "list",
					.stack_bytes = THREAD_STACK_BYTES,
					.threads_max = UINT_MAX});
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].state == UNKNOWN &&
			!worker_pool_submit(&pool, ask_run, &list->items[i]))
			ask_run(&list->items[i]);
	worker_pool_done(&pool);
}

/* ---- The list -------------------------------------------------------------------------- */

/* Reports that the runtime files cannot be read; the kernel's list is still shown. */
static void complain_of_directory(int error)
{
	cleanup_free char *path = runtime_directory_path();

	command_error("list",
		"the directory for runtime files, \"%s\": %s: showing only the mounts that the "
		"kernel "
		"lists; set XDG_RUNTIME_DIR to a directory that you own, with mode 0700",
		path ? path : "",
		error == -EPERM ? "it belongs to another user, or others can access it"
				: strerror(-error));
}

static int gather(struct list *list)
{
	struct runtime_mount *mounts = NULL;
	size_t count = 0;
	int r;

	r = mountinfo_walk(add_mounted, list);
	if (r < 0)
		return command_error("list", "/proc/self/mountinfo: %s", strerror(-r));
	r = runtime_list(&mounts, &count);
	if (r < 0)
		complain_of_directory(r);
	for (size_t i = 0; i < count; i++)
		add_saved(list, &mounts[i]);
	ask_all(list);
	runtime_list_free(mounts, count);
	return list->no_memory ? command_error("list", "out of memory") : 0;
}

/* ---- Printing ------------------------------------------------------------------------- */

static void print_list(const struct list *list)
{
	size_t width = strlen("MOUNT POINT");

	for (size_t i = 0; i < list->count; i++)
		if (strlen(list->items[i].mount_point) > width)
			width = strlen(list->items[i].mount_point);
	if (list->count > 0)
		printf("%-*s  %-9s  %7s  %s\n", (int)width, "MOUNT POINT", "STATE", "PID", "URI");
	for (size_t i = 0; i < list->count; i++) {
		const struct listed *item = &list->items[i];
		char pid[16] = "-";

		if (item->pid)
			snprintf(pid, sizeof(pid), "%d", item->pid);
		visible_print_name(stdout, item->mount_point);
		printf("%*s  %-9s  %7s  ", (int)(width - strlen(item->mount_point)), "",
			states[item->state].name, pid);
		visible_print_name(stdout, item->uri);
		putchar('\n');
		if (states[item->state].remedy)
			printf("    %s\n", states[item->state].remedy);
	}
}

/* Prints pending changes of former mounts (-o writes=back). */
static void print_waiting(void *user, const char *identity, uint64_t operations)
{
	(void)user;
	fputs("waiting: ", stdout);
	visible_print_name(stdout, identity);
	if (!operations)
		puts(" does not have changes yet that were made here with another version of "
		     "isthmus: mount it with that version");
	else
		printf(" does not have %llu changes yet that were made here: mount it again\n",
			(unsigned long long)operations);
}

static int print_json(const struct list *list)
{
	cJSON *array = cJSON_CreateArray();
	int code;

	for (size_t i = 0; i < list->count; i++) {
		const struct listed *item = &list->items[i];
		cJSON *object = cJSON_CreateObject();

		cJSON_AddStringToObject(object, "mount_point", item->mount_point);
		cJSON_AddStringToObject(object, "state", states[item->state].name);
		cJSON_AddStringToObject(object, "uri", item->uri);
		if (item->pid)
			cJSON_AddNumberToObject(object, "pid", item->pid);
		cJSON_AddItemToArray(array, object);
	}
	code = command_print_json("list", array);
	cJSON_Delete(array);
	return code;
}

int list_command(int argc, char **argv)
{
	cleanup_with(list_done) struct list list = {0};
	bool json = false;
	const struct command_option options[] = {{"json", .flag = &json}, {0}};
	const struct command_line line = {.command = "list", .usage = usage, .options = options};
	int code;

	if (!command_parse(&line, argc, argv, &code))
		return code;
	if (gather(&list) != 0)
		return 1;
	if (json)
		return print_json(&list);
	print_list(&list);
	writeback_each_waiting(print_waiting, NULL);
	return 0;
}
