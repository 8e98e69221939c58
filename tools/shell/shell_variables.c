/* Names of variables and commands, and what they say. */
#include <ctype.h>
#include <string.h>

#include "ops/support/cleanup.h"
#include "tools/shell/shell.h"
#include "tools/shell/shell_programs.h"

bool shell_variable_is_harmless(const char *name, size_t length)
{
	static const char *const names[] = {"LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE",
		"LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "TZ", "NO_COLOR", "FORCE_COLOR", "CI",
		"COLUMNS", "LINES", "RUST_BACKTRACE", "PYTHONUNBUFFERED"};

	for (size_t i = 0; i < array_size(names); i++)
		if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
			return true;
	return false;
}

bool shell_variable_is_special(const char *name, size_t length)
{
	static const char *const names[] = {"PATH", "IFS", "ENV", "HOME", "SHELL", "SHELLOPTS",
		"POSIXLY_CORRECT", "GLOBIGNORE", "EXECIGNORE", "PROMPT_COMMAND", "PS4", "CDPATH",
		"EDITOR", "VISUAL", "BROWSER", "GCONV_PATH", "NLSPATH", "LOCPATH", "HOSTALIASES",
		"TMPDIR", "MAKEFLAGS", "MFLAGS", "GREP_OPTIONS", "TAR_OPTIONS", "RSYNC_RSH",
		"SSH_ASKPASS", "SUDO_ASKPASS", "OPENSSL_CONF", "CLASSPATH", "OPTIND", "FPATH",
		"histchars", "auto_resume"};
	static const char *const prefixes[] = {"LD_", "DYLD_", "GIT_", "BASH", "PYTHON", "NODE_",
		"PERL", "RUBY", "LUA_", "JAVA_", "_JAVA", "JDK_", "NPM_CONFIG_", "npm_config_",
		"RUSTC", "CARGO_", "GO", "GCC_", "LESS", "MAN", "XDG_", "RIPGREP_", "DOCKER_",
		"CMAKE_"};
	static const char pager[] = "PAGER";

	for (size_t i = 0; i < array_size(names); i++)
		if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
			return true;
	for (size_t i = 0; i < array_size(prefixes); i++)
		if (length >= strlen(prefixes[i]) &&
			memcmp(prefixes[i], name, strlen(prefixes[i])) == 0)
			return true;
	return length >= strlen(pager) &&
	       memcmp(name + length - strlen(pager), pager, strlen(pager)) == 0;
}

/* TZ=Europe/Berlin is harmless, TZ=../x is not. */
bool shell_setting_is_harmless(const char *name, size_t length, const char *value)
{
	return shell_variable_is_harmless(name, length) && *value != '/' && *value != ':' &&
	       !strstr(value, "..");
}

bool shell_variable_is_private(const char *name)
{
	for (; *name; name++)
		if (islower((unsigned char)*name))
			return true;
	return false;
}

bool shell_name_is_plain(const char *name)
{
	for (const char *at = name; *at; at++)
		if (!isascii((unsigned char)*at) ||
			(!isalnum((unsigned char)*at) && !strchr("_./,:+@%^-[", *at)))
			return false;
	return *name && *name != '-';
}
