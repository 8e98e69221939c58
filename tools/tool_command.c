/* isthmus tool NAME: one tool call from the command line. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <termios.h>

#include "ops/support/json.h"
#include "ops/support/visible.h"
#include "tools/base/options.h"
#include "tools/base/registry.h"
#include "tools/base/tool.h"
#include "tools/commands.h"
#include "tools/custom/custom.h"
#include "tools/custom/messages.h"
#include "tools/custom/session.h"
#include "tools/permission/permission.h"
#include "tools/run.h"
#include "tools/syntax/syntax.h"

/* Exit statuses.  The tool bash passes on that of its command. */
enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 130 };

static const char usage[] =
	"usage: isthmus tool NAME [--OPTION VALUE]... [VALUE]...\n"
	"       isthmus tool list [--json]        all tools: where each is from, and whether it "
	"works\n"
	"       isthmus tool trust [--yes]        trust the project's custom tools\n"
	"       isthmus tool new NAME [--lang sh|python|c|ts]\n"
	"       isthmus tool render CALL [--expanded]   let a custom tool draw an earlier call\n"
	"\n"
	"  --root DIR       work below DIR (default: the current directory)\n"
	"  --json JSON      all arguments; \"-\": read them from standard input\n"
	"  --output FORMAT  text (default) or json: the whole result\n"
	"  --policy FILE    read further permission rules\n"
	"  --yes            allow everything that no rule denies\n"
	"  --tool PATH      also use the custom tool in PATH (may be repeated)\n"
	"  --expanded       show a custom tool's drawing of its result in full\n"
	"  --call-id ID     record the call under this id in the mount's log\n"
	"  --agent NAME, --user NAME, --conversation ID\n"
	"                   recorded in the mount's log\n"
	"\n"
	"isthmus tool NAME --help shows the options of a tool; see also isthmus-tools(1).\n";

struct request {
	const char *root;
	const char *json;
	const char *call_id;
	const char *policy;
	const char *agent, *user, *conversation;
	bool yes;
	bool as_json;
	bool expanded;
	bool help;
	struct custom_options custom;
	int argc; /* the options of the tool */
	char **argv;
};

static struct tool_call *current_call;

static void on_signal(int signal)
{
	(void)signal;
	if (current_call)
		tool_cancel(current_call);
}

static int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int complain(const char *format, ...)
{
	va_list arguments;

	struct buffer text cleanup_buffer = {0};

	va_start(arguments, format);
	buffer_vprintf(&text, format, arguments);
	va_end(arguments);
	fputs("isthmus tool: ", stderr);
	visible_print(stderr, text.data, text.size, VISIBLE_INDENT);
	fputc('\n', stderr);
	return EXIT_USAGE;
}

/* Takes the option "--name VALUE" or "--name=VALUE" at *index. */
static bool take_option(const char *name, int argc, char **argv, int *index, const char **ret_value)
{
	size_t length = strlen(name);

	if (strncmp(argv[*index], name, length) != 0)
		return false;
	if (argv[*index][length] == '=') {
		*ret_value = argv[*index] + length + 1;
		return true;
	}
	if (argv[*index][length] || *index + 1 >= argc)
		return false;
	*ret_value = argv[++*index];
	return true;
}

static int add_custom(struct custom_options *custom, const char *path)
{
	if (custom->path_count == CUSTOM_PATHS_MAX)
		return complain("more than %d times --tool", CUSTOM_PATHS_MAX);
	custom->paths[custom->path_count++] = path;
	return EXIT_OK;
}

static int split_words(int argc, char **argv, struct request *request)
{
	request->argv = argv;
	for (int i = 0; i < argc; i++) {
		const char *format = NULL, *path = NULL;

		if (take_option("--root", argc, argv, &i, &request->root) ||
			take_option("--json", argc, argv, &i, &request->json) ||
			take_option("--policy", argc, argv, &i, &request->policy) ||
			take_option("--call-id", argc, argv, &i, &request->call_id) ||
			take_option("--agent", argc, argv, &i, &request->agent) ||
			take_option("--user", argc, argv, &i, &request->user) ||
			take_option("--conversation", argc, argv, &i, &request->conversation))
			continue;
		if (take_option("--output", argc, argv, &i, &format)) {
			request->as_json = strcmp(format, "json") == 0;
			if (!request->as_json && strcmp(format, "text") != 0)
				return complain("--output is text or json, not \"%s\"", format);
		} else if (take_option("--tool", argc, argv, &i, &path)) {
			if (add_custom(&request->custom, path) != EXIT_OK)
				return EXIT_USAGE;
		} else if (strcmp(argv[i], "--yes") == 0) {
			request->yes = true;
		} else if (strcmp(argv[i], "--expanded") == 0) {
			request->expanded = true;
		} else if (strcmp(argv[i], "--help") == 0) {
			request->help = true;
		} else {
			/* "--" also ends the options of this command. */
			bool end = strcmp(argv[i], "--") == 0;

			request->argv[request->argc++] = argv[i];
			while (end && ++i < argc)
				request->argv[request->argc++] = argv[i];
		}
	}
	return EXIT_OK;
}

