#include "backends/remote/client/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ops/support/clock.h"
#include "ops/support/hex.h"

enum {
	HELPER_MAX_BYTES = 64 << 20,
	REPLY_MAX_BYTES = 8 << 20, /* with the noise before it */
	STALL_MS = 15000,
	SHA256_TEXT_BYTES = 65,
	MARKER_BYTES = 48,
};

/* No backslash, "!" or newline inside the quotes: fish and csh must pass it on as it is.
 * `read` takes single bytes from a pipe, so the rest of the stream is untouched. */
#define LOOP "while read -r isthmus; do eval \"$isthmus\"; done"

const char bootstrap_script[] = LOOP;
/* By its path: what the shell there does first may have broken PATH. */
const char bootstrap_command[] = "exec /bin/sh -c '" LOOP "'";

/* Lines that do nothing, for a .bashrc that reads its standard input. */
static const char sacrificed_lines[] = ":\n:\n:\n";

/* Every answer is a line "MARKER word text".  The helper is looked for, and if need be put, in a
 * directory of our own (0700) that allows programs to run. */
static const char script_format[] =
	"m=%s; k=%s; P=$PATH; "
	"command -v uname >/dev/null 2>&1 || PATH=$PATH:/usr/local/bin:/usr/bin:/bin; "
	"run() { PATH=$P; exec \"$f\" $k; }; say() { printf '%%s %%s\\n' \"$m\" \"$*\"; }; why=; "
	"case $(uname -m) in %s *) say machine \"$(uname -s) $(uname -m)\"; exit 1;; esac; "
	"mine() { [ -d \"$1\" ] && [ ! -h \"$1\" ] && [ -O \"$1\" ]; }; "
	"good() { if command -v sha256sum >/dev/null 2>&1; then set -- $(sha256sum <\"$1\"); "
	"[ \"$1\" = $s ]; else set -- $(cksum <\"$1\"); [ \"$1 $2\" = \"$c $n\" ]; fi; }; "
	"u=$(id -u); each() { \"$1\" \"${XDG_CACHE_HOME:-$HOME/.cache}/isthmus\" || "
	"\"$1\" \"${TMPDIR:-/tmp}/isthmus-$u\" || \"$1\" \"/tmp/isthmus-$u\" || "
	"\"$1\" \"/dev/shm/isthmus-$u\" || \"$1\" \"/var/tmp/isthmus-$u\" || "
	"\"$1\" \"/run/isthmus-$u\" || volumes \"$1\"; }; "
	/* Whatever else is mounted for writing and running.  To look at a mount whose server does
	 * not answer (FUSE, NFS, 9p) would block: only kinds that have none. */
	"volumes() { [ -r /proc/mounts ] || return 1; while read -r x d t o y; do "
	"case \"$d\" in /dev*|/proc*|/sys*) continue;; esac; "
	"case $t in ext*|xfs|btrfs|zfs|f2fs|bcachefs|jfs|overlay|aufs|tmpfs|ramfs) ;; "
	"*) continue;; esac; "
	"case \",$o,\" in *,ro,*|*,noexec,*) continue;; esac; "
	"[ -d \"$d\" ] && \"$1\" \"${d%%/}/isthmus-$u\" && return 0; done </proc/mounts; return 1; "
	"}; "
	"look() { f=\"$1/isthmus-helper-$h\"; mine \"$1\" && [ -f \"$f\" ] && [ ! -h \"$f\" ] && "
	"[ -O \"$f\" ] && good \"$f\" && \"$f\" --check >/dev/null 2>&1; }; "
	"drop() { rm -f \"$t\"; rmdir \"$1\" 2>/dev/null; why=\"$why $1: $2;\"; return 1; }; "
	"room() { t=\"$1/upload.$$\"; f=\"$1/isthmus-helper-$h\"; "
	"(umask 077; mkdir -p \"$1\") 2>/dev/null; "
	"mine \"$1\" || { why=\"$why $1: cannot be made or is not ours;\"; return 1; }; "
	"chmod 700 \"$1\"; "
	"{ printf '#!/bin/sh\\nexit 0\\n' >\"$t\" && chmod 700 \"$t\"; } 2>/dev/null || "
	"drop \"$1\" 'not writable' || return 1; "
	"\"$t\" 2>/dev/null || drop \"$1\" 'programs may not run there (noexec)' || return 1; "
	/* A bare chroot has no devices. */
	"[ ! -c /dev/zero ] || "
	"dd if=/dev/zero of=\"$t\" bs=1024 count=$((n / 1024 + 1)) 2>/dev/null || "
	"drop \"$1\" 'no space' || return 1; }; "
	"if each look; then touch \"$f\" 2>/dev/null; say have; run; fi; "
	"if ! each room; then "
	/* In memory, by a program that is there already. */
	"for p in python3 perl; do command -v $p >/dev/null 2>&1 || continue; say need $a; "
	"if [ $p = perl ]; then exec perl -e '$^F=255; my ($n,$m,$s)=@ARGV; "
	"my $f=syscall($s,my $x=\"isthmus-helper\",0); exit 1 if $f<0; open(my $o,\">&=\",$f); "
	"while($n>0){my $r=sysread(STDIN,my $b,$n>65536?65536:$n) or exit 1; syswrite($o,$b,$r); "
	"$n-=$r} syswrite(STDOUT,\"$m ready\\n\"); exec {\"/proc/self/fd/$f\"} \"isthmus-helper\"' "
	"$n \"$m\" $(case $a in x86_64) echo 319;; armv7l) echo 385;; *) echo 279;; esac); fi; "
	"exec $p -c 'import os,sys; n=int(sys.argv[1]); f=os.memfd_create(\"isthmus-helper\",0); "
	"g=[0]; [g.__setitem__(0,g[0]+os.write(f,os.read(0,min(65536,n-g[0])) or sys.exit(1))) "
	"for _ in iter(lambda:g[0]<n,False)]; os.write(1,(sys.argv[2]+\" ready\\n\").encode()); "
	"os.execv(\"/proc/self/fd/%%d\"%%f,[\"isthmus-helper\"])' $n \"$m\"; done; "
	"say place \"$why\"; exit 1; fi; "
	"say need $a; "
	"if [ \"$(printf abc | head -c 2 2>/dev/null)\" = ab ]; then head -c $n >\"$t\"; "
	"else dd bs=1 count=$n of=\"$t\" 2>/dev/null; fi; "
	"if ! good \"$t\"; then rm -f \"$t\"; say damaged; exit 1; fi; "
	"chmod 700 \"$t\"; if ! \"$t\" --check >/dev/null 2>&1; then "
	"why=$(\"$t\" --check 2>&1); rm -f \"$t\"; say refused \"$f: $why\"; exit 1; fi; "
	"mv -f \"$t\" \"$f\"; find \"${f%%/*}\" -type f "
	"\\( -name 'isthmus-helper-*' -o -name 'upload.*' \\) -mtime +30 "
	"-exec rm -f {} + 2>/dev/null; say ready; run\n";

