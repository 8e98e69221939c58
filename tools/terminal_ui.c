/* Questions of custom tools on the terminal; printed on stderr, so that the result can be piped. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "ops/support/files.h"
#include "ops/support/path.h"
#include "ops/support/visible.h"
#include "tools/base/options.h"
#include "tools/commands.h"

enum { TRIES = 3 };

static void show(const char *message)
{
	if (message && *message) {
		visible_print(stderr, message, strlen(message), VISIBLE_INDENT);
		fputc('\n', stderr);
	}
}

/* Reads a line without its line end; the caller frees it.  NULL: end of input, or the call was
 * interrupted. */
static char *read_line(struct tool_call *call, const char *prompt)
{
	char *line = NULL;
	size_t capacity = 0;

	fputs(prompt, stderr);
	if (tool_cancelled(call) || getline(&line, &capacity, stdin) < 0) {
		free(line);
		return NULL;
	}
	line[strcspn(line, "\r\n")] = '\0';
	return line;
}

static cJSON *ask_select(struct tool_call *call, const struct tool_question *question)
{
	int count = cJSON_GetArraySize(question->options);

	for (int i = 0; i < count; i++) {
		const char *option = cJSON_GetStringValue(cJSON_GetArrayItem(question->options, i));

		fprintf(stderr, "%3d  ", i + 1);
		show(option ? option : "?");
	}
	for (int tries = 0; tries < TRIES; tries++) {
		cleanup_free char *line = read_line(call, "Number (nothing: cancel): ");
		long number = line ? strtol(line, NULL, 10) : 0;

		if (!line || !*line)
			return NULL;
		if (number >= 1 && number <= count)
			return cJSON_Duplicate(
				cJSON_GetArrayItem(question->options, (int)number - 1), true);
	}
	return NULL;
}

static cJSON *ask_confirm(struct tool_call *call)
{
	for (int tries = 0; tries < TRIES; tries++) {
		cleanup_free char *line = read_line(call, "[y]es, [n]o: ");

		if (!line)
			return NULL;
		if (strcasecmp(line, "y") == 0 || strcasecmp(line, "yes") == 0)
			return cJSON_CreateTrue();
		if (strcasecmp(line, "n") == 0 || strcasecmp(line, "no") == 0)
			return cJSON_CreateFalse();
	}
	return NULL;
}

static cJSON *ask_input(struct tool_call *call, const struct tool_question *question)
{
	cleanup_free char *line = NULL;

	if (question->placeholder) {
		fputc('(', stderr);
		visible_print(stderr, question->placeholder, strlen(question->placeholder), 0);
		fputs(") ", stderr);
	}
	line = read_line(call, "> ");
	return line ? cJSON_CreateString(line) : NULL;
}

/* Runs $VISUAL or $EDITOR by the shell, which splits it into words, as git does. */
static int run_editor(const char *path)
{
	const char *editor = getenv("VISUAL");
	cleanup_free char *command = NULL;
	int status;
	pid_t child;

	if (!editor || !*editor)
		editor = getenv("EDITOR");
	command = string_printf("%s \"$0\"", editor && *editor ? editor : "vi");
	child = command ? fork() : -1;
	if (child == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", command, path, (char *)NULL);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return -1;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static cJSON *ask_editor(const struct tool_question *question)
{
	const char *directory = getenv("TMPDIR"),
		   *text = question->prefill ? question->prefill : "";
	cleanup_free char *path = path_join(directory ? directory : "/tmp", "isthmus-edit-XXXXXX");
	struct buffer content cleanup_buffer = {0};
	cJSON *value = NULL;
	int fd = path ? mkstemp(path) : -1; /* 0600 */

	if (fd < 0)
		return NULL;
	if (write_all(fd, text, strlen(text)) == 0 && run_editor(path) == 0 &&
		options_read_file(path, &content) == 0 && buffer_append(&content, "", 1) == 0)
		value = cJSON_CreateString((const char *)content.data);
	close(fd);
	unlink(path);
	return value;
}

cJSON *terminal_ask_user(struct tool_call *call, const struct tool_question *question)
{
	fprintf(stderr, "%s asks: ", call->tool->name);
	show(question->title);
	show(question->message);
	/* Discard input that was typed before the question was shown. */
	tcflush(STDIN_FILENO, TCIFLUSH);
	switch (question->kind) {
	case TOOL_ASK_SELECT:
		return ask_select(call, question);
	case TOOL_ASK_CONFIRM:
		return ask_confirm(call);
	case TOOL_ASK_INPUT:
		return ask_input(call, question);
	case TOOL_ASK_EDITOR:
		return ask_editor(question);
	}
	return NULL;
}

void terminal_tell_user(struct tool_call *call, const char *message)
{
	fprintf(stderr, "%s: ", call->tool->name);
	show(message);
}

/* The length of the escape sequence for colours and styles (SGR) at `text`; 0: there is none. */
static size_t style_length(const char *text)
{
	size_t length;

	if (strncmp(text, "\033[", 2) != 0)
		return 0;
	length = 2 + strspn(text + 2, "0123456789;");
	return text[length] == 'm' ? length + 1 : 0;
}

void terminal_print_styled(FILE *out, const char *text)
{
	bool styled = false, is_terminal = isatty(fileno(out));

	while (*text) {
		size_t style = style_length(text), size = style;

		if (style && is_terminal) {
			fwrite(text, 1, style, out);
			styled = true;
		} else if (!style) {
			size = 1;
			while (text[size] && !style_length(text + size))
				size++;
			visible_print(out, text, size, VISIBLE_LINES);
		}
		text += size;
	}
	fputs(styled ? "\033[0m\n" : "\n", out);
}

int terminal_width(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}
