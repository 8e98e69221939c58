/*
 * fs/control/control.h - the control socket of a mount, for the program.
 */
#pragma once

#include "fs/mount/mount.h"

struct control_server;

/* Serves the protocol of ops/support/control.h on m->control_path (0600). */
int control_server_start(struct mount *m, struct control_server **ret_server);

/* Ends every connection and the command that runs for it, and removes the socket. */
void control_server_stop(struct control_server *server); /* NULL is fine */