static const struct {
	const char *machine;
	const char *pattern; /* of `uname -m` */
} machines[] = {
	{"x86_64", "x86_64|amd64"},
	{"aarch64", "aarch64|arm64"},
	{"armv7l", "armv7*|armv8l"},
	{"riscv64", "riscv64"},
};

const char *bootstrap_machine(size_t index)
{
	struct utsname system;
	size_t own = 0;

	if (uname(&system) == 0)
		while (own < array_size(machines) &&
			strcmp(machines[own].machine, system.machine) != 0)
			own++;
	if (own < array_size(machines) && index <= own)
		index = index ? index - 1 : own;
	return index < array_size(machines) ? machines[index].machine : NULL;
}

/* ---- The helper's file ------------------------------------------------------------ */

static int find_in(const char *directory, const char *below, const char *name, char **ret_path)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/%s%s", directory, below, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (access(path, R_OK) < 0)
		return -ENOENT;
	*ret_path = steal_ptr(&path);
	return 0;
}

int bootstrap_find_helper(const char *directory, const char *machine, char **ret_path)
{
	static const char *const directories[] = {
		"", "../libexec/", "../backends/remote/", "../../backends/remote/"};
	char name[64] = "isthmus-helper", own[PATH_MAX];
	struct utsname system;
	ssize_t length;
	int r = -ENOENT;

	if (uname(&system) < 0)
		return -errno;
	if (machine && strcmp(machine, system.machine) != 0)
		snprintf(name, sizeof(name), "isthmus-helper-%s", machine);
	if (directory)
		return find_in(directory, "", name, ret_path);
	length = readlink("/proc/self/exe", own, sizeof(own) - 1);
	if (length < 0)
		return -errno;
	own[length] = '\0';
	*strrchr(own, '/') = '\0';
	for (size_t i = 0; i < array_size(directories) && r == -ENOENT; i++)
		r = find_in(own, directories[i], name, ret_path);
	return r;
}

char *bootstrap_no_helper(const char *directory)
{
	char *reason;

	if (!directory)
		return strdup("the program isthmus-helper is not beside isthmus nor in "
			      "../libexec: install it again");
	return asprintf(&reason,
		       "the program isthmus-helper is not in \"%s\": correct the option "
		       "helper_dir, or leave it out",
		       directory) < 0
		       ? NULL
		       : reason;
}

