/*
 * backends/remote/ends/ssh_options.h - what ssh is told besides, which depends on its
 * configuration.
 */
#pragma once

enum { SSH_SESSION_OPTIONS_MAX = 4 };

/* Options to give to ssh, static; NULL: none. */
struct ssh_options {
	/* OpenSSH before 10.0 prefers chacha20-poly1305, which takes several times the processor
	 * time of AES-GCM where the processor knows AES.  Unless the user has chosen. */
	const char *cipher;

	/* What the user's configuration says for other uses of the host, and which would leave a
	 * session without its input, its command or its time.  NULL ends the list. */
	const char *session[SSH_SESSION_OPTIONS_MAX + 1];

	/* Others' sessions would end with a connection of ours that they share, unless
	 * ControlPersist keeps that. */
	const char *sharing;
};

/* `argv` runs ssh with the options for `host`, without the host; ssh is asked what it would do
 * there (ssh -G: nothing is connected to).  Takes milliseconds, 2 s at most. */
void ssh_options_find(char *const *argv, const char *host, struct ssh_options *ret_options);
