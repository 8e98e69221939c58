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
	if (strstr(text, "\ncontrolpersist no\n"))
		ret_options->sharing = "-oControlMaster=no";
}
