/* cmd:ARGV... !/dir - any command that gives its stdin and stdout to a shell somewhere else. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/client/end.h"

static int refuse(const char *rest, const char *what, char **ret_reason)
{
	if (asprintf(ret_reason,
		    "\"cmd:%s\": %s; write cmd:COMMAND ARGUMENT... !/dir, as in 'cmd:sudo -n -u "
		    "app !/srv/app'",
		    rest, what) < 0)
		*ret_reason = NULL;
	return -EINVAL;
}

/* One character of a word: as in a shell, a backslash takes the next one as it is, within double
 * quotes only '"', '\', '$' and '`'.  False at the end. */
static bool next_character(const char **text, char quote, char *ret_character)
{
	const char *c = *text;

	if (*c == '\\' && quote != '\'' && c[1] && (!quote || strchr("\"\\$`", c[1])))
		c++;
	*ret_character = *c;
	*text = c + 1;
	return *c;
}

/* Takes a word, which begins at `*text`.  -EINVAL: a quote is not closed. */
static int take_word(const char **text, const char *end, char *word)
{
	char quote = 0, c;

	while (*text < end && (quote || (**text != ' ' && **text != '\t'))) {
		if (quote ? **text == quote : **text == '\'' || **text == '"') {
			quote = quote ? 0 : **text;
			(*text)++;
		} else if (next_character(text, quote, &c)) {
			*word++ = c;
		}
	}
	*word = '\0';
	return quote ? -EINVAL : 0;
}

/* "{}" is where the shell is to be named; without it, it is the last word. */
static int split(const char *text, const char *end, struct argv *argv)
{
	cleanup_free char *word = malloc(strlen(text) + 1);
	bool has_shell = false;

	if (!word)
		return -ENOMEM;
	for (;;) {
		char *hole;

		text += strspn(text, " \t");
		if (text >= end)
			break;
		if (take_word(&text, end, word) < 0)
			return -EINVAL;
		hole = strstr(word, "{}");
		if (hole)
			memcpy(hole, "sh", 2);
		has_shell = has_shell || hole;
		argv_add(argv, word);
	}
	if (argv->count && !has_shell)
		argv_add(argv, "sh");
	return argv->failed ? -ENOMEM : argv->count ? 0 : -ENOENT;
}

/* The last "!" that a "/" or the end follows: a command may have others. */
static const char *find_directory(const char *rest)
{
	const char *found = NULL;

	for (const char *c = strchr(rest, '!'); c; c = strchr(c + 1, '!'))
		if (c[1] == '/' || !c[1])
			found = c;
	return found;
}

static int prepare(const char *rest, const struct workspace_options *options,
	struct remote_settings *settings, char **ret_reason)
{
	const char *mark = find_directory(rest);
	cleanup_argv struct argv argv = {0};
	int r;

	(void)options;
	if (!mark)
		return refuse(rest, "\"!\" and the directory are missing", ret_reason);
	r = split(rest, mark, &argv);
	if (r == -EINVAL)
		return refuse(rest, "a quote is not closed", ret_reason);
	if (r == -ENOENT)
		return refuse(rest, "there is no command", ret_reason);
	if (r < 0)
		return r;
	settings->root = strdup(mark + 1); /* "": where the shell begins */
	rest += strspn(rest, " ");
	while (mark > rest && mark[-1] == ' ')
		mark--;
	settings->transport.name = strndup(rest, (size_t)(mark - rest));
	settings->transport.gives_shell = true;
	if (!settings->root || !settings->transport.name)
		return -ENOMEM;
	return argv_steal(&argv, &settings->transport.argv);
}

static const struct end_advice advice[] = {
	{"cannot run", -ENOENT, "correct the command: it is run without a shell"},
	{"a password is required", -EACCES,
		"nobody can be asked: allow it without a password (NOPASSWD in sudoers)"},
	{"terminal is required", -EACCES,
		"nobody can be asked: allow it without a password (NOPASSWD in sudoers)"},
	{"assword:", -EACCES,
		"nobody can be asked for a password: let the command get in without one, by a key "
		"or a rule"},
	{"assphrase for", -EACCES,
		"nobody can be asked for a passphrase: load the key into the agent (ssh-add)"},
	{0},
};

static const struct end cmd_end = {
	.prepare = prepare,
	.advice = advice,
	.silent_advice =
		"the command, with \"sh\" as its last word (or where it has \"{}\"), must give a "
		"shell that reads its input and writes to its output, both unchanged, and ask "
		"nothing",
};

const struct scheme cmd_scheme = {
	.about = {.name = "cmd",
		.form = "cmd:COMMAND ARGUMENT... !/dir",
		.summary = "any command that starts a shell: sudo, nsenter, a script",
		.shared_options = remote_options},
	.open = remote_open,
	.end = &cmd_end,
};