struct helper_file {
	struct buffer content;
	char sha256[SHA256_TEXT_BYTES];
	uint32_t cksum; /* as cksum(1) of POSIX */
};

static uint32_t posix_cksum(const uint8_t *data, size_t size)
{
	uint32_t crc = 0;
	size_t length = size;

	for (size_t i = 0; i < size || length; i++) {
		uint8_t byte = i < size ? data[i] : (uint8_t)length;

		if (i >= size)
			length >>= 8;
		crc ^= (uint32_t)byte << 24;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 0x80000000u ? crc << 1 ^ 0x04c11db7u : crc << 1;
	}
	return ~crc;
}

static int read_file(const char *path, struct buffer *content)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;
	ssize_t n;

	if (fd < 0 || fstat(fd, &info) < 0)
		return -errno;
	if (info.st_size > HELPER_MAX_BYTES)
		return -EFBIG;
	if (buffer_reserve(content, (size_t)info.st_size) < 0)
		return -ENOMEM;
	while (content->size < (size_t)info.st_size) {
		n = read(fd, content->data + content->size, (size_t)info.st_size - content->size);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		content->size += (size_t)n;
	}
	return 0;
}

static void helper_file_done(struct helper_file *file)
{
	buffer_done(&file->content);
}

static int load_helper_at(const char *path, struct helper_file *file)
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	struct sha256_ctx context;
	int r = read_file(path, &file->content);

	if (r < 0)
		return r;
	sha256_init(&context);
	sha256_update(&context, file->content.size, file->content.data);
	sha256_digest(&context, sizeof(digest), digest);
	hex_write(digest, sizeof(digest), file->sha256);
	file->cksum = posix_cksum(file->content.data, file->content.size);
	return 0;
}

static int load_helper(const char *directory, const char *machine, struct helper_file *file)
{
	cleanup_free char *path = NULL;
	int r = bootstrap_find_helper(directory, machine, &path);

	return r < 0 ? r : load_helper_at(path, file);
}

char *bootstrap_target(const char *directory, const char *helper_path)
{
	cleanup_with(helper_file_done) struct helper_file file = {0};
	char *target;

	if (load_helper_at(helper_path, &file) < 0 ||
		asprintf(&target, "%s/isthmus-helper-%.16s", directory, file.sha256) < 0)
		return NULL;
	return target;
}

/* ---- The conversation ---------------------------------------------------------------- */

struct conversation {
	struct stream *stream;
	struct helper_file helpers[array_size(machines)];
	char marker[MARKER_BYTES];
	struct buffer received; /* what came in and is not used yet */
	struct buffer *noise;
	int64_t *deadline_ms;
	bool has_uploaded;
};

static void conversation_done(struct conversation *c)
{
	for (size_t i = 0; i < array_size(machines); i++)
		helper_file_done(&c->helpers[i]);
	buffer_done(&c->received);
}

static int make_script(struct conversation *c, bool forgets, struct buffer *script)
{
	cleanup_buffer struct buffer cases = {0};
	int r = 0;

	for (size_t i = 0; i < array_size(machines) && r == 0; i++) {
		const struct helper_file *file = &c->helpers[i];

		if (file->content.size)
			r = buffer_printf(&cases, "%s) a=%s; n=%zu; s=%s; c=%u; h=%.16s;; ",
				machines[i].pattern, machines[i].machine, file->content.size,
				file->sha256, file->cksum, file->sha256);
	}
	if (r == 0)
		r = buffer_append(&cases, "", 1);
	return r < 0 ? r
		     : buffer_printf(script, script_format, c->marker, forgets ? "--forget" : "",
			       (char *)cases.data);
}

/* Takes the line after the marker out of what was received; false when it is not there yet. */
static bool find_answer(struct conversation *c, char *line, size_t size)
{
	size_t marker_length = strlen(c->marker);
	const char *start, *end;
	size_t length;

	if (!c->received.size)
		return false;
	start = memmem(c->received.data, c->received.size, c->marker, marker_length);
	if (!start)
		return false;
	end = memchr(start, '\n', c->received.size - (size_t)(start - (char *)c->received.data));
	if (!end)
		return false;
	buffer_append(c->noise, c->received.data, (size_t)(start - (char *)c->received.data));
	length = (size_t)(end - start) - marker_length;
	length = length < size - 1 ? length : size - 1;
	memcpy(line, start + marker_length, length);
	line[length] = '\0';
	buffer_consume(&c->received, (size_t)(end - (char *)c->received.data) + 1);
	return true;
}

