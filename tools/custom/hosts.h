/*
 * tools/custom/hosts.h - processes that outlive a call: those of tools with "lifetime": "session".
 *
 * There is one for each source, started by the first call of one of its tools, or for an event that
 * they wait for.  Before a call it is told where the session is, when that has changed.
 * Threads: any.
 */
#pragma once

#include "tools/custom/lines.h"

struct custom_host;

/* There is a call, of any tool with events: from now on processes are started for them. */
void custom_hosts_begin(struct tool_session *session);

/* The process for the call's tool, with the call's channel open.  0 or -errno; -ECANCELED: the
 * call was cancelled while it waited for others. */
int custom_host_take(
	struct tool_call *call, struct custom_channel *channel, struct custom_host **ret_host);

struct custom_lines *custom_host_lines(const struct custom_host *host);

/* Closes the channel.  `is_stuck`: ends the process, so that the next call starts another. */
void custom_host_give_back(struct custom_host *host, struct custom_channel *channel, bool is_stuck);

/* The sources of which there may be hosts; they live on.  A process of another one, which was found
 * earlier, ends after its calls. */
void custom_hosts_know(const struct custom_source *sources, size_t count);

/* Tells those that run no call what happened to the sessions that they are in; those in `former` go
 * on in `current` (NULL: the session without a name).  One that is over is ended. */
void custom_hosts_catch_up(const char *former, const char *current);

/* Starts those whose tools wait for an event of the channel. */
void custom_hosts_wake(const char *channel);

/* Tells them that the session is over, and ends them. */
void custom_hosts_stop(void);
