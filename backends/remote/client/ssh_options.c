#include "backends/remote/client/ssh_options.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "ops/support/cleanup.h"

enum { ANSWER_MAX_BYTES = 64 << 10, SILENCE_MAX_MS = 2000 };

/* What ssh -G says, from 6.7 to 9.9, when nobody has named ciphers. */
static const char preset_line[] =
	"\nciphers chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,"
	"aes128-gcm@openssh.com,aes256-gcm@openssh.com\n";
static const char preference[] = "-oCiphers=^aes128-gcm@openssh.com,aes256-gcm@openssh.com";

static bool processor_knows_aes(void)
{
#if defined(__x86_64__)
	unsigned eax, ebx, ecx, edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_AES) && (ecx & bit_PCLMUL);
#elif defined(__aarch64__)
	return (getauxval(AT_HWCAP) & (HWCAP_AES | HWCAP_PMULL)) == (HWCAP_AES | HWCAP_PMULL);
#else
	return false;
#endif
}

static int start(char *const *argv, int out_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attributes, &none);
	r = -posix_spawnp(ret_pid, argv[0], &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

static void read_answer(int fd, char *text, size_t size)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	size_t used = 0;

	while (used < size - 1 && poll(&ready, 1, SILENCE_MAX_MS) > 0) {
		ssize_t n = read(fd, text + used, size - 1 - used);

		if (n <= 0)
			break;
		used += (size_t)n;
	}
	text[used] = '\0';
}

static void ask(char *const *argv, char *text, size_t size)
{
	int ends[2];
	pid_t pid;
	int r;

	*text = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	r = start(argv, ends[1], &pid);
	close(ends[1]);
	if (r == 0) {
		read_answer(ends[0], text, size);
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close(ends[0]);
}

void ssh_options_find(char *const *argv, const char *host, struct ssh_options *ret_options)
{
	cleanup_free char **question = NULL;
	cleanup_free char *answer = malloc(ANSWER_MAX_BYTES);
	size_t count = 0;

	while (argv[count])
		count++;
	question = calloc(count + 4, sizeof(*question));
	if (!question || !answer)
		return;
	memcpy(question, argv, count * sizeof(*question));
	question[count] = (char *)(uintptr_t) "-G";
	question[count + 1] = (char *)(uintptr_t) "--";
	question[count + 2] = (char *)(uintptr_t)host;
	ask(question, answer, ANSWER_MAX_BYTES);
	if (processor_knows_aes() && strstr(answer, preset_line))
		ret_options->cipher = preference;
	if (strstr(answer, "\ncontrolpersist no\n"))
		ret_options->sharing = "-oControlMaster=no";
}
