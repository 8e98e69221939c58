/*
 * backends/remote/ssh_cipher.h - the cipher for bulk data over ssh.
 *
 * OpenSSH before 10.0 prefers chacha20-poly1305, which takes several times the processor time of
 * AES-GCM where the processor knows AES.
 */
#pragma once

/* The option to give to ssh, static; NULL: its own choice is as good, or is the user's.
 * `argv` runs ssh with the options for `host`, without the host; ssh is asked what it would do
 * there (ssh -G: nothing is connected to).  Takes milliseconds, 2 s at most. */
const char *ssh_cipher_option(char *const *argv, const char *host);
