/*
 * tools/custom/bus.h - events between custom tools, and their messages to the agent.
 *
 * A thread delivers each event, in order, to the other processes that subscribed to its channel.
 * If the tools of a source with "lifetime": "session" wait for the event, its process is started.
 * Messages are kept until the next result of any tool.
 * Threads: any.
 */
#pragma once

#include "tools/custom/lines.h"

/* Adds the process to the bus until custom_bus_leave().  Its messages go to `conversation` until
 * custom_bus_move() sets another one.  0 or -ENOMEM. */
int custom_bus_join(
	struct custom_lines *lines, const struct custom_source *source, const char *conversation);
void custom_bus_move(struct custom_lines *lines, const char *conversation);
void custom_bus_leave(struct custom_lines *lines);

/* Handles a message of the process if it is for the bus.  False: it is not. */
bool custom_bus_take(struct custom_lines *lines, const cJSON *message);

/* Waits, at most `ms`, until all events so far are delivered. */
void custom_bus_drain(int ms);

/* Ends the thread, after all processes have left.  Called at most once. */
void custom_bus_end(void);
