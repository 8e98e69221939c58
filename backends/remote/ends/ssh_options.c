#include "backends/remote/ends/ssh_options.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "ops/support/argv.h"

enum { SILENCE_MAX_MS = 2000 };

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

/* What the configuration can say from OpenSSH 8.7 (ChannelTimeout: 9.2) on: an older ssh prints no
 * such line, and refuses the option. */
static const struct {
	const char *line; /* of ssh -G, to the value */
	const char *wanted;
	const char *option;
} session_options[SSH_SESSION_OPTIONS_MAX] = {
	{"\nstdinnull ", "no\n", "-oStdinNull=no"},
	{"\nsessiontype ", "default\n", "-oSessionType=default"},
	{"\nforkafterauthentication ", "no\n", "-oForkAfterAuthentication=no"},
	{"\nchanneltimeout ", "none\n", "-oChannelTimeout=none"},
};

static void find_session_options(const char *text, struct ssh_options *options)
{
	size_t count = 0;

	for (size_t i = 0; i < SSH_SESSION_OPTIONS_MAX; i++) {
		const char *line = session_options[i].line, *wanted = session_options[i].wanted;
		const char *found = strstr(text, line);

		if (found && strncmp(found + strlen(line), wanted, strlen(wanted)) != 0)
			options->session[count++] = session_options[i].option;
	}
}

void ssh_options_find(char *const *argv, const char *host, struct ssh_options *ret_options)
{
	cleanup_argv struct argv question = {0};
	cleanup_buffer struct buffer answer = {0};
	const char *text;

	argv_add_list(&question, argv);
	argv_add(&question, "-G");
	argv_add_two(&question, "--", host);
	if (question.failed || argv_ask(question.words, SILENCE_MAX_MS, &answer, NULL) < 0 ||
		!answer.data)
		return;
	text = (const char *)answer.data;
	if (processor_knows_aes() && strstr(text, preset_line))
		ret_options->cipher = preference;
	find_session_options(text, ret_options);
	if (strstr(text, "\ncontrolpersist no\n"))
		ret_options->sharing = "-oControlMaster=no";
}
