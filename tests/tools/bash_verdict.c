#include "tests/tools/bash_verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tools/base/process.h"
#include "tools/base/registry.h"
#include "tools/run.h"

static struct bash_verdict *running;

int __wrap_process_run(struct tool_call *call, const struct process_request *request,
	struct process_result *ret_result);

int __wrap_process_run(struct tool_call *call, const struct process_request *request,
	struct process_result *ret_result)
{
	(void)call;
	running->line = request->command ? strdup(request->command) : NULL;
	*ret_result = (struct process_result){0};
	return 0;
}

static int note_question(struct tool_call *call, const struct permission_question *question)
{
	struct bash_verdict *verdict = call->asker;

	verdict->action = PERMISSION_ASK;
	verdict->reason = question->reason ? strdup(question->reason) : NULL;
	return PERMISSION_NO;
}

struct bash_verdict bash_verdict(struct tool_session *session, const char *tool, cJSON *arguments)
{
	struct bash_verdict verdict = {.action = PERMISSION_ALLOW};
	struct tool_call *call = tool_call_new(session, registry_find(tool), arguments, "test");

	if (!call) {
		verdict.failed = true;
		return verdict;
	}
	call->ask_permission = note_question;
	call->asker = running = &verdict;
	if (tool_run(call) < 0 && verdict.action != PERMISSION_ASK) {
		verdict.action = PERMISSION_DENY;
		verdict.failed = call->code != TOOL_PERMISSION_DENIED;
		verdict.reason = call->message ? strdup(call->message) : NULL;
	}
	tool_call_free(call);
	return verdict;
}

void bash_verdict_done(struct bash_verdict *verdict)
{
	free(verdict->reason);
	free(verdict->line);
}

static int make_entry(int fd, const char *name, const char *target)
{
	int file;

	if (target)
		return symlinkat(target, fd, name);
	if (name[strlen(name) - 1] == '/')
		return mkdirat(fd, name, 0755) < 0 && errno != EEXIST ? -1 : 0;
	file = openat(fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
	return file < 0 ? -1 : close(file);
}

int bash_verdict_tree(const char *directory)
{
	static const char *const entries[][2] = {
		{"out/"},
		{"out/key"},
		{"home/"},
		{"home/.bashrc"},
		{"w/"},
		{"w/f"},
		{"w/g"},
		{"w/a b"},
		{"w/-rf"},
		{"w/src/"},
		{"w/src/a.c"},
		{"w/src/b.c"},
		{"w/build/"},
		{"w/build/a.o"},
		{"w/secret/"},
		{"w/secret/key"},
		{"w/.env"},
		{"w/.git/"},
		{"w/.git/HEAD"},
		{"w/.git/config"},
		{"w/.git/hooks/"},
		{"w/.git/hooks/x"},
		{"w/.husky/"},
		{"w/.husky/pre-commit"},
		{"w/.envrc"},
		{"w/.mcp.json"},
		{"w/.isthmus.json"},
		{"w/.vscode/"},
		{"w/.vscode/tasks.json"},
		{"w/leave", "../out"},
		{"w/leave_file", "../out/key"},
		{"w/up", ".."},
		{"w/hooks", ".git/hooks"},
		{"w/inside", "src"},
		{"w/to_secret", "secret/key"},
		{"w/to_root", "/"},
		{"w/dangling", "../out/new"},
		{"w/dangling_hook", ".git/hooks/new"},
	};
	cleanup_fd int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < array_size(entries); i++)
		if (make_entry(fd, entries[i][0], entries[i][1]) < 0)
			return -errno;
	return 0;
}
