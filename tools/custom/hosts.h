/*
 * tools/custom/hosts.h - processes that outlive a call: those of tools with "lifetime": "session".
 *
 * Each source has one process.  The first call of one of its tools starts it, or an event that they
 * wait for.  Before a call, the process is told the session's present position if that has changed.
 * Threads: any.
 */
#pragma once

#include "tools/custom/lines.h"

struct custom_host;

/* A tool was called: from now on events start processes, in this session. */
void custom_hosts_begin(struct tool_session *session);

/* Gets the process for the call's tool, and opens the call's channel.  0 or -errno; -ECANCELED: the
 * call was cancelled while it waited for other calls. */
int custom_host_take(
	struct tool_call *call, struct custom_channel *channel, struct custom_host **ret_host);

struct custom_lines *custom_host_lines(const struct custom_host *host);

/* Closes the channel.  `is_stuck`: ends the process, so that the next call starts another. */
void custom_host_give_back(struct custom_host *host, struct custom_channel *channel, bool is_stuck);

/* Sets the present sources, which must live as long as the program.  A process of a former source
 * that is not among them ends after its calls. */
void custom_hosts_know(const struct custom_source *sources, size_t count);

/* Tells the processes without a running call what happened to their sessions; moves those in
 * `former` to `current` (NULL: the one without a name).  Ends those whose session is over. */
void custom_hosts_catch_up(const char *former, const char *current);

/* Starts the processes whose tools wait for an event of the channel. */
void custom_hosts_wake(const char *channel);

/* Tells all processes that the session is over, and ends them. */
void custom_hosts_stop(void);
