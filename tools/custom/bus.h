/*
 * tools/custom/bus.h - what tools say to each other and to the agent, apart from their results.
 *
 * Events go to the other processes that subscribed to their channel, in their order, from a thread
 * of its own; a process that lives for the session is started for an event that its tools wait for.
 * Messages wait for the next result of any tool.
 * Threads: any.
 */
#pragma once

#include "tools/custom/lines.h"

/* Until custom_bus_leave() the process takes part.  `conversation` is where its messages go until
 * custom_bus_move().  0 or -ENOMEM. */
int custom_bus_join(
	struct custom_lines *lines, const struct custom_source *source, const char *conversation);
void custom_bus_move(struct custom_lines *lines, const char *conversation);
void custom_bus_leave(struct custom_lines *lines);

/* True when the process's message was about the bus, and is done. */
bool custom_bus_take(struct custom_lines *lines, const cJSON *message);

/* Waits until all events so far are delivered, `ms` at most. */
void custom_bus_drain(int ms);

/* No process takes part any more: ends the thread.  At most once. */
void custom_bus_end(void);