static int print_json(cJSON *json)
{
	cleanup_free char *text = cJSON_Print(json);

	cJSON_Delete(json);
	if (!text)
		return EXIT_FAILED;
	visible_print(stdout, text, strlen(text), VISIBLE_JSON);
	putchar('\n');
	return fflush(stdout) == 0 ? EXIT_OK : EXIT_FAILED;
}

static int print_help(const struct tool *tool)
{
	cJSON *schema = cJSON_Parse(tool->input_schema);
	struct buffer text cleanup_buffer = {0};

	options_help(schema, &text);
	cJSON_Delete(schema);
	printf("%s: %s\n\n%.*s", tool->name, tool->description, (int)text.size,
		(const char *)text.data);
	return EXIT_OK;
}

/* NULL with half a sentence in `problem`. */
static cJSON *parse_json(const char *given, struct buffer *problem)
{
	struct buffer text cleanup_buffer = {0};
	struct syntax_error error;
	cJSON *arguments = NULL;
	int r = strcmp(given, "-") == 0 ? options_read_file("-", &text)
					: buffer_append_string(&text, given);

	if (r < 0 || buffer_append(&text, "", 1) < 0)
		buffer_append_string(problem, "the JSON cannot be read");
	else if (syntax_json(text.data, text.size - 1, 0, &error) < 0)
		buffer_printf(problem, "the JSON is not valid at line %zu, column %zu: %s",
			error.line, error.column, error.message);
	else if (json_has_escaped_nul((const char *)text.data, text.size - 1))
		buffer_append_string(
			problem, "\\u0000 cannot be part of a path, a command or a text file here");
	else
		arguments = cJSON_Parse((const char *)text.data);
	if (arguments && !cJSON_IsObject(arguments)) {
		cJSON_Delete(arguments);
		arguments = NULL;
	}
	if (!arguments && !problem->size)
		buffer_append_string(problem, "--json needs a JSON object");
	return arguments;
}

static int make_arguments(
	const struct tool *tool, const struct request *request, cJSON **ret_arguments)
{
	cJSON *schema = cJSON_Parse(tool->input_schema);
	struct buffer problem cleanup_buffer = {0};
	cJSON *arguments =
		request->json ? parse_json(request->json, &problem) : cJSON_CreateObject();
	int r = 0;

	if (arguments)
		r = options_parse(schema, request->argc, request->argv, arguments, &problem);
	cJSON_Delete(schema);
	if (r < 0 || problem.size) {
		cJSON_Delete(arguments);
		return complain("%s: %.*s; see isthmus tool %s --help", tool->name,
			(int)problem.size, (const char *)problem.data, tool->name);
	}
	*ret_arguments = arguments;
	return EXIT_OK;
}

/* ---- Asking on the terminal ---------------------------------------------------------- */