/* Waits for the next answer of the script. */
static int hear(struct conversation *c, char *line, size_t size)
{
	while (!find_answer(c, line, size)) {
		struct pollfd ready = {.fd = c->stream->in_fd, .events = POLLIN};
		int64_t left_ms = *c->deadline_ms - clock_now_ms();
		char data[4096];
		ssize_t n = -ETIMEDOUT;

		if (left_ms > 0 && poll(&ready, 1, (int)left_ms) > 0) {
			n = read(c->stream->in_fd, data, sizeof(data));
			n = n < 0 ? -errno : n ? n : -EPIPE;
		}
		if (n == -EINTR || n == -EAGAIN)
			continue;
		if (n < 0 || c->received.size > REPLY_MAX_BYTES) {
			buffer_append(c->noise, c->received.data, c->received.size);
			return n < 0 ? (int)n : -EPROTO;
		}
		if (buffer_append(&c->received, data, (size_t)n) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int upload(struct conversation *c, const char *machine)
{
	for (size_t i = 0; i < array_size(machines); i++)
		if (strcmp(machine, machines[i].machine) == 0 && c->helpers[i].content.size)
			return stream_write(c->stream->out_fd, c->helpers[i].content.data,
				c->helpers[i].content.size, STALL_MS);
	return -EPROTO;
}

static const struct {
	const char *word;
	int error;
	const char *format;
} complaints[] = {
	{"machine", -EOPNOTSUPP,
		"there is no isthmus-helper for its kind of machine (%s); it must be Linux on "
		"x86_64, aarch64, armv7l or riscv64, and the helper for that must be installed "
		"here"},
	{"place", -EROFS,
		"found no directory to put isthmus-helper in:%s set XDG_CACHE_HOME there to one "
		"that is "
		"yours, writable, and allows programs to run"},
	{"damaged", -EIO, "the upload of isthmus-helper was damaged on its way%s; try again"},
	{"refused", -ENOEXEC, "the uploaded isthmus-helper does not run (%s)"},
};

static int take_answer(struct conversation *c, const char *line, bool *ret_done, char **ret_reason)
{
	char word[16] = "", rest[1024] = "";

	sscanf(line, " %15s %1023[^\n]", word, rest);
	*ret_done = strcmp(word, "have") == 0 || strcmp(word, "ready") == 0;
	if (*ret_done)
		return 0;
	if (strcmp(word, "need") == 0 && !c->has_uploaded) {
		int r = upload(c, rest);

		c->has_uploaded = true;
		*c->deadline_ms = clock_now_ms() + STALL_MS;
		return r;
	}
	for (size_t i = 0; i < array_size(complaints); i++) {
		if (strcmp(word, complaints[i].word) != 0)
			continue;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		if (asprintf(ret_reason, complaints[i].format, rest) < 0)
			*ret_reason = NULL;
#pragma GCC diagnostic pop
		return complaints[i].error;
	}
	return -EPROTO;
}

static int load_helpers(struct conversation *c, const char *directory, char **ret_reason)
{
	bool any = false;

	for (size_t i = 0; i < array_size(machines); i++) {
		int r = load_helper(directory, machines[i].machine, &c->helpers[i]);

		if (r < 0 && r != -ENOENT)
			return r;
		any = any || r == 0;
	}
	if (any)
		return 0;
	*ret_reason = bootstrap_no_helper(directory);
	return -ENOENT;
}

int bootstrap_run(struct stream *stream, const struct remote_settings *settings,
	int64_t *deadline_ms, struct buffer *noise, char **ret_reason)
{
	cleanup_with(conversation_done) struct conversation c = {
		.stream = stream, .noise = noise, .deadline_ms = deadline_ms};
	cleanup_buffer struct buffer script = {0};
	uint64_t nonce[2];
	char line[1200];
	bool done = false;
	int r = load_helpers(&c, settings->helper_directory, ret_reason);

	if (r < 0)
		return r;
	if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
		return -EIO;
	snprintf(c.marker, sizeof(c.marker), "isthmus-%016llx%016llx", (unsigned long long)nonce[0],
		(unsigned long long)nonce[1]);
	r = buffer_append_string(&script, sacrificed_lines);
	if (r == 0)
		r = make_script(&c, settings->forgets_helper, &script);
	if (r == 0)
		r = stream_write(
			stream->out_fd, script.data, script.size, transport_left_ms(*deadline_ms));
	if (r == -EPIPE)
		r = 0; /* what it said before it ended is worth hearing */
	while (r == 0 && !done) {
		r = hear(&c, line, sizeof(line));
		if (r == 0)
			r = take_answer(&c, line, &done, ret_reason);
	}
	return r;
}
