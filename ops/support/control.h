/*
 * ops/support/control.h - talking to the daemon of a mount over its control socket.
 *
 * The socket is a unix stream socket, 0600, same user only.  Its path is the value of the
 * xattr "user.isthmus.control" of any file of the mount.  Both sides send frames:
 *
 *     u32 length of the payload (little-endian, at most CONTROL_FRAME_MAX_BYTES)
 *     u8  type (enum control_frame_type)
 *     payload
 *
 * A connection carries one request: the client's first frame is CONTROL_JSON with
 * {"request": NAME, ...}; the server answers CONTROL_JSON, or CONTROL_FAILURE
 * {"error": "ENOENT", "message": "for people"}, and closes.  Requests:
 *
 *   status           {wait_ms}  answer: as MNT/.isthmus/status, after the workspace was asked
 *                    for a sign of life, and where its root is, for 3 s (or wait_ms) at most;
 *                    with wait_ms 0 it is not asked
 *   stats            answer: as MNT/.isthmus/stats
 *   call_begin       {call_id, tool, pid, agent, user, conversation}    answer: {first_seq}
 *                    (pid: the caller, one of its threads, or a descendant; the last three may
 *                    be missing)
 *   call_join        {call_id, pid}          answer: {}: another thread works for it too
 *   call_end         {call_id}               answer: {last_seq}
 *                    EPERM for a call of another process tree; for an exec that names it, too.
 *   log_flush        answer: {last_seq, path}
 *   unmount          answer: {} once the session is ending
 *   exec             {argv: [..] | command: "..", cwd: "workspace path", cwd_is_absolute,
 *                     env: {"K": "V"}, timeout_ms, pty, rows, columns, stdin_closed, merged,
 * kill_leftovers, umask, call_id, ends_call, tell_ports} then frames: client STDIN, STDIN_EOF,
 * SIGNAL, RESIZE; server STDOUT, STDERR, with tell_ports LISTENING, at last EXIT.  When the client
 * closes the connection the process tree is killed. cwd_is_absolute: it may be a path of the
 * machine there, without its "/". merged: stdout and stderr are one pipe there, whose output is
 * STDOUT. umask: of a command on this machine. ends_call: EXIT is the answer of call_end, too:
 * {call_ended: true}, and last_seq is the call's.
 *
 *                    CONTROL_FAILURE instead when it did not start: ENOENT, EACCES and
 *                    ENOEXEC are of the program, ENOTDIR of cwd.  Also instead of EXIT, when how
 *                    it ended is not known: ECONNRESET (what ran it is gone), EIO.
 *
 *   connect          {endpoint}              a connection of the workspace's machine
 *   accept           {listener, connection}  one that was made to it
 *                    Frames as of exec, but no signals; STDOUT_END when the other end sends no
 *                    more.  EXIT with exit_code 1: it broke.  CONTROL_FAILURE: ECONNREFUSED, ...
 *   listen           {endpoint}              STDOUT: lines, as ops/support/socket_stream.h; no end
 *   forward          {text}                  answer: {}; goes into the log.  The connection stays
 *                    open until the client or the mount ends.
 *
 *   search           {path: "workspace path", texts: [..], ignore_case, names, context}
 *                    Before a tool walks through the directory: what it will need comes here, in
 *                    about one round trip, but for what .gitignore files leave out.  With texts
 *                    (at most 8), files are looked through at the workspace; names: a glob
 *                    without '/', for their names.  UNMATCHED: paths of files, from the
 *                    directory on, each with a NUL, in which none of the texts is; other files
 *                    may have one.  With context: EXCERPT, a frame for each file in which one is
 *                    on few lines: its path with a NUL, then these lines, with so many around
 *                    each, as ops/support/excerpt.h has them.  At last CONTROL_JSON {told: the
 *                    number of UNMATCHED files}.  Neither where that would be no use.
 *
 * Strings are bytes: those that are not UTF-8 go through as they are.
 * Integers beyond 2^53 do not occur.  Threads: a connection belongs to one thread, but one
 * thread may send while another receives.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "ops/support/buffer.h"

enum { CONTROL_FRAME_MAX_BYTES = 1 << 20 };

enum control_frame_type {
	CONTROL_JSON = 'J',
	CONTROL_FAILURE = 'F',
	CONTROL_STDIN = 'I',
	CONTROL_STDIN_EOF = 'D',
	CONTROL_SIGNAL = 'S', /* payload: u32 signal number, little-endian */
	CONTROL_RESIZE = 'W', /* payload: u16 rows, u16 columns, little-endian */
	CONTROL_STDOUT = 'O',
	CONTROL_STDERR = 'E',
	CONTROL_STDOUT_END = 'Z', /* of a connection: no more CONTROL_STDOUT comes */
	CONTROL_LISTENING = 'P',  /* payload: u16 port, little-endian */
	CONTROL_UNMATCHED = 'U',  /* of a search */
	CONTROL_EXCERPT = 'C',    /* of a search */
	CONTROL_EXIT = 'X',       /* payload: JSON {exit_code, signal, timed_out,
				   * changed: [paths], changed_truncated, first_seq, last_seq,
				   * call_ended, path: with exit code 127, the PATH there} */
};

/* Finds the mount that `path` (any file or directory) lies on: path of the control socket,
 * absolute path of the mount point, and the workspace path of `path` on it; all the
 * caller's to free, each ret_ may be NULL.  -ENOTCONN: a mount whose daemon is dead;
 * -ENODATA: not on a mount; -ENOENT. */
int control_find(
	const char *path, char **ret_socket, char **ret_mount_point, char **ret_workspace_path);

/* Connects (socket paths longer than sun_path included).  Returns the descriptor.
 * -ETIMEDOUT: a daemon that hangs; -ECONNREFUSED, -ENOENT: none is there; -EPERM: it is
 * another user's. */
int control_connect(const char *socket_path);

/* True when a daemon is there, even one that hangs.  Never waits. */
bool control_is_served(const char *socket_path);

/* True when the daemon answers a request within that many seconds. */
bool control_answers(const char *socket_path, time_t seconds);

/* Makes the socket (0600; one that is there already is replaced) and listens. */
int control_listen(const char *socket_path);

/* `option`: SO_SNDTIMEO or SO_RCVTIMEO; 0 s: none.  0 or -errno. */
int control_set_timeout(int fd, int option, time_t seconds);

/* 0, -EPIPE, -errno. */
int control_send(int fd, enum control_frame_type type, const void *payload, size_t size);

/* Waits for one frame; `payload` is replaced (and NUL-terminated beyond its size).
 * -ECONNRESET: closed by the other side; -EMSGSIZE; -errno. */
int control_receive(int fd, enum control_frame_type *ret_type, struct buffer *payload);

/* The negative errno that a CONTROL_FAILURE payload names (-EPROTO when it names none);
 * its message in `*ret_message`: allocated, or NULL. */
int control_failure(const struct buffer *payload, char **ret_message);

/* One request, one JSON answer (the caller frees `*ret_reply`).  On CONTROL_FAILURE the
 * negative errno it names, with its message in `*ret_reply`; else `*ret_reply` is NULL.
 * -ETIMEDOUT when the daemon has not answered for 20 s. */
int control_call(const char *socket_path, const char *request_json, char **ret_reply);

/* The same with another bound, `seconds`. */
int control_call_within(
	const char *socket_path, const char *request_json, time_t seconds, char **ret_reply);