static bool terminal_is_there(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* "y" or "yes": 1; "n" or "no": 0; else -1. */
static int understand(const char *answer)
{
	static const char *const words[] = {"n", "no", "y", "yes"};

	for (size_t i = 0; i < array_size(words); i++)
		if (strcasecmp(answer, words[i]) == 0)
			return i >= 2;
	return -1;
}

/* On the command line a session is one call, so PERMISSION_ALWAYS is not offered. */
static int ask_on_terminal(struct tool_call *call, const struct permission_question *question)
{
	struct permission_question once = *question;
	struct buffer text cleanup_buffer = {0};
	cleanup_free char *line = NULL;
	size_t capacity = 0;

	once.remember_count = 0;
	if (permission_question_text(&once, &text) < 0 || buffer_append(&text, "\n", 1) < 0)
		return PERMISSION_NO;
	fwrite(text.data, 1, text.size, stderr);
	/* Discard input that was typed before the question was shown. */
	tcflush(STDIN_FILENO, TCIFLUSH);
	for (int tries = 0; tries < 3 && !tool_cancelled(call); tries++) {
		int answer;

		fputs("Allow it? [y]es, [n]o: ", stderr);
		if (getline(&line, &capacity, stdin) < 0)
			break;
		line[strcspn(line, "\r\n")] = '\0';
		answer = understand(line);
		if (answer >= 0)
			return answer ? PERMISSION_ONCE : PERMISSION_NO;
	}
	return PERMISSION_NO;
}

/* Output to stdout: unchanged to a program, with invisible characters escaped on a terminal. */
struct output {
	bool is_terminal;
	bool streamed;
	struct visible_stream stream;
	const char *tool;
	char *drawn; /* the result as a custom tool draws it; NULL: not drawn */
};

static void print_piece(struct output *output, const void *text, size_t size, bool last)
{
	if (output->is_terminal)
		visible_stream_print(&output->stream, stdout, text, size, last);
	else if (size)
		fwrite(text, 1, size, stdout);
}

static void stream(void *user, const char *text, size_t size)
{
	struct output *output = user;

	output->streamed = true;
	print_piece(output, text, size, false);
	fflush(stdout);
}

/* Shows the partial result as one line, which replaces the one before. */
static void show_partial(void *user, const char *text, size_t size)
{
	const char *end = memchr(text, '\n', size);

	(void)user;
	if (!isatty(STDERR_FILENO))
		return;
	fputs("\r\033[K", stderr);
	visible_print(stderr, text, end ? (size_t)(end - text) : size, 0);
	fflush(stderr);
}

static void draw(void *user, enum tool_phase phase, const char *text)
{
	struct output *output = user;

	if (phase == TOOL_PHASE_PARTIAL && text) {
		show_partial(user, text, strlen(text));
	} else if (phase == TOOL_PHASE_CALL) {
		terminal_print_styled(stderr, text ? text : output->tool);
	} else if (phase == TOOL_PHASE_RESULT) {
		fputs("\r\033[K", stderr);
		output->drawn = text ? strdup(text) : NULL;
	}
}

static void set_sink(struct tool_call *call, const struct request *request, struct output *output)
{
	output->tool = call->tool->name;
	call->sink = (struct tool_sink){.update = stream,
		.partial = show_partial,
		.width = terminal_width(),
		.expanded = request->expanded,
		.user = output};
	if (output->is_terminal && isatty(STDERR_FILENO))
		call->sink.drawn = draw;
}

static int exit_code(const struct tool_call *call)
{
	if (call->code == TOOL_ABORTED)
		return EXIT_INTERRUPTED;
	if (call->exit_code || call->code == TOOL_OK)
		return call->exit_code;
	return call->code == TOOL_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

/* Prints the notice about output that was left out, which was not known while streaming. */
static void show_notice(const struct tool_call *call)
{
	const char *notice = json_text(call->data, "notice");

	if (notice) {
		visible_print(stderr, notice, strlen(notice), VISIBLE_LINES);
		fputc('\n', stderr);
	}
}

static void show_error(const struct tool_call *call)
{
	const char *text = call->ai_message ? call->ai_message : tool_error_info(call->code)->name;

	fputs("isthmus tool: ", stderr);
	visible_print(stderr, text, strlen(text), VISIBLE_INDENT);
	fputc('\n', stderr);
}

/* Prints the messages of custom tools. */
static void show_messages(const struct tool_call *call)
{
	cJSON *messages = custom_messages_take(tool_conversation(call));
	const cJSON *message;

	cJSON_ArrayForEach(message, messages) {
		const char *text = json_text(message, "text");

		visible_print(stderr, text, strlen(text), VISIBLE_INDENT);
		fputc('\n', stderr);
	}
	cJSON_Delete(messages);
}

static int show(const struct tool_call *call, const struct request *request, struct output *output)
{
	if (request->as_json)
		return print_json(tool_result_json(call)) == EXIT_OK ? exit_code(call)
								     : EXIT_FAILED;
	if (output->streamed) {
		print_piece(output, "", 0, true);
		fflush(stdout);
		show_notice(call);
	} else if (output->drawn) {
		terminal_print_styled(stdout, output->drawn);
	} else if (call->text.size) {
		print_piece(output, call->text.data, call->text.size, true);
		if (call->text.data[call->text.size - 1] != '\n')
			fputc('\n', stdout);
	}
	if (fflush(stdout) != 0)
		return complain("cannot write the result: %s", strerror(errno));
	if (call->code != TOOL_OK)
		show_error(call);
	return exit_code(call);
}

static int run(const struct tool *tool, const struct request *request, cJSON *arguments)
{
	const struct sigaction action = {.sa_handler = on_signal};
	struct tool_session session;
	struct output output = {.is_terminal = isatty(STDOUT_FILENO)};
	cleanup_free char *conversation = custom_session_current();
	int code;

	if (open_session(request->root, request->policy, request->yes, &session) < 0) {
		cJSON_Delete(arguments);
		return EXIT_USAGE;
	}
	current_call = tool_call_new(&session, tool, arguments, request->call_id);
	if (!current_call)
		return complain("not enough memory");
	session.user = request->user;
	session.conversation = conversation;
	if (request->agent)
		snprintf(current_call->agent, sizeof(current_call->agent), "%s", request->agent);
	if (terminal_is_there())
		current_call->ask_permission = ask_on_terminal;
	if (terminal_is_there())
		current_call->ask_user = terminal_ask_user;
	current_call->tell_user = terminal_tell_user;
	if (!request->as_json)
		set_sink(current_call, request, &output);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	tool_run(current_call);
	code = show(current_call, request, &output);
	custom_end();
	show_messages(current_call);
	free(output.drawn);
	tool_call_free(steal_ptr(&current_call));
	close_session(&session);
	return code;
}

/* Parses the command line of tool list and tool trust: options only, and --json has no value. */
static int split_list(int argc, char **argv, struct request *request, bool *ret_json)
{
	int left = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			*ret_json = true;
		else
			argv[left++] = argv[i];
	}
	if (split_words(left, argv, request) != EXIT_OK)
		return EXIT_USAGE;
	request->custom.root = request->root;
	return EXIT_OK;
}

static int manage(int argc, char **argv)
{
	static struct request request;
	const char *word = argv[0];
	bool as_json = false;

	if (strcmp(word, "new") == 0)
		return custom_new_command(argc, argv);
	if (split_list(argc, argv, &request, &as_json) != EXIT_OK)
		return EXIT_USAGE;
	if (request.help) {
		fputs(usage, stdout);
		return EXIT_OK;
	}
	if (strcmp(word, "render") == 0)
		return request.argc == 1
			       ? render_command(&request.custom, request.argv[0], request.expanded)
			       : complain("render takes the id of one call");
	if (request.argc)
		return complain("\"%s\" is one word too many", request.argv[0]);
	if (!request.root)
		request.custom.root = ".";
	return strcmp(word, "trust") == 0 ? custom_trust_command(&request.custom, request.yes)
					  : custom_list_command(&request.custom, as_json);
}

static bool is_managing(const char *word)
{
	static const char *const words[] = {"list", "--list", "trust", "new", "render"};

	for (size_t i = 0; i < array_size(words); i++)
		if (strcmp(words[i], word) == 0)
			return true;
	return false;
}

int tool_command(int argc, char **argv)
{
	static struct request request = {
		.root = "."}; /* static: the registry keeps pointers into it */
	struct buffer reasons cleanup_buffer = {0};
	const struct tool *tool;
	cJSON *arguments = NULL;
	int code;

	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		fputs(usage, argc < 2 ? stderr : stdout);
		return argc < 2 ? EXIT_USAGE : EXIT_OK;
	}
	if (is_managing(argv[1]))
		return manage(argc - 1, argv + 1);
	code = split_words(argc - 2, argv + 2, &request);
	if (code != EXIT_OK)
		return code;
	signal(SIGPIPE, SIG_IGN);
	request.custom.root = request.root;
	request.custom.session = custom_session_name(request.conversation);
	custom_use(&request.custom);
	tool = registry_find(argv[1]);
	if (!tool && terminal_is_there() && custom_trust_ask(&request.custom))
		tool = registry_find(argv[1]);
	if (!tool && custom_explain_missing(argv[1], &reasons))
		return complain("there is no tool \"%s\": %.*s", argv[1], (int)reasons.size,
			(const char *)reasons.data);
	if (!tool)
		return complain("there is no tool \"%s\"; isthmus tool list shows them", argv[1]);
	if (request.help)
		return print_help(tool);
	code = make_arguments(tool, &request, &arguments);
	return code == EXIT_OK ? run(tool, &request, arguments) : code;
}
