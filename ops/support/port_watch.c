#include "ops/support/port_watch.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/support/cleanup.h"
#include "ops/support/clock.h"
#include "ops/support/exec.h"

enum {
	SOCKETS_MAX = 1024,  /* listening ones that are looked at */
	LINES_MAX = 65536,   /* of /proc/net/tcp: a server may have many connections */
	ANCESTORS_MAX = 256, /* on the way up to the root */
	TCP_LISTENING = 10,
};

struct listening {
	uint64_t inode;
	uint16_t port;
	bool was_there;  /* at the look before */
	bool is_decided; /* it was reported, or will not be */
	bool is_ours;
};

struct listening_set {
	struct listening sockets[SOCKETS_MAX];
	size_t count;
};

struct port_watch {
	pid_t root;
	int64_t next_ms;
	struct listening_set sets[2]; /* of this look and the one before, in turns */
	unsigned turn;
	uint16_t reported[EXEC_PORTS_MAX];
	size_t reported_count;
};

struct port_watch *port_watch_new(pid_t root)
{
	struct port_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	watch->root = root;
	watch->next_ms = clock_now_ms() + PORT_WATCH_MS;
	return watch;
}

void port_watch_free(struct port_watch *watch)
{
	free(watch);
}

/* ---- What listens ------------------------------------------------------------------------ */

static struct listening *find(struct listening_set *set, uint64_t inode)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->sockets[i].inode == inode)
			return &set->sockets[i];
	return NULL;
}

static void read_sockets(const char *path, struct listening_set *set)
{
	cleanup_file FILE *file = fopen(path, "re");
	unsigned port, state;
	uint64_t inode;
	char line[512];

	for (int i = 0; file && i < LINES_MAX && fgets(line, sizeof(line), file); i++)
		if (set->count < SOCKETS_MAX &&
			sscanf(line, "%*s %*[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %" SCNu64, &port,
				&state, &inode) == 3 &&
			state == TCP_LISTENING && inode)
			set->sockets[set->count++] =
				(struct listening){.inode = inode, .port = (uint16_t)port};
}

/* ---- Whose it is ------------------------------------------------------------------------- */

/* Not from `stat`, which may wait: see process_tree.c.  0: it is gone. */
static pid_t parent_of(pid_t pid)
{
	cleanup_file FILE *file = NULL;
	char path[64], line[256];
	int parent;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "PPid: %d", &parent) == 1)
			return parent;
	return 0;
}

static bool is_below(pid_t pid, pid_t root)
{
	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		pid = parent_of(pid);
		if (pid == root)
			return true;
	}
	return false;
}

static void mark_sockets_of(const char *pid, struct listening_set *set)
{
	cleanup_dir DIR *directory = NULL;
	const struct dirent *entry;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		struct listening *socket;
		char target[64] = "";
		uint64_t inode;

		if (readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1) < 0 ||
			sscanf(target, "socket:[%" SCNu64 "]", &inode) != 1)
			continue;
		socket = find(set, inode);
		if (socket)
			socket->is_ours = true;
	}
}

static void mark_ours(const struct port_watch *watch, struct listening_set *set)
{
	cleanup_dir DIR *proc = opendir("/proc");
	const struct dirent *entry;

	while (proc && (entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]) &&
			is_below((pid_t)atoi(entry->d_name), watch->root))
			mark_sockets_of(entry->d_name, set);
}

/* ---- What is new -------------------------------------------------------------------------- */

static bool was_reported(const struct port_watch *watch, uint16_t port)
{
	for (size_t i = 0; i < watch->reported_count; i++)
		if (watch->reported[i] == port)
			return true;
	return false;
}

/* True: there are some that need to be decided on. */
static bool compare(struct listening_set *now, struct listening_set *before)
{
	bool undecided = false;

	for (size_t i = 0; i < now->count; i++) {
		const struct listening *earlier = find(before, now->sockets[i].inode);

		now->sockets[i].was_there = earlier;
		now->sockets[i].is_decided = earlier && earlier->is_decided;
		undecided |= earlier && !earlier->is_decided;
	}
	return undecided;
}

/* The others are left for the next look. */
static uint16_t find_next(const struct port_watch *watch, struct listening_set *set)
{
	for (size_t i = 0; i < set->count; i++) {
		struct listening *socket = &set->sockets[i];

		if (!socket->was_there || socket->is_decided)
			continue;
		socket->is_decided = true;
		if (socket->is_ours && !was_reported(watch, socket->port))
			return socket->port;
	}
	return 0;
}

uint16_t port_watch_look(struct port_watch *watch)
{
	struct listening_set *before = &watch->sets[watch->turn], *now = &watch->sets[!watch->turn];
	uint16_t port = 0;

	if (clock_now_ms() < watch->next_ms || watch->reported_count == EXEC_PORTS_MAX)
		return 0;
	watch->turn = !watch->turn;
	now->count = 0;
	read_sockets("/proc/net/tcp", now);
	read_sockets("/proc/net/tcp6", now);
	if (compare(now, before)) {
		mark_ours(watch, now);
		port = find_next(watch, now);
	}
	if (port)
		watch->reported[watch->reported_count++] = port;
	else
		watch->next_ms = clock_now_ms() + PORT_WATCH_MS;
	return port;
}
