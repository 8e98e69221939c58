/*
 * backends/remote/wire/vsock.h - addresses of AF_VSOCK (vsock(7)).
 */
#pragma once

#include <sys/socket.h>

#include <linux/vm_sockets.h> /* needs sa_family_t */
