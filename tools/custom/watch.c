/*
 * Notices that custom tools were added, removed or changed, without polling: inotify reports events
 * in the places and beside the tools; whether one matters is decided by comparing what a search
 * would find.  A place that is created later in a project needs trust, whose file is watched.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>

#include "ops/support/files.h"
#include "ops/support/log.h"
#include "ops/support/path.h"
#include "ops/support/thread.h"
#include "tools/custom/internal.h"
#include "tools/custom/session.h"

enum { SETTLE_MS = 300, EVENT_BYTES = 65536 };

static struct {
	const struct custom_options *options;
	void (*reload)(const struct custom_options *options);
	int fd;
	int sessions; /* the watch of the journals' directory; -1: none yet */
} watch;

/* Watches a path.  If it does not exist, watches its deepest existing ancestor, in which it would
 * be created, and returns -1; else returns the watch. */
static int add_watch(const char *path)
{
	const uint32_t mask = IN_CREATE | IN_DELETE | IN_MOVE | IN_CLOSE_WRITE | IN_ATTRIB |
			      IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
	cleanup_free char *at = strdup(path);
	int id = at ? inotify_add_watch(watch.fd, at, mask) : -1;

	while (id < 0 && at && strlen(at) > 1 && errno == ENOENT) {
		at[path_parent_length(at)] = '\0';
		if (inotify_add_watch(watch.fd, *at ? at : "/", IN_CREATE | IN_MOVED_TO) >= 0)
			break;
	}
	return id;
}

static void add_entry(const struct custom_entry *entry, struct buffer *state)
{
	cleanup_free char *stamp = custom_stamp(entry);

	add_watch(entry->directory);
	buffer_printf(state, "%s%s\n", entry->path, stamp ? stamp : "");
}

/* Adds the trust of each place once; its entries are adjacent. */
static void add_trust(const struct custom_entries *entries, struct buffer *state)
{
	const char *last = "";

	for (size_t i = 0; i < entries->count; i++) {
		const char *place = entries->list[i].place;

		if (place && strcmp(place, last) != 0)
			buffer_printf(state, "%s %d\n", place, (int)custom_trusted(place));
		last = place ? place : "";
	}
}

/* Adds watches for all present paths.  Returns what a search would find, as text that the caller
 * frees. */
static char *look_at_all(void)
{
	cleanup_free char *own = custom_config_path(""), *sessions = state_path("sessions");
	struct buffer state cleanup_buffer = {0};
	struct custom_entries entries;
	struct tool_session session;
	cJSON *settings = custom_settings();
	cleanup_free char *text = cJSON_PrintUnformatted(settings);

	buffer_printf(&state, "%s\n", text ? text : "");
	if (own)
		add_watch(own);
	watch.sessions = sessions ? add_watch(sessions) : -1;
	if (tool_session_open(watch.options->root, &session) == 0) {
		custom_find(watch.options, &session, settings, &entries);
		for (size_t i = 0; i < entries.place_count; i++)
			add_watch(entries.places[i]);
		for (size_t i = 0; i < entries.count; i++)
			add_entry(&entries.list[i], &state);
		add_trust(&entries, &state);
		custom_entries_done(&entries);
		tool_session_close(&session);
	}
	cJSON_Delete(settings);
	return buffer_steal_string(&state);
}

/* True if anything but a session changed.  Tells session events to the tools at once. */
static bool take_events(const char *events, ssize_t size)
{
	const struct inotify_event *event;
	bool matters = false, has_session = false;

	for (ssize_t at = 0; at < size; at += (ssize_t)(sizeof(*event) + event->len)) {
		event = (const struct inotify_event *)(const void *)(events + at);
		has_session |= event->wd == watch.sessions;
		matters |=
			event->wd != watch.sessions || event->mask & (IN_IGNORED | IN_Q_OVERFLOW);
	}
	if (has_session)
		custom_session_look();
	return matters;
}

/* Waits for an event, and then until no more events come for a moment. */
static bool await_change(char *events)
{
	struct pollfd wait = {.fd = watch.fd, .events = POLLIN};
	int patience_ms = -1;

	for (;;) {
		int ready = poll(&wait, 1, patience_ms);
		ssize_t got = ready > 0 ? read(watch.fd, events, EVENT_BYTES) : ready;

		if (ready == 0)
			return true;
		if (got < 0 && errno != EINTR)
			return false;
		if (take_events(events, got))
			patience_ms = SETTLE_MS;
	}
}

static void *run(void *user)
{
	cleanup_free char *known = user, *events = malloc(EVENT_BYTES);

	/* The first comparison also finds changes between the search and the watches. */
	while (known && events) {
		cleanup_free char *now = look_at_all();

		if (now && strcmp(now, known) != 0) {
			watch.reload(watch.options);
			free(known);
			known = steal_ptr(&now);
		}
		custom_session_look();
		if (!await_change(events))
			break;
	}
	close(watch.fd);
	return NULL;
}

void custom_watch(
	const struct custom_options *options, void (*reload)(const struct custom_options *))
{
	pthread_t thread;
	char *known;

	watch.options = options;
	watch.reload = reload;
	watch.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (watch.fd < 0) {
		log_info("cannot watch for changes of custom tools: %s, going on without",
			strerror(errno));
		return;
	}
	known = look_at_all();
	if (thread_start(&thread, "tools-watch", 0, run, known) < 0) {
		free(known);
		close(watch.fd);
		return;
	}
	pthread_detach(thread); /* runs until the process ends */
}
